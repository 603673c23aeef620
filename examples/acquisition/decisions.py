"""Decisions of a model: a question, lookups that it may propose, an answer that fits a type, and a check of its claims.

Nothing here writes. An answer is advice: `workflow.py` decides what follows, and policy decides what is done.
"""

import functools
import json
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import httpx2
from pydantic import BaseModel, Field

from outlast import Context, Refused
from outlast.agent import ChatCompletions, Message, Model, Rejected, TypedAnswer, admit, propose, provided
from outlast.flow.activity import Activity

from . import checks
from .inquiry import Acquisition, Pain, Proposal, Qualification
from .office import ENV
from .systems import read_profile, read_site

NAME = "script:acquisition"
ROUNDS_MAX = 4
"""Answers of the model in one decision."""
OBJECTIONS_MAX = 1
"""Answers of one decision that may contradict the records."""
READING: Sequence[Activity[..., Any]] = (read_site, read_profile)
M = TypeVar("M", bound=BaseModel)

PAINS = """PAINS
Name the problems of this company that we solve: wrong stock counts (stock), orders that are typed by hand or twice
(orders), late deliveries (delivery), slow returns (returns). Name only those that it has now, each once. Quote for each
the words of its message or its site, unchanged. You may read its site first."""
QUALIFY = f"""QUALIFY
Grade this inquiry. A: the fit is at least {checks.FIT_OF_A}. B: the fit is lower, and pains has a problem. C: neither.
Its yearly value in cents is the yearly budget, if the message states one: quote the words that state it. Otherwise it
is {checks.CENTS_PER_EMPLOYEE} cents for each employee, and the quote is empty."""
PROPOSE = """PROPOSE
Write a proposal to the contact, by name, about the problems in pains. Give the discount that the message asks for, in
percent, or 0. cents is the given value less the discount, rounded down. Meet the objection to an earlier draft, if
there is one. Name no number that is not given, and no link."""
OUTREACH = """OUTREACH
Write one short message to the contact, by name, that announces the proposal. Name no number that is not given, and no
link."""


class Undecided(Exception):
    """The model gave no answer that can be used."""


class Pains(BaseModel):
    """Problems of a company."""

    pains: list[Pain] = Field(max_length=10)


class Outreach(BaseModel):
    """A message to the contact."""

    text: str = Field(min_length=1, max_length=500)


def acquisition_model() -> Model:
    """Return the model that the environment names, else the scripted one of the office."""
    return provided() if os.environ.get("OUTLAST_MODEL") else _scripted(os.environ[ENV])


@functools.lru_cache(maxsize=8)  # a client for each address, so that its connections are used again
def _scripted(url: str) -> Model:
    return ChatCompletions(NAME, url=url)


async def pains_of(ctx: Context[Acquisition]) -> tuple[list[Pain], list[Pain]]:
    """Return the problems that the model names with words of the company, and those without. Raises as `_decide`."""
    read = [ctx.state.message]
    found = await _decide(ctx, PAINS, Pains, "company", "domain", "email", "message", tools=READING, read=read)
    return checks.supported(found.pains, read)


async def qualified(ctx: Context[Acquisition]) -> Qualification:
    """Return the grade that the model gives. Raises as `_decide`."""
    facts = ("company", "employees", "pains", "fit", "message")
    check = functools.partial(checks.objection_to_grade, ctx.state)
    return await _decide(ctx, QUALIFY, Qualification, *facts, check=check)


async def proposal_for(ctx: Context[Acquisition]) -> Proposal:
    """Return the proposal that the model writes. Raises as `_decide`."""
    facts = ("company", "contact", "pains", "cents", "message", "objection")
    return await _decide(ctx, PROPOSE, Proposal, *facts, check=functools.partial(checks.objection_to_draft, ctx.state))


async def outreach_for(ctx: Context[Acquisition]) -> str:
    """Return the message that the model writes. Raises as `_decide`."""
    check: Callable[[Outreach], str] = lambda found: checks.objection_to_message(ctx.state, found.text)  # noqa: E731
    return (await _decide(ctx, OUTREACH, Outreach, "company", "contact", "pains", check=check)).text


async def _decide(
    ctx: Context[Acquisition],
    question: str,
    answer: type[M],
    *facts: str,
    tools: Sequence[Activity[..., Any]] = (),
    check: Callable[[M], str] = lambda found: "",
    read: list[str] | None = None,
) -> M:
    """Return the model's answer to a question about these fields of the state, after the lookups that it proposes.

    An answer to which `check` has an objection is asked for once more. Texts that were read are added to `read`.
    Raises Undecided, the errors of the model.
    """
    known = ctx.state.model_dump(mode="json", include=set(facts))
    messages, objections = [Message(role="user", text=json.dumps(known, sort_keys=True))], 0
    for _ in range(ROUNDS_MAX):
        try:
            found = await propose(ctx, acquisition_model(), messages, result=answer, tools=tools, about=question)
        except Refused as error:
            raise Undecided(f"{error.code}: {error.detail}") from error
        messages += found.messages
        if isinstance(found, TypedAnswer):
            if not (objection := check(found.result)):
                return found.result
            objections += 1
            if objections > OBJECTIONS_MAX:
                raise Undecided(f"the answer contradicts the records: {objection}")
            messages.append(Message(role="user", text=json.dumps({"objection": objection})))
            continue
        for each in await admit(ctx, found):
            call = each.call
            text = f"{each.code}: {each.reason}" if isinstance(each, Rejected) else await _read(ctx, each.plan)
            messages.append(Message(role="tool", text=text, call_id=call.id, tool=call.tool))
            if read is not None and not isinstance(each, Rejected):
                read.append(text)
    raise Undecided(f"the model gave no answer in {ROUNDS_MAX} rounds")


async def _read(ctx: Context[Acquisition], plan: Any) -> str:
    """Return the result of a lookup as text; an error is a result, too."""
    try:
        return str(await ctx.do(plan))
    except (httpx2.HTTPError, Refused) as error:
        return f"no answer: {type(error).__name__}"
