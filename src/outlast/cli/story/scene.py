"""What every act of the story stands on: the store, the two clocks, the suppliers' record, and what was told so far."""

import asyncio
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
from outlast.errors import Rejected
from outlast.runtime.clocks import SystemClock
from outlast.runtime.operations import Operations

LOOK_S = 0.03
TRUE = 1.0  # the rate of business time while a person decides
SLACKS_MS = (50, 200, 800, 3_200)  # of real time: between reading the store's clock and landing a slower mapping
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

    # --- the business clock ----------------------------------------------------------------------------
    async def set_clock(self, rate: float, ahead_ms: int = 0) -> None:
        """Let business time run at `rate` from now on, moved ahead by `ahead_ms`.

        It never runs backwards, so where it gets slower the new mapping begins at the instant by which it will have
        landed: within the slack, or else with more of it.
        """
        store = self.ops.store
        for slack in SLACKS_MS:
            now = await store.now()
            lead = int(slack * max(self.rate() - rate, 0))
            wanted = Mapping(0, now.real, now.business + ahead_ms + lead, rate)
            try:
                self.notes.ran(await store.set_mapping(wanted, rearmed))
                break
            except Rejected:
                continue
        else:
            raise StoryBroken("the business clock could not be set", "the store was too slow every time")
        self.notes.save(self.cast.folder)

    def rate(self) -> float:
        """How fast business time runs."""
        return self.ops.store.mapping().rate

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
                self.cast.command("runs", "show", run.run),
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


def asks(run: Run) -> bool:
    """Does it wait for a person's decision?"""
    return any(waiting.kind == "approval" for waiting in waiting_of(run))
