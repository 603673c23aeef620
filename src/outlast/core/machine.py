"""Every status, every legal move and every reason for attention, and the only place for them.

Rule 1: a status literal in any other module is a bug (tests/test_tidy.py looks for them).
Rule 2: this file knows no time, no storage and no worker. It answers one question: from here, may
this verb be spoken, and where does it lead?

The diagrams in docs/lifecycle.md are drawn from TABLE; transition coverage is counted on `fired`.
"""

from enum import StrEnum
from typing import Final, NamedTuple

from outlast.errors import IllegalMove


class RunStatus(StrEnum):
    """Where the engine stands with a run; REQUIRES_ATTENTION is an overlay, never one of these."""

    QUEUED = "queued"  # wants a worker, or a slot
    RUNNING = "running"  # one worker walks it
    WAITING = "waiting"  # a row that waits for a person, a signal, a time or a retry
    RECOVERING = "recovering"  # effects a predecessor left open are settled, or their settle time is waited out
    COMPENSATING = "compensating"  # undo runs
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class EffectStatus(StrEnum):
    """What is known of one effect on the world."""

    INTENDED = "intended"  # durable before the call
    DONE = "done"  # durable after it, with the response
    REFUSED = "refused"  # the other side said no, for certain
    UNCERTAIN = "uncertain"  # it may have happened; a person decides
    UNDONE = "undone"  # compensated


class WaitStatus(StrEnum):
    """A named wait is open until one commit binds it."""

    OPEN = "open"
    BOUND = "bound"


class ApprovalStatus(StrEnum):
    """A request to a person, decided at most once."""

    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    AGAIN = "again"  # rejected, and the run should go round once more
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"


class LeaseStatus(StrEnum):
    """A worker's or writer's row: once closed it can never renew or write."""

    ALIVE = "alive"
    CLOSED = "closed"


class SubscriptionStatus(StrEnum):
    """Whether an address is told of events."""

    ACTIVE = "active"
    DISABLED = "disabled"  # by a person, or because it answered that it is gone
    REMOVED = "removed"


class DeliveryStatus(StrEnum):
    """An event that one subscription did not accept at the first attempt."""

    OWED = "owed"  # it will be sent again
    DELIVERED = "delivered"
    DEAD = "dead"  # given up: a person decides


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
ENDED: Final = "ended"  # the owner of a terminal run: nobody can take it, and a post to it is refused


class Transition(NamedTuple):
    """One legal move: spoken from `source` (None: the row does not exist yet), `verb` leads to `target`."""

    verb: str
    source: Status | None
    target: Status


def _moves(verb: str, target: Status, *sources: Status | None) -> tuple[Transition, ...]:
    return tuple(Transition(verb, source, target) for source in sources)


