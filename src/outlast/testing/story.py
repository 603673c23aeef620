"""One story of a run: its acts, each of which lets the run go as far as it can, and the facts that are checked then."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple

from pydantic import BaseModel, TypeAdapter

from outlast.core.approvals import Actor, PersonDecision
from outlast.core.attention import AttentionAnswer
from outlast.core.durations import DAY, Duration, ms_of
from outlast.core.effect_steps import Happened
from outlast.core.keys import idempotency_key
from outlast.core.limits import TEXT_CHARS_MAX
from outlast.core.machine import (
    NO_HOLDER,
    OPEN_EFFECT,
    ApprovalStatus,
    Choice,
    EffectStatus,
    Reason,
    RunStatus,
    WaitStatus,
)
from outlast.core.rows.effect_rows import APPROVAL, BY_ITSELF, EFFECT, WAIT, Approval, Effect
from outlast.core.rows.run_columns import Attention
from outlast.core.rows.run_rows import EVENT, MESSAGE, Run
from outlast.engine import commands
from outlast.engine.snapshots import state_of_rows
from outlast.errors import OutlastError
from outlast.flow.workflow import Workflow
from outlast.testing.answers import next_approver
from outlast.testing.crash_values import CheckFailed
from outlast.testing.story_world import RUN_ID, TENANT, AnswerKind, Execution, StoryWorld, WorldAnswer, WorldCall

KEY: Final = (TENANT, RUN_ID)
PERSON: Final = "ana"
Check = Callable[["Story"], object]
Loads = Callable[[WorldCall, Any], Any]


@dataclass(frozen=True)
class StoryOptions:
    """A workflow and the sentences that hold in each of its stories."""

    workflow: Workflow[Any, Any, Any]
    checks: tuple[Check, ...]
    answers: Mapping[str, Any] = field(default_factory=dict)
    """Answers of activities, by name: a value, a function of the arguments, or a strategy."""

    @cached_property
    def checked(self) -> Workflow[Any, Any, Any]:
        """The workflow as one that the worker of each story need not check again."""
        valid = copy(self.workflow.validate())
        vars(valid)["validate"] = lambda: valid
        return valid


class StoryCall(NamedTuple):
    """A call that a receiver executed: its activity, its key, its arguments as plain data, and its response."""

    activity: str
    key: str
    arguments: Mapping[str, Any]
    response: Any
    at: datetime


class StoryEffect(NamedTuple):
    """A call as the ledger has it. `status` is intended, done, refused, uncertain or undone."""

    activity: str
    key: str
    visit: int
    status: str
    arguments: Mapping[str, Any]
    response: Any


class StoryApproval(NamedTuple):
    """A request to a person. `chosen` has the arguments of the approved call; `valid_until` is None unless approved."""

    name: str
    status: str
    asked_at: datetime
    decided_by: str
    chosen: Mapping[str, Any] | None
    valid_until: datetime | None


class StorySignal(NamedTuple):
    """A signal that was sent. `taken` is True if a wait of the run has returned it."""

    name: str
    payload: Mapping[str, Any]
    at: datetime
    taken: bool


class Broken(CheckFailed):
    """An invariant of the engine does not hold in a story."""


def instant(ms: int) -> datetime:
    """Return an instant of the story."""
    return datetime.fromtimestamp(ms / 1000, UTC)


def text_of_ms(ms: int) -> str:
    """Return a duration as text that `Story.wait` reads: 14d, 1h30m, 500ms."""
    parts = []
    for unit, size in (("d", DAY), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)):
        count, ms = divmod(ms, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0ms"


class _Facts:
    """The rows of the run after an act, read when they are first asked for."""

    def __init__(self, world: StoryWorld) -> None:
        self.world = world
        self.run = world.run

    @cached_property
    def effects(self) -> list[Effect]:
        rows = [row for row in self.world.core.rows.under(EFFECT, (TENANT,)) if not row.undoes]
        return sorted(rows, key=lambda row: row.ordinal)

    @cached_property
    def approvals(self) -> list[Approval]:
        rows = self.world.core.rows.under(APPROVAL, KEY)
        return sorted(rows, key=lambda row: (row.asked_at, row.wait))

    @cached_property
    def waits(self) -> list[Any]:
        return self.world.core.rows.under(WAIT, KEY)

    @cached_property
    def last(self) -> dict[str, Any]:
        events = self.world.core.rows.under(EVENT, KEY)
        return events[-1].data() if events else {}

    @cached_property
    def state(self) -> Any:
        rows = self.world.people._run_rows(KEY, self.world.core.now())
        if rows is None:
            raise CheckFailed("the run has not been started: call story.start() first")
        store = self.world.people
        return self.world.workflow.state_codec.load(self.world.act(state_of_rows(store, rows)))

    @cached_property
    def signals(self) -> tuple[StorySignal, ...]:
        taken = {n for wait in self.waits for n in wait.binding or ()}
        rows = [row for row in self.world.core.rows.under(MESSAGE, KEY) if row.kind == "signal"]
        return tuple(StorySignal(r.name, json.loads(r.payload), instant(r.at), r.n in taken) for r in rows)


class Story:
    """A run from its start: acts of people, programs, receivers and time, and what is true after each.

    `any_story` and `retell` create it, from the options `asked` and in a `world`. After each act the run has gone as
    far as it can, and every check was called.
    """

    def __init__(self, asked: StoryOptions, world: StoryWorld) -> None:
        self._asked = asked
        self._world = world
        self._facts = _Facts(world)
        self.lines: Final[list[str]] = []
        """The acts so far, as lines of a test."""

    # --- acts ----------------------------------------------------------------------------------
    def start(self, given: BaseModel | Mapping[str, Any]) -> None:
        """Start the run with the input `given`."""
        data = given.model_dump(mode="json") if isinstance(given, BaseModel) else dict(given)
        world, workflow = self._world, self._asked.workflow
        self._act(
            f"story.start({data!r})",
            lambda: world.act(
                commands.start(world.people, workflow, data, tenant=TENANT, actor=PERSON, run=RUN_ID, key="story")
            ),
            must=True,
        )

    def wait(self, duration: Duration) -> None:
        """Let this `duration` pass, and all that becomes due in it: sleeps, deadlines, retries, timeouts."""
        ms = ms_of("duration", duration)
        self._act(f'story.wait("{text_of_ms(ms)}")', lambda: self._world.advance(ms))

    def signal(self, name: str, payload: BaseModel | Mapping[str, Any]) -> None:
        """Send the signal `name` with a `payload`."""
        data = payload.model_dump(mode="json") if isinstance(payload, BaseModel) else dict(payload)
        world = self._world
        work = commands.signal
        self._act(
            f"story.signal({name!r}, {data!r})",
            lambda: world.act(
                work(world.people, tenant=TENANT, run=RUN_ID, name=name, payload=data, actor="a program")
            ),
        )

    def approve(
        self, name: str = "", *, alternative: int = 0, changes: Mapping[str, Any] | None = None, by: str = ""
    ) -> None:
        """Approve the pending approval `name` (default: the first), or its `alternative` with this number.

        `changes` are new values of editable arguments. Each vote is that of another person, unless `by` names one.
        """
        given = _arguments(name, alternative=alternative, changes=changes, by=by)
        self._decide(f"story.approve({given})", name, PersonDecision("approve", "ok", alternative, changes or {}), by)

    def reject(self, name: str = "", *, again: bool = False, by: str = "") -> None:
        """Reject the pending approval `name` (default: the first), as `by`. `again` asks for another round."""
        given = _arguments(name, again=again, by=by)
        self._decide(f"story.reject({given})", name, PersonDecision("again" if again else "reject", "no"), by)

    def answer(self, reason: str, choice: str, *, key: str = "") -> None:
        """Answer a `reason` for attention with one of its choices: `choice`. `key` names the effect if several wait."""
        world = self._world
        by_ms = DAY if choice == Choice.EXTEND else 0
        answer = AttentionAnswer(Choice(choice), "looked at it", Reason(reason), key, by_ms)
        more = f", key={key!r}" if key else ""
        self._act(
            f"story.answer({reason!r}, {choice!r}{more})",
            lambda: world.act(
                commands.resolve_attention(world.people, tenant=TENANT, run=RUN_ID, answer=answer, actor=PERSON)
            ),
        )

    def resolve(self, key: str, *, give_up: bool = False) -> None:
        """Resolve the uncertain effect of this `key` by the receivers' record. `give_up`: if it did not happen."""
        more = ", give_up=True" if give_up else ""
        self._act(f"story.resolve({key!r}{more})", lambda: self._resolve(key, give_up=give_up))

    def cancel(self) -> None:
        """Request that the run be cancelled."""
        world = self._world
        self._act(
            "story.cancel()",
            lambda: world.act(
                commands.cancel(world.people, tenant=TENANT, run=RUN_ID, actor=PERSON, reason="not needed")
            ),
        )

    def crash(self, point: int) -> None:
        """Let the process die at the crash `point` of this number, counted from here: 1, 2, …

        Crash points are before and after each commit, and before, within and after each call.
        """
        self._world.countdown = point
        self.lines.append(f"story.crash({point})")

    def answers(self, key: str, kind: AnswerKind, value: Any = None) -> None:
        """Answer the next request of this `key` in this `kind` of way; "KEY?" is the key of a reconcile function.

        - "executes": with the response `value`, as plain data;
        - "refuses": not executed, and the receiver says so; "later": it asks to try again later;
        - "lost": executed, and the answer is lost; "unknown": not executed, and the caller cannot know;
        - "late": it arrives after half of the timeout; "unsent": no connection; "fails": a lookup without an answer.
        """
        oracle = self._world.oracle
        assert isinstance(oracle, Script)
        oracle.add(key, kind, value)

    # --- facts ----------------------------------------------------------------------------------
    @property
    def status(self) -> str:
        """Status of the run: queued, running, waiting, recovering, compensating, completed, failed or cancelled."""
        return self._run.status.value

    @property
    def ended(self) -> bool:
        """True if the run has ended."""
        return self._world.is_over()

    @property
    def node(self) -> str:
        """The node that the run is in."""
        return self._run.node

    @property
    def state(self) -> Any:
        """The state at the last checkpoint."""
        return self._facts.state

    @property
    def outcome(self) -> Any:
        """The result of a completed run as plain data; else None."""
        return self._facts.last.get("outcome") if self.status == RunStatus.COMPLETED else None

    @property
    def reason(self) -> str:
        """Why the run failed or was cancelled; '' otherwise."""
        return str(self._facts.last.get("reason") or "") if self.ended else ""

    @property
    def attention(self) -> tuple[str, ...]:
        """Reasons why the run requires attention."""
        return tuple(each.reason.value for each in self._run.attention)

    @property
    def effects(self) -> tuple[StoryEffect, ...]:
        """The calls in the ledger, in the order of their first intent."""
        return tuple(
            StoryEffect(row.activity, row.key, row.visit, row.status.value, row.arguments(), row.answer())
            for row in self._facts.effects
        )

    @property
    def approvals(self) -> tuple[StoryApproval, ...]:
        """The requests to people, in their order."""
        return tuple(map(_approval, self._facts.approvals))

    @property
    def signals(self) -> tuple[StorySignal, ...]:
        """The signals that were sent, in their order."""
        return self._facts.signals

    @property
    def now(self) -> datetime:
        """The present time of the story."""
        return instant(self._world.time.wall())

    def executed(self, *activities: str) -> tuple[StoryCall, ...]:
        """Return the calls that receivers executed, of these `activities` (default: all), without undo."""
        return self._calls("call", activities)

    def undone(self, *activities: str) -> tuple[StoryCall, ...]:
        """Return the undo calls that receivers executed, of these `activities` (default: all)."""
        return self._calls("undo", activities)

    # --- carrying out ------------------------------------------------------------------------------
    @property
    def _run(self) -> Run:
        run = self._facts.run
        if run is None:
            raise CheckFailed("the run has not been started: call story.start() first")
        return run

    def _calls(self, what: str, activities: Sequence[str]) -> tuple[StoryCall, ...]:
        found = [e for e in self._world.executions if e.what == what and (not activities or e.activity in activities)]
        return tuple(StoryCall(e.activity, e.key, e.arguments, e.response, instant(e.at)) for e in found)

    def _act(self, line: str, act: Callable[[], object], *, must: bool = False) -> None:
        """Carry out an act, let the run go as far as it can, and check. An act that is refused changes nothing."""
        at = len(self.lines)
        self.lines.append(line)
        try:
            act()
        except OutlastError:
            if must:
                raise
        self._world.settle()
        oracle = self._world.oracle
        if isinstance(oracle, AnswerRecord):
            self.lines[at:at] = oracle.lines()
        self._facts = _Facts(self._world)
        if self._facts.run is not None:
            check_engine(self._world, self._facts.effects, self._facts.run)
            for check in self._asked.checks:
                check(self)

    def _decide(self, line: str, name: str, decision: PersonDecision, by: str) -> None:
        self._act(line, lambda: self._decided(name, decision, by))

    def _decided(self, name: str, decision: PersonDecision, by: str) -> None:
        row = next((r for r in self.pending() if name in ("", r.wait)), None)
        if row is None:
            return
        voters = [vote.by for vote in row.votes]
        person = by or next_approver("bo" if row.not_requester else PERSON, row.who, voters)
        world, workflow = self._world, self._asked.workflow
        world.act(commands.decide_approval(world.people, TENANT, row.id, Actor(person), decision, lambda run: workflow))

    def _resolve(self, key: str, *, give_up: bool) -> None:
        world, workflow = self._world, self._asked.workflow
        row = next((e for e in self._rows_of(key) if e.status is EffectStatus.UNCERTAIN), None)
        if row is None or world.under_way.get(_idempotent(row), 0):
            return  # a request that is still on its way: no person can know
        truth = world.truth(_idempotent(row))
        verb: Any = "give_up" if give_up else "did_not_happen"
        encode: Callable[[Effect], bytes] | None = None
        if isinstance(truth, Happened):
            activity, response = workflow.activity(row.activity), truth.response
            codec = activity.undoing.response_codec if row.undoes and activity.undoing else activity.response_codec
            verb, encode = "happened", lambda effect: codec.dump(response)
        world.act(
            commands.resolve_effect(
                world.people,
                tenant=TENANT,
                run=RUN_ID,
                key=key,
                verb=verb,
                actor=PERSON,
                reason="asked them",
                encode=encode,
                visit=row.visit,
            )
        )

    def _rows_of(self, key: str) -> list[Effect]:
        return [row for row in self._world.core.rows.under(EFFECT, (TENANT,)) if row.key == key]

    # --- for any_story -----------------------------------------------------------------------------
    def may_have_happened(self, key: str) -> bool:
        """Return True if a receiver has executed a call of this `key`, or its request is still on its way."""
        world = self._world
        keys = [_idempotent(row) for row in self._rows_of(key)]
        return any(world.under_way.get(each, 0) or isinstance(world.truth(each), Happened) for each in keys)

    def pending(self) -> list[Approval]:
        """Return the approvals that wait for a person."""
        return [row for row in self._facts.approvals if row.status is ApprovalStatus.PENDING]

    def flagged(self) -> tuple[Attention, ...]:
        """Return the attention of the run."""
        return self._run.attention

    def open_signals(self) -> list[Any]:
        """Return the open waits for signals."""
        return [w for w in self._facts.waits if w.status is WaitStatus.OPEN and w.kind in ("receive", "collect")]

    def instants(self) -> list[int]:
        """Return the times (ms from now) until something happens by itself, or a deadline passes."""
        world, now = self._world, self._world.time.wall()
        found = {w.deadline for w in self._facts.waits if w.status is WaitStatus.OPEN and w.deadline}
        for row in self._facts.approvals:
            found.add(row.within_until if row.status is ApprovalStatus.PENDING else row.valid_until)
        found.add(self._run.ceiling_at)
        ahead = {at - now for at in found if at > now}
        if self._run.owner not in NO_HOLDER and (following := world.next()) is not None:
            ahead.add(following - world.time.now)
        if self._run.due_at is not None:
            ahead.add(self._run.due_at - now)
        ahead = {ms for ms in ahead if ms > 0}
        return sorted(ahead)[:INSTANTS_MAX]


