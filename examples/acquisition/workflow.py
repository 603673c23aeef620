"""The eleven steps in two planes. `outlast worker examples.acquisition.workflow` serves them.

A node with `plane="decision"` cannot write: the workflow would not load. A step that the sale can do without is
isolated: its failure is kept in the state, and the run goes on. The deal, the proposal and the follow-up are a saga: if
one of them fails, the run fails and undoes the earlier ones, the latest first.
"""

from typing import Final, Literal

import httpx2

from outlast import Cancel, Context, Deny, Fail, Plan, Refused, Workflow, role

from . import decisions
from .decisions import Undecided
from .inquiry import FIT_MIN, Acquisition, Inquiry, Reply, Result, ideal_fit, normalized, result_of
from .policy import APPROVERS, policy
from .systems import (
    Receipt,
    book_meeting,
    open_deal,
    schedule_follow_up,
    send_outreach,
    send_proposal,
    upsert_contact,
)

DRAFTS_MAX: Final = 3
REPLY_WITHIN: Final = "3d"
Ctx = Context[Acquisition]

acquisition: Workflow[Acquisition, Inquiry, Result] = Workflow(
    "acquisition",
    state=Acquisition,
    input=Inquiry,
    outcome=result_of,
    policy=policy,
    key="lead/{email}",
    objective="Win {company} as a customer",
    ceiling="30d",
)


# --- decisions before the first write ------------------------------------------------------------------
@acquisition.node(start=True, status="INTAKE", plane="decision")
async def intake(ctx: Ctx) -> Literal["extract_pains"]:
    """Step 1. Bring the inquiry into one form."""
    normalized(ctx.state)
    return "extract_pains"


@acquisition.node(status="EXTRACTING", plane="decision")
async def extract_pains(ctx: Ctx) -> Literal["match_customer"]:
    """Step 2. Let a model name the problems of the company; it may read its web site. Isolated."""
    try:
        ctx.state.pains, unsupported = await decisions.pains_of(ctx)
        ctx.state.unsupported = [pain.problem for pain in unsupported]
        for n, pain in enumerate(unsupported):
            ctx.log(f"unsupported/{n}", f"the model named a problem without words of the company: {pain.problem}")
    except (Undecided, Refused, httpx2.HTTPError) as error:
        failed(ctx, "extract_pains", error)
    return "match_customer"


@acquisition.node(status="MATCHING", end="NOT_A_FIT", plane="decision")
async def match_customer(ctx: Ctx) -> Literal["qualify"] | None:
    """Step 3. Compare the company with the ideal customer, by rules."""
    ctx.state.fit, ctx.state.why_fit = ideal_fit(ctx.state)
    return "qualify" if ctx.state.fit >= FIT_MIN else None


@acquisition.node(status="QUALIFYING", end="DISQUALIFIED", plane="decision")
async def qualify(ctx: Ctx) -> Literal["record_deal"] | None:
    """Step 4. Let a model grade the inquiry."""
    try:
        found = await decisions.qualified(ctx)
    except Undecided as error:
        raise Fail(f"the inquiry could not be graded: {error}") from error
    ctx.state.grade, ctx.state.cents = found.grade, found.cents
    return "record_deal" if found.grade != "C" else None


# --- CRM and calendar ----------------------------------------------------------------------------------
@acquisition.node(status="RECORDING", plane="execution")
async def record_deal(ctx: Ctx) -> Literal["book"]:
    """Step 5. Write contact and deal to the CRM. First step of the saga."""
    s = ctx.state
    s.contact_id = (await saga_step(ctx, "the contact", upsert_contact.plan(s.email, s.contact, s.company))).id
    s.deal_id = (await saga_step(ctx, "the deal", open_deal.plan(s.email, s.contact_id, s.grade, s.cents))).id
    return "book"


@acquisition.node(status="BOOKING", plane="execution")
async def book(ctx: Ctx) -> Literal["draft_proposal"]:
    """Step 6. Book a meeting. Isolated."""
    s = ctx.state
    try:
        s.meeting_id = (await ctx.do(book_meeting.plan(s.email, f"First call with {s.company}"), proposed=True)).id
    except Refused as error:
        failed(ctx, "book", error)
    return "draft_proposal"


