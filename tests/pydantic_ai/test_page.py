"""The page about pydantic-ai: at most ten lines change, and its agent of one step a visit keeps what it has done."""

import re
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from outlast.testing import AppFactory
from tests.docs.pages import ROOT, blocks, program

PAGE = ROOT / "docs/pydantic-ai.md"
CHANGED_MAX = 10


def test_the_change_is_small_and_leads_to_the_program_of_the_page() -> None:
    shown, whole, *_ = blocks(PAGE)
    changed = [line for line in shown.body.splitlines() if line.strip("+- ")]
    after = [line.removeprefix("+ ") for line in changed if line.startswith("+ ")]
    assert len(after) <= CHANGED_MAX
    assert [line for line in after if line not in whole.body.splitlines()] == []


def test_a_long_run_takes_one_step_a_visit(outlast_app: AppFactory) -> None:
    asked: list[int] = []

    def think(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked.append(sum(isinstance(message, ModelResponse) for message in messages))
        if asked[-1] == 3:
            return ModelResponse(parts=[TextPart("enough")])
        call = ToolCallPart("open_ticket", {"title": f"t{asked[-1]}"}, tool_call_id=f"c{asked[-1]}")
        return ModelResponse(parts=[call])

    page: dict[str, Any] = {"__name__": "page_pydantic_ai", "SCRIPTED": FunctionModel(think)}
    exec(compile(program(PAGE).replace('"openai:gpt-5"', "SCRIPTED"), str(PAGE), "exec"), page)
    app = outlast_app(page["research"])
    run = app.start(page["research"], {"question": "?"})
    assert run.outcome["answer"] == "enough" and asked == [0, 1, 2, 3]
    assert [effect.visit for effect in app.rows(run.id).effects] == [1, 2, 3]


def test_the_commands_of_the_page_start_its_workflow() -> None:
    """The page had `outlast run MODULE case`, which the command refuses."""
    commands = re.findall(r"`outlast run ([^`]*)`", PAGE.read_text(encoding="utf-8"))
    named = [part.partition(":") for part in (command.split()[0] for command in commands)]
    assert [file for file, colon, _ in named if colon] == ["desk.py"]
    assert all(f'Workflow("{name}"' in program(PAGE) for _, _, name in named)
