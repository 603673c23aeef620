"""Lookups of an agent without an answer: data for the model, bounded by `fails_if` (OUT-4, GATE-7)."""

import json
import os
from typing import Any

import pytest

from outlast import Failures, activity, lookup
from outlast.agent import ScriptedModel, agent_workflow
from tests.agent.agents import asks, running

pytestmark = pytest.mark.req("OUT-4", "GATE-7")


@lookup
async def parse(page: str) -> Any:
    """Read a page."""
    if page == "json":
        return json.loads("<html>")
    if page == "value":
        raise ValueError("no price on https://shop.example?api_key=sk-verysecret1234")
    if page == "exit":
        raise SystemExit(3)
    if page == "group":
        raise ExceptionGroup("two", [ValueError("a"), KeyError("b")])
    if page == "text":
        raise Odd
    if page == "large":
        return "x" * 400_000
    if page == "surrogate":
        return os.fsdecode(b"name\xff")
    if page == "nan":
        return [float("nan")]
    if page == "object":
        return {"a": object()}
    return page


class Odd(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def agent(*pages: str, **options: Any) -> Any:
    model = ScriptedModel([asks(*[("parse", {"page": page}) for page in pages]), "done"])
    return agent_workflow("agent", model=model, tools=[parse], **options)


def told(run: Any) -> list[dict[str, Any]]:
    return [json.loads(m.text)["error"] for m in run.state.messages if m.role == "tool" and '"error"' in m.text]


@pytest.mark.parametrize(
    ("page", "code", "words"),
    [
        ("json", "raised", "JSONDecodeError"),
        ("value", "raised", "ValueError: no price on"),
        ("exit", "raised", "SystemExit"),
        ("group", "raised", "two (2 sub-exceptions)"),
        ("text", "raised", "Odd"),
        ("large", "too_large", "400,002 bytes"),
        ("surrogate", "not_storable", "cannot be stored"),
        ("nan", "not_storable", "nan"),
        ("object", "not_storable", "object"),
    ],
)
def test_a_lookup_without_an_answer_does_not_stop_the_agent(page: str, code: str, words: str) -> None:
    """Whatever it raises or returns. The others of the answer go back to the model as usual, and no secret does."""
    with running(agent("fine", page)) as (_, run):
        assert run.outcome == "done", run.now.attention
        (error,) = told(run)
        assert error["code"] == code and words in error["reason"]
        assert "verysecret" not in json.dumps(error)
        assert "fine" in [m.text for m in run.state.messages]


def test_failed_lookups_are_bounded_by_fails_if() -> None:
    limit = Failures(0.6, of=[parse])  # the requests to the model count, too
    with running(agent("json", "large", "fine", fails_if=limit)) as (_, run):
        assert run.status == "failed" and "2 of its" in run.now.reason
    with running(agent("json", "fine", "well", fails_if=limit)) as (_, run):
        assert run.status == "completed"


def test_an_error_of_an_activity_is_no_answer() -> None:
    """A write may have happened, so an exception of it is a question to a person, as before."""

    @activity(key="pay/{order}", no_undo="a test")
    async def pay(order: str) -> str:
        """Pay."""
        raise ValueError("after the request")

    model = ScriptedModel([asks(("pay", {"order": "1"})), "done"])
    with running(agent_workflow("agent", model=model, tools=[pay])) as (_, run):
        assert run.attention == ["effect_uncertain"]
