"""An approval that is asked for below a root: the approver sees the root, the path and both objectives."""

from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from outlast import activity, role
from outlast.agent import ModelAnswer, ScriptedModel, SubAgent, ToolCall, agent_workflow
from outlast.cli.root import cli
from tests.ui.conftest import Running, Service

pytestmark = pytest.mark.req("GATE-2", "RUN-13")


def calls(tool: str, **arguments: str) -> ModelAnswer:
    return ModelAnswer(calls=(ToolCall(id="1", tool=tool, arguments=dict(arguments)),))


@activity(key="pump/{pump}", no_undo="a stop is over")
async def stop_pump(pump: str) -> str:
    """Stop a pump."""
    return "stopped"


engineer = agent_workflow(
    "engineer",
    description="Stops and starts pumps.",
    model=ScriptedModel([calls("stop_pump", pump="north"), "it is off"]),
    tools=[stop_pump],
    approve={"stop_pump": role("lead")},
)
foreman = agent_workflow(
    "foreman",
    description="Leads engineers.",
    model=ScriptedModel([calls("engineer", objective="turn the <b>north</b> pump off"), "done"]),
    agents=[SubAgent(engineer, no_undo="a stop is over")],
)
waterworks = agent_workflow(
    "waterworks",
    model=ScriptedModel([calls("foreman", objective="lower the level"), "done"]),
    agents=[SubAgent(foreman, no_undo="a stop is over")],
)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:{tmp_path_factory.mktemp('path') / 'outlast.db'}"


@pytest.fixture(scope="module")
def service(url: str) -> Iterator[Service]:
    """A service with three levels of agents."""
    with Running(url, [engineer, foreman, waterworks]) as running:
        yield running


@pytest.fixture(scope="module")
def run(service: Service) -> str:
    """A root below which an approval is pending."""
    started = service.start("waterworks", objective="keep the cellar dry")
    service.until("/v1/approvals", lambda body: bool(body["approvals"]))
    return started


def test_an_approval_names_root_path_and_objectives(service: Service, run: str, url: str) -> None:
    (listed,) = service.get("/v1/approvals").json()["approvals"]
    found = service.get(f"/v1/approvals/{listed['approval']}").json()
    assert (found["workflow"], found["objective"]) == ("engineer", "turn the <b>north</b> pump off")
    assert [(each["workflow"], each["objective"]) for each in found["path"]] == [
        ("waterworks", "keep the cellar dry"),
        ("foreman", "lower the level"),
    ]
    assert found["path"][0]["run"] == run
    page = service.get(f"/ui/approvals/{listed['approval']}").text
    purpose = page.partition('id="purpose"')[2].partition("</dl>")[0]
    assert "keep the cellar dry" in purpose and f"/ui/runs/{run}" in purpose and "&lt;b&gt;north" in purpose
    assert purpose.index("waterworks") < purpose.index("foreman") < purpose.index("engineer")
    shown = CliRunner().invoke(cli, ["approvals", "show", listed["approval"]], env={"OUTLAST_STORE": url}).stdout
    lines = {line.split()[0]: line for line in shown.splitlines() if line.split()}
    assert "turn the <b>north</b> pump off" in lines["objective"]
    assert run in lines["root"] and "keep the cellar dry" in lines["root"]
    assert lines["path"].index("waterworks") < lines["path"].index("foreman") < lines["path"].index("engineer")


def test_the_history_of_an_agent_leads_to_the_run_that_it_started(service: Service, run: str) -> None:
    steps = service.get(f"/v1/runs/{run}/steps").json()["steps"]
    (call,) = [each for each in steps if each["kind"] == "tool_call"]
    assert call["what"] == "foreman"
    child = service.get(f"/v1/runs/{run}/tree").json()["children"][0]["run"]
    assert call["external_id"] == child
    page = service.get(f"/ui/runs/{run}/effects").text
    assert f'/ui/runs/{child}"' in page
