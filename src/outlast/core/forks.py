"""Forks: which checkpoints are offered, which rows a fork copies, and how its calls are answered (S-28).

Theory of operation. A fork is a new run that begins with the state of a checkpoint of another run, its ancestor. Its
start copies the calls of the ancestor as memos of the fork. A memo is never executed, undone, budgeted or counted, so
no consumer of the ledger can take a copied call for one of the fork. Four things can go wrong:

1. *A call of the past is made again.* It is of an earlier visit, which the fork never enters. A call once per run is
   answered from its copy.
2. *One recorded answer serves two calls.* The commit that uses it inserts a memo whose key has the number of the copy.
   A second one is refused by the store.
3. *A call once per run is made by two runs of a lineage.* `answer_in_fork` finds those of the ancestors in the copies.
   The others have one ledger row for the lineage, under `keys.lineage_key`, by the rules of calls once per tenant.
4. *A fork begins with half of its past.* The copies land before the row of the run, which its last batch writes.
5. *A fork takes over the child of its ancestor.* A child that has ended is a recorded answer. One that
   has not is copied with its input alone: the fork starts another one, under its own token (S-30).
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from outlast.core.codec import compact
from outlast.core.divergence import MAP, is_answer
from outlast.core.events import EventType
from outlast.core.keys import ADMISSION, LINEAGE, OncePer, plain_key
from outlast.core.machine import EffectStatus
from outlast.core.mailbox import REOPENED
from outlast.core.rows.columns import decoded
from outlast.core.rows.effect_columns import CHILD, ERROR
from outlast.core.rows.effect_rows import Effect, Memo, Usage
from outlast.core.rows.run_rows import Event, Message, Run
from outlast.errors import Conflict, Corrupt, NotFound

Effects: TypeAlias = Literal["ask", "recorded", "live"]
"""How the writes of a fork are permitted: by a person, from the recording, or by the policy alone."""
Lookups: TypeAlias = Literal["recorded", "live"]
"""Whether the lookups of a fork are answered from the recording, if they can be."""

CallKind: TypeAlias = Literal["write", "lookup", "child"]

PREFIX: Final = "fork?"  # no template renders a ?
TERMS: Final = f"{PREFIX}terms"
"""Key of the memo, once per run, that makes a run a fork."""
ASKS: Final = f"{PREFIX}asks"
"""Key of the memo of a child, once per run, that was started below a fork whose writes a person permits."""
COPIES: Final = f"{PREFIX}call/"
"""Beginning of the keys of the memos of copied calls."""
_USED: Final = f"{PREFIX}used/"
_RESPONSE: Final = ',"response":'


class ForkTerms(NamedTuple):
    """Terms of a fork, as its start fixed them."""

    of: str
    """Its ancestor: the run that it was forked from."""
    root: str
    """The oldest ancestor, which names the lineage."""
    seq: int
    """Number of the ancestor's event with whose state it began."""
    effects: Effects = "ask"
    lookups: Lookups = "recorded"
    approvers: str = ""
    """Rule of the approvers of calls for which neither the policy nor the node names some."""
    accept_undone: bool = False
    """A person accepted that effects of the past may not be in force. Recorded answers of undone effects serve, too."""
    edited: bool = False
    """It began with another state than that of the checkpoint."""
    both_go_on: str = ""
    """Reason why both go on. '': its ancestor had ended."""
    past: str = ""
    """Name of its copies among those of starts with this run id that were given up."""

    @property
    def asks(self) -> bool:
        """True if each write that is not recorded waits for a person."""
        return self.effects != "live"


class AskedBelow(NamedTuple):
    """Who permits the writes of a fork, and of the runs that it starts."""

    of: str
    """Ancestor of the fork."""
    approvers: str
    """Rule of the approvers of calls for which neither the policy nor the node names some."""


class CopiedChild(NamedTuple):
    """Child of an ancestor: the values with which a fork starts another one, and the instant of its end."""

    args: str
    undo: str
    terms: str
    settled_at: int


