"""Decisions of a model: a question, lookups that it may propose, and an answer that fits a schema.

Nothing here writes. An answer is advice: `workflow.py` decides what follows, and policy decides what is done.
"""

import functools
import json
import os
from collections.abc import Sequence
from typing import Any, Literal, TypeVar

import httpx2
from pydantic import BaseModel, Field, ValidationError

from outlast import Context, Refused
from outlast.agent import ChatCompletions, Message, Model, Rejected, admit, propose, provided
from outlast.flow.activity import Activity

from .inquiry import Acquisition, Proposal
from .office import ENV
from .systems import read_profile, read_site

NAME = "script:acquisition"
ROUNDS_MAX = 3
"""Answers of the model in one decision."""
READING: Sequence[Activity[..., Any]] = (read_site, read_profile)
M = TypeVar("M", bound=BaseModel)

PAINS = "PAINS\nName the problems of this company that we could solve. You may read first."
QUALIFY = "QUALIFY\nGrade this inquiry A, B or C, and estimate its yearly value in cents."
PROPOSE = "PROPOSE\nWrite a proposal. If there is an objection to an earlier one, meet it."
OUTREACH = "OUTREACH\nWrite one short message to the contact that announces the proposal."


class Undecided(Exception):
    """The model gave no answer that can be used."""


class Pains(BaseModel):
    """Problems of a company."""

    pains: list[str] = Field(max_length=5)


class Qualification(BaseModel):
    """Grade and value of an inquiry."""

    grade: Literal["A", "B", "C"]
    cents: int = Field(ge=0)


class Outreach(BaseModel):
    """A message to the contact."""

    text: str = Field(min_length=1, max_length=500)


def acquisition_model() -> Model:
    """Return the model that the environment names, else the scripted one of the office."""
    return provided() if os.environ.get("OUTLAST_MODEL") else _scripted(os.environ[ENV])


@functools.lru_cache(maxsize=8)  # a client for each address, so that its connections are used again
def _scripted(url: str) -> Model:
    return ChatCompletions(NAME, url=url)


async def pains_of(ctx: Context[Acquisition]) -> list[str]:
    """Return the problems that the model names. Raises as `_decide`."""
    return (await _decide(ctx, PAINS, Pains, "company", "domain", "email", "message", tools=READING)).pains


async def qualified(ctx: Context[Acquisition]) -> Qualification:
    """Return the grade that the model gives. Raises as `_decide`."""
    return await _decide(ctx, QUALIFY, Qualification, "company", "employees", "pains", "fit")


async def proposal_for(ctx: Context[Acquisition]) -> Proposal:
    """Return the proposal that the model writes. Raises as `_decide`."""
    return await _decide(ctx, PROPOSE, Proposal, "company", "contact", "pains", "cents", "objection")


async def outreach_for(ctx: Context[Acquisition]) -> str:
    """Return the message that the model writes. Raises as `_decide`."""
    return (await _decide(ctx, OUTREACH, Outreach, "company", "contact", "pains")).text


async def _decide(
    ctx: Context[Acquisition], question: str, answer: type[M], *facts: str, tools: Sequence[Activity[..., Any]] = ()
) -> M:
    """Return the model's answer to a question about these fields of the state, after the lookups that it proposes.

    Raises Undecided, the errors of the model.
    """
    known = ctx.state.model_dump(mode="json", include=set(facts))
    messages = [Message(role="user", text=json.dumps(known, sort_keys=True))]
    for _ in range(ROUNDS_MAX):
        proposal = await propose(ctx, acquisition_model(), messages, tools=tools, about=question)
        messages.append(proposal.message)
        if not proposal.answer.calls:
            return _parsed(answer, proposal.answer.text)
        for each in await admit(ctx, proposal):
            call = each.call
            text = f"{each.code}: {each.reason}" if isinstance(each, Rejected) else await _read(ctx, each.plan)
            messages.append(Message(role="tool", text=text, call_id=call.id, tool=call.tool))
    raise Undecided(f"the model gave no answer in {ROUNDS_MAX} rounds")


def _parsed(answer: type[M], text: str) -> M:
    try:
        return answer.model_validate_json(text)
    except ValidationError as error:
        raise Undecided(f"the answer is no {answer.__name__}: {error.error_count()} problems") from error


async def _read(ctx: Context[Acquisition], plan: Any) -> str:
    """Return the result of a lookup as text; an error is a result, too."""
    try:
        return str(await ctx.do(plan))
    except (httpx2.HTTPError, Refused) as error:
        return f"no answer: {type(error).__name__}"
