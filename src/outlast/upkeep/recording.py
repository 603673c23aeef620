"""Recording of one run for a test: its calls with their answers, the acts of people and programs, and its end.

`recording_of` makes one from the rows of an ended run, `Recording.load` reads one from a file. Values that look like
secrets are replaced by stand-ins (`stand_ins.py`). A large answer is stored once, however many calls got it.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, Literal

from outlast.core.codec import canonical, digest
from outlast.core.divergence import MAP
from outlast.core.durations import SECOND
from outlast.core.effect_verbs import OBSERVED, UNANSWERED
from outlast.core.enough import ENDED_EARLY
from outlast.core.events import EventType
from outlast.core.machine import ApprovalStatus, Choice, EffectStatus
from outlast.core.rows.approval_columns import OfferedCall
from outlast.core.rows.effect_rows import Approval, Effect, Memo
from outlast.core.rows.limit_rows import CALL_USAGE
from outlast.core.rows.run_columns import RAISE
from outlast.core.rows.run_rows import RESULT, Message, is_over
from outlast.core.state.snapshot_codec import StateChunk, decode, unpack
from outlast.core.usage import NOT_ASKED, CallUsage, Used
from outlast.core.verbs import end_of
from outlast.engine.store_maintenance import ledger_purged
from outlast.errors import Conflict, InvalidInput, LimitExceeded
from outlast.insight.run_history import RunHistory
from outlast.runtime.operations import Operations
from outlast.upkeep.export import VALUES, ExportedRows, rows_to_export
from outlast.upkeep.stand_ins import StandIns

FORMAT: Final = "outlast.recording"
VERSION: Final = 1
RECORDING_BYTES_MAX: Final = 20_000_000
CALLS_MAX: Final = 10_000
INLINE_BYTES_MAX: Final = 200
"""A larger answer is stored beside the calls, once for all that got it."""
_OWN: Final = frozenset({"", "outlast.admission"})
"""Activity names of memos that the engine writes by itself."""
POLICY: Final = "policy/"
"""Prefix of the keys of memos and approvals that the policy of a workflow makes."""
_ALLOWED: Final = "policy: "
_BEHIND: Final = frozenset({EffectStatus.INTENDED, EffectStatus.UNCERTAIN})

CallKind = Literal["activity", "lookup", "undo"]
ActKind = Literal["signal", "approve", "reject", "again", "cancel", "go_on", "answer", "raise_budget"]


@dataclass(frozen=True)
class AnsweredCall:
    """One call, and its answer or its error."""

    kind: CallKind
    activity: str
    key: str
    node: str
    visit: int
    """The visit that made the call."""
    scope: int
    """The visit in the key of its row; 0 for a call once per run."""
    at: int
    """Business instant of the answer, in ms since 1970."""
    arguments: dict[str, Any] | None = None
    """None if they are unknown: the rows of a lookup do not have them."""
    status: str = EffectStatus.DONE.value
    answer: Any = None
    error: tuple[str, str] | None = None
    observed: bool = False
    """The error is an exception of the activity by its class, not a refusal."""
    external_id: str = ""
    used: tuple[Used, ...] = ()
    digest: str = ""
    """Digest in the row of a lookup, unless it is `digest_of` the arguments here."""

    @property
    def title(self) -> str:
        """Return the kind, the activity and the key."""
        return f"{self.kind} {self.activity} ({self.key})"

    @property
    def response(self) -> bytes:
        """Return the answer as the ledger stores it."""
        return json.dumps(self.answer, ensure_ascii=False, separators=(",", ":")).encode()

    @property
    def argument_bytes(self) -> bytes:
        """Return the arguments as the ledger stores them."""
        return canonical(self.arguments or {})

    @property
    def digest_of(self) -> str:
        """Return the digest that the row of a call with these arguments has."""
        return digest(self.activity, self.key, self.argument_bytes)

    def with_arguments(self, arguments: dict[str, Any]) -> "AnsweredCall":
        """Return the call with its arguments, and without a digest that follows from them."""
        known = AnsweredCall(**{**vars(self), "arguments": arguments})
        return AnsweredCall(**{**vars(known), "digest": ""}) if known.digest == known.digest_of else known


@dataclass(frozen=True)
class RecordedAct:
    """What a person or a program did to the run, and the business instant at which it did so."""

    kind: ActKind
    at: int
    by: str = ""
    name: str = ""
    """Name of the signal, key of the wait of an approval, or reason of the attention."""
    visit: int = 0
    reason: str = ""
    payload: Any = None
    signal_id: str = ""
    alternative: int = 0
    changes: dict[str, Any] | None = None
    plans: list[dict[str, Any]] | None = None
    """Calls that the approval offered, each as {activity, key, arguments}."""
    choice: str = ""
    key: str = ""
    by_ms: int = 0


@dataclass(frozen=True)
class RecordedWait:
    """A wait for signals, and the payloads that ended it."""

    name: str
    visit: int
    payloads: list[Any]


@dataclass(frozen=True)
class RecordedEnd:
    """The end of the run, and its way to it."""

    status: str
    outcome: Any
    reason: str
    state: Any
    nodes: list[str]
    results: list[dict[str, Any]]


@dataclass(frozen=True)
class Recording:
    """Everything that a test needs to play a run again."""

    run: str
    workflow: str
    version: int
    began: int
    ended: int
    state: dict[str, Any]
    calls: list[AnsweredCall]
    acts: list[RecordedAct]
    waits: list[RecordedWait]
    end: RecordedEnd
    claims: list[int] = field(default_factory=list)
    """Business instants at which a worker claimed the run: a timer may have waited for a worker."""
    verdicts: list[dict[str, Any]] = field(default_factory=list)
    """Verdicts of the policy, each with its visit and in the form of its memo."""
    replaced: list[dict[str, Any]] = field(default_factory=list)
    sets: list[dict[str, Any]] = field(default_factory=list)
    """Rows of the sets of calls that ended early: which calls never started may depend on the order of the answers."""

    # --- as JSON -------------------------------------------------------------------------------------
    def dump(self) -> str:
        """Return the recording as JSON text. Raises LimitExceeded if it is too large."""
        answers: dict[str, Any] = {}
        document = {
            "format": FORMAT,
            "format_version": VERSION,
            **{name: getattr(self, name) for name in _PLAIN},
            "calls": [_call_as_json(call, answers) for call in self.calls],
            "acts": [_less(vars(act), _NO_ACT) for act in self.acts],
            "waits": [vars(wait) for wait in self.waits],
            "end": vars(self.end),
            "answers": answers,
            **({"sets": self.sets} if self.sets else {}),
        }
        text = json.dumps(document, ensure_ascii=False, indent=1) + "\n"
        if len(text.encode()) > RECORDING_BYTES_MAX:
            raise LimitExceeded(
                f"the recording of {self.run} is too large for a test",
                f"it has {len(text.encode()):,} bytes; at most {RECORDING_BYTES_MAX:,}",
                "record a shorter run of this workflow",
            )
        return text

    @classmethod
    def load(cls, text: str, file: str) -> "Recording":
        """Read a recording. Raises InvalidInput if the text is none, or of a newer version."""
        try:
            found = json.loads(text)
            if found["format"] != FORMAT:
                raise ValueError(f"its format is {found['format']!r}")
            if int(found["format_version"]) > VERSION:
                raise ValueError(f"its version is {found['format_version']}; this Outlast reads {VERSION}")
            answers = found["answers"]
            return cls(
                **{name: found[name] for name in _PLAIN},
                calls=[_call_of(each, answers) for each in found["calls"]],
                acts=[RecordedAct(**each) for each in found["acts"]],
                waits=[RecordedWait(**each) for each in found["waits"]],
                end=RecordedEnd(**found["end"]),
                sets=found.get("sets", []),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidInput(
                f"{file} is not a recording of a run", repr(error), "write it again: outlast runs test RUN --to FILE"
            ) from error

    def with_arguments(self, known: Mapping[int, dict[str, Any]]) -> "Recording":
        """Return the recording with the arguments of calls whose rows do not have them, by the index of the call."""
        calls = [
            call.with_arguments(known[n]) if call.arguments is None and n in known else call
            for n, call in enumerate(self.calls)
        ]
        return Recording(**{**vars(self), "calls": calls})


_PLAIN: Final = ("run", "workflow", "version", "began", "ended", "state", "claims", "verdicts", "replaced")
_NO_CALL: Final = {
    "status": EffectStatus.DONE.value,
    "error": None,
    "observed": False,
    "external_id": "",
    "used": (),
    "arguments": None,
    "digest": "",
}
_NO_REQUEST: Final = {"asked": NOT_ASKED}
_NO_ACT: Final = vars(RecordedAct("signal", 0))


def _less(values: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are not the usual ones."""
    return {k: v for k, v in values.items() if k in ("kind", "at") or k not in usual or v != usual[k]}


