"""Promises about reads: rows, their order, and their tenant."""

from base64 import urlsafe_b64encode
from typing import Any, Final

from outlast.core.causes import cause_mark, flagged
from outlast.core.commit import AppendMessage, Commit, Mapping, Put
from outlast.core.machine import ApprovalStatus, EffectStatus, Reason, RunStatus, WaitStatus
from outlast.core.rows.all_kinds import KINDS
from outlast.core.rows.approval_columns import VOTES, ApprovalVote
from outlast.core.rows.effect_columns import ERROR, EffectError
from outlast.core.rows.effect_rows import APPROVAL, EFFECT, EVIDENCE, MEMO, WAIT, Effect, Evidence, Memo, Wait
from outlast.core.rows.limit_rows import PAUSE, Pause
from outlast.core.rows.row_kind import Key
from outlast.core.rows.run_columns import ATTENTION, Attention
from outlast.core.rows.run_rows import (
    EVENT,
    FLAGGING,
    MESSAGE,
    RESULT,
    RUN,
    STATE_CHUNK,
    TOKEN,
    Event,
    Flagging,
    Result,
    Run,
)
from outlast.core.rows.store_rows import STORE, WORKER
from outlast.core.run_filters import Interval
from outlast.errors import InvalidInput
from outlast.store.bars import (
    ANY,
    EVERY,
    OUTCOMES,
    BarSpan,
    Causes,
    CountedBars,
    Counts,
    EndBars,
    FirstFlagged,
    FlaggedBars,
    FlaggingTimes,
    LastFlaggings,
    OfRuns,
    RunsByEnd,
    StartBars,
    TimesOfCauses,
)
from outlast.store.open_rows import FlaggedCounts, FlaggedRuns, LaneCounts, OpenRows, PendingApprovals, Summary
from outlast.store.port import maintenance
from outlast.store.queries import (
    ROWS_MAX,
    ByOrdinal,
    Census,
    CountBy,
    LastOrdinals,
    Moving,
    NextDue,
    Owned,
    Queued,
    Under,
)
from tests.conformance.subject import (
    LANE,
    T0,
    Subject,
    append_message,
    approval_row,
    claim_by,
    claimed,
    done,
    effect_row,
    ended,
    event_row,
    fence,
    held,
    message_row,
    messages,
    moved,
    put_run,
    puts,
    refused_for,
    run_row,
    slot_row,
    start,
    the_run,
    token_row,
    two,
    value_row,
    worker_row,
)


async def rows_come_back_as_they_were(s: Subject) -> None:
    """Text of any language, empty and long bytes, None and large numbers are read as written."""
    a, b = await two(s)
    run = run_row(
        "run-ü", status_label="zwölf €, 十二, 🙂, ' \" \\ % ? \n", due_at=2**62, created_at=-(2**63), seq=2**63 - 1
    )
    effect = done(effect_row(key="küche/%2F?")._replace(args=bytes(range(256))), b"")
    await a.commit(Commit((Put(RUN, run, 0), Put(EFFECT, effect._replace(version=1), 0))))
    assert await b.load(RUN, ("acme", "run-ü")) == run
    found = await b.load(EFFECT, effect[:4])
    assert found == effect._replace(version=1)
    assert isinstance(found, Effect)
    assert type(found.status) is type(effect.status)
    assert type((await the_run(b, "run-ü")).status) is RunStatus
    assert await b.load(RUN, ("acme", "run-u")) is None


async def a_run_of_the_greatest_size_is_like_any_other(s: Subject) -> None:
    """A run with the largest row is read, woken, taken, re-armed and purged as others are."""
    a, b = await two(s)
    run = run_row(correlation_id="€" * 300_000, due_at=T0 + 50)
    await a.commit(start(run))
    assert (await b.commit(append_message(message_row()))).inbox_seq == 1
    woken = run._replace(inbox_seq=1, due_at=T0)
    assert await the_run(b) == await the_run(a) == woken
    await b.commit(put_run(woken, due_at=T0 + 50, correlation_id="é" * 250_000))
    await maintenance(a).set_mapping(Mapping(0, T0, T0, 2.0), lambda run, mapping: T0 + 25)
    s.clock.time += 25
    (mine,) = await a.take((LANE,), 5, claim_by("worker-1"))
    assert mine.correlation_id == "é" * 250_000
    (rows,) = await b.run_rows([mine[:2]])
    assert rows is not None and rows.run == mine
    await b.commit(Commit((Put(RUN, ended(mine), mine.version),), fence(mine)))
    assert await the_run(a) == ended(mine)
    assert await maintenance(b).purge(T0 * 2, 10) == 1
    assert await a.load(RUN, mine[:2]) is None


async def rows_are_in_key_order(s: Subject) -> None:
    """Rows under a prefix come in key order, numbers as numbers. `after` and `limit` page through them."""
    a, b = await two(s)
    await a.commit(start(run_row()))
    await a.commit(Commit(puts(*(event_row(seq=i) for i in (100, 9, 10, 2)))))
    await a.commit(Commit(puts(event_row("run-10"), event_row("run-2"))))
    prefix = ("acme", "run-1")
    found = await b.rows(EVENT, prefix)
    assert [row[2] for row in found] == [1, 2, 9, 10, 100]
    assert [row[2] for row in await b.rows(EVENT, prefix, limit=2)] == [1, 2]
    assert [row[2] for row in await b.rows(EVENT, prefix, after=(*prefix, 9))] == [10, 100]
    assert [row[2] for row in await b.rows(EVENT, prefix, after=(*prefix, 2), limit=2)] == [9, 10]
    assert [row[1] for row in await b.rows(EVENT, ("acme",), limit=6)] == ["run-1"] * 5 + ["run-10"]
    assert len(await b.rows(EVENT, ())) == 7
    assert await b.rows(EVENT, ("acme", "nobody")) == ()
    await a.commit(Commit(puts(worker_row("w-2"), worker_row("w-1"))))
    assert [row[1] for row in await b.rows(WORKER, (STORE,))] == ["w-1", "w-2"]


