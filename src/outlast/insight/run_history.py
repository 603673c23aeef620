"""History of a run: visits, claims, waits, attempts, takeovers and its end, derived once from its events.

The detail of a run, its explanation, its timeline and its steps read this value. Three facts about events decide it:

- The node of an event is the one that the run is at afterwards. A checkpoint names the next node, and a move changes
  the node within a visit. So the node of a visit is that of the last event before its checkpoint.
- A log entry may have the type of another event. Its details begin with its key, and it releases nothing.
- An effect records its first intent, its end and the number of its attempts, not when each attempt began. Attempts are
  cut where the claim changed; those that followed within one claim share a span.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from outlast.core.events import ENDINGS, TAKEN, EventType
from outlast.core.machine import EffectStatus
from outlast.core.rows.effect_rows import Effect
from outlast.core.rows.run_rows import Event, Run
from outlast.core.rows.store_rows import Worker
from outlast.core.verbs import EndData, end_of
from outlast.models import instant
from outlast.models.runs import Takeover

_RELEASES: Final = frozenset({
    EventType.STARTED, EventType.PARKED, EventType.HANDED_BACK, EventType.REQUEUED, EventType.FLAGGED,
    EventType.QUEUED, EventType.RESTORED,
})  # fmt: skip


class RunVisit(NamedTuple):
    """One visit to a node. `places`: when the run came to which node; more than one if it was moved in this visit."""

    visit: int
    places: tuple[tuple[int, str], ...]
    event: int  # number of the event that began it
    entered: int
    left: int  # 0: it lasts

    @property
    def node(self) -> str:
        """Node that the visit completed, or the present one."""
        return self.places[-1][1]

    def node_at(self, at: int) -> str:
        """Return the node of the visit at an instant."""
        return self.places[max(0, bisect_right(self.places, at, key=lambda place: place[0]) - 1)][1]


class HistorySpan(NamedTuple):
    """Time in which a worker held the run, or in which it waited. `end` 0: it lasts. `event` began it."""

    begin: int
    end: int
    event: Event


class AttemptSpan(NamedTuple):
    """Attempts of a call in one claim: the number of the last one, and the event of the claim; 0: it is unknown."""

    number: int
    begin: int
    end: int  # 0: it lasts
    event: int


@dataclass(frozen=True)
class RunHistory:
    """A run and its events, oldest first.

    `visits`, `held`, `waited` and `takeovers` need all of them; the newest suffice for `last_claim` and `end`.
    """

    run: Run
    events: Sequence[Event]

    @cached_property
    def visits(self) -> tuple[RunVisit, ...]:
        """Every visit in order, from the first kept one on (S-32). The last one is the present one."""
        run, number, entered, before = self.run, 1, self.run.created_at, 0
        found: list[RunVisit] = []
        places = [(run.created_at, self.events[0].node if self.events else run.node)]
        for event in self.events:
            is_first_kept, before = event.seq > before + 1 and before > 0, event.seq
            if event.type == EventType.CHECKPOINT:
                if not is_first_kept:
                    found.append(RunVisit(event.visit - 1, tuple(places), number, entered, event.at))
                number, entered, places = event.seq, event.at, [(event.at, event.node)]
            elif event.node != places[-1][1]:
                places.append((event.at, event.node))
        if places[-1][1] != run.node:
            places.append((places[-1][0], run.node))
        return (*found, RunVisit(run.visit, tuple(places), number, entered, run.ended_at))

    @property
    def forked_at(self) -> int:
        """Return the number of the ancestor's event with whose state a fork began; 0 if the run is no fork."""
        if not self.run.forked_from or not self.events:
            return 0
        return int(self.events[0].data().get("fork", {}).get("seq", 0))

    def entry(self, visit: int) -> RunVisit:
        """Return a visit by its number, or the last one for a number beyond it."""
        return self.visits[max(0, min(visit - self.visits[0].visit, len(self.visits) - 1))]

    @cached_property
    def _nth(self) -> tuple[int, ...]:
        counts: Counter[str] = Counter()
        found = []
        for each in self.visits:
            counts[each.node] += 1
            found.append(counts[each.node])
        return tuple(found)

    def nth_visit(self, visit: int) -> int:
        """Return the number of a visit among those of its node; 0 if it is unknown, because earlier ones are gone."""
        n = visit - self.visits[0].visit
        return self._nth[n] if self.visits[0].visit == 1 and 0 <= n < len(self._nth) else 0

    def visit_at(self, at: int) -> int:
        """Return the number of the visit at an instant."""
        return self.visits[bisect_right(self.visits, at, hi=len(self.visits) - 1, key=lambda each: each.left)].visit

    # --- claims and waits ----------------------------------------------------------------------
    @cached_property
    def _spans(self) -> tuple[HistorySpan, ...]:
        marks = [e for e in self.events if e.type in TAKEN or e.type in ENDINGS or _releases(e)]
        ends = [*(event.at for event in marks[1:]), 0]
        return tuple(HistorySpan(e.at, end, e) for e, end in zip(marks, ends, strict=False) if e.type not in ENDINGS)

    @cached_property
    def held(self) -> tuple[HistorySpan, ...]:
        """Spans in which a worker held the run, from a claim on."""
        return tuple(span for span in self._spans if span.event.type in TAKEN)

    @cached_property
    def waited(self) -> tuple[HistorySpan, ...]:
        """Spans in which no worker held the run, from its release on."""
        return tuple(span for span in self._spans if span.event.type not in TAKEN)

    @property
    def last_claim(self) -> Event | None:
        """Event of the latest claim, or None."""
        return next((event for event in reversed(self.events) if event.type in TAKEN), None)

    @cached_property
    def holders(self) -> dict[int, str]:
        """Id of the worker that claimed the run in each epoch."""
        claims = (event.data() for event in self.events if event.type in TAKEN)
        return {data["new_epoch"]: str(data["worker"]) for data in claims}

    def takeovers(self, workers: Iterable[Worker], real: Callable[[int], int]) -> list[Takeover]:
        """Return each takeover of the run from a worker that died or exceeded its budget.

        `after_ms`: real time from the former holder's last heartbeat to the claim; None if unknown, also because
        business time has been moved ahead since. `real` converts business instants to real ones.
        """
        last_sign = {worker.id: worker.renewed_at for worker in workers}
        taken = [(event, event.data()) for event in self.events if event.type == EventType.TAKEN_OVER]
        return [
            Takeover(
                node=event.node,
                visit=event.visit,
                from_=data["from"],
                to=data["worker"],
                at=instant(event.at),
                after_ms=_after(real(event.at), last_sign.get(data["from"])),
            )
            for event, data in taken
        ]

    # --- calls ---------------------------------------------------------------------------------
    def attempts(self, effect: Effect, business: Callable[[int], int], now: int) -> list[AttemptSpan]:
        """Return the attempts of a call, of those within one claim the last. `now`: business time."""
        began = first_intent(effect, business)
        end = effect.settled_at
        if not end and effect.status is not EffectStatus.INTENDED:  # it is uncertain: not called after the last claim
            end = max((span.end or now for span in self.held), default=began)
        began = min(began, end) if end else began
        parts = _cut(self.held, began, end) or [(began, end, 0)]
        if len(parts) > effect.attempts:  # claims between two attempts, in which it was not called
            parts = [*parts[: effect.attempts - 1], parts[-1]]
        numbers = [*range(1, len(parts)), effect.attempts]
        return [AttemptSpan(number, *part) for number, part in zip(numbers, parts, strict=True)]

    # --- its end -------------------------------------------------------------------------------
    @property
    def end(self) -> EndData | None:
        """Outcome, reason and what was not undone; None if the run has not ended. Raises Corrupt."""
        return end_of(self.events[-1]) if self.events else None


def first_intent(effect: Effect, business: Callable[[int], int]) -> int:
    """Return the business instant of the first intent, by the mapping of today: it may have moved ahead since."""
    began = business(effect.first_at)
    return min(began, effect.settled_at or began)


def _after(at: int, before: int | None) -> int | None:
    return at - before if before is not None and at >= before else None


def _releases(event: Event) -> bool:
    """Return True if the run has no owner after the event."""
    return event.type in _RELEASES and not event.details.startswith(b'{"key"')


def _cut(spans: Sequence[HistorySpan], begin: int, end: int) -> list[tuple[int, int, int]]:
    """Return the parts of a time (`end` 0: it lasts) that lie in these spans: begin, end, number of the event."""
    found = []
    for span in spans[max(0, bisect_right(spans, begin, key=lambda each: each.begin) - 1) :]:
        if end and span.begin > end:
            break
        if not span.end or span.end >= begin:
            last = min((each for each in (span.end, end) if each), default=0)
            found.append((max(span.begin, begin), last, span.event.seq))
    return found
