"""Plans and calls, and the guard against activities called by their bare name inside a node."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Generic, Protocol, TypeVar

from outlast.core.codec import digest
from outlast.core.durations import SECOND
from outlast.core.limits import KEY_BYTES_MAX
from outlast.core.usage import MODEL_CHARS_MAX, AskedModel, ModelText, Money, Used, count, micros
from outlast.errors import AnswerNotStored, InvalidInput, Misplaced


@dataclass(frozen=True, slots=True)
class LateAnswer:
    """The response that a replaced worker received too late. It is evidence and settles nothing by itself."""

    epoch: int
    """Epoch of the claim that made the call; a later claim has a higher one."""
    status: str
    """The status that this worker would have recorded: done, refused, uncertain, or `not_sent`."""
    response: Any
    """Plain JSON data; None if there was no response."""
    code: str
    """Code of the refusal or failure; empty for a response."""
    detail: str
    """Text of the refusal or failure."""
    at: datetime
    """Business time of its arrival, UTC."""


@dataclass(frozen=True, slots=True)
class Call:
    """The call that an activity's body is making."""

    key: str
    """The rendered key."""
    idempotency_key: str
    """Unique over tenants, runs and visits, equal for each attempt. Send it as `Idempotency-Key`."""
    tenant: str
    """Tenant of the run."""
    run_id: str
    """Id of the run that makes the call."""
    attempt: int
    """Number of the attempt, from 1."""
    deadline: datetime
    """Real time, UTC, at which the engine stops waiting for the response (the activity's `timeout=`)."""
    reconciling: bool = False
    """True inside a reconcile function, which asks about the call and makes none."""
    evidence: tuple[LateAnswer, ...] = ()
    """For a reconcile function: late answers to this call that replaced workers received."""
    _connection: Any = field(default=None, repr=False, compare=False)
    _left: Callable[[], float] = field(default=lambda: math.inf, repr=False, compare=False)
    _stated: list[str] = field(default_factory=list, repr=False, compare=False)
    _used: list[Used] = field(default_factory=list, repr=False, compare=False)
    _stream: Callable[[str, str, int], None] = field(default=lambda *_: None, repr=False, compare=False)
    _asked: list[str] = field(default_factory=list, repr=False, compare=False)

    def seconds_left(self) -> float:
        """Return the seconds for which the engine still waits: negative after the deadline, infinite in a unit test."""
        return self._left()

    @property
    def transaction(self) -> Any:
        """The transaction of an activity declared with `transaction=True`: an asyncpg connection on PostgreSQL.

        On SQLite its `fetch`, `fetchrow` and `fetchval` read the last committed state, and `execute` collects
        statements, which are executed with the effect. Writes commit together with the effect, or not at all. Do not
        commit or roll back. On PostgreSQL a nested `async with connection.transaction()` is a savepoint. Invalid after
        the body returns. Raises Misplaced.
        """
        if self._connection is None:
            raise Misplaced(
                "this_call().transaction in a call without one",
                f"the activity of {self.key} is not declared so",
                "write @activity(…, transaction=True)",
            )
        return self._connection

    def set_external_id(self, external_id: str) -> None:
        """Record `external_id`, the receiver's own id of this call, with the effect, whatever the outcome.

        Never raises, because the call has already happened: an id beyond 500 bytes is cut.
        """
        text = str(external_id).encode(errors="backslashreplace")[:KEY_BYTES_MAX]
        self._stated[:] = [text.decode(errors="ignore")]

    def used(
        self,
        tokens: int = 0,
        money: Money | None = None,
        calls: int = 1,
        model: str = "",
        input_tokens: int = 0,
        output_tokens: int = 0,
    ) -> None:
        """Report what this attempt used. It counts towards budgets, also if the attempt fails afterwards.

        Each report of an attempt is added: `tokens` (default: `input_tokens` plus `output_tokens`), `money` in the
        currency of the budgets, exact to a millionth and rounded up, and `calls`. `model`: for statistics. Tokens or a
        model without `money` count as a request without a price; say `money=0` if it costs nothing. The usage is
        stored together with the answer of the call.

        Never raises, because the call has already happened: a report with an impossible amount counts as one request
        without a price, and the history says so.
        """
        name = str(model).encode(errors="replace").decode()[:MODEL_CHARS_MAX]
        try:
            of_input, of_output = count("input_tokens", input_tokens), count("output_tokens", output_tokens)
            spent, n = count("tokens", tokens) or of_input + of_output, count("calls", calls)
            paid = micros(0 if money is None else money)
        except InvalidInput as error:
            note = f"{name or self.key} reported impossible usage, which is not counted: {error.what}"
            self._used.append(Used(self.attempt, name, 0, 0, 0, 0, 1, 1, note))
            return
        unpriced = n if money is None and (spent or name) else 0
        self._used.append(Used(self.attempt, name, spent, of_input, of_output, paid, n, unpriced))

    def set_model(self, name: str) -> None:
        """Record the `name` of the model that this call asks, as `provider:model`, in the span of the call.

        Say it before the request, so that the span of a failed one has it. `used` names the model that answered.
        """
        self._asked[:] = [str(name)[:MODEL_CHARS_MAX]]

    def stream(self, text: str) -> None:
        """Show `text` to those who listen to the events of the run, as `ctx.stream` does. Nothing is stored.

        A recorded call is not made again, so its text is not sent again. In a unit test it goes nowhere.
        """
        self._stream(text, self.key, self.attempt)