async def many_rows_are_loaded_in_the_order_of_keys(s: Subject) -> None:
    """`load_many` returns the row at each key in the order of the keys, and None for missing rows."""
    a, b = await two(s)
    await a.commit(start(run_row()))
    await a.commit(Commit(puts(*(value_row(name, bytes([i]) * 100_000) for i, name in enumerate("abc")))))
    keys = [("acme", "run-1", name) for name in ("c", "none", "a")]
    found = await b.load_many(STATE_CHUNK, keys)
    assert found == (value_row("c", b"\2" * 100_000), None, value_row("a", b"\0" * 100_000))
    assert await b.load_many(STATE_CHUNK, []) == ()
    assert await b.load_many(STATE_CHUNK, [("globex", "run-1", "a")]) == (None,)
    assert await b.load_many(EVENT, [("acme", "run-1", 2), ("acme", "run-1", 1)]) == (None, event_row())


async def rows_are_read_backwards(s: Subject) -> None:
    """The last rows under a prefix come first, and `after` pages to the ones before. Other prefixes are left alone."""
    a, b = await two(s)
    await a.commit(start(run_row()))
    await a.commit(Commit(puts(*(event_row(seq=i) for i in (100, 9, 10, 2)))))
    await a.commit(Commit(puts(event_row("run-10"), event_row("run-2"))))
    prefix = ("acme", "run-1")

    async def read(after: Key = (), limit: int = ROWS_MAX) -> list[int]:
        return [row.seq for row in await b.query(Under(EVENT, prefix, after, limit, backwards=True))]

    assert await read() == [100, 10, 9, 2, 1]
    assert await read(limit=2) == [100, 10]
    assert await read((*prefix, 10)) == [9, 2, 1]
    assert await read((*prefix, 50), limit=2) == [10, 9]
    assert await read((*prefix, 1)) == []


async def rows_are_counted_and_read_by_ordinal(s: Subject) -> None:
    """`in_order` pages through rows by ordinal, whatever their keys. The last ordinal counts them."""
    a, b = await two(s)
    await a.commit(start(run_row()))
    rows = [Result("acme", "run-1", key, 1, n, "lead", b"{}", T0) for n, key in enumerate(("m", "z", "a", "b"), 1)]
    await a.commit(Commit(tuple(Put(RESULT, row, 0) for row in rows)))
    prefix = ("acme", "run-1")
    assert await b.query(ByOrdinal(RESULT, prefix)) == tuple(rows)
    assert await b.query(ByOrdinal(RESULT, prefix, after=1, limit=2)) == tuple(rows[1:3])
    assert await b.query(ByOrdinal(RESULT, prefix, after=4)) == ()
    assert await b.query(ByOrdinal(RESULT, ("globex", "run-1"))) == ()
    again = rows[1]._replace(version=2, data=b"[]")
    await a.commit(Commit((Put(RESULT, again, 1),)))
    await refused_for("version", b.commit(Commit((Put(RESULT, again, 1),))))
    assert (await b.query(ByOrdinal(RESULT, prefix)))[1] == again
    assert await b.query(LastOrdinals(RESULT, (("acme", "run-2"), prefix, ("globex", "run-1"), prefix))) == (0, 4, 0, 4)
    assert await b.query(LastOrdinals(RESULT, (("acme",),))) == (4,)
    assert await b.query(LastOrdinals(RESULT, ())) == ()
    await a.commit(Commit((Put(RUN, ended(run_row()), 1),)))
    assert await b.purge(T0 + 10**9, 10) == 1
    assert await b.query(LastOrdinals(RESULT, (prefix,))) == (0,)


async def a_census_counts_the_rows_of_all_tenants(s: Subject) -> None:
    """`census` counts by several columns over all tenants. `filled` leaves out rows without a value."""
    a, b = await two(s)
    await a.commit(start(run_row()))
    await a.commit(start(run_row("run-2", attention_text="[1]")))
    await a.commit(start(run_row("run-1", "globex")))
    queued = RunStatus.QUEUED.value
    assert await b.query(Census(RUN, ("workflow", "status"))) == {("auction", queued): 3}
    assert await b.query(Census(RUN, ("tenant", "attention"), filled="attention")) == {("acme", "[1]"): 1}
    assert await b.query(Census(APPROVAL, ("who",))) == {}


async def a_value_is_written_once(s: Subject) -> None:
    """A second value under the same hash is refused for any writer. The first one stays until its run is purged."""
    a, b = await two(s)
    await a.commit(start(run_row()))
    await a.commit(Commit((Put(RUN, ended(run_row()), 1), *puts(value_row("a", b"first")))))
    await refused_for("version", b.commit(Commit(puts(value_row("a", b"second")))))
    assert await b.load(STATE_CHUNK, ("acme", "run-1", "a")) == value_row("a", b"first")
    assert await b.purge(T0 + 10**9, 10) == 1
    assert await b.load(STATE_CHUNK, ("acme", "run-1", "a")) is None


async def a_holder_reads_all_rows_of_its_run(s: Subject) -> None:
    """`run_rows` returns every row of each run and the newest snapshot, or None for a missing run."""
    a, b = await two(s)
    await a.commit(start(run_row()))
    await a.commit(Commit((Put(EVENT, event_row(seq=2, snapshot=b"two"), 0),)))
    await a.commit(Commit((Put(EVENT, event_row(seq=3, snapshot=None), 0), AppendMessage(message_row()))))
    memo = Memo("acme", "run-1", 1, "m", "look", "d", b"1", "", T0)
    wait = Wait("acme", "run-1", 1, "bids", 1, WaitStatus.OPEN, "collect", "bids", T0 + 9, 0, "", T0)
    late = Evidence("acme", "run-1", 1, "invite/1", 1, "{}", T0)
    writes = (Put(EFFECT, effect_row(), 0), Put(MEMO, memo, 0), Put(WAIT, wait, 0), Put(EVIDENCE, late, 0))
    await a.commit(Commit((*writes, *puts(approval_row()))))
    await a.commit(start(run_row("run-2")))
    found, missing, other = await b.run_rows((("acme", "run-1"), ("acme", "none"), ("acme", "run-2")))
    assert missing is None
    assert found is not None
    assert other is not None
    assert found.run == await the_run(a)
    assert isinstance(found.last, Event)
    assert (found.last.seq, found.last.snapshot) == (2, b"two")
    assert (found.effects, found.memos, found.waits, found.evidence) == ((effect_row(),), (memo,), (wait,), (late,))
    assert found.approvals == (approval_row(),)
    assert [message.n for message in found.messages] == [1]
    assert found.now.real == s.clock.time
    assert (len(other.effects), len(other.messages)) == (0, 0)


