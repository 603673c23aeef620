"""Where the code now running stands: in a walk of a node, in a call of an activity, or in neither."""

import math
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from outlast.core.codec import digest
from outlast.core.limits import KEY_BYTES_MAX
from outlast.errors import Misplaced

if TYPE_CHECKING:
    import asyncpg  # the extra `postgres`: who has it may call `transaction`


@dataclass(frozen=True, slots=True)
class LateAnswer:
    """What a worker that had been replaced was told too late: evidence, which settles nothing by itself."""

    epoch: int
    """Of the claim that made the call: a higher one came later."""
    status: str
    """What that worker would have recorded: `done`, `refused` or `uncertain`; `not_sent`: it did not call."""
    response: Any
    """As plain JSON data; None where there was none."""
    code: str
    detail: str
    at: datetime
    """When it came, business time, UTC."""


@dataclass(frozen=True, slots=True)
class Call:
    """What an activity's body may know of the call it is making."""

    key: str
    """The rendered key: unique within its scope."""
    idempotency_key: str
    """Unique over tenants, runs and visits, the same for each attempt: send it as `Idempotency-Key`."""
    tenant: str
    run_id: str
    attempt: int
    """1 for the first."""
    deadline: datetime
    """Real time, UTC: when the engine stops waiting for the answer (the activity's `timeout=`)."""
    reconciling: bool = False
    """True inside a reconcile function: it asks about the call, and makes none."""
    evidence: tuple[LateAnswer, ...] = ()
    """For a reconcile function: what replaced workers were told of this very call, read just before it was asked."""
    _connection: Any = field(default=None, repr=False, compare=False)
    _left: Callable[[], float] = field(default=lambda: math.inf, repr=False, compare=False)
    _stated: list[str] = field(default_factory=list, repr=False, compare=False)

    def seconds_left(self) -> float:
        """How long the engine still waits for the answer; below 0 once it does not; infinite in a unit test."""
        return self._left()

    @property
    def transaction(self) -> "asyncpg.Connection[Any]":
        """The open transaction of an activity declared with `transaction=True`: what is written through this
        connection commits together with the effect, or not at all. It is of use until the body returns; the body
        neither commits nor rolls back (a nested `async with …transaction()` is a savepoint). Raises Misplaced.
        """
        if self._connection is None:
            raise Misplaced(
                "this_call().transaction in a call without one",
                f"the activity of {self.key} is not declared so",
                "write @activity(…, transaction=True)",
            )
        return self._connection  # type: ignore[no-any-return]

    def set_external_id(self, external_id: str) -> None:
        """State the receiver's own id of what this call did: it is kept with the effect, whatever follows.

        Never raises, since by then it has happened: an id beyond 500 bytes is cut.
        """
        text = str(external_id).encode(errors="backslashreplace")[:KEY_BYTES_MAX]
        self._stated[:] = [text.decode(errors="ignore")]


current_call: Final[ContextVar[Call | None]] = ContextVar("outlast_call", default=None)
"""Set by the engine around the call of an activity (and, for `def`, in the context its thread runs in)."""

walking: Final[ContextVar[str]] = ContextVar("outlast_walking", default="")
"""Set by the engine for the task that walks a node: «node "pay" of refund»; '' elsewhere."""


def stated_id(call: Call) -> str:
    """The receiver's own id, as the activity stated it; '' if it did not."""
    return call._stated[-1] if call._stated else ""


def this_call() -> Call:
    """The call whose body asks. Raises Misplaced outside of one."""
    call = current_call.get()
    if call is None:
        raise Misplaced(
            "this_call() outside of a call",
            "it answers only while the engine runs an activity",
            "in a unit test, set it first: outlast.flow.calls.current_call.set(Call(…))",
        )
    return call


def refuse_bare_call(name: str) -> None:
    """Raises Misplaced when an activity is called by its name inside a node: the ledger would not know of it."""
    node = walking.get()
    if node and current_call.get() is None:
        raise Misplaced(
            f"{name}() was called directly inside {node}",
            "such a call is not in the ledger: it would be made again on every walk",
            f"write: await ctx.do({name}, …)",
        )


R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True, eq=False)
class Plan(Generic[R_co]):
    """One call, not yet made: activity, key and arguments as canonical JSON. What an approval covers.

    Made by `activity.plan(…)`. Two plans are equal when their digests are.
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
        """What an approval of this plan in this run is about: tenant, run, activity, rendered key, arguments (S-20)."""
        return digest(tenant, run_id, self.activity, self.key, self.arguments)
