"""One purchase whose worker is killed every 0.3 to 3 s, checked against the suppliers' record."""

import asyncio
import contextlib
import json
import random
import signal
import sys
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from examples.negotiation import record
from examples.negotiation.inbox import inbox_app, posting
from examples.negotiation.loopback import serve
from examples.negotiation.samples import sample
from examples.negotiation.state import Negotiation
from examples.negotiation.workflow import negotiation
from outlast.core.approvals import Actor
from outlast.core.commit import Mapping
from outlast.core.machine import ApprovalStatus, EffectStatus
from outlast.core.rows.run_rows import Run, is_over
from outlast.core.run_transition import rearmed
from outlast.errors import Conflict
from outlast.runtime.in_process import state_of
from outlast.runtime.operations import Operations
from outlast.runtime.stores import open_store
from tests.crash_routes.cases import Answer, Case
from tests.examples.helpers import Market, market

KILLS_S = (0.3, 3.0)
GIVE_UP_S = 240
LOOK_S = 0.02


class RouteResult(NamedTuple):
    """Result of one run."""

    end: str
    """Values that must not depend on the kills."""
    kills: int
    calls: int
    """How often a person resumed a run because its worker had died too often."""
    sent: int
    repeated: int
    unsettled: int
    slots: int
    seconds: float


class WorkerForks:
    """The process that forks workers."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def ask(self, **what: Any) -> dict[str, Any]:
        """Send one request and return its answer."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(what).encode() + b"\n")
        answer: dict[str, Any] = json.loads(await self._process.stdout.readline())
        return answer


@contextlib.asynccontextmanager
async def worker_forks() -> AsyncIterator[WorkerForks]:
    """Run a process that forks workers for this block. Its workers end with it."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.crash_routes.worker_forks", stdin=pipe, stdout=pipe
    )
    try:
        yield WorkerForks(process)
    finally:
        process.kill()
        await process.wait()


class Route:
    """One run whose worker is killed."""

    def __init__(self, case: Case, seed: int, folder: Path, fork: WorkerForks, ops: Operations, m: Market) -> None:
        self._case, self._folder, self._fork, self._ops, self._m = case, folder, fork, ops, m
        self._dice = random.Random(f"{case.route}-{seed}")
        self._answers: list[Answer] = list(case.answers[seed % 2])
        self._pid = self._kills = self._calls = 0
        self._inbox = self._run = ""

    async def play(self, *, kill: bool) -> RouteResult:
        """Play the run from start to end. Without `kill` this gives the expected result."""
        began = time.monotonic()
        async with serve(inbox_app(posting(self._ops.signal))) as self._inbox, asyncio.timeout(GIVE_UP_S):
            await self._ops.set_slots(1)
            purchase = sample(self._case.sample, market=self._m.url, today=datetime.now(UTC).date())
            self._run = (await self._ops.start_run("negotiation", purchase, key="one")).run
            await self._hire()
            await self._until_over(kill=kill)
            await self._end_worker()
        return await self._told(time.monotonic() - began)

    async def _until_over(self, *, kill: bool) -> None:
        due = time.monotonic() + self._dice.uniform(*KILLS_S)
        while not is_over(run := await self._ops.rows.run(self._run)):
            if kill and time.monotonic() >= due:
                await self._end_worker()
                self._kills += 1
                await self._hire()
                due = time.monotonic() + self._dice.uniform(*KILLS_S)
            elif (await self._fork.ask(op="left", pid=self._pid))["died"]:
                await self._hire()  # it was stopped for too long, and another worker replaced it
            await self._person(run)
            await asyncio.sleep(LOOK_S)

    async def _person(self, run: Run) -> None:
        pending, _ = await self._ops.rows.approvals(status=ApprovalStatus.PENDING.value)
        if run.attention:
            await self._answer(run)
        elif pending:
            again = self._answers.pop(0) == "again"
            with contextlib.suppress(Conflict):
                if again:
                    await self._ops.reject(pending[0].id, reason="once more", again=True)
                else:
                    await self._ops.approve(pending[0].id, reason="fine")
        elif not run.owner and (until := self._silence(run)):
            now = await self._ops.store.now()
            wanted = Mapping(0, now.real, max(until, now.business) + 60, 1.0)
            await self._ops.store.set_mapping(wanted, rearmed)

    async def _answer(self, run: Run) -> None:
        """Answer attention. Reasons here: workers died too often, or two cycles take more than 168 hours."""
        with contextlib.suppress(Conflict):
            if "total_timeout" in run.attention_text:
                await self._ops.extend(self._run, by=timedelta(days=14), reason="it is on its way")
            elif "poison" in run.attention_text:
                self._calls += 1
                await self._ops.continue_run(self._run, reason="we kill it on purpose")
            else:
                raise AssertionError(f"{self._case.route}: {run.attention_text}")

    def _silence(self, run: Run) -> int:
        """Return the end of the current wait if all bids have arrived, else 0."""
        until = min((w.until for w in run.waiting_for if w.kind != "approval" and w.until), default=0)
        entries = self._m.entries(self._run)
        acted = {e.n for e in entries if isinstance(e, record.Executed)}
        asked = [e for e in entries if isinstance(e, record.Arrived) and e.kind in record.APPROACHES and e.n in acted]
        delivered = {e.bid_id for e in entries if isinstance(e, record.Offered) and e.status == 202}
        return until if len(delivered) == sum(1 for e in asked if self._case.will_bid(e)) else 0

    async def _hire(self) -> None:
        name, log = f"w-{self._kills}", f"{self._folder / 'workers.log'}"
        url = f"{self._ops.store.url}"
        self._pid = (await self._fork.ask(op="hire", store=url, inbox=self._inbox, name=name, log=log))["pid"]

    async def _end_worker(self) -> None:
        died = (await self._fork.ask(op="kill", pid=self._pid))["died"]
        assert died == -signal.SIGKILL, f"it was to die by SIGKILL and ended with {died}"

    async def _told(self, seconds: float) -> RouteResult:
        state = await self._ops.run(self._run)
        s = Negotiation.model_validate(await state_of(self._ops, self._run))
        counts = record.summary(self._m.entries(self._run), self._run)
        effects = await self._ops.rows.effects(self._run)
        done = [e for e in effects if e.status is EffectStatus.DONE]
        end = {
            "status": state.shown,
            "reason": state.reason,
            "outcome": state.outcome,
            "bids": sorted((b.bid_id, b.cents, b.status) for b in s.bids),
            "done": sorted((e.visit, e.key) for e in done),
            "declined": s.declined,
        }
        known = {(e.visit, e.key) for e in done}
        assert len(known) == sum(count.executed for count in counts.values()), "store and suppliers agree"
        return RouteResult(
            end=json.dumps(end, sort_keys=True),
            kills=self._kills,
            calls=self._calls,
            sent=sum(count.sent for count in counts.values()),
            repeated=sum(count.repeated + count.executed_twice for count in counts.values()),
            unsettled=sum(1 for e in effects if not e.settled_at),
            slots=sum(1 for slot in await self._ops.rows.slots() if slot.holder),
            seconds=seconds,
        )


async def run_route(case: Case, seed: int, folder: Path, *, kill: bool) -> RouteResult:
    """Play one run in its own folder."""
    store = await open_store(f"sqlite:{folder / 'outlast.db'}")
    try:
        ops = Operations(store, tenant="default", actor=Actor("person"), workflows={"negotiation": negotiation})
        with market(folder, case.suppliers) as m:
            async with worker_forks() as fork:
                return await Route(case, seed, folder, fork, ops, m).play(kill=kill)
    finally:
        await store.close()
