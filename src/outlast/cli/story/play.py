"""The story from beginning to end, told from what the store and the suppliers' record say."""

from datetime import UTC, datetime

from outlast.cli.story import ending, proof
from outlast.cli.story.cast import Cast, Place
from outlast.cli.story.example import Example
from outlast.cli.story.notes import Notes
from outlast.cli.story.person import Person
from outlast.cli.story.rounds import KILL_ROUND, Rounds
from outlast.cli.story.scene import INVITATIONS, Scene
from outlast.cli.story.stage import Stage
from outlast.core.budget import SECOND
from outlast.core.rows import is_over
from outlast.runtime.operations import Operations
from outlast.runtime.port import Actor
from outlast.store.port import Store

WIND_UP_MAX_MS = 5 * SECOND
SLOTS = 2


class Play:
    """One telling in one folder; it goes on where an earlier one was broken off."""

    def __init__(
        self, store: Store, place: Place, notes: Notes, stage: Stage, example: Example, *, alone: bool, speed: float
    ) -> None:
        """`alone`: nobody is there to approve, so a process of our own does. `speed`: of time in the rounds."""
        self._alone, self._speed = alone, speed
        self._example = example
        self._workflow = example.part("workflow").negotiation
        flows = {self._workflow.name: self._workflow}
        ops = Operations(store, tenant="default", actor=Actor("local:demo"), workflows=flows)
        self._scene = Scene(ops, notes, Cast(place, example, notes), stage, example)

    async def perform(self) -> proof.Proof:
        """Play the whole story. No process is left behind. Raises StoryBroken."""
        scene = self._scene
        inbox = self._example.part("inbox")
        app = inbox.inbox_app(inbox.posting(scene.ops.signal))
        async with self._example.part("loopback").serve(app, scene.notes.inbox_port) as url:
            scene.inbox_url = url
            scene.notes.inbox_port = int(url.rpartition(":")[2])
            try:
                await self._open()
                if approval := await Rounds(scene, speed=self._speed).play():
                    await Person(scene, alone=self._alone).play(approval)
                return await self._prove()
            finally:
                await self._wind_up()

    async def _open(self) -> None:
        """Start who is needed: two workers for a run that has rounds before it, none for one that waits or is over."""
        scene, cast, notes = self._scene, self._scene.cast, self._scene.notes
        cast.open_market()
        run = await scene.ops.run(notes.run) if notes.run else None
        if run is None or not (is_over(run) or await scene.pending()):
            cast.hire(scene.inbox_url)
            cast.hire(scene.inbox_url)
        market = await cast.market()
        notes.save(cast.folder)
        if run is None:
            await self._start(market)
        scene.stage.say(f"  run       {notes.run}\n  store     {cast.store_url}\n")

    async def _start(self, market: str) -> None:
        scene, notes = self._scene, self._scene.notes
        await scene.ops.set_slots(SLOTS)
        today = datetime.fromtimestamp((await scene.ops.store.now()).business / SECOND, UTC).date()
        purchase = self._example.part("samples").sample("leverage", market=market, today=today)
        started = await scene.ops.start(self._workflow.name, purchase, idempotency_key="demo")
        notes.run, notes.begun_at = started.run, scene.clock.wall()
        notes.save(scene.cast.folder)

    async def _prove(self) -> proof.Proof:
        scene, stage = self._scene, self._scene.stage
        await scene.look()
        entries = scene.entries()
        shown = await proof.prove(scene.ops, scene.notes, scene.record, entries)
        facts = shown.facts
        if facts["order"]:
            letters = scene.record.count(entries, "messages", scene.notes.run)
            stage.say(f"  ✓ award         {facts['order']} · {letters.sent} letters sent")
        if facts["resume_seconds"] is not None:
            stage.say(f"    resumed {facts['resume_seconds']}s after the decision, in a fresh process")
        stage.now("")
        stage.say(f"\n  {facts['outcome']} in {facts['seconds']}s {facts['reason']}".rstrip())
        stage.say("\n".join(f"    {'✓' if claim.holds else '✗'} {claim.text}" for claim in shown.claims))
        stays = scene.cast.stays(well=shown.holds)
        if stays:
            told = await ending.report(scene.ops, facts["run"], self._example, shown)
            stage.say(f"\n  Report: {ending.write(told, scene.cast.folder, self._example)}")
        if stays or scene.notes.store:
            stage.say(f"\n  Proof: {stage.fit(scene.cast.command('runs', 'effects', facts['run']))}\n")
        return shown

    async def _wind_up(self) -> None:
        """No process is left behind. The suppliers finish what has reached them, for the story may be told on."""
        scene = self._scene
        await scene.cast.send_home()
        give_up = scene.clock.mono() + WIND_UP_MAX_MS
        while scene.record.in_flight(scene.entries(), INVITATIONS, KILL_ROUND):
            if scene.clock.mono() > give_up:
                break
            await scene.pause()
        await scene.cast.close()
