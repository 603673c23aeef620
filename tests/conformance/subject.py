"""The interface of a store under test, and rows and commits to write promises with."""

from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from outlast.core.causes import flagged
from outlast.core.commit import AppendMessage, Commit, Done, Expect, Fence, Instant, Mapping, Put
from outlast.core.machine import ENDED, ApprovalStatus, EffectStatus, LeaseStatus, RunStatus
from outlast.core.rows.approval_columns import PLANS, OfferedCall
from outlast.core.rows.effect_rows import APPROVAL, EFFECT, Approval, Effect
from outlast.core.rows.limit_rows import SLOT, Slot
from outlast.core.rows.run_rows import EVENT, MESSAGE, RUN, STATE_CHUNK, TOKEN, Event, Message, Run, Token
from outlast.core.rows.store_rows import STORE, WORKER, Worker
from outlast.core.state.snapshot_codec import StateChunk
from outlast.errors import Corrupt, StoreError
from outlast.store.port import Store

T0: Final = 1_700_000_000_000
TENANT: Final = "acme"
LANE: Final = "auction@1"


class HandClock:
    """Clock that only tests move."""

    def __init__(self, now: int = T0) -> None:
        self.time = now

    def wall(self) -> int:
        return self.time

    def boot(self) -> int:
        return self.time

    def mono(self) -> int:
        return self.time

    async def sleep(self, ms: int) -> None:
        self.time += ms


class Subject(Protocol):
    """A store under test, empty at first. Its maker closes the stores that `open` returned."""

    clock: HandClock

    async def open(self, writer: str) -> Store:
        """Open another store on the same data, with its own writer row and this subject's clock."""


Promise = Callable[[Subject], Awaitable[None]]


async def two(subject: Subject) -> tuple[Store, Store]:
    """Open two independent writers on the same data."""
    return await subject.open("writer-a"), await subject.open("writer-b")


# --- rows ----------------------------------------------------------------------------------
def run_row(run: str = "run-1", tenant: str = TENANT, **changes: object) -> Run:
    """Return a run that is queued and due."""
    row = Run(
        tenant=tenant, run=run, version=1, epoch=0, owner="", inbox_seq=0, due_at=T0, lane=LANE, queue="",
        status=RunStatus.QUEUED, workflow="auction", node="plan", status_label="", visit=1, entered_at=T0, seq=1,
        event_hash="",
        attention_text="", waiting_for_text="", timers_text="", visits_text="", crash_count=0, slots_text="",
        ceiling_at=0,
        created_at=T0, ended_at=0, requested_by="local:ann", correlation_id="", trace_id="",
    )  # fmt: skip
    row = row._replace(**changes)  # type: ignore[arg-type]
    try:
        return flagged(row) if row.attention_text and "causes" not in changes else row
    except Corrupt:
        return row


def event_row(run: str = "run-1", seq: int = 1, tenant: str = TENANT, snapshot: bytes | None = b"{}") -> Event:
    """Return an event, by default with a snapshot."""
    return Event(
        tenant, run, seq, "run.moved", T0, "plan", 1, 1, 0, "auction", "", "", b'{"seq":%d}' % seq, f"hash-{seq}",
        snapshot,
    )  # fmt: skip


def value_row(name: str, body: bytes, run: str = "run-1", tenant: str = TENANT) -> StateChunk:
    """Return a chunk of a state."""
    return StateChunk(tenant, run, name, 0, body, T0)


def effect_row(run: str = "run-1", key: str = "invite/1", tenant: str = TENANT, visit: int = 1) -> Effect:
    """Return an intended effect of a run."""
    return Effect(
        tenant=tenant, run=run, visit=visit, key=key, version=1, status=EffectStatus.INTENDED, activity="invite",
        digest="d", node="plan", args=b"{}", response=None, error_text="", external_id="", attempts=1, waited_ms=0,
        ordinal=1, epoch=1, first_at=T0, not_after=T0 + 30_000, settle_after=T0 + 60_000, covered_until=0, approval="",
        allowed_by="", undo="no: nothing to undo", settled_at=0, settled_by="",
    )  # fmt: skip


def done(effect: Effect, response: bytes = b'"ok"') -> Effect:
    """Return the effect after its answer was recorded."""
    return effect._replace(
        version=effect.version + 1, status=EffectStatus.DONE, response=response, settled_at=T0, settled_by="call"
    )


def approval_row(id_: str = "ap-1", run: str = "run-1", tenant: str = TENANT, asked_at: int = T0) -> Approval:
    """Return a pending approval with a deadline in an hour."""
    return Approval(
        tenant=tenant, run=run, id=id_, version=1, status=ApprovalStatus.PENDING, visit=1, wait="approval",
        plans_text=PLANS.encode([OfferedCall("refund", "refund/a", "d", "{}")]),
        summary="Refund 5 €", risk="", again=0, who="finance", requested_by="local:ann", asked_at=asked_at,
        within_until=asked_at + 3_600_000, valid_ms=0, decided_at=0, decided_by="", claims_text="",
        reason="", chosen="",
        valid_until=0, consumed_by="",
    )  # fmt: skip