INSTANTS_MAX: Final = 5


def _idempotent(row: Effect) -> str:
    return idempotency_key(row.tenant, row.run, row.visit if row.run else row.redone, row.key)


def _arguments(name: str, **given: Any) -> str:
    more = [f"{key}={value!r}" for key, value in given.items() if value]
    return ", ".join(([repr(name)] if name else []) + more)


def _approval(row: Approval) -> StoryApproval:
    plan = next((p for p in row.plans if p.digest == row.chosen), None) if row.chosen else None
    return StoryApproval(
        row.wait,
        row.status.value,
        instant(row.asked_at),
        row.decided_by,
        plan.arguments() if plan is not None else None,
        instant(row.valid_until) if row.valid_until else None,
    )


# --- the engine's own invariants ------------------------------------------------------------------
def check_engine(world: StoryWorld, effects: Sequence[Effect], run: Run) -> None:
    """Raise Broken if an effect happened twice, the ledger contradicts the record, or an ended run has open effects."""
    counts: dict[str, Execution] = {}
    for each in world.executions:
        if each.idempotency_key in counts:
            raise Broken(f"{each.key} was executed twice, and no person has asked for it")
        counts[each.idempotency_key] = each
    for row in effects:
        key = _idempotent(row)
        if world.is_over() and row.status in OPEN_EFFECT:
            raise Broken(f"the run has ended {run.status.value}, and {row.key} is {row.status.value}")
        if row.status is EffectStatus.DONE and key not in counts and row.settled_by in BY_ITSELF:
            raise Broken(f"the ledger says that {row.key} is done, and no receiver has executed it")
        if row.status is EffectStatus.REFUSED and key in counts and row.settled_by in BY_ITSELF:
            raise Broken(f"the ledger says that {row.key} was refused, and a receiver has executed it")
    for flagged in run.attention:
        if flagged.reason in (Reason.NODE_DIVERGED, Reason.CONTRADICTION):
            raise Broken(f"{flagged.reason.value}: {flagged.detail[:TEXT_CHARS_MAX]}")


