"""Alerts to operators about runs that need attention, sent after the row records it (GATE-5).

Delivery is best effort, and failures are counted.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from outlast.core.durations import NOTICE_LAST_CHANCE, NOTICE_TIMEOUT, SECOND
from outlast.core.rows.run_columns import Attention
from outlast.core.rows.run_rows import Run
from outlast.engine.user_code import ends_process, text_of
from outlast.telemetry import DLQ_PUBLISH_FAILED, Counters

log = logging.getLogger("outlast.engine")


class Notifier(Protocol):
    """Channel to operators: a queue, a webhook, a chat. It may fail; no run depends on it."""

    async def notify(self, run: Run, reasons: Sequence[Attention]) -> None:
        """Notify operators. An exception is logged and counted."""


class Alerts:
    """Sender of alerts, in tasks beside the runs."""

    def __init__(self, notifier: Notifier | None, counters: Counters) -> None:
        self._notifier = notifier
        self._counters = counters
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, run: Run, reasons: Sequence[Attention]) -> None:
        """Send an alert in a task. Returns at once and never raises."""
        if self._notifier is None:
            return
        task = asyncio.get_running_loop().create_task(self._send(self._notifier, run, reasons))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, notifier: Notifier, run: Run, reasons: Sequence[Attention]) -> None:
        try:
            await asyncio.wait_for(notifier.notify(run, reasons), NOTICE_TIMEOUT / SECOND)
        except BaseException as error:  # any error of the channel, because the row has the attention anyway
            if ends_process(error):
                self._failed(run, "the worker stopped before it was sent")
                raise
            self._failed(run, text_of(error))

    def _failed(self, run: Run, why: str) -> None:
        self._counters.add(DLQ_PUBLISH_FAILED)
        log.warning("run %s needs attention, and the alert failed: %s", run.run, why)

    async def flush(self) -> None:
        """Give alerts in flight a last chance; the others count as failed."""
        if self._tasks:
            _, left = await asyncio.wait(set(self._tasks), timeout=NOTICE_LAST_CHANCE / SECOND)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
