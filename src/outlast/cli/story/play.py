"""The course of the story: rounds, the kill, the takeover, the person, the award; told from what the store says."""

import asyncio
import math
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from outlast.cli.story import proof
from outlast.cli.story.cast import Cast
from outlast.cli.story.children import StoryBroken
from outlast.cli.story.example import Example
from outlast.cli.story.notes import Kill, Notes
from outlast.cli.story.stage import Stage
from outlast.core.budget import HOUR, MINUTE, SECOND
from outlast.core.commit import Mapping
from outlast.core.events import EventType
from outlast.core.machine import ApprovalStatus, LeaseStatus
from outlast.core.overlay import attention_of, rearmed, waiting_of
from outlast.core.rows import WORKER, Approval, Event, Run, Worker, is_over
from outlast.errors import Conflict, NotFound, Rejected, StoreError
from outlast.runtime.clocks import SystemClock
from outlast.runtime.operations import Operations
from outlast.runtime.port import Actor

LOOK_S = 0.03
TRUE = 1.0  # while a person decides
TAKEOVER_MAX_MS = 60 * SECOND
WIND_UP_MAX_MS = 5 * SECOND
KILL_ROUND = 3
ROUNDS = 5
SLOTS = 2
PAUSE = 40 * HOUR  # unattended: how long the person lets it lie
REASON = "under budget"