# --- the proposal ----------------------------------------------------------------------------------------
@acquisition.node(status="DRAFTING", max_visits=DRAFTS_MAX, plane="decision")
async def draft_proposal(ctx: Ctx) -> Literal["approve"]:
    """Step 7. Let a model write the proposal."""
    try:
        ctx.state.proposal = await decisions.proposal_for(ctx)
    except Undecided as error:
        raise Fail(f"no proposal could be written: {error}") from error
    return "approve"


@acquisition.node(status="PENDING_APPROVAL", max_visits=DRAFTS_MAX, plane="execution")
async def approve(ctx: Ctx) -> Literal["send", "draft_proposal"]:
    """Step 8. Ask policy about the draft, then a person. Both may want another draft."""
    s, plan = ctx.state, proposal_plan(ctx.state)
    s.drafts += 1
    drafts_left = s.drafts < DRAFTS_MAX
    verdict = await ctx.check(plan, proposed_by=decisions.acquisition_model().name)
    if isinstance(verdict, Deny):
        if not drafts_left:
            raise Fail(f"policy refuses the proposal: {verdict.detail}")
        s.objection = verdict.detail
        return "draft_proposal"
    decision = await ctx.approval(
        plan,
        summary=f"Send {s.company} the proposal «{s.drafted.subject}» over {s.drafted.cents / 100:,.2f} EUR",
        by=role(APPROVERS),
        within="96h",
        again=drafts_left,
    )
    if decision.outcome == "again":
        s.objection = decision.reason
        return "draft_proposal"
    if not decision.approved:
        raise Cancel(f"rejected by {decision.by}: {decision.reason}")
    s.approved_by = decision.by
    return "send"


@acquisition.node(status="SENDING", plane="execution")
async def send(ctx: Ctx) -> Literal["draft_outreach"]:
    """Step 9. Mail the approved proposal. Second step of the saga."""
    ctx.state.proposal_id = (await saga_step(ctx, "the proposal", proposal_plan(ctx.state))).id
    return "draft_outreach"


# --- outreach and follow-up ------------------------------------------------------------------------------
@acquisition.node(status="REACHING_OUT", plane="decision")
async def draft_outreach(ctx: Ctx) -> Literal["reach_out", "follow_up"]:
    """Step 10. Let a model write a message to the contact. Isolated."""
    try:
        ctx.state.outreach = await decisions.outreach_for(ctx)
    except (Undecided, Refused, httpx2.HTTPError) as error:
        failed(ctx, "draft_outreach", error)
        return "follow_up"
    return "reach_out"


@acquisition.node(status="REACHING_OUT", plane="execution")
async def reach_out(ctx: Ctx) -> Literal["follow_up"]:
    """Send the message. Isolated."""
    s = ctx.state
    try:
        s.outreach_id = (await ctx.do(send_outreach.plan(s.email, s.outreach), proposed=True)).id
    except Refused as error:
        failed(ctx, "reach_out", error)
    return "follow_up"


@acquisition.node(status="FOLLOWING_UP", end="IN_CONTACT", plane="execution")
async def follow_up(ctx: Ctx) -> None:
    """Step 11. Wait for a reply; without one, schedule a call. Last step of the saga."""
    s = ctx.state
    reply = await ctx.receive("reply", Reply, timeout=REPLY_WITHIN)
    if reply is not None:
        s.reply = reply.text
        return
    s.task_id = (await saga_step(ctx, "the follow-up", schedule_follow_up.plan(s.email, s.deal_id))).id


def proposal_plan(s: Acquisition) -> Plan[Receipt]:
    """Return the call that sends the drafted proposal: the one that is approved is the one that is made."""
    draft = s.drafted
    return send_proposal.plan(s.email, draft.subject, draft.text, draft.cents, draft.discount_percent)


async def saga_step(ctx: Ctx, name: str, plan: Plan[Receipt]) -> Receipt:
    """Make the call of a step. Raises Fail if it is refused, by policy too, so that the earlier steps are undone."""
    try:
        return await ctx.do(plan, proposed=True)
    except Refused as error:
        raise Fail(f"{name}: {error.code}") from error  # the ledger and the history have the detail


def failed(ctx: Ctx, step: str, error: Exception) -> None:
    """Keep the failure of a step without which the run goes on."""
    why = f"{error.code}: {error.detail}" if isinstance(error, Refused) else f"{type(error).__name__}: {error}"
    ctx.state.errors[step] = why[:300]
    ctx.log(f"failed/{step}", f"{step} failed, and the run goes on: {why}"[:300])
