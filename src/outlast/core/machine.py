"""Statuses, transitions and reasons for attention: the only module that defines them.

Theory of operation
-------------------
Outlast stores seven kinds of rows that have a status: runs, effects, waits, approvals, leases, webhook subscriptions
and webhook deliveries. Each is a finite state machine. TABLE lists all transitions of all machines. A transition is
a triple: a verb moves a row from a source status to a target status. Source None means that the verb creates the row.

A *verb* is a pure function in core/verbs.py, core/effect_verbs.py, core/approvals.py and their neighbours. It takes
rows, and returns one commit with the rows that follow. It finds the new status with `run_target(verb, row.status)` or
one of its sisters. These raise IllegalMove for a pair that TABLE does not list, so no code path can invent a
transition. No other module compares or assigns a status by its text; tests/test_tidy.py enforces that.

A verb decides under assumptions that may be outdated when the store applies its commit. Therefore a commit names the
version of each row that it replaces, and the claim (run, epoch, visit) under which the verb was spoken. The store
applies the commit only if they still hold. A caller that loses such a race gets Stale, reloads, and decides again.
This module knows neither time nor storage nor workers. It answers one question: may this verb be spoken here, and
what is the status after it?

The machines work together in three places:

- *A run and its holder.* `claim` gives a run to one worker and raises its epoch. `advance` enters the next node. The
  holder returns the run with `park`, `retry`, `await_settle`, `queue`, `flag` or `hand_back`. All of them raise the
  epoch again, so a replaced worker can write nothing. A run whose worker died is claimed from RUNNING, and becomes
  RECOVERING until its open effects are settled.
- *An effect and its call.* `intend` is durable before the call, `record` or `refuse` after it. An effect that is
  still INTENDED when its holder dies may or may not have happened. The next holder asks the receiver (`settle`), waits
  until the call can no longer arrive and repeats it (`intend`), or asks a person (`mark_uncertain`). UNCERTAIN leaves
  only by a person's answer. That answer may be corrected until it is used, and is refused (`unfit`) if it cannot be.
- *A run and its end.* `complete` ends a run at once. A failed or cancelled run with effects to undo becomes
  COMPENSATING first. From there no verb leads back to the execution of nodes.

REQUIRES_ATTENTION is not a status. It is a list of reasons on a run of any unfinished status; CHOICES lists the answers
to each reason. The diagrams in docs/lifecycle.md are drawn from TABLE. A test counts `fired` and demands that every
transition is exercised.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple, TypeVar, cast

from outlast.errors import IllegalMove


class RunStatus(StrEnum):
    """Status of a run. REQUIRES_ATTENTION is no status, but a list of reasons on the run."""

    QUEUED = "queued"  # waits for a worker or a slot
    RUNNING = "running"  # one worker executes it
    WAITING = "waiting"  # parked: waits for a person, a signal, a time or a retry
    RECOVERING = "recovering"  # effects a predecessor left open are settled, or their settle time is waited out
    COMPENSATING = "compensating"  # its effects are being undone
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class EffectStatus(StrEnum):
    """Status of one call of an activity, as far as the ledger knows."""

    INTENDED = "intended"  # durable before the call
    DONE = "done"  # durable after it, with the response
    REFUSED = "refused"  # the receiver refused it
    UNCERTAIN = "uncertain"  # it may or may not have happened; a person decides
    UNDONE = "undone"  # compensated


class WaitStatus(StrEnum):
    """Status of a named wait: open until one commit binds it, or closes it because another wait ended first."""

    OPEN = "open"
    BOUND = "bound"
    CLOSED = "closed"


class MemberStatus(StrEnum):
    """Status of a call or a child run of a set that has ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    NOT_STARTED = "not_started"  # the set had ended before it began


class ApprovalStatus(StrEnum):
    """Status of a request to a person, which is decided at most once."""

    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    AGAIN = "again"  # rejected; the run tries once more
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"


class LeaseStatus(StrEnum):
    """Status of the row of a worker or writer. A closed one never renews or writes again."""

    ALIVE = "alive"
    CLOSED = "closed"


class SubscriptionStatus(StrEnum):
    """Status of a webhook subscription. Only an active one receives events."""

    ACTIVE = "active"
    DISABLED = "disabled"  # by a person, or because the receiver answered 410
    REMOVED = "removed"


