"""The story of a run: every step once, whole texts, filters, hostile words of a model, and the question of the desk."""

import asyncio
import html
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from outlast import Refused, activity, lookup
from outlast.agent import ModelAnswer, ScriptedModel, ToolCall, agent_workflow
from outlast.core.usage import NOTHING_USED
from outlast.insight.agent_steps import Placed
from outlast.insight.labels import ordinal, visit_text
from outlast.insight.run_story import StoryEntry, WaitedTime, messages_before
from outlast.models import exact_instant
from outlast.models.runs import AllowedAmounts, UsedAmounts
from outlast.models.steps import ProposedCall, Step, StepKind, StepText
from outlast.service.event_stream import EventListener, notice
from outlast.ui.live import signals
from outlast.ui.story_rows import budget_bar, elapsed, fitting, took_ms
from tests.ui.conftest import Running, Service
from tests.ui.html_page import HtmlPage
from tests.ui.test_axe import complaints
from tests.ui.test_hostile import HOSTILE, STRANGERS
from tests.ui.test_run_pages import PAGE_MAX, waiting

HIDDEN_WORDS = f"{HOSTILE} \u202eevil\u202c"


@lookup
async def story_reads(text: str) -> str:
    """Return the text."""
    return f"read {text}"


@activity(key="story-write/{text}", once_per="run", no_undo="it is only a test")  # outlast: ignore[OL101] tests only
async def story_writes(text: str) -> str:
    """Refuse the text."""
    raise Refused("no_story", text)


def hostile_agent() -> Any:
    calls = (
        ToolCall(id="c1", tool="story_reads", arguments={"text": HIDDEN_WORDS}),
        ToolCall(id="c2", tool="story_writes", arguments={"text": HIDDEN_WORDS}),
        ToolCall(id="c3", tool=HIDDEN_WORDS[:100], arguments={HIDDEN_WORDS[:40]: HIDDEN_WORDS}),
    )
    turn = ModelAnswer(text=HIDDEN_WORDS, calls=calls, model=HIDDEN_WORDS[:80], input_tokens=3, output_tokens=4)
    tools = [story_reads, story_writes]
    model = ScriptedModel([turn, HIDDEN_WORDS])
    return agent_workflow("story_agent", model=model, tools=tools, instructions=HIDDEN_WORDS)


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, str]]:
    """A service with the run of an agent whose model says hostile words everywhere."""
    with Running(f"sqlite:{tmp_path_factory.mktemp('story') / 'outlast.db'}", [hostile_agent()]) as running:
        run = running.start("story_agent", objective=HIDDEN_WORDS)
        running.ended(run)
        yield running, run


def test_hostile_words_of_a_model_stay_text_in_every_card(
    agent: tuple[Service, str], open_page: Callable[..., Page]
) -> None:
    service, run = agent
    steps = service.get(f"/v1/runs/{run}/steps?limit=100").json()["steps"]
    assert {"start", "model_decision", "tool_call", "checkpoint"} <= {step["kind"] for step in steps}
    page = open_page(width=1440)
    page.goto(f"{service.url}/ui/runs/{run}")
    expect(page.locator("#story > li")).to_have_count(len(steps))
    assert page.locator("blockquote bdi").count() and "U+202E" in page.locator("#story").inner_text()
    assert page.evaluate(STRANGERS) == 0
    for n in range(len(steps)):
        page.locator("#story > li").nth(n).locator("a.open").click()
        expect(page.locator("#panel h2")).to_be_visible()
        assert page.evaluate(STRANGERS) == 0
    assert [*complaints(page, "story")] == []
    for width in (360, 900, 1440):
        page.set_viewport_size({"width": width, "height": 780})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    still = open_page(java_script_enabled=False, width=360)
    still.goto(f"{service.url}/ui/runs/{run}")
    expect(still.locator("#story > li time").first).to_contain_text("UTC")
    for address in still.locator("#story a.open").evaluate_all("all => all.map(each => each.href)"):
        still.goto(address)
        expect(still.locator("#step")).to_be_visible()


