"""Requests to models as durable lookups: an answer is stored before it is used, so a crash never pays for it again."""

from typing import Any, Final, cast

from outlast.agent.model import Model, ModelAnswer, ModelRequest
from outlast.core.keys import MODEL
from outlast.flow.activity import KeyedLookup
from outlast.flow.calls import Call, this_call
from outlast.flow.context import Context
from outlast.flow.options import Retry
from outlast.flow.outcomes import Perhaps

REQUEST_TIMEOUT: Final = "5m"
RETRY: Final = Retry(attempts=4, total_wait="5m")
"""Retries of a request. One that may have been paid is repeated once."""


async def _ask(key: str, model: Any, request: Any, stream: bool) -> ModelAnswer:
    """Send a request to a model and return its answer. Report its usage, and with `stream` its words as they come."""
    call, asked = this_call(), cast(Model, model)
    call.set_model(asked.name)
    answer = await _streamed(asked, request, call) if stream else await asked.request(request)
    if not answer.model:
        answer = answer.model_copy(update={"model": asked.name})
    call.used(
        model=answer.model,
        input_tokens=answer.input_tokens,
        output_tokens=answer.output_tokens,
        money=answer.money,
    )
    return answer


async def _streamed(model: Model, request: ModelRequest, call: Call) -> ModelAnswer:
    async for part in model.stream(request):
        if isinstance(part, ModelAnswer):
            return part
        call.stream(part)
    raise Perhaps(f"the stream of {model.name} ended without an answer")


ask_model: Final = KeyedLookup(_ask, name=MODEL, durable=True, timeout=REQUEST_TIMEOUT, retry=RETRY)


async def ask(ctx: Context[Any], model: Model, request: ModelRequest, *, stream: bool = False) -> ModelAnswer:
    """Return the answer of a `model` to a `request`, once per visit of `ctx` and request.

    With `stream`, its words go to the listeners of the run as they come. Raises the errors of the model.
    """
    answer: ModelAnswer = await ctx.do(ask_model, request.digest(model.name)[:32], model, request, stream)
    return answer
