"""The auction of the demo: rounds of bids, a killed worker, a takeover, an approval, an award."""

import asyncio
import math
from datetime import UTC, datetime
from typing import Final

from outlast.core.approvals import Actor
from outlast.core.durations import HOUR, MINUTE, SECOND
from outlast.core.machine import LeaseStatus
from outlast.core.rows.effect_rows import Approval
from outlast.core.rows.run_rows import Run, is_over
from outlast.core.rows.store_rows import STORE, WORKER
from outlast.runtime.operations import Operations
from outlast.store.port import Store

from .. import record
from ..inbox import inbox_app, posting
from ..loopback import serve
from ..samples import sample
from ..workflow import negotiation
from . import page, proof
from .output import Output
from .processes import DemoFailed, DemoFolder
from .progress import AUCTION, INVITATIONS, Demo, asks
from .state import DemoState, Kill

TAKEOVER_MAX_MS: Final = MINUTE
WIND_UP_MAX_MS: Final = 5 * SECOND
KILL_ROUND: Final = 3
ROUNDS: Final = 5
SLOTS: Final = 2
PAUSE: Final = 40 * HOUR  # business time until the unattended decision
REASON: Final = "under budget"


def operations_for(store: Store) -> Operations:
    """Return the operations of the demo on a store."""
    return Operations(store, tenant="default", actor=Actor("local:demo"), workflows={negotiation.name: negotiation})


class Auction:
    """The auction in one folder; an interrupted auction continues."""

    def __init__(
        self, store: Store, folder: DemoFolder, state: DemoState, output: Output, *, unattended: bool, speed: float
    ) -> None:
        """`unattended`: a process of the demo approves. `speed`: of business time while bids are awaited."""
        self._unattended, self._speed = unattended, speed
        self._demo = Demo(operations_for(store), state, folder, output)

    async def play(self) -> proof.Proof:
        """Play the auction to its end and stop every process. Raises DemoFailed."""
        demo = self._demo
        app = inbox_app(posting(demo.ops.signal))
        async with serve(app, demo.state.inbox_port) as url:
            demo.state.inbox_port = int(url.rpartition(":")[2])
            try:
                await self._open(url)
                if approval := await Bidding(demo, speed=self._speed).play():
                    await Decision(demo, unattended=self._unattended).play(approval)
                return await self._prove()
            finally:
                await self._wind_up()

    async def _open(self, inbox: str) -> None:
        """Start the market, and two workers unless the run already waits for an approval or has ended."""
        demo, processes, state = self._demo, self._demo.processes, self._demo.state
        demo.open_market(inbox)
        run = await demo.ops.rows.run(state.run) if state.run else None
        await processes.open_engine()
        if run is None or not (is_over(run) or await demo.pending()):
            processes.start_worker()
            processes.start_worker()
        market = await demo.market()
        state.save(processes.folder)
        if run is None:
            await self._start(market)
        demo.output.line(f"  run       {state.run}\n  store     {processes.store_url}\n")

    async def _start(self, market: str) -> None:
        demo, state = self._demo, self._demo.state
        await demo.ops.set_slots(SLOTS)
        today = datetime.fromtimestamp((await demo.ops.store.now()).business / SECOND, UTC).date()
        purchase = sample("leverage", market=market, today=today)
        started = await demo.ops.start_run(negotiation.name, purchase)
        state.run, state.begun_at = started.run, demo.clock.wall()
        state.save(demo.processes.folder)

    async def _prove(self) -> proof.Proof:
        demo, output = self._demo, self._demo.output
        await demo.poll()
        entries = demo.entries()
        shown = await proof.prove(demo.ops, demo.state, entries, kills=True)
        facts = shown.facts
        if facts["order"]:
            letters = record.count(entries, "messages", demo.state.run)
            once = proof.mark(letters.repeated == 0 < letters.sent)
            output.line(f"  {once} award         {facts['order']} · {letters.sent} letters sent")
        output.status("")
        output.line(f"\n  {facts['outcome']} in {facts['seconds']}s {facts['reason']}".rstrip())
        output.line(proof.lines(shown.claims))
        kept = demo.processes.kept(well=shown.holds)
        if kept:
            path = page.write(await page.report(demo.ops, facts["run"], shown), demo.processes.folder)
            output.line(f"\n  Report: {path}")
        if kept or demo.state.store:
            output.line(f"\n  Proof: {output.fold(demo.processes.command('runs', 'effects', facts['run']))}\n")
        return shown

    async def _wind_up(self) -> None:
        """Stop every process once the suppliers have handled the received requests, so that a demo can continue."""
        demo = self._demo
        await demo.processes.stop_workers()
        give_up = demo.clock.mono() + WIND_UP_MAX_MS
        while record.in_flight(demo.entries(), INVITATIONS, KILL_ROUND):
            if demo.clock.mono() > give_up:
                break
            await demo.pause()
        await demo.processes.close()


