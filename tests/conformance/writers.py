"""Promises about writers: receipts, closing, renewals, subscriptions (S-5, S-9, S-12)."""

import asyncio

from outlast.core.assignments import AssignmentRequest, assign, assignments_of, assignments_row
from outlast.core.commit import Chain, Commit, Put
from outlast.core.drain import DRAINS, DrainRequest, drains_of, request_drain
from outlast.core.durations import MINUTE, WORKERS_KEPT
from outlast.core.machine import LeaseStatus, Reason
from outlast.core.rows.run_columns import ATTENTION, Attention
from outlast.core.rows.run_rows import EVENT, RUN, Run
from outlast.core.rows.store_rows import META, STORE, WORKER, WRITER, Writer
from outlast.core.saved_views import StoredView, save_view, views_of, views_row
from outlast.core.state.delta_packets import Delta, DeltaOrigin
from outlast.errors import Stale, StoreUnusable, Unavailable
from outlast.store.port import CommitNotifier, DeltaChannel, Store
from tests.conformance.subject import (
    LANE,
    T0,
    TENANT,
    Subject,
    append_message,
    claim_by,
    ended,
    held,
    message_row,
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
    token_row,
    two,
    worker_row,
)

WAKE_S = 10.0


async def _writer(store: Store, writer: str) -> Writer:
    row = await store.load(WRITER, (STORE, writer))
    assert isinstance(row, Writer)
    return row


async def _close_row(store: Store, writer: str) -> None:
    """Close a writer row, as a process does that takes the writer for dead."""
    row = await _writer(store, writer)
    after = row._replace(version=row.version + 1, status=LeaseStatus.CLOSED)
    await store.commit(Commit((Put(WRITER, after, row.version),)))


async def every_batch_leaves_a_receipt(s: Subject) -> None:
    """The number in a writer's row grows with each batch that it lands, and with no other."""
    a, b = await two(s)
    before, other = await _writer(b, a.writer), await _writer(b, b.writer)
    assert (before.status, before.batch) == (LeaseStatus.ALIVE, 0)
    numbers = []
    for i in range(3):
        await a.commit(start(run_row(f"run-{i}")))
        numbers.append((await _writer(b, a.writer)).batch)
    assert sorted(set(numbers)) == numbers
    assert numbers[0] > 0
    assert await _writer(a, b.writer) == other


async def a_closed_writer_writes_nothing(s: Subject) -> None:
    """After its row was closed, all commits of a writer are refused. Other writers continue."""
    a, b = await two(s)
    mine = await held(a)
    await a.commit(start(run_row("due")))
    await _close_row(b, a.writer)
    chain = Chain()
    futures = [a.submit(put_run(mine), chain=chain), a.submit(start(run_row("run-2")))]
    for future in futures:
        error = await refused(future)
        assert isinstance(error, Unavailable), error
        assert error.landed is False
    assert chain.broken
    assert isinstance(await refused(a.take((mine.lane,), 1, claim_by("worker-2"))), Unavailable)
    assert await the_run(b) == mine
    assert await b.load(RUN, ("acme", "run-2")) is None
    await b.commit(put_run(mine))
    assert (await _writer(b, a.writer)).status is LeaseStatus.CLOSED


async def a_writer_id_is_used_once(s: Subject) -> None:
    """Opening a second writer under a used id is refused."""
    await s.open("writer-a")
    try:
        await s.open("writer-a")
    except StoreUnusable:
        return
    raise AssertionError("two writers share one receipt")


async def a_renewal_goes_ahead_of_the_queue(s: Subject) -> None:
    """An urgent commit lands while the queue is long, from an event loop or a thread without one (S-5)."""
    a, b = await two(s)
    row = worker_row()
    await a.commit(Commit(puts(row)))
    many = [a.submit(start(run_row(f"run-{i}"))) for i in range(200)]
    row2 = row._replace(version=2, lease_until=T0 + 20_000)
    a.urgent_sync(Commit((Put(WORKER, row2, 1),)))
    row3 = row2._replace(version=3, lease_until=T0 + 25_000)
    await asyncio.to_thread(a.urgent_sync, Commit((Put(WORKER, row3, 2),)))
    await asyncio.gather(*many)
    assert await b.load(WORKER, row[:2]) == row3
    error = await refused(asyncio.to_thread(b.urgent_sync, Commit((Put(WORKER, row3, 2),))))
    assert isinstance(error, Stale)


async def a_closed_worker_never_renews(s: Subject) -> None:
    """A worker's row is either closed or renewed, whichever comes first, and a closed row stays closed."""
    a, b = await two(s)
    for i in range(10):
        row = worker_row(f"worker-{i}")
        await a.commit(Commit(puts(row)))
        renewal = Commit((Put(WORKER, row._replace(version=2, lease_until=T0 + 30_000), 1),))
        closing = Commit((Put(WORKER, row._replace(version=2, status=LeaseStatus.CLOSED), 1),))
        answers = await asyncio.gather(outcome(asyncio.to_thread(a.urgent_sync, renewal)), outcome(b.submit(closing)))
        assert [isinstance(answer, Stale) for answer in answers].count(True) == 1