class DeliveryStatus(StrEnum):
    """Status of an event that a subscription did not accept at the first attempt, or of a message to approvers."""

    SCHEDULED = "scheduled"  # a reminder, due later
    OWED = "owed"  # will be sent again
    DELIVERED = "delivered"
    DEAD = "dead"  # given up; a person decides
    NOT_NEEDED = "not_needed"  # the approval was decided before the message was sent


AnyStatus = TypeVar("AnyStatus", bound="Status")
Status = RunStatus | EffectStatus | WaitStatus | ApprovalStatus | LeaseStatus | SubscriptionStatus | DeliveryStatus
R, E, W, A, L, S, D = (
    RunStatus,
    EffectStatus,
    WaitStatus,
    ApprovalStatus,
    LeaseStatus,
    SubscriptionStatus,
    DeliveryStatus,
)

TERMINAL: Final = frozenset({R.COMPLETED, R.FAILED, R.CANCELLED})
HELD: Final = frozenset({R.RUNNING, R.RECOVERING, R.COMPENSATING})
OPEN_EFFECT: Final = frozenset({E.INTENDED, E.UNCERTAIN})
SWEPT: Final = "*"  # Subscription.swept: no old run is left to look through
ENDED: Final = "ended"  # owner of an ended run: no worker can claim it, and messages to it are refused
NO_HOLDER: Final = frozenset({"", ENDED})  # owners of runs that no worker holds


class Transition(NamedTuple):
    """One legal transition: `verb` leads from `source` (None: the row does not exist yet) to `target`."""

    verb: str
    source: Status | None
    target: Status


def _transitions(verb: str, target: Status, *sources: Status | None) -> tuple[Transition, ...]:
    return tuple(Transition(verb, source, target) for source in sources)


