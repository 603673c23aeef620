"""What every act of the story stands on: the store, the two clocks, the suppliers' record, and what was told so far."""

import asyncio
import shlex
from typing import Any

from outlast.cli.story.cast import Cast
from outlast.cli.story.children import StoryBroken
from outlast.cli.story.example import Example
from outlast.cli.story.notes import Notes
from outlast.cli.story.stage import Stage
from outlast.core.budget import SECOND
from outlast.core.commit import Mapping
from outlast.core.events import EventType
from outlast.core.machine import ApprovalStatus
from outlast.core.overlay import attention_of, rearmed, waiting_of
from outlast.core.rows import Approval, Event, Run
from outlast.runtime.clocks import SystemClock
from outlast.runtime.operations import Operations

LOOK_S = 0.03
TRUE = 1.0  # the rate of business time
PULSE_MS = 250  # real time without a move of the run, after which business time moves ahead
INVITATIONS = "invitations"
AUCTION = "auction"


class Scene:
    """One folder's store and processes, and the stage it is told on."""

    def __init__(self, operations: Operations, notes: Notes, cast: Cast, stage: Stage, example: Example) -> None:
        self.ops = operations
        self.notes = notes
        self.cast = cast
        self.stage = stage
        self.clock = SystemClock()
        self.record = example.part("record")
        self.inbox_url = ""
        self._seen = 0
        self._node, self._entered = "", 0
        self._at, self._since = (0, 0), 0  # the run's version and mail at the last look, and since when

    # --- the business clock ----------------------------------------------------------------------------
    async def move_clock(self, ahead_ms: int) -> None:
        """Move business time ahead."""
        now = await self.ops.store.now()
        wanted = Mapping(0, now.real, now.business + ahead_ms, TRUE)
        self.notes.ran(await self.ops.store.set_mapping(wanted, rearmed))
        self.notes.save(self.cast.folder)

    async def pass_time(self, run: Run, speed: float) -> None:
        """Let business time catch up with the real time for which the run has been at rest, at this speed."""
        at, now = (run.version, run.mail), self.clock.mono()
        if at != self._at:
            self._at, self._since = at, now
        if ahead := skipped(run, (await self.ops.store.now()).business, now - self._since, speed):
            self._since = now
            await self.move_clock(ahead)

    # --- looking ---------------------------------------------------------------------------------------
    async def look(self) -> Run:
        """The run as it stands; what has happened since the last look is told."""
        for name in self.cast.check(self.inbox_url):
            self.stage.say(f"    … {name} was silent for too long and gave up; another worker starts")
        run = await self.ops.run(self.notes.run)
        for event in await self.ops.history(self.notes.run, after=self._seen):
            self._seen = event.seq
            self._tell(event)
        if attention := attention_of(run):
            raise StoryBroken(
                f"run {run.run} needs a person: {attention[0].reason.value}",
                attention[0].detail,
                shlex.join(self.cast.command("runs", "show", run.run)),
            )
        return run

    def _tell(self, event: Event) -> None:
        if event.type == EventType.CHECKPOINT.value:
            seconds = (self.notes.real(event.at) - self._entered) / SECOND
            self.stage.say(f"  ✓ {self._node:<14}{seconds:.1f}s{self._remark(self._node)}")
        if event.node != self._node or event.type == EventType.CHECKPOINT.value:
            self._node, self._entered = event.node, self.notes.real(event.at)

    def _remark(self, node: str) -> str:
        if node != AUCTION:
            return ""
        count, crashes = self.invitations(), len(self.notes.kills)
        return (
            f" · {self.round_of(self.entries())} rounds · {crashes} crash{'' if crashes == 1 else 'es'}"
            f" · {count.sent} invitations, {count.distinct} distinct, {count.repeated} repeated"
        )

    def entries(self) -> list[Any]:
        """The suppliers' record so far."""
        entries: list[Any] = self.record.read(self.cast.record)
        return entries

    def invitations(self) -> Any:
        """The invitations in that record, counted."""
        return self.record.count(self.entries(), INVITATIONS, self.notes.run)

    def round_of(self, entries: list[Any]) -> int:
        """The last round that somebody was invited to."""
        return max(
            (e.round for e in entries if isinstance(e, self.record.Arrived) and e.kind == INVITATIONS), default=0
        )

    async def pending(self) -> Approval | None:
        """What a person is asked, if one is."""
        asked, _ = await self.ops.approvals(status=ApprovalStatus.PENDING.value)
        return next((approval for approval in asked if approval.run == self.notes.run), None)

    async def pause(self) -> None:
        """Until the next look."""
        await asyncio.sleep(LOOK_S)


def skipped(run: Run, business: int, still_ms: int, speed: float) -> int:
    """Return how far business time may move ahead: to the end of the wait for signals at most, 0 while a worker acts.

    The time that starts, kills and takeovers of workers take is thus never multiplied: it would reach the ceiling.
    """
    ends = [waiting.until for waiting in waiting_of(run) if waiting.kind == "signal" and waiting.until]
    if run.owner or not ends or still_ms < PULSE_MS:
        return 0
    return max(0, min(min(ends) - business, int(still_ms * speed)))


def asks(run: Run) -> bool:
    """Does it wait for a person's decision?"""
    return any(waiting.kind == "approval" for waiting in waiting_of(run))