def _call_as_json(call: AnsweredCall, answers: dict[str, Any]) -> dict[str, Any]:
    plain = _less({**vars(call), "used": [_less(used._asdict(), _NO_REQUEST) for used in call.used] or ()}, _NO_CALL)
    data = canonical(call.answer)
    if len(data) <= INLINE_BYTES_MAX:
        return plain
    name = sha256(data).hexdigest()[:16]
    answers[name] = plain.pop("answer")
    return {**plain, "answer_in": name}


def _call_of(plain: dict[str, Any], answers: Mapping[str, Any]) -> AnsweredCall:
    if "answer_in" in plain:
        plain = {name: value for name, value in plain.items() if name != "answer_in"} | {
            "answer": answers[plain["answer_in"]]
        }
    used = tuple(Used(**each) for each in plain.get("used", ()))
    error = tuple(plain["error"]) if plain.get("error") else None
    return AnsweredCall(**{**plain, "used": used, "error": error})


# --- from the rows of a run ------------------------------------------------------------------------------
async def recording_of(ops: Operations, run: str) -> Recording:
    """Return the recording of an ended run of this tenant, with its secrets: `without_secrets` replaces them.

    Raises NotFound, LimitExceeded, and Conflict if the run goes on, has lost its ledger, or has an uncertain effect.
    """
    found = await rows_to_export(ops, run)
    await _check(ops, found)
    results = await ops.store.rows(RESULT, (ops.tenant, run))
    rows, events = found.rows, found.events
    parts = {value.hash: unpack(value.packed, value.body, value.hash) for value in _chunks(found.parts[VALUES])}
    states = [json.loads(decode(e.snapshot, parts).state) for e in (events[0], rows.last) if e.snapshot is not None]
    end = end_of(events[-1])
    assert end is not None, "the run has ended"
    usage = await ops.store.rows(CALL_USAGE, (ops.tenant, run))
    history = RunHistory(rows.run, events)
    calls = sorted(_calls(found, history, usage), key=lambda call: (call.at, call.visit, call.key))
    return Recording(
        run=run,
        workflow=rows.run.workflow,
        version=int(rows.run.lane.rpartition("@")[2]),
        began=rows.run.created_at,
        ended=rows.run.ended_at,
        state=states[0],
        calls=calls,
        acts=sorted(_acts(found), key=lambda act: act.at),
        waits=_waits(found),
        end=RecordedEnd(
            rows.run.status.value,
            end.outcome,
            end.reason,
            states[-1],
            nodes_of(history),
            [{"key": row.key, "kind": row.kind, "data": row.value()} for row in results],
        ),
        claims=[span.begin for span in history.held],
        verdicts=list(_verdicts(found)),
        sets=[
            {"visit": memo.visit, "key": memo.key, "row": json.loads(memo.response)}
            for memo in rows.memos
            if memo.key.startswith(ENDED_EARLY) and memo.response is not None
        ],
    )