TABLE: Final[tuple[Transition, ...]] = (
    # run
    *_transitions("start", R.QUEUED, None),
    *_transitions("claim", R.RUNNING, R.QUEUED, R.WAITING),
    *_transitions("claim", R.RECOVERING, R.RUNNING, R.RECOVERING),  # its worker died, or its slice ran out
    *_transitions("admit", R.RUNNING, R.RUNNING, R.RECOVERING),  # RECOVERING: its holder died before the admission
    *_transitions("queue", R.QUEUED, R.RUNNING, R.RECOVERING),  # no slot is free
    *_transitions("advance", R.RUNNING, R.RUNNING, R.RECOVERING),
    *_transitions("log", R.RUNNING, R.RUNNING),  # its node wrote a line and goes on
    *_transitions("log", R.RECOVERING, R.RECOVERING),
    *(
        Transition("note_fork", each, each) for each in (R.QUEUED, R.RUNNING, R.WAITING, R.RECOVERING)
    ),  # a caller began a fork of it
    *_transitions("move", R.RUNNING, R.RUNNING),  # to another version or node; the visit stays
    *_transitions("move", R.RECOVERING, R.RECOVERING),
    *(
        Transition("transfer", each, each) for each in (R.QUEUED, R.WAITING, R.RECOVERING, R.COMPENSATING)
    ),  # to another engine
    *_transitions("park", R.WAITING, R.RUNNING, R.RECOVERING),
    *_transitions("retry", R.WAITING, R.RUNNING, R.RECOVERING),  # a durable wait between two attempts
    *_transitions("await_settle", R.RECOVERING, R.RUNNING, R.RECOVERING),  # until a sent call can no longer arrive
    *_transitions("hand_back", R.QUEUED, R.RUNNING, R.RECOVERING),
    *_transitions(
        "requeue", R.RECOVERING, R.RUNNING, R.RECOVERING
    ),  # its worker died, and the worker that noticed it is full
    *_transitions("flag", R.WAITING, R.RUNNING, R.RECOVERING),  # to attention; node and visit stay
    *_transitions("compensate", R.COMPENSATING, R.RUNNING, R.RECOVERING),  # its end is decided; undo comes first
    *(
        Transition(verb, R.COMPENSATING, R.COMPENSATING)  # it executes no node again
        for verb in ("claim", "park", "retry", "await_settle", "hand_back", "requeue", "flag")
    ),
    *_transitions(
        "restore", R.WAITING, R.QUEUED, R.RUNNING, R.WAITING, R.RECOVERING
    ),  # from a backup; a person continues it
    *_transitions("restore", R.COMPENSATING, R.COMPENSATING),
    *_transitions("complete", R.COMPLETED, R.RUNNING, R.RECOVERING),
    *_transitions("fail", R.FAILED, R.RUNNING, R.RECOVERING, R.COMPENSATING),
    *_transitions("cancel", R.CANCELLED, R.RUNNING, R.RECOVERING, R.COMPENSATING),
    # effect
    *_transitions("intend", E.INTENDED, None, E.INTENDED, E.REFUSED),  # REFUSED: only after a person reopened it
    *_transitions("intend", E.INTENDED, E.UNDONE),  # per tenant: new work, under a new idempotency key
    *_transitions("use", E.DONE, E.DONE),  # per tenant: another run uses the response; excludes reserve_undo
    *_transitions("reserve_undo", E.DONE, E.DONE),  # per tenant: its undo is about to start; excludes use
    *_transitions("record", E.DONE, E.INTENDED),
    *_transitions("refuse", E.REFUSED, E.INTENDED),
    *_transitions("withhold", E.REFUSED, None, E.REFUSED),  # an undo that must not be called now
    *_transitions("defer", E.INTENDED, E.INTENDED),  # an attempt without an outcome; another follows
    *_transitions("reopen", E.REFUSED, E.REFUSED),  # a person: try again
    *_transitions("mark_uncertain", E.UNCERTAIN, E.INTENDED),
    *_transitions("settle", E.DONE, E.INTENDED),  # the receiver confirmed it
    *_transitions("happened", E.DONE, E.UNCERTAIN),
    *_transitions("did_not_happen", E.REFUSED, E.UNCERTAIN),  # reopened: the next re-run intends it again
    *_transitions("give_up", E.REFUSED, E.UNCERTAIN),
    *_transitions("correct_to_happened", E.DONE, E.DONE, E.REFUSED),  # a person's answer that nothing has used
    *_transitions("correct_to_did_not_happen", E.REFUSED, E.DONE, E.REFUSED),
    *_transitions("correct_to_give_up", E.REFUSED, E.DONE, E.REFUSED),
    *_transitions("give", E.DONE, E.DONE),  # an execution is given a person's answer; excludes a correction
    *_transitions("give", E.REFUSED, E.REFUSED),
    *_transitions("unfit", E.UNCERTAIN, E.DONE),  # a person's answer that the activity's type cannot load
    *_transitions("undone_manually", E.DONE, E.REFUSED, E.UNCERTAIN),  # a failed undo that a person did manually
    *_transitions("undo", E.UNDONE, E.DONE),  # in the commit that records its undo
    # after a restore, REFUSED only if it was reopened: it is settled as declared once a person lets the run continue
    *_transitions("reopen_after_restore", E.INTENDED, E.INTENDED, E.REFUSED),
    *_transitions("mark_uncertain_after_restore", E.UNCERTAIN, E.UNCERTAIN),
    # wait
    *_transitions("open_wait", W.OPEN, None),
    *_transitions("bind", W.BOUND, W.OPEN),
    *_transitions("close_wait", W.CLOSED, W.OPEN),  # another wait of the set ended first
    # approval
    *_transitions("ask", A.PENDING, None),
    *_transitions("vote", A.PENDING, A.PENDING),  # one of several required approvals
    *_transitions("acknowledge", A.PENDING, A.PENDING),  # informational: a person has seen it
    *_transitions("reassign", A.PENDING, A.PENDING),
    *_transitions("approve", A.APPROVED, A.PENDING),
    *_transitions("reject", A.REJECTED, A.PENDING),
    *_transitions("again", A.AGAIN, A.PENDING),
    *_transitions("expire", A.EXPIRED, A.PENDING),
    *_transitions("withdraw", A.WITHDRAWN, A.PENDING, A.APPROVED),
    *_transitions("consume", A.APPROVED, A.APPROVED),
    # worker and writer
    *_transitions("open_lease", L.ALIVE, None),
    *_transitions("renew", L.ALIVE, L.ALIVE),
    *_transitions("close_lease", L.CLOSED, L.ALIVE),
    # subscription
    *_transitions("subscribe", S.ACTIVE, None),
    *_transitions("rotate", S.ACTIVE, S.ACTIVE),
    *_transitions("disable", S.DISABLED, S.ACTIVE),
    *_transitions("enable", S.ACTIVE, S.DISABLED),
    *_transitions("remove", S.REMOVED, S.ACTIVE, S.DISABLED),
    # delivery
    *_transitions("schedule", D.SCHEDULED, None, D.SCHEDULED),  # a reminder of an approval
    *_transitions("send", D.OWED, None, D.OWED, D.SCHEDULED),  # sent but not accepted; another attempt follows
    *_transitions("close", D.DELIVERED, None, D.OWED, D.SCHEDULED),  # None: a message to approvers always has a row
    *_transitions("dead_letter", D.DEAD, None, D.OWED, D.SCHEDULED),  # given up
    *_transitions("spare", D.NOT_NEEDED, D.OWED, D.SCHEDULED),  # the approval is decided
    *_transitions("redeliver", D.OWED, None, D.OWED, D.DELIVERED, D.DEAD, D.NOT_NEEDED),  # requested by a person
)
_TARGET: Final = {(each.verb, each.source): each.target for each in TABLE}
assert len(_TARGET) == len(TABLE), "one row for each verb and source"