class CallSource(Protocol):
    """Source of a call that is built when the activity asks for it."""

    def call(self) -> Call:
        """Return the call: the same one each time."""


OUTCOME_CHARS: Final = 100
"""Characters that are kept of the name of the error with which a request to a model ended."""
current_call: Final[ContextVar[Call | CallSource | None]] = ContextVar("outlast_call", default=None)
"""Set by the engine around the call of an activity, and in the context of the thread of a `def` activity."""

tool_call: Final[ContextVar[str]] = ContextVar("outlast_tool_call", default="")
"""Id that a model gave the tool call which is being made, for its span; set by the layer that makes the call."""

executing_node: Final[ContextVar[str]] = ContextVar("outlast_executing_node", default="")
"""Set by the engine in the context in which a node is executed: «node "pay" of refund»; '' elsewhere."""


def stated_id(call: Call) -> str:
    """Return the receiver's own id as the activity recorded it; '' if it recorded none."""
    return call._stated[-1] if call._stated else ""


def asked_model(call: Call) -> str:
    """Return the model that the call asks, as it recorded it; '' if it recorded none."""
    return call._asked[-1] if call._asked else ""


def usage_of(call: Call) -> tuple[Used, ...]:
    """Return what the attempt has reported so far with `used`."""
    return tuple(call._used)


@contextmanager
def model_request(call: Call, texts: tuple[ModelText, ModelText]) -> Iterator[Callable[[str], None]]:
    """Record the time and the texts of a request to a model with the usage that the body reports.

    Yields a function that notes the end of an answer that cannot be used. A request that raises is recorded with the
    name of its error, without usage.
    """
    before, left, outcome = len(call._used), call.seconds_left(), ""

    def ends(end: str) -> None:
        nonlocal outcome
        outcome = end

    try:
        yield ends
    except BaseException as error:  # raised again after it is noted
        outcome = type(error).__name__[:OUTCOME_CHARS]
        if len(call._used) == before:
            call._used.append(Used(call.attempt, asked_model(call), 0, 0, 0, 0, 0))
        raise
    finally:
        took = left - call.seconds_left()
        ms = max(1, round(took * SECOND)) if math.isfinite(took) else 0
        prompt, tools = (text.digest for text in texts)
        for n, used in enumerate(call._used[before:], before):
            call._used[n] = used._replace(asked=AskedModel(prompt, tools, ms, outcome, texts))


def call_under_way() -> Call | None:
    """Return the call that the running activity makes, or None outside of one."""
    call = current_call.get()
    return call if call is None or isinstance(call, Call) else call.call()


def this_call() -> Call:
    """Return the call that the running activity makes. Raises Misplaced outside of one."""
    call = call_under_way()
    if call is None:
        raise Misplaced(
            "this_call() outside of a call",
            "it answers only while the engine runs an activity",
            "in a unit test, set it first: outlast.flow.calls.current_call.set(Call(…))",
        )
    return call


def refuse_bare_call(name: str) -> None:
    """Raise Misplaced if an activity is called by its name inside a node, because the ledger would miss the call."""
    node = executing_node.get()
    if node and current_call.get() is None:
        raise Misplaced(
            f"{name}() was called directly inside {node}",
            "the ledger does not record such a call, so every re-run would make it again",
            f"write: await ctx.do({name}, …)",
        )


R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True, eq=False)
class Plan(Generic[R_co]):
    """A call that has not been made: activity, key and arguments as canonical JSON. An approval covers a plan.

    Made by `activity.plan(…)` from the name of the `activity`, the rendered `key` and the canonical JSON `arguments`.
    Plans are equal if their digests are: `digest` is the SHA-256 over all three.
    """

    activity: str
    key: str
    arguments: bytes
    digest: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def approval_digest(self, tenant: str, run_id: str) -> str:
        """Return the digest that an approval names: `tenant`, `run_id`, activity, rendered key and arguments (S-20)."""
        return digest(tenant, run_id, self.activity, self.key, self.arguments)


@dataclass(frozen=True, slots=True)
class RecordedCall(Generic[R_co]):
    """A call in the ledger of a run that has the activity and the key of a plan.

    - `visit`: the visit that it belongs to; 0 for a call once per run or tenant.
    - `same`: True if it has exactly the arguments of the plan.
    - `done`: True if it was done and not undone.
    - `response`: the response of a call that is done, else None.
    - `unstored`: the error of a call that is done, if its answer cannot be stored.
    - `made_in`: the visit of this run that made it; 0 if it is not known, or if another run may have made it.
    - `under_way`: True for a child run that has not ended.
    """

    visit: int
    same: bool
    done: bool
    response: R_co | None
    unstored: AnswerNotStored | None = None
    made_in: int = 0
    under_way: bool = False