class Play:
    """One telling of the story in one folder; it goes on where an earlier one was broken off."""

    def __init__(
        self, folder: Path, notes: Notes, stage: Stage, example: Example, *, alone: bool, speed: float
    ) -> None:
        """`alone`: nobody is there to approve, so a process of our own does. `speed`: of time in the rounds."""
        self.notes = notes
        self.cast = Cast(folder, example, notes)
        self._stage = stage
        self._alone, self._speed = alone, speed
        self._letters, self._record = example.part("letters"), example.part("record")
        self._samples, self._inbox = example.part("samples"), example.part("inbox")
        self._serve = example.part("loopback").serve
        self._workflow = example.part("workflow").negotiation
        self._clock = SystemClock()
        self._ops: Operations
        self._inbox_url = ""
        self._seen = 0
        self._node, self._entered = "", 0
        self._rounds = 0
        self._slow_by_bid = not notes.run
        self._approving: asyncio.Task[None] | None = None

    async def perform(self, store: Any) -> proof.Proof:
        """The whole story. Raises StoryBroken; whatever happens, no process is left behind and the clock goes 1:1."""
        flows = {self._workflow.name: self._workflow}
        self._ops = Operations(store, tenant="default", actor=Actor("local:demo"), workflows=flows)
        async with self._serve(self._inbox.inbox_app(self._signal), self.notes.inbox_port) as url:
            self._inbox_url = url
            self.notes.inbox_port = int(url.rpartition(":")[2])
            try:
                await self._open()
                if approval := await self._auction():
                    await self._person(approval)
                    await self._award()
                return await self._prove()
            finally:
                await self._wind_up()

    async def _wind_up(self) -> None:
        """No process is left behind. The suppliers finish what has reached them, for the story may be told on."""
        await self.cast.send_home()
        give_up = self._clock.mono() + WIND_UP_MAX_MS
        while self._record.in_flight(self._entries(), "invitations", KILL_ROUND):
            if self._clock.mono() > give_up:
                break
            await asyncio.sleep(LOOK_S)
        await self.cast.close()
        if self._business_rate() != TRUE:
            await self._run_clock(TRUE)

    # --- setting the scene ---------------------------------------------------------------------------
    async def _open(self) -> None:
        cast, notes = self.cast, self.notes
        cast.open_market()
        if notes.run and await self._at_rest():
            await cast.market()
            return
        cast.hire(self._inbox_url)
        cast.hire(self._inbox_url)
        market = await cast.market()
        notes.save(cast.folder)
        await self._run_clock(self._speed)
        if not notes.run:
            await self._ops.set_slots(SLOTS)
            today = datetime.fromtimestamp((await self._ops.store.now()).business / SECOND, UTC).date()
            purchase = self._samples.sample("leverage", market=market, today=today)
            started = await self._ops.start(self._workflow.name, purchase, idempotency_key="demo")
            notes.run, notes.begun_at = started.run, self._clock.wall()
            notes.save(cast.folder)
        self._stage.say(f"  run       {notes.run}\n  store     {cast.store_url}\n")

    async def _at_rest(self) -> bool:
        """Does the run wait for a person already, or is it over?"""
        run = await self._ops.run(self.notes.run)
        return is_over(run) or _asks(run)

    async def _run_clock(self, rate: float) -> None:
        await self._set_clock(rate, 0)

    async def _set_clock(self, rate: float, ahead_ms: int) -> None:
        """Let business time run at `rate` from now on, moved ahead by `ahead_ms`.

        It never runs backwards, so where it gets slower the new mapping begins at the instant by which it will have
        landed: within the slack, or else with more of it.
        """
        store = self._ops.store
        for slack in SLACKS_MS:
            now = await store.now()
            lead = int(slack * max(self._business_rate() - rate, 0))
            wanted = Mapping(0, now.real, now.business + ahead_ms + lead, rate)
            try:
                self.notes.ran(await store.set_mapping(wanted, rearmed))
                break
            except Rejected:
                continue
        else:
            raise StoryBroken("the business clock could not be set", "the store was too slow every time")
        self.notes.save(self.cast.folder)

    def _business_rate(self) -> float:
        return self._ops.store.mapping().rate

    async def _signal(self, run: str, name: str, payload: dict[str, Any], signal_id: str) -> str:
        """A supplier's bid has come in. With the first of the last round the fast time is over: no deadline is left."""
        last = self._letters.bid_signal(1, payload["round"]) == name and payload["round"] == ROUNDS
        if last and self._slow_by_bid and self._business_rate() != TRUE:
            await self._run_clock(TRUE)
        try:
            await self._ops.signal(run, name, payload, signal_id=signal_id)
        except NotFound:
            return "unknown"
        except Conflict:
            return "ended"
        except StoreError:
            return "unavailable"
        return "accepted"

    # --- looking --------------------------------------------------------------------------------------
    async def _look(self) -> Run:
        """The run as it stands; what has happened since the last look is told."""
        self.cast.check()
        run = await self._ops.run(self.notes.run)
        for event in await self._ops.history(self.notes.run, after=self._seen):
            self._seen = event.seq
            self._tell(event)
        if attention := attention_of(run):
            raise StoryBroken(
                f"run {run.run} needs a person: {attention[0].reason.value}",
                attention[0].detail,
                self.cast.command("runs", "show", run.run),
            )
        return run

    def _tell(self, event: Event) -> None:
        if event.type == EventType.CHECKPOINT.value:
            seconds = (self.notes.real(event.at) - self._entered) / SECOND
            self._stage.say(f"  ✓ {self._node:<14}{seconds:.1f}s{self._remark(self._node)}")
        if event.node != self._node or event.type == EventType.CHECKPOINT.value:
            self._node, self._entered = event.node, self.notes.real(event.at)

    def _remark(self, node: str) -> str:
        if node != "auction":
            return ""
        count = self._invitations()
        crashes = len(self.notes.kills)
        return (
            f" · {self._rounds} rounds · {crashes} crash{'' if crashes == 1 else 'es'}"
            f" · {count.sent} invitations, {count.distinct} distinct, {count.repeated} repeated"
        )

    def _entries(self) -> list[Any]:
        entries: list[Any] = self._record.read(self.cast.record)
        return entries

    def _invitations(self) -> Any:
        return self._record.count(self._entries(), "invitations", self.notes.run)

    async def _until(self, holds: Callable[[Run], bool]) -> Run:
        """The run, once this holds for it."""
        while True:
            run = await self._look()
            if holds(run):
                return run
            await asyncio.sleep(LOOK_S)

    # --- the auction, and the kill ----------------------------------------------------------------------
    async def _auction(self) -> Approval | None:
        """Until a person is asked; None when the run ended without."""
        while True:
            run = await self._look()
            if is_over(run):
                return None
            if _asks(run) and not run.owner and (approval := await self._asked()):
                return approval
            await self._round(run)
            await asyncio.sleep(LOOK_S)

    async def _round(self, run: Run) -> None:
        entries = self._entries()
        rounds = [e.round for e in entries if isinstance(e, self._record.Arrived) and e.kind == "invitations"]
        self._rounds = max(rounds, default=0)
        if not rounds or run.node != "auction":
            return
        sent = self._record.count(entries, "invitations", self.notes.run).sent
        bids = sum(1 for e in entries if isinstance(e, self._record.Offered) and e.round == self._rounds)
        detail = f" · invitations sent {sent}" + (f" · bids {bids}" if bids else "") + await self._closes(run)
        self._stage.now(f"  ▸ auction       round {self._rounds} of {ROUNDS}", detail)
        flying = self._record.in_flight(entries, "invitations", KILL_ROUND)
        if flying and not self.notes.kills:
            await self._kill(run, sent, flying[0].supplier)

    async def _closes(self, run: Run) -> str:
        until = min((waiting.until for waiting in waiting_of(run) if waiting.until), default=0)
        left = until - (await self._ops.store.now()).business
        return f" · closes in {left // HOUR}h" if until and left > 0 else ""

    async def _kill(self, run: Run, sent: int, supplier: str) -> None:
        victim = self.cast.holder(run.owner)
        if victim is None:
            return  # nobody holds it at this very moment: the next look decides
        self.notes.kills.append(Kill(at=self._clock.wall(), worker=run.owner, name=victim.name, sent=sent))
        await self.cast.kill(victim)
        self.notes.save(self.cast.folder)
        self._stage.say(
            f"    ✗ worker {victim.name} killed with SIGKILL on purpose (pid {victim.pid}), mid-round:"
            f" {sent} invitations sent, {supplier}'s answer outstanding"
        )
        await self._takeover(run.owner)

    async def _takeover(self, dead: str) -> None:
        give_up = self._clock.wall() + TAKEOVER_MAX_MS
        before = self.notes.kills[-1].at
        while (run := await self._look()).owner == dead:
            lease = await self._ops.store.load(WORKER, ("*", dead))
            assert isinstance(lease, Worker)
            left = max(0, lease.lease_until - (await self._ops.store.now()).real)
            self._stage.now("    … nobody holds the run", f" · lease expires in {left / SECOND:.1f}s")
            if self._clock.wall() > give_up:
                raise StoryBroken(f"nobody took run {self.notes.run} over", f"it is still {dead}'s")
            await asyncio.sleep(LOOK_S)
        seconds = proof.takeover_seconds(self.notes, await self._ops.history(self.notes.run))
        name = self.cast.name_of(run.owner)
        self._stage.say(f"    ✓ worker {name} took over after {seconds}s, in round {self._rounds}")
        await self._picked_up(before)

    async def _picked_up(self, killed_at: int) -> None:
        """What the kill cut has an outcome again."""
        cut = {e.key for e in await self._ops.effects(self.notes.run) if not e.settled_at}
        while cut:
            await self._look()
            self._stage.now(f"    … asking the suppliers about {len(cut)} invitations the kill cut")
            await asyncio.sleep(LOOK_S)
            cut = {e.key for e in await self._ops.effects(self.notes.run) if not e.settled_at and e.key in cut}
        effects = await self._ops.effects(self.notes.run)
        count, sent = self._invitations(), self.notes.kills[-1].sent
        self._stage.say(
            f"    ✓ {sent} invitations already sent, {count.repeated} sent again; "
            f"{proof.asked(effects)} settled by asking the supplier"
        )

    # --- the person -----------------------------------------------------------------------------------
    async def _asked(self) -> Approval | None:
        pending, _ = await self._ops.approvals(status=ApprovalStatus.PENDING.value)
        return next((a for a in pending if a.run == self.notes.run), None)

    async def _person(self, approval: Approval) -> None:
        if self._business_rate() != TRUE:
            await self._run_clock(TRUE)
        await self.cast.send_home()
        await self._nobody()
        stage, command = self._stage, self.cast.command("approvals", "approve", approval.id, "--reason", REASON)
        stage.say(f"  ⏸ approve       {approval.summary}")
        waiting = f"    waiting for {approval.who}"
        if self._alone:
            stage.say(waiting + await self._left(approval))
            await self._set_clock(TRUE, PAUSE)
            stage.say(f"    … {PAUSE // HOUR} hours of business time pass, and nothing runs")
            stage.say(waiting + await self._left(approval))
            stage.say(f"    $ {command}")
            self._approving = asyncio.create_task(self._approve(approval))
        else:
            stage.must_say(f"\n  Approve it in another terminal:\n\n    {command}\n")
        await self._decided(waiting, approval)

    async def _nobody(self) -> None:
        """Show that no process holds the run: no owner on its row, no lease alive, no worker process."""
        run = await self._ops.run(self.notes.run)
        alive = [w.id for w in await self._ops.workers() if w.status is LeaseStatus.ALIVE]
        if run.owner or alive or self.cast.workers:
            raise StoryBroken("a process still holds the run", f"owner {run.owner!r}, leases {alive}")

    async def _left(self, approval: Approval) -> str:
        left = approval.within_until - (await self._ops.store.now()).business
        hours, minutes = divmod(math.ceil(left / MINUTE), 60)
        span = f"{hours}h" + (f" {minutes}m" if minutes else "")
        return f" · no process holds the run · {span} left, then REQUIRES_ATTENTION"

    async def _approve(self, approval: Approval) -> None:
        """What the person would do, by a process of its own."""
        status, said = await self.cast.person("approvals", "approve", approval.id, "--reason", REASON)
        if status:
            raise StoryBroken(f"approvals approve ended with status {status}", said)
        self._stage.say(f"      {said.partition(' · ')[0]}")

    async def _decided(self, waiting: str, approval: Approval) -> None:
        """Until somebody has decided, or has left the run another reason to move."""
        while True:
            run, now = await self._look(), await self._ops.store.now()
            if run.due_at is not None and run.due_at <= now.real:
                return
            if self._approving is None:
                self._stage.now(waiting, await self._left(approval), works=False)
            elif self._approving.done():
                await self._approving
            await asyncio.sleep(LOOK_S)

    # --- the end ----------------------------------------------------------------------------------------
    async def _award(self) -> None:
        """A fresh process takes the run up again and brings it to its end."""
        worker = self.cast.hire(self._inbox_url)
        self._stage.now(f"  ▸ award         a fresh worker process {worker.name} (pid {worker.pid})")
        if self._approving is not None:
            await self._approving
        await self._until(is_over)
        await self.cast.send_home()

    async def _prove(self) -> proof.Proof:
        await self._look()
        entries, now = self._entries(), self._clock.wall()
        shown = await proof.prove(self._ops, self.notes, self._record, entries, now)
        facts, stage = shown.facts, self._stage
        if facts["order"]:
            letters = self._record.count(entries, "messages", self.notes.run)
            stage.say(f"  ✓ award         {facts['order']} · {letters.sent} letters sent")
        if facts["resume_seconds"] is not None:
            stage.say(f"    resumed {facts['resume_seconds']}s after the decision, in a fresh process")
        stage.now("")
        stage.say(f"\n  {facts['outcome']} in {facts['seconds']}s {facts['reason']}".rstrip())
        stage.say("\n".join(f"    {'✓' if claim.holds else '✗'} {claim.text}" for claim in shown.claims))
        stage.say(f"\n  Proof: {self.cast.command('runs', 'effects', facts['run'])}")
        return shown


SLACKS_MS = (50, 200, 800, 3_200)  # of real time: between reading the store's clock and landing a slower mapping


def _asks(run: Run) -> bool:
    """Does it wait for a person's decision?"""
    return any(waiting.kind == "approval" for waiting in waiting_of(run))
