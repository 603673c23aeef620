"""One execution of a node's function, from its first line to a result (S-13, S-16).

An await that parks never resolves in the same execution. The execution closes once it has parked, an effect is
uncertain, the run is cancelled, or the body has returned or raised. From then on no ctx call begins or resolves. All
calls in flight settle before the result is known.

Theory of operation. The body is any code of an author: it may nest tasks, catch every error and wait for anything.
The result of an execution must not depend on that. Faults, and why they do no harm:

1. *A run is parked although its body could go on.* An await of the engine resolves through several turns of the event
   loop, so `_is_at_rest` lets some pass. Then it looks at what each task waits for (`body_tasks`). A task that waits
   for something else, such as a thread, gets a second.
2. *A body goes on after the execution has closed.* Its ctx calls wait without end, so it can read no answer and send
   nothing. Then it is cancelled. One that swallows each cancellation is left behind, and the epoch fences its
   commits.
3. *A body catches an error of the engine* and returns as if nothing had happened. The result is derived from what its
   calls and waits have reported (`_result`), before the value or the error of the body.
4. *An awaiter of a call is cancelled*, by a timeout or a group that fails. The call runs in a separate task and
   settles. The node then runs again, and the ledger answers.
5. *A person is asked while other calls are under way.* They settle first, so that one question shows all.
6. *The executor's task is cancelled.* The body is left behind: its run belongs to another worker.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from outlast.core import effect_verbs
from outlast.core.business_days import BusinessDays
from outlast.core.clock_port import Clock
from outlast.core.commit import Expect
from outlast.core.conclude import Again, Flagged, HandBack, NodeResult, Parked, Raised, Resting, Returned, is_wait
from outlast.core.durations import FOREIGN_AWAIT_GRACE, SECOND, Liveness
from outlast.core.effect_steps import Terms
from outlast.core.failed_calls import EffectKey
from outlast.core.kept_deadlines import WITHIN, deadline_memo, kept_due
from outlast.core.limits import CALLS_PER_VISIT_MAX
from outlast.core.machine import RULES, Reason
from outlast.core.route import EndCancelled, cancel_of
from outlast.core.rows.effect_rows import Memo
from outlast.core.rows.run_columns import Attention, Timer
from outlast.core.rows.run_rows import Run
from outlast.core.run_transition import LogEntry
from outlast.core.state.delta_packets import Delta, DeltaOrigin
from outlast.core.terms import NO_DEADLINE, Deadline, end_of
from outlast.core.usage import NO_LIMITS, Limits
from outlast.engine.attempts import ActivityCaller
from outlast.engine.body_tasks import author_line, waits_forever
from outlast.engine.call_errors import CallErrors
from outlast.engine.commit_chain import ConditionFailed, RunLost, StoreAway
from outlast.engine.delta_sender import DeltaSender
from outlast.engine.expected_calls import ExpectedCalls
from outlast.engine.known_budgets import BudgetCache
from outlast.engine.known_pauses import Breakers, PauseCache
from outlast.engine.lease import Lease
from outlast.engine.limit_seats import CallSeat, RateLimiter, limit_name
from outlast.engine.model_text_writer import ModelTextWriter
from outlast.engine.run_session import RunSession
from outlast.engine.send_window import SendWindow
from outlast.engine.user_code import RaisedByCode, as_exception, ends_process
from outlast.errors import LimitExceeded, Rejected, StoreError
from outlast.flow.calls import executing_node
from outlast.flow.options import Callee
from outlast.flow.workflow import Workflow
from outlast.telemetry.observer import Observer

CANCELS_MAX: Final = 20  # a body that swallows more cancellations is left behind; the epoch fences its commits
TURNS: Final = 8  # turns of the loop until an answer reaches the next ctx call through nested tasks and groups
GIVEN_UP: Final = "the awaiter of a call was cancelled: a call's deadline is the activity's timeout="


class Unresolved(Exception):
    """A call or wait without an answer in this execution. Its awaiter never resolves."""


class WorkerServices(NamedTuple):
    """Services of a worker for the executions of its nodes."""

    clock: Clock
    caller: ActivityCaller
    lease: Lease
    live: Liveness
    terms: Mapping[Callee, Terms]
    """Terms of the calls, by activity or undo."""
    notify: Callable[[Run, Sequence[Attention]], None]
    """Notify operators after the run row records the attention. Never raises or waits (GATE-5)."""
    pauses: PauseCache
    budgets: BudgetCache
    model_texts: ModelTextWriter
    breakers: Breakers
    throttle: RateLimiter
    window: SendWindow
    chance: Callable[[], float]
    """Return a random number in [0, 1), for the jitter of back-off."""
    deltas: DeltaSender
    counted: Callable[..., None]
    """Increment a counter of this worker: its name, then its labels."""
    watch: Observer | None = None
    """Observer of runs, if telemetry is on."""
    errors: CallErrors | None = None
    """Tracebacks of calls for the developer who runs this process (`outlast dev`)."""


class InFlightCall(NamedTuple):
    """Task of a call under way, and the futures that wait for its answer.

    A lookup may be under way in the task of its first awaiter.
    """

    task: asyncio.Task[Any]  # a reference, because the event loop keeps none to a waiting task
    waiters: list[asyncio.Future[Any]]


class CallEnd(NamedTuple):
    """Value or error of a call. `stops`: the exception that ends the process."""

    value: Any = None
    error: Exception | None = None
    resolved: bool = True
    stops: BaseException | None = None


UNRESOLVED: Final = CallEnd(resolved=False)
LeftOpen = tuple[EffectKey, Callable[[], Coroutine[Any, Any, Any]]]
"""An open effect, and the coroutine function that settles it."""


class NodeExecution:
    """One execution of a node. Calls and waits report to it; `run` decides when it ends."""

    __slots__ = (  # a dict of more than 30 attributes is slow: instances share no keys, and no read is cached
        "_again",
        "_ahead",
        "_attention",
        "_body",
        "_broken",
        "_calls",
        "_cancel",
        "_commits",
        "_ended",
        "_expects",
        "_given_up",
        "_hand_back",
        "_held_given_up",
        "_loop",
        "_of_calls",
        "_parked",
        "_settling",
        "_signal",
        "_streamed",
        "_unresolved",
        "_wait_given_up",
        "_woken",
        "abandoned_calls",
        "asked",
        "calls_in_flight",
        "closing",
        "continued_after",
        "expected",
        "first_digests",
        "has_budget",
        "intents",
        "log_entries",
        "observed",
        "progress",
        "reserved",
        "services",
        "session",
        "workflow",
    )

    def __init__(
        self, session: RunSession, workflow: Workflow[Any], services: WorkerServices, *, settling: bool = False
    ) -> None:
        """Create an execution of the run's current node.

        `settling`: only settle open effects, while a person is asked about another one.
        """
        self._settling = settling
        self.session = session
        self.workflow = workflow
        self.services = services
        self.closing = False
        run = session.held.run
        of_tree = run.descent.budget.of_calls if run.root else NO_LIMITS
        self.has_budget = self.own_limits.of_calls != NO_LIMITS or of_tree != NO_LIMITS
        """True if each call needs a look at the budget of the run or of its tree."""
        self.calls_in_flight: dict[EffectKey, InFlightCall] = {}
        self.first_digests: dict[EffectKey, str] = {}  # digest of the first call under each key
        self.intents: set[EffectKey] = set()  # calls of which it has made an intent, also one that has not landed
        self.log_entries: dict[str, LogEntry] = {}  # entries of the engine for the event log: denials
        self.reserved: set[int] = set()  # messages that a wait is about to bind
        self.asked: set[str] = set()  # `wait?key` and `approval?name` of this execution
        self._calls: set[str] = set()  # all calls and waits, also those answered from the ledger
        self._streamed = False
        self._ahead: set[str] | None = None  # recorded calls and waits to which this execution has not come
        self.expected: ExpectedCalls | None = None  # recorded calls of the visit, if this is not its first execution
        self.continued_after = 0  # number of the message since which recorded errors of lookups count
        self.observed: dict[EffectKey, Memo] = {}  # errors of lookups that the body may have caught
        self._loop = asyncio.get_running_loop()
        self._parked: list[Parked] = []
        self._attention: list[Attention] = []
        self._expects: tuple[Expect, ...] = ()
        self._cancel: EndCancelled | None = None
        self._again = ""
        self._commits = session.chain.commits
        self._given_up = False  # the author's code stopped waiting for one of its calls
        self._wait_given_up = False  # or for one of its waits
        self._held_given_up: Attention | None = None  # or for one of its held calls
        self._ended = False  # the body had ended before the engine cancelled it
        self._hand_back = ""
        self._broken: BaseException | None = None
        self._of_calls: set[asyncio.Future[Any]] = set()  # awaited by calls, not by the body
        self._unresolved: set[asyncio.Future[Any]] = set()
        self._body: asyncio.Task[Any] | None = None
        self.abandoned_calls: set[asyncio.Task[None]] = set()
        self.progress = 0  # number of ctx calls that began or were answered
        self._woken = False
        self._signal: asyncio.Future[None] | None = None

    def observe(self, ident: EffectKey, memo: Memo) -> None:
        """Note the error of a lookup. It is recorded with the next intent or wait, unless it ends the body."""
        self.observed[ident] = memo

    def record_observed(self) -> None:
        """Record the errors of lookups that the body has caught, because what follows depends on them (S-13)."""
        session = self.session
        observed, self.observed = self.observed, {}
        for ident, memo in observed.items():
            if ident not in session.held.memos:
                session.chain.submit(effect_verbs.remember(session.held.run, memo))

    def visit_deadline(self) -> Deadline:
        """Return the business time at which waits of this visit end; 0 if the node declares no `within`."""
        run = self.session.held.run
        within = self.workflow.nodes[run.node].within
        if within is None:
            return NO_DEADLINE
        what = f"within of node {run.node}"
        kept = self.session.held.memos.get((run.visit, WITHIN)) if isinstance(within, BusinessDays) else None
        if kept is None:
            deadline = end_of(what, within, run.entered_at)
            if (due := deadline.due) is None:
                return deadline
            kept = deadline_memo(run.tenant, run.run, run.visit, WITHIN, due, self.session.clock.now.business)
            self.session.chain.submit(effect_verbs.remember(run, kept))
        due = kept_due(kept)
        return Deadline(due.ms, due)

    @property
    def own_limits(self) -> Limits:
        """Return the limits of the budget of the run's workflow."""
        return self.workflow.budget.limits if self.workflow.budget is not None else NO_LIMITS

    def awaited_names(self) -> set[str]:
        """Return the names of the waits of this execution, to which signals are sent."""
        return {each.removeprefix("wait?").partition("#")[0] for each in self.asked if each.startswith("wait?")}

    # --- reports of calls and waits ---------------------------------------------------------------
    def park(self, parked: Parked) -> None:
        """Record a wait. The run parks once no task of the execution can continue."""
        self._parked.append(parked)
        self.wake()

    def call_person(self, attention: Attention) -> None:
        """Close the execution because a person must decide."""
        self._attention.append(attention)
        self.close()

    def out_of_budget(self, attention: Attention, read: tuple[Expect, ...]) -> None:
        """Close the execution because a budget is used up, once for all calls. `read`: rows that say so."""
        if all(each.reason is not attention.reason for each in self._attention):
            self._expects = read
            self.call_person(attention)

    def cancelled(self, cancel: EndCancelled) -> None:
        """Close the execution because the run was cancelled."""
        self._cancel = cancel
        self.close()

    def run_again(self, why: str) -> None:
        """Close the execution and begin the node again with fresh rows."""
        self._again = self._again or why
        self.close()

    def hand_back(self, why: str) -> None:
        """Close the execution and release the run, due at once."""
        self._hand_back = why
        self.close()

    def break_off(self, error: BaseException) -> None:
        """Close the execution because a commit was refused or the engine failed."""
        if isinstance(error, ConditionFailed | StoreAway):
            self.run_again(str(error))
        else:
            self._broken = self._broken or error
        self.close()

    @property
    def lingering(self) -> bool:
        """True if the body has returned and only recorded calls are answered."""
        return self.expected is not None and self.expected.lingering

    def close(self) -> None:
        """Stop: from now on no call begins and no ctx call resolves."""
        self.closing = True
        self.wake()

    def may_begin(self) -> bool:
        """Return True if a call requested before the execution closed may still begin.

        It may when a person must decide about an effect: the members of a `do_all` begin together and all settle first.
        It may also when its awaiter gave up at once (S-16).
        """
        stops = self._cancel or self._again or self._hand_back or self._broken
        return not self.closing or (bool(self._attention or self._given_up or self._settling) and not stops)

    def settles(self) -> bool:
        """Return True if a closing execution settles its open effects, because a person is asked about one of them."""
        asks_person = self._settling or bool(self._attention)
        return asks_person and self.may_begin() and all(RULES[a.reason].settles for a in self._attention)

    def has_diverged(self) -> bool:
        """Return True if a person is asked because the body asks for other keys than before."""
        return any(a.reason is Reason.NODE_DIVERGED for a in self._attention)

    def give_up_wait(self) -> None:
        """Close the execution because the author's code cancelled the await of a wait. Its body may still raise."""
        self._wait_given_up = True
        self.close()

    def give_up_held(self, diverged: Attention) -> None:
        """Close the execution because the author's code cancelled a held call.

        A person is asked about the divergence unless the body ends with an exception, which cancels what is beside it.
        """
        self._held_given_up = self._held_given_up or diverged
        self.give_up_wait()

    async def never(self) -> Any:
        """Wait without end, until the execution is over."""
        future = self._loop.create_future()
        self._unresolved.add(future)
        try:
            return await future
        finally:
            self._unresolved.discard(future)

    def note_progress(self) -> None:
        """Note that a ctx call began or was answered. Wakes `run` if it waits for calls to settle."""
        self.progress += 1
        if self._parked or self.expected is not None or self.closing:
            self.wake()

    # --- texts that are not stored ------------------------------------------------------------------
    def stream(self, text: str, key: str = "", attempt: int = 0) -> None:
        """Send a text to those who listen to the run, for an attempt of a call or the node. From any thread."""
        if text and not self.closing:
            run = self.session.held.run
            self._streamed = True
            origin = DeltaOrigin(run.tenant, run.run, run.node, run.visit, run.epoch, key, attempt)
            self.services.deltas.send(Delta(origin, text), self._loop)

    def repeats(self) -> bool:
        """Return True until this execution has reached all calls and waits that the visit has rows of."""
        if self._ahead is None:
            self._ahead = set(_recorded(self.session))
        if self._ahead:
            self._ahead -= self._calls
        return bool(self._ahead)

    # --- calls --------------------------------------------------------------------------------------
    def count_as(self, name: str) -> None:
        """Count a call that is about to begin under the name of its row, too: runs that share it have another key."""
        if self.expected is not None:
            self.expected.ask_for((name,))
        self._calls.add(name)

    def count(self, names: Iterable[str]) -> None:
        """Count calls or waits that are about to begin. Raises LimitExceeded if the visit has too many."""
        if self.expected is not None:
            names = tuple(names)
            self.expected.ask_for(names)
        self._calls.update(names)
        if len(self._calls) > CALLS_PER_VISIT_MAX:
            raise LimitExceeded(
                f"more than {CALLS_PER_VISIT_MAX} calls in one visit",
                "each execution of the visit goes through all of them again",
                "write the loop as a node that returns itself: each round is a visit, with a checkpoint",
            )

    async def call_seat(self, callee: Callee) -> CallSeat | None:
        """Return the right to make one call, or None if `callee` has no rate limit.

        The caller leaves the seat when the call has ended. Raises Unresolved if no seat came free in time and the run
        parks for one (S-17).
        """
        limit = callee.limit
        if limit is None:
            return None
        name, throttle = limit_name(callee), self.services.throttle
        seat = await throttle.enter(name, limit)
        if seat is None:
            now, mapping = self.session.clock.now, self.session.store.mapping()
            waiting, at_real = throttle.wait(name, limit, now.real)
            waiting = waiting._replace(since=now.business, until=mapping.business(at_real))
            self.park(Parked("park", waiting, Timer(waiting.what, at_real, real=True)))
            raise Unresolved
        return seat

    async def deduplicate(
        self,
        ident: EffectKey,
        make: Callable[[], Coroutine[Any, Any, Any]],
        given_up: Callable[[], None] | None = None,
        *,
        within_call: bool = False,
    ) -> Any:
        """Return the answer of the one call under this key.

        `make` begins it if none is in flight. `given_up` is called if the await of a wait is cancelled by its body.
        `within_call`: the caller is itself a call of this execution, which must end. It gets Unresolved if this one is
        not answered, where a body would wait without an end.

        The call runs in a separate task. If an awaiter is cancelled, the execution closes and the call settles
        (S-16).
        """
        mine = self._loop.create_future()
        flight = self.calls_in_flight.get(ident)
        if flight is None:
            self.calls_in_flight[ident] = InFlightCall(self._loop.create_task(self._run_call(ident, make())), [mine])
        else:
            flight.waiters.append(mine)
        if within_call:
            self._of_calls.add(mine)
        try:
            return await mine
        except asyncio.CancelledError:
            if not self.closing:
                if given_up is None:
                    self._given_up = True
                    self.close()
                elif self._body is None or not self._body.done():  # a body that has ended gives up nothing
                    given_up()
            raise

    async def look_up(self, ident: EffectKey, make: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Return the answer of the one lookup under this key, made in the task of its first awaiter.

        A lookup changes nothing, so it may be made twice: if its awaiter is cancelled, it is made again in a separate
        task and settles (S-16).
        """
        if ident in self.calls_in_flight:
            return await self.deduplicate(ident, make)
        task = asyncio.current_task()
        assert task is not None
        flight = self.calls_in_flight[ident] = InFlightCall(task, [])
        end = await self._end_of_call(make())
        if isinstance(end.stops, asyncio.CancelledError) and self.may_begin():
            task = self._loop.create_task(self._run_call(ident, make()))
            self.calls_in_flight[ident] = InFlightCall(task, flight.waiters)
            self._given_up = True
            self.close()
        else:
            self._land(ident, end)
        if end.stops is not None:
            raise end.stops
        if self.closing or not end.resolved:
            await self.never()
        if end.error is not None:
            raise end.error
        return end.value

    async def _run_call(self, ident: EffectKey, work: Coroutine[Any, Any, Any]) -> None:
        end = await self._end_of_call(work)
        if not (self.abandoned_calls and self.is_abandoned()):
            self._land(ident, end)
        if end.stops is not None:
            self.break_off(RaisedByCode(end.stops))
            raise end.stops

    async def _end_of_call(self, work: Coroutine[Any, Any, Any]) -> "CallEnd":
        """Return how a call ended; its error is raised into the author's code unless the execution is closing."""
        try:
            return CallEnd(await work)
        except (RunLost, ConditionFailed, StoreAway) as refused:
            self.break_off(refused)
        except Unresolved:
            pass
        except Rejected as refused:  # no commit can follow in its chain, so the body does not go on either
            refused.add_note(f"the node waited at {self.waiting_at()}")
            self.break_off(refused)
        except StoreError as away:  # a failed read
            self.break_off(StoreAway(away.reason))
        except BaseException as raised:  # because the author's code may raise anything
            if not ends_process(raised):
                return CallEnd(error=as_exception(raised))
            if not isinstance(raised, asyncio.CancelledError):
                self.break_off(RaisedByCode(raised))
            return CallEnd(resolved=False, stops=raised)
        return UNRESOLVED

    def _land(self, ident: EffectKey, end: "CallEnd") -> None:
        waiters = self.calls_in_flight.pop(ident).waiters
        self.note_progress()
        for mine in waiters:
            if mine.done():
                continue
            if self.closing or not end.resolved:
                if mine in self._of_calls:
                    mine.set_exception(Unresolved())
                else:
                    self._unresolved.add(mine)
            elif end.error is not None:
                mine.set_exception(end.error)
            else:
                mine.set_result(end.value)

    def abandon_call(self, ident: EffectKey, error: Exception) -> None:
        """Continue without a call that does not end. Its awaiters get `error`; its answer is ignored."""
        self.abandoned_calls.add(self.calls_in_flight[ident].task)
        self._land(ident, CallEnd(error=error))

    def is_abandoned(self) -> bool:
        """Return True if the current task is an abandoned call."""
        return asyncio.current_task() in self.abandoned_calls

    def waiting_at(self) -> str:
        """Return the file and line of the node where its body waits."""
        return author_line(self._body.get_coro() if self._body is not None else None) or "an await of the engine"

    # --- running ------------------------------------------------------------------------------------
    async def run(
        self,
        body: Callable[[], Awaitable[Any]],
        title: str,
        left_open: Callable[[], Iterable[LeftOpen]] = tuple,
        at_rest: Callable[[asyncio.Task[Any]], None] | None = None,
    ) -> NodeResult:
        """Run the body until the result is known.

        Raises RunLost if another worker holds the run.

        `left_open` returns the open effects. Effects that the body has not asked for settle before a person is called
        about another one (S-16). `at_rest` is called with the body's task before the run parks.
        """
        task = self._body = self._loop.create_task(self._run_body(body, title))
        try:
            while not task.done() and not self.closing:
                waits = self._parked or (self.expected is not None and self.expected.held)
                if waits and not self.calls_in_flight and await self._is_at_rest(task):
                    if self.expected is not None and (stuck := self.expected.stuck()) is not None:
                        self.call_person(stuck)
                    if at_rest is not None and not self.closing:
                        at_rest(task)
                    self.close()
                    break
                if not task.done() and not self.closing:
                    await self._woken_up()
        except asyncio.CancelledError:  # the executor is given up, and the body is left behind
            self.break_off(RunLost())
            raise
        if self.expected is not None and self.expected.missing and not self.closing:
            await self.expected.linger(task)
        self.closing = True
        if self.calls_in_flight:
            await self._calls_ended()
        if self.expected is not None and self._has_returned(task):
            if self.expected.missing:
                self.call_person(self._held_given_up or self.expected.diverged())
            else:
                self.expected.refuse_dropped()
        if (self._attention or self._settling) and self.settles():
            for ident, make in left_open():
                self.calls_in_flight[ident] = InFlightCall(self._loop.create_task(self._run_call(ident, make())), [])
            await self._calls_ended()
        if self._wait_given_up and not task.done():
            await self._may_raise(task)
        if self._held_given_up is not None and not (self.has_diverged() or _has_raised(task)):
            self.call_person(self._held_given_up)
        self._ended = task.done()
        if not self._ended:
            await self._cancel_body(task)
        if self._streamed:  # before the event that says how the node ended
            self.services.deltas.flush()
        return self._result(task)

    async def _run_body(self, body: Callable[[], Awaitable[Any]], title: str) -> Any:
        executing_node.set(title)  # in the context of this task
        try:
            return await body()
        except BaseException as error:  # because a task that ends with SystemExit ends the event loop
            if (raised := as_exception(error)) is not error:
                raise raised  # noqa: B904 - it names its cause
            raise
        finally:
            self.wake()  # the task is done before `run` continues

    async def _woken_up(self) -> None:
        """Wait for a call of `_wake`, unless one has come since the last wait."""
        if not self._woken:
            self._signal = self._loop.create_future()
            await self._signal
        self._woken = False

    async def woken_within(self, seconds: float) -> None:
        """Wait for a call of `wake`, at most so long."""
        if not self._woken:
            self._signal = self._loop.create_future()
            await asyncio.wait([self._signal], timeout=seconds)
        self._woken = False

    async def _calls_ended(self) -> None:
        while self.calls_in_flight:
            await self._woken_up()

    async def _is_at_rest(self, task: asyncio.Task[Any]) -> bool:
        """Return True if no task of the execution can continue.

        Waits some turns of the event loop without progress, then a second for awaits that are not the engine's.
        """
        before = self.progress
        for _ in range(TURNS):
            await asyncio.sleep(0)
            if self.progress != before:
                return False
        if self.progress != before or self.calls_in_flight or task.done() or self.closing:
            return False
        until = self._loop.time() + self._grace()
        while not self.waits_forever(task):
            left = until - self._loop.time()
            if left < 0.001:  # the rest of a subtraction, for which no timer advances
                break
            await asyncio.wait([task], timeout=min(left, FOREIGN_AWAIT_GRACE / SECOND))
            if self.progress != before or self.calls_in_flight or task.done() or self.closing:
                return False
            if self.expected is not None and self.expected.held and await self._ends_while_held():
                return False
        return True

    async def _ends_while_held(self) -> bool:
        """Return True if a cancel, a drain or a pause ends the execution, whose body waits for more than the engine."""
        services, run = self.services, self.session.held.run
        try:
            if (cancel := cancel_of(await self.session.new_messages())) is not None:
                self.cancelled(cancel)
            elif services.lease.draining:
                self.hand_back("the worker drains")
            elif await services.pauses.stopping(run) is not None:
                self.hand_back("it is paused")
        except StoreError as away:  # a failed read
            self.break_off(StoreAway(away.reason))
        return self.closing

    def _grace(self) -> float:
        """Return the seconds for which a task may wait for something that is not the engine's."""
        if self.expected is not None and self.expected.held:
            return self.expected.patience()
        return FOREIGN_AWAIT_GRACE / SECOND

    def _has_returned(self, task: asyncio.Task[Any]) -> bool:
        """Return True if the body's own result decides what follows."""
        stops = self._attention or self._cancel or self._again or self._hand_back or self._broken or self._given_up
        return not (stops or self._parked) and task.done() and not task.cancelled() and task.exception() is None

    def waits_forever(self, waiter: Any) -> bool:
        """Return True if a task or future waits only for awaits of this execution that never resolve."""
        return waits_forever(waiter, self._never_resolves)

    def _never_resolves(self, waiter: Any) -> bool:
        return waiter in self._unresolved or (self.expected is not None and self.expected.is_held(waiter))

    async def _may_raise(self, task: asyncio.Task[Any]) -> None:
        """Let a body that gave up a wait end: an exception of a task group cancels the waits beside it first."""
        for _ in range(TURNS):
            await asyncio.sleep(0)
            if task.done():
                return
        if not self.waits_forever(task):
            await asyncio.wait([task], timeout=FOREIGN_AWAIT_GRACE / SECOND)

    async def _cancel_body(self, task: asyncio.Task[Any]) -> None:
        """Cancel the body. Code in `finally` has no effect: its ctx calls never resolve."""
        for _ in range(CANCELS_MAX):
            task.cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            if task.done():
                break
        else:
            await asyncio.wait([task], timeout=FOREIGN_AWAIT_GRACE / SECOND)
        await self._calls_ended()  # calls that began before the execution closed; the body may begin one in `finally`

    def _result(self, task: asyncio.Task[Any]) -> NodeResult:
        error = task.exception() if task.done() and not task.cancelled() else None
        if self._broken is not None:
            raise self._broken
        if self._attention:
            return Flagged(tuple(self._attention), tuple(self._parked), self._expects)
        if self._cancel is not None:
            return self._cancel
        if self._again:
            return Again(self._again)
        if self._hand_back:
            return HandBack(self._hand_back)
        if self._given_up and self.session.chain.commits > self._commits:
            return Again(GIVEN_UP)
        if error is not None and self._ended and self._parked and all(is_wait(each) for each in self._parked):
            return Raised(error)  # because no later execution asks for more than this one
        if self._parked:
            return Resting(tuple(self._parked))
        if self._given_up:  # because another execution would end the same way
            return Raised(TimeoutError(GIVEN_UP))
        if error is not None:
            return Raised(error)
        if not task.done() or task.cancelled():
            return Raised(asyncio.CancelledError("the node's task was cancelled from within"))
        return Returned(task.result())

    def wake(self) -> None:
        """Let `run` look again whether the body can continue."""
        self._woken = True
        if self._signal is not None and not self._signal.done():
            self._signal.set_result(None)


def _has_raised(task: asyncio.Task[Any]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is not None


def _recorded(session: RunSession) -> Iterator[str]:
    """Yield the calls and waits of which the current visit has rows, as `count` names them."""
    visit = session.held.run.visit
    yield from (f"{e.activity}?{e.key}" for (at, _), e in session.held.effects.items() if at == visit)
    yield from (
        f"{memo.activity}?{memo.key}"
        for (at, _), memo in session.held.memos.items()
        if at == visit and memo.digest and not memo.key.startswith(effect_verbs.UNANSWERED)
    )
    yield from (f"?wait?{name}" for at, name in session.held.waits if at == visit)
    yield from (f"?approval?{a.wait}" for a in session.held.approvals.values() if a.visit == visit)
