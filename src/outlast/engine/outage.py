"""An outage of the store, told once when it begins and once when it is over, however many meet it."""

import logging
from threading import Lock

from outlast.core.clock import Clock
from outlast.errors import StoreError

log = logging.getLogger("outlast.engine")


class Outage:
    """What one worker knows of its store being away. Used by its loop and by the thread of its heartbeat."""

    def __init__(self, worker: str, clock: Clock) -> None:
        self._worker = worker
        self._clock = clock
        self._since: int | None = None
        self._lock = Lock()

    def met(self, what: str, error: StoreError) -> None:
        """Something could not be done because of the store; the first to say so is heard."""
        with self._lock:
            if self._since is not None:
                return
            self._since = self._clock.mono()
        why = f"{error.reason} ({error.why})" if error.why else error.reason
        log.warning("worker %s %s: %s; it goes on trying, and takes no new work meanwhile", self._worker, what, why)

    def over(self) -> None:
        """The store has answered."""
        if self._since is None:  # nearly always; two who see it at once are told apart below
            return
        with self._lock:
            since, self._since = self._since, None
        if since is not None:
            log.warning(
                "the store of worker %s answers again after %.1f s", self._worker, (self._clock.mono() - since) / 1000
            )
