"""Structured values of a run row's columns, such as waits and attention, and of people's answers to attention."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from json import dumps, loads
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from outlast.core.codec import compact
from outlast.core.durations import APPROVAL_STALE_AFTER
from outlast.core.limits import DETAIL_CHARS_MAX, DETAILS_BYTES_MAX, KEY_BYTES_MAX, TEXT_CHARS_MAX
from outlast.core.machine import CHOICES, RULES, Choice, Reason, RunStatus
from outlast.core.rows.columns import CACHED_TEXTS, Column, stored_text, typed
from outlast.core.rows.effect_columns import DETACHED
from outlast.core.usage import NO_LIMITS, Amounts, Limits

SlotName: TypeAlias = tuple[str, int]
"""Key of a slot row: the tenant of the limit, '*' for the global one, and the number."""
What = Literal["activity", "provider", "workflow", "tenant"]
"""Kind of thing that an operator pauses."""
WaitingKind = Literal[
    "timer",
    "signal",
    "approval",
    "child",
    "effect",
    "retry",
    "settle",
    "slot",
    "worker",
    "pause",
    "limit",
    "budget",
    "attention",
]


class WaitingFor(NamedTuple):
    """Wait of an unfinished run. Instants are business time in ms, 0 = no end; `then` says what follows."""

    kind: WaitingKind
    what: str
    who: str = ""
    since: int = 0
    until: int = 0
    then: str = ""


class StatusLabels(NamedTuple):
    """Status of a run in a node by what the run does there, for example of an agent's run.

    - `executing`: shown unless one of the others applies.
    - `calling`: while a call of an activity is open: sent, to be retried, or to be settled.
    - `approval`: while the run waits for an approval.

    A run that waits for a worker shows QUEUED. A run whose worker finds out what became of an interrupted call shows
    RECOVERING.
    """

    executing: str
    calling: str
    approval: str


class Timer(NamedTuple):
    """Timer at which the run becomes due. `real`: the instant is real time, else business time (S-4)."""

    what: str
    at: int
    real: bool = False


class Ending(NamedTuple):
    """Decided end of a run: outcome, reason, and the actor who decided it ('' = the workflow's code)."""

    outcome: RunStatus
    reason: str
    by: str
    child: str = ""
    """Visit and key of the child whose failure ended the run, as `visit:key`; '' = another reason."""


class Descent(NamedTuple):
    """Start of a child run: the run that started it, and the budget of the run at the top of its tree (S-30)."""

    parent: str = ""
    called_as: str = ""
    """`visit:key` of its row in the ledger of its parent."""
    budget: Limits = NO_LIMITS
    """Limits of the root's budget, as its workflow had them when the child was started."""


NO_DESCENT: Final = Descent()


AttributeValue: TypeAlias = str | int | bool | None
"""Value of an attribute. None: the field has no value now."""


class StoredAttribute(NamedTuple):
    """Attribute of a run in its row, and the number of its values so far: the version of its index row."""

    name: str
    value: AttributeValue
    changes: int


class PurgedCounts(NamedTuple):
    """Counts of rows that a run no longer has, because its history is a window (S-32)."""

    visits: Mapping[str, int] = MappingProxyType({})
    """Visits of each node before the floor."""
    done: Mapping[str, int] = MappingProxyType({})
    """Done effects of each activity and child workflow that stay in force, because nothing undoes them any more."""


NOTHING_PURGED: Final = PurgedCounts()


COUNTED: Final = "counted"
"""Trigger of `child_failed` for a child of a map."""


class Attention(NamedTuple):
    """Reason why a person must decide. The reason determines the choices."""

    reason: Reason
    since: int
    detail: str = ""
    key: str = ""  # key of the effect, if the reason concerns one
    visit: int = 0  # visit of that effect
    trigger: str = ""  # name for alerts, if the reason has one
    seen: int = 0  # last message read when the person was asked; only later messages answer
    digest: str = ""  # contradiction: digest of the call that the recorded answer may serve
    until: int = 0  # business; from here on the run continues without an answer; 0 = never
    missing: tuple[str, ...] = ()  # node_diverged: names of what was recorded and not asked for again
    goes_on: bool = False  # approval_timeout: other waits of its ctx.first may end; budget_exhausted: runs below wait
    name: str = ""  # the activity or the type of the exception, if the reason concerns one
    cause: str = ""  # digest that alike entries of many runs share; '' of entries of earlier versions

    @property
    def stops(self) -> bool:
        """True if the run does nothing until a person answers."""
        return RULES[self.reason].stops and not self.goes_on

    @property
    def is_detached(self) -> bool:
        """True if the child, or a run below that ended it, was detached and goes on alone."""
        return self.trigger == DETACHED

    @property
    def is_counted(self) -> bool:
        """True if the child is one of a map, whose results do not change once they are counted (S-31)."""
        return self.trigger == COUNTED

    def choices(self, beside: Iterable["Attention"] = ()) -> tuple[Choice, ...]:
        """Return the choices of the reason that apply to this entry. `beside`: the attention set of the run.

        `accept` is not offered while a call that it would accept away is uncertain. `retry` is not offered for a child
        that was detached, because a second run would act beside it, and for a child of a map.
        """
        uncertain = {each.key for each in beside if each.reason is Reason.EFFECT_UNCERTAIN}
        known = not any(name.partition("?")[2] in uncertain for name in self.missing)
        needs = {
            Choice.USE_RECORDED: bool(self.digest),
            Choice.ACCEPT: bool(self.missing) and known,
            Choice.RETRY: not (self.is_detached or self.is_counted),
        }
        return tuple(c for c in CHOICES[self.reason] if needs.get(c, True))


class PersonAnswer(NamedTuple):
    """Choice of a person for one reason of attention: payload of a message of the kind `answer`."""

    choice: Choice
    key: str  # key of the effect; '' = every entry of the reason
    reason: str  # of the choice, as the person gave it
    by_ms: int = 0  # extend: duration
    recorded: tuple[tuple[int, str, str], ...] = ()
    """`use_recorded`: visit, key and digest of calls that use their recorded answer. `accept`: visit, name, and ''."""
    to: tuple[int, str] | None = None  # move: version and node
    at: tuple[str, str, int] | None = None  # move: lane, node and visit of the run at the request


class StatedAnswer(NamedTuple):
    """Answer of a person about an effect: payload of a message of the kind `resolve`. Each stays in the inbox."""

    verb: str = ""  # happened, did_not_happen, give_up
    key: str = ""
    visit: int = 0
    reason: str = ""
    external_id: str = ""
    response: str = ""  # JSON of the response, its digest if it is large; '' without one
    version: int = 0  # of the effect that it answers
    corrects: str = ""  # who gave the answer that it replaces; '' if it is the first one
    in_visit: int = 0  # visit of the run at a correction


def stored_label(status: StatusLabels | str | None) -> str:
    """Return the column `status_label` of a run in a node with this status."""
    return "|".join(status) if isinstance(status, StatusLabels) else status or ""


def labels_of(status_label: str) -> StatusLabels | None:
    """Return the labels in a column `status_label`; None if it holds one name or none."""
    parts = status_label.split("|")
    return StatusLabels(*parts) if len(parts) == len(StatusLabels._fields) else None


def _dump_answer(answer: PersonAnswer) -> str:
    plain: dict[str, object] = {
        "choice": answer.choice.value, "key": answer.key, "reason": answer.reason, "by_ms": answer.by_ms,
    }  # fmt: skip
    if answer.recorded:
        plain["recorded"] = answer.recorded
    if answer.to is not None:
        plain |= {"to": {"version": answer.to[0], "node": answer.to[1]}, "from": answer.at}
    return dumps(plain)


def _load_answer(text: str) -> PersonAnswer:
    plain = loads(text)
    recorded = tuple((visit, key, digest) for visit, key, digest in plain.get("recorded", ()))
    answer = PersonAnswer(Choice(plain["choice"]), plain["key"], plain["reason"], plain["by_ms"], recorded)
    if "to" not in plain:
        return answer
    lane, node, visit = plain["from"]
    return answer._replace(to=(plain["to"]["version"], plain["to"]["node"]), at=(lane, node, visit))


def _load_stated(text: str) -> StatedAnswer:
    plain = loads(text)
    return StatedAnswer(**{name: plain[name] for name in StatedAnswer._fields if name in plain})


def _dump_stated(answer: StatedAnswer) -> str:
    return dumps(answer._asdict())


class RaiseRequest(NamedTuple):
    """Amounts that a person adds to the budget of a run: payload of a message of the kind `raise`."""

    amounts: Amounts
    reason: str


def _dump_raise(asked: RaiseRequest) -> str:
    return dumps({"reason": asked.reason, "amounts": asked.amounts[:5]})  # no raise adds calls without a price


def _load_raise(text: str) -> RaiseRequest:
    plain = loads(text)
    return RaiseRequest(Amounts(*map(int, plain["amounts"])), str(plain["reason"]))


def _dump_reason(reason: str) -> str:
    return dumps({"reason": reason})


def _load_reason(text: str) -> str:
    return str(loads(text).get("reason", ""))


def fit_attention(entries: Iterable[Attention]) -> tuple[Attention, ...]:
    """Return reasons whose texts fit into a run row together: the more there are, the shorter is each detail."""
    entries = tuple(entries)
    detail = _share(len(entries))
    return tuple(
        a._replace(detail=stored_text(a.detail, detail), trigger=stored_text(a.trigger, TEXT_CHARS_MAX))
        for a in entries
    )


def fit_waits(waits: Iterable[WaitingFor]) -> tuple[WaitingFor, ...]:
    """Return waits whose texts fit into a run row together. Each has a key or a summary, which is short."""
    waits = tuple(waits)
    most = min(_share(2 * len(waits)), TEXT_CHARS_MAX + KEY_BYTES_MAX)  # a wait has two texts that may be long
    fitting: list[WaitingFor] = []
    for w in waits:
        if type(w.what) is type(w.who) is type(w.then) is str:
            text = w.what + w.who + w.then
            if len(text) <= most and text.isprintable():  # as nearly always; then nothing is to be cut or escaped
                fitting.append(w)
                continue
        what, who, then = stored_text(w.what, most), stored_text(w.who, most), stored_text(w.then, most)
        fitting.append(w._replace(what=what, who=who, then=then))
    return tuple(fitting)


def _share(entries: int) -> int:
    """Return the characters that each of so many texts may have."""
    return min(DETAIL_CHARS_MAX, DETAILS_BYTES_MAX // (4 * max(1, entries)))


def _dump_attention(items: Iterable[Attention]) -> str:
    plain = [{**a._asdict(), "reason": a.reason.value, "missing": list(a.missing)} for a in fit_attention(items)]
    for each in plain:
        if not each["missing"]:
            del each["missing"]
        for name in ("goes_on", "name", "cause"):
            if not each[name]:
                del each[name]
    return compact(plain) if plain else ""


def _load_attention(text: str) -> tuple[Attention, ...]:
    if not text:
        return ()
    return tuple(
        typed(Attention(**{**item, "reason": Reason(item["reason"]), "missing": tuple(item.get("missing", ()))}))
        for item in loads(text)
    )


def _dump_waiting(waiting: Iterable[WaitingFor]) -> str:
    items = [w._asdict() for w in fit_waits(waiting)]
    return compact(items) if items else ""


def _load_waiting(text: str) -> tuple[WaitingFor, ...]:
    return tuple(typed(WaitingFor(**item)) for item in loads(text)) if text else ()


def _dump_timers(timers: Iterable[Timer]) -> str:
    items = [[c.what, c.at, int(c.real)] for c in timers]
    return compact(items) if items else ""


def _load_timers(text: str) -> tuple[Timer, ...]:
    return tuple(typed(Timer(what, at, bool(real))) for what, at, real in loads(text)) if text else ()


def _load_visits(text: str) -> Mapping[str, int]:
    return MappingProxyType({str(node): int(n) for node, n in loads(text).items()} if text else {})


def placed_visits(visits: dict[str, int]) -> str:
    """Return the column `visits` of a run that starts or moves: with white space, unlike that of one that advances."""
    return dumps(visits)


def _dump_slots(slots: Iterable[SlotName]) -> str:
    return " ".join(f"{tenant}/{i}" for tenant, i in slots)


def _load_slots(text: str) -> tuple[SlotName, ...]:
    names = [name.rsplit("/", 1) for name in text.split()]
    return tuple((tenant, int(i)) for tenant, i in names)


def _dump_attributes(attributes: Iterable[StoredAttribute]) -> str:
    found = {each.name: [each.value, each.changes] for each in attributes}
    return compact(found) if found else ""


def _load_attributes(text: str) -> tuple[StoredAttribute, ...]:
    plain: dict[str, list[Any]] = loads(text)
    for name, (value, changes) in plain.items():
        if not isinstance(value, str | int | None) or type(changes) is not int:
            raise TypeError(f"attribute {name} is {value!r}"[:200])
    return tuple(StoredAttribute(name, value, changes) for name, (value, changes) in plain.items())


def _dump_purged(purged: PurgedCounts) -> str:
    return compact([dict(purged.visits), dict(purged.done)])


def _load_purged(text: str) -> PurgedCounts:
    visits, done = loads(text)
    return PurgedCounts(_counts(visits), _counts(done))


def _counts(plain: dict[str, int]) -> Mapping[str, int]:
    return MappingProxyType({str(name): int(n) for name, n in plain.items()})


def _dump_ending(ending: Ending | None) -> str:
    if ending is None:
        return ""
    plain = {"outcome": ending.outcome.value, "reason": ending.reason, "by": ending.by}
    return dumps(plain | {"child": ending.child} if ending.child else plain)


def _load_ending(text: str) -> Ending | None:
    if not text:
        return None
    plain = loads(text)
    return typed(Ending(RunStatus(plain["outcome"]), plain["reason"], plain["by"], plain.get("child", "")))


def _dump_descent(descent: Descent) -> str:
    if descent == NO_DESCENT:
        return ""
    plain: dict[str, object] = {"parent": descent.parent, "called_as": descent.called_as}
    if descent.budget != NO_LIMITS:
        plain["budget"] = descent.budget
    return dumps(plain)


def _load_descent(text: str) -> Descent:
    if not text:
        return NO_DESCENT
    plain = loads(text)
    return typed(Descent(plain["parent"], plain["called_as"], Limits(*plain.get("budget", ()))))


ATTENTION: Final = Column("attention", _dump_attention, _load_attention)
WAITING_FOR: Final = Column("waiting_for", _dump_waiting, _load_waiting)
TIMERS: Final = Column("timers", _dump_timers, _load_timers)
VISITS: Final = Column[dict[str, int], Mapping[str, int]]("visits", compact, _load_visits)
SLOTS: Final = Column("slots", _dump_slots, _load_slots)
PERSON_ANSWER: Final = Column("payload", _dump_answer, _load_answer)
STATED_ANSWER: Final = Column("payload", _dump_stated, _load_stated)
RAISE: Final = Column("payload", _dump_raise, _load_raise)
REASON: Final = Column("payload", _dump_reason, _load_reason)
ENDING: Final = Column("ending", _dump_ending, _load_ending)
DESCENT: Final = Column("descent", _dump_descent, _load_descent)
ATTRIBUTES: Final = Column("attributes", _dump_attributes, _load_attributes)
PURGED: Final = Column("purged", _dump_purged, _load_purged)


@lru_cache(CACHED_TEXTS)
def entered_visits(text: str, node: str) -> str:
    """Return the column `visits` after `node` is entered, cached because runs of a workflow take the same paths.

    Raises Corrupt.
    """
    visits = VISITS.decode(text)
    return VISITS.encode({**visits, node: visits.get(node, 0) + 1})


def until_of(entry: Attention) -> int:
    """Return the business time at which the engine acts without an answer; 0 = never."""
    return entry.since + APPROVAL_STALE_AFTER if entry.reason is Reason.APPROVAL_TIMEOUT else entry.until


def attention_timers(reasons: Iterable[Attention]) -> tuple[Timer, ...]:
    """Return the timers of unanswered attention.

    One cancels a run seven days after the timeout of an undecided approval (S-21). The others end attention that needs
    no answer from then on.
    """
    reasons = tuple(reasons)
    timed_out = [a.since + APPROVAL_STALE_AFTER for a in reasons if a.reason is Reason.APPROVAL_TIMEOUT]
    stale = (Timer("approval_stale", min(timed_out)),) if timed_out else ()
    return (*stale, *(Timer(a.reason.value, a.until) for a in reasons if a.until))
