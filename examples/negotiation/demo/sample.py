"""A sample purchase, played from start to end: business time is fast except while an approver decides."""

import asyncio
from datetime import UTC, datetime
from typing import Final

from outlast.core.durations import HOUR, SECOND
from outlast.core.rows.effect_rows import Approval
from outlast.core.rows.run_rows import Run, is_over
from outlast.errors import Conflict, InvalidInput, NotFound
from outlast.store.port import Store

from ..inbox import inbox_app, posting
from ..loopback import serve
from ..report import text
from ..routing import ROUTES
from ..samples import PROGRAMS, SAMPLES, sample
from ..workflow import negotiation
from . import page, proof
from .output import Output
from .processes import DemoFolder
from .progress import Demo
from .scenario import SLOTS, operations_for
from .state import DemoState

THINKS: Final = 20 * HOUR  # business time until the unattended decision


class SamplePurchase:
    """One sample, played in a new folder."""

    def __init__(
        self, store: Store, folder: DemoFolder, state: DemoState, output: Output, *, name: str, unattended: bool
    ) -> None:
        """`unattended`: the answers of the sample decide. Raises NotFound for an unknown name."""
        if name not in SAMPLES:
            raise NotFound(f"there is no sample {name}", f"there are leverage, {', '.join([*SAMPLES, *PROGRAMS])}")
        if state.run:
            raise Conflict(f"{folder.path} holds a demo already", "a sample is played from its beginning")
        self._sample = SAMPLES[name]
        self._answers = list(self._sample.answers)
        self._unattended = unattended
        self._demo = Demo(operations_for(store), state, folder, output)
        self._shown = ""
        self._runs: set[str] = set()

    async def play(self) -> proof.Proof:
        """Play the sample to its end and stop every process. Raises DemoFailed."""
        demo = self._demo
        demo.output.line(f"  {self._sample.about}\n")
        async with serve(inbox_app(posting(demo.ops.signal))) as inbox:
            try:
                demo.open_market(inbox, self._sample.scenario)
                refused = await self._start(await demo.market())
                if refused is not None:
                    return refused
                await demo.processes.open_engine()
                demo.processes.start_worker()
                await self._watch()
                return await self._prove()
            finally:
                await demo.processes.stop_workers()
                await demo.processes.close()

    async def _start(self, market: str) -> proof.Proof | None:
        """Start the run. Return the proof of the refusal if its input is refused."""
        demo, state = self._demo, self._demo.state
        await demo.ops.set_slots(SLOTS)
        today = datetime.fromtimestamp((await demo.ops.store.now()).business / SECOND, UTC).date()
        purchase = sample(self._sample.purchase, market=market, today=today)
        try:
            begun = await asyncio.gather(
                *(demo.ops.start_run(negotiation.name, purchase) for _ in range(self._sample.times))
            )
        except InvalidInput as refused:
            return self._refused(refused, (await demo.ops.rows.runs())[0])
        self._runs = {each.run for each in begun}
        state.run, state.begun_at = begun[0].run, demo.clock.wall()
        state.save(demo.processes.folder)
        demo.output.line(f"  run       {state.run}\n  store     {demo.processes.store_url}\n")
        return None

    def _refused(self, refused: InvalidInput, runs: tuple[Run, ...]) -> proof.Proof:
        problems = [f"$.{where} {what}" for where, what in refused.problems]
        self._demo.output.line("\n".join(["  ✗ refused, with every problem at once:", *(f"    {p}" for p in problems)]))
        claims = proof.refused(len(problems), len(runs), ends=self._sample.ends)
        facts = {"outcome": proof.REFUSED, "problems": problems, "proven": proof.proven(claims)}
        return proof.Proof(facts, claims)

    async def _watch(self) -> None:
        demo = self._demo
        routes = set(ROUTES.values())
        while not is_over(run := await demo.poll()):
            if run.node in routes:
                await demo.pass_time(run, self._sample.rate)
            if approval := await demo.pending():
                await self._decide(approval)
            await demo.pause()
        await demo.poll()

    async def _decide(self, approval: Approval) -> None:
        demo = self._demo
        if approval.id != self._shown:
            self._shown = approval.id
            demo.output.line(f"  ⏸ {approval.summary}")
            if self._unattended:
                await demo.move_clock(THINKS)
                demo.state.alive_at_decision = True  # its worker serves from the start to the end
            else:
                command = demo.processes.command("approvals", "approve", approval.id, "--reason", "…")
                demo.output.prompt(f"\n  Decide in another terminal:\n\n    {demo.output.fold(command)}\n")
        if not self._unattended:
            return
        answer = self._answers.pop(0) if self._answers else "approve"
        match answer:
            case "again":
                await demo.ops.reject(approval.id, reason="ask them once more", again=True)
            case "reject":
                await demo.ops.reject(approval.id, reason="not now")
            case "other":
                await demo.ops.approve(approval.id, reason="we would rather have this one", alternative=1)
            case _:
                await demo.ops.approve(approval.id, reason="under budget")
        demo.output.line(f"    ▸ {answer}, after {THINKS // HOUR} hours")

    async def _prove(self) -> proof.Proof:
        demo = self._demo
        shown = await proof.prove(demo.ops, demo.state, demo.entries(), (self._sample.ends,), kills=False)
        claims = shown.claims
        if self._sample.times > 1:
            claims = (*claims, proof.started_once(self._sample.times, len(self._runs)))
        made = await page.report(demo.ops, demo.state.run, proof.Proof(shown.facts, claims))
        facts = {**shown.facts, "proven": proof.proven(claims)}
        demo.output.line(f"\n{text(made)}\n")
        if demo.processes.kept(well=facts["proven"]):
            facts["report"] = f"{page.write(made, demo.processes.folder)}"
            demo.output.line(f"\n  Report: {facts['report']}\n")
        return proof.Proof(facts, claims)
