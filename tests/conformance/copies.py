"""Promises about the start of a fork: its copies land before its run, and its last commit knows its ancestor (S-28)."""

from outlast.core import forks
from outlast.core.commit import Commit, Put, in_portions
from outlast.core.durations import FORK_STARTS_KEPT
from outlast.core.fork_starts import ForkStart, begin, ending, give_up, token_key
from outlast.core.forks import CopiedCall, ForkTerms
from outlast.core.living_forks import ForkNote, note_fork, notes_of
from outlast.core.rows.effect_rows import MEMO
from outlast.core.rows.run_rows import RUN, TOKEN, Run
from outlast.core.rows.store_rows import META
from outlast.core.verbs import Forked, NewRun
from outlast.core.verbs import start as start_verb
from outlast.engine.fork_start_removal import remove_given_up
from outlast.store.port import Store
from tests.conformance.subject import (
    LANE,
    T0,
    TENANT,
    Subject,
    effect_row,
    ended,
    fence,
    held,
    intend,
    refused_for,
    the_run,
    token_row,
    two,
)

FORK = "fork-1"
TERMS = ForkTerms("run-1", "run-1", 1, approvers="lead", past="p")
CALLS = tuple(
    CopiedCall(n, "run-1", 3, "write", "visit", 1, "pay", f"pay/{n}", "d", n < 60, "done", "", f"x-{n}", b'"paid"')
    for n in range(1, 121)
)


async def _ancestor(store: Store) -> Run:
    """Start a run and end it."""
    mine = await held(store)
    await store.commit(Commit((Put(RUN, ended(mine), mine.version),), fence(mine)))
    return await the_run(store)


def _copies(first: int, last: int) -> Commit:
    calls = CALLS[first - 1 : last]
    return Commit(tuple(Put(MEMO, forks.memo_of_call(TENANT, FORK, call, "p", T0), 0) for call in calls))


async def _last(store: Store, ancestor: Run) -> Commit:
    now = await store.now()
    new = NewRun(
        TENANT,
        FORK,
        "auction",
        LANE,
        "plan",
        "",
        b"{}",
        now.business + 1_000,
        "ann",
        forked=Forked(ancestor.run, 1, ancestor.version, 2, {"plan": 2}, TERMS._asdict()),
        rows=(Put(MEMO, forks.memo_of_terms(TENANT, FORK, TERMS, T0), 0),),
    )
    return start_verb(new, now, limited=False)


async def copies_land_before_their_run(s: Subject) -> None:
    """Copies of calls land in batches, by any writer; the run of a fork is there with the last batch, and whole."""
    a, b = await two(s)
    ancestor = await _ancestor(a)
    for first in (1, 41, 81):
        await (a if first == 41 else b).commit(_copies(first, first + 39))
        assert await b.load(RUN, (TENANT, FORK)) is None
    await refused_for("version", a.commit(_copies(1, 40)))
    await b.commit(await _last(b, ancestor))
    (rows,) = await a.run_rows([(TENANT, FORK)])
    assert rows is not None and rows.run.forked_from == "run-1" and rows.run.due_at is not None
    ledger = forks.ledger_of({(memo.visit, memo.key): memo for memo in rows.memos})
    assert ledger is not None and (ledger.terms, tuple(ledger.calls)) == (TERMS, CALLS)
    assert rows.effects == (), "no copy is an effect"


