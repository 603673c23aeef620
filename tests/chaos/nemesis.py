"""The faults of a round, chosen by a seed. Each is counted after it was injected."""

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final

from tests.chaos.fleet import Fleet
from tests.postgres.proxy import Wire
from tests.postgres.server import Server

PAUSE_S: Final = (0.5, 2.5)  # pause between two faults
FREEZE_S: Final = (3.5, 6.0)  # longer than the lease of 3 s, shorter than attempt timeout + settle margin
PARTITION_S: Final = (1.0, 8.0)
AWAY_S: Final = (0.1, 3.0)  # downtime of the server
RESTART_S: Final = 30.0


class Nemesis:
    """Injects the faults of one round."""

    def __init__(
        self, fleet: Fleet, server: Server | None, client_wire: Wire | None, seed: int, only: Collection[str] = ()
    ) -> None:
        """Create the injector. `only` restricts the faults."""
        self.fired: Counter[str] = Counter()
        self._fleet, self._server, self._client_wire = fleet, server, client_wire
        self.dice = random.Random(seed)
        acts: list[tuple[int, Callable[[], None]]] = [(4, self.kill), (3, self.freeze)]
        if server is not None:
            acts += [(3, self.cut_before), (3, self.cut_after), (2, self.cut_all), (2, self.partition)]
            acts += [(1, self.crash_server), (1, self.kill_postmaster), (1, self.skew)]
        self._few = bool(only)
        self._acts = [(weight, act) for weight, act in acts if not only or act.__name__ in only]

    def go(self, seconds: float, tick: Callable[[], None]) -> None:
        """Inject faults until the round ends, each at least once if there is time."""
        until = time.monotonic() + seconds
        first = [act for _, act in self._acts]
        self.dice.shuffle(first)  # each at least once if there is time
        while time.monotonic() < until or (self._few and first):
            act = first.pop() if first else self.dice.choices([a for _, a in self._acts], [w for w, _ in self._acts])[0]
            act()
            self.fired[act.__name__] += 1
            tick()
            time.sleep(self.dice.uniform(*PAUSE_S))

    def _wires(self) -> list[Wire]:
        wires = [worker.wire for worker in self._fleet.workers if worker.wire is not None]
        return wires + ([self._client_wire] if self._client_wire is not None else [])

    def _some(self) -> list[Wire]:
        wires = self._wires()
        return self.dice.sample(wires, self.dice.randint(1, len(wires)))

    # --- workers -------------------------------------------------------------------------------------------
    def kill(self) -> None:
        """Send SIGKILL to one worker and start another."""
        self._fleet.kill(self.dice.choice(self._fleet.workers))
        self._fleet.hire(self.dice)

    def skew(self) -> None:
        """Replace one worker by one whose wall clock is wrong by hours."""
        self._fleet.kill(self.dice.choice(self._fleet.workers))
        self._fleet.hire(self.dice, skew=True)

    def freeze(self) -> None:
        """Stop one worker with SIGSTOP until its lease has expired, then continue it."""
        worker = self.dice.choice(self._fleet.workers)
        worker.process.send_signal(signal.SIGSTOP)
        time.sleep(self.dice.uniform(*FREEZE_S))  # the length of the stop is drawn
        with suppress(ProcessLookupError):
            worker.process.send_signal(signal.SIGCONT)

    # --- wires ----------------------------------------------------------------------------------------------
    def cut_before(self) -> None:
        """Drop the next COMMIT on some connections."""
        for wire in self._some():
            wire.cut_next = "before"

    def cut_after(self) -> None:
        """Drop the answer of the next COMMIT on some connections."""
        for wire in self._some():
            wire.cut_next = "after"

    def cut_all(self) -> None:
        """Reset some connections to the server."""
        for wire in self._some():
            wire.cut_all()

    def partition(self) -> None:
        """Silence some connections for a while, then reset them, as a router would."""
        some = self._some()
        for wire in some:
            wire.silent = True
        time.sleep(self.dice.uniform(*PARTITION_S))  # the length of the silence is drawn
        for wire in some:
            wire.silent = False
            if self.dice.random() < 0.5:
                wire.cut_all()

    # --- the server -------------------------------------------------------------------------------------------
    def crash_server(self) -> None:
        """Send SIGQUIT to the server, which then recovers from its log."""
        self._away(signal.SIGQUIT)

    def kill_postmaster(self) -> None:
        """Send SIGKILL to the postmaster only. Its children notice by themselves."""
        self._away(signal.SIGKILL)

    def _away(self, how: signal.Signals) -> None:
        assert self._server is not None
        self._server.stop(how)
        time.sleep(self.dice.uniform(*AWAY_S))  # the length of the outage is drawn
        until = time.monotonic() + RESTART_S
        while True:
            try:
                self._server.start()
                return
            except AssertionError:  # children of the dead postmaster still hold its shared memory
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)
