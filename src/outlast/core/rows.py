"""What is stored: immutable rows, the key of each, and what is asserted before one is written and after it is read.

A row is a tuple of plain values in the order of its columns, so a store binds it as it is. Instants are
integers in milliseconds since 1970: `…_at` and `…_until` of liveness (due_at, lease_until, not_after,
settle_after) are *real* store time, all others are *business* time (SEMANTICS S-4).
"""

from typing import Final, NamedTuple, TypeAlias

from outlast.core.machine import (
    ENDED,
    HELD,
    TERMINAL,
    ApprovalStatus,
    EffectStatus,
    LeaseStatus,
    RunStatus,
    WaitStatus,
)
from outlast.core.outgoing import Cursor, Delivery, Subscription, Unpublished
from outlast.errors import Corrupt

STORE: Final = "*"  # the tenant of rows that belong to the store itself
USED, TAKEN_BACK = 1, 2  # Effect.shared: the two exclude each other, so nobody uses an answer whose undo has begun


class Run(NamedTuple):
    """Where one run stands: at most 1 KB, no cargo. `inbox_seq` belongs to the store: no holder's write sets it."""

    tenant: str
    run: str
    version: int
    epoch: int
    owner: str  # '' nobody, a worker's id, or machine.ENDED
    inbox_seq: int  # messages ever left for this run
    due_at: int | None  # real; owned: end of the execution budget
    lane: str  # workflow@version
    queue: str  # waits for a slot since `created_at`: the tenant's name, else ''
    status: RunStatus
    workflow: str
    node: str
    status_label: str  # the node's business status, '' if it names none
    visit: int
    entered_at: int  # business; ctx.now() of this visit
    seq: int  # events written
    event_hash: str  # hash of the last event
    attention: str  # JSON [{reason, since, detail, …}], '' when nothing is wrong
    waiting_for: str  # JSON {kind, what, who, since, until, then}, '' while walked
    timers: str  # JSON [{what, at, then}] armed business clocks, '' none
    visits: str  # JSON {node: times entered}
    slots: str  # '' or 'tenant/i */j': the slot rows that name this run
    ceiling_at: int  # business; 0 = disarmed
    created_at: int  # business
    ended_at: int  # business; 0 = not yet
    requested_by: str
    correlation_id: str
    trace_id: str
    crash_count: int  # times its worker died since the last advance, or since `group_max` last became smaller
    ending: str = ""  # JSON {outcome, reason, by} once it is decided how the run ends and undo goes first; '' before
    restored: int = 0  # generation of the store at which a restore cast doubt on what its ledger lacks; 0 = never
    group_max: int = 0  # most runs that its worker may hold, this one included; 0 = no limit (S-5)


class Event(NamedTuple):
    """One numbered row of a run's history; where it completes a node it carries the checkpoint's snapshot."""

    tenant: str
    run: str
    seq: int
    type: str
    at: int
    node: str
    visit: int
    body: bytes  # the exact CloudEvents bytes
    hash: str  # over the predecessor's hash and `body`
    snapshot: bytes | None  # state after `node`, JSON; kept apart from what is chained


class Effect(NamedTuple):
    """The ledger row of one write, by (tenant, run, visit, key): visit 0 = scope `run`, run empty = scope `tenant`.

    Within one run, scopes `run` and `tenant` have one space of keys: the same key in both is a conflict.
    """

    tenant: str
    run: str
    visit: int
    key: str
    version: int
    status: EffectStatus
    activity: str
    digest: str
    node: str
    args: bytes
    response: bytes | None
    error: str  # JSON {code, detail} of a refusal or of the last failed attempt
    external_id: str
    attempts: int
    waited_ms: int  # sum of the waits between attempts
    ordinal: int  # of the run: undo goes by falling ordinal
    epoch: int  # of the claim that intended the latest attempt
    first_at: int  # real; the first intent
    not_after: int  # real; last moment to send
    settle_after: int  # real; from here on a call in flight can no longer land
    covered_until: int  # business; end of the approval that covers it, 0 = none needed
    approval: str  # id of the approval it consumed
    allowed_by: str  # what policy said
    undo: str  # name of the activity's undo; 'no: ' and the reason if there is none; '' = undeclared
    settled_at: int  # business; 0 = open
    settled_by: str  # 'call', 'reconcile', or who decided
    interrupted: int = 0  # attempts that came to no end of their own: a death, or our own check; they use up nothing
    undoes: str = ""  # 'visit:key' of the effect that this one undoes; '' for an effect of the run's own
    by_run: str = ""  # scope `tenant`: the run it belongs to, which alone settles it; '' for the other scopes
    shared: int = 0  # scope `tenant`: USED once another run has used its answer, TAKEN_BACK once its undo has begun
    keep_ms: int = 0  # scope `tenant`: how long it outlives its settling as a tombstone; 0 = for ever
    redone: int = 0  # scope `tenant`: times it was done anew after an undo; part of the key that receivers dedupe by


