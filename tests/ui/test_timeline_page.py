"""The drawing of a timeline: idle time is cut out, every bar has a place, and pages stay small."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from outlast.models.timeline import Timeline, TimelineBar, TimelineLane, TimelineMark
from outlast.ui.routes.run_pages import slowness
from outlast.ui.timeline_drawing import (
    BARS_MAX,
    EACH_MAX,
    GAP,
    LANES_MAX,
    LEFT,
    TICK_MIN,
    TICKS,
    WIDTH,
    drawn_timeline,
    scale_of,
)
from tests.ui.conftest import Service
from tests.ui.test_run_pages import PAGE_MAX

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def bar(n: int, began: float, ended: float | None, kind: Any = "attempt", node: str = "a") -> TimelineBar:
    return TimelineBar(
        id=f"{kind}/{n}", kind=kind, node=node, visit=1, what="w", began=at(began),
        ended=None if ended is None else at(ended), outcome="done" if ended is not None else "open", detail="", key="",
        effect="", attempt=1, attempts=1, wait="", who="", until=None, then="", approval="", event=n,
    )  # fmt: skip


def timeline(bars: list[TimelineBar], *, marks: tuple[float, ...] = (), to: float, deadline: float = 0) -> Timeline:
    nodes = dict.fromkeys(each.node for each in bars)
    return Timeline(
        run="r", visits=[], takeovers=[], bars=bars, began=BEGIN, ended=None, now=at(to), from_=BEGIN, to=at(to),
        lanes=[TimelineLane(node=node, visits=1, bars=1) for node in nodes],
        marks=[TimelineMark(kind="crash", at=at(m), node="a", visit=1, text="x", event=1) for m in marks],
        next_deadline=at(deadline) if deadline else None, next_text="", total=len(bars), grouped=False,
    )  # fmt: skip


def test_idle_time_is_cut_out_and_keeps_its_length_as_words() -> None:
    days = 4 * 86_400
    found = drawn_timeline(timeline([bar(1, 0, 10), bar(2, 10, days, "wait"), bar(3, days, days + 10)], to=days + 10))
    (cut,) = found.cuts
    assert (cut.ms, cut.width) == ((days - 10) * 1000, GAP)
    first, _, last = sorted(found.bars, key=lambda each: each.x)
    assert first.width > WIDTH / 3, "ten seconds of work fill the page although a wait of days follows"
    assert last.x > cut.x


def test_time_in_which_an_attempt_runs_is_never_cut() -> None:
    found = drawn_timeline(timeline([bar(1, 0, 1), bar(2, 1, 9_000), bar(3, 9_000, 9_001)], to=9_001))
    assert found.cuts == ()


@pytest.mark.parametrize("seconds", [[], [0], [0, 0], [0, 1], [5, 5, 5], [0, 1e-3, 1e6, 1e6 + 1e-3, 1e9]])
def test_a_scale_rises_and_stays_in_the_page(seconds: list[float]) -> None:
    scale = scale_of([at(each) for each in seconds], [])
    places = [scale.at(at(each)) for each in sorted(seconds)]
    assert places == sorted(places)
    assert all(0 <= place <= WIDTH + 0.001 for place in places)


def test_now_deadline_and_crashes_have_places_in_their_order() -> None:
    found = drawn_timeline(timeline([bar(1, 0, 5), bar(2, 5, None, "wait")], marks=(3,), to=60, deadline=90_000))
    assert found.now is not None
    assert found.deadline is not None
    assert LEFT < found.marks[0].x < found.now < found.deadline <= LEFT + WIDTH + 0.001


def test_hundreds_of_bars_are_drawn_as_few() -> None:
    bars = [bar(n, n, n + 0.9, node=f"n{n % 3}") for n in range(400)]
    found = drawn_timeline(timeline(bars, to=400))
    assert found.grouped
    assert len(found.bars) <= BARS_MAX + 10
    assert sum(each.bars for each in found.bars) == 400


def test_a_run_of_200_nodes_has_as_many_lanes_as_fit() -> None:
    bars = [bar(n, n, n + 0.9, kind, node=f"n{n}") for n in range(200) for kind in ("visit", "attempt")]
    found = drawn_timeline(timeline(bars, to=200))
    assert (len(found.lanes), found.hidden) == (LANES_MAX, 160)
    assert {each.bar.node for each in found.bars} == {each.node for each in found.lanes}
    few = drawn_timeline(timeline(bars[-20:], to=200))
    assert (len(few.lanes), few.hidden) == (10, 0), "a shorter span shows the others"


def test_bars_of_a_lane_do_not_overlap() -> None:
    found = drawn_timeline(timeline([bar(n, n / 2, n / 2 + 1) for n in range(4)], to=3))
    for one in found.bars:
        for other in found.bars:
            if one is not other and one.y == other.y:
                assert one.x + one.width <= other.x + 0.001 or other.x + other.width <= one.x + 0.001


def test_the_page_links_bars_to_events_and_zooms(service: Service) -> None:
    approval, _ = service.asked()
    run = service.get(f"/v1/approvals/{approval}").json()["run"]
    page = service.get(f"/ui/runs/{run}/timeline")
    assert page.status_code == 200, page.text
    assert 'data-node="review"' in page.text
    assert f"/ui/runs/{run}/events?after=" in page.text
    assert "Next deadline" in page.text
    began = service.get(f"/v1/runs/{run}").json()["created_at"]
    assert service.get(f"/ui/runs/{run}/timeline?from={began}").status_code == 200
    assert service.get(f"/ui/runs/{run}/timeline?from=x").status_code == 422


def test_a_run_of_hundreds_of_visits_has_small_pages(service: Service) -> None:
    run = service.start("job", rounds=600)
    service.ended(run)
    for path in ("", "/timeline", "/events", "/checkpoints"):
        page = service.get(f"/ui/runs/{run}{path}")
        assert page.status_code == 200
        assert len(page.content) < PAGE_MAX, (path, len(page.content))


def test_the_axis_has_round_times_outside_of_cuts() -> None:
    days = 4 * 86_400
    found = drawn_timeline(timeline([bar(1, 0, 10), bar(2, days, days + 10)], to=days + 10))
    (cut,) = found.cuts
    assert 3 <= len(found.ticks) <= 2 * TICKS and all(tick.ms % 1_000 == 0 for tick in found.ticks)
    assert all(not cut.x < tick.x < cut.x + cut.width for tick in found.ticks)
    assert all(b.x - a.x >= TICK_MIN for a, b in pairwise(found.ticks))


def test_an_opened_lane_has_a_row_for_each_bar() -> None:
    bars = [bar(n, 0, 9) for n in range(EACH_MAX + 5)] + [bar(999, 0, 9, node="b")]
    page = bars[5:30][::-1]
    found = drawn_timeline(timeline(bars, to=9), "a", page)
    assert [each.bar for each in found.bars] == page, "the drawing has the rows of the table, in their order"
    assert len({each.y for each in found.bars}) == len(page) and all(each.named for each in found.bars)
    assert [lane.node for lane in found.lanes] == ["a"] and not found.hidden and not found.grouped


def test_a_short_timeline_has_a_row_and_a_name_for_each_bar() -> None:
    bars = [bar(1, 0, 9, "visit"), bar(2, 9, 12, "visit"), *(bar(n, n, n + 1, "model") for n in range(3, 10))]
    found = drawn_timeline(timeline(bars, to=12))
    visits = [each for each in found.bars if each.bar.kind == "visit"]
    others = [each for each in found.bars if each.bar.kind == "model"]
    assert len({each.y for each in visits}) == 1 and not any(each.named for each in visits)
    assert len({each.y for each in others}) == len(others) and all(each.named for each in others)


def test_zoom_divides_the_time_that_is_drawn() -> None:
    """Half of the minutes that a run waited was offered for the 10 s in which it worked."""
    line = timeline([bar(1, 0, 4), bar(2, 4, 10), bar(3, 10, None, "wait")], to=86_400, deadline=900_000)
    drawing = drawn_timeline(line)
    first, second = drawing.middle
    assert at(0) < first == second < at(10)
    ended = line.model_copy(update={"to": first})
    half = drawn_timeline(ended)
    assert not half.cuts and half.now is None and half.deadline is None, "a part of the past has neither"
    assert half.middle[0] < first
    assert first < drawing.latest < at(86_400)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 0.9, 1.0])
def test_a_part_of_a_scale_ends_where_idle_time_is_cut_out(share: float) -> None:
    busy = [(at(0), at(1)), (at(50_000), at(50_001))]
    scale = scale_of([point for span in busy for point in span], busy)
    first, second = scale.split(at(0), at(50_001), share)
    (cut,) = scale.cuts
    assert at(0) <= first <= second <= at(50_001)
    assert first == second or (first, second) == (cut.begin, cut.end)


def test_bars_that_would_hide_one_another_are_one_with_their_number() -> None:
    found = drawn_timeline(timeline([bar(n, n / 100, 9 + n / 100) for n in range(EACH_MAX + 1)], to=10))
    assert [each.bars for each in found.bars] == [EACH_MAX + 1] and found.grouped


def test_the_slowest_bars_come_first() -> None:
    bars = [bar(1, 0, 1), bar(2, 3, 3, "lookup"), bar(3, 1, 9), bar(4, 5, None), bar(5, 2, 4)]
    assert [each.event for each in sorted(bars, key=slowness)] == [4, 3, 5, 1, 2]
