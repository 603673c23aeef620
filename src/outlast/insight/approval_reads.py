"""Approvals for an approver: filtered lists, details, changes since the request, and the schema of a decision."""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Final, NamedTuple, get_args

from outlast.core.approvals import Actor, may_decide, rounds_of, votes_of, waits_for, why_not
from outlast.core.approver_rule import Rule, identity
from outlast.core.machine import ApprovalStatus, EffectStatus
from outlast.core.paging import pages
from outlast.core.rows.effect_rows import APPROVAL, EFFECT, Approval
from outlast.core.rows.run_rows import Run
from outlast.core.shown_arguments import in_one_line
from outlast.errors import InvalidInput
from outlast.flow.workflow import Workflow
from outlast.insight.confusables import confusable_texts
from outlast.insight.labels import effect_label, shown_status
from outlast.insight.run_facts import messages_of
from outlast.insight.tenant_rows import PAGES_PER_CALL, TenantRows
from outlast.models import exact_instant, instant
from outlast.models.approvals import (
    ApprovalChange,
    ApprovalDetail,
    ApprovalSort,
    ApprovalSummary,
    ApprovedCall,
    DecideApprovalBody,
    OfferedArgument,
    OfferedPlan,
    PriorEffect,
    RunAbove,
    Vote,
)
from outlast.models.effects import effect_id
from outlast.operations.approval_operations import ListApprovals
from outlast.store.open_rows import open_cursor
from outlast.store.queries import cursor_of

EVIDENCE_MAX: Final = 100
RECEIPT_CHARS: Final = 120
ROWS_PER_READ: Final = 500
"""Approvals that a filtered list reads at once."""
SEARCHED_READS_MAX: Final = 10
"""Reads of a list that searches for a text. Each makes the texts of its rows, which costs more than a filter."""
SORTS: Final[tuple[ApprovalSort, ...]] = get_args(ApprovalSort)
ME: Final = "me"
"""Filter `decided_by`: the caller."""
APPROVED: Final = ApprovalStatus.APPROVED.value
BEGINNING_CHARS: Final = 3
"""Characters of a searched word that may be the beginning of a longer one."""
EXPIRED: Final = "expired."
"""Prefix of a cursor that continues a list of overdue approvals with those that expired."""
DECISION_KIND: Final = "decision"
"""Kind of message that is no news to the approver: the decision itself."""


async def approval_page(rows: TenantRows, actor: Actor, request: ListApprovals) -> tuple[tuple[Approval, ...], str]:
    """Return a page of matching approvals and the cursor of the next one. For the filters, see `Client.approvals`.

    Raises InvalidInput.
    """
    status, sort, cursor, limit = request.status, request.sort, request.cursor, request.limit
    if sort not in SORTS:
        raise InvalidInput(f"sort is {sort!r}", f"it is one of {', '.join(SORTS)}", "choose one of these")
    if sort == "deadline" and status not in ("", ApprovalStatus.PENDING):
        raise InvalidInput("sort=deadline lists pending approvals", f"status is {status!r}", "leave status out")
    wanted = _Wanted(actor, request)
    if not request.overdue or status or sort == "deadline":
        return await _page(rows, wanted, status, cursor, limit, by_deadline=sort == "deadline")
    pending: tuple[Approval, ...] = ()
    if not cursor.startswith(EXPIRED):  # by deadline, because any number of the newest may not be overdue
        pending, further = await _page(rows, wanted, ApprovalStatus.PENDING, cursor, limit, by_deadline=True)
        if further or len(pending) == limit:
            return pending, further or EXPIRED
    after, most = cursor.removeprefix(EXPIRED), limit - len(pending)
    expired, further = await _page(rows, wanted, ApprovalStatus.EXPIRED, after, most, by_deadline=False)
    return pending + expired, f"{EXPIRED}{further}" if further else ""


class _Wanted(NamedTuple):
    """Filters of a list of approvals, and who asks."""

    actor: Actor
    filters: ListApprovals

    @property
    def decided_by(self) -> str:
        """Name of the person who has decided; '' does not filter."""
        return self.actor.name if self.filters.decided_by == ME else self.filters.decided_by

    @property
    def reads_max(self) -> int:
        """Maximum number of reads for one page."""
        return SEARCHED_READS_MAX if self.filters.text else PAGES_PER_CALL


