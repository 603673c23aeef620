"""The pages of prompts and of tools: their numbers are those of the API, and each prompt shows its change."""

import json
import re
from collections.abc import Callable, Iterator
from html import unescape
from typing import Any

import pytest
from playwright.sync_api import Page

from outlast import activity, lookup
from outlast.agent import ModelAnswer, ModelRequest, ScriptedModel, ToolCall, agent_workflow
from outlast.core.machine import EffectStatus
from outlast.core.rows.text_rows import StoredModelText
from outlast.insight.agent_calls import line_difference, prompt_uses, shown_text
from outlast.insight.tool_calls import counted_calls, counted_memos, tool_uses
from outlast.operations.agent_operations import ListToolCalls
from outlast.store.agent_calls import AskedRequest, CountedCall, CountedMemo
from outlast.ui.routes.agent_pages import COLUMNS, number_of
from tests.ui.conftest import Running, Service
from tests.ui.test_axe import complaints

pytestmark = pytest.mark.req("OBS-5")
OLD = "You mend shops.\nLook before you act.\nAnswer in one sentence."
NEW = "You mend shops.\nLook <b>twice</b> before you act.\nAnswer in one sentence."


@activity(key="prompt-page/{shop}", no_undo="it is restarted")
async def restart_shop(shop: str) -> str:
    """Restart a shop."""
    return shop


@lookup
async def look_at_shop(shop: str) -> str:
    """Look at a shop."""
    return shop


def answer(request: ModelRequest) -> ModelAnswer:
    """Restart the shop once, then end; an objective that says so is refused."""
    if "refuse" in request.messages[0].text:
        return ModelAnswer(text="I must not.", finish="refusal", input_tokens=4)
    if request.answers == 2:
        return ModelAnswer(text="done", input_tokens=100, output_tokens=10)
    tool = "restart_shop" if request.answers else "look_at_shop"
    call = ToolCall(id="c", tool=tool, arguments={"shop": request.messages[0].text})
    return ModelAnswer(calls=(call,), input_tokens=50, output_tokens=5)


def mender(version: int, about: str) -> Any:
    model = ScriptedModel(answer, name=f"scripted:{version}")
    tools = [look_at_shop, restart_shop]
    return agent_workflow("shop-mender", version=version, model=model, tools=tools, instructions=about)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    store = f"sqlite:{tmp_path_factory.mktemp('prompts') / 'outlast.db'}"
    for version, about in ((1, OLD), (2, NEW)):
        with Running(store, (mender(version, about),)) as running:
            for given in ("a", "b", "refuse it") if version == 2 else ("a",):
                run = running.post(
                    "/v1/workflows/shop-mender/runs", {"input": {"objective": f"{given} {version}"}}
                ).json()["run"]
                running.ended(run)
            if version == 2:
                yield running


def test_the_numbers_of_the_page_are_those_of_the_api(service: Service) -> None:
    """Newest version first; an answer that cannot be used is counted apart."""
    body = service.get("/v1/prompts?workflow=shop-mender").json()
    new, old = body["uses"]
    assert (body["read"], body["every"]) == (10, True)
    assert [(use["version"], use["requests"], use["unusable"], use["errors"]) for use in (new, old)] == [
        (2, 7, 1, 0),
        (1, 3, 0, 0),
    ]
    assert new["outcomes"] == {"refusal": 1} and new["tokens"] == 4 + 2 * 220 and old["tokens"] == 220
    assert new["prompt"] != old["prompt"] and new["tools"] == old["tools"] and new["p95_ms"] >= new["p50_ms"] > 0
    page = service.get("/ui/prompts").text
    assert new["prompt"][:8] in page and "refusal ×1" in page and "<b>" not in page.partition("<main")[2]
    assert service.get("/v1/prompts?model=scripted:1").json()["read"] == 3
    assert service.get("/v1/prompts?days=0").status_code == 422


def test_a_prompt_shows_its_text_and_what_changed(service: Service) -> None:
    new, old = service.get("/v1/prompts").json()["uses"]
    found = service.get(f"/v1/prompts/{new['prompt']}").json()
    assert (found["text"], found["kind"], found["version"], found["previous"]) == (
        NEW,
        "instructions",
        2,
        old["prompt"],
    )
    changed = [(line["mark"], line["text"]) for line in found["difference"] if line["mark"] != "same"]
    assert changed == [("old", OLD.splitlines()[1]), ("new", NEW.splitlines()[1])]
    first = service.get(f"/v1/prompts/{old['prompt']}").json()
    assert (first["text"], first["previous"], first["difference"]) == (OLD, "", [])
    assert "restart_shop" in service.get(f"/v1/prompts/{new['tools']}").json()["text"]
    page = service.get(f"/ui/prompts/{new['prompt']}").text
    assert "<ins>Look &lt;b&gt;twice" in page and "<del>Look before" in page
    assert service.get("/v1/prompts/unknown").status_code == 404


def test_the_story_of_a_run_names_the_prompt_and_the_time_of_a_turn(service: Service) -> None:
    new = service.get("/v1/prompts").json()["uses"][0]
    steps = service.get(f"/v1/runs/{new['run']}/steps?kind=model_decision").json()["steps"]
    assert {step["prompt"] for step in steps} == {new["prompt"]} and all(step["ms"] > 0 for step in steps)
    assert f"/ui/prompts/{new['prompt']}" in service.get(f"/ui/runs/{new['run']}").text


