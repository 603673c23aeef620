"""JSON columns of a run survive storing, timers become one due time, and business time maps both ways."""

import json

from hypothesis import given
from hypothesis import strategies as st

from outlast.core.commit import IDENTITY, Mapping
from outlast.core.events import EventType
from outlast.core.limits import CALLS_PER_VISIT_MAX, EVENT_BYTES_MAX, KEY_BYTES_MAX, ROW_BYTES_MAX
from outlast.core.machine import CHOICES, Choice, Reason
from outlast.core.rows.run_columns import (
    ATTENTION,
    TIMERS,
    WAITING_FOR,
    Attention,
    Timer,
    WaitingFor,
    fit_attention,
    fit_waits,
)
from outlast.core.run_transition import due_of, event, rearmed
from tests.core.drive import Drive

RUN = Drive().start().run
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
INSTANT = st.integers(0, 2**45)
WAITING = st.builds(
    WaitingFor, st.sampled_from(["timer", "signal", "approval", "slot", "worker"]), TEXT, TEXT, INSTANT, INSTANT, TEXT
)
REASONS = st.builds(
    Attention,
    st.sampled_from(Reason),
    INSTANT,
    TEXT,
    TEXT,
    st.integers(0, 99),
    st.integers(0, 99),
    until=INSTANT,
    seen=st.integers(0, 99),
)
ARMED = st.builds(Timer, TEXT, INSTANT, st.booleans())
MAPPINGS = st.builds(
    Mapping, st.integers(0, 9), INSTANT, INSTANT, st.sampled_from([0.5, 1.0, 1.5, 3.0, 60.0, 1_000.0, 10_000.0])
)


@given(st.lists(WAITING, max_size=3))
def test_waiting_for_round_trips(items: list[WaitingFor]) -> None:
    assert RUN._replace(waiting_for_text=WAITING_FOR.encode(items)).waiting_for == fit_waits(items)
    assert (WAITING_FOR.encode(items) == "") == (not items)


@given(st.lists(REASONS, max_size=3))
def test_attention_round_trips(items: list[Attention]) -> None:
    run = RUN._replace(attention_text=ATTENTION.encode(items))
    assert run.attention == fit_attention(items)
    uncertain = {item.key for item in items if item.reason is Reason.EFFECT_UNCERTAIN}
    for item in items:
        accepts = bool(item.missing) and uncertain.isdisjoint(name.partition("?")[2] for name in item.missing)
        given = {Choice.USE_RECORDED: bool(item.digest), Choice.ACCEPT: accepts}
        assert list(item.choices(items)) == [c for c in CHOICES[item.reason] if given.get(c, True)]


@given(st.lists(ARMED, max_size=3))
def test_clocks_round_trip(items: list[Timer]) -> None:
    assert RUN._replace(timers_text=TIMERS.encode(items)).timers == tuple(items)


@given(st.lists(ARMED, max_size=4), MAPPINGS)
def test_a_run_is_due_at_its_earliest_clock_and_not_before(clocks: list[Timer], mapping: Mapping) -> None:
    due = due_of(clocks, mapping)
    assert (due is None) == (not clocks)
    if due is not None:
        reached = [c.at <= (due if c.real else mapping.business(due)) for c in clocks]
        assert any(reached)
        assert not any(c.at <= (due - 1 if c.real else mapping.business(due - 1)) for c in clocks)


@given(st.lists(ARMED, max_size=3), MAPPINGS, INSTANT)
def test_a_new_mapping_moves_business_clocks_only(clocks: list[Timer], mapping: Mapping, due_at: int) -> None:
    run = RUN._replace(timers_text=TIMERS.encode(clocks), due_at=due_at)
    assert rearmed(run, mapping) == (due_of(clocks, mapping) if clocks else due_at)
    real = [c for c in clocks if c.real]
    if real and len(real) == len(clocks):
        assert rearmed(run, mapping) == min(c.at for c in real)


@given(MAPPINGS, INSTANT)
def test_real_is_the_first_instant_that_shows_a_business_one(mapping: Mapping, business: int) -> None:
    real = mapping.real(business)
    assert mapping.business(real) >= business
    assert mapping.business(real - 1) < business


@given(MAPPINGS, INSTANT, st.integers(0, 10**9))
def test_business_time_never_runs_backwards(mapping: Mapping, real: int, later: int) -> None:
    assert mapping.business(real) <= mapping.business(real + later)
    assert mapping.at(real) == (real, mapping.business(real), mapping.version)


@given(INSTANT)
def test_in_production_the_two_times_are_one(real: int) -> None:
    assert IDENTITY.business(real) == real == IDENTITY.real(real)


@given(st.integers(1, 40), st.sampled_from(["x", "€", "\0", "\ud83d", "\U0001f600"]))
def test_texts_of_any_length_fit_into_a_run_row(n: int, letter: str) -> None:
    """Each is cut, more if there are many, so that no text of a receiver makes the row of a run too large."""
    n *= CALLS_PER_VISIT_MAX // 40
    text = letter * 10_000
    asked = ATTENTION.encode(Attention(Reason.EFFECT_UNCERTAIN, 1, text, "k" * KEY_BYTES_MAX) for _ in range(n))
    waits = WAITING_FOR.encode(WaitingFor("effect", text, text, then=text) for _ in range(n))
    assert len(asked.encode()) + len(waits.encode()) < ROW_BYTES_MAX
    assert min(len(a.detail) for a in RUN._replace(attention_text=asked).attention) >= 90


def test_a_short_text_of_a_wait_that_no_store_holds_is_escaped() -> None:
    (fitting,) = fit_waits([WaitingFor("effect", "a\0", "b\ud83d", then="c\nd")])
    assert fitting == WaitingFor("effect", "a\\x00", "b\\ud83d", then="c\nd")


@given(st.dictionaries(st.text(), st.text(st.characters(), max_size=20), max_size=3))
def test_data_of_an_event_can_be_stored_and_read(data: dict[str, str]) -> None:
    written = event(RUN, EventType.LOGGED, 1, {**data, "long": "x" * ROW_BYTES_MAX})
    assert len(written.details) <= EVENT_BYTES_MAX and json.loads(written.details)["long"].startswith("xx")
