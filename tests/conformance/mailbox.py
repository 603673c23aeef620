"""Promises about messages, parking and ending (S-1)."""

import asyncio

from outlast.core.commit import AppendMessage, Commit, Put, Wake
from outlast.core.machine import ApprovalStatus
from outlast.core.rows.effect_rows import APPROVAL, Approval
from outlast.core.rows.run_rows import RUN
from outlast.errors import Ended, Stale
from tests.conformance.subject import (
    T0,
    Subject,
    append_message,
    approval_row,
    ended,
    fence,
    held,
    message_row,
    messages,
    moved,
    outcome,
    parked,
    put_run,
    puts,
    refused,
    refused_for,
    run_row,
    start,
    the_run,
    two,
)


async def the_store_numbers_and_stamps_messages(s: Subject) -> None:
    """Messages get the numbers 1, 2, … and the store's business time, whatever their writer wrote."""
    a, b = await two(s)
    await a.commit(start(run_row()))
    assert (await a.commit(append_message(message_row(payload=b"1")))).inbox_seq == 1
    s.clock.time += 5
    assert (await b.commit(append_message(message_row(payload=b"2")._replace(n=77, at=77)))).inbox_seq == 2
    found = await messages(a)
    assert [(message.n, message.at, message.payload) for message in found] == [(1, T0, b"1"), (2, T0 + 5, b"2")]


async def appending_a_message_keeps_the_version(s: Subject) -> None:
    """A message changes `inbox_seq` and, if the run is unowned, `due_at`, so that no holder is refused for it."""
    a, b = await two(s)
    mine = await held(a)
    await b.commit(append_message(message_row()))
    assert await the_run(a) == mine._replace(inbox_seq=1)
    await a.commit(put_run(mine, node="next"))
    assert (await the_run(b)).inbox_seq == 1, "a holder's write never sets mail"


async def a_message_makes_a_parked_run_due(s: Subject) -> None:
    """A message makes an unowned run due now. A run that is due already keeps its due_at."""
    a, b = await two(s)
    mine = await held(a)
    await a.commit(Commit((Put(RUN, parked(mine), mine.version),)))
    s.clock.time += 1_000
    await b.commit(append_message(message_row()))
    assert (await the_run(a)).due_at == T0 + 1_000
    s.clock.time += 1_000
    await b.commit(append_message(message_row()))
    assert (await the_run(a)).due_at == T0 + 1_000
    await a.commit(start(run_row("run-2", due_at=T0 + 9_999)))
    await b.commit(append_message(message_row("run-2")))
    assert (await the_run(a, "run-2")).due_at == T0 + 2_000


async def a_message_does_not_make_an_owned_run_due(s: Subject) -> None:
    """A message does not let another worker take the run of a healthy holder."""
    a, b = await two(s)
    mine = await held(a)
    await b.commit(append_message(message_row()))
    assert (await the_run(a)).due_at == mine.due_at
    assert await b.take((mine.lane,), 5, lambda run, now, mapping: None) == ()


async def a_message_to_an_ended_run_is_refused(s: Subject) -> None:
    """A message to a missing run is Stale, one to an ended run raises Ended, and neither is written."""
    a, b = await two(s)
    await refused_for("missing", b.commit(append_message(message_row())))
    mine = await held(a)
    await a.commit(Commit((Put(RUN, ended(mine), mine.version),)))
    assert isinstance(await refused(b.commit(append_message(message_row()))), Ended)
    assert await messages(b) == []
    assert await the_run(b) == ended(mine)


async def a_commit_with_an_old_inbox_seq_is_stale(s: Subject) -> None:
    """Park, retry, hand back and finish name the inbox_seq they have read, and are stale after a new message."""
    a, b = await two(s)
    mine = await held(a)
    await b.commit(append_message(message_row()))
    for last in (parked(mine), ended(mine)):
        await refused_for("inbox_seq", a.commit(Commit((Put(RUN, last, mine.version),), fence(mine, inbox_seq=0))))
    await a.commit(Commit((Put(RUN, parked(mine), mine.version),), fence(mine, inbox_seq=1)))
    assert (await the_run(b)).owner == ""