def message_row(run: str = "run-1", payload: bytes = b"{}", tenant: str = TENANT) -> Message:
    """Return a signal. The store sets its number and time."""
    return Message(tenant, run, 0, "signal", "bid", payload, "", "local:bob", 0)


def token_row(key: str = "start-1", target: str = "run-1", tenant: str = TENANT) -> Token:
    """Return the token of a start key."""
    return Token(tenant, "", key, "d", target, T0)


def slot_row(i: int = 1, holder: str = "", tenant: str = TENANT) -> Slot:
    """Return a slot of a limit."""
    return Slot(tenant, i, 1, tenant if holder else "", holder)


def worker_row(id_: str = "worker-1") -> Worker:
    """Return the row of an open worker."""
    return Worker(STORE, id_, 1, LeaseStatus.ALIVE, T0 + 15_000, LANE, "", T0, T0, "")


# --- commits -------------------------------------------------------------------------------
def start(run: Run) -> Commit:
    """Return a commit that inserts a run with its first event."""
    return Commit((Put(RUN, run, 0), Put(EVENT, event_row(run.run, 1, run.tenant), 0)))


def put_run(before: Run, **changes: object) -> Commit:
    """Return a commit that moves a run's row by one version."""
    return Commit((Put(RUN, moved(before, **changes), before.version),))


def moved(before: Run, **changes: object) -> Run:
    """Return the row one version later."""
    return before._replace(version=before.version + 1, **changes)  # type: ignore[arg-type]


def claimed(run: Run, worker: str, now: Instant) -> Run:
    """Return the row after a claim."""
    return moved(run, epoch=run.epoch + 1, owner=worker, status=RunStatus.RUNNING, due_at=now.real + 600_000)


def claim_by(worker: str) -> Callable[[Run, Instant, Mapping], Commit | None]:
    """Return a step that takes every run."""

    def step(run: Run, now: Instant, mapping: Mapping) -> Commit | None:
        return Commit((Put(RUN, claimed(run, worker, now), run.version),))

    return step


def parked(run: Run) -> Run:
    """Return the row after a park that waits for a signal."""
    return moved(run, epoch=run.epoch + 1, owner="", status=RunStatus.WAITING, due_at=None, waiting_for_text='["bid"]')


def ended(run: Run) -> Run:
    """Return the row of a completed run."""
    return moved(
        run,
        epoch=run.epoch + 1,
        owner=ENDED,
        status=RunStatus.COMPLETED,
        due_at=None,
        waiting_for_text="",
        ended_at=T0 + 1,
    )


def fence(run: Run, inbox_seq: int | None = None, mapping: int | None = None) -> Fence:
    """Return the fence of the claim in this row."""
    return Fence(run.tenant, run.run, run.epoch, run.visit, inbox_seq, mapping)


def intend(effect: Effect, run: Run) -> Commit:
    """Return a commit that inserts an effect under a claim."""
    return Commit((Put(EFFECT, effect, 0),), fence(run))


def record(effect: Effect, run: Run) -> Commit:
    """Return a commit that records an effect's answer under a claim."""
    return Commit((Put(EFFECT, done(effect), effect.version),), fence(run))


def append_message(message: Message) -> Commit:
    """Return a commit that appends a message."""
    return Commit((AppendMessage(message),))


# --- asking --------------------------------------------------------------------------------
async def the_run(store: Store, run: str = "run-1", tenant: str = TENANT) -> Run:
    """Load the run's row, which must exist."""
    row = await store.load(RUN, (tenant, run))
    assert isinstance(row, Run), row
    return row


async def held(store: Store, run: str = "run-1", worker: str = "worker-1", **changes: object) -> Run:
    """Start a run and claim it."""
    await store.commit(start(run_row(run, **changes)))
    row = await the_run(store, run)
    mine = claimed(row, worker, await store.now())
    await store.commit(Commit((Put(RUN, mine, row.version),)))
    return mine


async def refused(awaitable: Awaitable[object]) -> StoreError:
    """Return the error of a commit that must be refused."""
    try:
        answer = await awaitable
    except StoreError as error:
        return error
    raise AssertionError(f"it was not refused: {answer!r}")


async def refused_for(reason: str, awaitable: Awaitable[object]) -> None:
    """Assert that a commit is refused for this reason."""
    error = await refused(awaitable)
    assert error.reason == reason, error
    assert error.landed is False, error


async def outcome(awaitable: Awaitable[Done]) -> Done | StoreError:
    """Return the result or the error of a commit."""
    try:
        return await awaitable
    except StoreError as error:
        return error


async def messages(store: Store, run: str = "run-1", tenant: str = TENANT) -> list[Message]:
    """Load the messages of a run."""
    return [row for row in await store.rows(MESSAGE, (tenant, run)) if isinstance(row, Message)]


def expect_run(row: Run) -> Expect:
    """Return the expectation that the run is still at this version."""
    return Expect(RUN, (row.tenant, row.run), row.version)


def puts(*rows: Approval | Token | Slot | Worker | Event | StateChunk) -> tuple[Put, ...]:
    """Return insertions of these rows."""
    kinds = {Approval: APPROVAL, Token: TOKEN, Slot: SLOT, Worker: WORKER, Event: EVENT, StateChunk: STATE_CHUNK}
    return tuple(Put(kinds[type(row)], row, 0) for row in rows)