async def _check(ops: Operations, found: ExportedRows) -> None:
    """Raise Conflict or LimitExceeded if no test can be made of the run."""
    rows = found.rows
    run = rows.run
    if not is_over(run):
        raise Conflict(
            f"run {run.run} has not ended",
            f"it is {run.status}, so its end is not known",
            f"wait for its end, or end it: outlast runs cancel {run.run} --reason …",
        )
    if await ledger_purged(ops.store, run):
        raise Conflict(
            f"the ledger of run {run.run} was purged",
            "a test needs the recorded answers of its calls",
            "record a run that ended later, or keep ledgers longer: --ledger-kept",
        )
    if found.floor is not None and found.floor.seq > 1:
        raise Conflict(
            f"the history of run {run.run} before visit {found.floor.visit} was purged",
            "its workflow keeps a window, and a test plays a run from its start",
            "record a run with a longer window: history=…",
        )
    behind = [e.key for e in (*rows.effects, *rows.shared) if e.status in _BEHIND]
    if behind:
        raise Conflict(
            f"run {run.run} has effects whose outcome is not known",
            f"no receiver can be played for {', '.join(behind[:5])}",
            f"resolve them first: outlast runs effects {run.run}",
        )
    if any(memo.activity == MAP for memo in rows.memos):
        raise Conflict(
            f"run {run.run} has a map",
            "a test answers children from the ledger, and a map keeps their outcomes elsewhere",
            f"record one of its children: outlast runs ls --parent {run.run}",
        )
    if run.forked_from:
        raise Conflict(
            f"run {run.run} is a fork of {run.forked_from}",
            "a test plays a run from its start, and a fork begins with a past that it has not executed",
            f"record the run that it was forked from: {run.forked_from}",
        )
    if any(event.type == EventType.MOVED for event in found.events):
        raise Conflict(
            f"run {run.run} was moved to another version or node",
            "a test has one version of the workflow",
            "record a run that one version has executed",
        )
    if (n := len(rows.effects) + len(rows.memos)) > CALLS_MAX:
        raise LimitExceeded(
            f"run {run.run} made too many calls for a test",
            f"it made {n:,}; at most {CALLS_MAX:,}",
            "record a shorter run of this workflow",
        )


