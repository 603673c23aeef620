"""What the exam asks of a store's author, and the rows its promises are written with."""

from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from outlast.core.commit import AppendMessage, Commit, Done, Expect, Fence, Instant, Mapping, Put
from outlast.core.machine import ENDED, ApprovalStatus, EffectStatus, LeaseStatus, RunStatus
from outlast.core.rows import (
    APPROVAL,
    EFFECT,
    EVENT,
    MESSAGE,
    RUN,
    SLOT,
    STORE,
    TOKEN,
    VALUE,
    WORKER,
    Approval,
    Effect,
    Event,
    Message,
    Run,
    Slot,
    Token,
    Value,
    Worker,
)
from outlast.errors import StoreError
from outlast.store.port import Store

T0: Final = 1_700_000_000_000
TENANT: Final = "acme"
LANE: Final = "auction@1"


class HandClock:
    """A clock that moves when it is told to."""

    def __init__(self, now: int = T0) -> None:
        self.time = now

    def wall(self) -> int:
        """See core.clock."""
        return self.time

    def boot(self) -> int:
        """See core.clock."""
        return self.time

    def mono(self) -> int:
        """See core.clock."""
        return self.time

    async def sleep(self, ms: int) -> None:
        """See core.clock. Moves the clock itself."""
        self.time += ms


class Subject(Protocol):
    """A store under examination, empty at first. `open` gives one more writer on the same data; the exam's stores
    are closed by whoever made the subject."""

    clock: HandClock

    async def open(self, writer: str) -> Store:
        """Another store on the same data, with a writer row of its own and this subject's clock."""


Promise = Callable[[Subject], Awaitable[None]]


async def two(subject: Subject) -> tuple[Store, Store]:
    """Two independent writers on the same data."""
    return await subject.open("writer-a"), await subject.open("writer-b")


# --- rows ----------------------------------------------------------------------------------
def run_row(run: str = "run-1", tenant: str = TENANT, **changes: object) -> Run:
    """A run that is queued and due."""
    row = Run(
        tenant=tenant, run=run, version=1, epoch=0, owner="", inbox_seq=0, due_at=T0, lane=LANE, queue="",
        status=RunStatus.QUEUED, workflow="auction", node="plan", status_label="", visit=1, entered_at=T0, seq=1, event_hash="",
        attention="", waiting_for="", timers="", visits="", crash_count=0, slots="", ceiling_at=0, created_at=T0, ended_at=0,
        requested_by="local:ann", correlation_id="", trace_id="",
    )  # fmt: skip
    return row._replace(**changes)  # type: ignore[arg-type]


def event_row(run: str = "run-1", seq: int = 1, tenant: str = TENANT, snapshot: bytes | None = b"{}") -> Event:
    """An event, with a snapshot unless told otherwise."""
    return Event(tenant, run, seq, "run.moved", T0, "plan", 1, b'{"seq":%d}' % seq, f"hash-{seq}", snapshot)


def value_row(name: str, body: bytes, run: str = "run-1", tenant: str = TENANT) -> Value:
    """A large part of a state."""
    return Value(tenant, run, name, 0, body, T0)


def effect_row(run: str = "run-1", key: str = "invite/1", tenant: str = TENANT, visit: int = 1) -> Effect:
    """An intended effect."""
    return Effect(
        tenant=tenant, run=run, visit=visit, key=key, version=1, status=EffectStatus.INTENDED, activity="invite",
        digest="d", node="plan", args=b"{}", response=None, error="", external_id="", attempts=1, waited_ms=0,
        ordinal=1, epoch=1, first_at=T0, not_after=T0 + 30_000, settle_after=T0 + 60_000, covered_until=0, approval="",
        allowed_by="", undo="no: nothing to undo", settled_at=0, settled_by="",
    )  # fmt: skip


def done(effect: Effect, response: bytes = b'"ok"') -> Effect:
    """The effect once its answer is recorded."""
    return effect._replace(
        version=effect.version + 1, status=EffectStatus.DONE, response=response, settled_at=T0, settled_by="call"
    )


def approval_row(id_: str = "ap-1", run: str = "run-1", tenant: str = TENANT, asked_at: int = T0) -> Approval:
    """A pending approval, to be decided within an hour."""
    return Approval(
        tenant=tenant, run=run, id=id_, version=1, status=ApprovalStatus.PENDING, visit=1, wait="approval", plans="[]",
        summary="Refund 5 €", risk="", again=0, who="finance", requested_by="local:ann", asked_at=asked_at,
        within_until=asked_at + 3_600_000, valid_ms=0, decided_at=0, decided_by="", claims="", reason="", chosen="",
        valid_until=0, consumed_by="",
    )  # fmt: skip


def message_row(run: str = "run-1", payload: bytes = b"{}", tenant: str = TENANT) -> Message:
    """A signal; its number and its time are the store's to give."""
    return Message(tenant, run, 0, "signal", "bid", payload, "", "local:bob", 0)


