"""Models of providers by name: any OpenAI-compatible address, or the models of pydantic-ai."""

import os
from functools import lru_cache
from typing import Final

from outlast.agent.chat_completions import ChatCompletions
from outlast.agent.model import WAYS, Model, ResultBy
from outlast.agent.prices import Price, price_from_environment
from outlast.core.argument_checks import Arguments
from outlast.errors import InvalidInput

NAME: Final = "OUTLAST_MODEL"
URL: Final = "OUTLAST_MODEL_URL"
KEY: Final = "OUTLAST_MODEL_KEY"
RESULT_BY: Final = "OUTLAST_MODEL_RESULT_BY"


def provided(name: str = "") -> Model:
    """Return the model of this `name` ("openai:gpt-5"), by default the one named by `OUTLAST_MODEL`.

    If `OUTLAST_MODEL_URL` is set, every request goes to this OpenAI-compatible address, with `OUTLAST_MODEL_KEY` as
    credential. Otherwise the model is one of pydantic-ai (`pip install 'outlast[pydantic-ai]'`), whose providers read
    their own variables, such as `OPENAI_API_KEY`. `OUTLAST_MODEL_PRICE`, for instance `1.25/10`, is its price for a
    million tokens of input and of output (default: the price list of pydantic-ai). `OUTLAST_MODEL_RESULT_BY` is how a
    request tells it the type of a result: `tool` (default), `response_format` or `prompt`. Raises InvalidInput.
    """
    Arguments("provided", of_call=True).is_text("name", name, 'provided("openai:gpt-5")')
    name = name or os.environ.get(NAME, "")
    if not name:
        raise InvalidInput("no model is named", f"{NAME} is not set", f'provided("openai:gpt-5"), or set {NAME}')
    url, key = os.environ.get(URL, ""), os.environ.get(KEY, "")
    return _provided(name, url, key, price_from_environment(), _result_by_of_environment())


def _result_by_of_environment() -> ResultBy:
    """Return the way in OUTLAST_MODEL_RESULT_BY; "tool" without one. Raises InvalidInput."""
    text = os.environ.get(RESULT_BY, "") or "tool"
    for way in WAYS:
        if way == text:
            return way
    raise InvalidInput(f"{RESULT_BY} is {text[:100]!r}", f"it is one of {', '.join(WAYS)}", f"{RESULT_BY}={WAYS[0]}")


@lru_cache(maxsize=64)  # a client for each model, so that its connections are used again
def _provided(name: str, url: str, key: str, price: Price | None, result_by: ResultBy) -> Model:
    if url:
        return ChatCompletions(name, url=url, key=key, price=price, result_by=result_by)
    from outlast.agent.pydantic_models import PydanticModel

    return PydanticModel(name, price=price, result_by=result_by)


def model_of(model: Model | str) -> Model:
    """Return a model given as an object or by name. Raises as `provided`."""
    return provided(model) if isinstance(model, str) else model
