"""Port of language models: the request, the answer, and models for tests that need no network."""

import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Protocol, Self, TypeAlias, cast, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, field_validator
from typing_extensions import override

from outlast.agent.prices import FREE, REPORTED, ModelPrice, Price, declared_price
from outlast.core.argument_checks import Arguments
from outlast.core.codec import FrozenDict, canonical, canonical_plain, compact, digest, frozen_json
from outlast.core.limits import KIB
from outlast.core.model_ends import Finish
from outlast.core.usage import AMOUNT_MAX
from outlast.core.visible import is_blank
from outlast.errors import InvalidInput

LEVELS_MAX: Final = 100
"""Levels of a call's arguments."""


class Part(BaseModel):
    """Base of the values that a model gets and returns: immutable, and stored by name."""

    model_config = ConfigDict(frozen=True)


def storable(text: object) -> str:
    """Return text that can be stored: half a surrogate pair becomes a question mark."""
    return str(text).encode(errors="replace").decode()


class ToolCall(Part):
    """A call that a model asks for: the name of a `tool` and its `arguments`, as text if they are not a JSON object.

    `id` is the model's own and connects the call with its result. Arguments that JSON cannot hold (NaN, an infinite
    number, half a surrogate pair, more than 100 levels) become text, so that the answer they belong to can be stored.
    """

    id: str
    tool: str
    arguments: Annotated[dict[str, JsonValue], AfterValidator(frozen_json)] | str = Field(default_factory=FrozenDict)

    @field_validator("id", "tool", mode="before")
    @classmethod
    def _storable_text(cls, given: object) -> str:
        return storable(given)

    @field_validator("arguments", mode="before")
    @classmethod
    def _json_or_text(cls, given: object) -> object:
        if isinstance(given, dict) and is_json(given):
            return given
        try:
            return storable(given if isinstance(given, str) else json.dumps(given))
        except (ValueError, TypeError, RecursionError):
            return storable(type(given).__name__)


def is_json(given: object) -> bool:
    """True if JSON can hold a value, with at most 100 levels."""
    try:
        compact(given).encode()
    except (ValueError, TypeError, RecursionError):
        return False
    levels: list[Any] = [given]
    for _ in range(LEVELS_MAX):
        if not levels:
            return True
        parts = [part for each in levels for part in (each.values() if isinstance(each, dict) else each)]
        levels = [part for part in parts if isinstance(part, dict | list)]
    return not levels