async def of_two_requests_to_drain_none_is_lost(s: Subject) -> None:
    """The requests are in one row: the second writer is refused, reads the row again, and adds its request."""
    a, b = await two(s)
    rows = (worker_row("worker-1"), worker_row("worker-2"))
    await a.commit(Commit(puts(*rows)))

    async def asked(store: Store, worker: str) -> None:
        before, ask = await store.load(META, DRAINS), DrainRequest(store.writer, T0, "a new machine")
        _, commit = request_drain(before, await store.rows(WORKER, (STORE,)), worker, ask, T0, store.skew)
        while commit is not None:
            try:
                await store.commit(commit)
            except Stale:
                _, commit = request_drain(await store.load(META, DRAINS), rows, worker, ask, T0, store.skew)
            else:
                return

    await asyncio.gather(asked(a, "worker-1"), asked(b, "worker-2"), asked(b, "worker-1"))
    found = drains_of(await b.load(META, DRAINS))
    assert set(found) == {"worker-1", "worker-2"} and found["worker-2"].by == b.writer


async def of_two_assignments_none_is_lost(s: Subject) -> None:
    """The assignments of a tenant are in one row: the second writer reads it again. Other tenants have others."""
    a, b = await two(s)
    runs = {}
    for tenant, name in ((TENANT, "run-1"), (TENANT, "run-2"), ("other", "run-1")):
        entry = Attention(Reason.EXCEPTION, T0, key=name)
        runs[tenant, name] = run_row(name, tenant, attention_text=ATTENTION.encode([entry]))
        await a.commit(start(runs[tenant, name]))

    async def assigned(store: Store, tenant: str, name: str) -> None:
        while True:
            before = await store.load(META, assignments_row(tenant))
            run, ask = runs[tenant, name], AssignmentRequest(store.writer, "ana", T0)
            item = assign(before, run, [each for (of, _), each in runs.items() if of == tenant], ask)
            try:
                if item.commit is not None:
                    await store.commit(item.commit)
                return
            except Stale:
                continue

    await asyncio.gather(
        assigned(a, TENANT, "run-1"), assigned(b, TENANT, "run-2"), assigned(a, "other", "run-1"),
        assigned(b, TENANT, "run-2"),
    )  # fmt: skip
    found = assignments_of(await b.load(META, assignments_row(TENANT)))
    assert {run: [each.to for each in listed] for run, listed in found.items()} == {
        "run-1": [a.writer], "run-2": [b.writer],
    }  # fmt: skip
    assert set(assignments_of(await b.load(META, assignments_row("other")))) == {"run-1"}


async def of_two_saved_views_none_is_lost(s: Subject) -> None:
    """The views of a tenant are in one row: the second writer reads it again. Other tenants have others."""
    a, b = await two(s)

    async def saved(store: Store, tenant: str, name: str) -> None:
        while True:
            before = await store.load(META, views_row(tenant))
            commit, _ = save_view(before, tenant, StoredView(name, "status:failed", store.writer, T0))
            try:
                return await store.commit(commit)
            except Stale:
                continue

    await asyncio.gather(
        saved(a, TENANT, "mine"), saved(b, TENANT, "yours"), saved(a, "other", "all"), saved(b, TENANT, "ours"),
        saved(a, TENANT, "ours"),
    )  # fmt: skip
    found = views_of(await b.load(META, views_row(TENANT)))
    assert [each.name for each in found] == ["mine", "ours", "yours"]
    assert [each.name for each in views_of(await a.load(META, views_row("other")))] == ["all"]


async def subscribers_are_woken(s: Subject) -> None:
    """A subscriber is called in its own loop when a run may be due, also by a commit of another writer."""
    a, b = await two(s)
    mine = await held(a)
    await a.commit(Commit((Put(RUN, parked(mine), mine.version),)))
    woken = asyncio.Event()
    ends = [b.on_change(woken.set)]
    for store in (a, b):
        woken.clear()
        await store.commit(append_message(message_row()))
        await asyncio.wait_for(woken.wait(), WAKE_S)
    woken.clear()
    await a.commit(start(run_row("run-2")))
    await asyncio.wait_for(woken.wait(), WAKE_S)
    for end in ends:
        end()


