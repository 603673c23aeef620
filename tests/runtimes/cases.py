"""The cases of the differential tests: a workflow, its receivers, and the script of people and time."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from typing_extensions import override

from examples.acquisition import office
from examples.acquisition.workflow import acquisition
from examples.negotiation.inbox import inbox_app, posting
from examples.negotiation.loopback import serve
from examples.negotiation.record import Arrived, Executed, read
from examples.negotiation.samples import sample
from examples.negotiation.suppliers import INBOX
from examples.negotiation.workflow import negotiation
from outlast.core.commit import Mapping as ClockMapping
from outlast.core.machine import ApprovalStatus
from outlast.core.rows.effect_rows import Approval
from outlast.core.rows.run_rows import Run, is_over
from outlast.core.run_transition import rearmed
from outlast.flow.workflow import Workflow
from outlast.runtime.execution_runtime import ExecutionRuntime
from outlast.runtime.operations import Operations
from outlast.store.port import maintenance
from outlast.testing import FakeReceivers
from tests.examples.helpers import Market, market
from tests.examples.play import Setup, prompt, until_over
from tests.runtimes import orders

POLL_S: Final = 0.02


class World(NamedTuple):
    """The world outside while a case is played: variables for workers, and a plain record of what was executed."""

    env: dict[str, str]
    executed: Callable[[], list[str]]
    market: Market | None = None
    engines: tuple[str, str] | None = None
    """Two engines between which a run moves, at each approval, while it waits."""
    at_rest: bool = False
    """True if the people of a run that moves decide after its engine has executed it and parked it again."""


class Case(Protocol):
    """A run with its world and its script."""

    name: str
    workflow: Workflow[Any, Any, Any]
    module: str
    """Module that `outlast worker` serves."""
    parks: bool = True
    """True if a run waits before the signal of a wait is sent, so that its waits are the same each time."""

    def world(self, folder: Path, ops: Operations) -> Any:
        """Return an asynchronous context manager of the `World`."""

    async def play(self, world: World, runtime: ExecutionRuntime, ops: Operations) -> str:
        """Play the script to the end of the run and return its id."""


class Scripted(Case):
    """A case with fake receivers. People answer once the run is at rest, so every engine sees the same order."""

    def __init__(
        self,
        name: str,
        workflow: Workflow[Any, Any, Any],
        module: str,
        given: dict[str, Any],
        outside: Callable[[], FakeReceivers],
        *,
        approvals: tuple[str, ...] = ("approve",),
        signals: Mapping[str, dict[str, Any]] | None = None,
        at_start: Callable[[str], None] | None = None,
        before_approval: Callable[[str], None] | None = None,
    ) -> None:
        """`approvals`: approve, reject or again, in order. `signals`: payloads by name; a wait without one passes.

        `at_start` and `before_approval` change a fact at the address of the receivers: before the start, and before
        each decision.
        """
        self.name, self.workflow, self.module = name, workflow, module
        self._given, self._outside, self._approvals = given, outside, approvals
        self._signals, self._before = dict(signals or {}), before_approval
        self._at_start = at_start

    @asynccontextmanager
    @override
    async def world(self, folder: Path, ops: Operations) -> AsyncIterator[World]:
        with self._outside() as here:
            self._url = here.url
            yield World({here.env: here.url}, lambda: _executed(here))

    @override
    async def play(self, world: World, runtime: ExecutionRuntime, ops: Operations) -> str:
        if self._at_start is not None:
            await asyncio.to_thread(self._at_start, self._url)
        begun = await runtime.start(
            workflow_name=self.workflow.name, input=self._given, idempotency_key=self.name, correlation_id=self.name
        )
        answers, signals = list(self._approvals), dict(self._signals)
        while not is_over(run := await ops.rows.run(begun.id)):
            assert not run.attention, run.attention
            if not run.owner and run.waiting_for:
                await self._answer(run, answers, signals, runtime, ops, world)
            await asyncio.sleep(POLL_S)
        assert not answers and not signals, (answers, signals)
        return begun.id

    async def _answer(
        self,
        run: Run,
        answers: list[str],
        signals: dict[str, Any],
        runtime: ExecutionRuntime,
        ops: Operations,
        world: World,
    ) -> None:
        pending, _ = await ops.rows.approvals(status=ApprovalStatus.PENDING.value)
        (waiting, *_) = run.waiting_for
        if pending:
            if world.engines is not None:
                (other,) = {*world.engines} - {run.scheduler}
                await _move(ops, run.run, other, at_rest=world.at_rest)
            await self._decide(pending[0], answers, ops)
        elif waiting.kind == "signal" and (payload := signals.pop(waiting.what, None)) is not None:
            await runtime.signal(run.run, waiting.what, payload, f"signal/{waiting.what}")
        elif waiting.kind in ("signal", "timer") and waiting.until:
            await _skip(ops, waiting.until)

    async def _decide(self, approval: Approval, answers: list[str], ops: Operations) -> None:
        if self._before is not None:
            await asyncio.to_thread(self._before, self._url)
        match answers.pop(0):
            case "approve":
                await ops.approve(approval.id, reason="in order")
            case "again":
                await ops.reject(approval.id, reason="shorter, please", again=True)
            case _:
                await ops.reject(approval.id, reason="too much")


def _executed(here: FakeReceivers) -> list[str]:
    """Return each execution in order, without ids of runs and keys of the model's requests."""
    return [f"{e.route} {e.key.split(':', 3)[-1]} {e.status}" for e in here.record.of("executed")]


