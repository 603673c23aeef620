"""Random choices of a seed: its faults, their rates, and durations."""

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Final, TypeVar

T = TypeVar("T")

PROCESS: Final = {
    "crash_at_await": "a worker dies between two of its callbacks",
    "freeze": "a worker is frozen past a boundary, then resumes (SIGSTOP)",
    "machine_sleep": "its machine is suspended: its monotonic clock stops as well",
    "drain": "SIGTERM: a worker settles, gives back and ends",
    "deploy": "every worker is replaced by one whose code computes other values",
    "wall_jump": "a worker's wall clock is set",
    "outage": "the store does not answer one process for a while",
    "blackout": "the store does not answer for a while",
    "cancel": "a run is cancelled at any moment",
    "clock_skip": "the mapping of business time skips ahead",
}
POINT: Final = {"crash_at_point": "a worker dies exactly at a registered crash point"}
STORE: Final = {
    "store_before": "a call does not reach the store",
    "store_after": "a commit lands and its answer is lost",
    "store_late": "the answer of the store is late",
    "store_slow": "a commit lands late, after those of others",
    "list_old": "a list is answered as it was",
    "wake_lost": "a worker does not hear that a run fell due",
}
RECEIVER: Final = {
    "acts_then_silent": "it acts, and no answer comes",
    "acts_then_5xx": "it acts, and answers with an error that says nothing",
    "refused_connection": "nothing is sent",
    "5xx": "it does not act, and the error does not say so",
    "429": "not now",
    "says_no": "a definite no",
    "acts_late": "the request lands near or after the end of the attempt's time in the air",
    "stuck_before_sending": "the process hangs between its last check and the wire",
    "delivered_twice": "the network duplicates a request to a receiver that dedupes",
    "unknown_outcome": "it cannot say whether it has it",
}
PEOPLE: Final = {
    "decided_twice": "two people decide one approval",
    "decided_at_expiry": "a decision at the instant of expiry, or one ms beside it",
    "decided_late": "a decision after the expiry",
    "signal_twice": "a signal is sent again under its id",
    "signal_at_deadline": "a signal at a wait's deadline, or one ms beside it",
    "resolved_at_quiet": "did not happen, at the end of the settle time or one ms beside it",
    "operator_early": "did not happen, long before the settle time is over",
}
FAULTS: Final[dict[str, str]] = {**PROCESS, **POINT, **STORE, **RECEIVER, **PEOPLE}
QUIET_SEEDS: Final = 0.03  # seeds without any fault: the answer that the others are compared with


class Dice:
    """Random numbers of one seed. `fired` counts the faults that happened."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.fired: Counter[str] = Counter()
        self.storm = True
        draw = self.rng.random
        calm = draw() < QUIET_SEEDS
        self.rates = {name: 0.0 if calm or draw() < 0.5 else draw() ** 2 for name in FAULTS}
        self.pace = 10 ** (1.8 + 1.6 * draw())  # turns between two faults of processes: 60 to 2,500
        self.latency = 0.0 if draw() < 0.4 else 0.4 * draw()

    def happens(self, fault: str, most: float) -> bool:
        """Return True if a fault of this kind happens here, with at most this probability."""
        rate = self.rates[fault]
        if not self.storm or rate == 0.0 or self.rng.random() >= rate * most:
            return False
        self.fired[fault] += 1
        return True

    def one_of(self, faults: Sequence[str]) -> str:
        """Return one of these faults by their rates, or '' if this seed has none of them."""
        total = sum(self.rates[name] for name in faults)
        at = self.rng.random() * total
        for name in faults if self.storm else ():
            at -= self.rates[name]
            if at < 0:
                return name
        return ""

    def span(self, low: int, high: int) -> int:
        """Return a duration in ms; short and long ones are equally likely."""
        return int(low * (high / low) ** self.rng.random())

    def near(self, boundaries: Sequence[int], low: int, high: int) -> int:
        """Return a duration in ms, with 30 % at a boundary or one ms beside it."""
        if boundaries and self.rng.random() < 0.3:
            return max(0, self.rng.choice(boundaries) + self.rng.choice((-1, 0, 1)))
        return self.span(low, high)

    def choice(self, items: Sequence[T]) -> T:
        """Return a random element of a sequence."""
        return items[int(self.rng.random() * len(items))]

    def chance(self) -> float:
        """Return a random number in [0, 1) for a worker's jitter."""
        return self.rng.random()
