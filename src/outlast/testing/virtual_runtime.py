"""A whole runtime in virtual time, for tests without asyncio: start a run, let days pass, decide, inspect.

It is the real engine with its worker in this process. The store is in memory, or a SQLite file.
"""

import asyncio
import json
import logging
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, Generic, Literal, TypeVar, cast

from pydantic import BaseModel

from outlast.clocks import FIRST_INSTANT, SystemClock, VirtualClock
from outlast.core import commit
from outlast.core.approvals import Actor
from outlast.core.argument_checks import Arguments
from outlast.core.durations import SECOND, Duration, timedelta_of
from outlast.core.events import LATEST
from outlast.core.machine import ApprovalStatus, Choice, Reason
from outlast.core.paging import pages
from outlast.core.rows.run_rows import EVENT, RUN, Event, Run, is_over
from outlast.core.run_transition import rearmed
from outlast.engine.attempts import ActivityCaller
from outlast.engine.left_code import end_tasks, left_threads, named_tasks
from outlast.engine.snapshots import state_of_rows
from outlast.errors import NotFound
from outlast.flow.workflow import Workflow
from outlast.models.runs import RunDetail
from outlast.runtime.in_process import InProcessRuntime
from outlast.runtime.operations import Operations
from outlast.runtime.stores import open_store
from outlast.store.port import RunRows, Store, maintenance
from outlast.testing.answers import next_approver, to_json
from outlast.testing.crash_values import CheckFailed


async def skip(
    store: Store,
    *,
    weeks: float = 0,
    days: float = 0,
    hours: float = 0,
    minutes: float = 0,
    seconds: float = 0,
    milliseconds: float = 0,
) -> None:
    """Move the business time of a `store` forward. The next poll of a worker finds the runs that became due.

    `weeks`, `days`, `hours`, `minutes`, `seconds` and `milliseconds` are added up. Real time does not move: leases do
    not expire and calls do not time out. Raises ValueError unless time moves forward.
    """
    check = Arguments("skip", of_call=True)
    parts = {"weeks": weeks, "days": days, "hours": hours, "minutes": minutes, "seconds": seconds}
    for name, value in {**parts, "milliseconds": milliseconds}.items():
        check.amount(name, value, -SKIP_MAX, SKIP_MAX)
    span = timedelta(
        weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds
    ) / timedelta(milliseconds=1)
    if span <= 0:
        raise ValueError(f"business time only passes forward, not by {span / SECOND} s")
    now = await store.now()
    skipped = commit.Mapping(
        0, now.real, now.business + round(span), store.mapping().rate
    )  # the store gives the version
    await maintenance(store).set_mapping(skipped, rearmed)


T = TypeVar("T")
S = TypeVar("S", bound=BaseModel)
SKIP_MAX: Final = 1_000_000_000
TURN_MS: Final = 20  # virtual time that passes while the loop has work to do
SETTLE_S: Final = 20.0
REAL: Final = SystemClock()


class AppClock:
    """The virtual time of an app. Made by `App`."""

    def __init__(self, app: "App") -> None:
        self._app = app

    def skip(self, text: Duration) -> None:
        """Move business time by `text` ("96h", "7d"), then let everything run that became due.

        That includes sleeps, deadlines and ceilings.
        """
        passes = timedelta_of("the time to pass", text)
        self._app.do(skip(self._app.store, seconds=passes.total_seconds()))  # as ms, 12 days would be beyond SKIP_MAX
        self._app.settle()

    def advance(self, text: Duration) -> None:
        """Move real time by `text` ("30s"), then let everything run that became due.

        That includes retries, leases and settle times.
        """
        ms = round(timedelta_of("the time to pass", text) / timedelta(milliseconds=1))
        self._app.do(self._app.time.advance(ms))
        self._app.settle()


