"""Immutable rows, their columns and their keys.

A row is a tuple of plain values in column order, so a store can bind it unchanged. A field `…_text` holds a structured
value as the text of its column; the property without the suffix decodes it, and raises Corrupt if the text cannot be
read. Writers encode with the column of the same name. Instants are integers in milliseconds since 1970. Instants of
liveness (due_at, lease_until, not_after, settle_after) are *real* store time, all others are *business* time (S-4).
"""

from collections.abc import Mapping
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from outlast.core import approval_columns, columns, effect_columns, machine, run_columns
from outlast.core.columns import SUFFIX, Column, Value, decoded
from outlast.core.events import TYPES, make_body
from outlast.core.outbox_rows import Cursor, Delivery, Unpublished
from outlast.core.snapshot_codec import StateChunk
from outlast.core.usage import CallUsage, TenantBudget
from outlast.errors import Corrupt


class Subscription(NamedTuple):
    """An address that events are sent to, and the secret that they are signed with. Never deleted, only removed."""

    tenant: str
    subscription: str
    version: int
    status: machine.SubscriptionStatus
    url: str
    name: str  # display name
    types_text: str
    workflows_text: str
    secret_text: str
    former: str  # the secret before the last rotation, '' none
    former_until: int  # real; until then both sign
    since: int  # business; first instant of its events; 0 = from the start
    swept: str  # last old run that was searched; '' = none yet, machine.SWEPT = all
    why: str  # why it is not active
    created_at: int
    created_by: str
    changed_at: int
    changed_by: str

    @property
    def types(self) -> tuple[str, ...]:
        """Return the types of events that it includes, `…*` for all that begin so; () = all."""
        return _decode(columns.TYPES, self.types_text, self)

    @property
    def workflows(self) -> tuple[str, ...]:
        """Return the workflows whose events it includes; () = all."""
        return _decode(columns.WORKFLOWS, self.workflows_text, self)

    @property
    def secret(self) -> columns.WebhookSecret:
        """Return the signing key and the custom headers."""
        return _decode(columns.SECRET, self.secret_text, self)


STORE: Final = "*"  # tenant of rows that belong to the store itself
USED, UNDO_RESERVED = 1, 2  # Effect.shared: mutually exclusive, so that no run uses an answer whose undo has started


class Run(NamedTuple):
    """Position and status of a run, at most 1 KB, without state or results.

    Only the store sets `inbox_seq`; a holder's write leaves it unchanged.
    """

    tenant: str
    run: str
    version: int
    epoch: int
    owner: str  # '' none, a worker's id, or machine.ENDED
    inbox_seq: int  # number of the last message in the run's inbox
    due_at: int | None  # real; if owned, the end of the execution budget
    lane: str  # workflow@version
    queue: str  # tenant's name while the run waits for a slot, else ''; the order is that of `created_at`
    status: machine.RunStatus
    workflow: str
    node: str
    status_label: str  # status that the node names, or three joined by '|'; of an ended run that of its end; '' = none
    visit: int
    entered_at: int  # business; ctx.now() at the start of this visit
    seq: int  # number of events written
    event_hash: str  # hash of the last event
    attention_text: str
    waiting_for_text: str
    timers_text: str
    visits_text: str
    slots_text: str
    ceiling_at: int  # business; 0 = disarmed
    created_at: int  # business
    ended_at: int  # business; 0 = not yet
    requested_by: str
    correlation_id: str
    trace_id: str
    crash_count: int  # deaths of its worker since the last advance or the last decrease of `group_max`
    ending_text: str = ""
    restored: int = 0  # store generation of the restore after which missing ledger rows prove nothing; 0 = none
    group_max: int = 0  # maximum number of runs its worker may hold, including this one; 0 = no limit (S-5)
    objective: str = ""  # the run's purpose for people, from its input; '' if its workflow names none

    @property
    def attention(self) -> tuple[run_columns.Attention, ...]:
        """Return the reasons why a person must decide; () when nothing is wrong."""
        return _decode(run_columns.ATTENTION, self.attention_text, self) if self.attention_text else ()

    @property
    def waiting_for(self) -> tuple[run_columns.WaitingFor, ...]:
        """Return the waits of the run; () while a worker executes it."""
        return _decode(run_columns.WAITING_FOR, self.waiting_for_text, self) if self.waiting_for_text else ()

    @property
    def timers(self) -> tuple[run_columns.Timer, ...]:
        """Return the armed timers; () while the run is not parked."""
        return _decode(run_columns.TIMERS, self.timers_text, self) if self.timers_text else ()

    @property
    def visits(self) -> Mapping[str, int]:
        """Return the number of visits of each node that was entered."""
        return _decode(run_columns.VISITS, self.visits_text, self)

    @property
    def slots(self) -> tuple[run_columns.SlotName, ...]:
        """Return the keys of the slot rows that name this run."""
        return _decode(run_columns.SLOTS, self.slots_text, self) if self.slots_text else ()

    @property
    def ending(self) -> run_columns.Ending | None:
        """Return the decided end while effects are undone before the run ends; None before."""
        return _decode(run_columns.ENDING, self.ending_text, self) if self.ending_text else None