def test_tools_are_counted_by_version(service: Service) -> None:
    """Lookups of an agent are tools, too, marked read-only."""
    tools = service.get("/v1/tools").json()["tools"]
    names = ("tool", "version", "read_only", "calls", "done", "timed")
    assert [tuple(tool[name] for name in names) for tool in tools] == [
        ("look_at_shop", 2, True, 2, 2, 0),
        ("restart_shop", 2, False, 2, 2, 2),
        ("look_at_shop", 1, True, 1, 1, 0),
        ("restart_shop", 1, False, 1, 1, 1),
    ]
    assert 'look_at_shop <span class="quiet">read-only</span>' in service.get("/ui/tools?workflow=shop-mender").text


def test_each_count_of_tools_has_its_list(service: Service) -> None:
    """The page, the API and the command count the rows that they list."""
    links = re.findall(r'href="[^"]*(/ui/tools/calls\?[^"]*)">([\d,]+)</a>', service.get("/ui/tools").text)
    assert len(links) == 8
    for address, count in links:
        listed = service.get(unescape(address)).text.partition('id="calls"')[2]
        assert listed.count("<tr>") - 1 == int(count), address
    first = service.get("/v1/tools/calls?tool=restart_shop&limit=2").json()
    rest = service.get(f"/v1/tools/calls?tool=restart_shop&limit=2&cursor={first['next_cursor']}").json()
    calls = [*first["calls"], *rest["calls"]]
    assert (len(calls), len({call["run"] for call in calls}), rest["next_cursor"]) == (3, 3, "")
    assert all(call["took_ms"] is not None and call["attempts"] == 1 for call in calls)
    assert service.get("/v1/tools/calls?outcome=lost").status_code == 422
    assert service.get("/v1/tools/calls?cursor=none").status_code == 422


def test_calls_are_counted_by_their_end_and_timed_by_their_only_attempt() -> None:
    """A call that was sent again, or settled by a person, has no time; nor has a child run."""
    call = CountedCall("pay", EffectStatus.DONE, 5_000, 5_700, "r-1", 1, "pay/1", 1, "call", False, "shop@2")
    calls = [
        call,
        call._replace(attempts=2, settled_at=90_000),
        call._replace(settled_by="ann", settled_at=9_000_000),
        call._replace(is_child=True),
        call._replace(status=EffectStatus.UNCERTAIN, settled_at=0, settled_by=""),
        call._replace(lane=""),
    ]
    memo = CountedMemo("read_log", "r-1", 1, "read/1", 9, False, b"", "shop@2")
    verdict = memo._replace(key="policy/pay/1", body=b'{"verdict":"deny","activity":"pay"}')
    memos = [
        memo,
        memo._replace(failed=True),
        verdict,
        verdict._replace(key="policy/offer/pay"),
        verdict._replace(body=b'{"verdict":"allow","activity":"\\"deny\\""}'),
        verdict._replace(body=b'"deny"}'),
    ]
    counted = [*counted_calls(calls, lambda real: real), *counted_memos(memos)]
    pay, reading, purged = tool_uses(counted)
    assert (pay.calls, pay.done, pay.uncertain, pay.again, pay.denied, pay.timed, pay.p50_ms) == (5, 4, 1, 1, 1, 1, 700)
    assert (reading.tool, reading.read_only) == ("read_log", True)
    assert (reading.calls, reading.done, reading.refused) == (2, 1, 1)
    assert (purged.workflow, purged.version, purged.calls, purged.p95_ms) == ("", 0, 1, 700)
    for use in (pay, reading, purged):
        for outcome in COLUMNS:
            of = ListToolCalls(tool=use.tool, workflow=use.workflow, version=use.version, outcome=outcome)
            number = number_of(use, outcome)
            assert sum(each.fits(of) for each in counted) == number, (use.tool, outcome)


@pytest.mark.parametrize("width", [360, 1440])
def test_the_pages_fit_and_are_accessible(service: Service, open_page: Callable[..., Page], width: int) -> None:
    page = open_page(width=width)
    prompt = service.get("/v1/prompts").json()["uses"][0]["prompt"]
    for path in ("prompts", f"prompts/{prompt}", "tools", "tools/calls"):
        page.goto(f"{service.url}/ui/{path}")
        assert list(complaints(page, path)) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path


def test_requests_of_earlier_versions_and_of_purged_runs_have_lines() -> None:
    row = AskedRequest(5_000, "r", "", "", "m", "", 0, 3, 2, 1, 1_500_000, 1, "flow@1")
    late = row._replace(at=9_000, lane="", outcome="ConnectError", prompt="p", ms=40)
    gone, earlier = prompt_uses([late, row], {"p": "Be brief."})
    assert (gone.workflow, gone.version, gone.errors, gone.p50_ms, gone.head) == ("", 0, 1, None, "Be brief.")
    assert (earlier.prompt, earlier.p50_ms, earlier.money, earlier.unpriced) == ("", None, "1.5", 1)


def test_a_difference_leaves_out_equal_lines() -> None:
    old = [f"line {n}" for n in range(40)]
    new = [*old[:20], "another", *old[21:]]
    lines = line_difference("\n".join(old), "\n".join(new))
    marks = [line.mark for line in lines]
    assert marks == ["left_out", "same", "same", "same", "old", "new", "same", "same", "same", "left_out"]
    assert [line.text for line in lines if line.mark == "left_out"] == ["17 equal lines", "16 equal lines"]
    assert not line_difference("a", "a")


def test_texts_are_shown_without_secrets() -> None:
    """Instructions and schemas of tools are stored as they were sent; people see them without secrets."""
    key = "sk-proj-" + "a1B2" * 10
    row = StoredModelText("t", "d", 1, "instructions", f"Call the shop with {key}.", 9, "w@1", 1, 1)
    tools = json.dumps([{"name": "call", "description": f"with {key}"}])
    for each in (row, row._replace(kind="tools", text=tools), row._replace(kind="tools", text=tools[:-3])):
        assert key in each.text and key not in shown_text(each)