async def every_result_carries_inbox_seq(s: Subject) -> None:
    """A holder learns of a message from the result of its next commit."""
    a, b = await two(s)
    mine = await held(a)
    await b.commit(append_message(message_row()))
    assert (await a.commit(put_run(mine))).inbox_seq == 1
    await b.commit(append_message(message_row()))
    fenced = Commit(puts(approval_row()), fence(moved(mine)))
    assert (await a.commit(fenced)).inbox_seq == 2


async def a_message_and_a_park_do_not_miss_each_other(s: Subject) -> None:
    """In any order of a message and a park, a parked run with an unread message is due."""
    a, b = await two(s)
    for i in range(30):
        mine = await held(a, f"run-{i}")
        park = Commit((Put(RUN, parked(mine), mine.version),), fence(mine, inbox_seq=0))
        submits = [(a, park), (b, append_message(message_row(mine.run)))]
        answers = []
        if i < 4:  # both orders for certain, then whichever wins
            for store, commit in submits if i % 2 else reversed(submits):
                answers.append(await outcome(store.submit(commit)))
        else:
            futures = [store.submit(commit) for store, commit in (submits if i % 2 else reversed(submits))]
            answers = await asyncio.gather(*map(outcome, futures))
        row = await the_run(a, mine.run)
        assert row.inbox_seq == 1
        if row.owner:
            assert any(isinstance(answer, Stale) and answer.reason == "inbox_seq" for answer in answers)
        else:
            assert row.due_at is not None


async def messages_of_two_writers_have_no_gap(s: Subject) -> None:
    """However many messages are written at once, the numbers are 1 to n and `inbox_seq` is n."""
    a, b = await two(s)
    await a.commit(start(run_row()))
    both = [store.commit(append_message(message_row(payload=b"%d" % i))) for i in range(40) for store in (a, b)]
    answers = await asyncio.gather(*both)
    assert sorted(answer.inbox_seq for answer in answers) == list(range(1, 81))
    assert [message.n for message in await messages(b)] == list(range(1, 81))
    assert (await the_run(a)).inbox_seq == 80


async def a_decision_lands_with_its_message(s: Subject) -> None:
    """An approval is decided once with exactly one message to its run, however many decide at once."""
    a, b = await two(s)
    await a.commit(start(run_row()))
    pending = approval_row()
    await a.commit(Commit(puts(pending)))

    def decide(who: str, status: ApprovalStatus) -> Commit:
        after = pending._replace(version=2, status=status, decided_by=who, decided_at=T0, chosen="d")
        return Commit((Put(APPROVAL, after, 1), AppendMessage(message_row()._replace(kind="decision", actor=who))))

    both = (a.commit(decide("ann", ApprovalStatus.APPROVED)), b.commit(decide("bob", ApprovalStatus.REJECTED)))
    answers = await asyncio.gather(*map(outcome, both))
    assert sum(isinstance(answer, Stale) for answer in answers) == 1
    (message,) = await messages(a)
    row = await a.load(APPROVAL, pending[:3])
    assert isinstance(row, Approval)
    assert message.actor == row.decided_by
    assert row.version == 2


async def a_wake_makes_a_parked_run_due(s: Subject) -> None:
    """A wake changes no version, and only an unowned, unfinished run becomes due."""
    a, b = await two(s)
    mine = await held(a)
    wake = Commit((Wake("acme", "run-1"),))
    await b.commit(wake)
    assert await the_run(a) == mine
    asleep = parked(mine)
    await a.commit(Commit((Put(RUN, asleep, mine.version),)))
    await b.commit(wake)
    assert await the_run(a) == asleep._replace(due_at=T0)
    await a.commit(Commit((Put(RUN, ended(asleep), asleep.version),)))
    await b.commit(wake)
    assert await the_run(a) == ended(asleep)
    await refused_for("missing", b.commit(Commit((Wake("acme", "no-such-run"),))))