async def _page(
    rows: TenantRows, wanted: _Wanted, status: str, cursor: str, limit: int, *, by_deadline: bool
) -> tuple[tuple[Approval, ...], str]:
    """Return a page of the approvals of one status, or of all, and the cursor of the next page, if it has some."""
    cursor_at = open_cursor if by_deadline else cursor_of
    given = wanted.filters
    filtered = bool(given.mine or given.role or given.person or given.overdue or given.text)
    words = [word_pattern(each) for each in given.text.casefold().split()]
    size = max(limit, ROWS_PER_READ) if filtered else limit
    now = (await rows.store.now()).business
    found: list[Approval] = []
    for _ in range(wanted.reads_max):
        page, further = await rows.approvals(
            status=status,
            run=wanted.filters.run,
            decided_by=wanted.decided_by,
            by_deadline=by_deadline,
            cursor=cursor,
            limit=size,
        )
        for row in page:
            if wanted.filters.overdue and not _is_overdue(row, now):
                if by_deadline:
                    return tuple(found), ""  # the deadlines of the rest are later
                continue
            if (wanted.filters.mine and not waits_for(row, wanted.actor)) or not _names(
                row, wanted.filters.role, wanted.filters.person
            ):
                continue
            if words and not _has_words(row, words):
                continue
            if len(found) == limit:
                return tuple(found), cursor_at(APPROVAL, found[-1])
            found.append(row)
        cursor = further
        if not cursor or not filtered:
            break
    return tuple(found), cursor


def _names(row: Approval, role: str, person: str) -> bool:
    if not role and not person:
        return True
    rule = Rule.parse(row.who)
    return (not role or rule.names_role(role)) and (not person or identity(person) in rule.persons)


def _has_words(row: Approval, words: Sequence[re.Pattern[str]]) -> bool:
    """Return True if each word is in the summary, a text of the arguments, the reason, the run, a person or the id."""
    lines = [in_one_line(plan.main_arguments()) for plan in row.plans]
    lines += [each for plan in row.plans for each in plan.arguments().values() if isinstance(each, str)]
    text = "\n".join((row.summary, *lines, row.reason, row.run, row.requested_by, row.decided_by, row.id)).casefold()
    return all(word.search(text) for word in words)


def word_pattern(word: str) -> re.Pattern[str]:
    """Return the pattern of a searched word: the beginning of a word, a whole one if it is digits or short.

    A word that begins with another character than a Latin letter or a digit is found anywhere, because other scripts
    write words without spaces.
    """
    start = r"(?<![\w.,])" if word[0].isascii() and word[0].isalnum() else ""
    end = r"(?!\w)" if start and (word[-1].isdigit() or len(word) < BEGINNING_CHARS) else ""
    return re.compile(f"{start}{re.escape(word)}{end}")


def _is_overdue(row: Approval, now: int) -> bool:
    return row.status is ApprovalStatus.EXPIRED or (row.status is ApprovalStatus.PENDING and now >= row.within_until)


def approval_summary(row: Approval, actor: Actor) -> ApprovalSummary:
    """Return an approval with the exact calls it allows, as lists show it to this actor. The first is requested."""
    return ApprovalSummary(
        approval=row.id,
        version=row.version,
        run=row.run,
        status=row.status.value,
        asks=row.summary,
        risk=row.risk,
        who=row.who,
        requested_by=row.requested_by,
        asked_at=instant(row.asked_at),
        within_until=instant(row.within_until),
        valid_ms=row.valid_ms,
        plans=[
            OfferedPlan(
                alternative=n,
                effect=plan.activity,
                key=plan.key,
                digest=plan.digest,
                arguments=plan.arguments(),
                chosen=plan.digest == row.chosen,
                changed_by=plan.change.by if plan.change else "",
                changes=plan.change.values() if plan.change else {},
                warnings=confusable_texts(plan.arguments()),
                shown=[OfferedArgument(name=each.name, text=each.text) for each in plan.main_arguments()],
                line=in_one_line(plan.main_arguments()),
            )
            for n, plan in enumerate(row.plans)
        ],
        decided_at=instant(row.decided_at),
        decided_by=row.decided_by,
        roles=list(row.claims),
        reason=row.reason,
        valid_until=instant(row.valid_until),
        consumed_by=row.consumed_by,
        another_round=bool(row.again),
        quorum=row.quorum,
        votes=[
            Vote(
                by=vote.by,
                who=vote.who,
                claims=list(vote.claims),
                chosen=vote.chosen,
                reason=vote.reason,
                at=instant(vote.at),
            )
            for vote in votes_of(row)
        ],
        not_requester=bool(row.not_requester),
        editable=list(row.editable),
        claimed_by=row.claimed_by,
        warnings=confusable_texts([row.summary, row.risk]),
        you_may_decide=may_decide(actor, row),
        due=str(row.calendar.due or ""),
        valid_days=str(row.calendar.valid or ""),
    )


async def approval_detail(
    rows: TenantRows, row: Approval, run: Run, actor: Actor, workflow: Workflow[Any] | None
) -> ApprovalDetail:
    """Return an approval with everything its approver needs. `workflow`: the code of the run, None if not loaded."""
    rounds = rounds_of(row, await rows.approvals_of(run.run)) if row.again > 0 else None
    return ApprovalDetail(
        **vars(approval_summary(row, actor)),
        rounds_left=rounds.left if rounds is not None else None,
        rounds_max=rounds.most if rounds is not None else None,
        schema_=decision_schema(workflow, row),
        evidence=await prior_effects(rows, run),
        changed_since_asked=await changed_since(rows, row, run),
        run_shown=shown_status(run, (await rows.oldest_calls([run])).get(run.run, 0)),
        you_may_not=why_not(row, actor),
        workflow=run.workflow,
        objective=run.objective,
        path=[
            RunAbove(run=each.run, workflow=each.workflow, objective=each.objective) for each in await rows.above(run)
        ],
        call=await _approved_call(rows, row),
    )


