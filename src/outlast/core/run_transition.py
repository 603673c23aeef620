"""How a run row moves: one version, the events that tell of it, and the fence of the claim it is made under (S-11)."""

from collections.abc import Sequence
from typing import NamedTuple

from outlast.core.commit import Fence, Instant, Mapping, Put
from outlast.core.events import EventType, event
from outlast.core.machine import run_target
from outlast.core.overlay import Armed, WaitingFor, due_of, dump_timers, dump_waiting
from outlast.core.rows import EVENT, MEMO, RUN, Memo, Run, check_run


class LogEntry(NamedTuple):
    """Something a node said with ctx.log: written with the next move of the run row, once per key and visit."""

    key: str
    text: str
    data: dict[str, object]
    type: EventType = EventType.LOGGED


def log_key(key: str) -> str:
    """The key of the memo that keeps a repeated tell from adding anything."""
    return f"tell/{key}"


def transition(
    run: Run,
    verb: str,
    type_: EventType,
    now: Instant,
    data: dict[str, object],
    *,
    log_entries: Sequence[LogEntry] = (),
    snapshot: bytes | None = None,
    **changes: object,
) -> tuple[Put, ...]:
    """The run row one move later, and the events that tell of it: what was told before, then the move itself."""
    puts: list[Put] = []
    before = run
    for word in log_entries:
        before = before._replace(seq=before.seq + 1)
        row = event(before, word.type, now.business, {"key": word.key, "text": word.text, **word.data})
        before = before._replace(event_hash=row.hash)
        memo = Memo(run.tenant, run.run, run.visit, log_key(word.key), "", "", None, "", now.business)
        puts += [Put(EVENT, row, 0), Put(MEMO, memo, 0)]
    after = before._replace(
        version=run.version + 1,
        status=run_target(verb, run.status),
        seq=before.seq + 1,
        **changes,  # type: ignore[arg-type]
    )
    row = event(after, type_, now.business, data, snapshot)
    after = after._replace(event_hash=row.hash)
    check_run(after)
    return (Put(RUN, after, run.version), *puts, Put(EVENT, row, 0))


def fence(run: Run, *, inbox_seq: int | None = None, mapping: int | None = None) -> Fence:
    """Land only under this claim; `inbox_seq`, `mapping`: only if these have not moved either."""
    return Fence(run.tenant, run.run, run.epoch, run.visit, inbox_seq, mapping)


def give_back(
    run: Run,
    verb: str,
    type_: EventType,
    now: Instant,
    data: dict[str, object],
    waiting: Sequence[WaitingFor],
    timers: Sequence[Armed],
    mapping: Mapping,
    *,
    log_entries: Sequence[LogEntry] = (),
    due_now: bool = False,
    attention: str | None = None,
    slots: str | None = None,
    queue: str | None = None,
) -> tuple[Put, ...]:
    """The holder lets go: the epoch rises, so nothing it left behind can intend or record any more (S-2).

    The ceiling counts while nobody owns the run, as long as it is armed (S-3).
    """
    if run.ceiling_at:
        timers = [*timers, Armed("ceiling", run.ceiling_at)]
    return transition(
        run,
        verb,
        type_,
        now,
        data,
        log_entries=log_entries,
        epoch=run.epoch + 1,
        owner="",
        due_at=now.real if due_now else due_of(timers, mapping),
        waiting_for=dump_waiting(waiting),
        timers=dump_timers(timers),
        attention=run.attention if attention is None else attention,
        slots=run.slots if slots is None else slots,
        queue=run.queue if queue is None else queue,
    )