class Message(Part):
    """One message of a transcript.

    - `role`: "user", "assistant" (an answer of the model) or "tool" (the result of one call).
    - `text`: the words; of a tool its result as text.
    - `calls`: the calls of an answer.
    - `call_id`, `tool`: the call that a result belongs to.
    """

    role: Literal["user", "assistant", "tool"]
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    tool: str = ""

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the message without the ids of its calls. A message never changes, so it is computed once."""
        calls = {"__all__": {"id"}}
        return sha256(canonical_plain(self.model_dump(mode="json", exclude={"call_id": True, "calls": calls}))).digest()

    @override
    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        copied = super().model_copy(update=update, deep=deep)
        copied.__dict__.pop("digest", None)  # that of the original
        return copied


class OfferedTool(Part):
    """A tool as a model sees it: name, description and the JSON schema of its parameters."""

    name: str
    description: str = ""
    parameters: dict[str, JsonValue] = Field(default_factory=dict)


ResultBy: TypeAlias = Literal["tool", "response_format", "prompt"]
"""The way in which a request tells a model the type of its result."""
WAYS: Final[tuple[ResultBy, ...]] = get_args(ResultBy)
FINAL: Final = "final_result"
"""Name of the tool that takes a result."""


class ResultFormat(Part):
    """The type that an answer must fit, as a request tells it to a model.

    - `by`: "tool" (the tool `final_result`, which is among the tools of the request), "prompt" (in the instructions of
      the request), or "response_format" (here only: the model sends it as its provider wants it).
    - `name`, `description`, `json_schema`: those of the type.
    """

    by: ResultBy
    name: str
    description: str = ""
    json_schema: dict[str, JsonValue]


class ModelRequest(Part):
    """A request to a model: transcript, offered tools, instructions, settings of the provider, type of the result."""

    messages: tuple[Message, ...]
    tools: tuple[OfferedTool, ...] = ()
    instructions: str = ""
    settings: dict[str, JsonValue] = Field(default_factory=dict)
    result: ResultFormat | None = None

    def digest(self, model: str) -> str:
        """Return the digest that identifies this request to `model`. Ids of calls are not part of it."""
        elsewhere = self.result is None or self.result.by != "response_format"  # in the tools or the instructions
        rest = self.model_dump(mode="json", exclude={"messages", "result"} if elsewhere else {"messages"})
        transcript = sha256(b"".join([message.digest for message in self.messages])).hexdigest()
        return digest(model, canonical(rest), transcript)

    @property
    def answers(self) -> int:
        """Number of answers of the model in the transcript."""
        return sum(message.role == "assistant" for message in self.messages)


End = Literal["stop", "tool_calls", "cut", "filtered", "refusal", "too_large", "empty"]
ANSWER_BYTES_MAX: Final = 200 * KIB
"""A larger answer does not fit its row together with what the ledger adds, so only its head is kept."""
ANSWER_HEAD_CHARS: Final = 4_000
WORDS_CHARS: Final = 1_000


class ModelAnswer(Part):
    """The answer of a model: words, calls, or both, why it ends, and what it used.

    - `model`: the name and version that the provider reports.
    - `money`: the price, if it is known.
    - `finish`: why the provider ended the answer: "cut" at a limit of tokens, "filtered" by the provider, "refusal" by
      the model, "too_large" for the ledger, else "stop". `finish_detail`: the words of the provider for it.
    - `note`: the fault of the reported usage, which was dropped.
    """

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    money: float | None = None
    finish: Finish = "stop"
    finish_detail: str = ""
    note: str = ""

    @field_validator("text", "model", mode="before")
    @classmethod
    def _storable_text(cls, given: object) -> str:
        return storable(given)

    @field_validator("finish_detail", "note", mode="before")
    @classmethod
    def _short_text(cls, given: object) -> str:
        return storable(given)[:WORDS_CHARS]

    @property
    def end(self) -> End:
        """Why the answer ends, as the caller must treat it. Calls count only in an answer that ends "tool_calls"."""
        if self.finish != "stop":
            return self.finish
        if self.calls:
            return "tool_calls"
        return "empty" if is_blank(self.text) else "stop"

    def fitted(self) -> "ModelAnswer":
        """Return the answer if the ledger can hold it; else its head, without calls, with the finish "too_large"."""
        size = len(self.model_dump_json().encode())
        if size <= ANSWER_BYTES_MAX:
            return self
        detail = f"it takes {size:,} bytes, and at most {ANSWER_BYTES_MAX:,} are kept"
        kept = {"text": self.head, "calls": (), "model": self.model[:WORDS_CHARS]}
        return self.model_copy(update={**kept, "finish": "too_large", "finish_detail": detail})

    @property
    def head(self) -> str:
        """The beginning of the words, or without words of the calls."""
        text = self.text or "; ".join(f"{call.tool}({_text_of(call.arguments)})" for call in self.calls[:10])
        return text[:ANSWER_HEAD_CHARS]

    @property
    def message(self) -> Message:
        """The answer as a message of the transcript."""
        return Message(role="assistant", text=self.text, calls=self.calls)


def _text_of(arguments: Mapping[str, JsonValue] | str) -> str:
    text = arguments if isinstance(arguments, str) else compact(arguments)
    return text[:ANSWER_HEAD_CHARS]


def usage_of(reported: Any) -> tuple[int, int, str]:
    """Return the input and output tokens that a provider reports by the names of its API, and what is wrong with them.

    Usage that cannot be (negative, no whole number, no object, more than a budget can count) is dropped as a whole.
    """
    given: Any = reported or {}
    if not isinstance(given, Mapping):
        return 0, 0, f"the provider reported impossible usage, which is not counted: {reported!r}"[:WORDS_CHARS]
    read, made = given.get("prompt_tokens") or 0, given.get("completion_tokens") or 0
    if type(read) is int and type(made) is int and min(read, made) >= 0 and read + made <= AMOUNT_MAX:
        return read, made, ""
    return 0, 0, f"the provider reported impossible usage, which is not counted: {read!r}, {made!r}"


class Model(Protocol):
    """Port of a model. `name` contains the version: "openai:gpt-5".

    A model may have a `price`: a `Price`, or "reported" if its answers carry `money`. Without it, its name must be in
    the price list of pydantic-ai, or a workflow with a money budget starts no run.
    """

    @property
    def name(self) -> str:
        """Name and version of the model, as policies and the history show it."""
        ...

    async def request(self, request: ModelRequest) -> ModelAnswer:
        """Return the answer to a `request`. Raises the errors of its HTTP client, and retries none of them."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[str | ModelAnswer]:
        """Yield the words of the answer as they come, and the whole answer last. Raises as `request`."""
        ...