async def _approved_call(rows: TenantRows, row: Approval) -> ApprovedCall | None:
    """Return the call that used the approval, None if none did or its row was purged."""
    if not row.consumed_by:
        return None
    visit, _, key = row.consumed_by.partition(":")
    own, shared = (row.tenant, row.run, int(visit), key), (row.tenant, "", 0, key)
    found = [each for each in await rows.store.load_many(EFFECT, [own, shared], listed=True) if each is not None]
    effect = next((each for each in found if each.approval in ("", row.id)), None)
    if effect is None:
        return None
    answer = effect.answer() if effect.response is not None and len(effect.response) <= RECEIPT_CHARS else None
    settled_at = effect.settled_at or rows.store.mapping().business(effect.first_at)
    return ApprovedCall(
        effect=effect_id(effect.by_run or effect.run, effect.visit, effect.key),
        outcome=effect_label(effect, effect.code),
        settled=bool(effect.settled_at),
        after_ms=max(0, settled_at - row.decided_at),
        external_id=effect.external_id,
        receipt=answer if isinstance(answer, str) else "",
    )


class _ApprovalIds(NamedTuple):
    """Page of the ids of a list of approvals."""

    ids: tuple[str, ...]
    next_cursor: str


async def approvals_in_order(
    rows: TenantRows, actor: Actor, request: ListApprovals, most: int
) -> tuple[tuple[str, ...], bool]:
    """Return the ids of a list in its order, at most `most`, and whether it may have more. Raises InvalidInput.

    A search for a text is not continued after its first page.
    """

    async def page_of(*, cursor: str) -> _ApprovalIds:
        page, further = await approval_page(rows, actor, replace(request, cursor=cursor, limit=ROWS_PER_READ))
        return _ApprovalIds(tuple(each.id for each in page), further)

    found: list[str] = []
    further = False
    async for page in pages(page_of):
        found += page.ids
        further = bool(request.text and page.next_cursor)
        if further or len(found) > most:
            break
    return tuple(found[:most]), further or len(found) > most


async def prior_effects(rows: TenantRows, run: Run) -> list[PriorEffect]:
    """Return the effects that the run has done before it asks, latest first."""
    done = [e for e in await rows.effects_of(run) if e.status is EffectStatus.DONE]
    return [
        PriorEffect(effect=e.activity, key=e.key, outcome=effect_label(e, ""), external_id=e.external_id)
        for e in reversed(done[-EVIDENCE_MAX:])
    ]


async def changed_since(rows: TenantRows, row: Approval, run: Run) -> list[ApprovalChange]:
    """Return votes, changed plans and messages since the approval was requested."""
    found = [(vote.at, f"{APPROVED}: {vote.reason}" if vote.reason else APPROVED, vote.by) for vote in votes_of(row)]
    found += [
        (plan.change.at, f"changed {', '.join(plan.change.values())}", plan.change.by)
        for plan in row.plans
        if plan.change is not None
    ]
    found += [
        (message.at, f"{message.kind} {message.name}".strip(), message.actor)
        for message in (await messages_of(rows.store, run) if run.inbox_seq else ())
        if message.at >= row.asked_at and message.kind != DECISION_KIND
    ]
    return [ApprovalChange(at=exact_instant(at), what=what, by=by) for at, what, by in sorted(found)]


def decision_schema(workflow: Workflow[Any] | None, row: Approval) -> dict[str, Any]:
    """Return the JSON schema of a decision about this approval, with its offers and the types of editable arguments."""
    schema = _any_decision()
    properties = dict(schema["properties"])
    offered = ["approve", "reject", *(["again"] if row.again else [])]
    properties["decision"] = {**properties["decision"], "enum": offered}
    properties["alternative"] = {**properties["alternative"], "maximum": len(row.plans) - 1}
    if not row.editable:
        properties.pop("changes", None)
    else:
        known = workflow.activity(row.plans[0].activity).arguments_schema() if workflow is not None else {}
        fields = {name: known.get("properties", {}).get(name, {}) for name in row.editable}
        properties["changes"] = {
            "type": "object", "properties": fields, "additionalProperties": False, **_definitions(known)
        }  # fmt: skip
    return {**schema, "properties": properties}


@cache
def _any_decision() -> dict[str, Any]:
    """Return the JSON schema of any decision; cached, because generating it costs more than a decision."""
    return DecideApprovalBody.model_json_schema()


def _definitions(schema: dict[str, Any]) -> dict[str, Any]:
    return {"$defs": schema["$defs"]} if "$defs" in schema else {}
