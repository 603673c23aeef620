"""The context of a node: how it reads its run, makes calls, asks people and waits.

The engine implements this interface. To test a node alone, subclass it and override the methods that the node uses.
"""

from collections.abc import Collection, Coroutine, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from typing import Any, Final, Generic, Literal, ParamSpec, overload
from uuid import UUID

from pydantic import BaseModel, JsonValue
from typing_extensions import TypeVar  # its defaults are in typing from Python 3.13 on

from outlast.core.business_days import BusinessDays
from outlast.core.durations import Duration, Term
from outlast.flow.activity import Activity
from outlast.flow.approval_rule import Approvers, Decision
from outlast.flow.calls import Plan, RecordedCall, current_call
from outlast.flow.child_handle import ChildHandle, Input, ParentHandle, RunsFunction, RunsGraph
from outlast.flow.fan_out import FanOut
from outlast.flow.outcomes import Refusal
from outlast.flow.policy import Verdict

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound=BaseModel, default=Any)
M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")
K = TypeVar("K")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
F = TypeVar("F")
G = TypeVar("G")
H = TypeVar("H")
SLEEP: Final = "sleep"
"""The name of a sleep that was given none."""


class Context(Generic[S]):
    """A node's interface to its run. Its answers are fixed within a visit: every re-run of the node gets the same ones.

    Names and keys must be the same on each re-run; values may differ. Only a node's return stores `state`: a wait, a
    retry or a crash discards its changes, and the next re-run starts from the state at entry.
    """

    state: S
    """A copy for each execution of the node; change it freely."""
    tenant: str
    run_id: str
    visit: int
    """Number of this entry into the node. Waits, retries, crashes and takeovers do not change it."""
    entered_at: datetime
    """Business time (UTC) at which the run entered this node."""
    parent: ParentHandle | None
    """The run that has started this run; None if no run has, and in a fork."""

    # --- acting ----------------------------------------------------------------------------
    @overload
    async def do(self, activity: Activity[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    async def do(self, plan: Plan[R], /, *, proposed: bool = ...) -> R: ...
    async def do(self, call: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Make a call and return its response; if it was made before, return the recorded response.

        The call is an `activity`, followed by its arguments, or a `plan` that was made before or chosen by a person.

        `proposed=True` is for a plan that a model has proposed. If policy denies it, `do` raises Refused with the code
        `policy_denied` instead of sending the run to attention. If only an approval is missing, because one was
        requested for another call of the activity, the same approvers are asked. A call that was sent before and may
        not be sent again still goes to attention.

        Raises Refused if the receiver refused the call (the same on every re-run), Conflict if the ledger has
        the key with other arguments, InvalidInput if the arguments do not fit.
        """
        raise NotImplementedError

    @overload
    async def do_all(
        self, plans: Mapping[K, Plan[T]], /, *, at_most: int = ..., proposed: bool = ...
    ) -> dict[K, T]: ...
    @overload
    async def do_all(
        self, plans: Mapping[K, Plan[T]], /, *, at_most: int = ..., refused: Literal["return"], proposed: bool = ...
    ) -> dict[K, T | Refusal]: ...
    @overload
    async def do_all(self, plans: Sequence[Plan[T]], /, *, at_most: int = ..., proposed: bool = ...) -> list[T]: ...
    @overload
    async def do_all(
        self, plans: Sequence[Plan[T]], /, *, at_most: int = ..., refused: Literal["return"], proposed: bool = ...
    ) -> list[T | Refusal]: ...
    @overload
    async def do_all(
        self,
        plans: Mapping[K, Plan[T]],
        /,
        *,
        at_most: int = ...,
        proposed: bool = ...,
        min_successful: int,
        tolerated_failures: int | None = ...,
    ) -> FanOut[K, T]: ...
    @overload
    async def do_all(
        self,
        plans: Mapping[K, Plan[T]],
        /,
        *,
        at_most: int = ...,
        proposed: bool = ...,
        min_successful: int | None = ...,
        tolerated_failures: int,
    ) -> FanOut[K, T]: ...
    @overload
    async def do_all(
        self,
        plans: Sequence[Plan[T]],
        /,
        *,
        at_most: int = ...,
        proposed: bool = ...,
        min_successful: int,
        tolerated_failures: int | None = ...,
    ) -> FanOut[int, T]: ...
    @overload
    async def do_all(
        self,
        plans: Sequence[Plan[T]],
        /,
        *,
        at_most: int = ...,
        proposed: bool = ...,
        min_successful: int | None = ...,
        tolerated_failures: int,
    ) -> FanOut[int, T]: ...
    async def do_all(
        self,
        plans: Any,
        /,
        *,
        at_most: int = 0,
        refused: str = "raise",
        proposed: bool = False,
        min_successful: int | None = None,
        tolerated_failures: int | None = None,
    ) -> Any:
        """Make several calls concurrently and return their responses: a dict for a dict, a list for a list.

        `at_most` limits the number of calls under way at a time (0: no limit). With `refused="return"`, a refused
        call yields a Refusal in its place. Otherwise raises Refused for the first refused call in the order
        of `plans`, after all calls have settled. `proposed` is that of `do`.

        With `min_successful` or `tolerated_failures` the result is a `FanOut`, and nothing is raised for a call that
        failed: one that was refused, whose answer cannot be stored, or a lookup that raised.

        - `min_successful`: enough when so many have completed.
        - `tolerated_failures`: too few when more have failed; also when `min_successful` can no longer complete.

        From then on no call starts. One that waits for an approval, a budget or a seat has not started. Calls that have
        started are awaited and count as what they became; one that is uncertain waits for its answer as ever. Each
        re-run gets the same set. Raises InvalidInput if an option has an impossible value.
        """
        raise NotImplementedError

    async def approval(
        self,
        plan: Plan[R],
        /,
        *,
        summary: str,
        by: Approvers,
        within: Term,
        valid_for: Term = "24h",
        name: str = "",
        alternatives: Sequence[Plan[R]] = (),
        again: bool | int = False,
        risk: Literal["", "low", "medium", "high"] = "",
        not_requester: bool = False,
        quorum: int = 1,
        editable: Sequence[str] = (),
        formerly: str = "",
        round: int | None = None,
    ) -> Decision[R]:
        """Ask a person whom `by` allows to decide on a `plan`, or on one of the alternatives.

        From now on, this run makes no other call of these activities without an approval. A decision that does not
        come in time sends the run to attention.

        - `summary`: what the person reads; `risk`: how it is marked in lists.
        - `by`: who may decide, such as `role("finance")`, `person("ana")`, or a list of which any may.
        - `within`: the time for the decision; `valid_for`: the time from the decision to the call. Either is a duration
          or `business_days`.
        - `name`: tells several approvals of one visit apart (default: the activity's name).
        - `alternatives`: other plans that may be approved instead.
        - `again`: offers "reject and try once more"; a number says how many such rounds are left.
        - `not_requester`: the person who requested the run may not decide.
        - `quorum`: number of different people who must approve the same plan; one rejection rejects.
        - `editable`: arguments that an approver may change; the changed plan is `chosen`, the original cannot run.
        - `formerly`: an earlier `name`. It is kept where the visit has asked for this plan under it.
        - `round`: see `receive`.

        Raises InvalidInput.
        """
        raise NotImplementedError

    # --- showing progress ------------------------------------------------------------------
    def stream(self, text: str, /) -> None:
        """Show `text` to those who listen to the events of this run, for instance the words of a model as they come.

        Nothing is stored: it is no event, and a listener that is away or behind misses it. It never waits. When the
        node is executed again, texts are sent from the first call that has no answer yet. Inside an activity or a
        lookup write `this_call().stream(text)`.
        """
        raise NotImplementedError

    # --- asking policy ---------------------------------------------------------------------
    async def allowed(self, activities: Sequence[Activity[..., Any]], /) -> list[Activity[..., Any]]:
        """Return those of `activities` that a model may be offered in this visit, in the given order (GATE-6).

        The answer is recorded, so that every re-run gets the same one. It permits nothing: policy is asked again
        before each write.
        """
        raise NotImplementedError

    async def check(self, plan: Plan[Any], /, *, proposed_by: str = "") -> Verdict:
        """Return the verdict of policy on a `plan`, for instance one that a model proposed. Makes no call.

        `proposed_by` is a name for the policy and the history. The verdict is recorded, so that every re-run gets the
        same one; a denial is also an event of the run. An Allow permits nothing: `ctx.do` asks policy again.
        """
        raise NotImplementedError

    async def recorded(self, plan: Plan[R], /) -> list[RecordedCall[R]]:
        """Return the calls in the ledger of this run that have the activity and the key of `plan`, by visit.

        Makes no call and records nothing. It sees what has happened until now, so a re-run may get more.
        """
        raise NotImplementedError

    # --- waiting ---------------------------------------------------------------------------
    @overload
    async def sleep(self, duration: Duration, /, *, name: str = ..., round: int | None = ...) -> None: ...
    @overload
    async def sleep(self, /, *, until: datetime | BusinessDays, name: str = ..., round: int | None = ...) -> None: ...
    async def sleep(
        self, duration: Any = None, /, *, until: Any = None, name: str = SLEEP, round: int | None = None
    ) -> None:
        """Wait for a `duration` ("12h", a `timedelta`), or `until` an instant or the end of `business_days`.

        The run leaves memory while it waits.

        The duration counts from the first execution of this line in the visit, in business time. `name` and `round`
        tell two sleeps of one visit apart.
        """
        raise NotImplementedError

    @overload
    async def receive(self, name: str, model: type[M], /, *, round: int | None = ...) -> M: ...
    @overload
    async def receive(self, name: str, model: type[M], /, *, timeout: Term, round: int | None = ...) -> M | None: ...
    @overload
    async def receive(
        self, name: str, model: type[M], /, *, until: datetime | BusinessDays, round: int | None = ...
    ) -> M | None: ...
    async def receive(
        self, name: str, model: type[M], /, *, timeout: Any = None, until: Any = None, round: int | None = None
    ) -> Any:
        """Wait for the first unconsumed signal of this `name` and return its payload as a `model`.

        Returns None at the deadline: `timeout` is a duration from the first execution of this line in the visit,
        `until` an instant. Either may be `business_days`. Without either, the run waits until a signal arrives.

        `round` tells several waits for one name in one visit apart: a number that rises with each. Signals are sent to
        the name. The earlier wait must have ended before the next one begins.
        """
        raise NotImplementedError

    @overload
    async def collect(
        self, name: str, model: type[M], /, *, timeout: Term, limit: int | None = None, round: int | None = ...
    ) -> list[M]: ...
    @overload
    async def collect(
        self,
        name: str,
        model: type[M],
        /,
        *,
        until: datetime | BusinessDays,
        limit: int | None = None,
        round: int | None = ...,
    ) -> list[M]: ...
    async def collect(
        self,
        name: str,
        model: type[M],
        /,
        *,
        timeout: Any = None,
        until: Any = None,
        limit: int | None = None,
        round: int | None = None,
    ) -> list[M]:
        """Return all signals of this `name` that arrive before the deadline, in order of arrival, each as a `model`.

        The deadline is that of `receive`: `timeout` or `until`. Returns earlier once there are `limit` signals.
        `round`: see `receive`.
        """
        raise NotImplementedError

    @overload
    async def first(
        self, a: Coroutine[Any, Any, A], b: Coroutine[Any, Any, B], /
    ) -> tuple[Literal[0], A] | tuple[Literal[1], B]: ...
    @overload
    async def first(
        self, a: Coroutine[Any, Any, A], b: Coroutine[Any, Any, B], c: Coroutine[Any, Any, C], /
    ) -> tuple[Literal[0], A] | tuple[Literal[1], B] | tuple[Literal[2], C]: ...
    @overload
    async def first(
        self,
        a: Coroutine[Any, Any, A],
        b: Coroutine[Any, Any, B],
        c: Coroutine[Any, Any, C],
        d: Coroutine[Any, Any, D],
        /,
    ) -> tuple[Literal[0], A] | tuple[Literal[1], B] | tuple[Literal[2], C] | tuple[Literal[3], D]: ...
    @overload
    async def first(
        self,
        a: Coroutine[Any, Any, A],
        b: Coroutine[Any, Any, B],
        c: Coroutine[Any, Any, C],
        d: Coroutine[Any, Any, D],
        e: Coroutine[Any, Any, E],
        /,
    ) -> (
        tuple[Literal[0], A] | tuple[Literal[1], B] | tuple[Literal[2], C] | tuple[Literal[3], D] | tuple[Literal[4], E]
    ): ...
    @overload
    async def first(
        self,
        a: Coroutine[Any, Any, A],
        b: Coroutine[Any, Any, B],
        c: Coroutine[Any, Any, C],
        d: Coroutine[Any, Any, D],
        e: Coroutine[Any, Any, E],
        f: Coroutine[Any, Any, F],
        /,
    ) -> (
        tuple[Literal[0], A]
        | tuple[Literal[1], B]
        | tuple[Literal[2], C]
        | tuple[Literal[3], D]
        | tuple[Literal[4], E]
        | tuple[Literal[5], F]
    ): ...
    @overload
    async def first(
        self,
        a: Coroutine[Any, Any, A],
        b: Coroutine[Any, Any, B],
        c: Coroutine[Any, Any, C],
        d: Coroutine[Any, Any, D],
        e: Coroutine[Any, Any, E],
        f: Coroutine[Any, Any, F],
        g: Coroutine[Any, Any, G],
        /,
    ) -> (
        tuple[Literal[0], A]
        | tuple[Literal[1], B]
        | tuple[Literal[2], C]
        | tuple[Literal[3], D]
        | tuple[Literal[4], E]
        | tuple[Literal[5], F]
        | tuple[Literal[6], G]
    ): ...
    @overload
    async def first(
        self,
        a: Coroutine[Any, Any, A],
        b: Coroutine[Any, Any, B],
        c: Coroutine[Any, Any, C],
        d: Coroutine[Any, Any, D],
        e: Coroutine[Any, Any, E],
        f: Coroutine[Any, Any, F],
        g: Coroutine[Any, Any, G],
        h: Coroutine[Any, Any, H],
        /,
    ) -> (
        tuple[Literal[0], A]
        | tuple[Literal[1], B]
        | tuple[Literal[2], C]
        | tuple[Literal[3], D]
        | tuple[Literal[4], E]
        | tuple[Literal[5], F]
        | tuple[Literal[6], G]
        | tuple[Literal[7], H]
    ): ...
    @overload
    async def first(self, waits: Mapping[K, Coroutine[Any, Any, T]], /) -> tuple[K, T]: ...
    async def first(self, *waits: Any) -> Any:
        """Wait for the first of several waits and return its position and its value; the others are closed.

            match await ctx.first(ctx.receive("bid", Bid), ctx.sleep("48h"), ctx.approval(plan, …)):
                case 0, bid: …
                case 1, _: …
                case 2, decision: …

        It takes two to eight waits that nothing else awaits (`a`, `b`, `c`, `d`, `e`, `f`, `g`, `h`): calls of
        `receive`, `collect`, `sleep`, `approval`, `run`, and of a child handle's `result`. A mapping `waits` of them
        returns the key instead of the position. One commit ends the first and closes the others, so each re-run gets
        the same one, even if others could end by then.

        Of several messages and decisions the one that arrived first wins. A deadline wins only if each of them came at
        or after it; of two deadlines the earlier one. A rejection wins as an approval does. A signal that a closed wait
        has not taken stays for later waits, under another `name` or `round`. An approval that lost is withdrawn. A
        child of `run` that lost is cancelled, and this run's end waits for it. An approval whose time runs out does not
        end the others: an operator is asked, and they go on.

        Raises InvalidInput, with file and line, for what is no wait.
        """
        raise NotImplementedError

    # --- child runs ------------------------------------------------------------------------
    @overload
    async def run(self, workflow: RunsFunction[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    async def run(
        self,
        workflow: RunsGraph[R],
        input: Input,
        /,
        *,
        key: str = "",
        once_per: Literal["visit", "run"] = "visit",
        parent_close: Literal["cancel", "abandon"] = "cancel",
        undo: Plan[Any] | BaseModel | None = None,
        no_undo: str = "",
        scheduler: str = "",
    ) -> R: ...
    @overload
    async def run(
        self,
        workflow: str,
        input: Input,
        /,
        *,
        key: str = "",
        once_per: Literal["visit", "run"] = "visit",
        parent_close: Literal["cancel", "abandon"] = "cancel",
        undo: Plan[Any] | BaseModel | None = None,
        no_undo: str = "",
        scheduler: str = "",
    ) -> Any: ...
    async def run(self, workflow: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Start a child run of `workflow` and wait for its outcome. A re-run finds the child that it has started.

        A workflow of one function takes its arguments: `ctx.run(research, topic="tin")`. With options, and for a graph,
        give the `input`: `ctx.run(research, research.arguments(topic="tin"), key="tin")`. Arguments and
        options cannot be mixed. A name is untyped and takes a mapping: `ctx.run("research", {"topic": "tin"})`.

        - `key`: identity of the child in this run (default, also for "": the key that its workflow derives from the
          input, else its name and a digest of the input); `once_per`: within the visit or the whole run.
        - `undo`: a plan that undoes the child after it has completed, if this run ends failed or cancelled, or the
          input of a workflow that does so: `cancel_room.arguments(room)`. `no_undo`: why nothing is to be undone. A
          child whose workflow makes writes needs one of them.
        - `parent_close`: the fate of a living child when this run ends. "cancel": a run that fails or is cancelled
          cancels it and waits for its end before it undoes its own effects; a run that completes waits for it.
          "abandon": it goes on alone.
        - `scheduler`: engine that schedules it (default: that of this run).

        Raises ChildFailed if it has failed or was cancelled, Conflict if the key is recorded with another input or the
        workflow's own key was started by another run, InvalidInput, LimitExceeded (8 runs deep; 1,000 living children).
        """
        raise NotImplementedError

    @overload
    async def start(self, workflow: RunsFunction[P, R], /, *args: P.args, **kwargs: P.kwargs) -> ChildHandle[R]: ...
    @overload
    async def start(
        self,
        workflow: RunsGraph[R],
        input: Input,
        /,
        *,
        key: str = "",
        once_per: Literal["visit", "run"] = "visit",
        parent_close: Literal["cancel", "abandon"] = "cancel",
        undo: Plan[Any] | BaseModel | None = None,
        no_undo: str = "",
        scheduler: str = "",
    ) -> ChildHandle[R]: ...
    @overload
    async def start(
        self,
        workflow: str,
        input: Input,
        /,
        *,
        key: str = "",
        once_per: Literal["visit", "run"] = "visit",
        parent_close: Literal["cancel", "abandon"] = "cancel",
        undo: Plan[Any] | BaseModel | None = None,
        no_undo: str = "",
        scheduler: str = "",
    ) -> ChildHandle[Any]: ...
    async def start(self, workflow: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Start a child run of `workflow` and return its handle. A re-run finds the child that it has started.

        Arguments, options (`key`, `once_per`, `undo`, `no_undo`, `parent_close`, `scheduler`) and errors, but
        ChildFailed, are those of `run`; `input` is its input.
        """
        raise NotImplementedError

    @overload
    async def map(
        self,
        workflow: RunsGraph[R],
        inputs: Mapping[str, Input],
        /,
        *,
        at_most: int = 100,
        min_successful: int | None = None,
        tolerated_failures: int | None = None,
        key: str = "",
        undo: Mapping[str, Plan[Any] | BaseModel] | None = None,
        no_undo: str = "",
    ) -> FanOut[str, R]: ...
    @overload
    async def map(
        self,
        workflow: str,
        inputs: Mapping[str, Input],
        /,
        *,
        at_most: int = 100,
        min_successful: int | None = None,
        tolerated_failures: int | None = None,
        key: str = "",
        undo: Mapping[str, Plan[Any] | BaseModel] | None = None,
        no_undo: str = "",
    ) -> FanOut[str, Any]: ...
    async def map(self, workflow: Any, inputs: Any, /, **options: Any) -> Any:
        """Run `workflow` once for each of the `inputs`, and return the results by key, in the order of the inputs.

        `await ctx.map(research, {"tin": research.arguments("tin"), …}, at_most=20)`. At most 10,000 inputs. They must
        be the same on each re-run; otherwise a person is asked.

        - `at_most`: children that live at a time, from 1 to 1,000. The next one is started when one has ended. The
          node is executed again once, when the map has ended.
        - `min_successful`: the map ends when so many have completed. `tolerated_failures`: it ends when more have
          failed or were cancelled. Children that still run are cancelled then, and the map waits for their ends; the
          others are `not_started`. Without both it waits for all.
        - `key`: identity of the map in this visit, with its inputs (default: the name of the workflow). The keys of
          its children begin with it: `research/tin`.
        - `undo`: for each key what undoes the child after it has completed, as in `run`; at most 1,000 inputs then.
          `no_undo`: why nothing is to be undone. A workflow that makes writes needs one of them.

        A failed child raises nothing: `raise_failed`, `values` and `errors` of the result do what you need.

        Raises InvalidInput, LimitExceeded, Conflict if the visit has a map of this key and these inputs.
        """
        raise NotImplementedError

    def child(self, key: str, /) -> ChildHandle[Any]:
        """Return the handle of a child that this run has started under `key`, also in an earlier visit.

        Of several, that of the latest visit. Raises NotFound.
        """
        raise NotImplementedError

    async def ended(
        self, children: Collection[ChildHandle[Any]], /, *, wait: bool = False, round: int | None = None
    ) -> list[ChildHandle[Any]]:
        """Return those of `children` that have ended, in the order of their ends. Their `result()` needs no wait.

        With `wait`, the run waits until at least one has ended; without children it waits for none. Each re-run of the
        visit gets the same list. `round` tells several of these calls in one visit apart: see `receive`.

        Raises InvalidInput for what is no handle of this run, Conflict for a second call with the same `round`.
        """
        raise NotImplementedError

    # --- values that would otherwise differ between re-runs --------------------------------
    def now(self) -> datetime:
        """Return the business time (UTC) at which the run entered the node; it is fixed within the visit."""
        raise NotImplementedError

    def uuid(self, name: str, /) -> UUID:
        """Return an id that each re-run of this visit gets again. It differs by `name`, visit and run."""
        raise NotImplementedError

    def random(self, name: str, /) -> float:
        """Return a number from 0 to below 1 that each re-run of this visit gets again. It differs by `name`."""
        raise NotImplementedError

    # --- logging ---------------------------------------------------------------------------
    def log(self, key: str, text: str, /, **data: JsonValue) -> None:
        """Add an entry to the run's history: `text` and `data`, once per `key` and visit.

        The entry is durable about 10 ms after the node next awaits something, while the node goes on. Of a node that
        returns first it lands with the checkpoint. A crash loses entries that are not durable yet; the re-run writes
        them again if it reaches their lines. Raises InvalidInput, NotStorable, LimitExceeded.
        """
        raise NotImplementedError

    # --- results ---------------------------------------------------------------------------
    async def emit(self, result: BaseModel | JsonValue, /, *, key: str, kind: str = "") -> None:
        """Store a `result` of this run under a `key` of the author's choice.

        A second result under the same key replaces the first, so a re-run adds nothing. Results are stored in chunks
        while the node works, the last chunk before the node's return or wait. The next re-run emits again any that
        could not be stored. `kind` names the type of result (default: the model's name). Raises NotStorable,
        LimitExceeded, InvalidInput (empty key).
        """
        raise NotImplementedError


executing_context: Final[ContextVar[Context[Any] | None]] = ContextVar("outlast_executing_context", default=None)
"""Set by the engine in the context in which a node is executed."""


def current_context() -> Context[Any] | None:
    """Return the context of the node that is executed, or None outside of one and inside of a call.

    For libraries that make calls on behalf of a node. The code of a node has its context as a parameter.
    """
    return executing_context.get() if current_call.get() is None else None
