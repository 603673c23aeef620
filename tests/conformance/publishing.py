"""Promises about events for subscribers: which are noted as unpublished, when they go, which cursors are due."""

from outlast.core.commit import Commit, Drop, Put, When
from outlast.core.durations import DELIVERY_CLAIM
from outlast.core.rows.outbox_rows import CURSOR, UNPUBLISHED, Cursor, Unpublished
from outlast.core.rows.row_kind import version_of
from outlast.core.rows.run_rows import RUN
from outlast.core.rows.store_rows import META
from outlast.core.webhooks.deliveries import SUBSCRIBED_TENANTS, hold, let_go, subscribed_tenants_row
from outlast.store.port import Store
from outlast.store.queries import Owing
from tests.conformance.subject import (
    T0,
    TENANT,
    Subject,
    event_row,
    moved,
    outcome,
    puts,
    refused_for,
    run_row,
    start,
    two,
)


async def events_without_subscription_are_not_noted(s: Subject) -> None:
    """Without a subscription of its tenant, an event costs no further row."""
    a, b = await two(s)
    await a.commit(start(run_row()))
    assert await a.rows(UNPUBLISHED, ()) == ()
    await _listen(b, "beta")
    await a.commit(Commit(puts(event_row(seq=2))))
    await b.commit(Commit(puts(event_row(seq=3))))
    assert await b.rows(UNPUBLISHED, ()) == ()


async def an_event_is_noted_by_the_commit_that_writes_it(s: Subject) -> None:
    """Every event of a subscribed tenant is noted as unpublished by the commit that writes it.

    This holds from the commit that lists the tenant to the one that removes it, for every writer.
    """
    a, b = await two(s)
    await a.commit(start(run_row()))
    await b.commit(start(run_row("run-2")))
    await _listen(a, TENANT)
    wanted = event_row(seq=2)
    await b.commit(Commit(puts(wanted)))
    await a.commit(Commit(puts(event_row("run-2", seq=2))))
    mark = Unpublished(TENANT, "run-1", 2, wanted.type, wanted.at)
    assert await a.rows(UNPUBLISHED, (TENANT,)) == (mark, mark._replace(run="run-2"))
    assert await b.rows(UNPUBLISHED, (TENANT, "run-1")) == (mark,)
    await _listen(b)
    await a.commit(Commit(puts(event_row(seq=3))))
    await b.commit(Commit(puts(event_row(seq=4))))
    assert len(await a.rows(UNPUBLISHED, ())) == 2


async def a_refused_commit_notes_nothing(s: Subject) -> None:
    """An event that was not written is not noted as unpublished."""
    a, b = await two(s)
    await _listen(a, TENANT)
    await b.commit(start(run_row()))
    row = run_row()
    late = Commit((Put(RUN, moved(row)._replace(version=9), 8), *puts(event_row(seq=2))))
    await refused_for("version", b.commit(late))
    assert [mark.seq for mark in await _marks(a)] == [1]


async def a_published_event_is_removed_with_its_commit(s: Subject) -> None:
    """The message of an event goes in the commit by which a cursor knows the event.

    If that commit is stale, the message stays. Removing a missing message is no error.
    """
    a, b = await two(s)
    await _listen(a, TENANT)
    await a.commit(start(run_row()))
    await b.commit(Commit(puts(event_row(seq=2))))
    drops = (Drop(TENANT, "run-1", 1), Drop(TENANT, "run-1", 2), Drop(TENANT, "run-1", 77))
    await refused_for("version", a.commit(Commit((Put(CURSOR, _cursor()._replace(version=6), 5), *drops))))
    assert [mark.seq for mark in await _marks(b)] == [1, 2]
    await a.commit(Commit((Put(CURSOR, _cursor(), 0), *drops)))
    assert await _marks(b) == [] and await b.load(CURSOR, _cursor()[:3]) == _cursor()
    await b.commit(Commit(drops))


async def cursors_come_earliest_first(s: Subject) -> None:
    """Cursors of a subscription with deliveries left come earliest first, due or not.

    Cursors of other subscriptions and cursors without deliveries do not come. Every writer sees a change at once.
    """
    a, b = await two(s)
    rows = [
        _cursor("run-1")._replace(due_at=T0 + 900),
        _cursor("run-2")._replace(due_at=T0),
        _cursor("run-3")._replace(due_at=None, seq=9, upto=9),
        _cursor("run-4")._replace(due_at=T0 - 5, owner="d-1", epoch=3),
        _cursor("run-5")._replace(subscription="wh_other"),
        _cursor("run-6")._replace(tenant="beta"),
    ]
    await a.commit(Commit(tuple(Put(CURSOR, row, 0) for row in rows)))
    assert await b.query(Owing(TENANT, "wh_1", 10)) == (rows[3], rows[1], rows[0])
    assert await b.query(Owing(TENANT, "wh_1", 2)) == (rows[3], rows[1])
    assert await b.query(Owing("beta", "wh_1", 10)) == (rows[5],)
    assert await b.query(Owing(TENANT, "wh_none", 10)) == ()
    now = await b.now()
    given = let_go(hold(rows[1], "d-2", now)._replace(seq=rows[1].upto), now, again_at=None)
    await b.commit(Commit((Put(CURSOR, given._replace(version=2), 1),)))
    assert await a.query(Owing(TENANT, "wh_1", 10)) == (rows[3], rows[0])


async def a_cursor_has_one_holder(s: Subject) -> None:
    """If two dispatchers take the same cursor, one gets it.

    No dispatcher takes it before the claim ends. Afterwards a commit of the late holder is stale.
    """
    a, b = await two(s)
    await a.commit(Commit((Put(CURSOR, _cursor(), 0),)))
    now = await a.now()
    takes = [Commit((Put(CURSOR, hold(_cursor(), name, now), 1),)) for name in ("d-1", "d-2")]
    answers = [await outcome(a.commit(takes[0])), await outcome(b.commit(takes[1]))]
    assert [isinstance(each, Exception) for each in answers] == [False, True]
    held = await b.load(CURSOR, _cursor()[:3])
    assert isinstance(held, Cursor) and held.owner == "d-1"
    due = When(held.due_at or 0, True, "real", "due")
    taken = Commit((Put(CURSOR, hold(held, "d-2", now), held.version),), whens=(due,))
    await refused_for("due", b.commit(taken))
    s.clock.time += DELIVERY_CLAIM
    await b.commit(taken)
    late = let_go(held._replace(seq=2), await a.now(), again_at=None)
    await refused_for("version", a.commit(Commit((Put(CURSOR, late, held.version),))))


# --- rows ----------------------------------------------------------------------------------
def _cursor(run: str = "run-1") -> Cursor:
    """Return a cursor with two deliveries left, due now."""
    return Cursor(
        tenant=TENANT, run=run, subscription="wh_1", version=1, epoch=0, owner="", due_at=T0, seq=0, upto=2, last=0,
        again=0, owed_since=T0, at=T0,
    )  # fmt: skip


async def _listen(store: Store, *tenants: str) -> None:
    """Replace the list of tenants that have a subscription."""
    row = await store.load(META, SUBSCRIBED_TENANTS)
    version = 0 if row is None else version_of(META, row)
    await store.commit(Commit((Put(META, subscribed_tenants_row(row, tenants), version),)))


async def _marks(store: Store) -> list[Unpublished]:
    return [row for row in await store.rows(UNPUBLISHED, (TENANT,)) if isinstance(row, Unpublished)]
