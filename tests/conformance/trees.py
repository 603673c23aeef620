"""Promises about trees of runs: they are counted, and purged as one (S-30)."""

from outlast.core.commit import Commit, Put
from outlast.core.rows.run_rows import RUN, Run
from outlast.store.port import Store, maintenance
from outlast.store.queries import RunsBelow
from tests.conformance.subject import T0, TENANT, Subject, ended, run_row, start, two


async def _grown(store: Store, root: str, *ends: int, root_ended: int = 0) -> None:
    """Write a root and a run below it for each of these ends; 0 = it has not ended."""
    runs = [run_row(root)._replace(ended_at=root_ended)]
    runs += [run_row(f"{root}-{n}", root=root, depth=1)._replace(ended_at=end) for n, end in enumerate(ends)]
    for run in runs:
        before = run._replace(ended_at=0)
        await store.commit(start(before))
        if run.ended_at:
            row = ended(before)._replace(ended_at=run.ended_at)
            await store.commit(Commit((Put(RUN, row, before.version),)))


async def _left(store: Store) -> list[str]:
    """Return the runs of the store."""
    found: list[Run] = [*(await store.rows(RUN, (TENANT,)))]
    return sorted(run.run for run in found)


async def the_runs_of_a_tree_are_counted(s: Subject) -> None:
    """Ended ones count, the root and other trees do not, and a count ends at its limit."""
    a, b = await two(s)
    await _grown(a, "root", 0, T0 + 1, T0 + 2)
    await _grown(a, "other", 0)
    assert [await b.query(RunsBelow(TENANT, "root", limit)) for limit in (2, 3, 9)] == [2, 3, 3]
    assert [await b.query(RunsBelow(TENANT, name, 9)) for name in ("other", "root-0", "none")] == [1, 0, 0]
    assert await b.query(RunsBelow("globex", "root", 9)) == 0


async def a_tree_is_purged_as_one(s: Subject) -> None:
    """No run goes before all of its tree have ended for long enough. The root goes last, whatever the page."""
    a, b = await two(s)
    old, young = T0 + 5, T0 + 50
    await _grown(a, "alone", root_ended=old)
    await _grown(a, "whole", old - 2, old - 1, old, root_ended=old)
    await _grown(a, "lives", old, old, 0, root_ended=old)
    await _grown(a, "young", old, young, root_ended=old)
    await _grown(a, "open", old)
    kept = ["lives", "lives-0", "lives-1", "lives-2", "open", "open-0", "young", "young-0", "young-1"]
    pages: list[int] = []
    while n := await maintenance(b).purge(old + 1, 2):
        pages.append(n)
        rows = await _left(a)
        assert "whole" in rows or not [run for run in rows if run.startswith("whole-")]
    assert (await _left(a), sum(pages)) == (kept, 5)
    assert await maintenance(b).purge(young + 1, 9) == 3
    assert await _left(a) == [run for run in kept if not run.startswith("young")]