async def deltas_reach_every_listener(s: Subject) -> None:
    """Every listener gets a text once, in order, also through another writer, and is not stored.

    Its transport may lose it, and needs time to connect. So texts are sent until one arrives.
    """
    a, b = await two(s)
    if not isinstance(a, DeltaChannel) or not isinstance(b, DeltaChannel):  # the capability is optional
        return
    here, there, gone = list[Delta](), list[Delta](), list[Delta]()
    ends = [a.on_deltas(here.extend), b.on_deltas(there.extend)]
    b.on_deltas(gone.extend)()
    origin = DeltaOrigin(TENANT, "run-1", "plan", 1, 1, "model/ü", 1)
    async with asyncio.timeout(WAKE_S):
        while not there:
            a.publish([Delta(origin, "?")])
            await asyncio.sleep(0.01)
        long = "".join(f"{n:04} 🙂" for n in range(900))
        a.publish([Delta(origin, long), Delta(origin, "."), Delta(origin._replace(tenant="other"), "!")])
        while not (there[-1].text == here[-1].text == "!"):  # noqa: ASYNC110 - the lists have no event
            await asyncio.sleep(0.01)
    for heard in (here, there):
        assert "".join(each.text for each in heard if each.origin == origin).lstrip("?") == f"{long}."
        assert [each.origin.tenant for each in heard if each.origin != origin] == ["other"]
    for end in ends:
        end()
    assert gone == []
    assert await b.rows(EVENT, (TENANT,)) == ()


async def landed_runs_are_reported(s: Subject) -> None:
    """A subscriber gets the row of each run that a commit or a take of its store has written, and of no other."""
    a, _ = await two(s)
    if not isinstance(a, CommitNotifier):  # the capability is optional
        return
    reported: list[tuple[str, str, Run | None]] = []
    end = a.on_commit(lambda *each: reported.append(each))
    queued = run_row()
    await a.commit(start(queued))
    assert reported == [(queued.tenant, queued.run, queued)]
    assert isinstance(await refused(a.submit(start(queued))), Stale) and len(reported) == 1
    (taken,) = await a.take((LANE,), 1, claim_by("worker"))
    assert reported[-1] == (queued.tenant, queued.run, taken)
    end()
    await a.commit(start(run_row("run-2")))
    assert reported[-1] == (queued.tenant, queued.run, taken)


async def closing_lands_what_was_submitted(s: Subject) -> None:
    """`close` returns when all submitted commits have landed. Later commits are refused, and other writers continue."""
    a, b = await two(s)
    futures = [a.submit(start(run_row(f"run-{i}")), linger=i % 2 == 0) for i in range(20)]
    await a.close()
    await asyncio.gather(*futures)
    assert len(await b.rows(RUN, ("acme",))) == 20
    assert isinstance(await refused(a.submit(Commit(puts(token_row())))), Unavailable)
    await a.close()
    row = await the_run(b, "run-1")
    await b.commit(put_run(row))
    assert (await the_run(b, "run-1")) == moved(row)
    assert (await _writer(b, a.writer)).status is LeaseStatus.CLOSED


async def purge_deletes_old_receipts(s: Subject) -> None:
    """`purge` deletes the rows of closed writers that began before the instant. Open ones stay."""
    a, b = await two(s)
    await a.close()
    assert await b.purge(T0, 10) == 0
    assert await _writer(b, a.writer)
    await b.purge(T0 + 1, 10)
    assert await b.load(WRITER, (STORE, a.writer)) is None
    await b.commit(start(run_row()))


async def forget_deletes_old_workers(s: Subject) -> None:
    """`forget` deletes closed workers whose lease ran out WORKERS_KEPT ago.

    Open workers and workers that own a run stay. A deleted worker cannot renew.
    """
    a, b = await two(s)
    mine = await held(a)
    owner = worker_row(mine.owner)._replace(status=LeaseStatus.CLOSED)
    late, gone = worker_row("late"), worker_row("gone")._replace(status=LeaseStatus.CLOSED)
    await a.commit(Commit(puts(owner, late, gone)))
    s.clock.time = gone.lease_until + WORKERS_KEPT
    assert await b.forget(10) == 0
    s.clock.time += 1
    assert await b.forget(10) == 1
    assert {row[1] for row in await a.rows(WORKER, (STORE,))} == {mine.owner, "late"}
    again = gone._replace(version=2, status=LeaseStatus.ALIVE, lease_until=s.clock.time + MINUTE)
    await refused_for("version", asyncio.to_thread(a.urgent_sync, Commit((Put(WORKER, again, 1),))))
    await a.commit(Commit((Put(RUN, ended(mine), mine.version),)))
    assert await b.forget(10) == 1
    assert [row[1] for row in await a.rows(WORKER, (STORE,))] == ["late"]


async def opening_again_changes_nothing(s: Subject) -> None:
    """Opening, which migrates, leaves every row of a store of this version as it is."""
    a, _ = await two(s)
    await a.commit(start(run_row()))
    c = await s.open("writer-c")
    assert await the_run(a) == run_row()
    await c.commit(put_run(run_row()))


async def a_store_reports_its_facts(s: Subject) -> None:
    """`facts` names the store and its settings for `outlast doctor`."""
    a, _ = await two(s)
    facts = a.facts()
    assert facts["store"]
    assert all(isinstance(value, str | int) for value in facts.values())