class CopiedCall(NamedTuple):
    """Call of an ancestor, as the start of a fork copied it."""

    n: int
    """Position among the copied calls, in the order of the ancestor's visits."""
    of: str
    """The run that made it."""
    version: int
    """Version of its row when it was copied; 1 for a lookup."""
    kind: CallKind
    once_per: OncePer
    visit: int
    """Visit of the ancestor that made it; 0 if it is not known."""
    activity: str
    key: str
    digest: str
    past: bool
    """It was made before the point of the fork."""
    status: str
    """Status of an effect. A lookup is done or refused."""
    error: str
    """Error as the column of its row has it."""
    external_id: str
    response: bytes | None
    child: CopiedChild | None = None
    """Of a child run, whose workflow is `activity`."""

    def as_effect(self, run: Run, visit: int) -> Effect:
        """Return an effect row of this answer in a visit, for code that reads one. It is never stored."""
        plain: dict[str, Any] = dict.fromkeys(Effect._fields, "")
        numbers = ("attempts", "waited_ms", "ordinal", "epoch", "first_at", "not_after", "settle_after")
        plain |= dict.fromkeys((*numbers, "covered_until", "interrupted", "shared", "keep_ms", "redone"), 0)
        plain |= {
            "tenant": run.tenant,
            "run": run.run,
            "visit": visit,
            "key": self.key,
            "version": self.version,
            "status": EffectStatus(self.status),
            "activity": self.activity,
            "digest": self.digest,
            "args": b"",
            "response": self.response,
            "error_text": self.error,
            "external_id": self.external_id,
            "settled_at": 1,
            "settled_by": "call",
            "first_visit": self.visit,
        }
        if self.child is not None:
            args, undo, terms, settled_at = self.child
            plain |= {"args": args.encode(), "undo": undo, "child_text": terms, "settled_at": settled_at}
        return Effect(**plain)

    @property
    def is_open(self) -> bool:
        """True if its run may have made it, or may make it: open, uncertain, or reopened by a person."""
        if self.status == EffectStatus.REFUSED:
            error = ERROR.decode(self.error)
            return error is not None and error.code == REOPENED
        return self.status in (EffectStatus.INTENDED, EffectStatus.UNCERTAIN)

    def as_memo(self, run: Run, visit: int, at: int) -> Memo:
        """Return the memo of a lookup of the fork that this answer serves."""
        return Memo(run.tenant, run.run, visit, self.key, self.activity, self.digest, self.response, self.error, at)

    @property
    def text(self) -> str:
        """Return the call for people."""
        return f"{self.activity} {self.key}"


# --- points ------------------------------------------------------------------------------------------
class ForkPoint(NamedTuple):
    """Checkpoint of a run from which it can be forked."""

    seq: int
    node: str
    """The node that the fork executes first."""
    visit: int
    at: int
    to_accept: tuple[str, ...] = ()
    """Effects before it that are not known to be in force: undone, being undone, or uncertain."""


def points_of(events: Iterable[Event], effects: Iterable[Effect]) -> list[ForkPoint]:
    """Return the checkpoints of a run in their order. `events`: those of its history, oldest first."""
    effects = [effect for effect in effects if not effect.undoes]
    found: list[ForkPoint] = []
    for event in events:
        if event.type in (EventType.STARTED, EventType.CHECKPOINT) and event.snapshot is not None:
            lost = tuple(
                f"{effect.activity} {effect.key}: {effect.status.value}"
                for effect in effects
                if made_in(effect) < event.visit and not _is_certain(effect)
            )
            found.append(ForkPoint(event.seq, event.node, event.visit, event.at, lost))
    return found


def _is_certain(effect: Effect) -> bool:
    """Return True if it is known whether the effect is in force, and the state may say that it is."""
    if effect.child_text:  # of a living child nothing is in force yet: the fork starts its own
        return effect.status is not EffectStatus.UNDONE
    return effect.status in (EffectStatus.DONE, EffectStatus.REFUSED)


def as_used(run: str, shared: Iterable[Effect], usages: Iterable[Usage], events: Sequence[Event]) -> list[Effect]:
    """Return shared effects with the visits of this run in place of those of the runs that made them.

    `events`: of the history of the run, oldest first. A call of another run counts from the visit in which this run
    first used it or waited for it. One of the instant of a checkpoint counts as before it, because it may have been.
    """
    used = {usage.key: usage.at for usage in usages}
    entered = [(e.at, e.visit) for e in events if e.type in (EventType.STARTED, EventType.CHECKPOINT)]
    found: list[Effect] = []
    for effect in shared:
        if effect.by_run != run:
            before = [visit for at, visit in entered if at < used.get(effect.key, 0)]
            effect = effect._replace(first_visit=max([*before, entered[0][1]]))
        found.append(effect)
    return found