class Bidding:
    """The rounds of bids: a worker is killed with an invitation in flight, and another takes over."""

    def __init__(self, demo: Demo, *, speed: float) -> None:
        self._demo = demo
        self._speed = speed

    async def play(self) -> Approval | None:
        """Play until the run asks for an approval, and return it; None if the run ends first."""
        demo = self._demo
        while True:
            run = await demo.poll()
            if is_over(run):
                return None
            if asks(run) and not run.owner and (approval := await demo.pending()):
                return approval
            if run.node == AUCTION:
                await self._watch(run)
                await demo.pass_time(run, self._speed)
            await demo.pause()

    async def _watch(self, run: Run) -> None:
        demo, entries = self._demo, self._demo.entries()
        round_now = demo.round_of(entries)
        if not round_now:
            return
        sent = record.count(entries, INVITATIONS, demo.state.run).sent
        bids = sum(1 for e in entries if isinstance(e, record.Offered) and e.round == round_now)
        detail = f" · invitations sent {sent}" + (f" · bids {bids}" if bids else "") + await self._closes(run)
        demo.output.status(f"  ▸ auction       round {round_now} of {ROUNDS}", detail)
        flying = record.in_flight(entries, INVITATIONS, KILL_ROUND)
        if flying and not demo.state.kills:
            await self._kill(run, sent, flying[0].supplier)

    async def _closes(self, run: Run) -> str:
        until = min((waiting.until for waiting in run.waiting_for if waiting.until), default=0)
        left = until - (await self._demo.ops.store.now()).business
        return f" · closes in {left // HOUR}h" if until and left > 0 else ""

    async def _kill(self, run: Run, sent: int, supplier: str) -> None:
        demo = self._demo
        victim = demo.processes.holder(run.owner)
        if victim is None:
            return  # no worker holds the run at this moment; try at the next poll
        demo.state.kills.append(Kill(at=demo.clock.wall(), worker=run.owner, name=victim.name, sent=sent))
        await demo.processes.kill(victim)
        demo.state.save(demo.processes.folder)
        demo.output.line(
            f"    ✗ worker {victim.name} killed with SIGKILL on purpose (pid {victim.pid}), mid-round:"
            f" {sent} invitations sent, {supplier}'s answer outstanding"
        )
        await self._takeover(run.owner)

    async def _takeover(self, dead: str) -> None:
        demo = self._demo
        give_up = demo.clock.mono() + TAKEOVER_MAX_MS
        while (run := await demo.poll()).owner in (dead, ""):
            lease = await demo.ops.store.load(WORKER, (STORE, dead))
            assert lease is not None
            left = max(0, lease.lease_until - (await demo.ops.store.now()).real)
            demo.output.status("    … no worker holds the run", f" · lease expires in {left / SECOND:.1f}s")
            if demo.clock.mono() > give_up:
                raise DemoFailed(f"no worker took over run {run.run}", f"{dead} still holds it")
            await demo.pause()
        seconds = proof.takeover_seconds(demo.state, await demo.ops.rows.history(run.run))
        name, round_now = demo.processes.name_of(run.owner), demo.round_of(demo.entries())
        taken = proof.mark(seconds is not None and round_now > 0)
        demo.output.line(f"    {taken} worker {name} took over after {seconds}s, in round {round_now}")
        await self._settle()

    async def _settle(self) -> None:
        """Wait until every effect interrupted by the kill has an outcome."""
        demo, sent = self._demo, self._demo.state.kills[-1].sent
        left = cut = await self._open_effects()
        while left:
            demo.output.status(f"    … {len(left)} invitations were cut by the kill: asking the suppliers")
            await demo.poll()
            await demo.pause()
            left = cut & await self._open_effects()
        settled = proof.asked(await demo.ops.rows.effects(demo.state.run))
        again = demo.invitations().repeated
        demo.output.line(
            f"    {proof.mark(again == 0 < sent)} {sent} invitations already sent, {again} sent again; "
            f"{settled} settled by asking the supplier"
        )

    async def _open_effects(self) -> set[str]:
        return {
            effect.key for effect in await self._demo.ops.rows.effects(self._demo.state.run) if not effect.settled_at
        }