class Memo(NamedTuple):
    """The recorded value of a lookup, under the same key as an effect."""

    tenant: str
    run: str
    visit: int
    key: str
    activity: str
    digest: str
    response: bytes | None
    error: str
    at: int


class Evidence(NamedTuple):
    """The late answer of a holder that had been replaced; only reconcilers and people read it."""

    tenant: str
    run: str
    visit: int
    key: str
    epoch: int
    answer: str  # JSON {status, response | error}
    at: int


class Wait(NamedTuple):
    """What a visit waits for, by name: the deadline fixed at the first asking, the binding fixed at its end."""

    tenant: str
    run: str
    visit: int
    key: str
    version: int
    status: WaitStatus
    kind: str  # sleep, receive, collect, approval
    name: str
    deadline: int  # business; 0 = none
    most: int  # collect: at most so many; 0 = no bound
    binding: str  # JSON list of message numbers, or "deadline"; '' while open
    since: int


class Approval(NamedTuple):
    """A request to a person and its answer. `plans` are the exact calls offered, the first is the one asked for."""

    tenant: str
    run: str
    id: str
    version: int
    status: ApprovalStatus
    visit: int
    wait: str  # key of the wait it answers
    plans: str  # JSON [{activity, key, digest, args, summary}]
    summary: str
    risk: str
    who: str  # the rule: who may decide
    requested_by: str
    asked_at: int
    within_until: int
    valid_ms: int
    decided_at: int
    decided_by: str
    claims: str  # JSON: the roles the decider held
    reason: str
    chosen: str  # digest of the plan approved
    valid_until: int
    consumed_by: str  # 'visit:key' of the one effect
    again: int  # 1: "reject and go round once more" is offered
    quorum: int = 1  # how many different people have to approve
    votes: str = ""  # JSON [{by, claims, chosen, reason, at, who}]: approvals given while more are needed
    not_requester: int = 0  # 1: whoever requested the run may not decide
    editable: str = ""  # JSON [field]: arguments of the plan a decision may change
    claimed_by: str = ""  # who said "I look at it"; binds nobody


class Message(NamedTuple):
    """Anything left in a run's mailbox; `n` and `at` are given by the store under its lock."""

    tenant: str
    run: str
    n: int
    kind: str  # signal, cancel, decision, continue, resolve
    name: str
    payload: bytes
    signal_id: str
    actor: str
    at: int


class Token(NamedTuple):
    """Something that may happen once: a start under an idempotency key, a signal under its id."""

    tenant: str
    run: str  # '' for start keys
    key: str
    digest: str
    target: str
    at: int


class Slot(NamedTuple):
    """One place of a limit, ('*', i) for the global one, and the run that holds it ('' = free)."""

    tenant: str
    i: int
    version: int
    holder_tenant: str
    holder: str


class Hold(NamedTuple):
    """A stop sign, no new intent while it is up (S-23): `activity/NAME`, `provider/NAME`, `workflow/NAME`, `tenant`."""

    tenant: str
    key: str
    version: int
    up: int  # 1 while it holds
    by: str
    reason: str
    since: int
    kind: str = "operator"  # 'operator' put it up, or 'breaker': the engine, for a provider that is down
    again_at: int = 0  # real; a breaker: from here on one run may try
    trips: int = 0  # a breaker: times it was put up in a row