class Event(NamedTuple):
    """Event of a run's history. The event that completes a node also carries the snapshot of its state."""

    tenant: str
    run: str
    seq: int
    kind: str  # its type without the prefix of all types
    at: int
    node: str
    visit: int
    run_version: int
    epoch: int
    workflow: str
    correlation_id: str  # '' = the id of the run
    trace_id: str
    details: bytes  # JSON: further members of the data; empty = none
    hash: str  # over the previous event's hash and `body`
    snapshot: bytes | None  # state after `node`, JSON; not part of the hash chain

    @property
    def type(self) -> str:
        """Return the type as CloudEvents name it."""
        return TYPES + self.kind

    @property
    def body(self) -> bytes:
        """Return the exact CloudEvents bytes, made at each call from the columns up to `details`."""
        return make_body(*self[:13])

    def data(self) -> dict[str, Any]:
        """Return the data of the CloudEvent, decoded at each call."""
        return dict(_decode_data("details", self.body, self, "data"))


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
    shared: int = 0  # once per tenant: USED after another run used its answer, UNDO_RESERVED after its undo started
    keep_ms: int = 0  # once per tenant: how long the settled row is kept; 0 = without limit
    redone: int = 0  # once per tenant: calls repeated after an undo; part of the idempotency key

    @property
    def error(self) -> effect_columns.EffectError | None:
        """Return the refusal or the error of the last failed attempt; None without an error."""
        return _decode(effect_columns.ERROR, self.error_text, self) if self.error_text else None

    @property
    def code(self) -> str:
        """Return the code of the error; '' without an error."""
        return (self.error or effect_columns.NO_ERROR).code

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the call, decoded at each call."""
        return dict(_decode_data("args", self.args, self))

    def answer(self) -> Any:
        """Return the response of the call, decoded at each call; None without a response."""
        return None if self.response is None else _decode_data("response", self.response, self)


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
        return _decode(effect_columns.ERROR, self.error_text, self) if self.error_text else None


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
        return _decode(effect_columns.ANSWER, self.answer_text, self)


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

    @property
    def binding(self) -> tuple[int, ...] | None:
        """Return the messages that ended the wait; () while it is open, None if its deadline ended it."""
        return _decode(effect_columns.BINDING, self.binding_text, self)


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
    again: int  # 1: the person may reject and request another round
    quorum: int = 1  # number of different people who must approve
    votes_text: str = ""
    not_requester: int = 0  # 1: the person who started the run may not decide
    editable_text: str = ""
    claimed_by: str = ""  # person who acknowledged it; informative only

    @property
    def plans(self) -> tuple[approval_columns.OfferedCall, ...]:
        """Return the offered calls, the requested one first; after them those that approvers changed."""
        return _decode(approval_columns.PLANS, self.plans_text, self)

    @property
    def claims(self) -> tuple[str, ...]:
        """Return the roles of the person who decided."""
        return _decode(approval_columns.CLAIMS, self.claims_text, self)

    @property
    def votes(self) -> tuple[approval_columns.ApprovalVote, ...]:
        """Return the votes so far; () if the approval has no quorum."""
        return _decode(approval_columns.VOTES, self.votes_text, self)

    @property
    def editable(self) -> tuple[str, ...]:
        """Return the arguments that the approver may change."""
        return _decode(approval_columns.EDITABLE, self.editable_text, self)


class Message(NamedTuple):
    """Message in a run's inbox. The store assigns `n` and `at` under its lock."""

    tenant: str
    run: str
    n: int
    kind: str  # signal, cancel, decision, continue, resolve
    name: str
    payload: bytes
    signal_id: str
    actor: str
    at: int

    @property
    def reason(self) -> str:
        """Return the reason that the person gave; for messages of the kinds cancel and continue."""
        return _decode(run_columns.REASON, self.payload.decode(errors="replace"), self)

    @property
    def answer(self) -> run_columns.PersonAnswer:
        """Return the choice of the person; for messages of the kind answer."""
        return _decode(run_columns.PERSON_ANSWER, self.payload.decode(errors="replace"), self)