def declared_result_by(model: Model) -> ResultBy:
    """Return how a request tells `model` the type of a result. Raises DefinitionError."""
    given: ResultBy = getattr(model, "result_by", "tool")
    Arguments(type(model).__name__).one_of("result_by", given, WAYS)
    return given


Answers = Sequence[ModelAnswer | str] | Callable[[ModelRequest], ModelAnswer | str]


class ScriptedModel:
    """A model for tests, called `name`. Its `answers` are a list, or a function of the request.

    The n-th answer of a list belongs to the transcript with n-1 answers, so a re-run or another process gets the same
    one. `requests` holds the requests that this object answered. It costs nothing, unless it gets a `price`.
    `result_by`: "tool", "response_format" or "prompt". Raises IndexError after the last answer.
    """

    def __init__(
        self, answers: Answers, *, name: str = "scripted", price: ModelPrice = FREE, result_by: ResultBy = "tool"
    ) -> None:
        check, given = Arguments("ScriptedModel"), cast(object, answers)
        if not callable(given) and (not isinstance(given, Sequence) or isinstance(given, str | bytes)):
            raise check.wrong("answers", given, "it is a list of answers, or a function of the request", '["done"]')
        check.text("name", name, 'name="scripted"')
        if not isinstance(price, Price) and price != REPORTED:
            raise check.wrong("price", price, 'it is a Price, or "reported"', "price=Price(1.25, 10)")
        check.one_of("result_by", result_by, WAYS)
        self.name: Final = name
        self.price: Final = price
        self.result_by: Final = result_by
        self.requests: Final[list[ModelRequest]] = []
        self._answers = answers

    async def request(self, request: ModelRequest) -> ModelAnswer:
        """Return the answer of the script."""
        self.requests.append(request)
        if callable(self._answers):
            answer = self._answers(request)
        elif request.answers < len(self._answers):
            answer = self._answers[request.answers]
        else:
            raise IndexError(f"the script of {self.name} has {len(self._answers)} answers, and one more was requested")
        return ModelAnswer(text=answer, model=self.name) if isinstance(answer, str) else answer

    async def stream(self, request: ModelRequest) -> AsyncIterator[str | ModelAnswer]:
        """Yield each word of the answer with the space after it, then the answer."""
        answer = await self.request(request)
        for word in re.findall(r"\S+\s*|\s+", answer.text):
            yield word
        yield answer


class RecordingModel:
    """A model that records the answers of an `inner` one in a file, and repeats them without a request.

    Each line of the file at `path` has the digest of a request and its answer. With `inner=None` it only repeats, is
    called `name`, and needs the `result_by` of the recorded model. Raises InvalidInput for a request that the file does
    not have and no inner model answers.
    """

    def __init__(
        self, inner: Model | None, path: Path | str, *, name: str = "recorded", result_by: ResultBy = "tool"
    ) -> None:
        check = Arguments("RecordingModel")
        check.text("name", name, 'name="recorded"')
        if not isinstance(cast(object, path), str | Path):
            raise check.wrong("path", path, "it is the path of a file", 'path="answers.jsonl"')
        if inner is not None and not callable(getattr(inner, "request", None)):
            raise check.wrong("inner", inner, "it is a model, or None", 'RecordingModel(provided("openai:gpt-5"), …)')
        check.one_of("result_by", result_by, WAYS)
        self.name: Final = inner.name if inner is not None else name
        self.result_by: Final[ResultBy] = result_by if inner is None else declared_result_by(inner)
        self.price: Final = REPORTED if inner is None else declared_price(inner)
        self._inner = inner
        self._path = Path(path)
        lines = self._path.read_text(encoding="utf-8").splitlines() if self._path.exists() else []
        entries = [json.loads(line) for line in lines]
        self._known = {each["request"]: ModelAnswer.model_validate(each["answer"]) for each in entries}

    async def request(self, request: ModelRequest) -> ModelAnswer:
        """Return the recorded answer, or record the answer of the inner model."""
        key = request.digest("")
        if (known := self._known.get(key)) is not None:
            return known
        if self._inner is None:
            raise InvalidInput(
                f"{self._path} has no answer to this request",
                f"its digest is {key[:12]}; the prompt, the tools or a result has changed",
                "record again with an inner model",
            )
        answer = self._known[key] = await self._inner.request(request)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"request": key, "answer": answer.model_dump(mode="json")}) + "\n")
        return answer

    async def stream(self, request: ModelRequest) -> AsyncIterator[str | ModelAnswer]:
        """Yield the words of the answer at once, then the answer."""
        answer = await self.request(request)
        if answer.text:
            yield answer.text
        yield answer