def test_the_address_of_an_opened_card_opens_it_again(
    agent: tuple[Service, str], open_page: Callable[..., Page]
) -> None:
    service, run = agent
    page = open_page(width=1440)
    page.goto(f"{service.url}/ui/runs/{run}?q=NO_STORY")
    page.locator("#story a.open").last.click()
    title = page.locator("#panel h2").first.inner_text()
    other = open_page(width=1440)
    other.goto(page.url)
    expect(other.locator("#panel h2").first).to_have_text(title)
    assert "#step=" in page.url
    other.locator("#panel .close").click()
    assert "#step=" not in other.url
    broken = open_page(width=1440)
    broken.goto(f"{service.url}/ui/runs/{run}#step=%E0%A4%A")
    expect(broken.locator("#panel")).to_be_empty()


def test_only_failed_and_the_search_keep_what_they_say(agent: tuple[Service, str]) -> None:
    service, run = agent
    everything = shown(service, f"/ui/runs/{run}")
    failed = shown(service, f"/ui/runs/{run}?failed=yes")
    assert 0 < len(failed) < len(everything) and set(failed) <= set(everything)
    assert "no_story" in service.get(f"/ui/runs/{run}?failed=yes").text
    assert "no_story" not in service.get(f"/ui/runs/{run}?q=read_nothing").text
    found = shown(service, f"/ui/runs/{run}?q=NO_STORY")
    assert found and {each.partition("/")[0] for each in found} <= {"call", "lookup", "checkpoint"}
    assert "No step has" in service.get(f"/ui/runs/{run}?q=zebra").text


def shown(service: Service, address: str) -> list[str]:
    """Return the ids of the steps on a page."""
    text = service.get(address).text
    return [html.unescape(each) for each in re.findall(r'data-card href="[^"]*steps\?step=([^"]*)"', text)]


@pytest.mark.req("OBS-4")
def test_a_thousand_steps_are_on_pages_of_60_kb_each_once(service: Service) -> None:
    run = service.start("job", rounds=999)
    service.ended(run)
    found, address = list[str](), f"/ui/runs/{run}"
    while address:
        page = service.get(address)
        assert len(page.content) <= PAGE_MAX
        found += re.findall(r'data-card href="[^"]*steps\?step=([^"]*)"', page.text)
        later = re.search(r'rel="next" href="([^"]*)"', page.text)
        address = html.unescape(later[1]) if later else ""
    assert len(found) == len(set(found)) >= 1_000
    back = service.get(f"/ui/runs/{run}?before=500").text
    assert 'value="500"' in back and 'value="501"' not in back


def test_entries_full_of_escaped_text_fit_a_page() -> None:
    text = StepText(text='"' * 300, bytes=300, cut=True)
    call = ProposedCall(tool='"' * 100, proposed_by="m", outcome="admitted", code="", reason="", arguments='"' * 300)
    step = Step(
        id="x" * 700, kind="model_decision", status="answered", what="m", node="n", visit=1, began=None, ended=None,
        detail='"' * 300, by="", key='"' * 300, digest="", input=text, output=text, attempts=0, external_id="",
        settled_by="", allowed_by="", approval="", model="m", tokens=1, input_tokens=1, output_tokens=0, money="",
        proposals=[call] * 50, said=text,
    )  # fmt: skip
    entry = StoryEntry(1, Placed((0, 1, 0, step.id), "model_decision", lambda _: step), 0, None, NOTHING_USED, 0)
    rows = fitting([entry] * 100)
    assert 1 <= len(rows) <= 8 and rows[0].left_out == 44


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "+0.000 s"),
        (59_999, "+59.999 s"),
        (184_200, "+3m 04.2s"),
        (72_300_000, "+20h 05m"),
        (288_000_000, "+3d 08h"),
    ],
)
def test_the_time_since_the_start(ms: int, text: str) -> None:
    assert elapsed(ms) == text


