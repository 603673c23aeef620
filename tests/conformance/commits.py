"""Promises about one commit: atomicity, versions, expectations, limits, chains."""

import asyncio

from outlast.core.commit import Chain, Commit, Expect, Put
from outlast.core.limits import ACTIONS_MAX, ROW_BYTES_MAX
from outlast.core.rows.effect_rows import EFFECT, Effect
from outlast.core.rows.run_rows import EVENT, MESSAGE, RUN, TOKEN, Event
from outlast.core.rows.store_rows import META, STORE, Meta
from outlast.errors import Ended, Rejected, Stale
from tests.conformance.subject import (
    Subject,
    append_message,
    approval_row,
    effect_row,
    ended,
    event_row,
    expect_run,
    held,
    intend,
    message_row,
    messages,
    moved,
    outcome,
    put_run,
    puts,
    record,
    refused,
    refused_for,
    run_row,
    start,
    the_run,
    token_row,
    two,
)


async def a_commit_lands_whole(s: Subject) -> None:
    """All writers see every row of a landed commit, exactly as it was written."""
    a, b = await two(s)
    answer = await a.commit(start(run_row()))
    assert answer.inbox_seq == 0
    assert answer.now.real == s.clock.time
    assert await b.load(RUN, ("acme", "run-1")) == run_row()
    assert await b.rows(EVENT, ("acme", "run-1")) == (event_row(),)


async def a_refused_commit_writes_nothing(s: Subject) -> None:
    """If one row of a commit is stale, none of its rows is written."""
    a, b = await two(s)
    await a.commit(start(run_row()))
    row = await the_run(a)
    good = Put(EFFECT, effect_row(), 0)
    await refused_for("version", b.commit(Commit((good, Put(RUN, moved(row)._replace(version=6), 5)))))
    assert await a.rows(EFFECT, ("acme", "run-1")) == ()
    assert await the_run(b) == row


async def a_row_is_inserted_once(s: Subject) -> None:
    """Version 0 inserts a row. A second insertion is stale, on kinds with and without versions."""
    a, b = await two(s)
    await a.commit(start(run_row()))
    await refused_for("version", b.commit(Commit((Put(RUN, run_row(), 0),))))
    await refused_for("version", b.commit(Commit((Put(EVENT, event_row(), 0),))))
    await a.commit(Commit((Put(EFFECT, effect_row(), 0),)))
    await refused_for("version", b.commit(Commit((Put(EFFECT, effect_row(), 0),))))
    await a.commit(Commit(puts(token_row())))
    await refused_for("version", b.commit(Commit(puts(token_row()))))


async def a_missing_row_cannot_be_replaced(s: Subject) -> None:
    """A commit that replaces a missing row is stale and does not create it."""
    a, b = await two(s)
    await refused_for("version", a.commit(put_run(run_row())))
    effect = effect_row()._replace(version=2)
    await refused_for("version", a.commit(Commit((Put(EFFECT, effect, 1),))))
    assert await b.load(RUN, ("acme", "run-1")) is None
    assert await b.rows(EFFECT, ("acme", "run-1")) == ()


async def a_commit_for_an_older_version_is_stale(s: Subject) -> None:
    """A writer that read an older version is stale and overwrites nothing (RUN-3)."""
    a, b = await two(s)
    await a.commit(start(run_row()))
    seen = await the_run(b)
    await a.commit(put_run(seen, node="first"))
    await refused_for("version", b.commit(put_run(seen, node="second")))
    assert (await the_run(b)).node == "first"


async def an_expected_version_is_checked(s: Subject) -> None:
    """A commit that expects a version of a row, or no row, is stale if that is no longer true."""
    a, b = await two(s)
    await a.commit(start(run_row()))
    row = await the_run(b)
    entry = Put(TOKEN, token_row(), 0)
    absent = Expect(TOKEN, token_row()[:3], 0)
    await b.commit(Commit((entry,), expects=(expect_run(row), absent)))
    await refused_for("version", b.commit(Commit(puts(token_row("other")), expects=(absent,))))
    await a.commit(put_run(row))
    await refused_for("version", b.commit(Commit(puts(token_row("other")), expects=(expect_run(row),))))
    event = Expect(EVENT, ("acme", "run-1", 1), 1)
    await b.commit(Commit(puts(token_row("other")), expects=(event,)))
    missing = Expect(EFFECT, ("acme", "run-1", 1, "k"), 1)
    await refused_for("version", b.commit(Commit(puts(token_row("third")), expects=(missing,))))


