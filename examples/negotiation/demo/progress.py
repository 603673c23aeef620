"""Progress of the demo's run: it is polled, printed, and its business time is moved ahead."""

import asyncio
import shlex
from typing import Any, Final
from urllib.parse import urlsplit

from outlast.clocks import SystemClock
from outlast.core.commit import Mapping
from outlast.core.durations import SECOND
from outlast.core.events import EventType
from outlast.core.machine import ApprovalStatus
from outlast.core.rows.effect_rows import Approval
from outlast.core.rows.run_rows import Event, Run
from outlast.core.run_transition import rearmed
from outlast.runtime.operations import Operations
from outlast.store.port import maintenance

from .. import record
from ..suppliers import INBOX
from .output import Output
from .processes import DemoFailed, DemoFolder, Processes
from .proof import mark
from .state import DemoState

EXAMPLE: Final = __name__.removesuffix(".demo.progress")  # another name in the wheel than in a checkout
POLL_S: Final = 0.03
REAL_RATE: Final = 1.0
PULSE_MS: Final = 250  # real time without a change of the run, after which business time moves ahead
INVITATIONS: Final = "invitations"
AUCTION: Final = "auction"


class Demo:
    """One demo: its store, saved state, processes and output."""

    def __init__(self, operations: Operations, state: DemoState, folder: DemoFolder, output: Output) -> None:
        self.ops = operations
        self.ops.scheduler = folder.runtime
        self.state = state
        self.processes = Processes(folder, example=EXAMPLE, server="market")
        self.output = output
        self.clock = SystemClock()
        self._seen = 0
        self._node, self._entered = "", 0
        self._at, self._since = (0, 0), 0  # the run's version and mail at the last poll, and since when

    def open_market(self, inbox: str, scenario: str = "demo") -> None:
        """Start the market on its former port, because the purchase holds its address. Workers poll this inbox."""
        self.processes.env = {INBOX: inbox}
        self.processes.open_server("--scenario", scenario, "--port", f"{self.state.market_port}")

    async def market(self) -> str:
        """Return the URL of the market once it accepts requests, and remember its port."""
        url = await self.processes.server_url()
        self.state.market_port = urlsplit(url).port or 0
        return url

    async def move_clock(self, ahead_ms: int) -> None:
        """Move the business time of the store ahead and save the new mapping."""
        now = await self.ops.store.now()
        wanted = Mapping(0, now.real, now.business + ahead_ms, REAL_RATE)
        self.state.add_clock(await maintenance(self.ops.store).set_mapping(wanted, rearmed))
        self.state.save(self.processes.folder)

    async def pass_time(self, run: Run, speed: float) -> None:
        """Move business time ahead by `speed` times the real time for which the run has been at rest."""
        at, now = (run.version, run.inbox_seq), self.clock.mono()
        if at != self._at:
            self._at, self._since = at, now
        if ahead := skipped(run, (await self.ops.store.now()).business, now - self._since, speed):
            self._since = now
            await self.move_clock(ahead)

    async def poll(self) -> Run:
        """Print the events since the last poll and return the run.

        Raises DemoFailed if the run needs attention or a process has died.
        """
        for name in self.processes.check():
            self.output.line(f"    … {name} was silent for too long and gave up; another worker starts")
        run = await self.ops.rows.run(self.state.run)
        for event in await self.ops.rows.history(self.state.run, after=self._seen):
            self._seen = event.seq
            self._print(event)
        if attention := run.attention:
            raise DemoFailed(
                f"run {run.run} needs a person: {attention[0].reason.value}",
                attention[0].detail,
                shlex.join(self.processes.command("runs", "show", run.run)),
            )
        return run

    def _print(self, event: Event) -> None:
        if event.type == EventType.CHECKPOINT.value:
            seconds = (self.state.real(event.at) - self._entered) / SECOND
            once = self._node != AUCTION or self.invitations().repeated == 0
            self.output.line(f"  {mark(once)} {self._node:<14}{seconds:.1f}s{self._remark(self._node)}")
        if event.node != self._node or event.type == EventType.CHECKPOINT.value:
            self._node, self._entered = event.node, self.state.real(event.at)

    def _remark(self, node: str) -> str:
        if node != AUCTION:
            return ""
        count, crashes = self.invitations(), len(self.state.kills)
        return (
            f" · {self.round_of(self.entries())} rounds · {crashes} crash{'' if crashes == 1 else 'es'}"
            f" · {count.sent} invitations, {count.distinct} distinct, {count.repeated} repeated"
        )

    def entries(self) -> list[Any]:
        """Return the suppliers' record so far."""
        entries: list[Any] = record.read(self.processes.record)
        return entries

    def invitations(self) -> Any:
        """Count the invitations in the suppliers' record."""
        return record.count(self.entries(), INVITATIONS, self.state.run)

    def round_of(self, entries: list[Any]) -> int:
        """Return the last round with an invitation, or 0."""
        return max((e.round for e in entries if isinstance(e, record.Arrived) and e.kind == INVITATIONS), default=0)

    async def pending(self) -> Approval | None:
        """Return the pending approval of the run, if there is one."""
        asked, _ = await self.ops.rows.approvals(status=ApprovalStatus.PENDING.value)
        return next((approval for approval in asked if approval.run == self.state.run), None)

    async def pause(self) -> None:
        """Sleep until the next poll."""
        await asyncio.sleep(POLL_S)


def skipped(run: Run, business: int, still_ms: int, speed: float) -> int:
    """Return how far business time may move ahead: at most to the end of the wait for signals, 0 while a worker acts.

    The time in which workers start, die and take over is never multiplied: the run would reach its ceiling.
    """
    ends = [waiting.until for waiting in run.waiting_for if waiting.kind == "signal" and waiting.until]
    if run.owner or not ends or still_ms < PULSE_MS:
        return 0
    return max(0, min(min(ends) - business, int(still_ms * speed)))


def asks(run: Run) -> bool:
    """True if the run waits for an approval."""
    return any(waiting.kind == "approval" for waiting in run.waiting_for)