TABLE: Final[tuple[Transition, ...]] = (
    # run
    *_moves("start", R.QUEUED, None),
    *_moves("claim", R.RUNNING, R.QUEUED, R.WAITING),
    *_moves("claim", R.RECOVERING, R.RUNNING, R.RECOVERING),  # the owner died, or its slice ran out
    *_moves("admit", R.RUNNING, R.RUNNING, R.RECOVERING),  # recovering: its first holder died before it was admitted
    *_moves("queue", R.QUEUED, R.RUNNING, R.RECOVERING),  # no slot is free
    *_moves("advance", R.RUNNING, R.RUNNING, R.RECOVERING),
    *_moves("move", R.RUNNING, R.RUNNING),  # to another version or node; the visit stays
    *_moves("move", R.RECOVERING, R.RECOVERING),
    *_moves("park", R.WAITING, R.RUNNING, R.RECOVERING),
    *_moves("retry", R.WAITING, R.RUNNING, R.RECOVERING),  # a durable wait between two attempts
    *_moves("await_settle", R.RECOVERING, R.RUNNING, R.RECOVERING),  # until a call in flight can no longer land
    *_moves("hand_back", R.QUEUED, R.RUNNING, R.RECOVERING),
    *_moves("requeue", R.RECOVERING, R.RUNNING, R.RECOVERING),  # its worker died, and the finder has no place for it
    *_moves("flag", R.WAITING, R.RUNNING, R.RECOVERING),  # to attention; position and visit stay
    *_moves("compensate", R.COMPENSATING, R.RUNNING, R.RECOVERING),  # how it ends is decided; undo goes first
    *(
        Transition(verb, R.COMPENSATING, R.COMPENSATING)  # it never walks again: what wakes it leads to undo
        for verb in ("claim", "park", "retry", "await_settle", "hand_back", "requeue", "flag")
    ),
    *_moves("restore", R.WAITING, R.QUEUED, R.RUNNING, R.WAITING, R.RECOVERING),  # a backup; a person lets it go on
    *_moves("restore", R.COMPENSATING, R.COMPENSATING),
    *_moves("complete", R.COMPLETED, R.RUNNING, R.RECOVERING),
    *_moves("fail", R.FAILED, R.RUNNING, R.RECOVERING, R.COMPENSATING),
    *_moves("cancel", R.CANCELLED, R.RUNNING, R.RECOVERING, R.COMPENSATING),
    # effect
    *_moves("intend", E.INTENDED, None, E.INTENDED, E.REFUSED),  # REFUSED: only once a person re-opened it
    *_moves("intend", E.INTENDED, E.UNDONE),  # scope `tenant`: new work, under a key of its own at the receiver
    *_moves("use", E.DONE, E.DONE),  # scope `tenant`: another run takes the recorded answer; no undo after that
    *_moves("reserve_undo", E.DONE, E.DONE),  # scope `tenant`: its undo is about to begin; no use after that
    *_moves("record", E.DONE, E.INTENDED),
    *_moves("refuse", E.REFUSED, E.INTENDED),
    *_moves("withhold", E.REFUSED, None, E.REFUSED),  # an undo that must not be called as things stand
    *_moves("defer", E.INTENDED, E.INTENDED),  # an attempt ended without an outcome; another follows
    *_moves("reopen", E.REFUSED, E.REFUSED),  # a person: try again
    *_moves("mark_uncertain", E.UNCERTAIN, E.INTENDED),
    *_moves("settle", E.DONE, E.INTENDED),  # the receiver was asked and knows it
    *_moves("happened", E.DONE, E.UNCERTAIN),
    *_moves("did_not_happen", E.REFUSED, E.UNCERTAIN),  # refused and re-opened: the next walk intends anew
    *_moves("give_up", E.REFUSED, E.UNCERTAIN),
    *_moves("undone_manually", E.DONE, E.REFUSED, E.UNCERTAIN),  # an undo that failed: a person did it
    *_moves("undo", E.UNDONE, E.DONE),  # in the commit that records its undo
    *_moves(
        "mark_uncertain_after_restore", E.UNCERTAIN, E.INTENDED, E.UNCERTAIN, E.REFUSED
    ),  # after a restore; REFUSED: re-opened
    # wait
    *_moves("open_wait", W.OPEN, None),
    *_moves("bind", W.BOUND, W.OPEN),
    # approval
    *_moves("ask", A.PENDING, None),
    *_moves("vote", A.PENDING, A.PENDING),  # one approval of several that it takes
    *_moves("acknowledge", A.PENDING, A.PENDING),  # somebody looks at it, which binds nobody
    *_moves("reassign", A.PENDING, A.PENDING),
    *_moves("approve", A.APPROVED, A.PENDING),
    *_moves("reject", A.REJECTED, A.PENDING),
    *_moves("again", A.AGAIN, A.PENDING),
    *_moves("expire", A.EXPIRED, A.PENDING),
    *_moves("withdraw", A.WITHDRAWN, A.PENDING, A.APPROVED),
    *_moves("consume", A.APPROVED, A.APPROVED),
    # worker and writer
    *_moves("open_lease", L.ALIVE, None),
    *_moves("renew", L.ALIVE, L.ALIVE),
    *_moves("close_lease", L.CLOSED, L.ALIVE),
    # subscription
    *_moves("subscribe", S.ACTIVE, None),
    *_moves("rotate", S.ACTIVE, S.ACTIVE),
    *_moves("disable", S.DISABLED, S.ACTIVE),
    *_moves("enable", S.ACTIVE, S.DISABLED),
    *_moves("remove", S.REMOVED, S.ACTIVE, S.DISABLED),
    # delivery
    *_moves("send", D.OWED, None, D.OWED),  # sent, and not accepted: another attempt follows
    *_moves("close", D.DELIVERED, D.OWED),
    *_moves("dead_letter", D.DEAD, None, D.OWED),  # given up
    *_moves("redeliver", D.OWED, None, D.OWED, D.DELIVERED, D.DEAD),  # a person wants it sent again
)
_TARGET: Final = {(move.verb, move.source): move.target for move in TABLE}
assert len(_TARGET) == len(TABLE), "one row for each verb and source"

fired: Final[set[tuple[str, Status | None]]] = set()  # read by the transition-coverage test


def can(verb: str, source: Status | None) -> bool:
    """May `verb` be spoken from `source`?"""
    return (verb, source) in _TARGET


def run_target(verb: str, source: RunStatus | None) -> RunStatus:
    """Where `verb` leads a run from `source`. Raises IllegalMove when the table has no such row."""
    return RunStatus(_look_up(verb, source))


def effect_target(verb: str, source: EffectStatus | None) -> EffectStatus:
    """Where `verb` leads an effect from `source`. Raises IllegalMove when the table has no such row."""
    return EffectStatus(_look_up(verb, source))


def wait_target(verb: str, source: WaitStatus | None) -> WaitStatus:
    """Where `verb` leads a wait from `source`. Raises IllegalMove when the table has no such row."""
    return WaitStatus(_look_up(verb, source))