def made_in(effect: Effect) -> int:
    """Return the visit in which an effect was first intended, or used (`as_used`); 0 if it is not known."""
    return effect.visit or effect.first_visit


def point_named(points: Sequence[ForkPoint], name: str) -> ForkPoint:
    """Return the point with this number, or the last one that leads to a node of this name. Raises NotFound."""
    for point in reversed(points):
        if name in (str(point.seq), point.node):
            return point
    offered = ", ".join(f"{point.seq} ({point.node})" for point in points[-10:]) or "none"
    raise NotFound(f"no checkpoint {name}", f"the last ones are: {offered}", "name one by its number, or a node")


def check_accepted(point: ForkPoint, *, accepted: bool) -> None:
    """Raise Conflict if effects before the point may not be in force, and no person accepted that."""
    if point.to_accept and not accepted:
        listed = "; ".join(point.to_accept[:10])
        raise Conflict(
            f"checkpoint {point.seq} says that effects happened that may not be in force",
            listed,
            "fork from an earlier checkpoint, or accept it with --accept-undone",
            refusal="undone_effects",
        )


# --- copies ------------------------------------------------------------------------------------------
def copies_of(
    run: Run,
    point: ForkPoint,
    effects: Iterable[Effect],
    memos: Iterable[Memo],
    ledger: "ForkLedger | None",
    until: int | None = None,
) -> list[CopiedCall]:
    """Return the calls that a fork copies, in the order of the ancestor's visits.

    `effects`: those of the run, and those of its tenant that it owns or used. `ledger`: of an ancestor that is a fork.
    `until`: the last visit whose calls are copied, of an ancestor that was noted before it had ended; None: all.
    """
    found: list[tuple[tuple[int, int, int], CopiedCall]] = []
    for effect in effects:
        visit = made_in(effect)
        if not effect.undoes and (until is None or visit <= until):
            found.append(((visit, effect.ordinal, 0), _copied_effect(run, point, effect, visit)))
    for memo in memos:
        if is_answer(memo) and memo.activity not in (ADMISSION, MAP) and (until is None or memo.visit <= until):
            past = memo.visit < point.visit if memo.visit else memo.at <= point.at
            found.append(((memo.visit, memo.at, 1), _copied_memo(run, memo, past=past)))
    if ledger is not None:
        found += [
            ((call.visit, call.n, 2), call)
            for call in _inherited(ledger, point)
            if call.once_per == "run" or until is None or call.visit <= until
        ]
    return [call._replace(n=n) for n, (_, call) in enumerate(sorted(found, key=lambda each: each[0]), 1)]


def _copied_effect(run: Run, point: ForkPoint, effect: Effect, visit: int) -> CopiedCall:
    once_per: OncePer = "visit" if effect.visit else "run"
    key = effect.key
    if effect.by_run or not effect.run:
        once_per, key = ("run", plain_key(key)) if key.startswith(LINEAGE) else ("tenant", key)
    return CopiedCall(
        0,
        effect.by_run or run.run,
        effect.version,
        "child" if effect.child_text else "write",
        once_per,
        visit,
        effect.activity,
        key,
        effect.digest,
        visit < point.visit,
        effect.status.value,
        effect.error_text,
        effect.external_id,
        effect.response,
        _copied_child(effect) if effect.child_text else None,
    )


def _copied_child(effect: Effect) -> CopiedChild:
    terms = CHILD.encode(effect.child._replace(stop=""))
    return CopiedChild(effect.args.decode(), effect.undo, terms, effect.settled_at)


def _copied_memo(run: Run, memo: Memo, *, past: bool) -> CopiedCall:
    status = EffectStatus.REFUSED if memo.error_text else EffectStatus.DONE
    return CopiedCall(
        0,
        run.run,
        1,
        "lookup",
        "visit" if memo.visit else "run",
        memo.visit,
        memo.activity,
        memo.key,
        memo.digest,
        past,
        status.value,
        memo.error_text,
        "",
        memo.response,
    )


