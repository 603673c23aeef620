"""Commits go to the writer once per turn of a loop, and lingering ones with the next that do not linger."""

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
        self.sent = asyncio.Event()

    def _send(self, tickets: list[Ticket]) -> None:
        self.said.append(f"{len(tickets)} tickets")
        self.sent.set()

    def _send_first(self, ticket: Ticket) -> None:
        raise AssertionError("nothing is urgent here")


async def turns() -> None:
    """Let the loop run its scheduled callbacks."""
    for _ in range(4):
        await asyncio.sleep(0)


@pytest.mark.req("CKP-1")
def test_lingering_commits_are_handed_over_once() -> None:
    """A hundred lingering runs woke the writer a hundred times before, each time with a query."""

    async def work() -> None:
        desk = Seen()
        for n in range(3):
            desk.submit(start(run_row(f"r{n}")), linger=True)
            await turns()
        assert desk.said == []
        desk.hasten()
        desk.hasten()
        await turns()
        assert desk.said == ["3 tickets"]
        desk.hasten()
        await turns()
        assert desk.said == ["3 tickets"]

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
        assert desk.said == ["1 tickets"]

    asyncio.run(work())


def test_a_lingering_commit_goes_with_the_next_in_order() -> None:
    """A commit that lingers waits for one that does not, or for LINGER."""

    async def work() -> None:
        desk = Seen()
        desk.submit(start(run_row("first")), linger=True)
        await turns()
        desk.submit(start(run_row("second")))
        await turns()
        assert desk.said == ["2 tickets"]
        desk.sent.clear()
        desk.submit(start(run_row("third")), linger=True)
        await asyncio.wait_for(desk.sent.wait(), 10)
        assert desk.said == ["2 tickets", "1 tickets"]

    asyncio.run(work())
