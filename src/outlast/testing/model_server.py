"""A fake provider of models: an OpenAI-compatible HTTP server that answers by script and records each paid request."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from outlast.agent.model import ModelAnswer
from outlast.core.argument_checks import Arguments
from outlast.core.limits import COUNT_MAX
from outlast.testing.fake_receivers import Behaviour, Duplicates, FakeReceivers
from outlast.testing.http_receiver import HttpRequest

PATH: Final = "/chat/completions"
URL: Final = "OUTLAST_MODEL_URL"
WORDS_IN_CHUNK: Final = 3
Script = Sequence[ModelAnswer | str] | Callable[[dict[str, Any]], ModelAnswer | str]


class ModelServer(FakeReceivers):
    """An OpenAI-compatible server at `url`, for tests of agents. Use `with ModelServer([…]) as models:`.

    - `answers`: a list, of which the n-th answer belongs to a transcript with n-1 answers, or a function of the
      parsed request. A crash or another process does not change which answer belongs to a request.
    - `misbehave`: behaviours for the attempts of the n-th answer (from 0), for instance `{1: [too_many()]}`.
      `status(500, acts=True)` fails after the request was paid, `cuts()` in the middle of the answer.
    - `duplicates`: an attempt with an Idempotency-Key that was paid before is answered ("answer") or paid again
      ("act"), as by a provider that ignores such keys.
    - `env`: the variable that holds the address, here and in processes under test.
    """

    def __init__(
        self,
        answers: Script = (),
        *,
        misbehave: Mapping[int, Sequence[Behaviour]] | None = None,
        duplicates: Duplicates = "answer",
        env: str = URL,
    ) -> None:
        super().__init__(env=env)
        completions(self, answers, misbehave=misbehave, duplicates=duplicates)

    @property
    def paid(self) -> int:
        """Number of requests that were paid, whether or not their answers arrived."""
        return self.executed(route=PATH)


def completions(
    receivers: FakeReceivers,
    answers: Script,
    *,
    misbehave: Mapping[int, Sequence[Behaviour]] | None = None,
    duplicates: Duplicates = "answer",
) -> FakeReceivers:
    """Add a model to `receivers`, at the address `receivers.url`.

    `answers`, `misbehave` and `duplicates` are those of `ModelServer`.
    """
    check, given = Arguments("completions"), cast(object, answers)
    if not callable(given) and (not isinstance(given, Sequence) or isinstance(given, str | bytes)):
        raise check.wrong("answers", given, "it is a list of answers, or a function of the request", '["done"]')
    if misbehave is not None and not isinstance(cast(object, misbehave), Mapping):
        raise check.wrong("misbehave", misbehave, "it maps numbers of answers to behaviours", "{1: [too_many()]}")
    for n, script in (misbehave or {}).items():
        check.number("misbehave", n, 0, COUNT_MAX)
        check.members("misbehave", script, Behaviour, "list behaviours: {1: [too_many()]}")
    scripts = dict(misbehave or {})

    def reply(request: HttpRequest) -> Any:
        body = json.loads(request.body)
        if callable(answers):
            answer = answers(body)
        else:
            n = answers_in(body)
            answer = answers[n] if n < len(answers) else f"the script has {len(answers)} answers"
        return _completion(body, ModelAnswer(text=answer) if isinstance(answer, str) else answer)

    return receivers.route(
        PATH,
        reply=reply,
        duplicates=duplicates,
        encoded=_encoded,
        script_of=lambda request: scripts.get(answers_in(json.loads(request.body)), ()),
    )


def answers_in(body: Mapping[str, Any]) -> int:
    """Return the number of answers of the model in the transcript of a request."""
    return sum(message.get("role") == "assistant" for message in body.get("messages", ()))


def _completion(body: Mapping[str, Any], answer: ModelAnswer) -> dict[str, Any]:
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {
                "name": call.tool,
                "arguments": call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments),
            },
        }
        for call in answer.calls
    ]
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
    if calls:
        message["tool_calls"] = calls
    if answer.finish == "refusal":
        message["refusal"] = answer.finish_detail
    given = answer.input_tokens or len(json.dumps(body)) // 4
    made = answer.output_tokens or max(1, len(json.dumps(message)) // 4)
    return {
        "id": f"chatcmpl-{answers_in(body)}",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": answer.model or str(body.get("model") or "scripted"),
        "choices": [{"index": 0, "message": message, "finish_reason": _finish(answer)}],
        "usage": {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made},
    }


def _finish(answer: ModelAnswer) -> str:
    """Return the reason of the provider for the end of an answer."""
    reasons = {"cut": "length", "filtered": "content_filter"}
    return reasons.get(answer.finish, "tool_calls" if answer.calls else "stop")


def _encoded(request: HttpRequest, completion: Any) -> bytes:
    """Return a completion as JSON, or as events if the request asks for a stream."""
    if not json.loads(request.body).get("stream"):
        return json.dumps(completion).encode()
    message = completion["choices"][0]["message"]
    words = (message.get("content") or "").split(" ")
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    for at in range(0, len(words), WORDS_IN_CHUNK):
        text = " ".join(words[at : at + WORDS_IN_CHUNK])
        deltas.append({"content": text if at == 0 else f" {text}"})
    deltas += [{"refusal": message["refusal"]}] if "refusal" in message else []
    deltas += [{"tool_calls": [{"index": n, **call}]} for n, call in enumerate(message.get("tool_calls", ()))]
    head = {name: completion[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    chunks = [{**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    end = {"index": 0, "delta": {}, "finish_reason": completion["choices"][0]["finish_reason"]}
    chunks += [{**head, "choices": [end]}, {**head, "choices": [], "usage": completion["usage"]}]
    return b"".join(f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks) + b"data: [DONE]\n\n"