class AppRun(Generic[S]):
    """One run of an app. Made by `App.start`. `S` is the state of its workflow."""

    def __init__(self, app: "App", workflow: Workflow[S, Any, Any], run_id: str) -> None:
        self._app = app
        self._workflow = workflow
        self.id: Final = run_id

    @property
    def now(self) -> RunDetail:
        """The current state of the run."""
        return self._app.do(self._app.runtime.get(self.id))

    @property
    def status(self) -> str:
        """Status of the engine; `now.shown` has the status that users see."""
        return self.now.status

    @property
    def node(self) -> str:
        """The node that the run is in."""
        return self.now.node

    @property
    def outcome(self) -> Any:
        """The result of the run; None until it has ended."""
        return self.now.outcome

    @property
    def state(self) -> S:
        """The state at the last checkpoint; changes of it reach nothing.

        Raises NotStorable if the state no longer fits the model.
        """
        return self._app.state_of(self.id, self._workflow)

    @property
    def waiting_for(self) -> list[str]:
        """Items that the run waits for, each as «kind what»."""
        return [f"{w.kind} {w.what}" for w in self.now.waiting_for]

    @property
    def attention(self) -> list[str]:
        """Reasons why the run requires attention."""
        return [a.reason for a in self.now.attention]

    def approve(self, reason: str = "in order", *, alternative: int = 0, by: str = "") -> None:
        """Approve the pending approval, or its `alternative` with this number, for this `reason`.

        `by` names the person. By default each vote of a quorum is that of another person. Raises NotFound if none is
        pending.
        """
        person, approval = self._person(by)
        self._act(person.approve(approval, reason=reason, alternative=alternative))

    def reject(self, reason: str = "too much", *, again: bool = False, by: str = "") -> None:
        """Reject the pending approval for this `reason`. `again` asks for another round, `by` is that of `approve`.

        Raises NotFound if none is pending.
        """
        person, approval = self._person(by)
        self._act(person.reject(approval, reason=reason, again=again))

    def signal(self, name: str, payload: BaseModel | Mapping[str, Any], *, signal_id: str = "") -> None:
        """Send the signal `name` with a `payload` to the run. A second one of the same `signal_id` is ignored."""
        self._act(self._app.runtime.signal(self.id, name, to_json(payload), signal_id or None))

    def cancel(self, reason: str = "changed my mind") -> None:
        """Request that the run be cancelled for this `reason`."""
        self._act(self._app.runtime.cancel(self.id, reason))

    def answer(self, reason: str, choice: str, *, text: str = "looked at it") -> None:
        """Answer a `reason` for attention with one of its choices: `choice`, and a `text` for the history."""
        self._act(self._app.runtime.operations.answer(self.id, Choice(choice), reason=Reason(reason), text=text))

    def resolve(self, key: str, verb: Literal["happened", "did_not_happen", "give_up"], response: Any = None) -> None:
        """Resolve the uncertain effect of this `key` with a `verb`, as a person would. `response`: if it happened."""
        operations = self._app.runtime.operations
        self._act(operations.resolve_effect(self.id, key, verb, reason="looked", response=response))

    def _person(self, by: str) -> tuple[Operations, str]:
        """Return the client of a person who has not voted, and the id of the pending approval."""
        own = self._app.runtime.operations
        rows, _ = self._app.do(own.rows.approvals(status=ApprovalStatus.PENDING))
        mine = next((row for row in rows if row.run == self.id), None)
        if mine is None:
            raise NotFound(f"no approval of {self.id} waits", f"it waits for {self.waiting_for or 'nothing'}")
        actor = Actor(by or next_approver(own.actor.name, mine.who, [vote.by for vote in mine.votes]))
        return Operations(own.store, tenant=own.tenant, actor=actor, workflows=own._workflows), mine.id

    def _act(self, work: Coroutine[Any, Any, Any]) -> None:
        self._app.do(work)
        self._app.settle()


log = logging.getLogger("outlast.testing")


