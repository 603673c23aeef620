"""Which runs a worker may hold together after deaths, as a pure rule: groups that halve, and what they bound (S-5)."""

from math import ceil, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.core.durations import DEATHS_ALONE_MAX
from outlast.core.quarantine import ALONE, RunGroup, after_death, group_of, is_poisoned, makes_room
from outlast.core.rows.run_rows import Run
from tests.core.drive import Drive

RUN = Drive().start().claim().run


def suspects(n: int) -> list[Run]:
    """`n` runs that no death was counted for."""
    return [RUN._replace(run=f"r{i}") for i in range(n)]


def deaths_until_poisoned(n: int) -> int:
    """Return the number of worker deaths if each worker claims up to its limit of `n` runs, the killer first."""
    runs, deaths = suspects(n), 0
    while not is_poisoned(runs[0]):
        group = RunGroup(0, n)
        held = []
        for i, run in enumerate(runs):
            if group.fits((run.tenant, run.run), group_of(run)):
                group.give((run.tenant, run.run), group_of(run))
                held.append(i)
        for i in held:
            deaths_, group_max = after_death(runs[i], len(held))
            runs[i] = runs[i]._replace(crash_count=deaths_, group_max=group_max)
        deaths += 1
    return deaths


@pytest.mark.req("REC-1")
@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 8, 80, 100, 2_000])
def test_a_killer_among_n_runs_is_found_after_log2_n_deaths(n: int) -> None:
    halvings = max(1, ceil(log2(n)))  # the first of them comes with the second death
    assert deaths_until_poisoned(n) == 1 + halvings + DEATHS_ALONE_MAX


@pytest.mark.req("REC-1")
def test_a_worker_that_stopped_regularly_changes_nothing() -> None:
    run = RUN._replace(crash_count=1, group_max=0)
    assert after_death(run, 0) == (1, 0)


@pytest.mark.req("REC-1")
def test_only_deaths_alone_lead_to_a_person() -> None:
    """However often workers with many runs die, a run is at most alone."""
    run = RUN
    for _ in range(50):
        run = run._replace(**after_death(run, 100)._asdict()) if run.group_max != ALONE else run
    assert (run.group_max, run.crash_count, is_poisoned(run)) == (ALONE, 0, False)


@given(most=st.integers(1, 20), groups=st.lists(st.integers(0, 10), max_size=40))
def test_no_worker_holds_more_runs_than_any_of_them_allows(most: int, groups: list[int]) -> None:
    group, held = RunGroup(0, most), list[int]()
    for i, size in enumerate(groups):
        key = ("t", f"r{i}")
        fits = group.fits(key, size)
        if fits:
            group.give(key, size)
            held.append(size)
            assert group.fits(key, size), "asked about again, as a transaction that is tried again does"
        assert len(held) == group.held <= most
        assert all(len(held) <= each for each in held if each)
    assert group.free == max(0, min([most, *(each for each in held if each)]) - len(held))


def test_a_poisoned_run_needs_no_room() -> None:
    """It is not executed: any worker may take it and call a person."""
    assert group_of(RUN._replace(group_max=ALONE, crash_count=DEATHS_ALONE_MAX)) == 0


@given(workers=st.sets(st.text("abc", min_size=1), min_size=1, max_size=8))
def test_every_worker_names_the_same_one_to_make_room(workers: set[str]) -> None:
    named = {makes_room(RUN, sorted(workers, reverse=turned)) for turned in (False, True)}
    assert len(named) == 1 and named <= workers