async def pages_are_newest_first(s: Subject) -> None:
    """A page has a tenant's newest rows first. Its cursor continues without gap or repetition."""
    a, b = await two(s)
    for i in range(7):
        await a.commit(start(run_row(f"run-{i}", created_at=T0 + i // 3, node="even" if i % 2 == 0 else "odd")))
    names: list[str] = []
    cursor = ""
    while True:
        page = await b.page(RUN, "acme", {}, cursor=cursor, limit=3)
        names += [str(row[1]) for row in page.rows]
        if not (cursor := page.cursor):
            break
    assert names == ["run-6", "run-5", "run-4", "run-3", "run-2", "run-1", "run-0"]
    odd = await b.page(RUN, "acme", {"node": "odd", "status": RunStatus.QUEUED})
    assert [row[1] for row in odd.rows] == ["run-5", "run-3", "run-1"]
    assert odd.cursor == ""
    for i in range(3):
        await a.commit(Commit(puts(approval_row(f"ap-{i}", asked_at=T0 + i))))
    pages = await b.page(APPROVAL, "acme", {"run": "run-1"}, limit=2)
    assert [row[2] for row in pages.rows] == ["ap-2", "ap-1"]


STRANGE_PLACES: Final = (
    b'["x", "run-1"]', b'[1, 2]', b'[true, "run-1"]', b'[1.5, "run-1"]', b'[9223372036854775808, "run-1"]',
    b'[1, "run-\\u0000"]', b'[1, "run-\\ud800"]', b'[1, ["run-1"]]', b'{"1": 2, "3": 4}', b"[" * 100_000,
)  # fmt: skip


async def a_page_refuses_unknown_columns(s: Subject) -> None:
    """Unknown columns and malformed cursors raise InvalidInput and never reach a statement."""
    a, _ = await two(s)
    await a.commit(start(run_row()))
    calls = [
        a.page(RUN, "acme", {"1=1 OR node": "x"}),
        a.page(RUN, "acme", {}, cursor="!"),
        a.page(RUN, "acme", {}, cursor="e30="),
        a.page(RUN, "acme", {}, cursor="WzFd"),
        *(a.page(RUN, "acme", {}, cursor=urlsafe_b64encode(place).decode()) for place in STRANGE_PLACES),
        a.query(CountBy(RUN, "acme", "status FROM run; --")),
    ]
    for call in calls:
        try:
            await call
        except InvalidInput:
            continue
        raise AssertionError("it was accepted")
    assert (await a.page(RUN, "acme", {"node": "' OR '1'='1"})).rows == ()


async def a_tally_counts_rows(s: Subject) -> None:
    """`tally` counts rows by the value of a column."""
    a, b = await two(s)
    for i in range(5):
        await a.commit(start(run_row(f"run-{i}")))
    await b.take((LANE,), 2, claim_by("worker-1"))
    assert await a.query(CountBy(RUN, "acme", "status")) == {RunStatus.QUEUED: 3, RunStatus.RUNNING: 2}
    assert await a.query(CountBy(RUN, "nobody", "status")) == {}


async def the_next_due_is_known(s: Subject) -> None:
    """`next_due` is the earliest due_at of the lanes, even if it has passed, or None."""
    a, b = await two(s)
    assert await b.query(NextDue((LANE,))) is None
    await a.commit(start(run_row("run-1", due_at=T0 + 70)))
    await a.commit(start(run_row("run-2", due_at=T0 + 50)))
    await a.commit(start(run_row("run-3", due_at=T0 + 10, lane="other@1")))
    assert await b.query(NextDue((LANE,))) == T0 + 50
    assert await b.query(NextDue((LANE, "other@1"))) == T0 + 10
    assert await b.query(NextDue(())) is None
    await b.commit(put_run(await the_run(b, "run-2"), due_at=T0 + 90))
    assert await a.query(NextDue((LANE,))) == T0 + 70


async def the_queue_is_in_order(s: Subject) -> None:
    """Runs that wait for a slot come oldest first, of one tenant or of all. A run with a slot is not among them."""
    a, b = await two(s)
    for name, at, tenant in (("b", 2, "acme"), ("a", 3, "acme"), ("c", 1, "globex"), ("d", 1, "acme")):
        await a.commit(start(run_row(name, tenant, created_at=T0 + at, queue=tenant)))
    await a.commit(start(run_row("e")))
    assert [run.run for run in await b.query(Queued("acme", 9))] == ["d", "b", "a"]
    assert [run.run for run in await b.query(Queued("acme", 2))] == ["d", "b"]
    assert [run.run for run in await b.query(Queued(STORE, 9))] == ["d", "c", "b", "a"]
    await b.commit(put_run(await the_run(b, "d"), queue=""))
    assert [run.run for run in await a.query(Queued(STORE, 1))] == ["c"]


async def the_queue_is_in_the_order_of_trees(s: Subject) -> None:
    """Runs of the oldest tree come first, and of one tree a parent before its children, then in their order."""
    a, b = await two(s)
    old = {"root": "old", "root_created_at": T0 + 1}
    for name, at, place in (
        ("new", 2, {"root_created_at": T0 + 2}),
        ("b", 7, {**old, "depth": 2}),
        ("a", 8, {**old, "depth": 2}),
        ("c", 9, {**old, "depth": 1}),
        ("old", 1, {"root_created_at": T0 + 1}),
        ("newer", 3, {"root_created_at": T0 + 3}),
    ):
        await a.commit(start(run_row(name, created_at=T0 + at, queue="acme", **place)))
    order = ["old", "c", "b", "a", "new", "newer"]
    assert [run.run for run in await b.query(Queued("acme", 9))] == order
    assert [run.run for run in await b.query(Queued(STORE, 9))] == order
    assert [run.run for run in await b.query(Queued("acme", 5))] == order[:5]


async def an_owner_finds_its_runs(s: Subject) -> None:
    """`owned` returns the present rows of one worker's runs, without unowned and ended runs."""
    a, b = await two(s)
    mine = await held(a)
    await held(a, "run-2", "worker-2")
    await a.commit(start(run_row("run-3")))
    assert await b.query(Owned("worker-1")) == (mine,)
    await a.commit(Commit((Put(RUN, ended(mine), mine.version),)))
    assert await b.query(Owned("worker-1")) == ()
    assert await b.query(Owned("")) == ()


async def owned_and_ended_runs_are_found(s: Subject) -> None:
    """`moving` returns the owned runs of one tenant and those that ended since, newest end first."""
    a, b = await two(s)
    for name in ("a", "b", "c", "d"):
        row = await held(a, name, f"worker-{name}")
        if name in "cd":
            await a.commit(Commit((Put(RUN, ended(row)._replace(ended_at=T0 + ord(name)), row.version),)))
    await a.commit(start(run_row("waits")))
    await a.commit(start(run_row("x", "globex")))
    other = claimed(await the_run(a, "x", "globex"), "worker-a", await a.now())
    await a.commit(Commit((Put(RUN, other, other.version - 1),)))
    owned, over = ["a", "b"], ["d", "c"]
    assert [run.run for run in await b.query(Moving("acme", T0, 9))] == owned + over
    assert [run.run for run in await b.query(Moving("acme", T0 + ord("d"), 9))] == [*owned, "d"], "at that instant too"
    assert [run.run for run in await b.query(Moving("acme", T0 + ord("d") + 1, 9))] == owned
    assert [run.run for run in await b.query(Moving("acme", 0, 1))] == ["a", "d"], "at most one of either"
    assert await b.query(Moving("globex", 0, 9)) == (other,)
    assert await b.query(Moving("nobody", 0, 9)) == ()
    await a.commit(put_run(await the_run(a, "a"), owner="", status=RunStatus.QUEUED))
    mine = await the_run(a, "b")
    await a.commit(Commit((Put(RUN, ended(mine)._replace(ended_at=T0 + ord("z")), mine.version),)))
    assert await b.query(Moving("acme", T0, 1)) == (await the_run(b, "b"),)
    await a.purge(T0 + ord("d") + 1, 9)
    assert [run.run for run in await b.query(Moving("acme", 0, 9))] == ["b"]


async def tenants_are_isolated(s: Subject) -> None:
    """No read or write of one tenant finds, changes or counts a row of another tenant (RUN-5)."""
    a, b = await two(s)
    for tenant in ("acme", "acme2", "acm", "acme.x"):
        await a.commit(start(run_row(tenant=tenant, node=tenant)))
        await a.commit(append_message(message_row(tenant=tenant)))
        writes = puts(approval_row(tenant=tenant), token_row(tenant=tenant), slot_row(tenant=tenant))
        await a.commit(Commit((*writes, Put(EFFECT, effect_row(tenant=tenant), 0))))
    await b.commit(put_run(await the_run(b, tenant="acme"), node="changed"))
    assert (await the_run(a, tenant="acme2")).node == "acme2"
    for kind in (RUN, EVENT, MESSAGE, APPROVAL, TOKEN, EFFECT):
        assert {row[0] for row in await b.rows(kind, ("acme",))} == {"acme"}
        assert {row[0] for row in (await b.page(kind, "acme", {})).rows} == {"acme"}
    assert await b.query(CountBy(RUN, "acm", "node")) == {"acm": 1}
    assert (await b.page(APPROVAL, "acme2", {"id": "ap-1"})).rows == (approval_row(tenant="acme2"),)
    assert await b.load(RUN, ("globex", "run-1")) is None
    assert (await b.run_rows((("globex", "run-1"),))) == (None,)
    await refused_for("missing", b.commit(append_message(message_row(tenant="globex"))))
    row = await the_run(b, tenant="acme")
    await b.commit(Commit((Put(RUN, ended(row), row.version),)))
    assert await b.purge(T0 + 10, 10) == 1
    assert len(await b.rows(RUN, ())) == 3
    assert {row[0] for row in await b.rows(MESSAGE, ())} == {"acme2", "acm", "acme.x"}


async def purge_keeps_tokens(s: Subject) -> None:
    """`purge` deletes at most n runs that ended before an instant, oldest first, with all rows except tokens."""
    a, b = await two(s)
    for i in range(4):
        name = f"run-{i}"
        mine = await held(a, name)
        await a.commit(
            Commit((Put(EFFECT, effect_row(name), 0), *puts(approval_row(run=name)), AppendMessage(message_row(name))))
        )
        signal = token_row(f"signal-{i}")._replace(run=name)
        await a.commit(Commit(puts(token_row(f"key-{i}", name), signal)))
        if i < 3:
            await a.commit(Commit((Put(RUN, ended(mine)._replace(ended_at=T0 + 10 - i), mine.version),)))
    assert await b.purge(T0 + 10, 1) == 1
    assert await a.load(RUN, ("acme", "run-2")) is None
    assert await b.purge(T0 + 10, 10) == 1
    assert await b.purge(T0 + 10, 10) == 0
    left = {kind.name: {row[1] for row in await b.rows(kind, ("acme",))} for kind in KINDS if kind.row is not Run}
    assert left["event"] == left["effect"] == left["approval"] == left["message"] == {"run-0", "run-3"}
    assert left["token"] == {"", "run-0", "run-1", "run-2", "run-3"}
    await refused_for("missing", a.commit(append_message(message_row("run-1"))))
    await a.commit(append_message(message_row("run-3")))
    assert len(await messages(b, "run-3")) == 2
    assert moved(await the_run(b, "run-3")).version == 3


async def rows_that_wait_for_a_person_are_listed_alone(s: Subject) -> None:
    """`OpenRows` has flagged runs, uncertain effects and pending approvals, and no row that has been answered."""
    a, b = await two(s)
    for i in range(5):
        flag = ATTENTION.encode([Attention(Reason.EXCEPTION, T0, "it broke")]) if i % 2 else ""
        workflow = "refund" if i == 3 else "auction"
        await a.commit(start(run_row(f"run-{i}", created_at=T0 + i // 4, attention_text=flag, workflow=workflow)))
    await a.commit(start(run_row("run-1", "globex", attention_text="[]")))
    first = await b.query(OpenRows(RUN, "acme", limit=1))
    assert [row.run for row in first.rows] == ["run-3"]
    rest = await b.query(OpenRows(RUN, "acme", cursor=first.cursor))
    assert ([row.run for row in rest.rows], rest.cursor) == (["run-1"], "")
    assert [r.run for r in (await b.query(OpenRows(RUN, "acme", (("workflow", "refund"),)))).rows] == ["run-3"]
    detail = f'"reason":"{Reason.EFFECT_UNCERTAIN}"'  # in a text of another reason
    flag = ATTENTION.encode([Attention(Reason.CONTRADICTION, T0, detail), Attention(Reason.NODE_GONE, T0)])
    await a.commit(start(run_row("run-9", created_at=T0 - 1, attention_text=flag)))
    for reason, runs in ((Reason.EXCEPTION, ["run-3", "run-1"]), (Reason.NODE_GONE, ["run-9"])):
        found = await b.query(OpenRows(RUN, "acme", limit=len(runs), reason=reason.value))
        assert ([row.run for row in found.rows], found.cursor) == (runs, ""), reason
    assert (await b.query(OpenRows(RUN, "acme", reason=Reason.EFFECT_UNCERTAIN.value))).rows == ()
    last = flagged((await the_run(b, "run-9"))._replace(version=2, attention_text=""))
    await a.commit(Commit((Put(RUN, last, 1),)))
    answered = flagged(first.rows[0]._replace(version=2, attention_text=""))
    await a.commit(Commit((Put(RUN, answered, 1),)))
    assert [r.run for r in (await b.query(OpenRows(RUN, "acme"))).rows] == ["run-1"]
    uncertain = effect_row()._replace(status=EffectStatus.UNCERTAIN)
    await a.commit(Commit((Put(EFFECT, uncertain, 0), Put(EFFECT, effect_row(key="invite/2"), 0))))
    assert (await b.query(OpenRows(EFFECT, "acme"))).rows == (uncertain,)
    await a.commit(Commit((Put(EFFECT, done(uncertain), 1),)))
    assert (await b.query(OpenRows(EFFECT, "acme", (("activity", "invite"),)))).rows == ()


async def effects_that_a_person_gave_up_are_listed_alone(s: Subject) -> None:
    """`OpenRows` with `unknown` has effects that a person gave up, and none that certainly did not happen."""
    a, b = await two(s)
    await a.commit(start(run_row()))
    found = {
        "unknown": ("given_up", "local:ana"), "spent": ("given_up", "call"), "again": ("did_not_happen", "ben"),
        "other": ("given_up_later", "ben"), "second": ("given_up", "ben"),
    }  # fmt: skip
    for n, (key, (code, by)) in enumerate(found.items()):
        error = ERROR.encode(EffectError(code, 'because "x"'))
        row = effect_row(key=key)._replace(
            status=EffectStatus.REFUSED, error_text=error, settled_by=by, settled_at=T0, first_at=T0 + n
        )
        await a.commit(Commit((Put(EFFECT, row, 0),)))
    await a.commit(Commit((Put(EFFECT, effect_row(key="open")._replace(status=EffectStatus.UNCERTAIN), 0),)))
    first = await b.query(OpenRows(EFFECT, "acme", limit=1, unknown=True))
    rest = await b.query(OpenRows(EFFECT, "acme", cursor=first.cursor, unknown=True))
    assert [row.key for row in (*first.rows, *rest.rows)] == ["second", "unknown"] and not rest.cursor
    assert [row.key for row in (await b.query(OpenRows(EFFECT, "acme"))).rows] == ["open"]
    assert (await b.query(OpenRows(EFFECT, "globex", unknown=True))).rows == ()


async def messages_of_callers_are_listed_alone(s: Subject) -> None:
    """`OpenRows` has messages of people and programs, newest first, and none that a run sent or that only tells."""
    a, b = await two(s)
    for run in ("run-1", "run-2"):
        await a.commit(start(run_row(run)))
    await a.commit(start(run_row("run-1", "globex")))
    sent = (
        ("run-1", "signal", "ana", b"{}"),
        ("run-1", "signal", "run run-2", b"{}"),
        ("run-2", "child", "run-3", b"{}"),
        ("run-2", "resolve", "run-3", b"{}"),
        ("run-2", "budget", "run run-1", b"{}"),
        ("run-2", "resolve", "ben", b'{"reason": "seen"}'),
        ("run-1", "child", "ana", b'{"reason": "go on"}'),
        ("run-1", "cancel", "run run-2", b'{"reason": "gone"}'),
        ("run-1", "decision", "ben", b"{}"),
    )
    for run, kind, actor, payload in sent:
        await a.commit(append_message(message_row(run, payload)._replace(kind=kind, actor=actor)))
    of_job = message_row("run-2")._replace(kind="cancel", signal_id="job/run-9")
    await a.commit(append_message(of_job))
    await a.commit(append_message(message_row("run-1", tenant="globex")))
    found: list[tuple[str, str, str]] = []
    cursor = ""
    while True:
        page = await b.query(OpenRows(MESSAGE, "acme", cursor=cursor, limit=2))
        found += [(row.run, row.kind, row.actor) for row in page.rows]
        if not (cursor := page.cursor):
            break
    assert sorted(found) == sorted([
        ("run-1", "decision", "ben"), ("run-1", "child", "ana"), ("run-2", "resolve", "ben"),
        ("run-1", "signal", "ana"),
    ])  # fmt: skip
    of_ben = (await b.query(OpenRows(MESSAGE, "acme", (("actor", "ben"), ("kind", "decision"))))).rows
    assert [(row.run, row.kind) for row in of_ben] == [("run-1", "decision")]


async def pending_approvals_come_by_deadline(s: Subject) -> None:
    """Pages of pending approvals begin with the earliest deadline. Approvals are found by who decided them."""
    a, b = await two(s)
    await a.commit(start(run_row()))
    deadlines = {"ap-1": 9, "ap-2": 4, "ap-3": 7, "ap-4": 4}
    for n, (name, at) in enumerate(deadlines.items()):
        await a.commit(Commit(puts(approval_row(name, asked_at=T0 + n)._replace(within_until=T0 + at))))
    names: list[str] = []
    cursor = ""
    while True:
        page = await b.query(OpenRows(APPROVAL, "acme", cursor=cursor, limit=3))
        names += [row.id for row in page.rows]
        if not (cursor := page.cursor):
            break
    assert names == ["ap-2", "ap-4", "ap-3", "ap-1"]
    one = await b.load(APPROVAL, ("acme", "run-1", "ap-4"))
    assert one is not None
    decided = one._replace(version=2, status=ApprovalStatus.REJECTED, decided_by="ana", decided_at=T0 + 3)
    await a.commit(Commit((Put(APPROVAL, decided, 1),)))
    assert [row.id for row in (await b.query(OpenRows(APPROVAL, "acme"))).rows] == ["ap-2", "ap-3", "ap-1"]
    assert (await b.page(APPROVAL, "acme", {"decided_by": "ana"})).rows == (decided,)
    assert (await b.page(APPROVAL, "acme", {"decided_by": "bob"})).rows == ()
    for wrong in (OpenRows(APPROVAL, "acme", cursor="none"), OpenRows(APPROVAL, "acme", (("color", "red"),))):
        try:
            await b.query(wrong)
        except InvalidInput:
            continue
        raise AssertionError(f"{wrong} was accepted")


async def flagged_runs_are_counted_and_listed_by_cause(s: Subject) -> None:
    """`FlaggedCounts` counts all flagged runs of a tenant by their causes, and `OpenRows` lists those of a cause."""
    a, b = await two(s)
    one, two_ = (Attention(Reason.EXCEPTION, T0 + n, "it broke", cause=f"{n:012}") for n in (1, 2))
    lost = Attention(Reason.EFFECT_UNCERTAIN, T0 + 3, "lost", "k", cause="3" * 12, until=T0 + 9)
    of_run = {"run-1": [one], "run-2": [two_, lost], "run-3": [one], "run-4": [], "run-5": [lost]}
    for n, (name, entries) in enumerate(of_run.items()):
        row = run_row(name, created_at=T0 + n, attention_text=ATTENTION.encode(entries), workflow=f"w{n % 2}")
        await a.commit(start(row))
    await a.commit(start(run_row("run-1", "globex", attention_text=ATTENTION.encode([one]))))
    counts = await b.query(FlaggedCounts("acme"))
    both = f" effect_uncertain/{lost.cause} exception/{two_.cause} "
    assert counts == (
        FlaggedRuns(f" effect_uncertain/{lost.cause} ", 1, T0 + 3, T0 + 9, T0 + 3),
        FlaggedRuns(both, 1, T0 + 2, T0 + 9, T0 + 2),
        FlaggedRuns(f" exception/{one.cause} ", 2, T0 + 1, 0, T0 + 1),
    )
    assert await b.query(FlaggedCounts("initech")) == ()
    of_w1 = await b.query(FlaggedCounts("acme", OfRuns("w1")))
    assert [(each.causes, each.runs) for each in of_w1] == [(both, 1)]
    assert sum(each.runs for each in await b.query(FlaggedCounts("acme", OfRuns(cause=cause_mark(lost.cause))))) == 2

    async def listed(**of: Any) -> list[str]:
        found, cursor = list[str](), ""
        while True:
            page = await b.query(OpenRows(RUN, "acme", cursor=cursor, limit=1, **of))
            found += [row.run for row in page.rows]
            cursor = page.cursor
            if not cursor:
                return found

    assert await listed(cause=one.cause) == ["run-3", "run-1"]
    assert await listed(cause=lost.cause) == ["run-5", "run-2"]
    assert await listed(cause=lost.cause, reason="effect_uncertain") == ["run-5", "run-2"]
    assert await listed(cause=lost.cause, reason="exception") == []
    assert await listed(cause=lost.cause, where=(("workflow", "w1"),)) == ["run-2"]
    assert await listed(reason="exception") == ["run-3", "run-2", "run-1"]
    assert await listed(cause="4" * 12) == []
    firsts = await b.query(FirstFlagged("acme", (both, " none/0 ", f" exception/{one.cause} ")))
    assert [run.causes for run in firsts] == [both, f" exception/{one.cause} "]
    first = await a.load(RUN, ("acme", "run-5"))
    assert first is not None
    answered = first._replace(version=first.version + 1, attention_text="", causes="", flagged_at=0, flagged_until=0)
    await a.commit(Commit((Put(RUN, answered, first.version),)))
    assert await listed(cause=lost.cause) == ["run-2"]
    assert [each.runs for each in await b.query(FlaggedCounts("acme"))] == [1, 2]


async def flaggings_are_counted_and_listed_by_time(s: Subject) -> None:
    """A bar counts a run once, whatever the number of its flaggings in this time, and a list has the last of them."""
    a, b = await two(s)
    one, both = f" exception/{'1' * 12} ", f" effect_uncertain/{'2' * 12} exception/{'1' * 12} "
    of_run = {"run-1": [(0, one), (1, both), (7, one)], "run-2": [(1, both)], "run-3": [(3, one)], "run-4": []}
    for name, times in of_run.items():
        await a.commit(start(run_row(name)))
        rows = [Flagging("acme", name, n, T0 + at, text, name[-1], LANE) for n, (at, text) in enumerate(times, 2)]
        for row in rows:
            await a.commit(Commit((Put(FLAGGING, row, 0),)))
    await a.commit(Commit((Put(FLAGGING, Flagging("globex", "run-1", 2, T0, one, "1", LANE), 0),)))
    span = BarSpan(T0, 2, 4)

    async def counted(*causes: Causes, of: OfRuns = EVERY) -> tuple[Counts, ...]:
        found = await b.query(FlaggedBars("acme", span, causes or (ANY,), of))
        assert found.all
        return found.counts

    assert await counted() == ((2, 1, 0, 1),)
    assert await counted(of=OfRuns("1", LANE)) == ((1, 0, 0, 1),)
    assert await counted(of=OfRuns(cause=f"/{'2' * 12} ")) == ((2, 0, 0, 0),)
    assert await counted((one,), (both, one), ("none",)) == ((1, 1, 0, 1), (2, 1, 0, 1), (0, 0, 0, 0))
    assert await b.query(FlaggedBars("acme", span, most=1)) == CountedBars(((0, 0, 0, 1),), all=False)
    assert await b.query(FlaggedBars("acme", span, most=2)) == CountedBars(((0, 1, 0, 1),), all=False)
    entries = sum(map(len, of_run.values()))
    for most in range(1, entries + 2):
        found = await b.query(FlaggedBars("acme", span, most=most))
        assert found.all is (most > entries), f"{most}: entries are read, of which a run has several in a bar"
    assert await b.query(FlaggedBars("acme", span, most=entries)) == CountedBars(((2, 1, 0, 1),), all=False)
    assert await b.query(TimesOfCauses("acme")) == (
        FlaggingTimes(both, T0 + 1, T0 + 1, LANE),
        FlaggingTimes(one, T0, T0 + 7, LANE),
    )
    assert await b.query(TimesOfCauses("initech")) == ()

    async def listed(low: int, high: int, of: OfRuns = EVERY) -> list[tuple[str, int]]:
        found, cursor = list[tuple[str, int]](), ""
        while True:
            page = await b.query(LastFlaggings("acme", Interval(T0 + low, T0 + high), of, cursor, 1))
            found += [(row.run, row.at - T0) for row in page.rows]
            cursor = page.cursor
            if not cursor:
                return found

    assert await listed(0, 2) == [("run-2", 1), ("run-1", 1)]
    assert await listed(0, 8) == [("run-1", 7), ("run-3", 3), ("run-2", 1)]
    assert await listed(2, 7) == [("run-3", 3)]
    assert await listed(0, 8, OfRuns(cause=f"/{'2' * 12} ")) == [("run-2", 1), ("run-1", 1)]
    assert await listed(0, 8, OfRuns("3", LANE)) == [("run-3", 3)]


async def starts_are_counted_by_time(s: Subject) -> None:
    """`StartBars` counts the runs that started in each part of time, whatever became of them."""
    a, b = await two(s)
    for name, after in {"run-1": 0, "run-2": 1, "run-3": 3, "run-4": 7, "run-5": 8}.items():
        await a.commit(start(run_row(name, workflow=name[-1], created_at=T0 + after)))
    await a.commit(start(run_row("run-1", "globex")))
    row = await the_run(a, "run-3")
    await a.commit(Commit((Put(RUN, ended(row), row.version),)))
    span = BarSpan(T0, 2, 4)
    assert await b.query(StartBars("acme", span)) == CountedBars(((2, 1, 0, 1),))
    assert await b.query(StartBars("acme", span, OfRuns("2", LANE))) == CountedBars(((1, 0, 0, 0),))
    assert await b.query(StartBars("acme", span, OfRuns(lane="auction@2"))) == CountedBars(((0, 0, 0, 0),))
    assert await b.query(StartBars("initech", span)) == CountedBars(((0, 0, 0, 0),))
    assert await b.query(StartBars("acme", span, most=5)) == CountedBars(((2, 1, 0, 1),))
    assert await b.query(StartBars("acme", span, most=4)) == CountedBars(((2, 1, 0, 1),), all=False)
    assert await b.query(StartBars("acme", span, most=2)) == CountedBars(((0, 1, 0, 1),), all=False)
    assert await b.query(StartBars("acme", BarSpan(T0, 8, 1), most=3)) == CountedBars(((3,),), all=False)


async def ends_are_counted_by_time(s: Subject) -> None:
    """`EndBars` counts the runs that ended in each part of time, by their outcome."""
    a, b = await two(s)
    ends = {"run-1": ("completed", 0), "run-2": ("failed", 3), "run-3": ("failed", 7), "run-4": ("cancelled", 8)}
    for name, (status, after) in ends.items():
        await a.commit(start(run_row(name, workflow=name[-1])))
        row = await a.load(RUN, ("acme", name))
        assert row is not None
        causes = f" failed/{name[-1] * 12} " if status == "failed" else ""
        over = ended(row)._replace(status=RunStatus(status), ended_at=T0 + after, causes=causes)
        await a.commit(Commit((Put(RUN, over, row.version),)))
    span = BarSpan(T0, 2, 4)
    none = (0, 0, 0, 0)

    async def counted(tenant: str, of: OfRuns = EVERY) -> tuple[Counts, ...]:
        found = await b.query(EndBars(tenant, span, of))
        assert found.all
        return found.counts

    assert await counted("acme") == ((1, 0, 0, 0), (0, 1, 0, 1), none)
    assert await counted("acme", OfRuns(workflow="2")) == (none, (0, 1, 0, 0), none)
    assert await counted("acme", OfRuns(lane="auction@1")) == ((1, 0, 0, 0), (0, 1, 0, 1), none)
    assert await counted("acme", OfRuns(lane="auction@2")) == (none, none, none)
    assert await counted("acme", OfRuns(cause=f"/{'3' * 12} ")) == (none, (0, 0, 0, 1), none)
    assert await counted("initech") == (none, none, none)
    newest = CountedBars(((1, 0, 0, 0), (0, 0, 0, 1), none), all=False)
    assert await b.query(EndBars("acme", span, most=1)) == newest, "the newest end of each outcome, then no further bar"
    assert (await b.query(EndBars("acme", span, most=2))).all is False, "two have failed: there may be more"
    assert (await b.query(EndBars("acme", span, most=3))).all
    one = await b.query(EndBars("acme", BarSpan(T0, 8, 1), most=1))
    assert one == CountedBars(((1,), (1,), (0,)), all=False), "no more entries of one bar either"

    async def listed(*statuses: RunStatus, of: OfRuns = EVERY) -> list[str]:
        found, cursor = list[str](), ""
        while True:
            of_time = Interval(T0, T0 + 8)
            page = await b.query(RunsByEnd("acme", of_time, of, statuses or OUTCOMES, cursor, 1))
            found += [row.run for row in page.rows]
            cursor = page.cursor
            if not cursor:
                return found

    assert await listed() == ["run-3", "run-2", "run-1"]
    assert await listed(RunStatus.FAILED) == ["run-3", "run-2"]
    assert await listed(RunStatus.FAILED, of=OfRuns("2", "auction@1")) == ["run-2"]
    assert await listed(of=OfRuns(cause=f"/{'3' * 12} ")) == ["run-3"]


async def a_summary_has_the_open_rows_and_the_lanes_without_a_worker(s: Subject) -> None:
    """`Summary` reads the open rows of one tenant, and counts waiting runs in lanes that no live worker serves."""
    a, b = await two(s)
    lanes = {"run-1": "auction@1", "run-2": "auction@2", "run-3": "auction@2", "run-4": "refund@1"}
    for name, lane in lanes.items():
        row = run_row(name, lane=lane, flagged_at=int(name == "run-4"))
        if name == "run-2":
            row = row._replace(status=RunStatus.WAITING, due_at=None, waiting_for_text='["bid"]')
        await a.commit(start(row))
    await a.commit(start(run_row("run-1", "globex", lane="other@1", flagged_at=1)))
    await a.commit(Commit(puts(approval_row(), approval_row("ap-2", tenant="globex"))))
    await a.commit(Commit((Put(EFFECT, effect_row()._replace(status=EffectStatus.UNCERTAIN), 0),)))
    pause = Pause("acme", "activity/pay", 1, 1, "ann", "closed", T0)
    workers = (worker_row("w-1")._replace(lanes="auction@1"), worker_row("w-2")._replace(lanes="xauction@2 w@1"))
    await a.commit(Commit((Put(PAUSE, pause, 0), *puts(*workers))))
    query = Summary("acme", s.clock.time, tuple(sorted({*lanes.values(), "other@1"})), business=T0)
    found = await b.query(query)
    one = PendingApprovals("finance", "", 1, 0, 1, T0 + 3_600_000)
    assert (found.pending, found.voted, found.approvals_all) == ((one,), (), True)
    assert [(each.causes, each.runs) for each in found.flagged] == [("", 1)]
    assert (found.uncertain, found.pauses, found.subscriptions, found.dead) == (1, (pause,), (), ())
    assert found.unserved == {"auction@2": 2, "refund@1": 1}
    later = await b.query(Summary("acme", s.clock.time + 10**9, query.lanes))
    assert later.unserved == {"auction@1": 1, "auction@2": 2, "refund@1": 1}  # the workers' leases have ended
    counted = await b.query(LaneCounts("acme", query.lanes))
    assert counted == {"auction@1": 1, "auction@2": 2, "refund@1": 1}  # no instant wakes run-2, and it counts
    first = await b.load(RUN, ("acme", "run-1"))
    assert first is not None
    await a.commit(Commit((Put(RUN, ended(first), first.version),)))
    assert await b.query(LaneCounts("acme", query.lanes)) == {"auction@2": 2, "refund@1": 1}
    assert await b.query(LaneCounts("initech", query.lanes)) == {}
    empty = await b.query(Summary("initech", s.clock.time, query.lanes))
    assert (empty.pending, empty.voted, empty.flagged, empty.unserved) == ((), (), (), {})


async def pending_approvals_are_counted_by_who_may_decide_them(s: Subject) -> None:
    """An expired one is not counted. Those with votes are rows, because each vote excludes another person."""
    a, b = await two(s)
    hour = 3_600_000
    vote = VOTES.encode([ApprovalVote("bo", ("finance",), "d", "", T0, "finance")])
    rows = [
        approval_row("ap-1"),
        approval_row("ap-2", asked_at=T0 - hour),
        approval_row("ap-3", asked_at=T0 + 48 * hour),
        approval_row("ap-4")._replace(not_requester=1),
        approval_row("ap-5")._replace(who="legal", requested_by="cy"),
        approval_row("ap-6")._replace(status=ApprovalStatus.EXPIRED),
        approval_row("ap-7")._replace(quorum=2, votes_text=vote),
        approval_row("ap-8", tenant="globex"),
    ]
    await a.commit(Commit(puts(*rows)))
    found = await b.query(Summary("acme", s.clock.time, business=T0))
    assert found.pending == (
        PendingApprovals("finance", "", 3, 1, 2, T0 + hour),
        PendingApprovals("finance", "local:ann", 1, 0, 1, T0 + hour),
        PendingApprovals("legal", "", 1, 0, 1, T0 + hour),
    )
    assert (found.voted, found.approvals_all) == ((rows[6]._replace(plans_text=""),), True)