class Usage(NamedTuple):
    """A run that an effect of scope `tenant` concerns: its own, one whose answer it used or waits for (S-18)."""

    tenant: str
    run: str
    key: str
    at: int


class Topology(NamedTuple):
    """What one version of a workflow looked like to the worker that last served it: what `check` compares (S-15)."""

    tenant: str
    lane: str  # workflow@version
    version: int
    digest: str
    body: str  # JSON: nodes, edges, key templates, the schema of the state
    at: int


class Value(NamedTuple):
    """A large part of a run's states, kept once: snapshots name it by the hash of its bytes (CKP-3)."""

    tenant: str
    run: str
    hash: str  # SHA-256, in hex, of the bytes before they were packed
    packed: int  # how `body` is packed: core/diet.py
    body: bytes
    at: int


class Result(NamedTuple):
    """A produced row, under its key in the run: the only source of every count (CKP-4, OUT-5)."""

    tenant: str
    run: str
    key: str
    version: int
    ordinal: int  # in the order of the first emission
    kind: str
    data: bytes  # JSON
    at: int


class Request(NamedTuple):
    """The stored answer to a request that named an idempotency key."""

    tenant: str
    key: str
    version: int
    actor: str
    operation: str
    digest: str  # of what was asked
    status: int  # HTTP; 0 = in flight, -1 = refused, so that the key is free
    headers: str  # JSON
    body: bytes
    at: int


class Worker(NamedTuple):
    """A process that holds runs; one lease for all of them. Closed once, it never renews."""

    tenant: str
    id: str
    version: int
    status: LeaseStatus
    lease_until: int
    lanes: str
    name: str
    started_at: int
    renewed_at: int
    health: str
    died_holding: int = 0  # how many runs it owned when its row was closed; 0 = alive, or it stopped as it was told


class Writer(NamedTuple):
    """A process that writes, and the number of the last batch it landed: one receipt for all commits in it."""

    tenant: str
    id: str
    version: int
    status: LeaseStatus
    batch: int
    started_at: int


class Meta(NamedTuple):
    """A fact of the store: its generation, the mapping of business time."""

    tenant: str
    key: str
    version: int
    value: str


Row: TypeAlias = (
    Run
    | Event
    | Effect
    | Memo
    | Evidence
    | Wait
    | Approval
    | Message
    | Token
    | Slot
    | Hold
    | Usage
    | Topology
    | Value
    | Result
    | Request
    | Subscription
    | Cursor
    | Delivery
    | Unpublished
    | Worker
    | Writer
    | Meta
)
Key: TypeAlias = tuple[str | int, ...]


class Kind(NamedTuple):
    """What a store must know of one kind of row."""

    name: str
    row: type[Row]
    key: int  # how many leading columns are the key
    versioned: bool  # False: only ever inserted
    read_first: bool  # another process may well have written it: read before a bulk write trusts it


RUN: Final = Kind("run", Run, 2, True, True)
EVENT: Final = Kind("event", Event, 3, False, False)
EFFECT: Final = Kind("effect", Effect, 4, True, False)
MEMO: Final = Kind("memo", Memo, 4, False, False)
EVIDENCE: Final = Kind("evidence", Evidence, 5, False, False)
WAIT: Final = Kind("wait", Wait, 4, True, False)
APPROVAL: Final = Kind("approval", Approval, 3, True, True)
MESSAGE: Final = Kind("message", Message, 3, False, False)
TOKEN: Final = Kind("token", Token, 3, False, True)
SLOT: Final = Kind("slot", Slot, 2, True, True)
HOLD: Final = Kind("hold", Hold, 2, True, True)
USAGE: Final = Kind("usage", Usage, 3, False, True)
TOPOLOGY: Final = Kind("topology", Topology, 2, True, True)
VALUE: Final = Kind("value", Value, 3, False, False)
RESULT: Final = Kind("result", Result, 3, True, False)
REQUEST: Final = Kind("request", Request, 2, True, True)
SUBSCRIPTION: Final = Kind("subscription", Subscription, 2, True, True)
CURSOR: Final = Kind("cursor", Cursor, 3, True, True)
DELIVERY: Final = Kind("delivery", Delivery, 4, True, True)
UNPUBLISHED: Final = Kind("unpublished", Unpublished, 3, False, False)
WORKER: Final = Kind("worker", Worker, 2, True, True)
WRITER: Final = Kind("writer", Writer, 2, True, True)
META: Final = Kind("meta", Meta, 2, True, True)
KINDS: Final = (
    RUN,
    EVENT,
    EFFECT,
    MEMO,
    EVIDENCE,
    WAIT,
    APPROVAL,
    MESSAGE,
    TOKEN,
    SLOT,
    HOLD,
    USAGE,
    TOPOLOGY,
    VALUE,
    RESULT,
    REQUEST,
    SUBSCRIPTION,
    CURSOR,
    DELIVERY,
    UNPUBLISHED,
    WORKER,
    WRITER,
    META,
)


