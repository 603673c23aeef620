"""Tells an operator's endpoint that a run needs a person: one small POST, once, best effort (GATE-5).

Whatever goes wrong is raised, for the engine to log and count; the run's row has said it already.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import httpx2

from outlast.core.events import iso
from outlast.core.machine import CHOICES, if_ignored
from outlast.core.overlay import Attention
from outlast.core.rows import Run

TIMEOUT_S: Final = 5.0
DETAIL_CHARS: Final = 500  # of the first line; the whole of it stands in the store


class HttpNotifier:
    """POSTs JSON to one address. No retry, no signature, no redirect: a hint, not a record. What the endpoint says
    beyond its status is not read."""

    def __init__(self, url: str, *, timeout_s: float = TIMEOUT_S) -> None:
        self._url = url
        self._timeout_s = timeout_s

    async def notify(self, run: Run, reasons: Sequence[Attention]) -> None:
        """Tell them. Raises whatever kept the endpoint from saying 2xx within the timeout."""
        async with (
            asyncio.timeout(self._timeout_s),
            httpx2.AsyncClient(timeout=self._timeout_s) as client,
            client.stream("POST", self._url, json=notice(run, reasons)) as response,
        ):
            response.raise_for_status()


def notice(run: Run, reasons: Sequence[Attention]) -> dict[str, Any]:
    """What is sent."""
    return {
        "run": run.run,
        "workflow": run.workflow,
        "tenant": run.tenant,
        "node": run.node,
        "reasons": [
            {
                "reason": a.reason.value,
                "trigger": a.trigger,
                "key": a.key,
                "detail": (a.detail.splitlines() or [""])[0][:DETAIL_CHARS],
                "since": iso(a.since),
                "choices": [choice.value for choice in CHOICES[a.reason]],
                "if_ignored": if_ignored(a.reason),
            }
            for a in reasons
        ],
    }