fired: Final[set[tuple[str, Status | None]]] = set()  # read by the transition-coverage test


def can(verb: str, source: Status | None) -> bool:
    """True if `verb` may be spoken from `source`."""
    return (verb, source) in _TARGET


def _targets(status: type[AnyStatus]) -> Callable[[str, AnyStatus | None], AnyStatus]:
    """Return a function for the status of a row after a verb. It raises IllegalMove if the table has no such row."""
    targets = {(each.verb, each.source): cast(AnyStatus, each.target) for each in TABLE if type(each.target) is status}

    def target(verb: str, source: AnyStatus | None) -> AnyStatus:
        found = targets.get((verb, source))
        if found is None:
            raise IllegalMove(f"cannot {verb} from {source}")
        fired.add((verb, source))
        return found

    return target


run_target: Final = _targets(RunStatus)
effect_target: Final = _targets(EffectStatus)
wait_target: Final = _targets(WaitStatus)
approval_target: Final = _targets(ApprovalStatus)
lease_target: Final = _targets(LeaseStatus)
subscription_target: Final = _targets(SubscriptionStatus)
delivery_target: Final = _targets(DeliveryStatus)


class Reason(StrEnum):
    """Reasons for which a run needs a person; the closed list."""

    APPROVAL_TIMEOUT = "approval_timeout"
    TOTAL_TIMEOUT = "total_timeout"
    RETRIES_EXHAUSTED = "retries_exhausted"
    EFFECT_UNCERTAIN = "effect_uncertain"
    EXCEPTION = "exception"
    NODE_GONE = "node_gone"
    STRANDED_VERSION = "stranded_version"
    VISITS_EXHAUSTED = "visits_exhausted"
    NODE_DIVERGED = "node_diverged"
    CONTRADICTION = "contradiction"
    UNDO_FAILED = "undo_failed"
    POISONED = "poisoned"
    POLICY_DENIED = "policy_denied"
    RESULTS_MISSING = "results_missing"
    WEBHOOK_DEAD = "webhook_dead"
    RESTORED = "restored"
    BUDGET_EXHAUSTED = "budget_exhausted"
    CHILD_FAILED = "child_failed"


class Choice(StrEnum):
    """Answers that a person may give; each reason offers its own."""

    ASK_AGAIN = "ask_again"
    EXTEND = "extend"
    RETRY = "retry"
    HAPPENED = "happened"
    DID_NOT_HAPPEN = "did_not_happen"
    GIVE_UP = "give_up"
    CONTINUE = "continue"
    USE_RECORDED = "use_recorded"
    ACCEPT = "accept"
    FAIL = "fail"
    CANCEL = "cancel"
    MOVE = "move"
    ONE_MORE = "one_more"
    DONE_BY_HAND = "done_by_hand"
    REDELIVER = "redeliver"
    DISABLE = "disable"
    RAISE = "raise"


IF_IGNORED: Final = "stays as it is"  # true of every reason but two


