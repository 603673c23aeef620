"""Rows of a run as calls that another run can have, too: the unit in which two runs are compared.

| kind | rows | values |
|---|---|---|
| model, lookup | memos of lookups | digest of the arguments, answer |
| call, undo | effects | arguments, answer |
| policy | verdicts of policies, and outcomes of calls that a model proposed | arguments, verdict |
| approval | approvals | offered calls, decision |
| wait | named waits but approvals | messages that ended it |
| error | events that flag a run | exception with its traceback, or another reason |

A call is found in another run by kind, activity and key, without its visit.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from outlast.core.approvals import approved_instead
from outlast.core.codec import compact
from outlast.core.effect_verbs import UNANSWERED
from outlast.core.keys import ADMISSION, MODEL
from outlast.core.rows.columns import decoded
from outlast.core.rows.effect_columns import NO_ERROR, EffectError
from outlast.core.rows.effect_rows import Approval, Effect, Memo, Wait
from outlast.core.rows.run_rows import Message
from outlast.engine.policy_gate import MEMOS as VERDICTS
from outlast.engine.policy_gate import RecordedDecision, decision_of
from outlast.insight.agent_steps import StepRows
from outlast.insight.course_steps import CourseStep, course_of
from outlast.insight.run_history import RunHistory, first_intent
from outlast.insight.step_names import call_step, lookup_outcome, lookup_step, request_step
from outlast.insight.tenant_rows import ComparedRows
from outlast.models.comparison import DifferenceKind, Facet

OF_CALLS: Final[tuple[Facet, Facet]] = ("arguments", "answer")
"""Names of the two values of a row."""
FACETS: Final[dict[DifferenceKind, tuple[Facet, Facet]]] = {
    "policy": ("arguments", "decision"),
    "approval": ("arguments", "decision"),
    "wait": ("arguments", "message"),
    "error": ("arguments", "error"),
}
"""Names of the two values by kind, if they are other ones."""
_ORDER: Final[dict[DifferenceKind, int]] = {
    "model": 0, "lookup": 0, "policy": 1, "approval": 2, "wait": 3, "call": 4, "undo": 4, "error": 5,
}  # fmt: skip
"""Order of rows of one visit in the same millisecond."""


class ComparedCall(NamedTuple):
    """A row that both runs can have: a call, a lookup, a verdict, an approval, a wait or an error."""

    kind: DifferenceKind
    what: str
    key: str
    visit: int  # 0: it belongs to no visit that both runs know
    at: int
    n: int  # its order among rows of its kind at this instant
    arguments: bytes | str | None
    """JSON. None: the row has only their digest."""
    digest: str
    answer: bytes | str | None
    status: str
    detail: str = ""
    by: str = ""
    node: str = ""
    ms: int | None = None
    tokens: int = 0
    money: int = 0
    step: str = ""
    occasion: str = ""
    """Occasion of a verdict, a further part of its identity."""

    @property
    def identity(self) -> tuple[str, ...]:
        """Return the fields by which it is found in another run."""
        return self.kind, self.what, self.key, self.occasion

    @property
    def name(self) -> tuple[str, ...]:
        """Return its identity without its key."""
        return self.kind, self.what

    @property
    def is_lookup(self) -> bool:
        """True if its key may be made of its arguments."""
        return self.kind in ("model", "lookup") or self.what == ADMISSION

    def order(self) -> tuple[int, int, int]:
        """Return its place among the rows of a run."""
        return self.at, _ORDER[self.kind], self.n

    def differs_from(self, other: "ComparedCall") -> list[Facet]:
        """Return the aspects in which two rows of one identity differ."""
        given, answered = FACETS.get(self.kind, OF_CALLS)
        found: list[Facet] = []
        digests_differ = self.arguments is None and self.digest != other.digest
        if self.arguments != other.arguments or self.key != other.key or digests_differ:
            found.append(given)
        if (self.status, self.answer, self.detail, self.by) != (other.status, other.answer, other.detail, other.by):
            found.append(answered)
        if (self.tokens, self.money) != (other.tokens, other.money):
            found.append("cost")
        return found


def calls_of(rows: ComparedRows, *, with_ledger: bool) -> Iterator[ComparedCall]:
    """Yield the rows of a run that another run can have, too. `with_ledger`: calls, lookups and verdicts included."""
    if with_ledger:
        used: dict[tuple[int, str], tuple[int, int]] = {}
        for each in rows.steps.usage:
            tokens, money = used.get((each.visit, each.key), (0, 0))
            used[each.visit, each.key] = tokens + each.tokens, money + each.money
        for n, memo in enumerate(rows.steps.memos):
            if memo.digest and memo.activity != ADMISSION:
                yield _of_lookup(
                    rows.steps.history, memo, n, used.get((memo.visit, memo.key.removeprefix(UNANSWERED)), (0, 0))
                )
            elif memo.activity == ADMISSION or memo.key.startswith(VERDICTS):
                yield _of_verdict(memo, n)
        for effect in rows.steps.effects:
            yield _of_effect(rows.steps, effect, used.get((effect.visit, effect.key), (0, 0)))
    for a in rows.steps.approvals:
        yield _of_approval(a)
    messages = {message.n: message for message in rows.messages}
    for wait in rows.waits:
        if wait.kind != "approval":
            yield _of_wait(wait, messages)
    for step in course_of(rows.steps.course) if rows.steps.course is not None else ():
        if step.kind == "attention":
            yield _of_error(rows.steps.history, step)


def _of_effect(rows: StepRows, effect: Effect, used: tuple[int, int]) -> ComparedCall:
    foreign = effect.by_run not in ("", rows.history.run.run)
    began = first_intent(effect, rows.business)
    error = effect.error or NO_ERROR
    return ComparedCall(
        "undo" if effect.undoes else "call",
        effect.activity,
        effect.key,
        0 if effect.undoes or foreign else effect.visit or effect.first_visit or rows.history.visit_at(began),
        began,
        effect.ordinal,
        effect.args,
        effect.digest,
        effect.response,
        effect.status.value,
        _error_text(error),
        "" if effect.settled_by in ("", "call") else effect.settled_by,
        effect.node,
        effect.settled_at - began if effect.settled_at else None,
        *used,
        step=call_step(effect),
    )


def _of_lookup(history: RunHistory, memo: Memo, n: int, used: tuple[int, int]) -> ComparedCall:
    is_model, error = memo.activity == MODEL, memo.error or NO_ERROR
    return ComparedCall(
        "model" if is_model else "lookup",
        memo.activity,
        memo.key.removeprefix(UNANSWERED),
        memo.visit or history.visit_at(memo.at),
        memo.at,
        n,
        None,
        memo.digest,
        memo.response,
        lookup_outcome(memo),
        _error_text(error),
        "",
        "",
        None,
        *used,
        step=lookup_step(memo),
    )


def _of_verdict(memo: Memo, n: int) -> ComparedCall:
    """Return the verdict of a policy on a call, or the outcome of a call that a model proposed."""
    body = decoded(memo.response or b"{}", f"the verdict in memo {memo.key}")
    what, key, occasion, arguments = memo.activity, memo.key, "", ""
    if memo.activity != ADMISSION:
        decision = decision_of(memo)
        occasion, _, _ = memo.key.removeprefix(VERDICTS).partition("/")
        what, key, arguments = decision.activity, decision.key, compact(decision.arguments)
        body = {name: value for name, value in body.items() if name not in RecordedDecision._fields[:-1]}
    status = str(body.get("outcome") or body.get("verdict") or "")
    answer = compact(body)
    return ComparedCall("policy", what, key, memo.visit, memo.at, n, arguments, "", answer, status, occasion=occasion)


def _of_approval(a: Approval) -> ComparedCall:
    plans = a.plans
    offered = [{"effect": p.activity, "key": p.key, "arguments": p.arguments()} for p in plans if p.change is None]
    chosen = next((plan for plan in plans if plan.digest == a.chosen), None)
    decision: dict[str, Any] = {"status": a.status.value, "by": a.decided_by, "reason": a.reason}
    if chosen is not None:
        decision |= {"call": {"effect": chosen.activity, "key": chosen.key, "arguments": chosen.arguments()}}
    return ComparedCall(
        "approval",
        plans[0].activity if plans else a.summary,
        a.wait,
        a.visit,
        a.asked_at,
        0,
        compact({"summary": a.summary, "risk": a.risk, "who": a.who, "offers": offered}),
        "",
        compact(decision),
        a.status.value,
        a.reason or approved_instead(a),
        a.decided_by,
        ms=a.decided_at - a.asked_at if a.decided_at else None,
        step=request_step(a),
    )


def _of_wait(wait: Wait, messages: dict[int, Message]) -> ComparedCall:
    """Return a wait with the messages that ended it."""
    bound = [messages[n] for n in wait.binding or () if n in messages]
    status = "deadline" if wait.binding is None else wait.status.value
    return ComparedCall(
        "wait",
        wait.kind,
        wait.key,
        wait.visit,
        wait.since,
        0,
        "",
        "",
        b"\n".join(message.payload for message in bound),
        status,
        f"{len(bound)} message{'' if len(bound) == 1 else 's'}" if bound else "",
        ", ".join(dict.fromkeys(message.actor for message in bound)),
    )


def _of_error(history: RunHistory, step: CourseStep) -> ComparedCall:
    """Return why a run began to need a person: the type and the message of an exception, with its traceback."""
    first, _, _ = step.detail.partition("\n")
    node = history.entry(step.visit).node_at(step.at)
    return ComparedCall(
        "error", step.what, "", step.visit, step.at, step.event, "", "", step.detail, "", first, "", node, step=step.id
    )


def _error_text(error: EffectError) -> str:
    return f"{error.code}: {error.detail}" if error.code and error.detail else error.code or error.detail
