"""One sample purchase, played from start to end: fast while suppliers are waited for, true while a person decides."""

import asyncio
from datetime import UTC, datetime

from outlast.cli.story import ending, proof
from outlast.cli.story.cast import Cast, Place
from outlast.cli.story.example import Example
from outlast.cli.story.notes import Notes
from outlast.cli.story.scene import Scene
from outlast.cli.story.stage import Stage
from outlast.core.budget import HOUR, SECOND
from outlast.core.machine import RunStatus
from outlast.core.rows import Approval, is_over
from outlast.errors import Conflict, InvalidInput, NotFound
from outlast.runtime.operations import Operations
from outlast.runtime.port import Actor
from outlast.store.port import Store

SLOTS = 2
THINKS = 20 * HOUR  # of business time, until an unattended person answers
REFUSED = "REFUSED"


class Sample:
    """One telling of one sample in one folder, which is new."""

    def __init__(
        self, store: Store, place: Place, notes: Notes, stage: Stage, example: Example, *, name: str, alone: bool
    ) -> None:
        """`alone`: nobody is there, so the sample's own answers decide. Raises NotFound for an unknown name."""
        stories = example.part("samples").STORIES
        if name not in stories:
            raise NotFound(f"there is no sample {name}", f"there are leverage, {', '.join(stories)}")
        if notes.run:
            raise Conflict(f"{place.folder} holds a story already", "a sample is played from its beginning")
        self._story = stories[name]
        self._answers = list(self._story.answers)
        self._alone = alone
        self._example = example
        self._workflow = example.part("workflow").negotiation
        flows = {self._workflow.name: self._workflow}
        ops = Operations(store, tenant="default", actor=Actor("local:demo"), workflows=flows)
        self._scene = Scene(ops, notes, Cast(place, example, notes, self._story.scenario), stage, example)
        self._shown = ""
        self._runs: set[str] = set()

    async def perform(self) -> proof.Proof:
        """Play the whole sample. No process is left behind. Raises StoryBroken."""
        scene = self._scene
        scene.stage.say(f"  {self._story.about}\n")
        inbox = self._example.part("inbox")
        app = inbox.inbox_app(inbox.posting(scene.ops.signal))
        async with self._example.part("loopback").serve(app) as scene.inbox_url:
            try:
                scene.cast.open_market()
                refused = await self._start(await scene.cast.market())
                if refused is not None:
                    return refused
                scene.cast.hire(scene.inbox_url)
                await self._watch()
                return await self._prove()
            finally:
                await scene.cast.send_home()
                await scene.cast.close()

    async def _start(self, market: str) -> proof.Proof | None:
        """None once it runs; else what the refusal says."""
        scene, notes, samples = self._scene, self._scene.notes, self._example.part("samples")
        await scene.ops.set_slots(SLOTS)
        today = datetime.fromtimestamp((await scene.ops.store.now()).business / SECOND, UTC).date()
        purchase = samples.sample(self._story.purchase, market=market, today=today)
        key = samples.start_key(purchase)
        try:
            begun = await asyncio.gather(
                *(scene.ops.start(self._workflow.name, purchase, idempotency_key=key) for _ in range(self._story.times))
            )
        except InvalidInput as refused:
            return self._refused(refused)
        self._runs = {each.run for each in begun}
        notes.run, notes.begun_at = begun[0].run, scene.clock.wall()
        notes.save(scene.cast.folder)
        scene.stage.say(f"  run       {notes.run}\n  store     {scene.cast.store_url}\n")
        return None

    def _refused(self, refused: InvalidInput) -> proof.Proof:
        problems = [f"$.{where} {what}" for where, what in refused.problems]
        self._scene.stage.say("\n".join(["  ✗ refused, with every problem at once:", *(f"    {p}" for p in problems)]))
        claims = (
            proof.Claim(f"{len(problems)} problems are named and no run was started", len(problems) > 1),
            proof.Claim("that is how it was to end", self._story.ends == REFUSED),
        )
        holds = all(claim.holds for claim in claims)
        return proof.Proof({"outcome": REFUSED, "problems": problems, "proven": holds}, claims)

    async def _watch(self) -> None:
        scene = self._scene
        routes = set(self._example.part("routing").ROUTES.values())
        while not is_over(run := await scene.look()):
            if run.node in routes:
                await scene.pass_time(run, self._story.rate)
            if approval := await scene.pending():
                await self._decide(approval)
            await scene.pause()
        await scene.look()

    async def _decide(self, approval: Approval) -> None:
        scene = self._scene
        if approval.id != self._shown:
            self._shown = approval.id
            scene.stage.say(f"  ⏸ {approval.summary}")
            if self._alone:
                await scene.move_clock(THINKS)
            else:
                command = scene.stage.fit(scene.cast.command("approvals", "approve", approval.id, "--reason", "…"))
                scene.stage.must_say(f"\n  Decide in another terminal:\n\n    {command}\n")
        if not self._alone:
            return
        answer = self._answers.pop(0) if self._answers else "approve"
        match answer:
            case "again":
                await scene.ops.reject(approval.id, reason="ask them once more", again=True)
            case "reject":
                await scene.ops.reject(approval.id, reason="not now")
            case "other":
                await scene.ops.approve(approval.id, reason="we would rather have this one", alternative=1)
            case _:
                await scene.ops.approve(approval.id, reason="under budget")
        scene.stage.say(f"    ▸ {answer}, after {THINKS // HOUR} hours")

    async def _prove(self) -> proof.Proof:
        scene = self._scene
        ends = (RunStatus(self._story.ends.lower()),)
        shown = await proof.prove(scene.ops, scene.notes, scene.record, scene.entries(), ends)
        claims = shown.claims
        if self._story.times > 1:
            same = proof.Claim(f"asked for {self._story.times} times, started once", len(self._runs) == 1)
            claims = (*claims, same)
        told = await ending.report(scene.ops, scene.notes.run, self._example, proof.Proof(shown.facts, claims))
        facts = {**shown.facts, "proven": all(claim.holds for claim in claims)}
        scene.stage.say(f"\n{self._example.part('report').text(told)}\n")
        if scene.cast.stays(well=facts["proven"]):
            facts["report"] = f"{ending.write(told, scene.cast.folder, self._example)}"
            scene.stage.say(f"\n  Report: {facts['report']}\n")
        return proof.Proof(facts, claims)
