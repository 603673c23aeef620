"""What a node is given: the interface through which it reads its run, acts, and waits.

The engine fills it. For unit tests of a node, subclass it and override what the node uses.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Generic, Literal, ParamSpec, TypeVar, overload
from uuid import UUID

from pydantic import BaseModel, JsonValue

from outlast.core.durations import Duration
from outlast.flow.activity import Activity
from outlast.flow.approval_rule import Decision, Rule
from outlast.flow.calls import Plan
from outlast.flow.outcomes import Refusal
from outlast.flow.policy import Verdict

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound=BaseModel)
M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")
K = TypeVar("K")
SLEEP: Final = "sleep"
"""The name of a sleep that was given none."""


class Context(Generic[S]):
    """A node's view of its run. All it answers is fixed within a visit: every walk of the visit sees the same.

    Names and keys must come out the same on each walk; values may differ. `state` is kept by the node's return
    only: what a walk changed before a wait, a retry or a crash is discarded, and the next walk starts from the
    state at entry.
    """

    state: S
    """A copy of its own for each walk; change it freely."""
    tenant: str
    run_id: str
    visit: int
    """The number of the entry into this node; unchanged by waits, retries, crashes and takeovers."""
    entered_at: datetime
    """Business time (UTC) of the entry into this node."""

    # --- acting ----------------------------------------------------------------------------
    @overload
    async def do(self, activity: Activity[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    async def do(self, plan: Plan[R], /) -> R: ...
    async def do(self, call: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Make a call and return its response; if it was made before, return the recorded response.

        `call` is an activity, followed by its arguments, or a plan that was made before or chosen by a person.
        Raises Refused if the receiver refused the call (the same on every re-run), Conflict if the ledger has
        the key with other arguments, InvalidInput if the arguments do not fit.
        """
        raise NotImplementedError

    @overload
    async def do_all(self, plans: Mapping[K, Plan[T]], /, *, at_most: int = ...) -> dict[K, T]: ...
    @overload
    async def do_all(
        self, plans: Mapping[K, Plan[T]], /, *, at_most: int = ..., refused: Literal["return"]
    ) -> dict[K, T | Refusal]: ...
    @overload
    async def do_all(self, plans: Sequence[Plan[T]], /, *, at_most: int = ...) -> list[T]: ...
    @overload
    async def do_all(
        self, plans: Sequence[Plan[T]], /, *, at_most: int = ..., refused: Literal["return"]
    ) -> list[T | Refusal]: ...
    async def do_all(self, plans: Any, /, *, at_most: int = 0, refused: str = "raise") -> Any:
        """Make several calls concurrently and return their responses: a dict for a dict, a list for a list.

        `at_most` limits the number of calls under way at a time (0: no limit). With `refused="return"`, a refused
        call yields a Refusal in its place. Otherwise raises Refused for the first refused call in the order
        of `plans`, after all calls have settled. Raises InvalidInput if an option has an impossible value.
        """
        raise NotImplementedError

    async def approval(
        self,
        plan: Plan[R],
        /,
        *,
        summary: str,
        by: Rule,
        within: timedelta,
        valid_for: timedelta = timedelta(hours=24),
        name: str = "",
        alternatives: Sequence[Plan[R]] = (),
        again: bool = False,
        risk: Literal["", "low", "medium", "high"] = "",
        not_requester: bool = False,
        quorum: int = 1,
        editable: Sequence[str] = (),
    ) -> Decision[R]:
        """What a person who satisfies `by` decides on exactly this plan, or on one of the alternatives.

        `within` bounds the decision, `valid_for` (counted from it) the doing. Silence beyond `within` is never an
        answer: the run goes to attention. `name` tells several approvals of one visit apart (default: the
        activity's name); `again` offers "reject and go round once more". From here on nothing else of these
        activities runs in this run without an approval of its own.

        `not_requester`: whoever requested the run may not decide. `quorum`: so many different people have to approve
        the same plan; one rejection rejects. `editable`: arguments that a decision may change; the changed plan is
        then `chosen`, and what it replaced cannot run. Raises InvalidInput.
        """
        raise NotImplementedError

    # --- asking policy ---------------------------------------------------------------------
    async def allowed(self, activities: Sequence[Activity[..., Any]], /) -> list[Activity[..., Any]]:
        """Those of these activities that a model may be offered in this visit, in the same order (GATE-6).

        Recorded, and the same on every walk of the visit. It is no permission: each write is asked about again.
        """
        raise NotImplementedError

    async def check(self, plan: Plan[Any], /, *, proposed_by: str = "") -> Verdict:
        """What policy says of a plan that somebody, perhaps a model, proposed. Nothing is done.

        Recorded, a denial as an event of the run's history too, and the same on every walk of the visit. An Allow
        is no permission: `ctx.do` asks again.
        """
        raise NotImplementedError

    # --- waiting ---------------------------------------------------------------------------
    @overload
    async def sleep(self, duration: Duration, /, *, name: str = ...) -> None: ...
    @overload
    async def sleep(self, /, *, until: datetime, name: str = ...) -> None: ...
    async def sleep(self, duration: Any = None, /, *, until: Any = None, name: str = SLEEP) -> None:
        """Wait for a duration ("12h", a `timedelta`), or until an instant. The run is parked meanwhile.

        The duration counts from the first execution of this line in the visit, in business time. `name` tells two
        sleeps of one visit apart.
        """
        raise NotImplementedError

    @overload
    async def receive(self, name: str, model: type[M], /) -> M: ...
    @overload
    async def receive(self, name: str, model: type[M], /, *, timeout: Duration) -> M | None: ...
    @overload
    async def receive(self, name: str, model: type[M], /, *, until: datetime) -> M | None: ...
    async def receive(self, name: str, model: type[M], /, *, timeout: Any = None, until: Any = None) -> Any:
        """Wait for the first unconsumed signal of this name and return its payload.

        Returns None at the deadline: `timeout` is a duration from the first execution of this line in the visit,
        `until` an instant. Without either, the run waits until a signal arrives.
        """
        raise NotImplementedError

    @overload
    async def collect(
        self, name: str, model: type[M], /, *, timeout: Duration, limit: int | None = None
    ) -> list[M]: ...
    @overload
    async def collect(self, name: str, model: type[M], /, *, until: datetime, limit: int | None = None) -> list[M]: ...
    async def collect(
        self, name: str, model: type[M], /, *, timeout: Any = None, until: Any = None, limit: int | None = None
    ) -> list[M]:
        """Return all signals of this name that arrive before the deadline, in order of arrival.

        The deadline is that of `receive`. Returns earlier once there are `limit` signals.
        """
        raise NotImplementedError

    # --- what would otherwise differ between walks -----------------------------------------
    def now(self) -> datetime:
        """Business time (UTC), fixed within the visit: the time of entry."""
        raise NotImplementedError

    def uuid(self, name: str, /) -> UUID:
        """An id that is the same on every walk of this visit, different for each name, visit and run."""
        raise NotImplementedError

    def random(self, name: str, /) -> float:
        """A number ≥ 0 and < 1 that is the same on every walk of this visit; one for each name."""
        raise NotImplementedError

    # --- telling ---------------------------------------------------------------------------
    def log(self, key: str, text: str, /, **data: JsonValue) -> None:
        """Add a line to the run's history, once per key and visit. Kept by the node's next wait or its return."""
        raise NotImplementedError

    # --- producing -------------------------------------------------------------------------
    async def emit(self, result: BaseModel | JsonValue, /, *, key: str, kind: str = "") -> None:
        """Keep a row of what this run produces, under a key of your own within the run.

        Emitting under the same key again replaces the row: a repeated walk adds nothing. Rows are stored in chunks
        while the node works, the last of them before the node's return or wait is; one that could not be stored is
        emitted again by the next walk. `kind`: what it is (default: the model's name). Raises NotStorable,
        LimitExceeded, InvalidInput (no key).
        """
        raise NotImplementedError