def _inherited(ledger: "ForkLedger", point: ForkPoint) -> Iterator[CopiedCall]:
    """Yield the calls that an ancestor has copied itself, as far as they count for its fork.

    Lookups that the ancestor answered from them are its own memos. Answers that it did not use are no calls of it.
    """
    for call in ledger.calls:
        use = ledger.used.get(call.n)
        if use is not None and call.kind != "lookup":
            yield call._replace(visit=use[0], past=use[0] < point.visit)
        elif call.past or call.once_per == "run":
            yield call


def memo_of_call(tenant: str, run: str, call: CopiedCall, past: str, at: int) -> Memo:
    """Return the memo that keeps a copied call."""
    return Memo(tenant, run, 0, f"{COPIES}{past}/{call.n:06d}", "", "", _text_of(call), "", at)


def _text_of(call: CopiedCall) -> bytes:
    plain = call._asdict()
    del plain["response"], plain["n"]
    if call.child is None:
        del plain["child"]
    text = compact(plain).encode()
    return text if call.response is None else text[:-1] + _RESPONSE.encode() + call.response + b"}"


def past_of(calls: Iterable[CopiedCall]) -> str:
    """Return the name of these copies. A start that was given up, when other calls had been made, has other names."""
    found = sha256()
    for call in calls:
        found.update(_text_of(call))
    return found.hexdigest()[:8]


def call_of_memo(memo: Memo) -> CopiedCall:
    """Return the copied call that a memo keeps. Raises Corrupt."""
    text = memo.response or b""
    head, separator, response = text.partition(_RESPONSE.encode())
    plain = decoded(head + b"}" if separator else head, f"the copied call in memo {memo.key}")
    try:
        n = int(memo.key.rpartition("/")[2])
        if "child" in plain:
            plain["child"] = CopiedChild(*plain["child"])
        return CopiedCall(**plain, n=n, response=response[:-1] if separator else None)
    except (TypeError, ValueError) as error:
        raise Corrupt(f"memo {memo.run}/{memo.key}: it keeps no copied call: {error!r}") from error


def memo_of_terms(tenant: str, run: str, terms: ForkTerms, at: int) -> Memo:
    """Return the memo that makes a run a fork."""
    return Memo(tenant, run, 0, TERMS, "", "", compact(terms._asdict()).encode(), "", at)


def memo_of_asks(tenant: str, run: str, asks: AskedBelow, at: int) -> Memo:
    """Return the memo that makes a child ask a person for its writes, as the fork above it does."""
    return Memo(tenant, run, 0, ASKS, "", "", compact(asks._asdict()).encode(), "", at)


def asks_of(memos: Mapping[tuple[int, str], Memo], terms: ForkTerms | None) -> AskedBelow | None:
    """Return who permits the writes of a fork, or of a run below one; None if the policy alone does. Raises Corrupt."""
    if terms is not None:
        return AskedBelow(terms.of, terms.approvers) if terms.asks else None
    memo = memos.get((0, ASKS))
    if memo is None:
        return None
    try:
        return AskedBelow(**decoded(memo.response or b"", "who permits the writes below a fork"))
    except TypeError as error:
        raise Corrupt(f"memo {memo.run}/{memo.key}: it names no approvers: {error!r}") from error


def use_of(run: Run, call: CopiedCall, visit: int, at: int) -> Memo:
    """Return the memo of the use of a recorded answer. Its key has the number, so no answer serves two calls."""
    where = {"visit": run.visit, "of": visit}
    return Memo(run.tenant, run.run, 0, f"{_USED}{call.n:06d}", "", "", compact(where).encode(), "", at)


NOT_USED: Final = (0, -1)


class ForkLedger:
    """Copied calls of a fork, and their uses. Made from its memos; `add` keeps it current."""

    __slots__ = ("_by_key", "calls", "terms", "used")

    def __init__(self, terms: ForkTerms, calls: Sequence[CopiedCall]) -> None:
        self.terms = terms
        self.calls = calls
        self.used: dict[int, tuple[int, int]] = {}
        """Visit in which each call was used, and the visit of its key there: 0 for once per run."""
        self._by_key: dict[tuple[str, str], list[CopiedCall]] = {}
        for call in calls:
            self._by_key.setdefault((call.kind, call.key), []).append(call)

    def named(self, kind: str, key: str) -> Sequence[CopiedCall]:
        """Return the copied calls of a key, in their order."""
        return self._by_key.get((kind, key), ())

    def add(self, memo: Memo) -> None:
        """Note the use of an answer, if the memo records one."""
        if memo.key.startswith(_USED):
            where = json.loads(memo.response or b"{}")
            self.used[int(memo.key.removeprefix(_USED))] = where["visit"], where["of"]


