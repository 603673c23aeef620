"""The first act: rounds of bids, a worker killed with an invitation in flight, and another that takes over."""

from outlast.cli.story import proof
from outlast.cli.story.children import StoryBroken
from outlast.cli.story.notes import Kill
from outlast.cli.story.scene import AUCTION, INVITATIONS, Scene, asks
from outlast.core.budget import HOUR, MINUTE, SECOND
from outlast.core.overlay import waiting_of
from outlast.core.rows import STORE, WORKER, Approval, Run, Worker, is_over

TAKEOVER_MAX_MS = MINUTE
KILL_ROUND = 3
ROUNDS = 5


class Rounds:
    """The auction as it is watched."""

    def __init__(self, scene: Scene, *, speed: float) -> None:
        """`speed`: of business time while bids are waited for."""
        self._scene = scene
        self._speed = speed

    async def play(self) -> Approval | None:
        """Until a person is asked; None when the run ended without."""
        scene = self._scene
        while True:
            run = await scene.look()
            if is_over(run):
                return None
            if asks(run) and not run.owner and (approval := await scene.pending()):
                return approval
            if run.node == AUCTION:
                await self._watch(run)
                await scene.pass_time(run, self._speed)
            await scene.pause()

    async def _watch(self, run: Run) -> None:
        scene, entries = self._scene, self._scene.entries()
        round_now = scene.round_of(entries)
        if not round_now:
            return
        sent = scene.record.count(entries, INVITATIONS, scene.notes.run).sent
        bids = sum(1 for e in entries if isinstance(e, scene.record.Offered) and e.round == round_now)
        detail = f" · invitations sent {sent}" + (f" · bids {bids}" if bids else "") + await self._closes(run)
        scene.stage.now(f"  ▸ auction       round {round_now} of {ROUNDS}", detail)
        flying = scene.record.in_flight(entries, INVITATIONS, KILL_ROUND)
        if flying and not scene.notes.kills:
            await self._kill(run, sent, flying[0].supplier)

    async def _closes(self, run: Run) -> str:
        until = min((waiting.until for waiting in waiting_of(run) if waiting.until), default=0)
        left = until - (await self._scene.ops.store.now()).business
        return f" · closes in {left // HOUR}h" if until and left > 0 else ""

    async def _kill(self, run: Run, sent: int, supplier: str) -> None:
        scene = self._scene
        victim = scene.cast.holder(run.owner)
        if victim is None:
            return  # nobody holds it at this very moment: the next look decides
        scene.notes.kills.append(Kill(at=scene.clock.wall(), worker=run.owner, name=victim.name, sent=sent))
        await scene.cast.kill(victim)
        scene.notes.save(scene.cast.folder)
        scene.stage.say(
            f"    ✗ worker {victim.name} killed with SIGKILL on purpose (pid {victim.pid}), mid-round:"
            f" {sent} invitations sent, {supplier}'s answer outstanding"
        )
        await self._takeover(run.owner)

    async def _takeover(self, dead: str) -> None:
        scene = self._scene
        give_up = scene.clock.mono() + TAKEOVER_MAX_MS
        while (run := await scene.look()).owner == dead:
            lease = await scene.ops.store.load(WORKER, (STORE, dead))
            assert isinstance(lease, Worker)
            left = max(0, lease.lease_until - (await scene.ops.store.now()).real)
            scene.stage.now("    … nobody holds the run", f" · lease expires in {left / SECOND:.1f}s")
            if scene.clock.mono() > give_up:
                raise StoryBroken(f"nobody took run {run.run} over", f"it is still {dead}'s")
            await scene.pause()
        seconds = proof.takeover_seconds(scene.notes, await scene.ops.history(run.run))
        name, round_now = scene.cast.name_of(run.owner), scene.round_of(scene.entries())
        scene.stage.say(f"    ✓ worker {name} took over after {seconds}s, in round {round_now}")
        await self._picked_up()

    async def _picked_up(self) -> None:
        """What the kill cut has an outcome again."""
        scene, sent = self._scene, self._scene.notes.kills[-1].sent
        left = cut = await self._open_effects()
        while left:
            scene.stage.now(f"    … {len(left)} invitations were cut by the kill: asking the suppliers")
            await scene.look()
            await scene.pause()
            left = cut & await self._open_effects()
        settled = proof.asked(await scene.ops.effects(scene.notes.run))
        again = scene.invitations().repeated
        scene.stage.say(
            f"    ✓ {sent} invitations already sent, {again} sent again; {settled} settled by asking the supplier"
        )

    async def _open_effects(self) -> set[str]:
        return {effect.key for effect in await self._scene.ops.effects(self._scene.notes.run) if not effect.settled_at}
