"""`outlast prompts` and `outlast tools`: requests to models by prompt, and calls by tool."""

import pytest

from outlast import activity
from outlast.agent import ModelAnswer, ModelRequest, ScriptedModel, ToolCall, agent_workflow
from tests.cli.conftest import Terminal
from tests.service.conftest import Running

pytestmark = pytest.mark.req("OBS-5")
ABOUT = "You open windows."


@activity(key="terminal-window/{room}", no_undo="it is closed by hand")
async def open_window(room: str) -> str:
    """Open a window."""
    return room


def answer(request: ModelRequest) -> ModelAnswer:
    """Open the window of the room that the objective names."""
    if request.answers:
        return ModelAnswer(text="open", input_tokens=20, output_tokens=2)
    call = ToolCall(id="c", tool="open_window", arguments={"room": request.messages[0].text})
    return ModelAnswer(calls=(call,), input_tokens=10, output_tokens=1)


def test_prompts_and_tools_of_a_run(outlast: Terminal) -> None:
    outlast.start()  # the store exists
    assert outlast("prompts", "ls", "--days", "3").out == "no request to a model in the last 3 business days\n"
    assert outlast("tools").out == "no call has been recorded\n"
    model = ScriptedModel(answer, name="scripted:terminal")
    flow = agent_workflow("airing", model=model, tools=[open_window], instructions=ABOUT)
    with Running(outlast.url, (flow,)) as service:
        service.ended(service.post("/v1/workflows/airing/runs", {"input": {"objective": "kitchen"}}).json()["run"])
    (use,) = outlast("prompts", "ls", "-o", "json").json["uses"]
    page = outlast("prompts", "ls")
    assert use["prompt"] in page.out and " ms" in page.out
    assert f"outlast prompts show {use['prompt']}" in page.err
    shown = outlast("prompts", "show", use["prompt"]).out
    assert "instructions · airing@1" in shown and ABOUT in shown
    assert "open_window" in outlast("prompts", "show", use["tools"]).out
    assert outlast("prompts", "show", "unknown").code != 0
    (tool,) = outlast("tools", "-o", "json").json["tools"]
    assert (tool["tool"], tool["calls"]) == ("open_window", 1)
    assert "open_window" in outlast("tools", "--workflow", "airing").out
    assert f"outlast tools {tool['tool']}" in outlast("tools").err
    (call,) = outlast("tools", "open_window", "--outcome", "made", "-o", "json").json["calls"]
    assert (call["key"], call["outcome"], call["attempts"]) == ("terminal-window/kitchen", "done", 1)
    assert call["run"] in outlast("tools", "open_window", "--workflow", "airing", "--version", "1").out
    assert outlast("tools", "open_window", "--outcome", "again").out == "no counted call matches\n"
    assert "need TOOL" in outlast("tools", "--outcome", "done").err
