"""Rows of runs: their position, history, inbox, tokens and results. See `all_kinds.py`."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from outlast.core import machine
from outlast.core.approver_rule import OF_RUN
from outlast.core.events import TYPES, make_body
from outlast.core.lanes import scheduler_of
from outlast.core.rows import run_columns
from outlast.core.rows.row_kind import Kind
from outlast.core.rows.run_columns import NO_DESCENT, NOTHING_PURGED
from outlast.core.state.snapshot_codec import StateChunk


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
    lane: str  # workflow@version, after `scheduler:` if a guest schedules the run
    queue: str  # tenant's name while the run waits for a slot, else ''; see `queue_order`
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
    forked_from: str = ""  # the run whose checkpoint it began with (S-28); '' = it is no fork
    root: str = ""  # the first run above it (S-30); '' = itself
    root_created_at: int = 0  # business; 0 = started by a version without child runs, so before all other runs
    depth: int = 0  # number of runs above it
    descent_text: str = ""
    causes: str = ""  # of its attention, or of its failure: reason/cause, between spaces (core/causes.py)
    flagged_at: int = 0  # business; the first beginning of its attention; 0 = it needs no person
    flagged_until: int = 0  # business; from when on the engine acts without an answer; 0 = never
    attributes_text: str = ""

    @property
    def scheduler(self) -> str:
        """Return the engine that decides when and where the run is executed."""
        return scheduler_of(self.lane)

    @property
    def descent(self) -> run_columns.Descent:
        """Return the start of a child run; NO_DESCENT of a run that no run has started."""
        return RUN.decode(run_columns.DESCENT, self.descent_text, self) if self.descent_text else NO_DESCENT

    @property
    def attributes(self) -> tuple[run_columns.StoredAttribute, ...]:
        """Return the attributes by which lists find it; () if its workflow declares none."""
        return RUN.decode(run_columns.ATTRIBUTES, self.attributes_text, self) if self.attributes_text else ()

    @property
    def parent(self) -> str:
        """Return the run that started it and waits for its end; '' if no run did."""
        return self.descent.parent

    @property
    def called_as(self) -> str:
        """Return `visit:key` of its row in the ledger of its parent."""
        return self.descent.called_as

    @property
    def attention(self) -> tuple[run_columns.Attention, ...]:
        """Return the reasons why a person must decide; () when nothing is wrong."""
        return RUN.decode(run_columns.ATTENTION, self.attention_text, self) if self.attention_text else ()

    @property
    def waiting_for(self) -> tuple[run_columns.WaitingFor, ...]:
        """Return the waits of the run; () while a worker executes it."""
        return RUN.decode(run_columns.WAITING_FOR, self.waiting_for_text, self) if self.waiting_for_text else ()

    @property
    def timers(self) -> tuple[run_columns.Timer, ...]:
        """Return the armed timers; () while the run is not parked."""
        return RUN.decode(run_columns.TIMERS, self.timers_text, self) if self.timers_text else ()

    @property
    def visits(self) -> Mapping[str, int]:
        """Return the number of visits of each node that was entered."""
        return RUN.decode(run_columns.VISITS, self.visits_text, self)

    @property
    def slots(self) -> tuple[run_columns.SlotName, ...]:
        """Return the keys of the slot rows that name this run."""
        return RUN.decode(run_columns.SLOTS, self.slots_text, self) if self.slots_text else ()

    @property
    def ending(self) -> run_columns.Ending | None:
        """Return the decided end while effects are undone before the run ends; None before."""
        return RUN.decode(run_columns.ENDING, self.ending_text, self) if self.ending_text else None


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
        return EVENT.decode_object("details", self.body, self, "data")


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
        return MESSAGE.decode(run_columns.REASON, self.payload.decode(errors="replace"), self)

    @property
    def stated(self) -> run_columns.StatedAnswer:
        """Return the answer of a person about an effect; for messages of the kind resolve with a payload."""
        return MESSAGE.decode(run_columns.STATED_ANSWER, self.payload.decode(errors="replace"), self)

    @property
    def answer(self) -> run_columns.PersonAnswer:
        """Return the choice of the person; for messages of the kind answer."""
        return MESSAGE.decode(run_columns.PERSON_ANSWER, self.payload.decode(errors="replace"), self)


class Token(NamedTuple):
    """Token of something that may happen once: a start with an idempotency key, a signal with an id."""

    tenant: str
    run: str  # '' for start keys
    key: str
    digest: str
    target: str
    at: int


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
        return RESULT.decode_data("data", self.data, self)


class Floor(NamedTuple):
    """First kept event and visit of a run whose history is a window, and counts of the rows before them (S-32).

    Only the holder of the run writes it. Event 1 is kept, too: it says how the run began.
    """

    tenant: str
    run: str
    version: int
    seq: int  # the first kept event, which entered `visit`
    event_hash: str  # hash of the event before it
    visit: int  # the first kept visit
    entered_at: int  # business; when that visit was entered
    purged_text: str  # counts of purged rows
    swept: int  # visit in which rows without a visit were last looked through
    usage_n: int  # number of the last row of summed usage

    @property
    def purged(self) -> run_columns.PurgedCounts:
        """Return the counts of purged rows."""
        return FLOOR.decode(run_columns.PURGED, self.purged_text, self) if self.purged_text else NOTHING_PURGED


class Attribute(NamedTuple):
    """Index row of one attribute of a run. The row of the run has the same value."""

    tenant: str
    run: str
    name: str
    version: int  # number of its values so far
    value: str  # as a list asks for it; '' = none now
    at: int  # business; when the run was created, so that pages of runs by a value are newest first


class Flagging(NamedTuple):
    """One time at which a run began to need a person. It stays as long as the event that says so (S-24, S-32)."""

    tenant: str
    run: str
    seq: int  # number of that event
    at: int  # business; the first beginning of the new entries of its attention
    causes: str  # of these entries, as the column of the run
    workflow: str
    lane: str


RunKey: TypeAlias = tuple[str, str]
"""Tenant and id of a run."""
RUN: Final = Kind("run", Run, 2, True, True)
EVENT: Final = Kind("event", Event, 3, False, False)
MESSAGE: Final = Kind("message", Message, 3, False, False)
TOKEN: Final = Kind("token", Token, 3, False, True)
STATE_CHUNK: Final = Kind("state_chunk", StateChunk, 3, False, False)
RESULT: Final = Kind("result", Result, 3, True, False)
ATTRIBUTE: Final = Kind("attribute", Attribute, 3, True, False)
FLOOR: Final = Kind("floor", Floor, 2, True, False)
FLAGGING: Final = Kind("flagging", Flagging, 3, False, False)


def start_token_of(run: Run) -> tuple[str, str, str]:
    """Return the key of the token of a start that was given no key: it is made of the id of the run."""
    return run.tenant, "", f"start/{run.workflow}/{run.run}"


def is_over(run: Run) -> bool:
    """True if the run has ended. A terminal run never changes again."""
    return run.status in machine.TERMINAL


ACTS: Final = frozenset({
    "answer", "cancel", machine.Choice.CONTINUE.value, "decision", "fork", "job", machine.Choice.RAISE.value,
    "reassign", "signal",
})  # fmt: skip
"""Kinds of messages that callers send. Those of the kinds ACTS_WITH_REASON are of callers if they have a payload."""
ACTS_WITH_REASON: Final = frozenset({"child", "resolve"})


def is_act(message: Message) -> bool:
    """Return True if a caller sent the message: a person or a program, not another run, and not by a job.

    A message of a job names it in the place of the id of a signal. The SQL is in `store/open_rows.py`.
    """
    if message.actor.startswith(OF_RUN) or (message.kind != "signal" and message.signal_id):
        return False
    return message.kind in ACTS or (message.kind in ACTS_WITH_REASON and len(message.payload) > len(b"{}"))


def queue_order(run: Run) -> tuple[int, int, int, str, str]:
    """Return the order in which runs get slots: by the age of their trees, and a parent before its children (S-6)."""
    return run.root_created_at, run.depth, run.created_at, run.tenant, run.run


def is_due(run: Run, real: int) -> bool:
    """True if a worker should claim the run now."""
    return run.due_at is not None and run.due_at <= real


def is_overdue(run: Run, real: int, skew: int) -> bool:
    """True if the execution budget of an owned run is used up, also by its owner's clock.

    `skew`: ms by which that clock may be behind the one that told `real` (`Store.skew`).
    """
    return run.due_at is not None and run.due_at + skew <= real
