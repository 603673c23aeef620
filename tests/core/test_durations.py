"""Budgets and back-off: the derivation of each number, and the bounds it keeps."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.core import durations
from outlast.core.durations import SECOND, Liveness, longest_claim, wait_before

CALLS = st.lists(st.tuples(st.integers(1, 3_600_000), st.integers(1, 20)), max_size=5)


@dataclass(frozen=True)
class Source:
    """A duration as the requirement states it, in seconds."""

    name: str
    seconds: float


@pytest.mark.req("REC-2")
def test_the_defaults_give_600_seconds_and_explain_the_sum() -> None:
    derived = longest_claim(Liveness())
    assert derived.ms == 600 * SECOND == round(((120 + 30) * 3 + 45 + 5) * 1.2 * SECOND)
    assert derived.derivation == (
        "(120 s attempt timeout + 30 s cold start) × 3 attempts + 45 s back-off ceiling + 5 s checkpoint write"
        " = 500 s, × 1.2 = 600 s"
    )


@pytest.mark.req("REC-2")
@given(CALLS)
def test_a_budget_covers_its_most_demanding_call(calls: list[tuple[int, int]]) -> None:
    live = Liveness()
    ms = longest_claim(live, calls).ms
    assert ms >= longest_claim(live).ms
    for timeout, attempts in calls:
        assert ms >= (timeout + live.start_budget) * attempts + live.backoff_ceiling + live.checkpoint_write


@pytest.mark.parametrize(
    "source",
    [
        Source("APPROVAL_WITHIN", 96 * 3600),
        Source("APPROVAL_STALE_AFTER", 7 * 86400),
        Source("RUN_CEILING", 168 * 3600),
        Source("APPROVAL_VALID_FOR", 24 * 3600),
        Source("HEARTBEAT_WINDOW", 15),
        Source("HEARTBEAT_EVERY", 5),
        Source("ATTEMPT_TIMEOUT", 120),
        Source("START_BUDGET", 30),
        Source("BACKOFF_CEILING", 45),
        Source("CHECKPOINT_WRITE", 5),
        Source("RETRY_TOTAL_WAIT", 60),
        Source("RECOVERY_TARGET", 30),
        Source("RESUME_TARGET", 5),
    ],
    ids=lambda source: source.name,
)
def test_the_durations_of_the_sources(source: Source) -> None:
    assert getattr(durations, source.name) == source.seconds * SECOND


def test_attempts_of_the_sources() -> None:
    assert durations.ATTEMPTS_MAX == 3


@pytest.mark.parametrize(
    "planted",
    [{"heartbeat_every": 5_001}, {"attempt_timeout": 0}, {"attempts_max": 0}, {"settle_margin": -1}],
)
def test_durations_that_contradict_each_other_are_refused(planted: dict[str, int]) -> None:
    with pytest.raises(ValueError):
        Liveness(**planted).checked()


@pytest.mark.req("EFF-4")
@given(st.integers(2, 100), st.floats(0, 1, exclude_max=True), st.integers(1, 60_000), st.integers(1, 600_000))
def test_back_off_is_jittered_within_its_upper_half_and_capped(
    attempt: int, chance: float, first: int, cap: int
) -> None:
    whole = min(first * 2.0 ** min(attempt - 2, 30), cap)
    wait = wait_before(attempt, chance, first_ms=first, ceiling_ms=cap)
    assert int(whole / 2) <= wait <= whole <= cap


@pytest.mark.req("EFF-4")
def test_back_off_doubles() -> None:
    assert [wait_before(n, 0.0) for n in range(2, 10)] == [500, 1000, 2000, 4000, 8000, 16000, 22500, 22500]


@pytest.mark.parametrize(("attempt", "chance"), [(1, 0.5), (2, 1.0), (2, -0.1)])
def test_back_off_is_for_further_attempts_and_chances_below_one(attempt: int, chance: float) -> None:
    with pytest.raises(AssertionError):
        wait_before(attempt, chance)
