"""Shared parts of one seed: event loop, dice, the store, the log, findings and durations."""

from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, Final

from outlast.clocks import FIRST_INSTANT
from outlast.core.durations import Liveness
from outlast.store.batch import Batch
from outlast.store.memory import MemoryCore
from tests.simulation.dice import Dice
from tests.simulation.loop import PROC, SECOND, Proc, SimLoop, process_of

LIVE: Final = Liveness(
    heartbeat_window=60 * SECOND,
    heartbeat_every=20 * SECOND,
    loop_stall_max=60 * SECOND,
    drain_grace=10 * SECOND,
    attempt_timeout=20 * SECOND,
    start_budget=10 * SECOND,
    settle_margin=10 * SECOND,
    backoff_ceiling=10 * SECOND,
    checkpoint_write=2 * SECOND,
)
"""Default durations at a scale at which a seed takes minutes of virtual time."""
QUIET: Final = LIVE.start_budget + LIVE.attempt_timeout + LIVE.settle_margin
BUDGET: Final = 122_400  # of a slice, by `longest_claim`
IN_THE_AIR: Final = LIVE.attempt_timeout + LIVE.settle_margin
"""Time that a call may take from the last check to the receiver without a second effect (S-17)."""
LOG_LINES: Final = 60


class StoreClock:
    """Clock of the store."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def wall(self) -> int:
        return FIRST_INSTANT + self._loop.now

    boot = mono = wall

    async def sleep(self, ms: int) -> None:
        raise AssertionError("a store sleeps nowhere")


class SimCore(MemoryCore):
    """Memory store that reports every landed batch with the rows before it."""

    def __init__(self, env: "Environment") -> None:
        super().__init__(StoreClock(env.loop))
        self.env = env
        self.landing: Proc = env.home  # whose commit is landing
        self.seen: Callable[[Batch], None] = lambda batch: None
        self.wakes = SimWakes(env)  # type: ignore[assignment]

    def apply(self, batch: Batch) -> None:
        self.seen(batch)
        super().apply(batch)


class SimWakes:
    """Wake-ups: each subscriber learns in its process that a run may be due, unless the message is lost."""

    def __init__(self, env: "Environment") -> None:
        self._env = env
        self._subscribers: list[tuple[Callable[[], None], Any]] = []

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        item = (wake, copy_context())
        self._subscribers.append(item)
        return lambda: self._subscribers.remove(item) if item in self._subscribers else None

    def fire(self) -> None:
        for wake, context in self._subscribers:
            if not self._env.dice.happens("wake_lost", 0.5):
                self._env.loop.call_soon(wake, context=context)


class Environment:
    """World of one seed, without its actors."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.dice = Dice(seed)
        self.home = Proc("world", 0)
        self.loop = SimLoop(self.dice.rng, self.home)
        self.context = process_of(copy_context(), self.home)
        self.log: deque[tuple[int, str, str, tuple[Any, ...]]] = deque(maxlen=LOG_LINES)
        self.wrong: list[str] = []
        self.core = SimCore(self)

    def now(self) -> int:
        """Return the store's real time in ms."""
        return FIRST_INSTANT + self.loop.now

    def say(self, what: str, *args: Any) -> None:
        """Append a log line, formatted only when it is read."""
        self.log.append((self.loop.now, PROC.get(self.home).name, what, args))

    def fail(self, what: str) -> None:
        """Record a broken invariant and end the seed."""
        self.say("VIOLATION %s", what)
        self.wrong.append(what)
        self.loop.over = True

    def later(self, ms: int, callback: Callable[..., object], *args: Any) -> None:
        """Schedule an action of the world, outside of any process."""
        self.loop.later(ms, callback, *args, context=self.context)

    def do(self, coroutine: Any) -> None:
        """Run a task of the world."""
        self.loop.create_task(coroutine, context=self.context)

    def lines(self) -> list[str]:
        """Return the log as formatted lines."""
        return [f"{at / SECOND:9.3f}  {who:<7} {what % args if args else what}" for at, who, what, args in self.log]
