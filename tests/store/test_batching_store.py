"""Commits go to the writer once per turn of a loop, and so does `hasten`."""

import asyncio

import pytest

from outlast.store.batching_store import BatchingStore
from outlast.store.tickets import Ticket
from tests.conformance.subject import run_row, start


class Seen(BatchingStore):
    """A BatchingStore whose writer only records its tickets."""

    not_inherited = "it is of this test"

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def _send(self, tickets: list[Ticket]) -> None:
        self.said.append(f"{len(tickets)} tickets")

    def _send_first(self, ticket: Ticket) -> None:
        raise AssertionError("nothing is urgent here")

    def _hasten(self) -> None:
        self.said.append("hurry")


async def turns() -> None:
    """Let the loop run its scheduled callbacks."""
    for _ in range(4):
        await asyncio.sleep(0)


@pytest.mark.req("CKP-1")
def test_the_writer_is_hastened_once_per_turn() -> None:
    """A hundred lingering runs woke the writer a hundred times before, each time with a query."""

    async def work() -> None:
        desk = Seen()
        for n in range(3):
            desk.submit(start(run_row(f"r{n}")), linger=True)
            desk.hasten()
        await turns()
        assert desk.said == ["3 tickets", "hurry"]
        desk.hasten()
        await turns()
        assert desk.said == ["3 tickets", "hurry", "hurry"]

    asyncio.run(work())


@pytest.mark.req("CKP-1")
def test_a_commit_submitted_after_hasten_is_hastened_too() -> None:
    """`hasten` follows the tickets it concerns, even if it was called earlier in the turn."""

    async def work() -> None:
        desk = Seen()
        desk.hasten()
        desk.submit(start(run_row("late")), linger=True)
        desk.hasten()
        await turns()
        assert desk.said == ["1 tickets", "hurry"]

    asyncio.run(work())