def test_a_visit_is_the_one_of_its_node() -> None:
    assert [ordinal(n) for n in (1, 2, 3, 4, 11, 12, 21, 112)] == [
        "1st", "2nd", "3rd", "4th", "11th", "12th", "21st", "112th",
    ]  # fmt: skip
    assert visit_text("award", 1, 7) == "award, 1st visit" and visit_text("award", 0, 7) == "award, visit 7 of the run"
    assert visit_text("ask", 0, 1) == "ask, 1st visit" and visit_text("ask", 0, 0) == "ask"


def test_waits_that_overlap_are_counted_once() -> None:
    waited = WaitedTime([(40, 50), (10, 20), (15, 30), (12, 14)])
    assert [waited.until(at) for at in (0, 10, 15, 30, 35, 45, 60)] == [0, 0, 5, 20, 20, 25, 30]
    assert WaitedTime([]).until(5) == 0


def test_a_traceback_is_folded_behind_its_first_line(service: Service, page: Page) -> None:
    run = service.start("call", order="broken")
    service.flagged(run)
    page.goto(f"{service.url}/ui/runs/{run}?failed=yes")
    entry = page.locator("#story > li.attention")
    expect(entry).to_contain_text("RuntimeError: no line")
    expect(entry.locator("pre")).not_to_be_visible()
    entry.locator("summary").click()
    expect(entry.locator("pre")).to_contain_text("Traceback")


def test_each_tab_has_the_header_of_the_run(service: Service, open_page: Callable[..., Page]) -> None:
    _, run = waiting(service)
    page = open_page(width=1440)
    for tab in ("", "/timeline", "/overview", "/effects", "/results", "/events", "/data", "/checkpoints", "/people",
                "/compare", "/actions", "/state", "/head"):  # fmt: skip
        page.goto(f"{service.url}/ui/runs/{run}{tab}")
        expect(page.locator("#state")).to_have_count(1)
        expect(page.locator("#primary")).to_have_text("Decide")
        expect(page.locator("#sentence")).to_contain_text(run)
        expect(page.locator(".runfacts")).to_contain_text("1st visit")
    page.click("#primary")
    expect(page.locator("#waits")).to_be_in_viewport()


def test_the_header_of_each_tab_refreshes_itself(service: Service, page: Page) -> None:
    run = service.start("wish", text="header")
    service.waits(run)
    page.goto(f"{service.url}/ui/runs/{run}/checkpoints")
    expect(page.locator("#live-state")).to_have_text("live")
    service.post(f"/v1/runs/{run}/cancel", {"reason": "no longer wanted"})
    expect(page.locator("#state")).to_have_text("CANCELLED")


def test_the_bar_of_a_budget_is_the_limit_that_is_used_most() -> None:
    used = UsedAmounts(tokens=500, money="0.9", calls=3)
    none = AllowedAmounts(tokens=None, money=None, calls=None)
    assert budget_bar(used, AllowedAmounts(tokens=1_000, money="1", calls=100)) == ("0.9 of 1", 90.0)
    assert budget_bar(used, AllowedAmounts(tokens=100, money=None, calls=None)) == ("500 of 100 tokens", 100.0)
    assert budget_bar(used, none) is None


def test_streamed_words_reach_the_page_and_refresh_nothing(service: Service) -> None:
    async def go() -> list[bytes]:
        listener = EventListener("default", "run-1")
        found = signals(listener, "run", lambda: asyncio.sleep(0, "same"), lambda: 1)
        await anext(found)
        listener.offer(notice("delta", {"text": "I think"}))
        frames = [await anext(found)]
        listener.end(reopens=True)
        return [*frames, *[each async for each in found]]

    (delta,) = service.call(go())
    assert b"event: delta" in delta and b"I think" in delta