def terms_of(memos: Mapping[tuple[int, str], Memo]) -> ForkTerms | None:
    """Return the terms of a fork by its memos; None if the run is no fork. Raises Corrupt."""
    first = memos.get((0, TERMS))
    if first is None:
        return None
    plain = decoded(first.response or b"", "the terms of the fork")
    try:
        return ForkTerms(**plain)
    except TypeError as error:
        raise Corrupt(f"memo {first.run}/{first.key}: it keeps no terms: {error!r}") from error


def terms_in(event: Event) -> ForkTerms | None:
    """Return the terms in the first event of a fork, which outlives its ledger; None for another event."""
    plain = event.data().get("fork") if event.type == EventType.STARTED else None
    return None if plain is None else ForkTerms(**{name: plain[name] for name in plain if name in ForkTerms._fields})


def ledger_of(memos: Mapping[tuple[int, str], Memo]) -> ForkLedger | None:
    """Return the copied calls of a run by its memos; None if it is no fork. Raises Corrupt."""
    terms = terms_of(memos)
    if terms is None:
        return None
    mine = f"{COPIES}{terms.past}/"
    calls = sorted((call_of_memo(m) for (_, key), m in memos.items() if key.startswith(mine)), key=lambda c: c.n)
    ledger = ForkLedger(terms, calls)
    for memo in memos.values():
        ledger.add(memo)
    return ledger


# --- answers -----------------------------------------------------------------------------------------
class FromRecording(NamedTuple):
    """Answer with a copied call. `records`: the commit that uses it lands first."""

    call: CopiedCall
    records: bool


class RecordedOtherwise(NamedTuple):
    """Ask a person: the key is copied from another call."""

    call: CopiedCall


class WaitForAncestor(NamedTuple):
    """Park until the run that made the call has settled it."""

    call: CopiedCall


ForkAnswer: TypeAlias = FromRecording | RecordedOtherwise | WaitForAncestor | None
Same: TypeAlias = Callable[[CopiedCall], bool]
"""Tells whether a copied call is the one that the body asks for."""


def answer_in_fork(
    ledger: ForkLedger, kind: CallKind, once_per: OncePer, visit: int, key: str, same: Same
) -> ForkAnswer:
    """Return how a fork answers a call that it has not recorded itself; None if it makes the call.

    `visit`: that of the fork. `same` compares activity and arguments. The first row that fits decides:

    | copied for this key                    | further condition                       | answer               |
    |----------------------------------------|-----------------------------------------|----------------------|
    | used by this call                      |                                         | FromRecording        |
    | once per tenant                        |                                         | None: S-18 decides   |
    | once per run, another call             | not undone                              | RecordedOtherwise    |
    | once per run, done                     | after the point                         | FromRecording, used  |
    | once per run, done                     |                                         | FromRecording        |
    | once per run, refused                  | before the point                        | FromRecording        |
    | once per run, open or uncertain        | no child                                | WaitForAncestor      |
    | once per visit, or refused             | after the point, unused, and replayable | FromRecording, used  |
    | anything else                          |                                         | None                 |
    """
    scope = 0 if once_per == "run" else visit
    named = ledger.named(kind, key)
    for call in named:
        if ledger.used.get(call.n, NOT_USED)[1] == scope:
            return FromRecording(call, records=False) if same(call) else RecordedOtherwise(call)
    if once_per == "tenant":
        return None
    if once_per == "run" and (answer := _once_per_run(named, same)) is not None:
        return answer
    if (ledger.terms.lookups if kind == "lookup" else ledger.terms.effects) != "recorded":
        return None
    for call in named:
        if not call.past and call.n not in ledger.used and _is_replayable(call, ledger.terms) and same(call):
            return FromRecording(call, records=True)
    return None