def _chunks(rows: Iterable[object]) -> list[StateChunk]:
    return [row for row in rows if isinstance(row, StateChunk)]


def _calls(found: ExportedRows, history: RunHistory, usage: Sequence[CallUsage]) -> Iterable[AnsweredCall]:
    rows = found.rows
    for effect in (*rows.effects, *rows.shared):
        yield _of_effect(effect, history, _used(usage, effect.visit, effect.key))
    for memo in rows.memos:
        if (call := _of_memo(memo, history, usage)) is not None:
            yield call


def _used(usage: Sequence[CallUsage], visit: int, key: str) -> tuple[Used, ...]:
    return tuple(
        Used(1, u.model, u.tokens, u.input_tokens, u.output_tokens, u.money, u.calls, u.unpriced)
        for u in usage
        if (u.visit, u.key) == (visit, key) and any(u.amounts)  # not of an attempt without an answer
    )


def _of_effect(effect: Effect, history: RunHistory, used: tuple[Used, ...]) -> AnsweredCall:
    visit = effect.first_visit or effect.visit or history.visit_at(effect.settled_at)
    error = effect.error
    return AnsweredCall(
        kind="undo" if effect.undoes else "activity",
        activity=effect.activity,
        key=effect.key,
        node=effect.node,
        visit=visit,
        scope=effect.visit,
        at=effect.settled_at,
        arguments=effect.arguments(),
        status=effect.status.value,
        answer=effect.answer(),
        error=(error.code, error.detail) if error is not None and effect.status is EffectStatus.REFUSED else None,
        external_id=effect.external_id,
        used=used,
    )