async def copies_that_were_given_up_are_deleted(s: Subject) -> None:
    """Of a start that was given up no copy lands, no run is made, and no row stays. The fork can be begun again."""
    a, b = await two(s)
    ancestor = await _ancestor(a)
    start = ForkStart(TENANT, FORK, ancestor.run, (await a.now()).business)
    await a.commit(begin(start))
    await refused_for("version", b.commit(begin(start._replace(at=start.at + 1))))
    expects = (start.expects,)
    large = [call._replace(n=call.n + 200, response=b'"' + b"x" * 900_000 + b'"') for call in CALLS[:2]]
    puts = [Put(MEMO, forks.memo_of_call(TENANT, FORK, call, "p", T0), 0) for call in (*CALLS[:60], *large)]
    for portion in in_portions(puts):
        await a.commit(Commit(portion, expects=expects))
    s.clock.time += FORK_STARTS_KEPT
    assert await remove_given_up(b)
    assert len(await a.rows(MEMO, (TENANT, FORK))) == 63, "it is no older than a week"
    s.clock.time += 1
    await b.commit(give_up(start))
    await refused_for("version", a.commit(_copies(61, 62)._replace(expects=expects)))
    await refused_for("version", a.commit(ending(start, await _last(a, ancestor))))
    assert await remove_given_up(b)
    assert await a.rows(MEMO, (TENANT, FORK)) == ()
    assert await a.load(META, start.key) is None
    await refused_for("version", a.commit(_copies(61, 62)._replace(expects=expects)))
    again = start._replace(at=(await a.now()).business)
    await b.commit(begin(again))
    await a.commit(_copies(1, 40)._replace(expects=(again.expects,)))
    await b.commit(ending(again, await _last(b, ancestor)))
    assert len(await a.rows(MEMO, (TENANT, FORK))) == 41, "the copies and the terms"
    assert await b.load(META, again.key) is None
    token = token_row(str(token_key(TENANT, FORK)[-1]), FORK)
    await a.commit(Commit((Put(TOKEN, token, 0),)))
    await refused_for("version", b.commit(begin(again._replace(at=again.at + 1))))


async def a_fork_is_refused_if_its_ancestor_changed(s: Subject) -> None:
    """The last commit of the start of a fork is refused if the ancestor's row has another version by then."""
    a, b = await two(s)
    mine = await held(a)
    last = await _last(b, mine)
    await a.commit(Commit((Put(RUN, ended(mine), mine.version),), fence(mine)))
    await refused_for("version", b.commit(last))
    assert await a.load(RUN, (TENANT, FORK)) is None


async def a_copied_answer_is_used_once(s: Subject) -> None:
    """Of two commits that use one copied answer, the second is refused."""
    a, b = await two(s)
    ancestor = await _ancestor(a)
    await a.commit(await _last(a, ancestor))
    run = await the_run(b, FORK)
    await a.commit(Commit((Put(MEMO, forks.use_of(run, CALLS[99], 2, T0), 0),)))
    await refused_for("version", b.commit(Commit((Put(MEMO, forks.use_of(run, CALLS[99], 3, T0), 0),))))


async def a_note_refuses_an_intent_that_names_the_version(s: Subject) -> None:
    """A note of a fork raises the version of a run that another process holds, whose epoch and other commits stay."""
    a, b = await two(s)
    mine = await held(a)
    named = fence(mine)._replace(version=mine.version)
    await a.commit(intend(effect_row("run-1", "pay/1"), mine)._replace(fence=named))
    note = ForkNote(FORK, "ana", "both go on", 1, 1, mine.visit, "ask")
    await b.commit(note_fork(mine, note, 0, now=await b.now()))
    await refused_for("version", a.commit(intend(effect_row("run-1", "pay/2"), mine)._replace(fence=named)))
    await a.commit(intend(effect_row("run-1", "pay/3"), mine))
    await refused_for("version", b.commit(note_fork(mine, note, 1, now=await b.now())))
    (rows,) = await b.run_rows([(TENANT, "run-1")])
    assert rows is not None and (rows.run.epoch, rows.run.owner) == (mine.epoch, mine.owner)
    assert notes_of({(memo.visit, memo.key): memo for memo in rows.memos}) == (note,)
    await refused_for("version", a.commit(Commit((Put(RUN, ended(mine), mine.version),), fence(mine))))
    now = await the_run(a)
    await a.commit(intend(effect_row("run-1", "pay/2"), now)._replace(fence=fence(now)._replace(version=now.version)))
