"""Requests to models as durable lookups: an answer is stored before it is used, so a crash never pays for it again."""

from typing import Any, Final

from outlast.agent.model import Model, ModelAnswer, ModelRequest
from outlast.core.keys import MODEL
from outlast.flow.activity import KeyedLookup
from outlast.flow.calls import this_call
from outlast.flow.context import Context
from outlast.flow.options import Retry

REQUEST_TIMEOUT: Final = "5m"
RETRY: Final = Retry(attempts=4, total_wait="5m")
"""Retries of a request. One that may have been paid is repeated once."""


async def _ask(key: str, model: Any, request: Any) -> ModelAnswer:
    """Send a request to a model and return its answer."""
    asked: Model = model
    this_call().set_model(asked.name)
    answer: ModelAnswer = await asked.request(request)
    if not answer.model:
        answer = answer.model_copy(update={"model": asked.name})
    this_call().used(
        model=answer.model,
        input_tokens=answer.input_tokens,
        output_tokens=answer.output_tokens,
        money=answer.money,
    )
    return answer


ask_model: Final = KeyedLookup(_ask, name=MODEL, durable=True, timeout=REQUEST_TIMEOUT, retry=RETRY)


async def ask(ctx: Context[Any], model: Model, request: ModelRequest) -> ModelAnswer:
    """Return the answer of a model to a request, once per visit and request. Raises the errors of the model."""
    answer: ModelAnswer = await ctx.do(ask_model, request.digest(model.name)[:32], model, request)
    return answer