def _of_memo(memo: Memo, history: RunHistory, usage: Sequence[CallUsage]) -> AnsweredCall | None:
    """Return the call of a memo; None for one that the engine wrote by itself."""
    key, observed = memo.key, memo.key.startswith(OBSERVED)
    if memo.activity in _OWN or key.startswith((UNANSWERED, POLICY)) or (memo.response is None and not memo.error_text):
        return None
    if observed:
        key = key.removeprefix(OBSERVED).partition("?")[2]
    error = memo.error
    visit = memo.visit or history.visit_at(memo.at)
    return AnsweredCall(
        kind="lookup",
        activity=memo.activity,
        key=key,
        node=history.entry(visit).node,
        visit=visit,
        scope=memo.visit,
        at=memo.at,
        answer=None if memo.response is None else json.loads(memo.response),
        error=(error.code, error.detail) if error is not None else None,
        observed=observed,
        used=_used(usage, memo.visit, memo.key),
        digest="" if observed else memo.digest,
    )


def _acts(found: ExportedRows) -> Iterable[RecordedAct]:
    for approval in found.rows.approvals:
        yield from _decisions(approval)
    for message in found.rows.messages:
        if (act := _act_of(message)) is not None:
            yield act


def _decisions(approval: Approval) -> Iterable[RecordedAct]:
    """Yield the votes for an approval and its decision."""
    terms: dict[str, Any] = {"name": approval.wait, "visit": approval.visit, "plans": _offered(approval.plans)}
    for vote in approval.votes:
        yield RecordedAct("approve", vote.at, vote.by, reason=vote.reason, **terms, **_chosen(approval, vote.chosen))
    if approval.chosen and not approval.votes:  # its status may be that of a later withdrawal
        given = {"by": approval.decided_by, "reason": approval.reason, **_chosen(approval, approval.chosen)}
        yield RecordedAct("approve", approval.decided_at, **given, **terms)
    elif approval.status in (ApprovalStatus.REJECTED, ApprovalStatus.AGAIN):
        kind: ActKind = "again" if approval.status is ApprovalStatus.AGAIN else "reject"
        yield RecordedAct(kind, approval.decided_at, approval.decided_by, reason=approval.reason, **terms)


def _offered(plans: Iterable[OfferedCall]) -> list[dict[str, Any]]:
    return [{"activity": p.activity, "key": p.key, "arguments": p.arguments()} for p in plans if p.change is None]


def _chosen(approval: Approval, digest: str) -> dict[str, Any]:
    """Return the number of the chosen call among those offered, and the changes that the approver made to it."""
    for n, plan in enumerate(approval.plans):
        if plan.digest == digest:
            if plan.change is None:
                return {"alternative": n}
            return {"alternative": plan.change.of, "changes": plan.change.values()}
    return {}


def _act_of(message: Message) -> RecordedAct | None:
    """Return the act that left a message; None for one that only reports, or whose act another row has."""
    at, by = message.at, message.actor
    match message.kind:
        case "signal":
            payload = json.loads(message.payload)
            return RecordedAct("signal", at, by, message.name, payload=payload, signal_id=message.signal_id)
        case "cancel":
            return RecordedAct("cancel", at, by, reason=message.reason)
        case Choice.CONTINUE.value:
            return RecordedAct("go_on", at, by, message.name, reason=message.reason)
        case "answer":
            answer = message.answer
            given: dict[str, Any] = {"choice": answer.choice.value, "key": answer.key, "by_ms": answer.by_ms}
            return RecordedAct("answer", at, by, message.name, reason=answer.reason, **given)
        case Choice.RAISE.value:
            asked = RAISE.decode(message.payload.decode())
            return RecordedAct("raise_budget", at, by, reason=asked.reason, payload=asked.amounts._asdict())
    return None