async def _move(ops: Operations, run_id: str, engine: str, *, at_rest: bool) -> None:
    """Give a run that waits to another engine; `at_rest`: and return once that has parked it again."""
    moved = (await ops.rows.run(run_id)).version + 1
    await ops.move_to(run_id, engine, reason="to compare")
    while at_rest:
        run = await ops.rows.run(run_id)
        if not run.owner and run.version != moved:
            return
        await asyncio.sleep(POLL_S)


async def _skip(ops: Operations, until: int) -> None:
    """Move business time just beyond an instant."""
    now = await ops.store.now()
    if until >= now.business:
        await maintenance(ops.store).set_mapping(ClockMapping(0, now.real, until + 1, 1.0), rearmed)


class Purchase(Case):
    """A negotiation with suppliers in another process, whose bids come back as signals at any time."""

    parks = False

    def __init__(self, purchase: str, *answers: Any) -> None:
        self.name, self.workflow, self.module = purchase, negotiation, "examples.negotiation.workflow"
        self._purchase, self._answers = purchase, answers

    @asynccontextmanager
    @override
    async def world(self, folder: Path, ops: Operations) -> AsyncIterator[World]:
        with market(folder, prompt(self._purchase)) as here:
            async with serve(inbox_app(posting(ops.signal))) as inbox:
                yield World({INBOX: inbox}, lambda: _orders(here), here)

    @override
    async def play(self, world: World, runtime: ExecutionRuntime, ops: Operations) -> str:
        assert world.market is not None
        given = sample(self._purchase, market=world.market.url, today=datetime.now(UTC).date())
        begun = await runtime.start(
            workflow_name=negotiation.name, input=given, idempotency_key=self.name, correlation_id=self.name
        )
        await until_over(ops, Setup(world.market, set(), list(self._answers), ops.store.url), begun.id)
        return begun.id


def _orders(here: Market) -> list[str]:
    """Return what each supplier executed, sorted, because suppliers are asked at the same time."""
    entries = read(here.record)
    done = {e.n for e in entries if isinstance(e, Executed)}
    arrived = [e for e in entries if isinstance(e, Arrived) and e.n in done]
    return sorted(f"{e.supplier} {e.kind} {e.round} {e.key.split(':', 3)[-1]}" for e in arrived)


def lead(n: int, **more: Any) -> dict[str, Any]:
    """Return an inquiry."""
    return {
        "company": f"Works {n}", "domain": "works.example", "contact": "Ada", "email": f"ada{n}@works.example",
        "country": "DE", "industry": "retail", "employees": 80, "message": "hello",
    } | more  # fmt: skip


def _sale(
    name: str, n: int, misbehaves: str = "calm", *, given: dict[str, Any] | None = None, **script: Any
) -> Scripted:
    module, outside = "examples.acquisition.workflow", lambda: office.office(office.MISBEHAVIOURS[misbehaves])
    return Scripted(f"acquisition {name}", acquisition, module, lead(n, **(given or {})), outside, **script)


def _order(name: str, *, ships: bool, **script: Any) -> Scripted:
    given, outside = {"number": f"A-{name}", "pieces": 3}, lambda: orders.systems(ships=ships)
    return Scripted(f"order {name}", orders.orders, "tests.runtimes.orders", given, outside, **script)


CASES: Final[dict[str, Case]] = {
    case.name: case
    for case in (
        _order("shipped", ships=True, signals={"slot": {"at": "noon"}}),
        _order("undone", ships=False, signals={"slot": {"at": "noon"}}),
        _order("rejected", ships=True, approvals=("reject",)),
        _sale("followed up", 1),
        _sale("answered", 2, given={"employees": 900, "message": "see wiki.internal"}, approvals=("again", "approve"),
              signals={"reply": {"text": "yes"}}),
        _sale("isolated", 3, "refused-extras"),
        _sale("undone", 4, "refused-follow-up"),
        _sale("opted out", 5, before_approval=lambda url: office.opt_out(url, "ada5@works.example")),
        _sale("opted out before", 6, at_start=lambda url: office.opt_out(url, "ada6@works.example")),
        Purchase("spot-threshold", "approve"),
    )
}  # fmt: skip
IN_THE_GATE: Final = {
    "own": ("order undone", "acquisition answered"),
    "temporal": ("order undone", "acquisition answered"),
    "langgraph": ("acquisition answered",),
}
"""Cases of the default run, by engine."""
