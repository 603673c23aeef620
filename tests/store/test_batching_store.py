"""What a loop hands in goes to the writer once a turn, and so does the word that somebody waits for it."""

import asyncio

import pytest

from outlast.store.batching_store import BatchingStore
from outlast.store.tickets import Ticket
from tests.conformance.subject import run_row, start


class Seen(BatchingStore):
    """A desk whose writer only messages what comes."""

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
    """Let the loop do what it was asked for."""
    for _ in range(4):
        await asyncio.sleep(0)


@pytest.mark.req("CKP-1")
def test_the_writer_hears_once_a_turn_that_somebody_waits() -> None:
    """A hundred runs whose entries lingered woke it a hundred times, for a look at the database each."""

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
def test_what_is_submitted_after_a_hastening_is_hastened_too() -> None:
    """The word must come behind the tickets that it is about, also where an earlier run has said it in this turn."""

    async def work() -> None:
        desk = Seen()
        desk.hasten()
        desk.submit(start(run_row("late")), linger=True)
        desk.hasten()
        await turns()
        assert desk.said == ["1 tickets", "hurry"]

    asyncio.run(work())
