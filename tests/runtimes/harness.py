"""Plays one case on one engine and returns everything that must be equal on all engines."""

import asyncio
import json
import os
import re
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import outlast
from outlast.core.approvals import EVERY_ROLE, Actor
from outlast.core.durations import Liveness
from outlast.core.events import EventType
from outlast.core.rows.effect_rows import MEMO
from outlast.insight.labels import shown_status
from outlast.runtime.execution_runtime import ExecutionRuntime, local_actor
from outlast.runtime.in_process import InProcessRuntime
from outlast.runtime.operations import Operations
from outlast.runtime.stores import open_store
from tests import forked
from tests.examples.helpers import ROOT
from tests.runtimes.cases import Case, World
from tests.runtimes.engines import Engine

GIVE_UP_S: Final = 90
PEOPLE: Final = Actor("bo", EVERY_ROLE)
LIVE: Final = Liveness(
    heartbeat_window=3_000, heartbeat_every=1_000, attempt_timeout=10_000, start_budget=1_000, settle_margin=1_000
)
SHORT: Final = (
    *("--heartbeat-window", "3s", "--heartbeat-every", "1s"),
    *("--attempt-timeout", "10s", "--start-budget", "1s", "--settle-margin", "1s"),
)
SCHEDULING: Final = frozenset(
    {
        EventType.CLAIMED, EventType.TAKEN_OVER, EventType.ADMITTED, EventType.QUEUED, EventType.HANDED_BACK,
        EventType.REQUEUED, EventType.MOVED,
    }
)  # fmt: skip
"""Events about who executes a run and when: the part that an engine decides."""
OF_PROCESSES: Final = frozenset(
    {"epoch", "version", "worker", "from", "to", "since", "until", "at", "scheduler", "lane"}
)
"""Fields of events with an id of a process, a time, or the number of a claim."""


class Observed(NamedTuple):
    """A finished run without times and ids."""

    end: dict[str, Any]
    ledger: list[Any]
    events: list[Any]
    executed: list[str]

    def with_one_occasion(self) -> "Observed":
        """Return it with `commit` in place of `resume`, for an engine that claims a run for each node."""
        text = json.dumps(self).replace('"resume\\"', '"commit\\"').replace('"resume"', '"commit"')
        return Observed(*json.loads(text))

    def parked_once(self) -> "Observed":
        """Return it without the second of two equal `run.parked` in a row.

        The engine that a run moves to executes it once. If people have not decided by then, it parks the run as before.
        """
        pairs = pairwise([None, *self.events])
        return self._replace(events=[then for last, then in pairs if then != last or then[0] != EventType.PARKED])


async def observe(
    on: Engine | None,
    case: Case,
    folder: Path,
    *,
    http: bool = False,
    moves: bool = False,
    at_rest: bool = False,
) -> Observed:
    """Play a case in this process, or with worker processes on a started engine.

    `http`: callers reach a service. `moves`: our own engine has a worker, too, and the run moves at each approval;
    `at_rest`: and is decided once the other engine has parked it.
    """
    url = f"sqlite:{folder / 'outlast.db'}"
    store = await open_store(url)
    ops = Operations(store, tenant="default", actor=PEOPLE, workflows={case.workflow.name: case.workflow})
    try:
        async with asyncio.timeout(GIVE_UP_S), case.world(folder, ops) as world:
            async with _serving(on, case, world, url, folder, http=http, moves=moves) as runtime:
                name = "outlast" if on is None or on.name == "own" else on.name
                engines = (name, "outlast") if moves else None
                run_id = await case.play(world._replace(engines=engines, at_rest=at_rest), runtime, ops)
                run = await ops.rows.run(run_id)
                assert run.scheduler == name or moves, run.lane
            return await _observed(ops, run_id, world, SCHEDULING if case.parks else SCHEDULING | {EventType.PARKED})
    finally:
        await store.close()


