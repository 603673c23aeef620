"""The history of a run as steps, made from the rows that exist: a pure function (OBS-4).

| step | rows |
|---|---|
| model_decision | memos of the lookup `outlast.model`, with the decisions about the calls that the model proposed |
| tool_call | effects, memos of other lookups, and calls that policy denied |
| approval_request, approval_response | approvals |
| checkpoint | events that complete a node or end the run |
| the others | `insight/course_steps.py` |
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, get_args

from outlast.core.approvals import approved_instead, votes_of
from outlast.core.codec import canonical, compact, digest
from outlast.core.effect_verbs import UNANSWERED
from outlast.core.events import ENDINGS, EventType
from outlast.core.keys import ADMISSION, MODEL
from outlast.core.machine import ApprovalStatus
from outlast.core.mailbox import is_unknown
from outlast.core.model_ends import finish_of
from outlast.core.rows.columns import decoded
from outlast.core.rows.effect_columns import NO_ERROR
from outlast.core.rows.effect_rows import Approval, Effect, Memo
from outlast.core.rows.run_rows import Event
from outlast.core.usage import CallUsage, money_text
from outlast.core.visible import is_blank
from outlast.engine.policy_gate import MEMOS as VERDICTS
from outlast.engine.policy_gate import RecordedDecision, decision_of
from outlast.errors import InvalidInput, NotFound, NotStorable
from outlast.flow.policy import Allow, Deny, NeedsApproval
from outlast.insight.course_steps import CourseRows, CourseStep, course_of
from outlast.insight.labels import effect_label
from outlast.insight.run_history import RunHistory, first_intent
from outlast.insight.step_names import (
    DENIED,
    UNKNOWN,
    call_step,
    denial_step,
    is_denial,
    lookup_outcome,
    lookup_step,
    request_step,
)
from outlast.models import instant
from outlast.models.steps import ProposedCall, Step, StepKind, StepList, StepText
from outlast.telemetry.redact import redacted

HEAD_CHARS: Final = 300
REDACTED_CHARS: Final = 4 * HEAD_CHARS  # redaction sees more than is shown, so no secret is cut in half
SAVED: Final = "saved"
KINDS: Final[tuple[StepKind, ...]] = get_args(StepKind)
_ORDER: Final[dict[StepKind, int]] = {
    "start": 0, "takeover": 1, "signal": 2, "answer": 3, "log": 4, "model_decision": 5, "approval_request": 6,
    "approval_response": 7, "tool_call": 8, "wait": 9, "attention": 10, "change": 11, "checkpoint": 12,
}  # fmt: skip
"""Order of steps of one visit that began in the same millisecond."""
_REJECTED: Final = frozenset({ApprovalStatus.REJECTED, ApprovalStatus.AGAIN})
_NO_TEXT: Final = StepText(text="", bytes=0, cut=False)


class StepRows(NamedTuple):
    """Rows of one run. `business` converts real instants to business time. `course`: None leaves its steps out."""

    history: RunHistory
    memos: Sequence[Memo]
    effects: Sequence[Effect]
    approvals: Sequence[Approval]
    usage: Sequence[CallUsage]
    business: Callable[[int], int]
    course: CourseRows | None = None


Place: TypeAlias = tuple[int, int, int, str]
"""Place of a step in the history: its instant, its visit, the order of its kind, its id."""


class Placed(NamedTuple):
    """A step in its place. It is made when a page shows it, because texts are redacted then."""

    place: Place
    kind: StepKind
    make: Callable[[Place], Step]
    used: Sequence[CallUsage] = ()
    """Usage that its call reported."""

    @property
    def step(self) -> Step:
        """Return the step, made at each call."""
        return self.make(self.place)


def step_page(rows: StepRows, *, kind: str = "", step: str = "", cursor: str = "", limit: int) -> StepList:
    """Return a page of steps, oldest first. `step`: only this one, with its whole texts.

    Each page needs all rows: steps are ordered by instant across five kinds of rows, and no index has that order. Their
    texts, which cost most, are made for the page only.

    Raises InvalidInput for a kind or cursor that does not exist, NotFound for an unknown step.
    """
    if kind and kind not in KINDS:
        raise InvalidInput(f"kind is {kind!r}", f"it is one of {', '.join(KINDS)}", "choose one of these")
    if step:
        found = [each.step for each in _Steps(rows, whole=step).all() if each.place[-1] == step]
        if not found:
            run = rows.history.run.run
            raise NotFound(f"run {run} has no step {step}"[:300], "", f"list them: outlast runs steps {run}")
        return StepList(steps=found)
    after = _place_of(cursor)
    further = [each for each in steps_of(rows) if kind in ("", each.kind) and (not after or each.place > after)]
    page = further[:limit]
    more = len(further) > len(page)
    return StepList(steps=[each.step for each in page], next_cursor=_cursor_of(page[-1].place) if more else "")


def steps_of(rows: StepRows, *, head: int = HEAD_CHARS) -> list[Placed]:
    """Return all steps of a run in the order in which they began. `head`: characters of a text that are not cut."""
    return sorted(_Steps(rows, head=head).all(), key=lambda each: each.place)


class _Steps:
    """The steps of one run. `whole`: id of the step whose texts are not cut. `head`: length of the others."""

    def __init__(self, rows: StepRows, whole: str = "", head: int = HEAD_CHARS) -> None:
        self._rows = rows
        self._head = head
        self._whole = whole
        self._history = rows.history
        self._used: dict[tuple[int, str], list[CallUsage]] = {}
        for used in rows.usage:
            self._used.setdefault((used.visit, used.key), []).append(used)
        self._answers: dict[int, list[Memo]] = {}
        self._decided: dict[int, list[Memo]] = {}  # outcomes and verdicts about proposed calls
        for memo in sorted(rows.memos, key=lambda memo: (memo.at, len(memo.key), memo.key)):  # /2 before /10
            if memo.activity == MODEL:
                self._answers.setdefault(memo.visit, []).append(memo)
            elif memo.activity == ADMISSION or (not memo.digest and memo.key.startswith(f"{VERDICTS}proposal/")):
                self._decided.setdefault(memo.visit, []).append(memo)

    def all(self) -> Iterator[Placed]:
        for memo in self._rows.memos:
            if memo.activity in ("", ADMISSION):
                continue  # an entry of the log, or shown with the decision of the model
            if memo.digest:
                model = memo.activity == MODEL
                kind: StepKind = "model_decision" if model else "tool_call"
                make = partial(self._model_decision if model else self._lookup, memo)
                used = self._used.get((memo.visit, memo.key.removeprefix(UNANSWERED)), ())
                yield self._at(kind, lookup_step(memo), memo.at, memo.visit, make, used)
            elif is_denial(memo):
                yield self._at("tool_call", denial_step(memo), memo.at, memo.visit, partial(self._denial, memo))
        for effect in self._rows.effects:
            visit = 0 if effect.undoes else effect.visit or effect.first_visit
            began, make = first_intent(effect, self._rows.business), partial(self._effect, effect)
            used = self._used.get((effect.visit, effect.key), ())
            yield self._at("tool_call", call_step(effect), began, visit, make, used)
        for a in self._rows.approvals:
            yield self._at("approval_request", request_step(a), a.asked_at, a.visit, partial(self._request, a))
            for n, answer in enumerate(_answers(a), 1):
                make = partial(self._response, a, answer)
                yield self._at("approval_response", f"{a.id}/response/{n}", answer.at, a.visit, make)
        for event in self._history.events:
            saved = event.type == EventType.CHECKPOINT
            if saved or event.type in ENDINGS:
                make = partial(self._checkpoint, event)
                yield self._at("checkpoint", f"checkpoint/{event.seq}", event.at, event.visit - saved, make)
        for each in course_of(self._rows.course) if self._rows.course is not None else ():
            yield self._at(each.kind, each.id, each.at, each.visit, partial(self._course, each))

    def _at(
        self,
        kind: StepKind,
        step: str,
        at: int,
        visit: int,
        make: Callable[[Place], Step],
        used: Sequence[CallUsage] = (),
    ) -> Placed:
        return Placed((at, visit or self._history.visit_at(at), _ORDER[kind], step), kind, make, used)

    def _course(self, each: CourseStep, place: Place) -> Step:
        return self._made(
            each.kind,
            place,
            status=each.status,
            what=each.what,
            began=each.at,
            ended=each.ended or (0 if each.kind == "wait" else each.at),
            until=instant(each.until),
            detail=each.detail,
            by=each.by,
            key=each.key,
            input=each.input,
            event=each.event,
        )

    # --- models and lookups ------------------------------------------------------------------
    def _model_decision(self, memo: Memo, place: Place) -> Step:
        used = self._usage(memo.visit, memo.key.removeprefix(UNANSWERED))
        answer = _answer_of(memo)
        used["model"] = used["model"] or _model_of(answer)
        proposals = self._proposals(memo)
        said = _text(_words_of(answer), self._head if place[-1] != self._whole else 0)
        end = _end_of(answer)
        return self._of_memo("model_decision", memo, place, end=end, **used, proposals=proposals, said=said)

    def _lookup(self, memo: Memo, place: Place) -> Step:
        used = self._usage(memo.visit, memo.key.removeprefix(UNANSWERED))
        return self._of_memo("tool_call", memo, place, input=self._proposed(memo), **used)

    def _proposed(self, memo: Memo) -> bytes:
        """Return the arguments of a lookup as a model of its visit proposed them; b"" if no proposal has its digest.

        The row of a lookup has a digest in place of its arguments.
        """
        key = memo.key.removeprefix(UNANSWERED)
        for answer in self._answers.get(memo.visit, ()):
            for arguments in _proposed_in(_answer_of(answer)):
                with suppress(NotStorable):
                    data = canonical(arguments)
                    if digest(memo.activity, key, data) == memo.digest:
                        return data
        return b""

    def _of_memo(self, kind: StepKind, memo: Memo, place: Place, *, end: str = "", **more: Any) -> Step:
        error = memo.error or NO_ERROR
        return self._made(
            kind,
            place,
            status=lookup_outcome(memo),
            what=memo.activity,
            ended=memo.at,
            detail=f"{error.code}: {error.detail}" if memo.error_text else end,
            key=memo.key.removeprefix(UNANSWERED),
            digest=memo.digest,
            output=memo.response,
            **more,
        )

    def _usage(self, visit: int, key: str) -> dict[str, Any]:
        """Return the usage of the attempts of a call, and the last model that they named."""
        used = self._used.get((visit, key), ())
        money = sum(row.money for row in used)
        return {
            "model": next((row.model for row in reversed(used) if row.model), ""),
            "tokens": sum(row.tokens for row in used),
            "input_tokens": sum(row.input_tokens for row in used),
            "output_tokens": sum(row.output_tokens for row in used),
            "money": money_text(money) if money else "",
            "ms": sum(row.ms for row in used),
            "prompt": next((row.prompt for row in reversed(used) if row.prompt), ""),
            "tools": next((row.tools for row in reversed(used) if row.tools), ""),
        }

    def _proposals(self, answer: Memo) -> list[ProposedCall]:
        """Return the decisions about the calls of an answer: those after it and before the next one of the visit."""
        answers = self._answers[answer.visit]
        until = next((later.at for later in answers[answers.index(answer) + 1 :]), None)
        memos = [
            m for m in self._decided.get(answer.visit, ()) if answer.at <= m.at and (until is None or m.at < until)
        ]
        found = [_admission(memo) for memo in memos if memo.activity == ADMISSION]
        recorded = {call.tool for call in found}  # their verdicts are part of them
        found += [_verdict(decision_of(m)) for m in memos if m.activity != ADMISSION and m.activity not in recorded]
        return found

    # --- calls -------------------------------------------------------------------------------
    def _effect(self, effect: Effect, place: Place) -> Step:
        error = effect.error or NO_ERROR
        run = self._history.run
        label = effect_label(effect, error.code, held=effect.epoch == run.epoch)
        shared = bool(effect.by_run) and effect.by_run != run.run
        return self._made(
            "tool_call",
            place,
            status=UNKNOWN if is_unknown(effect) else effect.status.value,
            what=effect.activity,
            node=effect.node,
            began=place[0],
            ended=effect.settled_at,
            detail=f"{label}: {error.text}" if error.detail else label,
            by=f"run {effect.by_run}" if shared else self._history.holders.get(effect.epoch, ""),
            key=effect.key,
            digest=effect.digest,
            input=effect.args,
            output=effect.response,
            attempts=effect.attempts,
            external_id=effect.external_id,
            settled_by=effect.settled_by,
            allowed_by=effect.allowed_by,
            approval=effect.approval,
            child=effect.external_id if effect.child_text else "",
            undoes=effect.undoes,
            **self._usage(effect.visit, effect.key),
        )

    def _denial(self, memo: Memo, place: Place) -> Step:
        decision = decision_of(memo)
        call = _verdict(decision)
        return self._made(
            "tool_call",
            place,
            status=DENIED,
            what=call.tool,
            ended=memo.at,
            detail=call.reason,
            key=decision.key,
            input=compact(decision.arguments),
            allowed_by=f"policy: deny {decision.verdict.rule}",
            began=memo.at,
        )

    # --- approvals ---------------------------------------------------------------------------
    def _request(self, a: Approval, place: Place) -> Step:
        plans = [{"effect": p.activity, "key": p.key, "arguments": p.arguments(), "digest": p.digest} for p in a.plans]
        made = approved_instead(a)
        detail = ", ".join(filter(None, (a.risk, made and f"approved as {made}")))
        return self._made(
            "approval_request",
            place,
            status=a.status.value,
            what=a.summary,
            ended=a.decided_at,
            detail=detail,
            by=a.who,
            key=a.plans[0].key if a.plans else "",
            digest=a.plans[0].digest if a.plans else "",
            input=compact(plans),
            approval=a.id,
            began=a.asked_at,
            until=instant(a.within_until) if a.status is ApprovalStatus.PENDING else None,
        )

    def _response(self, a: Approval, answer: "_Answer", place: Place) -> Step:
        plan = next((p for p in a.plans if p.digest == answer.chosen), None)
        what = approved_instead(a, answer.chosen) or a.summary
        call: dict[str, Any] = {}
        if plan is not None:
            call = {"effect": plan.activity, "key": plan.key, "arguments": plan.arguments()}
            if plan.change is not None:
                call |= {"changed_by": plan.change.by, "changes": plan.change.values()}
            if plan.digest != a.plans[0].digest:
                call["requested"] = {"effect": a.plans[0].activity, "arguments": a.plans[0].arguments()}
        return self._made(
            "approval_response",
            place,
            status=answer.status.value,
            what=what,
            began=answer.at,
            ended=answer.at,
            detail=answer.reason,
            by=answer.by,
            key=plan.key if plan else "",
            digest=answer.chosen,
            input=compact(call) if call else "",
            approval=a.id,
        )

    # --- checkpoints -------------------------------------------------------------------------
    def _checkpoint(self, event: Event, place: Place) -> Step:
        data = event.data()
        if event.type == EventType.CHECKPOINT:
            what, status, detail = self._history.entry(event.visit - 1).node, SAVED, f"next: {event.node}"
        else:
            what, status, detail = event.node, event.type.rpartition(".")[2], str(data["reason"])
        results = {"results": data["results"]} if data.get("results") else None
        return self._made(
            "checkpoint",
            place,
            status=status,
            what=what,
            node=what,
            began=event.at,
            ended=event.at,
            detail=detail,
            output=compact(results) if results else "",
            event=event.seq,
        )

    # --- one step ----------------------------------------------------------------------------
    def _made(
        self,
        kind: StepKind,
        place: Place,
        *,
        what: str,
        node: str = "",
        began: int = 0,
        ended: int,
        detail: str = "",
        input: bytes | str | None = "",  # noqa: A002 - the name of the field
        output: bytes | str | None = "",
        **fields: Any,
    ) -> Step:
        at, visit, _, step = place
        plain = {"by": "", "key": "", "digest": "", "attempts": 0, "external_id": "", "settled_by": ""}
        plain |= {"allowed_by": "", "approval": "", "model": "", "tokens": 0, "input_tokens": 0, "output_tokens": 0}
        head = self._head if step != self._whole else 0
        return Step(
            **{**plain, "money": "", "proposals": [], **fields},
            id=step,
            kind=kind,
            what=redacted(what),
            visit=visit,
            nth=self._history.nth_visit(visit),
            detail=redacted(detail),
            node=node or self._history.entry(visit).node_at(at),
            began=instant(began),
            ended=instant(ended),
            input=_text(input, head),
            output=_text(output, head),
        )


class _Answer(NamedTuple):
    """Vote or decision about an approval. `chosen`: digest of the approved call, '' for a rejection."""

    by: str
    at: int
    status: ApprovalStatus
    reason: str
    chosen: str


def _answers(a: Approval) -> list[_Answer]:
    found = [_Answer(v.by, v.at, ApprovalStatus.APPROVED, v.reason, v.chosen) for v in votes_of(a)]
    if a.status in _REJECTED:
        found.append(_Answer(a.decided_by, a.decided_at, a.status, a.reason, ""))
    return found


def _text(stored: bytes | str | None, head: int = HEAD_CHARS) -> StepText:
    """Return the first characters of a text, or all of it for 0."""
    if not stored:
        return _NO_TEXT
    size = len(stored) if isinstance(stored, bytes) else len(stored.encode(errors="replace"))
    text = stored.decode(errors="replace") if isinstance(stored, bytes) else stored
    if not head or len(text) <= head:
        return StepText(text=redacted(text), bytes=size, cut=False)
    return StepText(text=redacted(text[:REDACTED_CHARS])[:head], bytes=size, cut=True)


def _answer_of(memo: Memo) -> dict[str, Any]:
    """Return the answer of a model as it is stored; an empty one if it has no answer."""
    answer = decoded(memo.response, f"the answer in memo {memo.key}") if memo.response is not None else None
    return answer if isinstance(answer, dict) else {}


def _proposed_in(answer: dict[str, Any]) -> Iterator[Any]:
    """Yield the arguments of each call that an answer proposes, as the agent or pydantic-ai has recorded it."""
    for name, arguments in (("calls", "arguments"), ("parts", "args")):
        found = answer.get(name)
        for each in found if isinstance(found, list) else ():
            given = each.get(arguments) if isinstance(each, dict) else None
            if isinstance(given, str):
                with suppress(ValueError):
                    given = json.loads(given)
            if isinstance(given, dict):
                yield given


def _words_of(answer: dict[str, Any]) -> str:
    """Return the words of an answer: its text, or the text parts of one that pydantic-ai has recorded."""
    if "parts" not in answer:
        return str(answer.get("text") or "")
    parts = answer["parts"] if isinstance(answer["parts"], list) else []
    return "\n".join(str(p.get("content")) for p in parts if isinstance(p, dict) and p.get("part_kind") == "text")


def _model_of(answer: dict[str, Any]) -> str:
    """Return the model that an answer names; '' if it names none."""
    named = answer.get("model") or answer.get("model_name")
    return named if isinstance(named, str) else ""


def _end_of(answer: dict[str, Any]) -> str:
    """Return why an answer cannot be used, with the words of the provider; '' for one that can."""
    finish = str(answer.get("finish") or finish_of(str(answer.get("finish_reason") or "")))
    if finish != "stop":
        words = answer.get("finish_detail") or answer.get("finish_reason") or ""
        return f"{finish}: {words}" if words else finish
    silent = "calls" in answer and not answer["calls"] and is_blank(str(answer.get("text") or ""))
    return "empty" if silent else ""


def _admission(memo: Memo) -> ProposedCall:
    kept = decoded(memo.response or b"{}", f"the outcome in memo {memo.key}")
    return ProposedCall(
        tool=str(kept.get("tool", "")),
        proposed_by=str(kept.get("proposed_by", "")),
        outcome=str(kept.get("outcome", "")),
        code=str(kept.get("code", "")),
        reason=redacted(str(kept.get("reason", ""))),
        arguments=redacted(str(kept.get("arguments", ""))),
    )


def _verdict(decision: RecordedDecision) -> ProposedCall:
    verdict = decision.verdict
    outcome = "needs_approval" if isinstance(verdict, NeedsApproval) else "admitted"
    reason = "" if isinstance(verdict, Allow) else verdict.rule
    if isinstance(verdict, Deny):
        outcome, reason = "not_admitted", f"{verdict.rule}: {verdict.detail}" if verdict.detail else verdict.rule
    return ProposedCall(
        tool=decision.activity,
        proposed_by=decision.proposed_by,
        outcome=outcome,
        code=DENIED if isinstance(verdict, Deny) else "",
        reason=redacted(reason),
        arguments=_text(compact(decision.arguments)).text,
    )


def _cursor_of(place: Place) -> str:
    return urlsafe_b64encode(json.dumps(place).encode()).decode()


def _place_of(cursor: str) -> Place | None:
    if not cursor:
        return None
    try:
        at, visit, order, step = json.loads(urlsafe_b64decode(cursor))
    except (ValueError, TypeError, RecursionError):
        at, visit, order, step = "", 0, 0, ""
    if not (type(at) is type(visit) is type(order) is int and type(step) is str):
        raise InvalidInput("this cursor was not issued by this list", fix="begin again without a cursor")
    return at, visit, order, step