def token_row(key: str = "start-1", target: str = "run-1", tenant: str = TENANT) -> Token:
    """A start key."""
    return Token(tenant, "", key, "d", target, T0)


def slot_row(i: int = 1, holder: str = "", tenant: str = TENANT) -> Slot:
    """A place of a limit."""
    return Slot(tenant, i, 1, tenant if holder else "", holder)


def worker_row(id_: str = "worker-1") -> Worker:
    """A living worker."""
    return Worker(STORE, id_, 1, LeaseStatus.ALIVE, T0 + 15_000, LANE, "", T0, T0, "")


# --- commits -------------------------------------------------------------------------------
def start(run: Run) -> Commit:
    """Insert a run with its first event."""
    return Commit((Put(RUN, run, 0), Put(EVENT, event_row(run.run, 1, run.tenant), 0)))


def put_run(before: Run, **changes: object) -> Commit:
    """Move a run's row by one version, fenced by what was read."""
    return Commit((Put(RUN, moved(before, **changes), before.version),))


def moved(before: Run, **changes: object) -> Run:
    """The row one version later."""
    return before._replace(version=before.version + 1, **changes)  # type: ignore[arg-type]


def claimed(run: Run, worker: str, now: Instant) -> Run:
    """The row as a claim leaves it."""
    return moved(run, epoch=run.epoch + 1, owner=worker, status=RunStatus.RUNNING, due_at=now.real + 600_000)


def claim_by(worker: str) -> Callable[[Run, Instant, Mapping], Commit | None]:
    """A step that takes whatever it is offered."""

    def step(run: Run, now: Instant, mapping: Mapping) -> Commit | None:
        return Commit((Put(RUN, claimed(run, worker, now), run.version),))

    return step


def parked(run: Run) -> Run:
    """The row as a park leaves it: asleep, waiting for a signal."""
    return moved(run, epoch=run.epoch + 1, owner="", status=RunStatus.WAITING, due_at=None, waiting_for='["bid"]')


def ended(run: Run) -> Run:
    """The row of a run that has completed."""
    return moved(
        run, epoch=run.epoch + 1, owner=ENDED, status=RunStatus.COMPLETED, due_at=None, waiting_for="", ended_at=T0 + 1
    )


def fence(run: Run, inbox_seq: int | None = None, mapping: int | None = None) -> Fence:
    """The claim of a run as it stands in this row."""
    return Fence(run.tenant, run.run, run.epoch, run.visit, inbox_seq, mapping)


def intend(effect: Effect, run: Run) -> Commit:
    """Insert an effect under a claim."""
    return Commit((Put(EFFECT, effect, 0),), fence(run))


def record(effect: Effect, run: Run) -> Commit:
    """Write an effect's answer under a claim."""
    return Commit((Put(EFFECT, done(effect), effect.version),), fence(run))


def post(note: Message) -> Commit:
    """Leave a note."""
    return Commit((AppendMessage(note),))


# --- asking --------------------------------------------------------------------------------
async def the_run(store: Store, run: str = "run-1", tenant: str = TENANT) -> Run:
    """The run's row, which must exist."""
    row = await store.load(RUN, (tenant, run))
    assert isinstance(row, Run), row
    return row


async def held(store: Store, run: str = "run-1", worker: str = "worker-1") -> Run:
    """Start a run and have it claimed."""
    await store.commit(start(run_row(run)))
    row = await the_run(store, run)
    mine = claimed(row, worker, await store.now())
    await store.commit(Commit((Put(RUN, mine, row.version),)))
    return mine


async def refused(awaitable: Awaitable[object]) -> StoreError:
    """The error of a commit that must be refused."""
    try:
        answer = await awaitable
    except StoreError as error:
        return error
    raise AssertionError(f"it was not refused: {answer!r}")


async def refused_for(reason: str, awaitable: Awaitable[object]) -> None:
    """A commit must be refused, and for this reason."""
    error = await refused(awaitable)
    assert error.reason == reason, error
    assert error.landed is False, error


async def outcome(awaitable: Awaitable[Done]) -> Done | StoreError:
    """What became of a commit."""
    try:
        return await awaitable
    except StoreError as error:
        return error


async def messages(store: Store, run: str = "run-1", tenant: str = TENANT) -> list[Message]:
    """The mailbox of a run."""
    return [row for row in await store.rows(MESSAGE, (tenant, run)) if isinstance(row, Message)]


def expect_run(row: Run) -> Expect:
    """The run must still be at this version."""
    return Expect(RUN, (row.tenant, row.run), row.version)


def puts(*rows: Approval | Token | Slot | Worker | Event | Value) -> tuple[Put, ...]:
    """Insert rows as they are."""
    kinds = {Approval: APPROVAL, Token: TOKEN, Slot: SLOT, Worker: WORKER, Event: EVENT, Value: VALUE}
    return tuple(Put(kinds[type(row)], row, 0) for row in rows)
