"""Telling people that a run needs them: after the row says so, best effort, its failure counted (GATE-5)."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from outlast.core.budget import NOTICE_LAST_CHANCE, NOTICE_TIMEOUT, SECOND
from outlast.core.overlay import Attention
from outlast.core.rows import Run
from outlast.engine.user_code import ends_process, text_of
from outlast.telemetry import DLQ_PUBLISH_FAILED, Counters

log = logging.getLogger("outlast.engine")


class Notifier(Protocol):
    """A way to reach people: a queue, a webhook, a chat. It may fail; nothing depends on it."""

    async def notify(self, run: Run, reasons: Sequence[Attention]) -> None:
        """Tell them. What it raises is logged and counted."""


class Alerts:
    """Sends notices beside the walks; the attention itself stands in the run's row already."""

    def __init__(self, notifier: Notifier | None, counters: Counters) -> None:
        self._notifier = notifier
        self._counters = counters
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, run: Run, reasons: Sequence[Attention]) -> None:
        """Begin to tell them; returns at once and never raises."""
        if self._notifier is None:
            return
        task = asyncio.get_running_loop().create_task(self._send(self._notifier, run, reasons))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, notifier: Notifier, run: Run, reasons: Sequence[Attention]) -> None:
        try:
            await asyncio.wait_for(notifier.notify(run, reasons), NOTICE_TIMEOUT / SECOND)
        except BaseException as error:  # whatever the channel raised: the attention stands all the same
            if ends_process(error):
                self._failed(run, "the worker stopped before it was told")
                raise
            self._failed(run, text_of(error))

    def _failed(self, run: Run, why: str) -> None:
        self._counters.add(DLQ_PUBLISH_FAILED)
        log.warning("run %s needs attention, and telling people failed: %s", run.run, why)

    async def flush(self) -> None:
        """Give notices under way a last chance; what is left then has failed."""
        if self._tasks:
            _, left = await asyncio.wait(set(self._tasks), timeout=NOTICE_LAST_CHANCE / SECOND)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
