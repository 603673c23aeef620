"""One seed: play it, its findings, and how to play it again."""

import gc
import logging
import sys
import warnings
from collections import deque
from functools import cache
from typing import Any, Final, NamedTuple

from outlast.core import crash_points
from outlast.core.rows.limit_rows import SLOT, Slot
from outlast.core.rows.run_rows import RUN, Run
from outlast.engine import commands, compatibility
from outlast.engine import worker as worker_module
from outlast.errors import StoreError
from tests.simulation.environment import LIVE, Environment
from tests.simulation.loop import PROC, SECOND, Killed, Spins
from tests.simulation.people import TENANT, People
from tests.simulation.receivers import Receivers
from tests.simulation.scenarios import SCENARIOS, At, scenarios_of
from tests.simulation.watch import Watch
from tests.simulation.workers import Workers

STORM_MIN: Final = 60 * SECOND
STORM_MAX: Final = 500 * SECOND
CALM_MAX: Final = 3_000 * SECOND  # after the last fault: by then everything has ended (I39)
AFTERMATH: Final = 45 * SECOND  # time for which a late process or a call in flight may still do harm


class Played(NamedTuple):
    """Result of one seed."""

    seed: int
    wrong: tuple[str, ...]
    trace: int
    turns: int
    virtual_ms: int
    fired: dict[str, int]
    lines: tuple[str, ...]


class Game:
    """One seed from its start to its end."""

    def __init__(self, seed: int) -> None:
        env = self.env = Environment(seed)
        dice = env.dice
        self.receivers = At.world = Receivers(env)
        self.kinds = [dice.choice(scenarios_of(seed)) for _ in range(dice.choice((1, 1, 2, 3)))]
        self.runs = [f"r{i + 1}" for i in range(len(self.kinds))]
        self.people = People(env, self.receivers, self.runs)
        self.workers = Workers(env, [each.workflow for each in SCENARIOS.values()])
        self.watch = Watch(env, self.receivers, self.people)
        self.workers.on_cancel = self.people.cancel_some
        self.workers.on_skip = self.people.skip_clock
        self._calm_since = 0
        self.keep_log = False

    def play(self) -> Played:
        env, dice = self.env, self.env.dice
        if len(self.runs) > 1 and dice.rng.random() < 0.4:
            for i in range(dice.choice((1, 2))):
                env.core.rows.put(SLOT, (TENANT, i), Slot(TENANT, i, 1, "", ""))
        self.workers.begin()
        self.people.begin()
        for run, kind in zip(self.runs, self.kinds, strict=True):
            env.do(self._start(run, kind.workflow))
        env.later(dice.span(STORM_MIN, STORM_MAX), self._calm)
        env.later(SECOND, self._look)
        try:
            env.loop.drive()
            if not env.wrong:
                self.watch.ask_fsck()
                self.watch.at_the_end()
        except Spins as spins:
            env.wrong.append(f"spins: {spins}")
        for context in env.loop.broken:
            error = context.get("exception")
            if error is not None and not isinstance(error, Killed | StoreError):
                env.wrong.append(f"engine: {context['message']}: {error!r}")
        loop = env.loop
        return Played(
            env.seed, tuple(env.wrong), loop.trace, loop.turns, loop.now, dict(dice.fired), tuple(env.lines())
            if env.wrong or self.keep_log else ()
        )  # fmt: skip

    async def _start(self, run: str, workflow: Any) -> None:
        while True:
            try:
                await commands.start(self.people.store, workflow, {}, tenant=TENANT, actor="me", run=run, key=run)
                return
            except StoreError as error:
                self.env.say("could not start %s: %s", run, error)
                self.env.later(SECOND, self.env.do, self._start(run, workflow))
                return

    def _calm(self) -> None:
        """End all faults and repair the processes."""
        if self.env.dice.storm:
            self.env.say("the storm is over")
            self.env.dice.storm = False
            self._calm_since = self.env.loop.now
            self.workers.heal()
            self.watch.ask_fsck()

    def _look(self) -> None:
        """Check whether the seed is over or stuck."""
        env = self.env
        if self.watch.ended == len(self.runs):
            self._calm()
            if not self.receivers.flying:
                env.later(AFTERMATH, self._over)
                return
        elif not env.dice.storm and env.loop.now > self._calm_since + CALM_MAX:
            env.fail(f"I39: {'; '.join(map(_stuck, self.workers.unfinished()))}")
        env.later(5 * SECOND, self._look)

    def _over(self) -> None:
        self.env.loop.over = True


def _stuck(run: Run) -> str:
    return f"{run.run} of {run.workflow} is {run.status}, owner {run.owner!r}, waiting for {run.waiting_for}"


def play(seed: int, lines: int = 0) -> Played:
    """Play one seed from the start; `lines`: number of log lines to keep."""
    game = Game(seed)
    if lines:
        game.env.log = deque(maxlen=lines)
        game.keep_log = True
    try:
        return game.play()
    finally:
        crash_points.hook = None
        game.env.loop.close()
        PROC.set(game.env.home)


def prepare() -> None:
    """Silence logs and stop the garbage collector, once for each process."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore", RuntimeWarning)  # coroutines of dead processes, which are never awaited
    compatibility.topology_of = cache(compatibility.topology_of)  # read from the sources at each start of a worker
    digests: dict[int, str] = {}
    digest_of = compatibility.digest_of
    compatibility.digest_of = lambda body: digests.get(id(body)) or digests.setdefault(id(body), digest_of(body))
    worker_module.IDLE_LOOK = LIVE.heartbeat_every  # the fallback look, at the scale of the other durations
    sys.unraisablehook = lambda args: None  # coroutines of dead processes are collected in the middle of an await
    gc.freeze()
    gc.disable()


def played(seed: int, lines: int = 0) -> Played:
    """Play one seed and restore the process's state."""
    result = play(seed, lines)
    if seed % 50 == 0:
        gc.collect()
    return result


assert RUN.name == "run"
