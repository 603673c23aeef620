"""Simulated worker processes: started, killed, frozen, drained, disconnected and replaced, and their clocks."""

import asyncio
from collections.abc import Sequence
from contextvars import ContextVar, copy_context
from typing import Any, Final

from outlast.clocks import FIRST_INSTANT
from outlast.core import crash_points
from outlast.core.rows.run_rows import RUN, Run, is_over
from outlast.engine.worker import WorkerProcess
from outlast.errors import StoreError
from outlast.flow import Workflow
from tests.simulation.dice import PROCESS
from tests.simulation.environment import BUDGET, LIVE, QUIET, Environment
from tests.simulation.loop import PROC, SECOND, Killed, Proc, SimLoop, process_of
from tests.simulation.wire import Wire

FROZEN_FOR: Final = (LIVE.heartbeat_window, LIVE.start_budget, LIVE.attempt_timeout, QUIET, BUDGET)
RELEASE: ContextVar[int] = ContextVar("which release of the code a process runs", default=1)


class ProcClock:
    """Clocks of one machine."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self.wall_off = self.mono_off = 0

    def wall(self) -> int:
        return FIRST_INSTANT + self._loop.now + self.wall_off

    def boot(self) -> int:
        return FIRST_INSTANT + self._loop.now

    def mono(self) -> int:
        return FIRST_INSTANT + self._loop.now + self.mono_off

    async def sleep(self, ms: int) -> None:
        await asyncio.sleep(max(ms, 0) / SECOND)


class Simulated:
    """Simulated worker process."""

    def __init__(
        self, env: Environment, workflows: Sequence[Workflow[Any]], name: str, index: int, release: int
    ) -> None:
        dice = env.dice
        self.proc = Proc(name, index, worker=True)
        context = process_of(copy_context(), self.proc)
        context.run(RELEASE.set, release)
        self.clock = ProcClock(env.loop)
        if dice.rates["wall_jump"]:
            self.clock.wall_off = dice.choice((0, 0, 600, -600)) * SECOND
        self.wire = Wire(env, self.proc)
        self.worker = WorkerProcess(
            self.wire,
            workflows,
            worker=name,
            clock=self.clock,
            chance=dice.chance,
            live=LIVE,
            concurrency=dice.choice((1, 2, 100)),
            threads=False,
        )
        self.task = context.run(env.loop.create_task, self.worker.run())
        self.draining = False


class Workers:
    """Machines of a seed, and the restarts of their workers."""

    def __init__(self, env: Environment, workflows: Sequence[Workflow[Any]]) -> None:
        self.env = env
        self.workflows = workflows
        self.living: dict[str, Simulated] = {}
        self.started = 0
        self.kept: list[Simulated] = []  # nothing of a dead process is collected while the seed lasts
        self.release = 1
        self.wanted = env.dice.choice((2, 2, 3, 4))
        self.on_cancel: Any = lambda: None
        self.on_skip: Any = lambda: None
        self._until_point = 1 << 60

    def begin(self) -> None:
        """Start the workers and their faults."""
        for _ in range(self.wanted):
            self._start()
        loop, dice = self.env.loop, self.env.dice
        loop.on_event = self._event
        loop.countdown = self._distance()
        if dice.rates["crash_at_point"]:
            self._until_point = int(dice.rng.expovariate(dice.rates["crash_at_point"] / 25)) + 1
        crash_points.hook = self._at_point

    def _start(self) -> None:
        self.started += 1
        release = self.release
        if self.env.dice.rates["deploy"]:  # a deploy rolls: the release before it still serves
            release = self.env.dice.choice((release, release + 1))
        each = Simulated(self.env, self.workflows, f"wk-{self.started}", self.started, release)
        self.living[each.proc.name] = each
        self.kept.append(each)
        self.env.say("starts %s, release %d", each.proc.name, release)
        each.task.add_done_callback(lambda task: self._ended(each, task), context=self.env.context)

    def _ended(self, each: Simulated, task: "asyncio.Task[None]") -> None:
        """Start a new worker after one drained, was closed, or could not reach the store."""
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, StoreError | Killed):
            self.env.fail(f"the worker {each.proc.name} fell over: {error!r}")
        self.living.pop(each.proc.name, None)
        self.env.loop.kill(each.proc)
        self._replace()

    def _replace(self) -> None:
        dice = self.env.dice
        wait = dice.near(FROZEN_FOR, SECOND, 100 * SECOND) if dice.storm and dice.rng.random() < 0.5 else SECOND
        self.env.later(wait, self._refill)

    def _refill(self) -> None:
        if len(self.living) < self.wanted:
            self._start()

    # --- faults ----------------------------------------------------------------------------------------
    def _distance(self) -> int:
        dice = self.env.dice
        return int(dice.rng.expovariate(1 / dice.pace)) + 1

    def _event(self, proc: Proc) -> None:
        dice = self.env.dice
        self.env.loop.countdown = self._distance()
        fault = dice.one_of(list(PROCESS))
        each = self.living.get(proc.name) or (dice.choice(list(self.living.values())) if self.living else None)
        if fault and each is not None:
            dice.fired[fault] += 1
            getattr(self, f"_{fault}")(each)

    def kill(self, each: Simulated) -> None:
        """Kill the process (SIGKILL). Commits in flight may still land."""
        if each.proc.dead:
            return
        self.env.loop.kill(each.proc)
        self.living.pop(each.proc.name, None)
        if self.env.dice.rng.random() < 0.5:
            each.wire.drop()
        self._replace()

    def _crash_at_await(self, each: Simulated) -> None:
        self.env.say("%s dies", each.proc.name)
        self.kill(each)

    def _at_point(self, name: str, labels: Sequence[str]) -> None:
        if not self.env.dice.storm:
            return
        self._until_point -= 1
        if self._until_point > 0:
            return
        proc = PROC.get(self.env.home) if name.startswith("call:") else self.env.core.landing
        each = self.living.get(proc.name)
        if each is None:
            return
        dice = self.env.dice
        self._until_point = int(dice.rng.expovariate(dice.rates["crash_at_point"] / 25)) + 1
        dice.fired["crash_at_point"] += 1
        dice.fired[f"crash_at_point {name}"] += 1
        self.env.say("%s dies at %s of %s", proc.name, name, labels)
        self.kill(each)
        raise Killed

    def _freeze(self, each: Simulated, *, asleep: bool = False) -> None:
        if each.proc.frozen:
            return
        ms = self.env.dice.near(FROZEN_FOR, SECOND, 200 * SECOND)
        self.env.say("%s %s for %d ms", each.proc.name, "sleeps with its machine" if asleep else "freezes", ms)
        self.env.loop.freeze(each.proc)
        self.env.later(ms, self._thaw, each, ms if asleep else 0)

    def _thaw(self, each: Simulated, mono_stood_still: int) -> None:
        if each.proc.frozen:
            each.clock.mono_off -= mono_stood_still
            self.env.say("%s goes on", each.proc.name)
            self.env.loop.thaw(each.proc)

    def _machine_sleep(self, each: Simulated) -> None:
        self._freeze(each, asleep=True)

    def _drain(self, each: Simulated) -> None:
        self.env.say("%s is told to stop", each.proc.name)
        each.worker.drain()

    def _deploy(self, each: Simulated) -> None:
        self.release += 1
        for old in list(self.living.values()):
            if self.env.dice.rng.random() < 0.5:
                old.worker.drain()
            else:
                self.kill(old)
        self._start()

    def _wall_jump(self, each: Simulated) -> None:
        each.clock.wall_off += self.env.dice.choice((-3600, -2, 2, 3600)) * SECOND

    def _outage(self, each: Simulated) -> None:
        each.wire.away_until = self.env.loop.now + self.env.dice.near(FROZEN_FOR, SECOND, 100 * SECOND)
        self.env.say("%s does not reach the store until %d", each.proc.name, each.wire.away_until)

    def _blackout(self, each: Simulated) -> None:
        until = self.env.loop.now + self.env.dice.near(FROZEN_FOR, SECOND, 60 * SECOND)
        self.env.say("no process reaches the store until %d", until)
        for other in self.living.values():
            other.wire.away_until = max(other.wire.away_until, until)

    def _cancel(self, each: Simulated) -> None:
        self.on_cancel()

    def _clock_skip(self, each: Simulated) -> None:
        self.on_skip()

    # --- the end ---------------------------------------------------------------------------------------
    def heal(self) -> None:
        """End all faults: thaw frozen processes and start missing ones."""
        self.env.loop.countdown = 1 << 60
        for each in list(self.living.values()):
            self._thaw(each, 0)
        while len(self.living) < self.wanted:
            self._start()

    def unfinished(self) -> list[Run]:
        """Return the runs that have not ended."""
        return [r for r in self.env.core.rows.under(RUN, ()) if isinstance(r, Run) and not is_over(r)]
