"""Requests to models as durable lookups: an answer is stored before it is used, so a crash never pays for it again."""

from typing import Any, Final, cast

from outlast.agent.model import Model, ModelAnswer, ModelRequest, usage_of
from outlast.agent.prices import MILLION, price_of
from outlast.core.keys import MODEL
from outlast.core.model_texts import texts_of_request
from outlast.core.usage import AMOUNT_MAX, MICROS, ModelText
from outlast.flow.activity import KeyedLookup
from outlast.flow.calls import Call, model_request, this_call
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
    with model_request(call, _texts_of(request)) as ends:
        answer = await _streamed(asked, request, call) if stream else await asked.request(request)
        answer = _checked(asked, answer)
        call.used(
            model=answer.model,
            input_tokens=answer.input_tokens,
            output_tokens=answer.output_tokens,
            money=answer.money,
        )
        ends(answer.end if answer.end not in ("stop", "tool_calls") else "")
    return answer


def _texts_of(request: ModelRequest) -> tuple[ModelText, ModelText]:
    return texts_of_request(request.instructions, [tool.model_dump(mode="json") for tool in request.tools])


def _checked(model: Model, answer: ModelAnswer) -> ModelAnswer:
    """Return an answer that the ledger can hold, with the model that gave it, plausible usage and the price."""
    changes: dict[str, Any] = {} if answer.model else {"model": model.name}
    tokens = {"prompt_tokens": answer.input_tokens, "completion_tokens": answer.output_tokens}
    given, made, note = usage_of(tokens)
    if note:
        changes |= {"input_tokens": given, "output_tokens": made, "note": note}
    if answer.money is not None and not 0 <= answer.money <= AMOUNT_MAX / MICROS:
        changes |= {"money": None, "note": f"the model reported an impossible price: {answer.money}"}
    elif answer.money is None and (price := price_of(model, given, made)) is not None:
        if given or made or price_of(model, MILLION, MILLION) == 0:
            changes["money"] = float(price)
        elif not (note or answer.note):  # a request always has tokens
            changes["note"] = "the provider reported no usage, so its price is not known"
    return (answer.model_copy(update=changes) if changes else answer).fitted()


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
    key = request.digest(model.name)[:32]
    answer: ModelAnswer = await ctx.do(ask_model, key, model, request, stream)
    if answer.note:
        ctx.log(f"model/{key}", f"{answer.model}: {answer.note}")
    return answer
