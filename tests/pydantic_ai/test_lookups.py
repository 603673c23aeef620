"""Tools that only read: their errors, and results that cannot be stored, are answers for the model."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from outlast import Context, Fail, Refused
from outlast.errors import Misplaced
from outlast.flow import Failures
from outlast.pydantic_ai import DurableTool
from outlast.testing.virtual_runtime import App, AppFactory, AppRun
from tests.pydantic_ai.scripted import Case, Script, call, flow_of, tool_agent

READS = {"outlast": DurableTool(lookup=True)}


class ParserError(Exception):
    """An error of two arguments, whose class cannot be made of a text."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(line, text)


def large() -> str:
    return "x" * 300_000


def half() -> str:
    return "a\ud83d"


def no_data() -> object:
    return {"of": object()}


def bug() -> str:
    return str(json.loads("<html>"))


def odd() -> str:
    raise ParserError(3, "no table, password=hunter2secret")


def key_error() -> str:
    return {}["price"]  # type: ignore[no-any-return]


def away() -> str:
    raise ConnectionRefusedError(111, "refused")


def no() -> str:
    raise Refused("gone", "there is no such page")


def start(
    app_of: AppFactory, name: str, fn: Callable[[], Any], model: Script | None = None, **options: Any
) -> tuple[App, AppRun[Case], list[str]]:
    """Run an agent with a tool that reads, in a node that waits after it."""
    read: list[str] = []

    async def page(url: str) -> Any:
        read.append(url)
        return fn()

    agent = tool_agent("reader", model or Script([call("page", url="a")]), page, metadata=READS)

    async def body(ctx: Context[Case]) -> None:
        ctx.state.answer = (await agent.run("?")).output
        await ctx.sleep("1h", name="n1")
        await ctx.sleep("1h", name="n2")

    flow = flow_of(name, body, [agent], **options)
    app = app_of(flow)
    run = app.start(flow, {})
    for _ in range(8):
        if run.status == "waiting" and not run.attention:
            app.clock.skip("1h")
    return app, run, read


@pytest.mark.req("EFF-2", "GATE-7")
@pytest.mark.parametrize(
    ("fn", "told", "attempts"),
    [
        (large, "error: too_large: the answer of lookup", 1),
        (half, "error: not_storable: the answer of lookup", 1),
        (no_data, "error: not_storable: the answer of lookup", 1),
        (bug, "error: raised: JSONDecodeError: Expecting value", 1),
        (odd, "error: raised: ParserError: (3, 'no table", 1),
        (key_error, "error: raised: KeyError: 'price'", 1),
        (away, "error: no_answer: [Errno 111] refused", 3),
        (no, "refused: gone: there is no such page", 1),
    ],
)
def test_an_error_of_a_lookup_is_an_answer_for_the_model(
    outlast_app: AppFactory, fn: Callable[[], Any], told: str, attempts: int
) -> None:
    """Each of them but the last stopped the run, and `continue` read the same page again."""
    model = Script([call("page", url="a")])
    _, run, read = start(outlast_app, f"agent-{fn.__name__}", fn, model)
    assert (run.status, run.attention) == ("completed", []), run.now.attention
    assert told in run.outcome["answer"] and "hunter2secret" not in run.outcome["answer"]
    assert len(model.asked) == 2 and len(read) == attempts, "a re-run gets the recorded error"


@pytest.mark.req("OUT-4")
def test_errors_of_lookups_are_bounded_by_fails_if(outlast_app: AppFactory) -> None:
    model = Script(*([call("page", f"c{n}", url=str(n))] for n in range(3)))
    options = {"fails_if": Failures(1.0, at_least=3, of=("reader.page",))}
    _, run, _ = start(outlast_app, "agent-bounded", bug, model, **options)
    assert run.status == "failed" and len(model.asked) == 4


@pytest.mark.parametrize("error", [Fail("no page at all"), Misplaced("a call in the wrong place")])
def test_an_end_or_a_mistake_of_the_author_is_no_answer(outlast_app: AppFactory, error: Exception) -> None:
    def raises() -> str:
        raise error

    _, run, _ = start(outlast_app, "agent-ends", raises)
    assert run.status == "failed" if isinstance(error, Fail) else run.attention == ["exception"]
