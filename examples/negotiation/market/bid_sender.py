"""Delivery of bids to the buyer's inbox, with retries."""

import asyncio

import httpx2

from ..letters import Bid
from .journal import Journal

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0
TIMEOUT_S = 5.0
RETRYABLE = frozenset({408, 425, 429})


def settled(status: int) -> bool:
    """True if a bid was accepted or permanently refused."""
    return 200 <= status < 500 and status not in RETRYABLE


class BidSender:
    """Sender of bids. A bid keeps its id over all attempts, so that the buyer accepts it once."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._under_way: set[asyncio.Task[None]] = set()
        self._client = httpx2.AsyncClient(timeout=TIMEOUT_S, trust_env=False)

    def send(self, bid: Bid, run_id: str, answer_to: str, after_s: float) -> None:
        """Send a bid in the background after `after_s` real seconds. Repeat until it is settled."""
        task = asyncio.create_task(self._bring(bid, run_id, answer_to, after_s))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def close(self) -> None:
        """Cancel all bids that are not settled."""
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        await self._client.aclose()

    async def _bring(self, bid: Bid, run_id: str, answer_to: str, after_s: float) -> None:
        await asyncio.sleep(after_s)
        pause = FIRST_PAUSE_S
        while True:
            try:
                answer = await self._client.post(answer_to, json=bid.model_dump(mode="json"))
                status = answer.status_code
            except httpx2.TransportError:
                status = 0
            self._journal.offered(bid, run_id, status)
            if settled(status):
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)
