"""Rows of what a run calls and waits for: effects, memos, late answers, waits and approvals. See `all_kinds.py`."""

from typing import Any, Final, NamedTuple

from outlast.core import machine
from outlast.core.business_days import DUE, Due
from outlast.core.rows import approval_columns, effect_columns
from outlast.core.rows.row_kind import Kind

USED, UNDO_RESERVED, STATED = 1, 2, 3
# Effect.shared: mutually exclusive, so that no run uses an answer whose undo has started, and no person corrects an
# answer that a run has used. A row without a mark has been given to its run, or was not settled by a person.
WITHHELD: Final = "withheld"
"""`settled_by` of an undo that was refused before any call."""
BY_ITSELF: Final = frozenset({"", "call", "reconcile", WITHHELD})
"""Values of Effect.settled_by if no person settled the effect."""


class Effect(NamedTuple):
    """Ledger row of one call with a side effect.

    The key is (tenant, run, visit, key). Visit 0 means once per run, an empty run means once per tenant. Within one run
    these two share one space of keys: the same key in both is a conflict.
    """

    tenant: str
    run: str
    visit: int
    key: str
    version: int
    status: machine.EffectStatus
    activity: str
    digest: str
    node: str
    args: bytes
    response: bytes | None
    error_text: str
    external_id: str
    attempts: int
    waited_ms: int  # total wait between attempts
    ordinal: int  # position in the run; effects are undone in falling order
    epoch: int  # epoch of the claim that wrote the latest intent
    first_at: int  # real; time of the first intent
    not_after: int  # real; last instant at which the call may be sent
    settle_after: int  # real; from here on a call in flight can no longer arrive
    covered_until: int  # business; end of the approval that covers it; 0 = no approval needed
    approval: str  # id of the approval it consumed
    allowed_by: str  # decision of the policy
    undo: str  # name of the activity's undo; 'no: ' and the reason; '' = undeclared
    settled_at: int  # business; 0 = open
    settled_by: str  # 'call', 'reconcile', or who decided
    interrupted: int = 0  # attempts cut off by a crash or the last-instant check; not counted against the limit
    undoes: str = ""  # 'visit:key' of the effect that this one undoes; '' for other effects
    by_run: str = ""  # once per tenant: the owning run, the only one that settles it; else ''
    # once per tenant: USED after another run used its answer, UNDO_RESERVED after its undo started; any effect: STATED
    # while a person's answer may be corrected, because no execution, run or undo has used it
    shared: int = 0
    keep_ms: int = 0  # once per tenant: how long the settled row is kept; 0 = without limit
    redone: int = 0  # once per tenant: calls repeated after an undo; part of the idempotency key
    first_visit: int = 0  # visit in which its run first intended it; 0 = recorded by a version that did not keep it
    child_text: str = ""  # of a child run, whose workflow is `activity` and whose id is `external_id`; '' = a call

    @property
    def error(self) -> effect_columns.EffectError | None:
        """Return the refusal or the error of the last failed attempt; None without an error."""
        return EFFECT.decode(effect_columns.ERROR, self.error_text, self) if self.error_text else None

    @property
    def code(self) -> str:
        """Return the code of the error; '' without an error."""
        return (self.error or effect_columns.NO_ERROR).code

    @property
    def child(self) -> effect_columns.ChildTerms:
        """Return the terms of a child run; the defaults for a call."""
        return (
            EFFECT.decode(effect_columns.CHILD, self.child_text, self) if self.child_text else effect_columns.NO_CHILD
        )

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the call, decoded at each call."""
        return EFFECT.decode_object("args", self.args, self)

    def answer(self) -> Any:
        """Return the response of the call, decoded at each call; None without a response."""
        return None if self.response is None else EFFECT.decode_data("response", self.response, self)


class Memo(NamedTuple):
    """Recorded value of a lookup, keyed like an effect."""

    tenant: str
    run: str
    visit: int
    key: str
    activity: str
    digest: str
    response: bytes | None
    error_text: str
    at: int

    @property
    def error(self) -> effect_columns.EffectError | None:
        """Return the refusal of the lookup; None if it was answered."""
        return MEMO.decode(effect_columns.ERROR, self.error_text, self) if self.error_text else None


class Evidence(NamedTuple):
    """Answer that arrived after its holder was replaced. Reconcilers and people read it; the run does not."""

    tenant: str
    run: str
    visit: int
    key: str
    epoch: int
    answer_text: str
    at: int

    @property
    def answer(self) -> effect_columns.EvidenceAnswer:
        """Return the late answer, or the proof that no attempt was sent."""
        return EVIDENCE.decode(effect_columns.ANSWER, self.answer_text, self)


class Wait(NamedTuple):
    """Wait of a visit. Its first request fixes the deadline, its end fixes the binding."""

    tenant: str
    run: str
    visit: int
    key: str
    version: int
    status: machine.WaitStatus
    kind: str  # sleep, receive, collect, approval
    name: str
    deadline: int  # business; 0 = none
    most: int  # collect: maximum number of messages; 0 = no limit
    binding_text: str
    since: int
    schema: str = ""  # JSON Schema of the awaited signal; '' for other waits, and if it has none that fits
    due_text: str = ""  # of a deadline in business days

    def signal_schema(self) -> dict[str, Any] | None:
        """Return the JSON Schema of the awaited signal, decoded at each call; None without one."""
        return WAIT.decode_object("schema", self.schema, self) if self.schema else None

    @property
    def due(self) -> Due | None:
        """Return how the deadline was counted; None for one that is not in business days."""
        return WAIT.decode(DUE, self.due_text, self) if self.due_text else None

    @property
    def binding(self) -> tuple[int, ...] | None:
        """Return the messages that ended the wait; () while it is open, None if its deadline ended it."""
        return WAIT.decode(effect_columns.BINDING, self.binding_text, self)


class Approval(NamedTuple):
    """Request to a person and its answer. `plans` are the exact calls offered."""

    tenant: str
    run: str
    id: str
    version: int
    status: machine.ApprovalStatus
    visit: int
    wait: str  # key of the wait that it answers
    plans_text: str
    summary: str
    risk: str
    who: str  # the approval rule: who may decide
    requested_by: str
    asked_at: int
    within_until: int
    valid_ms: int
    decided_at: int
    decided_by: str
    claims_text: str
    reason: str
    chosen: str  # digest of the approved plan
    valid_until: int
    consumed_by: str  # 'visit:key' of the effect that used it
    again: int  # rounds left that a person may request, -1 = not counted, 0 = none
    quorum: int = 1  # number of different people who must approve
    votes_text: str = ""
    not_requester: int = 0  # 1: the person who started the run may not decide
    editable_text: str = ""
    claimed_by: str = ""  # person who acknowledged it; informative only
    calendar_text: str = ""  # of an approval whose `within` or `valid_for` is in business days

    @property
    def plans(self) -> tuple[approval_columns.OfferedCall, ...]:
        """Return the offered calls, the requested one first; after them those that approvers changed."""
        return APPROVAL.decode(approval_columns.PLANS, self.plans_text, self)

    @property
    def claims(self) -> tuple[str, ...]:
        """Return the roles of the person who decided."""
        return APPROVAL.decode(approval_columns.CLAIMS, self.claims_text, self)

    @property
    def votes(self) -> tuple[approval_columns.ApprovalVote, ...]:
        """Return the votes so far; () if the approval has no quorum."""
        return APPROVAL.decode(approval_columns.VOTES, self.votes_text, self)

    @property
    def calendar(self) -> approval_columns.ApprovalCalendar:
        """Return the terms that are counted in business days."""
        found = approval_columns.NO_CALENDAR
        return APPROVAL.decode(approval_columns.CALENDAR, self.calendar_text, self) if self.calendar_text else found

    @property
    def editable(self) -> tuple[str, ...]:
        """Return the arguments that the approver may change."""
        return APPROVAL.decode(approval_columns.EDITABLE, self.editable_text, self)


class Usage(NamedTuple):
    """Run that uses, or waits for, an effect shared within its tenant (S-18)."""

    tenant: str
    run: str
    key: str
    at: int


EFFECT: Final = Kind("effect", Effect, 4, True, False)
MEMO: Final = Kind("memo", Memo, 4, False, False)
EVIDENCE: Final = Kind("evidence", Evidence, 5, False, False)
WAIT: Final = Kind("wait", Wait, 4, True, False)
APPROVAL: Final = Kind("approval", Approval, 3, True, True)
USAGE: Final = Kind("usage", Usage, 3, False, True)