class ReasonRule(NamedTuple):
    """Declaration of one reason for attention. Commands, pages, HTTP and docs read it."""

    cause: str
    """When a run has the reason: its row in docs/attention.md, as Markdown with links from the top of the checkout."""
    choices: tuple[Choice, ...]
    on_continue: Choice | None = None
    """Choice that the operator's `continue` means; None if only a specific choice answers the reason."""
    stops: bool = True
    """False if the run continues as far as it can while the person is asked."""
    settles: bool = False
    """True if open effects of the run are settled while the person is asked."""
    kept: Choice | None = None
    """Answer kept in the run until the transition that it allows, so that a crash or a park before it loses none."""
    sentence: str = "{detail}"
    """Clause of `outlast explain`, of the facts that insight/explanation.py names."""
    if_ignored: str = IF_IGNORED
    """Fate of a run whose attention is never resolved."""


_ENDS = (Choice.FAIL, Choice.CANCEL)
_GO_ON = (Choice.CONTINUE, *_ENDS)
RULES: Final[dict[Reason, ReasonRule]] = {
    Reason.EXCEPTION: ReasonRule(
        "a node raised an unexpected exception, or did not catch a refusal, or did not return within the execution "
        "budget",
        _GO_ON,
        on_continue=Choice.CONTINUE,
        sentence="node {node} raised {detail}",
    ),
    Reason.EFFECT_UNCERTAIN: ReasonRule(
        "a call may or may not have happened",
        (Choice.HAPPENED, Choice.DID_NOT_HAPPEN, Choice.GIVE_UP),
        settles=True,
        sentence="{call} may or may not have happened ({detail}){late}; «did not happen» is accepted {accepted}",
    ),
    Reason.RETRIES_EXHAUSTED: ReasonRule(
        "the last attempt of an effect that certainly did not happen has failed",
        (Choice.RETRY, Choice.GIVE_UP, Choice.CANCEL),
        on_continue=Choice.RETRY,
        sentence="{call} did not happen {detail}",
    ),
    Reason.APPROVAL_TIMEOUT: ReasonRule(
        "no decision was made in time",
        (Choice.ASK_AGAIN, Choice.CANCEL),
        sentence="{detail}; without an answer it is cancelled {end}",
        if_ignored="cancelled after 7 days",
    ),
    Reason.TOTAL_TIMEOUT: ReasonRule(
        "the run has passed its time limit",
        (Choice.EXTEND, Choice.CANCEL),
        stops=False,
        sentence="passed its ceiling {ago} ago ({trigger})",
    ),
    Reason.VISITS_EXHAUSTED: ReasonRule(
        "a node was entered `max_visits` times",
        (Choice.ONE_MORE, *_ENDS),
        on_continue=Choice.ONE_MORE,
        kept=Choice.ONE_MORE,
    ),
    Reason.POLICY_DENIED: ReasonRule(
        "the policy denied a call, or a call had no approval", _GO_ON, on_continue=Choice.CONTINUE
    ),
    Reason.CONTRADICTION: ReasonRule(
        "a key is recorded with other arguments (`use_recorded` if the same activity recorded it), or a stored state "
        "does not fit the code",
        (Choice.CONTINUE, Choice.USE_RECORDED, *_ENDS),
        on_continue=Choice.CONTINUE,
    ),
    Reason.NODE_DIVERGED: ReasonRule(
        "a re-run asks for [other keys](docs/effects.md#other-keys-in-a-re-run) than an earlier one recorded, or "
        "returned without asking for all of them; or it asks approvers about "
        "[another plan](docs/approvals.md#when-the-plan-changes) again and again",
        (Choice.CONTINUE, Choice.ACCEPT, *_ENDS),
        on_continue=Choice.CONTINUE,
        settles=True,
    ),
    Reason.POISONED: ReasonRule(
        "three workers died while they held this run and no other", _GO_ON, on_continue=Choice.CONTINUE
    ),
    Reason.NODE_GONE: ReasonRule(
        "the run's current node is no longer in the code", (Choice.MOVE, Choice.CANCEL), on_continue=Choice.MOVE
    ),
    Reason.STRANDED_VERSION: ReasonRule(
        "no worker serves the run's version, and no [migration](docs/deploys.md) leads to a served one. The run "
        "continues by itself when a worker of its version returns",
        (Choice.MOVE, Choice.CANCEL),
        on_continue=Choice.MOVE,
    ),
    Reason.UNDO_FAILED: ReasonRule("an undo did not succeed", (Choice.RETRY, Choice.DONE_BY_HAND)),
    Reason.RESULTS_MISSING: ReasonRule(
        "promised results are missing",
        (Choice.CONTINUE, Choice.FAIL),
        on_continue=Choice.CONTINUE,
        kept=Choice.CONTINUE,
    ),
    Reason.CHILD_FAILED: ReasonRule(
        "a [child run](docs/children.md) has failed or was cancelled, and the node did not catch it",
        (Choice.RETRY, *_ENDS),
        sentence="{detail}",
    ),
    Reason.BUDGET_EXHAUSTED: ReasonRule(
        "the run, or the tree of runs below it, has used up its budget, or its tenant the "
        "[daily budget](docs/budgets.md)",
        (Choice.RAISE, Choice.CANCEL),
        settles=True,
        if_ignored="stays as it is; if only a daily budget is used up, it continues the next day",
    ),
    Reason.WEBHOOK_DEAD: ReasonRule(
        "an endpoint no longer accepts deliveries",
        (Choice.REDELIVER, Choice.DISABLE),
        stops=False,
        sentence="has needed a person for webhook_dead for {ago}",
    ),
    Reason.RESTORED: ReasonRule("the store was restored from a backup", _GO_ON, on_continue=Choice.CONTINUE),
}
assert set(RULES) == set(Reason), "every reason has its rule"
assert all({r.on_continue, r.kept} <= {None, *r.choices} for r in RULES.values()), "a meaning is one of the choices"

