"""Pause of a receiver that asked to wait. It holds for every delivery of its subscription from this dispatcher."""

from collections.abc import Callable

from outlast.core.clock_port import Clock
from outlast.core.webhooks import deliveries
from outlast.core.webhooks.approval_notices import Notice, NoticeId
from outlast.core.webhooks.deliveries import Attempt


class ReceiverPause:
    """Instant at which the receiver may be asked again, and the messages that one message has summed up."""

    def __init__(self, clock: Clock, chance: Callable[[], float]) -> None:
        self._clock = clock
        self._chance = chance
        self._until = 0  # monotonic
        self._times = 0  # requests to wait, since the last other answer
        self._summed: frozenset[NoticeId] = frozenset()

    @property
    def left_ms(self) -> int:
        """Return how long the receiver is left alone."""
        return max(0, self._until - self._clock.mono())

    @property
    def probing(self) -> bool:
        """Return True from a request to wait until the receiver answers otherwise: one delivery is sent at a time."""
        return self._times > 0

    def note(self, attempt: Attempt) -> None:
        """Take note of an attempt. Those that were sent before a pause began do not end it."""
        if not attempt.code or (self.left_ms and not attempt.retry_after_ms):
            return
        if not attempt.retry_after_ms:
            self._times = 0
            return
        self._times += not self.left_ms
        pause = deliveries.pause_after(attempt, self._times, self._chance())
        self._until = max(self._until, self._clock.mono() + pause)

    def sum_up(self, waiting: frozenset[NoticeId]) -> None:
        """Record that an accepted message has told of all these."""
        self._summed = waiting

    def not_summed(self, waiting: frozenset[NoticeId]) -> frozenset[NoticeId]:
        """Return those that no message has told of."""
        return waiting - self._summed

    def settles(self, notice: Notice) -> bool:
        """Return True, once, if an accepted message has told of this one."""
        announced = bool(notice.ids) and notice.ids <= self._summed
        if announced:
            self._summed -= notice.ids  # a person may request it later
        return announced