def _verdicts(found: ExportedRows) -> Iterable[dict[str, Any]]:
    """Yield the verdicts of the policy: those in memos, and those that approvals and effects show."""
    for memo in found.rows.memos:
        if memo.key.startswith(POLICY) and memo.response is not None:
            yield {"visit": memo.visit, **json.loads(memo.response)}
    usual = {"occasion": "commit", "proposed_by": "", "policy_version": ""}
    asked = {approval.id: approval for approval in found.rows.approvals}
    for approval in asked.values():
        for plan in approval.plans[: 1 if approval.wait.startswith(POLICY) else 0]:
            call = {"activity": plan.activity, "key": plan.key, "arguments": plan.arguments(), "node": ""}
            yield {"visit": approval.visit, **usual, **call, **_demand(approval)}
    for effect in found.rows.effects:
        allowed = effect.allowed_by.rpartition("; ")[2]
        if not allowed.startswith(_ALLOWED):
            continue
        call = {"activity": effect.activity, "key": effect.key, "arguments": effect.arguments(), "node": effect.node}
        rule = allowed.removeprefix(_ALLOWED).partition(" @")[0]
        verdict: dict[str, Any] = {"verdict": "allow", "rule": rule.removeprefix("allow ")}
        if rule.startswith("needs approval ") and effect.approval in asked:
            verdict = _demand(asked[effect.approval])
        yield {"visit": effect.first_visit or effect.visit, **usual, **call, **verdict}


def _demand(approval: Approval) -> dict[str, Any]:
    """Return the verdict of the policy that the terms of an approval show."""
    return {
        "verdict": "needs_approval",
        "rule": "recorded",
        "by": approval.who,
        "summary": approval.summary,
        "within_s": max(1, approval.within_until - approval.asked_at) / SECOND,
        "quorum": approval.quorum,
        "not_requester": bool(approval.not_requester),
    }


def _waits(found: ExportedRows) -> list[RecordedWait]:
    """Return the waits for signals with the payloads that ended each."""
    payloads = {m.n: json.loads(m.payload) for m in found.rows.messages if m.kind == "signal"}
    return [
        RecordedWait(wait.name, wait.visit, [payloads[n] for n in wait.binding or () if n in payloads])
        for wait in found.rows.waits
        if wait.kind in ("receive", "collect")
    ]


def without_secrets(recording: Recording) -> Recording:
    """Return the recording with stand-ins for its secrets: first all are found, then each text is replaced."""
    stand_ins = StandIns()
    named = [
        (recording.state, "input"),
        *((call.arguments, f"{call.title}: arguments") for call in recording.calls),
        *((call.answer, f"{call.title}: answer") for call in recording.calls),
        *((act.payload, f"{act.kind} {act.name}: payload") for act in recording.acts),
        *((act.changes, f"{act.kind} {act.name}: changes") for act in recording.acts),
        *((vars(recording.end), "end"),),
    ]
    for value, place in named:
        stand_ins.replace(value, place)
    clean = stand_ins.known_replaced
    calls = [_clean_call(call, stand_ins) for call in recording.calls]
    return Recording(
        **{
            **vars(recording),
            "state": clean(recording.state),
            "calls": calls,
            "acts": [RecordedAct(**clean(vars(act))) for act in recording.acts],
            "waits": [RecordedWait(**clean(vars(wait))) for wait in recording.waits],
            "end": RecordedEnd(**clean(vars(recording.end))),
            "verdicts": clean(recording.verdicts),
            "replaced": [{"stand_in": one.stand_in, "places": clean(list(one.places))} for one in stand_ins.replaced],
        }
    )


def _clean_call(call: AnsweredCall, stand_ins: StandIns) -> AnsweredCall:
    plain = stand_ins.known_replaced({name: value for name, value in vars(call).items() if name != "used"})
    error = (plain["error"][0], plain["error"][1]) if plain["error"] else None
    return AnsweredCall(**{**plain, "error": error, "used": call.used})


def nodes_of(history: RunHistory) -> list[str]:
    """Return the nodes that an ended run completed before its last one, in their order."""
    return [visit.node for visit in history.visits[:-1]]