class App:
    """A store, a worker and a virtual clock. Every call returns when nothing is left to do at the current time.

    Made by the fixture `outlast_app`, which takes the workflows that it serves.
    """

    def __init__(
        self, workflows: tuple[Workflow[Any], ...], *, store: str = "memory:", began: int = FIRST_INSTANT
    ) -> None:
        check = Arguments("App")
        check.members("workflows", workflows, Workflow, "App((orders,))")
        check.text("store", store, 'store="memory:"')
        check.number("began", began, 0, LATEST)
        self._runner = asyncio.Runner()
        self.time: Final = VirtualClock(began)
        self.clock: Final = AppClock(self)
        self._workflows = workflows
        self._started = 0
        self._threads = threading.enumerate()  # that this app has not started
        try:
            self.store: Final[Store] = self.do(open_store(store, clock=self.time))
            self.runtime: Final = self.do(self._open())
        except BaseException:  # because its event loop would stay open, whatever stopped it
            self._runner.close()
            raise

    async def _open(self) -> InProcessRuntime:
        runtime = InProcessRuntime(self.store, self._workflows, clock=self.time, threads=False)
        return await runtime.__aenter__()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Await `work`, a coroutine of `app.runtime.operations` for example."""
        return self._runner.run(work)

    def start(self, workflow: Workflow[S, Any, Any], given: BaseModel | dict[str, Any], *, key: str = "") -> AppRun[S]:
        """Start a run of a `workflow` with the input `given`, and let it go as far as it can without time or answers.

        A second start with the same `key` is the same run; without one, that with the key which the workflow derives.
        """
        self._started += 1
        name = key or ("" if workflow.key is not None else f"start-{self._started}")
        handle = self.do(
            self.runtime.start(
                workflow_name=workflow.name, input=to_json(given), idempotency_key=name, correlation_id=name
            )
        )
        self.settle()
        return AppRun(self, workflow, handle.id)

    def settle(self) -> None:
        """Let everything run that can run now. Raises CheckFailed if that takes more than 20 s."""
        self.do(self._settle())

    async def _settle(self) -> None:
        give_up = REAL.mono() + SETTLE_S * 1000
        while True:
            await self.time.advance(TURN_MS)
            restless = [run.run for run in await self._unfinished() if await self._restless(run)]
            if not restless:
                return
            if REAL.mono() > give_up:
                raise CheckFailed(f"{', '.join(restless)} did not come to rest within {SETTLE_S:g} s")
            await asyncio.sleep(0.001)

    async def _unfinished(self) -> list[Run]:
        read = partial(self.store.page, RUN, self.runtime.operations.tenant, {}, limit=500)
        return [run async for page in pages(read) for run in page.rows if not is_over(run)]

    async def _restless(self, run: Run) -> bool:
        now = await self.store.now()
        return run.owner != "" or (run.due_at is not None and run.due_at <= now.real)

    # --- for tests of nodes alone -----------------------------------------------------------------
    def answer_with(self, caller: ActivityCaller) -> None:
        """Make all further calls with this caller."""
        executors = self.runtime._worker._executors
        executors.services = executors.services._replace(caller=caller)

    def rows(self, run_id: str) -> RunRows:
        """Return every row of the run `run_id`."""
        (rows,) = self.do(self.store.run_rows([(self.runtime.operations.tenant, run_id)]))
        assert rows is not None
        return rows

    def state(self, rows: RunRows) -> Any:
        """Return the newest state in the `rows` of a run."""
        return json.loads(self.do(state_of_rows(self.store, rows)))

    def state_of(self, run_id: str, workflow: Workflow[S, Any, Any]) -> S:
        """Return the newest state of the run `run_id` as the model of its version of the `workflow`."""
        rows = self.rows(run_id)
        home = next((each for each in self._workflows if each.lane == rows.run.lane), workflow)
        return cast(S, home.state_codec.load(self.do(state_of_rows(self.store, rows))))

    def events(self, run_id: str) -> list[Event]:
        """Return the events of the run `run_id`."""
        return list(self.do(self.store.rows(EVENT, (self.runtime.operations.tenant, run_id))))

    def pass_until(self, business: int) -> None:
        """Move business time just beyond this instant (ms)."""
        now = self.do(self.store.now())
        self.clock.skip(timedelta(milliseconds=max(1, business - now.business + 1)))

    def close(self) -> None:
        """Stop the worker and close the store. Logs the tasks and threads that do not end within three seconds."""
        self.do(self._close())
        loop = self._runner.get_loop()
        tasks = end_tasks(loop)
        threads = left_threads(self._threads)
        if not tasks and not threads:
            self._runner.close()  # which waits for all tasks, and for the threads of `asyncio.to_thread`
            return
        log.warning("left behind, because it ignores that its app ends: %s", "; ".join(named_tasks(tasks) + threads))
        asyncio.set_event_loop(None)
        loop.close()
        if tasks:  # if they were collected, they would be cancelled once more, and might never end
            threading.Thread(target=_keep, args=(tasks,), name="outlast-left", daemon=True).start()

    async def _close(self) -> None:
        await self.runtime.__aexit__(None, None, None)
        await self.store.close()


def _keep(tasks: list[asyncio.Task[Any]]) -> None:
    """Keep tasks until the process ends: the frame of a daemon thread is never released."""
    threading.Event().wait()


AppFactory = Callable[..., App]


@contextmanager
def app_factory() -> Iterator[AppFactory]:
    """Yield a function that creates apps. They are closed at the end of the block."""
    with tempfile.TemporaryDirectory(prefix="outlast-app-") as folder:
        made: list[App] = []

        def make(*workflows: Workflow[Any], store: Literal["memory", "sqlite"] = "memory") -> App:
            """Create an app that serves these workflows."""
            url = f"sqlite:{Path(folder) / f'{len(made)}.db'}" if store == "sqlite" else "memory:"
            made.append(App(workflows, store=url))
            return made[-1]

        try:
            yield make
        finally:
            for app in reversed(made):
                app.close()