@asynccontextmanager
async def _serving(
    on: Engine | None, case: Case, world: World, url: str, folder: Path, *, http: bool, moves: bool
) -> AsyncIterator[ExecutionRuntime]:
    """Serve the workflow on an engine; yield the interface of its callers."""
    async with AsyncExitStack() as stack:
        if on is None:
            for variable, value in world.env.items():
                stack.callback(_restore, variable, os.environ.get(variable))
                os.environ[variable] = value
            store = await open_store(url)
            stack.push_async_callback(store.close)
            yield await stack.enter_async_context(
                InProcessRuntime(store, [case.workflow], live=LIVE, actor=local_actor(()))
            )
            return
        await on.open()
        env = {**os.environ, **world.env, **on.env, "OUTLAST_STORE": url, "PYTHONPATH": f"{ROOT}", "OUTLAST_URL": ""}
        target = url
        if http:
            command = ("-o", "ndjson", "serve", case.module, "--no-worker", "--port", "0")
            service = stack.enter_context(_process("service", command, env, folder))
            target = str(json.loads(await _line(folder / "service.log", service))["url"])
        stack.enter_context(_process("worker", ("worker", case.module, *SHORT, *on.options), env, folder))
        if moves:
            stack.enter_context(_process("own", ("worker", case.module, *SHORT), env, folder))
        client = await stack.enter_async_context(outlast.connect(target, workflows=[case.workflow]))
        yield on.runtime(client)


class _process:  # noqa: N801 - used as a function
    """A forked process of Outlast with its output in NAME.log; stopped with SIGTERM at the end of the block."""

    def __init__(self, name: str, command: tuple[str, ...], env: dict[str, str], folder: Path) -> None:
        self._args, self._log, self._env = ("outlast", *command), folder / f"{name}.log", env

    def __enter__(self) -> subprocess.Popen[Any]:
        with self._log.open("wb") as log:
            self._child = forked.Popen(
                self._args, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=self._env
            )
        return self._child

    def __exit__(self, *_: object) -> None:
        self._child.send_signal(signal.SIGTERM)
        try:
            status = self._child.wait(GIVE_UP_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            raise
        assert status == 0, self._log.read_text()[-2_000:]


async def _line(log: Path, child: subprocess.Popen[Any]) -> str:
    """Return the line with the address that a service prints once it is ready."""
    while True:
        text = log.read_text()  # noqa: ASYNC240 - a few lines
        found = [line for line in text.splitlines(keepends=True) if '"url"' in line and line.endswith("\n")]
        if found:
            return found[0]
        assert child.poll() is None, text
        await asyncio.sleep(0.02)


def _restore(variable: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(variable, None)
    else:
        os.environ[variable] = value


async def _observed(ops: Operations, run_id: str, world: World, ignored: frozenset[EventType]) -> Observed:
    """Read the rows of a finished run, without the events of these types."""
    run, detail = await ops.rows.run(run_id), await ops.run(run_id)
    effects = sorted(await ops.rows.effects(run_id), key=lambda e: e.ordinal)
    memos = sorted(await ops.store.rows(MEMO, (run.tenant, run_id)), key=lambda m: (m.visit, m.key))
    approvals, _ = await ops.rows.approvals()
    names = {
        run_id: "RUN",
        **{a.id: f"APPROVAL-{n}" for n, a in enumerate(sorted(approvals, key=lambda a: a.asked_at))},
    }
    end = {"shown": shown_status(run), "reason": detail.reason, "outcome": detail.outcome, "visits": run.visits}
    ledger = [
        *([e.visit, e.activity, e.key, e.status.value, e.args, e.response, e.undoes, e.settled_by, e.allowed_by]
          for e in effects),
        *([m.visit, m.activity, m.key, m.response, m.error_text] for m in memos),
        *([a.visit, a.wait, a.status.value, a.summary, a.decided_by, a.reason, [p.arguments_text for p in a.plans]]
          for a in sorted(approvals, key=lambda a: a.asked_at)),
    ]  # fmt: skip
    history = [e for e in await ops.rows.full_history(run_id) if e.type not in ignored]
    events = [[e.type, e.node, e.visit, _without(e.data())] for e in history]
    return Observed(_plain(end, names), _plain(ledger, names), _plain(events, names), world.executed())


def _without(data: Any) -> Any:
    """Return the data of an event without fields of processes."""
    if isinstance(data, dict):
        return {name: _without(value) for name, value in data.items() if name not in OF_PROCESSES}
    return [_without(each) for each in data] if isinstance(data, list) else data


TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)")
ADDRESS: Final = re.compile(r"127\.0\.0\.1:\d+")


def _plain(value: Any, names: dict[str, str]) -> Any:
    """Return rows as JSON data in which ids of this run, addresses and times are replaced by names."""
    text = json.dumps(value, ensure_ascii=False, default=lambda b: b.decode() if isinstance(b, bytes) else str(b))
    for of, name in names.items():
        text = text.replace(of, name)
    return json.loads(ADDRESS.sub("ADDRESS", TIME.sub("TIME", text)))
