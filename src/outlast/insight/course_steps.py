"""Steps of the course of a run: its start, waits, signals, requests to people and their answers, takeovers and changes.

| step | rows |
|---|---|
| start | the first event, with the input |
| wait | the events that released the run, without waits that another step shows |
| signal, answer | messages of programs and of people |
| attention, log, change | events |
| takeover | events that name a worker which lost the run |
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from outlast.core.budget import RAISED
from outlast.core.commit import EMPTY
from outlast.core.durations import SECOND, span
from outlast.core.events import EventType
from outlast.core.machine import Choice
from outlast.core.rows.run_rows import Event, Message
from outlast.insight.labels import effect_label, said_in
from outlast.insight.run_history import RunHistory
from outlast.insight.run_timeline import TimelineRows, mark_text, wait_bars
from outlast.models import milliseconds
from outlast.models.steps import StepKind
from outlast.models.timeline import MarkKind, TimelineBar

SHOWN_ELSEWHERE: Final = frozenset({"approval", "attention", "child"})
"""Kinds of waits that have a step of their own."""
WORKER_WAIT: Final = SECOND
"""A run that waited less for a worker has no step for it."""
OF_PEOPLE: Final = frozenset({Choice.CANCEL.value, Choice.CONTINUE.value, RAISED, "answer", "resolve"})
"""Kinds of messages in which a person acts on the run; decisions are shown with their approvals."""
CHANGES: Final[dict[str, MarkKind]] = {
    EventType.COMPENSATING: "undoing", EventType.MOVED: "moved", EventType.RESTORED: "recovered",
    EventType.HANDED_BACK: "handed_back",
}  # fmt: skip


class CourseStep(NamedTuple):
    """A step before its texts are cut and redacted. Instants are business ones, 0 without one."""

    kind: StepKind
    id: str
    at: int
    status: str
    what: str
    visit: int = 0
    """0: the visit at that instant."""
    ended: int = 0
    until: int = 0
    detail: str = ""
    by: str = ""
    key: str = ""
    input: bytes | str | None = ""
    event: int = 0


class CourseRows(NamedTuple):
    """Rows of one run. `given`: its input as JSON; None if it has been deleted. `whole`: its effects were kept."""

    timeline: TimelineRows
    messages: Sequence[Message]
    given: bytes | None
    whole: bool

    @property
    def history(self) -> RunHistory:
        """Return the history of the run."""
        return self.timeline.history


def course_of(rows: CourseRows) -> Iterator[CourseStep]:
    """Yield the steps of the course of a run."""
    for event in rows.history.events:
        step = _of_event(rows, event)
        if step is not None:
            yield step
    for message in rows.messages:
        if message.kind == "signal" or (message.kind in OF_PEOPLE and message.payload != EMPTY):
            yield _of_message(message)
    for bar in wait_bars(rows.timeline):
        if bar.wait not in SHOWN_ELSEWHERE and not (bar.wait == "worker" and _ms(bar, rows) < WORKER_WAIT):
            yield _of_wait(bar)


def _ms(bar: TimelineBar, rows: CourseRows) -> int:
    ended = milliseconds(bar.ended) if bar.ended is not None else rows.timeline.now.business
    return ended - milliseconds(bar.began)


def _of_wait(bar: TimelineBar) -> CourseStep:
    return CourseStep(
        "wait",
        bar.id,
        milliseconds(bar.began),
        bar.outcome,
        f"{bar.wait} {bar.what}",
        visit=bar.visit,
        ended=milliseconds(bar.ended) if bar.ended is not None else 0,
        until=milliseconds(bar.until) if bar.until is not None else 0,
        detail=bar.then,
        by=bar.who,
        key=bar.key,
        event=bar.event,
    )


def _of_message(message: Message) -> CourseStep:
    said = said_in(message)
    return CourseStep(
        "signal" if message.kind == "signal" else "answer",
        f"message/{message.n}",
        message.at,
        message.kind,
        message.name if message.kind == "signal" else said.about or said.verb,
        detail=said.reason,
        by=message.actor,
        input=message.payload if message.kind == "signal" else "",
    )


# --- events ----------------------------------------------------------------------------------------
def _of_event(rows: CourseRows, event: Event) -> CourseStep | None:
    data, word = event.data(), event.type.rpartition(".")[2]

    def made(kind: StepKind, what: str, detail: str = "", by: str = "", given: bytes | None = None) -> CourseStep:
        name, visit = f"{kind}/{event.seq}", event.visit
        return CourseStep(kind, name, event.at, word, what, visit, 0, 0, detail, by, "", given, event.seq)

    if event.seq == 1:
        return made("start", rows.history.run.objective, by=rows.history.run.requested_by, given=rows.given)
    if data.get("key") and event.type == EventType.LOGGED:
        return made("log", str(data.get("text", "")))
    match event.type:
        case EventType.TAKEN_OVER:
            what = f"{data.get('worker')} took over from {data.get('from')}"
            return made("takeover", what, takeover_text(rows, event), str(data.get("worker", "")))
        case EventType.REQUEUED:
            return made("takeover", f"{data.get('from')} is gone", "a worker takes it when one is free")
        case EventType.FLAGGED if not data.get("key"):
            return made("attention", ", ".join(map(str, data.get("reasons", ()))), str(data.get("detail", "")))
        case EventType.FORKED:
            return made("change", f"fork {data.get('fork')}", str(data.get("reason", "")), str(data.get("by", "")))
    mark = CHANGES.get(event.type)
    return made("change", word.replace("_", " "), mark_text(mark, data)) if mark is not None else None


def takeover_text(rows: CourseRows, event: Event) -> str:
    """Return the cost of a takeover as far as rows say it: time without a worker, and calls that were sent again."""
    found = rows.history.takeovers(rows.timeline.workers, rows.timeline.real)
    after = next((each.after_ms for each in found if each.at is not None and milliseconds(each.at) == event.at), None)
    parts = [f"{span(after)} after its last heartbeat"] if after is not None else []
    return "; ".join([*parts, *(_calls_text(rows, event) if rows.whole else ())])


def _calls_text(rows: CourseRows, event: Event) -> Iterator[str]:
    """Yield the outcomes of the calls that were open at a takeover.

    Rows name the attempts of a call, not their instants. A call with one attempt was not sent again. One with more, the
    last of them after the takeover, may have been sent again before it, too.
    """
    epoch = int(event.data().get("new_epoch", 0))
    lasting = [each for each in rows.timeline.effects if not each.settled_at or each.settled_at >= event.at]
    left = [each for each in lasting if each.epoch < epoch and (each.visit or each.first_visit) <= event.visit]
    again = [
        each
        for each in lasting
        if each.epoch >= epoch and each.attempts > 1 and (each.visit or each.first_visit) == event.visit
    ]
    if not again:
        yield "no effect was sent again"  # a lookup leaves no row of an attempt, and may have been
    for each in (*left, *again):
        yield f"{each.activity} {each.key}: {effect_label(each, each.code, held=False)}"