def test_words_of_a_stream_are_text_on_the_page(service: Service, page: Page) -> None:
    _, run = waiting(service)
    page.goto(f"{service.url}/ui/runs/{run}")
    expect(page.locator("#live-state")).to_have_text("live")
    assert not page.locator("#streamed").is_visible()
    frame = notice("delta", {"visit": 1, "key": "k", "epoch": 1, "attempt": 1, "text": f"{HOSTILE}\u202e"})
    (listener,) = [each for key, all_ in service.state.broadcaster._listeners.items() if key[1] == run for each in all_]
    service.loop.call_soon_threadsafe(listener.offer, frame)
    expect(page.locator("#streamed")).to_contain_text("<script>alert(1)</script>")
    expect(page.locator("#streamed")).to_contain_text("[U+202E]")
    assert page.evaluate(STRANGERS) == 0
    page.evaluate("""() => {  // as a refreshed region leaves it
        document.getElementById("streamed").replaceChildren();
        document.dispatchEvent(new Event("htmx:after:swap"));
    }""")
    expect(page.locator("#streamed")).to_contain_text("[U+202E]")


@pytest.mark.req("GATE-8")
def test_the_desk_tells_why_the_service_was_not_restarted(tmp_path: Path, open_page: Callable[..., Page]) -> None:
    """A reader of the pages answers it without the command line, with two clicks after the list of runs."""
    store = f"sqlite:{tmp_path / 'desk.db'}"
    command = [sys.executable, "-m", "outlast", "--store", store, "demo", "--sample", "desk", "--approve"]
    played = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert played.returncode == 0, played.stdout + played.stderr
    with Running(store, [], worker=False) as desk:
        page, clicks = open_page(width=1440), 0
        page.goto(f"{desk.url}/ui/runs")
        for what in ("a[href*='/ui/runs/desk_']", "#only-failed"):
            page.locator(what).first.click()
            clicks += 1
        denied = page.locator("#story > li", has_text="restart_service")
        expect(denied).to_contain_text("deploy-freeze: search is frozen")
        expect(denied).to_contain_text("slow since checkout held the connections")
        takeover = page.locator("#story > li.takeover")
        expect(takeover).to_contain_text("took over from")
        expect(takeover).to_contain_text("no effect was sent again")
        assert clicks <= 3
        assert [*complaints(page, "desk")] == []
        page.click("#every-step")
        expect(page.locator("#story blockquote").first).to_have_text("I read the ticket.")
        assert "%40" not in page.locator("#story").inner_text()


def test_requests_to_models_and_lookups_are_bars_that_open_their_step(agent: tuple[Service, str]) -> None:
    service, run = agent
    steps = {each["id"]: each for each in service.get(f"/v1/runs/{run}/steps?limit=200").json()["steps"]}
    bars = service.get(f"/v1/runs/{run}/timeline").json()["bars"]
    calls = {name for name, step in steps.items() if step["kind"] in ("model_decision", "tool_call")}
    assert calls and calls == {each["step"] for each in bars if each["kind"] in ("model", "lookup", "attempt")}
    for each in bars:
        if each["kind"] == "model":
            assert (each["tokens"], each["money"]) == (steps[each["step"]]["tokens"], steps[each["step"]]["money"])
    assert {"model", "lookup", "attempt"} <= {each["kind"] for each in bars}
    page = service.get(f"/ui/runs/{run}/timeline").text
    assert all(page.count(f"/steps?step={quote(name, safe='/')}") == 2 for name in calls), (
        "in the drawing and the table"
    )


def test_a_gap_in_a_filtered_story_is_that_to_the_entry_above(agent: tuple[Service, str]) -> None:
    service, run = agent
    steps = service.get(f"/v1/runs/{run}/steps?limit=100").json()["steps"]
    page = service.get(f"/ui/runs/{run}?failed=yes").text
    shown = re.findall(r'<li id="step-(\d+)".*?<div class="at">(.*?)</div>', page, re.DOTALL)
    assert 1 < len(shown) < len(steps) and "later" not in shown[0][1]
    began = [int(n) for n, _ in shown]
    assert began != list(range(began[0], began[0] + len(began))), "a step between them is left out"
    times = [float(re.findall(r"\+([\d.]+) s", at)[0]) for _, at in shown]
    for before, (after, (_, at)) in zip(times, zip(times[1:], shown[1:], strict=True), strict=False):
        ms = round((after - before) * 1_000)
        assert f"{ms} ms later" in at or ms >= 1_000