# --- where answers come from ---------------------------------------------------------------------
class AnswerRecord:
    """An oracle that keeps what it has answered, as lines of a test."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def keep(self, call: WorldCall, kind: str, value: Any = None) -> None:
        """Keep an answer that a script would not give by itself."""
        more = "" if value is None else f", {value!r}"
        self._lines.append(f"story.answers({call.label!r}, {kind!r}{more})")

    def lines(self) -> list[str]:
        """Return the lines since the last call."""
        lines, self._lines = self._lines, []
        return lines


class Script:
    """An oracle that answers what a test has written, and otherwise "executes"."""

    def __init__(self, asked: StoryOptions) -> None:
        self._asked = asked
        self._answers: dict[str, list[tuple[AnswerKind, Any]]] = {}

    def add(self, key: str, kind: AnswerKind, value: Any) -> None:
        """Add an answer for the next request of a key that has none yet."""
        self._answers.setdefault(key, []).append((kind, value))

    def answer(self, call: WorldCall) -> WorldAnswer:
        """Return the next answer of the key."""
        written = self._answers.get(call.label)
        if not written:
            return WorldAnswer("executes", default_answer(self._asked, call))
        kind, value = written.pop(0)
        if value is None:
            return WorldAnswer(kind, default_answer(self._asked, call))
        return WorldAnswer(kind, loaded_answer(call, value))


def default_answer(asked: StoryOptions, call: WorldCall) -> Any:
    """Return the response that a receiver gives if nothing else is said: that of the author, a text, or None."""
    if call.what in ("undo", "reconcile"):
        return None
    given = asked.answers.get(call.activity)
    if callable(given):
        return given(**call.arguments)
    if given is not None and not hasattr(given, "example"):
        return given
    return call.key if hint_of(call) is str else None


def hint_of(call: WorldCall) -> Any:
    """Return the declared type of a response."""
    return getattr(call.callee.response_codec, "type", None)


def loaded_answer(call: WorldCall, value: Any) -> Any:
    """Return plain data as a value of the declared type of a response."""
    hint = hint_of(call)
    return value if hint is None else loaded(hint, value)


def plain(hint: Any, value: Any) -> Any:
    """Return a value of a type as plain JSON data."""
    return _adapter(hint).dump_python(value, mode="json")


def loaded(hint: Any, data: Any) -> Any:
    """Return plain JSON data as a value of a type. Raises ValidationError."""
    return _adapter(hint).validate_python(data)


def _adapter(hint: Any) -> TypeAdapter[Any]:
    try:
        return _kept_adapter(hint)
    except TypeError:  # a type that cannot be hashed
        return TypeAdapter(hint)


@lru_cache(maxsize=1_000)
def _kept_adapter(hint: Any) -> TypeAdapter[Any]:
    return TypeAdapter(hint)


@contextmanager
def open_story(asked: StoryOptions, oracle: Any) -> Iterator[Story]:
    """Open a story, and close its world at the end of the block."""
    world = StoryWorld(asked.checked, oracle)
    try:
        yield Story(asked, world)
    finally:
        world.close()
