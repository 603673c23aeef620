"""The first example of docs/agents.md against a model that no one scripted for it: it repeats, lies and is cut."""

import importlib.util
import json
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from outlast.agent import ModelAnswer
from outlast.core.machine import RunStatus
from outlast.testing import App, FakeReceivers, ModelServer
from tests.agent.agents import asks
from tests.docs.pages import ROOT, blocks

pytestmark = pytest.mark.req("GATE-7", "OUT-4", "RUN-10")
TASK = {"objective": "The shop is slow since 09:00"}
REPORT = {"cause": "the database is full", "tickets": ["T-1"]}


def example(tmp_path: Path, office: str) -> ModuleType:
    """Return the first program of the page as a module; only the address of the office differs."""
    body = next(block.body for block in blocks(ROOT / "docs/agents.md") if block.language == "python")
    assert "https://office.example" in body
    path = tmp_path / "incident.py"
    path.write_text(body.replace("https://office.example", office), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("incident_of_the_page", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Hostile:
    """A model that reads only how often it has answered. It proposes an action again in each way that it can."""

    def __init__(self) -> None:
        ticket = {"title": "db", "details": "slow since 9"}
        self.script: list[ModelAnswer | str] = [
            asks(("open_ticket", {"title": "db", "details": "slow si"})).model_copy(update={"finish": "cut"}),
            asks(("read_log", {"service": "shop"}), ("open_ticket", ticket), ("restart", {"service": "shop"})),
            # the same in other words, the same again, more than its tools take, and a tool that does not exist
            asks(
                ("open_ticket", {"title": "db", "details": "slow since nine"}),
                ("open_ticket", ticket),
                ("restart", {"service": "shop"}),
                ("restart", {"service": "shop", "force": True}),
                ("drop_database", {"name": "shop"}),
                ("read_log", {"service": "shop", "lines": "all"}),
            ),
            ModelAnswer(),  # it says nothing
            "I have restarted the shop twice and opened three tickets.",  # a lie, and no result
            asks(("final_result", {"cause": 5})),
            asks(("final_result", REPORT), ("open_ticket", {"title": "late", "details": "beside the result"})),
            asks(("final_result", REPORT)),
        ]
        self.told: list[str] = []

    def __call__(self, body: dict[str, Any]) -> ModelAnswer | str:
        self.told = [str(m.get("content")) for m in body["messages"] if m["role"] in ("tool", "user")]
        return self.script[sum(m["role"] == "assistant" for m in body["messages"])]


def codes(told: list[str]) -> Counter[str]:
    """Return how often the model got each code of an error."""
    found = [json.loads(text) for text in told if text.startswith('{"error"')]
    return Counter(each["error"]["code"] for each in found if isinstance(each["error"], dict))


def test_the_first_example_of_the_page_survives_a_hostile_model(tmp_path: Path) -> None:
    """One ticket of a title, one restart, both approved or admitted once; the lie is no result; all is paid once."""
    model = Hostile()
    with FakeReceivers() as office, ModelServer(model) as server:
        flow = example(tmp_path, office.url).incident
        app = App((flow,))
        try:
            run = app.start(flow, TASK)
            assert run.now.shown == "WAITING_FOR_APPROVAL"
            run.approve("it is down anyway")
            assert run.outcome == REPORT, (run.status, run.now.attention, run.now.reason)
            made = Counter(effect.activity for effect in app.rows(run.id).effects)
            assert made == {"open_ticket": 2, "restart": 1}  # of the titles db and late
            assert office.executed(route="/tickets") == 2 and office.executed(route="/restarts") == 1
            assert server.paid == len(model.script)
            assert codes(model.told) == {
                "conflict": 1,
                "invalid_arguments": 2,
                "unknown_tool": 1,
                "invalid_result": 1,
                "not_now": 1,
            }
            again = [json.loads(text)["note"] for text in model.told if text.startswith('{"note"')]
            assert [each.partition(" in step")[0] for each in again] == [
                "ticket/db was already done",
                "restart/shop was already done",
            ]
            assert all(each.endswith("it was not done again") for each in again)
            used = run.now.used
            assert float(used.money) > 0 and used.unpriced == 0 and used.calls == len(model.script)
        finally:
            app.close()


@pytest.mark.parametrize(
    ("answer", "end"),
    [
        (ModelAnswer(text="The cause of the incident is", finish="cut"), "exception"),
        (ModelAnswer(finish="filtered"), RunStatus.FAILED),
        (ModelAnswer(finish="refusal", finish_detail="I can't help with that."), RunStatus.FAILED),
        (ModelAnswer(), RunStatus.FAILED),
        ("done, trust me", "visits_exhausted"),
    ],
    ids=["cut", "filtered", "refused", "empty", "prose"],
)
def test_no_broken_answer_completes_the_example(tmp_path: Path, answer: ModelAnswer | str, end: str) -> None:
    """A model that gives the same broken answer each time never ends the run COMPLETED."""
    with FakeReceivers() as office, ModelServer(lambda body: answer):
        module = example(tmp_path, office.url)
        flow = module.agent_workflow("incident", tools=[module.restart], result=module.Report, max_steps=3, model="m:m")
        app = App((flow,))
        try:
            run = app.start(flow, TASK)
            assert end in (run.status, *run.attention)
            assert office.executed() == 0
        finally:
            app.close()
