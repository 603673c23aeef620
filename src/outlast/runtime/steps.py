"""The history of a run as steps of an agent, made from the rows that exist: a pure function (OBS-4).

| step | rows |
|---|---|
| model_decision | memos of the lookup `outlast.model`, with the decisions about the calls that the model proposed |
| tool_call | effects, memos of other lookups, and calls that policy denied |
| approval_request, approval_response | approvals |
| checkpoint | events that complete a node or end the run |
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, get_args

from outlast.core.approvals import votes_of
from outlast.core.codec import compact
from outlast.core.columns import decoded
from outlast.core.effect_columns import NO_ERROR
from outlast.core.effect_verbs import UNANSWERED
from outlast.core.events import ENDINGS, TAKEN, EventType
from outlast.core.keys import ADMISSION, MODEL
from outlast.core.machine import ApprovalStatus, EffectStatus
from outlast.core.rows import Approval, Effect, Event, Memo, Run
from outlast.core.usage import CallUsage, money_text
from outlast.engine.policy import RecordedDecision, decision_of
from outlast.errors import InvalidInput, NotFound
from outlast.flow.policy import Allow, Deny, NeedsApproval
from outlast.models import instant
from outlast.models.steps import ProposedCall, Step, StepKind, StepList, StepText
from outlast.runtime.labels import effect_label
from outlast.telemetry.redact import redacted

HEAD_CHARS: Final = 300
REDACTED_CHARS: Final = 4 * HEAD_CHARS  # redaction sees more than is shown, so no secret is cut in half
ANSWERED: Final = "answered"
NOT_ANSWERED: Final = "unanswered"  # a lookup whose attempts are used up
DENIED: Final = "denied"
SAVED: Final = "saved"
KINDS: Final[tuple[StepKind, ...]] = get_args(StepKind)
_ORDER: Final[dict[StepKind, int]] = {
    "model_decision": 0, "approval_request": 1, "approval_response": 2, "tool_call": 3, "checkpoint": 4,
}  # fmt: skip
"""Order of steps of one visit that began in the same millisecond."""
_REJECTED: Final = frozenset({ApprovalStatus.REJECTED, ApprovalStatus.AGAIN})
_NO_TEXT: Final = StepText(text="", bytes=0, cut=False)


class StepRows(NamedTuple):
    """Rows of one run. `business` converts real instants to business time."""

    run: Run
    events: Sequence[Event]
    memos: Sequence[Memo]
    effects: Sequence[Effect]
    approvals: Sequence[Approval]
    usage: Sequence[CallUsage]
    business: Callable[[int], int]


class Placed(NamedTuple):
    """A step with its place in the history: its instant, its visit, its kind and its id."""

    place: tuple[int, int, int, str]
    step: Step


def step_page(rows: StepRows, *, kind: str = "", step: str = "", cursor: str = "", limit: int) -> StepList:
    """Return a page of steps, oldest first. `step`: only this one, with its whole texts.

    Raises InvalidInput for a kind or cursor that does not exist, NotFound for an unknown step.
    """
    if kind and kind not in KINDS:
        raise InvalidInput(f"kind is {kind!r}", f"it is one of {', '.join(KINDS)}", "choose one of these")
    if step:
        found = [each.step for each in _Steps(rows, whole=step).all() if each.step.id == step]
        if not found:
            run = rows.run.run
            raise NotFound(f"run {run} has no step {step}"[:300], "", f"list them: outlast runs steps {run}")
        return StepList(steps=found)
    after = _place_of(cursor)
    further = [each for each in steps_of(rows) if kind in ("", each.step.kind) and (not after or each.place > after)]
    page = further[:limit]
    more = len(further) > len(page)
    return StepList(steps=[each.step for each in page], next_cursor=_cursor_of(page[-1].place) if more else "")


def steps_of(rows: StepRows) -> list[Placed]:
    """Return all steps of a run in the order in which they began."""
    return sorted(_Steps(rows).all(), key=lambda each: each.place)


class _Steps:
    """The steps of one run. `whole`: id of the step whose texts are not cut."""

    def __init__(self, rows: StepRows, whole: str = "") -> None:
        self._rows = rows
        self._whole = whole
        saved = [event for event in rows.events if event.type == EventType.CHECKPOINT]
        self._left = [event.at for event in saved]  # when each visit but the last one ended
        self._nodes = [rows.events[0].node if rows.events else rows.run.node, *(event.node for event in saved)]
        self._used: dict[tuple[int, str], list[CallUsage]] = {}
        for used in rows.usage:
            self._used.setdefault((used.visit, used.key), []).append(used)
        self._workers = {e.data()["new_epoch"]: str(e.data()["worker"]) for e in rows.events if e.type in TAKEN}

    def all(self) -> Iterator[Placed]:
        answers = [memo for memo in self._rows.memos if memo.activity == MODEL]
        proposals = self._proposals(answers)
        for memo in answers:
            yield self._model_decision(memo, proposals.get(memo.key, []))
        for memo in self._rows.memos:
            if memo.activity in ("", MODEL, ADMISSION):
                continue  # an entry of the log, or shown with the decision of the model
            if memo.digest:
                yield self._lookup(memo)
            elif (decision := decision_of(memo)).occasion not in ("offer", "proposal"):
                yield self._denial(memo, decision)
        for effect in self._rows.effects:
            yield self._effect(effect)
        for approval in self._rows.approvals:
            yield self._request(approval)
            yield from self._responses(approval)
        for event in self._rows.events:
            if event.type == EventType.CHECKPOINT or event.type in ENDINGS:
                yield self._checkpoint(event)

    # --- models and lookups ------------------------------------------------------------------
    def _model_decision(self, memo: Memo, proposals: list[ProposedCall]) -> Placed:
        used = self._usage(memo.visit, memo.key.removeprefix(UNANSWERED))
        model = used["model"] or _model_of(memo)
        return self._of_memo("model_decision", memo, ANSWERED, **{**used, "model": model}, proposals=proposals)

    def _lookup(self, memo: Memo) -> Placed:
        used = self._usage(memo.visit, memo.key.removeprefix(UNANSWERED))
        return self._of_memo("tool_call", memo, EffectStatus.DONE.value, **used)

    def _of_memo(self, kind: StepKind, memo: Memo, done: str, **more: Any) -> Placed:
        error = memo.error or NO_ERROR
        status = (
            NOT_ANSWERED if memo.key.startswith(UNANSWERED) else EffectStatus.REFUSED.value if memo.error_text else done
        )
        detail = f"{error.code}: {error.detail}" if memo.error_text else ""
        return self._placed(
            kind, f"lookup/{memo.visit}/{memo.key}", memo.at, memo.visit, status=status, what=memo.activity,
            ended=memo.at, detail=detail, key=memo.key.removeprefix(UNANSWERED), digest=memo.digest,
            output=memo.response, **more,
        )  # fmt: skip

    def _usage(self, visit: int, key: str) -> dict[str, Any]:
        """Return what the attempts of a call reported, and the last model that they named."""
        used = self._used.get((visit, key), ())
        money = sum(row.money for row in used)
        return {
            "model": next((row.model for row in reversed(used) if row.model), ""),
            "tokens": sum(row.tokens for row in used),
            "input_tokens": sum(row.input_tokens for row in used),
            "output_tokens": sum(row.output_tokens for row in used),
            "money": money_text(money) if money else "",
        }

    def _proposals(self, answers: Sequence[Memo]) -> dict[str, list[ProposedCall]]:
        """Return the decisions about proposed calls by the key of the answer: the latest one before them."""
        answers_of: dict[int, list[Memo]] = {}
        for answer in sorted(answers, key=lambda memo: memo.at):
            answers_of.setdefault(answer.visit, []).append(answer)
        found: dict[str, list[ProposedCall]] = {}
        recorded: set[tuple[int, str]] = set()  # visits and tools whose outcome has a memo of its own

        def add(memo: Memo, call: ProposedCall) -> None:
            before = [answer for answer in answers_of.get(memo.visit, ()) if answer.at <= memo.at]
            if before:
                found.setdefault(before[-1].key, []).append(call)

        memos = sorted(self._rows.memos, key=lambda memo: (memo.at, len(memo.key), memo.key))  # /2 before /10
        for memo in memos:
            if memo.activity == ADMISSION:
                call = _admission(memo)
                recorded.add((memo.visit, call.tool))
                add(memo, call)
        for memo in memos:
            if memo.activity in ("", ADMISSION) or memo.digest:
                continue
            decision = decision_of(memo)
            if decision.occasion == "proposal" and (memo.visit, decision.activity) not in recorded:
                add(memo, _verdict(decision))
        return found

    # --- calls -------------------------------------------------------------------------------
    def _effect(self, effect: Effect) -> Placed:
        began = self._rows.business(effect.first_at)  # by the mapping of today: the clock may have moved ahead since
        began = min(began, effect.settled_at or began)
        error = effect.error or NO_ERROR
        label = effect_label(effect, error.code, held=effect.epoch == self._rows.run.epoch)
        shared = bool(effect.by_run) and effect.by_run != self._rows.run.run
        return self._placed(
            "tool_call", f"call/{effect.visit}/{effect.key}", began, 0 if effect.undoes else effect.visit,
            status=effect.status.value, what=effect.activity, node=effect.node, ended=effect.settled_at,
            detail=f"{label}: {error.detail}" if error.detail else label,
            by=f"run {effect.by_run}" if shared else self._workers.get(effect.epoch, ""),
            key=effect.key, digest=effect.digest, input=effect.args, output=effect.response, attempts=effect.attempts,
            external_id=effect.external_id, settled_by=effect.settled_by, allowed_by=effect.allowed_by,
            approval=effect.approval, began=began, **self._usage(effect.visit, effect.key),
        )  # fmt: skip

    def _denial(self, memo: Memo, decision: RecordedDecision) -> Placed:
        call = _verdict(decision)
        return self._placed(
            "tool_call", f"verdict/{memo.visit}/{memo.key}", memo.at, memo.visit, status=DENIED, what=call.tool,
            ended=memo.at, detail=call.reason, key=decision.key, input=compact(decision.arguments),
            allowed_by=f"policy: deny {decision.verdict.rule}", began=memo.at,
        )  # fmt: skip

    # --- approvals ---------------------------------------------------------------------------
    def _request(self, a: Approval) -> Placed:
        plans = [{"effect": p.activity, "key": p.key, "arguments": p.arguments(), "digest": p.digest} for p in a.plans]
        return self._placed(
            "approval_request", f"{a.id}/request", a.asked_at, a.visit, status=a.status.value, what=a.summary,
            ended=a.decided_at, detail=a.risk, by=a.who, key=a.plans[0].key if a.plans else "",
            digest=a.plans[0].digest if a.plans else "", input=compact(plans), approval=a.id, began=a.asked_at,
        )  # fmt: skip

    def _responses(self, a: Approval) -> Iterator[Placed]:
        said = [(v.by, v.at, ApprovalStatus.APPROVED, v.reason, v.chosen) for v in votes_of(a)]
        if a.status in _REJECTED:
            said.append((a.decided_by, a.decided_at, a.status, a.reason, ""))
        for n, (by, at, status, reason, chosen) in enumerate(said, 1):
            plan = next((p for p in a.plans if p.digest == chosen), None)
            call: dict[str, Any] = {}
            if plan is not None:
                call = {"effect": plan.activity, "key": plan.key, "arguments": plan.arguments()}
                if plan.change is not None:
                    call |= {"changed_by": plan.change.by, "changes": plan.change.values()}
            yield self._placed(
                "approval_response", f"{a.id}/response/{n}", at, a.visit, status=status.value, what=a.summary,
                ended=at, detail=reason, by=by, key=plan.key if plan else "", digest=chosen,
                input=compact(call) if call else "", approval=a.id, began=at,
            )  # fmt: skip

    # --- checkpoints -------------------------------------------------------------------------
    def _checkpoint(self, event: Event) -> Placed:
        data = event.data()
        if event.type == EventType.CHECKPOINT:
            visit, status, detail = event.visit - 1, SAVED, f"next: {event.node}"
            what = self._nodes[visit - 1]
        else:
            visit, what, detail = event.visit, event.node, str(data["reason"])
            status = event.type.rpartition(".")[2]
        results = {"results": data["results"]} if data.get("results") else None
        return self._placed(
            "checkpoint", f"checkpoint/{event.seq}", event.at, visit, status=status, what=what, node=what,
            ended=event.at, detail=detail, output=compact(results) if results else "", began=event.at,
        )  # fmt: skip

    # --- places ------------------------------------------------------------------------------
    def _placed(
        self,
        kind: StepKind,
        step: str,
        at: int,
        visit: int,
        *,
        what: str,
        node: str = "",
        began: int = 0,
        ended: int,
        detail: str = "",
        input: bytes | str | None = "",  # noqa: A002 - the name of the field
        output: bytes | str | None = "",
        **fields: Any,
    ) -> Placed:
        visit = visit or bisect_right(self._left, at) + 1
        plain = {"by": "", "key": "", "digest": "", "attempts": 0, "external_id": "", "settled_by": ""}
        plain |= {"allowed_by": "", "approval": "", "model": "", "tokens": 0, "input_tokens": 0, "output_tokens": 0}
        cut = step != self._whole
        made = Step(
            **{**plain, "money": "", "proposals": [], **fields},
            id=step, kind=kind, what=redacted(what), visit=visit, detail=redacted(detail),
            node=node or self._nodes[min(visit, len(self._nodes)) - 1], began=instant(began), ended=instant(ended),
            input=_text(input, cut=cut), output=_text(output, cut=cut),
        )  # fmt: skip
        return Placed((at, visit, _ORDER[kind], step), made)


def _text(stored: bytes | str | None, *, cut: bool) -> StepText:
    if not stored:
        return _NO_TEXT
    size = len(stored) if isinstance(stored, bytes) else len(stored.encode(errors="replace"))
    text = stored.decode(errors="replace") if isinstance(stored, bytes) else stored
    if not cut or len(text) <= HEAD_CHARS:
        return StepText(text=redacted(text), bytes=size, cut=False)
    return StepText(text=redacted(text[:REDACTED_CHARS])[:HEAD_CHARS], bytes=size, cut=True)


def _model_of(memo: Memo) -> str:
    """Return the model that an answer names; '' if it names none."""
    answer = decoded(memo.response, f"the answer in memo {memo.key}") if memo.response is not None else None
    named = (answer.get("model") or answer.get("model_name")) if isinstance(answer, dict) else ""
    return named if isinstance(named, str) else ""


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
        arguments=_text(compact(decision.arguments), cut=True).text,
    )


def _cursor_of(place: tuple[int, int, int, str]) -> str:
    return urlsafe_b64encode(json.dumps(place).encode()).decode()


def _place_of(cursor: str) -> tuple[int, int, int, str] | None:
    if not cursor:
        return None
    try:
        at, visit, order, step = json.loads(urlsafe_b64decode(cursor))
    except (ValueError, TypeError, RecursionError):
        at, visit, order, step = "", 0, 0, ""
    if not (type(at) is type(visit) is type(order) is int and type(step) is str):
        raise InvalidInput("this cursor was not issued by this list", fix="begin again without a cursor")
    return at, visit, order, step