class Token(NamedTuple):
    """Token of something that may happen once: a start with an idempotency key, a signal with an id."""

    tenant: str
    run: str  # '' for start keys
    key: str
    digest: str
    target: str
    at: int


class Slot(NamedTuple):
    """Slot of a concurrency limit, keyed ('*', i) for the global limit, and the run that holds it ('' = free)."""

    tenant: str
    i: int
    version: int
    holder_tenant: str
    holder: str


class Pause(NamedTuple):
    """Pause of new intents (S-23), keyed `activity/NAME`, `provider/NAME`, `workflow/NAME` or `tenant`."""

    tenant: str
    key: str
    version: int
    up: int  # 1 while in force
    by: str
    reason: str
    since: int
    kind: str = "operator"  # set by an 'operator', or by the 'breaker' of a failing provider
    again_at: int = 0  # real; breaker only: from here on one run may try a call
    trips: int = 0  # breaker only: consecutive times it opened


class Usage(NamedTuple):
    """Run that uses, or waits for, an effect shared within its tenant (S-18)."""

    tenant: str
    run: str
    key: str
    at: int


class Topology(NamedTuple):
    """Structure of one version of a workflow, written by the worker that serves it. `check` compares it (S-15)."""

    tenant: str
    lane: str  # workflow@version
    version: int
    digest: str
    body: str  # JSON: nodes, edges, key templates, schema of the state
    at: int

    def structure(self) -> dict[str, Any]:
        """Return the nodes, edges, key templates and schema of the state, decoded at each call."""
        return dict(_decode_data("body", self.body, self))


class Result(NamedTuple):
    """Result row of a run, by key. All counts of results come from these rows (CKP-4, OUT-5)."""

    tenant: str
    run: str
    key: str
    version: int
    ordinal: int  # order of first emission
    kind: str
    data: bytes  # JSON
    at: int

    def value(self) -> Any:
        """Return the data of the result, decoded at each call."""
        return _decode_data("data", self.data, self)


class Request(NamedTuple):
    """Stored answer to an HTTP request with an idempotency key."""

    tenant: str
    key: str
    version: int
    actor: str
    operation: str
    digest: str  # of the request
    status: int  # HTTP status; 0 = in flight, -1 = refused, so the key may be used again
    headers: str  # JSON
    body: bytes
    at: int


class Worker(NamedTuple):
    """Worker process with one lease for all runs that it holds. A closed worker never renews."""

    tenant: str
    id: str
    version: int
    status: machine.LeaseStatus
    lease_until: int
    lanes: str
    name: str
    started_at: int
    renewed_at: int
    health_text: str
    died_holding: int = 0  # number of runs it owned when it died; 0 = alive or drained

    @property
    def health(self) -> columns.WorkerHealth:
        """Return the facts of the process at its last heartbeat."""
        return _decode(columns.HEALTH, self.health_text, self)


class Writer(NamedTuple):
    """Process that writes, with the number of its last batch: the receipt of all commits in that batch."""

    tenant: str
    id: str
    version: int
    status: machine.LeaseStatus
    batch: int
    started_at: int


class Meta(NamedTuple):
    """Fact about the store, such as its generation or the mapping of business time."""

    tenant: str
    key: str
    version: int
    value: str


Row: TypeAlias = (
    Run | Event | Effect | Memo | Evidence | Wait | Approval | Message | Token | Slot | Pause | Usage | CallUsage
    | TenantBudget | Topology | StateChunk | Result | Request | Subscription | Cursor | Delivery | Unpublished | Worker
    | Writer | Meta
)  # fmt: skip
Key: TypeAlias = tuple[str | int, ...]
R = TypeVar("R", bound=Row)
R_co = TypeVar("R_co", bound=Row, covariant=True)