def key_of(kind: Kind, row: Row) -> Key:
    """The key columns of a row."""
    return row[: kind.key]  # type: ignore[return-value]


def version_of(kind: Kind, row: Row) -> int:
    """The version of a row; 1 for kinds that are only ever inserted."""
    return int(row[kind.key]) if kind.versioned else 1  # type: ignore[arg-type]


for _kind in KINDS:
    _fields = _kind.row._fields
    assert _fields[0] == "tenant", "the tenant leads every key (RUN-5)"
    assert not _kind.versioned or _fields[_kind.key] == "version", "the version follows the key"


def is_over(run: Run) -> bool:
    """Has this run ended? A terminal run never changes again."""
    return run.status in TERMINAL


def is_due(run: Run, real: int) -> bool:
    """Has the instant come at which somebody should take it?"""
    return run.due_at is not None and run.due_at <= real


def check_run(run: Run) -> None:
    """Assert what must hold of every run row, before it is written and after it is read. Raises Corrupt."""
    over = run.status in TERMINAL
    owned = run.owner not in ("", ENDED)
    if over != (run.owner == ENDED) or over != (run.ended_at > 0):
        raise Corrupt(f"run {run.run}: status {run.status}, owner {run.owner!r}, ended_at {run.ended_at}")
    if over and (run.due_at is not None or run.waiting_for or run.slots or run.queue):
        raise Corrupt(f"run {run.run}: it has ended, yet something of it still waits or holds a slot")
    if owned and (run.status not in HELD or run.due_at is None):
        raise Corrupt(f"run {run.run}: owned by {run.owner}, yet {run.status} with due_at {run.due_at}")
    if not over and not owned and run.due_at is None and not run.waiting_for:
        raise Corrupt(f"run {run.run}: not due, not owned and waiting for nothing")
    if run.version < 1 or run.seq < 1 or run.visit < 1 or run.inbox_seq < 0 or run.epoch < 0:
        raise Corrupt(f"run {run.run}: a counter below its first value")


def check_effect(effect: Effect) -> None:
    """Assert what must hold of every effect row. Raises Corrupt."""
    is_open = effect.status in (EffectStatus.INTENDED, EffectStatus.UNCERTAIN)
    if is_open == (effect.settled_at > 0):
        raise Corrupt(f"effect {effect.key}: {effect.status} with settled_at {effect.settled_at}")
    if effect.attempts < 1 or effect.ordinal < 1 or effect.not_after < effect.first_at:
        raise Corrupt(f"effect {effect.key}: attempts, ordinal or not_after below the first intent")
    if effect.status is EffectStatus.DONE and effect.response is None:
        raise Corrupt(f"effect {effect.key}: done without a response")
    if bool(effect.run) == bool(effect.by_run):
        raise Corrupt(f"effect {effect.key}: of run {effect.run!r}, and shared by run {effect.by_run!r}")
    if effect.run and (effect.shared or effect.keep_ms or effect.redone):
        raise Corrupt(f"effect {effect.key}: of one run, yet shared, kept or redone")
    if effect.shared and effect.status not in (EffectStatus.DONE, EffectStatus.UNDONE):
        raise Corrupt(f"effect {effect.key}: {effect.status}, yet its answer was used or taken back")