async def a_terminal_run_never_changes(s: Subject) -> None:
    """A commit to a run that has ended raises Ended, whatever version it names."""
    a, b = await two(s)
    mine = await held(a)
    over = ended(mine)
    await a.commit(Commit((Put(RUN, over, mine.version),)))
    for row in (mine, over):
        error = await refused(b.commit(put_run(row, node="again")))
        assert isinstance(error, Ended), error
    assert await the_run(b) == over


async def a_commit_beyond_the_limits_is_rejected(s: Subject) -> None:
    """Every store raises Rejected for a commit beyond the limits, and writes nothing."""
    a, _ = await two(s)
    await a.commit(start(run_row()))
    row = await the_run(a)
    effect = effect_row()
    big = b"x" * (ROW_BYTES_MAX - 100)
    bad = [
        Commit(()),
        Commit(tuple(Put(TOKEN, token_row(str(i)), 0) for i in range(ACTIONS_MAX))),
        Commit(tuple(Put(EVENT, event_row(seq=i + 2), 0) for i in range(ACTIONS_MAX // 2))),
        Commit(puts(token_row()), expects=tuple(Expect(TOKEN, token_row(str(i))[:3], 0) for i in range(ACTIONS_MAX))),
        Commit((Put(EVENT, event_row(seq=2)._replace(details=b"x" * ROW_BYTES_MAX), 0),)),
        Commit(tuple(Put(EVENT, event_row(seq=i + 2)._replace(details=big), 0) for i in range(5))),
        Commit((Put(EVENT, event_row(seq=2)._replace(node="\ud800"), 0),)),
        Commit((Put(EVENT, event_row(seq=2)._replace(node="a\0b"), 0),)),
        Commit((Put(EVENT, event_row(seq=2)._replace(at=2**63), 0),)),
        Commit((Put(RUN, moved(row, due_at=-(2**63) - 1), 1),)),
        Commit((Put(EFFECT, effect, 0), Put(EFFECT, effect._replace(digest="e"), 0))),
        Commit((Put(RUN, moved(row)._replace(version=4), 1),)),
        Commit((Put(RUN, moved(row, waiting_for_text="", due_at=None), 1),)),
        Commit((Put(EVENT, event_row(), 1),)),
        Commit((Put(META, Meta(STORE, "clock", 1, "{}"), 0),)),
        Commit((Put(MESSAGE, message_row()._replace(n=1), 0),)),
    ]
    for commit in bad:
        error = await refused(a.commit(commit))
        assert isinstance(error, Rejected), (commit, error)
    assert await a.rows(EVENT, ("acme", "run-1")) == (event_row(),)
    assert await the_run(a) == row


async def a_commit_at_the_limits_lands(s: Subject) -> None:
    """A commit exactly at the limits lands with all its rows."""
    a, b = await two(s)
    await a.commit(start(run_row()))
    many = ACTIONS_MAX // 2 - 1  # each with its mark; one action is the receipt
    await a.commit(Commit(tuple(Put(EVENT, event_row(seq=i + 2), 0) for i in range(many))))
    assert len(await b.rows(EVENT, ("acme", "run-1"))) == many + 1
    await a.commit(Commit(tuple(Put(TOKEN, token_row(str(i)), 0) for i in range(ACTIONS_MAX - 1))))
    assert len(await b.rows(TOKEN, ("acme",))) == ACTIONS_MAX - 1
    big = b"x" * (ROW_BYTES_MAX - 1_000)
    await a.commit(Commit((Put(EVENT, event_row(seq=500)._replace(details=big), 0),)))
    found = await b.load(EVENT, ("acme", "run-1", 500))
    assert isinstance(found, Event)
    assert found.details == big


async def commits_land_in_the_order_submitted(s: Subject) -> None:
    """Commits of one writer land in the order of submission, without waiting in between."""
    a, b = await two(s)
    await a.commit(start(run_row()))
    row, futures = await the_run(a), []
    for i in range(50):
        after = moved(row, node=f"node-{i}")
        futures.append(a.submit(Commit((Put(RUN, after, row.version),)), linger=i % 2 == 0))
        row = after
    await asyncio.gather(*futures)
    assert await the_run(b) == row


async def a_chain_breaks_at_the_first_refusal(s: Subject) -> None:
    """After a refused commit of a chain, all later ones are refused, whenever they were submitted (S-7)."""
    a, _ = await two(s)
    mine = await held(a)
    effect, chain = effect_row(), Chain()
    first = a.submit(intend(effect, mine), chain=chain)
    lost = a.submit(record(effect._replace(version=7), mine), chain=chain, linger=True)
    after = a.submit(put_run(mine, node="next"), chain=chain)
    await first
    await refused_for("version", lost)
    await refused_for("chain", after)
    assert chain.broken
    await refused_for("chain", a.commit(put_run(mine, node="next"), chain=chain))
    assert await the_run(a) == mine
    await a.commit(put_run(mine, node="next"), chain=Chain())


async def a_rejected_commit_breaks_its_chain_in_order(s: Subject) -> None:
    """Earlier commits of the chain land before a commit beyond the limits. Later ones do not."""
    a, _ = await two(s)
    mine = await held(a)
    chain = Chain()
    first = a.submit(intend(effect_row(), mine), chain=chain)
    bad = a.submit(Commit(()), chain=chain)
    after = a.submit(put_run(mine), chain=chain)
    assert isinstance(await outcome(bad), Rejected)
    await first
    await refused_for("chain", after)


async def a_broken_chain_affects_no_other_commit(s: Subject) -> None:
    """Messages and commits of other holders land beside a broken chain in the same batch."""
    a, b = await two(s)
    mine, other = await held(a), await held(a, "run-2")
    chain = Chain()
    bad = a.submit(put_run(mine._replace(version=9)), chain=chain)
    after = a.submit(put_run(mine), chain=chain)
    message = a.submit(append_message(message_row()))
    theirs = a.submit(put_run(other, node="next"), chain=Chain())
    assert isinstance(await outcome(bad), Stale)
    await refused_for("chain", after)
    assert (await message).inbox_seq == 1
    await theirs
    assert len(await messages(b)) == 1
    assert (await the_run(b, "run-2")).node == "next"


async def later_commits_see_earlier_ones_of_their_batch(s: Subject) -> None:
    """An effect can be intended, recorded and built upon before the first commit is awaited."""
    a, b = await two(s)
    mine = await held(a)
    effect, chain = effect_row(), Chain()
    answers = await asyncio.gather(
        a.submit(intend(effect, mine), chain=chain),
        a.submit(append_message(message_row())),
        a.submit(record(effect, mine), chain=chain, linger=True),
        a.submit(put_run(mine, node="next"), chain=chain),
    )
    assert answers[3].inbox_seq == 1
    after = await the_run(b)
    assert (after.node, after.inbox_seq, after.version) == ("next", 1, mine.version + 1)
    found = await b.load(EFFECT, effect[:4])
    assert isinstance(found, Effect)
    assert found.version == 2


async def a_lingering_commit_lands(s: Subject) -> None:
    """A lingering commit lands even if no other commit follows."""
    a, b = await two(s)
    await a.submit(start(run_row()), linger=True)
    assert await b.load(RUN, ("acme", "run-1")) is not None


async def a_cancelled_caller_does_not_cancel_its_commit(s: Subject) -> None:
    """A commit lands although its caller was cancelled, and the store goes on."""
    a, b = await two(s)
    future = a.submit(start(run_row()))
    future.cancel()
    await a.commit(Commit(puts(approval_row())))
    assert await b.load(RUN, ("acme", "run-1")) is not None