def _once_per_run(named: Sequence[CopiedCall], same: Same) -> ForkAnswer:
    for call in named:
        if call.once_per != "run" or call.status == EffectStatus.UNDONE:
            continue
        if call.is_open and call.kind == "child":
            continue
        if call.is_open:
            return WaitForAncestor(call) if same(call) else RecordedOtherwise(call)
        if call.status == EffectStatus.REFUSED and not call.past:
            continue
        return FromRecording(call, records=not call.past) if same(call) else RecordedOtherwise(call)
    return None


def _is_replayable(call: CopiedCall, terms: ForkTerms) -> bool:
    """Return True if the outcome is known, and a person has accepted that an undone effect counts as done."""
    if call.status == EffectStatus.UNDONE:
        return terms.accept_undone
    return not call.is_open


class KnownCall(NamedTuple):
    """Copied call that the body of a fork may have asked for."""

    call: CopiedCall
    visit: int
    """Visit of its row, as a run that is no fork has it; 0 for a call once per run or tenant."""
    made_in: int
    """Visit that made it, or was answered with it; 0 if it is not known."""


def known_calls(ledger: ForkLedger, kind: CallKind, key: str) -> Iterator[KnownCall]:
    """Yield the copied calls of a key that were made before the point, or have answered a call of the fork."""
    for call in ledger.named(kind, key):
        if (use := ledger.used.get(call.n)) is not None:
            yield KnownCall(call, use[1], use[0])
        elif call.past:
            yield KnownCall(
                call, call.visit if call.once_per == "visit" else 0, call.visit if _is_own(ledger, call) else 0
            )


def is_later(ledger: ForkLedger, effect: Effect) -> bool:
    """Return True for a call once per tenant that an ancestor made after the point: its fork has yet to ask for it."""
    later = (call for call in ledger.named("write", effect.key) if call.once_per == "tenant" and not call.past)
    return any(call.of == effect.by_run and _is_own(ledger, call) for call in later)


def _is_own(ledger: ForkLedger, call: CopiedCall) -> bool:
    """Return True if the lineage made the call. A call once per tenant may be one of another run."""
    return call.once_per != "tenant" or call.of in (ledger.terms.of, ledger.terms.root)


CallOutcome: TypeAlias = Literal["answered", "waits", "shared", "asked", "policy", "made", "started"]
"""Act of a fork that asks again for a call of its ancestor: it answers it from the recording, waits for the run that
made it, follows the rules of calls once per tenant, asks a person, follows the policy, makes the lookup, or starts
its own child."""


def outcomes_in_fork(terms: ForkTerms, calls: Sequence[CopiedCall]) -> Iterator[tuple[CopiedCall, CallOutcome]]:
    """Yield each call after the point with what a fork does if it asks for exactly these calls again, in this order."""
    ledger = ForkLedger(terms, calls)
    for call in calls:
        if not call.past:
            answer = answer_in_fork(ledger, call.kind, call.once_per, call.n, call.key, partial(_is_same, call))
            if isinstance(answer, FromRecording) and answer.records:
                ledger.used[answer.call.n] = call.n, 0 if call.once_per == "run" else call.n
            yield call, _outcome(call, answer, terms)


def _is_same(call: CopiedCall, other: CopiedCall) -> bool:
    return (call.activity, call.digest) == (other.activity, other.digest)


def _outcome(call: CopiedCall, answer: ForkAnswer, terms: ForkTerms) -> CallOutcome:
    if isinstance(answer, FromRecording):
        return "answered"
    if isinstance(answer, WaitForAncestor):
        return "waits"
    if isinstance(answer, RecordedOtherwise):
        return "asked"
    if call.once_per == "tenant":
        return "shared"
    if call.kind != "write":
        return "made" if call.kind == "lookup" else "started"
    return "asked" if terms.asks else "policy"


# --- signals -----------------------------------------------------------------------------------------
def signals_of(messages: Iterable[Message], bound: Iterable[int], at: int, wanted: Iterable[str]) -> list[Message]:
    """Return the signals that a fork gets: unread ones from before its point, and later ones that are wanted.

    `bound`: numbers of messages that waits before the point have bound. `wanted`: numbers or ids, or `all`.
    """
    before, names = set(bound), set(wanted)
    return [
        message
        for message in messages
        if message.kind == "signal"
        and (
            message.n not in before
            if message.at <= at
            else bool(names & {"all", str(message.n), message.signal_id or str(message.n)})
        )
    ]