CHOICES: Final = {reason: rule.choices for reason, rule in RULES.items()}
OVERLAY_ONLY: Final = frozenset(reason for reason, rule in RULES.items() if not rule.stops)
"""Reasons that stop nothing: the run continues as far as it can."""

_RUN_ENDS: Final = "open effects are settled and done effects are undone, then the run ends"
CONSEQUENCES: Final[Mapping[Choice, str]] = {
    Choice.HAPPENED: "nothing is called, and the run takes this answer",
    Choice.DID_NOT_HAPPEN: "{call} is called again, unless the run was asked to end",
    Choice.GIVE_UP: "nothing is called, the outcome stays unknown, and the node gets the refusal given_up",
    Choice.RETRY: "{call} is called again, with a new set of attempts",
    Choice.CONTINUE: "{node} runs again with the current code; recorded calls are not repeated",
    Choice.MOVE: "the run goes on in a version and node of your choice; recorded calls are not repeated",
    Choice.ASK_AGAIN: "the approvers are asked again, with a new approval",
    Choice.EXTEND: "the run has more time from now on; nothing else changes",
    Choice.RAISE: "the run has a larger budget and goes on",
    Choice.ONE_MORE: "{node} is entered once more than allowed",
    Choice.ACCEPT: "{node} goes on without the missing calls, and calls that were held are made",
    Choice.USE_RECORDED: "nothing is called, and the recorded answer is used for the new arguments",
    Choice.DONE_BY_HAND: "nothing is called, and the undo is recorded as done by hand",
    Choice.FAIL: f"{_RUN_ENDS} as failed",
    Choice.CANCEL: f"{_RUN_ENDS} as cancelled",
    Choice.REDELIVER: "all failed deliveries are sent again",
    Choice.DISABLE: "nothing is sent until the webhook is enabled",
}
"""Consequence of each choice, a clause of `{call}` and `{node}`. Pages, commands, HTTP and docs read it."""
FOR_REASON: Final[Mapping[tuple[Reason, Choice], str]] = {
    (Reason.RETRIES_EXHAUSTED, Choice.GIVE_UP): "nothing is called, and the node gets the refusal given_up",
    (Reason.UNDO_FAILED, Choice.RETRY): "the undo is called again",
    (Reason.CHILD_FAILED, Choice.RETRY): "the child run is started again",
    (Reason.RESULTS_MISSING, Choice.CONTINUE): "the run goes on without the missing results",
}
"""The clauses that differ for a reason."""
assert set(CONSEQUENCES) == set(Choice), "every choice has a consequence"
assert all(choice in CHOICES[reason] for reason, choice in FOR_REASON), "a reason offers what it words"


def consequence_of(choice: Choice, reason: Reason | None = None, *, call: str = "", node: str = "") -> str:
    """Return the consequence of a choice. `call`: the activity concerned; `node`: the node of the run."""
    text = FOR_REASON.get((reason, choice)) if reason is not None else None
    return (text or CONSEQUENCES[choice]).format(
        call=call or "the activity", node=f"node {node}" if node else "the node"
    )