class Kind(NamedTuple, Generic[R_co]):
    """Description of one kind of row for stores. A read of a kind answers the row class of that kind."""

    name: str
    row: type[R_co]
    key: int  # number of leading columns that form the key
    versioned: bool  # False: rows are only inserted
    read_first: bool  # True: other processes write such rows, so a batch reads them before it judges

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the names of the columns in the database, in the order of the fields."""
        return COLUMNS[self.row]


AnyKind: TypeAlias = Kind[Any]  # of which only the columns matter, not the row class
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
PAUSE: Final = Kind("pause", Pause, 2, True, True)
USAGE: Final = Kind("usage", Usage, 3, False, True)
CALL_USAGE: Final = Kind("call_usage", CallUsage, 4, False, False)
TENANT_BUDGET: Final = Kind("tenant_budget", TenantBudget, 2, True, True)
TOPOLOGY: Final = Kind("topology", Topology, 2, True, True)
STATE_CHUNK: Final = Kind("state_chunk", StateChunk, 3, False, False)
RESULT: Final = Kind("result", Result, 3, True, False)
REQUEST: Final = Kind("request", Request, 2, True, True)
SUBSCRIPTION: Final = Kind("subscription", Subscription, 2, True, True)
CURSOR: Final = Kind("cursor", Cursor, 3, True, True)
DELIVERY: Final = Kind("delivery", Delivery, 4, True, True)
UNPUBLISHED: Final = Kind("unpublished", Unpublished, 3, False, False)
WORKER: Final = Kind("worker", Worker, 2, True, True)
WRITER: Final = Kind("writer", Writer, 2, True, True)
META: Final = Kind("meta", Meta, 2, True, True)
KINDS: Final[tuple[Kind[Row], ...]] = (
    RUN, EVENT, EFFECT, MEMO, EVIDENCE, WAIT, APPROVAL, MESSAGE, TOKEN, SLOT, PAUSE, USAGE, CALL_USAGE, TENANT_BUDGET,
    TOPOLOGY, STATE_CHUNK, RESULT, REQUEST, SUBSCRIPTION, CURSOR, DELIVERY, UNPUBLISHED, WORKER, WRITER, META,
)  # fmt: skip
COLUMNS: Final[dict[type[Any], tuple[str, ...]]] = {  # in the database, in the order of the fields
    kind.row: tuple([name.removesuffix(SUFFIX) for name in kind.row._fields]) for kind in KINDS
}


def _decode(column: Column[Any, Value], text: str, row: Row) -> Value:
    """Return the value of a column of `row`. Raises Corrupt that names kind, key and column."""
    try:
        return column.decode(text)
    except Corrupt as error:
        raise _corrupt(row, error) from error


def _decode_data(column: str, data: str | bytes, row: Row, *members: str) -> Any:
    """Return JSON data of `row`, or its member, decoded at each call because it is mutable. Raises as `_decode`."""
    try:
        return decoded(data, f"its {column}", *members)
    except Corrupt as error:
        raise _corrupt(row, error) from error


def _corrupt(row: Row, error: Corrupt) -> Corrupt:
    ((name, key),) = [(kind.name, key_of(kind, row)) for kind in KINDS if kind.row is type(row)]
    corrupt = Corrupt(f"{name} {'/'.join(map(str, key))}: {error.what}")
    corrupt.row = (name, key)
    return corrupt


def key_of(kind: AnyKind, row: Row) -> Key:
    """Return the key columns of a row."""
    return row[: kind.key]  # type: ignore[return-value]


def version_of(kind: AnyKind, row: Row) -> int:
    """Return the version of a row; 1 for kinds that are only inserted."""
    return int(row[kind.key]) if kind.versioned else 1  # type: ignore[arg-type]


for _kind in KINDS:
    assert _kind.row._fields[0] == "tenant", "the tenant leads every key (RUN-5)"
    assert not _kind.versioned or _kind.row._fields[_kind.key] == "version", "the version follows the key"


def is_over(run: Run) -> bool:
    """True if the run has ended. A terminal run never changes again."""
    return run.status in machine.TERMINAL


def is_due(run: Run, real: int) -> bool:
    """True if a worker should claim the run now."""
    return run.due_at is not None and run.due_at <= real
