"""An outage of the store, told once when it begins and once when it is over, however many meet it."""

import logging
from threading import Lock

from outlast.core.budget import SECOND
from outlast.core.clock import Clock
from outlast.errors import OutlastError, StoreReplaced

log = logging.getLogger("outlast.store")


class Outage:
    """What somebody knows of the store being away. Of use in any thread."""

    def __init__(self, who: str, clock: Clock) -> None:
        """`who`: as the lines name it, « worker w-1 »."""
        self._who = who
        self._clock = clock
        self._since: int | None = None
        self._landed = False  # a commit, since the last failure
        self._lock = Lock()

    def met(self, what: str, error: OutlastError) -> None:
        """Something could not be done because of the store; the first to say so is heard.

        Of a store that is gone nothing is said here: the process ends with that.
        """
        if isinstance(error, StoreReplaced):
            return
        with self._lock:
            self._landed = False
            if self._since is not None:
                return
            self._since = self._clock.mono()
        why = f"{error.what} ({error.why})" if error.why else error.what
        why += f"; {error.fix}" if error.fix else ""
        log.warning("%s %s: %s; it goes on trying, and begins nothing new meanwhile", self._who, what, why)

    def landed(self) -> None:
        """Note that the store took a commit."""
        self._landed = True

    def answered(self) -> None:
        """Note that the store answered a read; the outage is over if a commit has landed since the last failure.

        A full disk answers every read.
        """
        if self._landed:
            self.over()

    def over(self) -> None:
        """Report the end of the outage: what failed has succeeded."""
        if self._since is None:  # nearly always; two who see it at once are told apart below
            return
        with self._lock:
            since, self._since = self._since, None
        if since is not None:
            log.warning("the store of %s answers again after %.1f s", self._who, (self._clock.mono() - since) / SECOND)