def test_a_turn_of_a_model_shows_the_messages_before_it(agent: tuple[Service, str]) -> None:
    service, run = agent
    turns = service.get(f"/v1/runs/{run}/steps?kind=model_decision").json()["steps"]
    page = HtmlPage(service.get(f"/ui/runs/{run}/steps?step={quote(turns[-1]['id'])}").text).text
    order = [page.index(word) for word in ("Messages before it", "system", "user", "assistant", "tool story_reads")]
    assert order == sorted(order) and "refused no_story" in page.partition("Words")[0]
    first = service.get(f"/ui/runs/{run}/steps?step={quote(turns[0]['id'])}").text
    messages = first.partition('id="messages"')[2].partition("</details>")[0]
    assert "<b>user</b>" in messages and "<b>assistant</b>" not in messages
    calls = service.get(f"/v1/runs/{run}/steps?kind=tool_call").json()["steps"]
    assert 'id="messages"' not in service.get(f"/ui/runs/{run}/steps?step={quote(calls[0]['id'])}").text


def test_messages_before_a_turn_are_cut_and_counted() -> None:
    words = StepText(text="words", bytes=5, cut=False)

    def placed(n: int) -> Placed:
        name = f"lookup/{n}"
        return Placed((n, 1, 0, name), "model_decision", lambda _: step_with("model_decision", id=name, said=words))

    messages, earlier = messages_before([placed(n) for n in range(10)], "lookup/9", 8)
    assert (earlier, [each.step for each in messages]) == (1, [f"lookup/{n}" for n in range(1, 9)])
    assert {(each.role, each.text) for each in messages} == {("assistant", "words")}
    assert messages_before([placed(0)], "lookup/0", 8) == ([], 0)


def step_with(kind: StepKind, **fields: Any) -> Step:
    """Return a step whose other fields are empty."""
    plain: dict[str, Any] = dict.fromkeys(
        ("id", "status", "what", "node", "detail", "by", "key", "digest", "external_id", "settled_by", "allowed_by"), ""
    )
    plain |= {"approval": "", "model": "", "money": "", "visit": 1, "attempts": 0, "tokens": 0, "input_tokens": 0}
    empty = StepText(text="", bytes=0, cut=False)
    more = {"output_tokens": 0, "began": None, "ended": None, "proposals": [], "input": empty, "output": empty}
    return Step(**{**plain, **more, **fields}, kind=kind)


def test_a_step_took_the_time_between_its_instants() -> None:
    ended = exact_instant(1_140)
    assert took_ms(step_with("tool_call", began=exact_instant(1_000), ended=ended)) == 140
    assert took_ms(step_with("model_decision", ended=ended, ms=7)) == 7
    assert took_ms(step_with("tool_call", ended=ended)) is None, "only the end of a lookup is recorded"
    assert took_ms(step_with("checkpoint", began=ended, ended=ended)) is None


def test_an_error_is_said_once_on_the_page_of_a_run(service: Service) -> None:
    run = service.start("call", order="broken")
    service.flagged(run)
    (item,) = service.get(f"/v1/runs/{run}").json()["attention"]
    message = item["detail"].splitlines()[0]
    text = HtmlPage(re.sub(r"<pre.*?</pre>", "", service.get(f"/ui/runs/{run}").text, flags=re.DOTALL)).text
    assert text.count(message) == 1 and text.count("gnored: ") == 1 and "if ignored" not in text
    filtered = HtmlPage(service.get(f"/ui/runs/{run}?failed=yes").text).text.partition("All steps")[2]
    assert message in filtered, "a filtered story has its messages"