def approval_target(verb: str, source: ApprovalStatus | None) -> ApprovalStatus:
    """Where `verb` leads an approval from `source`. Raises IllegalMove when the table has no such row."""
    return ApprovalStatus(_look_up(verb, source))


def lease_target(verb: str, source: LeaseStatus | None) -> LeaseStatus:
    """Where `verb` leads a worker's or writer's row. Raises IllegalMove when the table has no such row."""
    return LeaseStatus(_look_up(verb, source))


def subscription_target(verb: str, source: SubscriptionStatus | None) -> SubscriptionStatus:
    """Where `verb` leads a subscription. Raises IllegalMove when the table has no such row."""
    return SubscriptionStatus(_look_up(verb, source))


def delivery_target(verb: str, source: DeliveryStatus | None) -> DeliveryStatus:
    """Where `verb` leads a delivery. Raises IllegalMove when the table has no such row."""
    return DeliveryStatus(_look_up(verb, source))


def _look_up(verb: str, source: Status | None) -> Status:
    target = _TARGET.get((verb, source))
    if target is None:
        raise IllegalMove(f"cannot {verb} from {source}")
    fired.add((verb, source))
    return target


class Reason(StrEnum):
    """Why a person must look; the closed list."""

    APPROVAL_TIMEOUT = "approval_timeout"
    TOTAL_TIMEOUT = "total_timeout"
    RETRIES_EXHAUSTED = "retries_exhausted"
    EFFECT_UNCERTAIN = "effect_uncertain"
    EXCEPTION = "exception"
    NODE_GONE = "node_gone"
    STRANDED_VERSION = "stranded_version"
    VISITS_EXHAUSTED = "visits_exhausted"
    WALK_DIVERGED = "walk_diverged"
    CONTRADICTION = "contradiction"
    UNDO_FAILED = "undo_failed"
    POISONED = "poisoned"
    POLICY_DENIED = "policy_denied"
    RESULTS_MISSING = "results_missing"
    WEBHOOK_DEAD = "webhook_dead"
    RESTORED = "restored"


class Choice(StrEnum):
    """What a person may answer; each reason offers its own."""

    ASK_AGAIN = "ask_again"
    EXTEND = "extend"
    RETRY = "retry"
    HAPPENED = "happened"
    DID_NOT_HAPPEN = "did_not_happen"
    GIVE_UP = "give_up"
    CONTINUE = "continue"
    USE_RECORDED = "use_recorded"
    FAIL = "fail"
    CANCEL = "cancel"
    MOVE = "move"
    ONE_MORE = "one_more"
    DONE_BY_HAND = "done_by_hand"
    REDELIVER = "redeliver"
    DISABLE = "disable"


_GO_ON = (Choice.CONTINUE, Choice.FAIL, Choice.CANCEL)
CHOICES: Final[dict[Reason, tuple[Choice, ...]]] = {
    Reason.APPROVAL_TIMEOUT: (Choice.ASK_AGAIN, Choice.CANCEL),
    Reason.TOTAL_TIMEOUT: (Choice.EXTEND, Choice.CANCEL),
    Reason.RETRIES_EXHAUSTED: (Choice.RETRY, Choice.GIVE_UP, Choice.CANCEL),
    Reason.EFFECT_UNCERTAIN: (Choice.HAPPENED, Choice.DID_NOT_HAPPEN, Choice.GIVE_UP),
    Reason.EXCEPTION: _GO_ON,
    Reason.WALK_DIVERGED: _GO_ON,
    Reason.CONTRADICTION: (Choice.CONTINUE, Choice.USE_RECORDED, Choice.FAIL, Choice.CANCEL),
    Reason.POISONED: _GO_ON,
    Reason.POLICY_DENIED: _GO_ON,
    Reason.RESTORED: _GO_ON,
    Reason.NODE_GONE: (Choice.MOVE, Choice.CANCEL),
    Reason.STRANDED_VERSION: (Choice.MOVE, Choice.CANCEL),
    Reason.VISITS_EXHAUSTED: (Choice.ONE_MORE, Choice.FAIL, Choice.CANCEL),
    Reason.UNDO_FAILED: (Choice.RETRY, Choice.DONE_BY_HAND),
    Reason.RESULTS_MISSING: (Choice.CONTINUE, Choice.FAIL),
    Reason.WEBHOOK_DEAD: (Choice.REDELIVER, Choice.DISABLE),
}
OVERLAY_ONLY: Final = frozenset({Reason.TOTAL_TIMEOUT, Reason.WEBHOOK_DEAD})
"""Reasons that call a person and stop nothing: the run goes on as far as it can."""
IF_IGNORED: Final = "stays as it is"  # true of every reason but the next
IF_IGNORED_APPROVAL: Final = "cancelled after 7 days"
assert set(CHOICES) == set(Reason), "every reason has its choices"


def if_ignored(reason: Reason) -> str:
    """What happens to a run whose attention is never resolved."""
    return IF_IGNORED_APPROVAL if reason is Reason.APPROVAL_TIMEOUT else IF_IGNORED
