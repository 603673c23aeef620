"""Models of providers by name: any OpenAI-compatible address, or the models of pydantic-ai."""

import os
from functools import lru_cache
from typing import Final

from outlast.agent.chat_completions import ChatCompletions
from outlast.agent.model import Model
from outlast.agent.prices import Price, price_from_environment
from outlast.core.argument_checks import Arguments
from outlast.errors import InvalidInput

NAME: Final = "OUTLAST_MODEL"
URL: Final = "OUTLAST_MODEL_URL"
KEY: Final = "OUTLAST_MODEL_KEY"


def provided(name: str = "") -> Model:
    """Return the model of this `name` ("openai:gpt-5"), by default the one named by `OUTLAST_MODEL`.

    If `OUTLAST_MODEL_URL` is set, every request goes to this OpenAI-compatible address, with `OUTLAST_MODEL_KEY` as
    credential. Otherwise the model is one of pydantic-ai (`pip install 'outlast[pydantic-ai]'`), whose providers read
    their own variables, such as `OPENAI_API_KEY`. `OUTLAST_MODEL_PRICE`, for instance `1.25/10`, is its price for a
    million tokens of input and of output (default: the price list of pydantic-ai). Raises InvalidInput.
    """
    Arguments("provided", of_call=True).is_text("name", name, 'provided("openai:gpt-5")')
    name = name or os.environ.get(NAME, "")
    if not name:
        raise InvalidInput("no model is named", f"{NAME} is not set", f'provided("openai:gpt-5"), or set {NAME}')
    return _provided(name, os.environ.get(URL, ""), os.environ.get(KEY, ""), price_from_environment())


@lru_cache(maxsize=64)  # a client for each model, so that its connections are used again
def _provided(name: str, url: str, key: str, price: Price | None) -> Model:
    if url:
        return ChatCompletions(name, url=url, key=key, price=price)
    from outlast.agent.pydantic_models import PydanticModel

    return PydanticModel(name, price=price)


def model_of(model: Model | str) -> Model:
    """Return a model given as an object or by name. Raises as `provided`."""
    return provided(model) if isinstance(model, str) else model
