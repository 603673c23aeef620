"""Where the code now running stands: in a walk of a node, in a call of an activity, or in neither."""

from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from outlast.errors import Misplaced


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


current_call: Final[ContextVar[Call | None]] = ContextVar("outlast_call", default=None)
"""Set by the engine around the call of an activity (and, for `def`, in the context its thread runs in)."""

walking: Final[ContextVar[str]] = ContextVar("outlast_walking", default="")
"""Set by the engine for the task that walks a node: «node "pay" of refund»; '' elsewhere."""


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
