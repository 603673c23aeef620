"""The start of a fork: it copies the calls of another run, then writes the row of the new run (S-28).

Theory of operation. The copies land in batches, and the last commit writes the run. Faults, and why none does harm:

1. *The process dies between two batches.* No run exists, so no worker executes half of a past. The same request, with
   the same run id, finds the batches that landed and goes on. Copies without a run are never read. A week after its
   first batch, a start is taken for given up and deleted (`core/fork_starts.py`).
2. *The ancestor changes between two batches.* If it has ended, only an answer of a person may still change an effect,
   and the last commit expects the version of its row. If it has not, a note lands before the copies are read. From then
   on it neither undoes an effect of the fork's past nor makes a call once per run by itself (`core/living_forks.py`).
   The fork begins with the calls as they were read after the note.
3. *Two processes start the same fork.* They write equal copies, and one of them the run. If the ancestor acts
   between them, the copies differ, and have different names. The row of the terms says which are those of the fork.
4. *The ledger of the ancestor is purged.* Whether it is purged is asked after its rows were read.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

from outlast.core.approver_rule import Rule
from outlast.core.attributes import attribute_values
from outlast.core.codec import digest
from outlast.core.commit import Commit, Put, append_to_inbox, in_portions
from outlast.core.events import EventType, iso
from outlast.core.fork_starts import ForkStart, ending, token_key
from outlast.core.forks import (
    CallOutcome,
    CopiedCall,
    Effects,
    ForkLedger,
    ForkPoint,
    ForkTerms,
    Lookups,
    as_used,
    check_accepted,
    copies_of,
    ledger_of,
    memo_of_call,
    memo_of_terms,
    outcomes_in_fork,
    past_of,
    point_named,
    points_of,
    signals_of,
)
from outlast.core.keys import check_name, check_reason
from outlast.core.lanes import scheduler_of
from outlast.core.living_forks import ForkNote, note_fork, note_of, notes_of
from outlast.core.machine import RunStatus
from outlast.core.rows.effect_rows import MEMO, USAGE, Usage
from outlast.core.rows.row_kind import key_of
from outlast.core.rows.run_columns import REASON
from outlast.core.rows.run_rows import EVENT, FLOOR, TOKEN, Event, Message, Run, Token, is_over
from outlast.core.start_details import StartDetails
from outlast.core.verbs import Forked
from outlast.core.verbs import start as start_verb
from outlast.engine.admission import limits_of
from outlast.engine.commands import find_run, new_run, signal
from outlast.engine.fork_start_removal import begin_or_join, goes_on
from outlast.engine.snapshots import joined
from outlast.engine.store_maintenance import ledger_purged
from outlast.errors import Conflict, Ended, InvalidInput, NotFound, NotStorable, OutlastError, Stale
from outlast.flow.workflow import Workflow
from outlast.store.port import RunRows, Store
from outlast.store.queries import ROWS_MAX
from outlast.telemetry.redact import GONE, restored

OFFERED_MAX: Final = 100
NOTE_TRIES: Final = 20  # readings of an ancestor that changes between two of them


class ForkRequest(NamedTuple):
    """Everything that a caller says about a fork."""

    of: str
    """The run that is forked."""
    point: str
    """Number of a checkpoint, or the node that the fork executes first."""
    state: dict[str, Any] | None = None
    """State with which it begins. None: that of the checkpoint."""
    effects: Effects = "ask"
    lookups: Lookups = "recorded"
    approvers: str = ""
    signals: tuple[str, ...] = ()
    accept_undone: bool = False
    both_go_on: str = ""
    """Reason why a run that has not ended and its fork both go on."""


class StartedFork(NamedTuple):
    """A fork, and the past that it has."""

    run: str
    created: bool
    point: ForkPoint
    copied: tuple[CopiedCall, ...]
    changed: tuple[str, ...]
    """Fields of the state that differ from those of the checkpoint."""


class PreviewedFork(NamedTuple):
    """Preview of a fork, before it is started."""

    point: ForkPoint
    past: tuple[CopiedCall, ...]
    later: tuple[tuple[CopiedCall, CallOutcome], ...]
    """Calls of the ancestor after the point, and what the fork does if it asks for them again."""
    signals: tuple[Message, ...]
    """Signals of the ancestor after the point."""
    sent: tuple[int, ...]
    """Numbers of all signals that the fork gets, also unread ones from before the point."""
    before: bytes
    """State of the checkpoint."""
    state: bytes
    """State with which the fork would begin."""
    refused: tuple[OutlastError, ...]
    """Reasons for which the start would be refused."""
    in_flight: bool
    """The ancestor has not ended, so it may act, too."""


async def offers_of(store: Store, tenant: str, of: str) -> tuple[bool, list[tuple[ForkPoint, list[CopiedCall]]]]:
    """Return True if a run has not ended, and its last checkpoints with the calls that a fork copies.

    Raises NotFound, and Conflict (`purged`).
    """
    found = await _ancestor(store, tenant, of)
    return not is_over(found.run), [(point, found.copies(point)) for point in found.points[-OFFERED_MAX:]]


async def preview(store: Store, workflow: Workflow[Any], asked: ForkRequest, *, tenant: str) -> PreviewedFork:
    """Return what `fork` with this request would do. Nothing is written.

    Raises NotFound, Conflict (`purged`), and InvalidInput for a given state. Other reasons to refuse the
    fork are members of the answer, so that a person sees all of them with the rest.
    """
    of = await _ancestor(store, tenant, asked.of)
    point = of.point(asked.point)
    before = await _state_at(store, of, point)
    refused: list[OutlastError] = []
    state = before if asked.state is None else await _state(workflow, point, asked, before)
    checks: list[Callable[[], object]] = [
        partial(_check_terms, asked),
        partial(_check_forkable, of.run, asked.both_go_on),
        partial(check_accepted, point, accepted=asked.accept_undone),
        partial(_check_node, workflow, point),
        *([partial(_check_fits, workflow, point, before)] if asked.state is None else []),
    ]
    for check in checks:
        try:
            check()
        except (InvalidInput, Conflict) as error:
            refused.append(error)
    calls = of.copies(point)
    return PreviewedFork(
        point=point,
        past=tuple(call for call in calls if call.past),
        later=tuple(outcomes_in_fork(of.terms(point, asked), calls)),
        signals=tuple(message for message in of.rows.messages if message.kind == "signal" and message.at > point.at),
        sent=tuple(message.n for message in _signals(of, point, asked.signals)),
        before=before,
        state=state,
        refused=tuple(refused),
        in_flight=not is_over(of.run),
    )


async def fork(
    store: Store, workflow: Workflow[Any], asked: ForkRequest, *, tenant: str, actor: str, run: str
) -> StartedFork:
    """Start a fork. `workflow`: code of the version in which it is executed.

    Raises NotFound, InvalidInput and Conflict (`not_ended`, `compensating`, `purged`, `undone_effects`), LimitExceeded.
    """
    check_name("run", run)
    _check_terms(asked)
    of = await _ancestor(store, tenant, asked.of)
    point = of.point(asked.point)
    _check_forkable(of.run, asked.both_go_on)
    check_accepted(point, accepted=asked.accept_undone)
    before = await _state_at(store, of, point)
    state = await _state(workflow, point, asked, before)
    changed = _changed(before, state)
    _check_node(workflow, point)
    terms = of.terms(point, asked, edited=bool(changed))
    signals = _signals(of, point, asked.signals)
    started = StartedFork(run, True, point, tuple(of.copies(point, note_of(of.notes, run, terms))), changed)
    identity = digest(of.run.run, point.seq, terms._asdict(), state.decode(), sorted(asked.signals))
    token = Token(*token_key(tenant, run), identity, run, point.at)
    if await _exists(store, token):
        return started._replace(created=False)
    if not is_over(of.run):
        of = await _noted(store, of, point, terms, actor, run)
        check_accepted(point_named(of.points, str(point.seq)), accepted=asked.accept_undone)
        started = started._replace(copied=tuple(of.copies(point, note_of(of.notes, run, terms))))
    terms = terms._replace(past=past_of(started.copied))
    copies = (memo_of_call(tenant, run, call, terms.past, point.at) for call in started.copied)
    portions = in_portions(Put(MEMO, memo, 0) for memo in copies)
    while (start := await begin_or_join(store, tenant, run, of.run.run)) is not None:
        try:
            for portion in portions:
                await _copy(store, start, portion)
            first = await _first_commit(store, workflow, of, point, terms, token, state, actor)
            await store.commit(ending(start, first))
            break
        except Stale:
            if await goes_on(store, start):
                raise Conflict(f"run {run} was not forked", f"run {of.run.run} has changed", "try again") from None
    else:
        await _exists(store, token)
        started = started._replace(created=False)
    for message in signals:
        await _send(store, tenant, run, of.run.run, message)
    return started


class _Ancestor(NamedTuple):
    run: Run
    rows: RunRows
    history: tuple[Event, ...]
    points: list[ForkPoint]
    ledger: ForkLedger | None
    notes: tuple[ForkNote, ...]
    first_visit: int = 1
    """First visit of its history; those before it were purged."""

    def point(self, name: str) -> ForkPoint:
        """Return the checkpoint of a number or a node. Raises NotFound, and Conflict (`purged`) before its history."""
        if name.isascii() and name.isdigit() and self.history and int(name) < self.history[0].seq:
            raise Conflict(
                f"run {self.run.run} cannot be forked at checkpoint {name}",
                f"its history before visit {self.first_visit} was purged, because its workflow keeps a window",
                f"fork at checkpoint {self.points[0].seq} or later",
                refusal="purged",
            )
        return point_named(self.points, name)

    def copies(self, point: ForkPoint, note: ForkNote | None = None) -> list[CopiedCall]:
        """Return the calls that a fork from this point copies. `note`: that of the fork, if there is one."""
        until = None if note is None else note.until
        effects = (*self.rows.effects, *self.rows.shared)
        return copies_of(self.run, point, effects, self.rows.memos, self.ledger, until)

    def terms(self, point: ForkPoint, asked: ForkRequest, *, edited: bool = False) -> ForkTerms:
        """Return the terms of a fork from this point."""
        return ForkTerms(
            of=self.run.run,
            root=self.run.run if self.ledger is None else self.ledger.terms.root,
            seq=point.seq,
            effects=asked.effects,
            lookups=asked.lookups,
            approvers=asked.approvers,
            accept_undone=asked.accept_undone,
            edited=edited,
            both_go_on=asked.both_go_on,
        )


async def _ancestor(store: Store, tenant: str, of: str) -> _Ancestor:
    await find_run(store, tenant, of)
    (rows,) = await store.run_rows([(tenant, of)])
    if rows is None:
        raise NotFound(f"no run {of}", "it was deleted just now", "list runs with: outlast runs ls")
    if is_over(rows.run) and await ledger_purged(store, rows.run):  # asked after the rows, so none is missing in them
        raise Conflict(
            f"run {of} cannot be forked",
            f"it ended at {iso(rows.run.ended_at)}, and its ledger was purged since, so its past is not known",
            "keep ledgers longer with ledger_kept",
            refusal="purged",
        )
    found: list[Event] = []
    while page := await store.rows(EVENT, (tenant, of), after=key_of(EVENT, found[-1]) if found else ()):
        found += page
        if len(page) < ROWS_MAX:
            break
    floor = await store.load(FLOOR, (tenant, of))
    begins = 1 if floor is None else floor.seq  # calls of earlier visits are not known
    # later events have effects that were not read
    history = tuple(event for event in found if begins <= event.seq <= rows.run.seq)
    memos = {(memo.visit, memo.key): memo for memo in rows.memos}
    if any(effect.by_run != of for effect in rows.shared):
        rows = rows._replace(shared=tuple(as_used(of, rows.shared, await _usages(store, rows.run), history)))
    points = points_of(history, (*rows.effects, *rows.shared))
    first_visit = 1 if floor is None else floor.visit
    return _Ancestor(rows.run, rows, history, points, ledger_of(memos), notes_of(memos), first_visit)


async def _usages(store: Store, run: Run) -> list[Usage]:
    found: list[Usage] = []
    while page := await store.rows(USAGE, run[:2], after=key_of(USAGE, found[-1]) if found else ()):
        found += page
    return found


def _check_forkable(run: Run, both_go_on: str) -> None:
    """Raise Conflict if a run may still act and the caller has given no reason, or if it undoes its effects."""
    if is_over(run):
        return
    if run.ending_text:
        raise Conflict(
            f"run {run.run} cannot be forked",
            "it undoes its effects, so those of its past are changing",
            "wait until it has ended",
            refusal=RunStatus.COMPENSATING.value,
        )
    if not both_go_on:
        raise Conflict(
            f"run {run.run} cannot be forked",
            f"it is {run.status} and may still act, as the fork may",
            "wait until it has ended, or give a reason why both go on: --both-go-on REASON",
            refusal="not_ended",
        )


async def _noted(
    store: Store, of: "_Ancestor", point: ForkPoint, terms: ForkTerms, actor: str, run: str
) -> "_Ancestor":
    """Land the note of a fork in the ledger of its ancestor, and return the ancestor as it is after that.

    Raises Conflict if the ancestor undoes its effects, or changes too often, and LimitExceeded.
    """
    for _ in range(NOTE_TRIES):
        if is_over(of.run) or note_of(of.notes, run, terms) is not None:
            return of
        _check_forkable(of.run, terms.both_go_on)
        note = ForkNote(run, actor, terms.both_go_on, point.seq, point.visit, of.run.visit, terms.effects)
        commit = note_fork(of.run, note, len(of.notes), now=await store.now())
        with suppress(Stale, Ended):
            await store.commit(commit)
        of = await _ancestor(store, of.run.tenant, of.run.run)
    if is_over(of.run) or note_of(of.notes, run, terms) is not None:
        return of
    raise Conflict(f"run {of.run.run} was not forked", "it changes too often", "try again")


def _check_terms(asked: ForkRequest) -> None:
    if asked.both_go_on:
        check_reason(asked.both_go_on)
    if asked.effects != "live" and not asked.approvers:
        raise InvalidInput(
            "a fork needs approvers",
            "each write that neither the recording answers nor the policy gives to a person waits for one",
            "name them: --approvers ROLE",
        )
    if asked.approvers:
        Rule.parse(asked.approvers)


async def _state_at(store: Store, of: _Ancestor, point: ForkPoint) -> bytes:
    event = next(event for event in of.history if event.seq == point.seq)
    return (await joined(store, (of.run.tenant, of.run.run), event.snapshot or b"{}")).state


async def _state(workflow: Workflow[Any], point: ForkPoint, asked: ForkRequest, before: bytes) -> bytes:
    """Return the state with which a fork begins. Raises InvalidInput for a given one, Conflict for the checkpoint's.

    Marks of redacted values become the values of the checkpoint again, because a person edits what `runs show --state`
    shows. In a thread, because it takes seconds for a large state.
    """
    if asked.state is None:
        _check_fits(workflow, point, before)
        return before
    given: Any = asked.state
    if GONE in json.dumps(given, ensure_ascii=False):
        try:
            given = await asyncio.to_thread(restored, given, json.loads(before))
        except ValueError as error:
            raise InvalidInput(
                "the state has a redacted value that its checkpoint has not there",
                "",
                f"write the value in place of {GONE}, or leave it where it was",
                problems=[(str(error), f"is {GONE}, which is no value")],
            ) from error
    codec = workflow.state_codec
    after: bytes = codec.dump(codec.admit(json.dumps(given)))
    return after


def _check_fits(workflow: Workflow[Any], point: ForkPoint, state: bytes) -> None:
    """Raise Conflict if the state of a checkpoint cannot be read by this code."""
    try:
        workflow.state_codec.load(state)
    except NotStorable as error:
        raise Conflict(
            f"the state of checkpoint {point.seq} does not fit {workflow.title}", error.why, "give one with --state"
        ) from error


def _changed(before: bytes, after: bytes) -> tuple[str, ...]:
    """Return the fields of a state that differ."""
    old, new = json.loads(before), json.loads(after)
    names = sorted(old.keys() | new.keys())
    return tuple(name for name in names if old.get(name) != new.get(name) or (name in old) != (name in new))


def _check_node(workflow: Workflow[Any], point: ForkPoint) -> None:
    if point.node not in workflow.nodes:
        raise Conflict(
            f"{workflow.title} has no node {point.node}", "the fork would begin there", "fork from another checkpoint"
        )


async def _exists(store: Store, token: Token) -> bool:
    """Return True if this fork was started before. Raises Conflict if the run id belongs to another one."""
    before = await store.load(TOKEN, token[:3])
    if before is None:
        return False
    if before.digest != token.digest:
        raise Conflict(f"run {token.target} exists already", "it was forked with other terms", "choose another run id")
    return True


async def _copy(store: Store, start: ForkStart, portion: Sequence[Put]) -> None:
    """Land copies of calls, or those of them that an earlier attempt did not land.

    Raises Conflict, and Stale if another process has made the run or given the start up.
    """
    left, run = tuple(portion), start.run
    for _ in range(2):
        try:
            label = f"{run} copy {key_of(MEMO, left[0].row)[-1]}"
            await store.commit(Commit(left, expects=(start.expects,), label=label))
            return
        except Stale:
            if not await goes_on(store, start):
                raise
            found = await store.load_many(MEMO, [key_of(MEMO, put.row) for put in left])
        if any(row is not None and row != put.row for put, row in zip(left, found, strict=True)):
            break
        left = tuple(put for put, row in zip(left, found, strict=True) if row is None)
        if not left:
            return
    raise Conflict(f"run {run} has copies of another past", "it was forked otherwise before", "choose another run id")


async def _first_commit(
    store: Store,
    workflow: Workflow[Any],
    of: _Ancestor,
    point: ForkPoint,
    terms: ForkTerms,
    token: Token,
    state: bytes,
    actor: str,
) -> Commit:
    """Return the commit that makes the fork a run, due at once."""
    now = await store.now()
    workflow = workflow.scheduled_by(scheduler_of(of.run.lane))
    node = workflow.nodes[point.node]
    entered = [event for event in of.history if event.seq <= point.seq]
    visits = Counter(e.node for e in entered if e.type in (EventType.STARTED, EventType.CHECKPOINT))
    if of.run.forked_from:
        visits.update(_visits_before(of))
    details = StartDetails(correlation_id=of.run.correlation_id, objective=of.run.objective)
    new = new_run(workflow, node, state, token=token, actor=actor, details=details, now=now.business)
    version = of.run.version if is_over(of.run) else 0
    if workflow.attributes is not None:
        own = workflow.attributes.of_state(workflow.state_codec.load(state))
        new = new._replace(attributes={**attribute_values(of.run), **own})
    new = new._replace(
        forked=Forked(of.run.run, point.seq, version, point.visit, visits, terms._asdict()),
        rows=(*new.rows, Put(MEMO, memo_of_terms(new.tenant, new.run, terms, now.business), 0)),
    )
    begin = start_verb(new, now, limited=bool(await limits_of(store, new.tenant)))
    reason = REASON.encode(terms.both_go_on).encode()
    return begin._replace(
        writes=(*begin.writes, append_to_inbox(new.tenant, new.run, "fork", of.run.run, actor, reason))
    )


def _visits_before(of: _Ancestor) -> Counter[str]:
    """Return the visits that an ancestor counts from its own ancestors, which its history does not have."""
    own = Counter(e.node for e in of.history if e.type in (EventType.STARTED, EventType.CHECKPOINT))
    return Counter({node: n - own[node] for node, n in of.run.visits.items() if n > own[node]})


def _signals(of: _Ancestor, point: ForkPoint, wanted: tuple[str, ...]) -> list[Message]:
    """Return the signals that the fork gets. Raises NotFound for one that the run did not get."""
    signals = [message for message in of.rows.messages if message.kind == "signal"]
    known = {"all", *(str(m.n) for m in signals), *(m.signal_id for m in signals)}
    if missing := sorted(set(wanted) - known):
        offered = ", ".join(f"{m.signal_id or m.n} ({m.name})" for m in signals[-10:]) or "none"
        raise NotFound(f"no signal {', '.join(missing)}", f"the last ones are: {offered}", "name one of them, or all")
    bound = [n for wait in of.rows.waits if wait.visit < point.visit for n in wait.binding or ()]
    return signals_of(of.rows.messages, bound, point.at, wanted)


async def _send(store: Store, tenant: str, run: str, of: str, message: Message) -> None:
    """Send a signal of the ancestor to the fork, once."""
    try:
        await signal(
            store,
            tenant=tenant,
            run=run,
            name=message.name,
            payload=json.loads(message.payload),
            actor=f"{message.actor} (to run {of})",
            signal_id=f"fork/{of}/{message.n}",
        )
    except Conflict:  # the fork has ended already
        return