class Decision:
    """The wait for an approval: no process holds the run, and a command in another terminal decides."""

    def __init__(self, demo: Demo, *, unattended: bool) -> None:
        self._demo = demo
        self._unattended = unattended
        self._shown = ""
        self._approving: asyncio.Task[None] | None = None

    async def play(self, approval: Approval) -> None:
        """Wait for the decision, then let fresh workers bring the run to its end."""
        demo = self._demo
        asked: Approval | None = approval
        while asked is not None:
            await demo.processes.stop_workers()
            await self._check_released()
            if asked.id != self._shown:
                await self._ask(asked)
            await self._until_due(asked)
            asked = await self._serve()
        await demo.processes.stop_workers()

    async def _ask(self, approval: Approval) -> None:
        demo, output = self._demo, self._demo.output
        self._shown = approval.id
        first, *more = approval.summary.split(". ")
        output.line("\n".join([f"  ⏸ approve       {first}", *(f"                  {line}" for line in more)]))
        command = ("approvals", "approve", approval.id, "--reason", REASON)
        if self._unattended:
            output.line(await self._waiting(approval))
            await demo.move_clock(PAUSE)
            output.line(f"    … {PAUSE // HOUR} hours of business time pass, and nothing runs")
            output.line(await self._waiting(approval))
            await self._bring_worker()
            output.line(f"    $ {output.fold(demo.processes.command(*command))}")
            self._approving = asyncio.create_task(self._approve(*command))
        else:
            typed = output.fold(demo.processes.command("-q", *command))  # -q: the demo starts the missing worker
            output.prompt(f"\n  Approve it in another terminal; then a worker starts here:\n\n    {typed}\n")

    async def _bring_worker(self) -> None:
        """Start a worker and wait until its lease is alive, so that the time to resume has no start of a process."""
        demo = self._demo
        worker = demo.processes.start_worker()
        while not any(each.id.startswith(f"w-{worker.pid}-") for each in await demo.ops.rows.workers()):
            demo.processes.check()
            await demo.pause()
        demo.state.alive_at_decision = True
        demo.state.save(demo.processes.folder)
        demo.output.line(f"    ▸ worker {worker.name} (pid {worker.pid}) is alive, and no process holds the run")

    async def _check_released(self) -> None:
        """Raise DemoFailed if the run has an owner, or if a worker lives."""
        run = await self._demo.ops.rows.run(self._demo.state.run)
        alive = [w.id for w in await self._demo.ops.rows.workers() if w.status is LeaseStatus.ALIVE]
        dead = {kill.worker for kill in self._demo.state.kills}
        if run.owner or set(alive) - dead or self._demo.processes.workers:
            raise DemoFailed("a process still holds the run", f"owner {run.owner!r}, leases {alive}")

    async def _waiting(self, approval: Approval) -> str:
        return f"    waiting for {approval.who}{await self._left(approval)}"

    async def _left(self, approval: Approval) -> str:
        left = approval.within_until - (await self._demo.ops.store.now()).business
        hours, minutes = divmod(math.ceil(left / MINUTE), 60)
        span = f"{hours}h" + (f" {minutes}m" if minutes else "")
        return f" · no process holds the run · {span} left, then REQUIRES_ATTENTION"

    async def _approve(self, *command: str) -> None:
        status, said = await self._demo.processes.run_command(*command)
        if status:
            raise DemoFailed(f"approvals approve ended with status {status}", said)
        self._demo.output.line(f"      {said.partition(' · ')[0]}")

    async def _until_due(self, approval: Approval) -> None:
        """Wait until the run can move: after the decision, a late bid or a cancel."""
        demo = self._demo
        while True:
            run = await demo.poll()
            if is_over(run) or await self._is_due(run):
                return
            if self._approving is None:
                demo.output.status(f"    waiting for {approval.who}", await self._left(approval), works=False)
            elif self._approving.done():
                await self._approving
                if demo.processes.workers:  # one is alive, which takes the run at once
                    return
            await demo.pause()

    async def _is_due(self, run: Run) -> bool:
        return run.due_at is not None and run.due_at <= (await self._demo.ops.store.now()).real

    async def _serve(self) -> Approval | None:
        """Start a worker; return the next approval that the run asks for, or None once it has ended."""
        demo = self._demo
        if not demo.processes.workers:
            worker = demo.processes.start_worker()
            demo.output.status(f"  ▸ a fresh worker process {worker.name} (pid {worker.pid}) goes on")
        if self._approving is not None:
            await self._approving
        while not is_over(run := await demo.poll()):
            at_rest = asks(run) and not run.owner and not await self._is_due(run)
            if at_rest and (approval := await demo.pending()):
                return approval
            await demo.pause()
        return None
