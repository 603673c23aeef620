"""One execution of a node's function: what it may still begin, when it is over, and what it came to (S-13, S-16).

A parked await never resolves in this walk. Once something has parked, doubted or been cancelled, or the body has
returned or raised, the walk is closing: no further ctx call resolves or begins, every call in flight settles, and
only then is there a verdict.
"""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, Final, NamedTuple

from outlast.core.budget import FOREIGN_AWAIT_GRACE, SECOND, Liveness
from outlast.core.clock import Clock
from outlast.core.limits import CALLS_PER_VISIT_MAX
from outlast.core.machine import Reason
from outlast.core.moves import LogEntry
from outlast.core.overlay import Armed, Attention
from outlast.core.route import EndCancelled
from outlast.core.rows import Hold, Run
from outlast.engine.attempts import ActivityCaller, SendWindow
from outlast.engine.lease import Lease
from outlast.engine.node_result import Again, Flagged, HandBack, Parked, Raised, Resting, Returned, Verdict
from outlast.engine.pauses import Breakers
from outlast.engine.rate_limit import CallSlot, Throttle, limit_name
from outlast.engine.run_session import ConditionFailed, EffectKey, RunLost, RunSession, StoreAway
from outlast.engine.user_code import RaisedByCode, as_exception, ends_process
from outlast.errors import LimitExceeded, Rejected, StoreError
from outlast.flow.callee import Callee
from outlast.flow.calls import walking
from outlast.flow.source import place
from outlast.flow.workflow import Workflow
from outlast.telemetry.observer import Observer

CANCELS_MAX: Final = 20  # a body that swallows so many cancellations is left behind; the epoch fences what it does


class WorkerServices(NamedTuple):
    """What a walk is given by its worker."""

    clock: Clock
    caller: ActivityCaller
    lease: Lease
    live: Liveness
    notify: Callable[[Run, Sequence[Attention]], None]
    """Tell people, after the row says it; never raises, never waits (GATE-5)."""
    held: Callable[[str, Sequence[str]], Awaitable[Hold | None]]
    """The stop sign that is up for a tenant under one of these keys, if any; raises StoreError."""
    breakers: Breakers
    throttle: Throttle
    window: SendWindow
    chance: Callable[[], float]
    """A random number in [0, 1), for the jitter of back-off."""
    counted: Callable[..., None]
    """Raise a counter of this worker by one: its name, then its labels (telemetry)."""
    watch: Observer | None = None
    """The eyes of this process, if it has any."""


class InFlightCall(NamedTuple):
    """A call under way, and who waits for it."""

    task: asyncio.Task[None]  # the loop itself holds no task that waits
    waiters: list[asyncio.Future[Any]]


LeftOpen = tuple[EffectKey, Callable[[], Coroutine[Any, Any, Any]]]
"""An open effect, and what brings it to its outcome."""


class NodeExecution:
    """One walk. Effects and waits report here; the runner decides here."""

    def __init__(
        self, session: RunSession, workflow: Workflow[Any], services: WorkerServices, *, settling: bool = False
    ) -> None:
        """`settling`: it only brings open effects to their outcome, while a person is asked about another."""
        self._settling = settling
        self.session = session
        self.workflow = workflow
        self.services = services
        self.closing = False
        self.calls_in_flight: dict[EffectKey, InFlightCall] = {}  # calls under way
        self.begun: dict[EffectKey, str] = {}  # the digest each write of this walk was asked for with
        self.log_entries: dict[str, LogEntry] = {}  # what the engine has to say of this walk: denials
        self.reserved: set[int] = set()  # messages a wait of this walk is about to bind
        self.asked: set[str] = set()  # waits already asked for in this walk
        self._calls: set[str] = set()  # all calls and waits of this walk, answered from the ledger or not
        self._loop = asyncio.get_running_loop()
        self._parked: list[Parked] = []
        self._attention: list[Attention] = []
        self._cancel: EndCancelled | None = None
        self._again = ""
        self._commits = session.commits
        self._given_up = False  # the author's code no longer waits for one of its ctx calls
        self._hand_back = ""
        self._broken: BaseException | None = None
        self._unresolved: set[asyncio.Future[Any]] = set()
        self._body: asyncio.Task[Any] | None = None
        self.abandoned_calls: set[asyncio.Task[None]] = set()  # calls that do not end
        self.progress = 0  # ctx calls begun or answered
        self._signal = self._loop.create_future()

    def visit_deadline(self) -> int:
        """Business: where the node declares `within`, no wait of its visit lasts beyond it; 0 = it declares none."""
        node = self.workflow.nodes[self.session.run.node]
        return self.session.run.entered_at + int(node.within.total_seconds() * SECOND) if node.within else 0

    # --- what effects and waits say ---------------------------------------------------------------
    def park(self, parked: Parked) -> None:
        """Something waits: the run will be given back once nothing else of the walk can run on."""
        self._parked.append(parked)
        self._wake()

    def call_person(self, attention: Attention) -> None:
        """Close: a person must look."""
        self._attention.append(attention)
        self.close()

    def cancelled(self, cancel: EndCancelled) -> None:
        """Close: the run was cancelled."""
        self._cancel = cancel
        self.close()

    def run_again(self, why: str) -> None:
        """Close, and walk the node again."""
        self._again = self._again or why
        self.close()

    def hand_back(self, why: str) -> None:
        """Close, and give the run back, due at once."""
        self._hand_back = why
        self.close()

    def break_off(self, error: BaseException) -> None:
        """Close: a commit of this walk was refused (Lost, Moved, StoreAway), or the engine itself failed."""
        if isinstance(error, ConditionFailed | StoreAway):
            self.run_again(str(error))
        else:
            self._broken = self._broken or error
        self.close()

    def close(self) -> None:
        """From here on nothing begins and no ctx call resolves."""
        self.closing = True
        self._wake()

    def may_begin(self) -> bool:
        """May a call that was asked for before the walk closed still begin? After a doubt it may: the members of a
        do_all are begun together and all settle first; so may one whose awaiter gave up at once (S-16)."""
        stops = self._cancel or self._again or self._hand_back or self._broken
        return not self.closing or (bool(self._attention or self._given_up or self._settling) and not stops)

    def settles(self) -> bool:
        """True if a closing walk goes on with its open effects, because a person is asked about one of them."""
        doubts = self._settling or bool(self._attention)
        return doubts and self.may_begin() and all(a.reason is Reason.EFFECT_UNCERTAIN for a in self._attention)

    async def never(self) -> Any:
        """Never resolves in this walk."""
        future = self._loop.create_future()
        self._unresolved.add(future)
        try:
            return await future
        finally:
            self._unresolved.discard(future)

    def note_progress(self) -> None:
        """A ctx call began or was answered: a runner that waits for rest, or for calls to settle, looks anew."""
        self.progress += 1
        if self._parked or self.closing:
            self._wake()

    # --- calls --------------------------------------------------------------------------------------
    def count(self, names: Iterable[str]) -> None:
        """These calls or waits are about to begin. Raises LimitExceeded where they are too many for one visit."""
        self._calls.update(names)
        if len(self._calls) > CALLS_PER_VISIT_MAX:
            raise LimitExceeded(
                f"more than {CALLS_PER_VISIT_MAX} calls in one visit",
                "each walk of the visit goes through all of them again",
                "write the loop as a node that returns itself: each round is a visit, with a checkpoint",
            )

    async def call_slot(self, callee: Callee) -> CallSlot | None:
        """Return the right to make one call, or None if `callee` has no rate limit.

        The caller leaves the slot when the call has ended. Raises Unresolved if no slot came free in time and the run
        parks for one (S-17).
        """
        limit = callee.limit
        if limit is None:
            return None
        name, throttle = limit_name(callee), self.services.throttle
        slot = await throttle.enter(name, limit)
        if slot is None:
            now, mapping = self.session.now, self.session.store.mapping()
            waiting, at_real = throttle.wait(name, limit, now.real)
            waiting = waiting._replace(since=now.business, until=mapping.business(at_real))
            self.park(Parked("park", waiting, Armed(waiting.what, at_real, real=True)))
            raise Unresolved
        return slot

    async def deduplicate(self, ident: EffectKey, make: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """The answer of the one flight of this key; `make` begins it if there is none.

        The flight is a task of its own: an awaiter that is cancelled closes the walk, and the flight settles (S-16).
        """
        mine = self._loop.create_future()
        flight = self.calls_in_flight.get(ident)
        if flight is None:
            self.calls_in_flight[ident] = InFlightCall(self._loop.create_task(self._run_call(ident, make())), [mine])
        else:
            flight.waiters.append(mine)
        try:
            return await mine
        except asyncio.CancelledError:
            if not self.closing:
                self._given_up = True
                self.close()
            raise

    async def _run_call(self, ident: EffectKey, work: Coroutine[Any, Any, Any]) -> None:
        value: Any = None
        error: Exception | None = None
        stops: BaseException | None = None
        resolved = True
        try:
            value = await work
        except (RunLost, ConditionFailed, StoreAway) as refused:
            resolved = False
            self.break_off(refused)
        except Unresolved:
            resolved = False
        except Rejected as refused:  # what the author's code made cannot be stored
            error = refused
        except StoreError as away:  # a read that failed
            resolved = False
            self.break_off(StoreAway(away.reason))
        except BaseException as raised:  # raised into the author's code, or kept by a closing walk
            if ends_process(raised):
                resolved, stops = False, raised
                self.break_off(RaisedByCode(raised))
            else:
                error = as_exception(raised)
        if not (self.abandoned_calls and self.is_abandoned()):
            self._land(ident, value, error, resolved=resolved)
        if stops is not None:
            raise stops

    def _land(self, ident: EffectKey, value: Any, error: Exception | None, *, resolved: bool = True) -> None:
        waiters = self.calls_in_flight.pop(ident).waiters
        self.note_progress()
        for mine in waiters:
            if mine.done():
                continue
            if self.closing or not resolved:
                self._unresolved.add(mine)
            elif error is not None:
                mine.set_exception(error)
            else:
                mine.set_result(value)

    def abandon_call(self, ident: EffectKey, error: Exception) -> None:
        """Go on without a call that does not end: its awaiters get `error`; its own answer changes nothing any more."""
        self.abandoned_calls.add(self.calls_in_flight[ident].task)
        self._land(ident, None, error)

    def is_abandoned(self) -> bool:
        """True in a call that the walk goes on without."""
        return asyncio.current_task() in self.abandoned_calls

    def waiting_at(self) -> str:
        """Return the file and line of the node where its body waits."""
        coro: Any = self._body.get_coro() if self._body is not None else None
        while (frame := getattr(coro, "cr_frame", None)) is not None:
            if not frame.f_globals.get("__name__", "").startswith("outlast."):  # the engine's own are around it
                return place(frame.f_code.co_filename, frame.f_lineno)
            coro = coro.cr_await
        return "an await of the engine"

    # --- running ------------------------------------------------------------------------------------
    async def run(
        self, body: Callable[[], Awaitable[Any]], title: str, left_open: Callable[[], Iterable[LeftOpen]] = tuple
    ) -> Verdict:
        """Walk until the verdict is known. Raises Lost when the run is no longer ours.

        `left_open`: the open effects. Those that the body has not asked for settle before a person is called about
        another (S-16).
        """
        context = contextvars.copy_context()
        context.run(walking.set, title)
        task = self._body = self._loop.create_task(self._run_body(body), context=context)
        while not task.done() and not self.closing:
            if self._parked and not self.calls_in_flight and await self._is_at_rest(task):
                self.close()
                break
            if not task.done() and not self.closing:
                await self._signal
                self._signal = self._loop.create_future()
        self.closing = True
        if self.calls_in_flight:
            await self._calls_ended()
        if (self._attention or self._settling) and self.settles():
            for ident, make in left_open():
                self.calls_in_flight[ident] = InFlightCall(self._loop.create_task(self._run_call(ident, make())), [])
            await self._calls_ended()
        if not task.done():
            await self._cancel_body(task)
        return self._verdict(task)

    async def _calls_ended(self) -> None:
        while self.calls_in_flight:
            await self._signal
            self._signal = self._loop.create_future()

    async def _run_body(self, body: Callable[[], Awaitable[Any]]) -> Any:
        try:
            return await body()
        except BaseException as error:  # a task that ends with SystemExit would end the event loop
            if (raised := as_exception(error)) is not error:
                raise raised  # noqa: B904 - it names its cause
            raise
        finally:
            self._wake()  # the task is done by the time the runner runs

    async def _is_at_rest(self, task: asyncio.Task[Any]) -> bool:
        """Can no task of the walk run on? Some turns of the loop without a stir, and a second for foreign awaits."""
        before = self.progress
        for _ in range(TURNS):
            await asyncio.sleep(0)
            if self.progress != before:
                return False
        if self.progress != before or self.calls_in_flight or task.done() or self.closing:
            return False
        if self._waits_forever(task, 0):
            return True
        await asyncio.wait([task], timeout=FOREIGN_AWAIT_GRACE / SECOND)
        return self.progress == before and not self.calls_in_flight and not task.done() and not self.closing

    def _waits_forever(self, waiter: Any, depth: int) -> bool:
        """Does this task or future wait for nothing but awaits of ours that never resolve?"""
        if waiter in self._unresolved:
            return True
        if depth > DEPTH_MAX:
            return False
        if isinstance(waiter, asyncio.Task):
            inner = getattr(waiter, "_fut_waiter", None)
            return inner is not None and self._waits_forever(inner, depth + 1)
        children = [child for child in getattr(waiter, "_children", ()) if not child.done()]
        return bool(children) and all(self._waits_forever(child, depth + 1) for child in children)

    async def _cancel_body(self, task: asyncio.Task[Any]) -> None:
        """End the body; what it does in `finally` or swallows is ignored, and its ctx calls hang."""
        for _ in range(CANCELS_MAX):
            task.cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            if task.done():
                break
        else:
            await asyncio.wait([task], timeout=FOREIGN_AWAIT_GRACE / SECOND)
        await self._calls_ended()  # begun before the walk closed; nothing begins since

    def _verdict(self, task: asyncio.Task[Any]) -> Verdict:
        error = task.exception() if task.done() and not task.cancelled() else None
        if self._broken is not None:
            raise self._broken
        if self._attention:
            return Flagged(tuple(self._attention), tuple(self._parked))
        if self._cancel is not None:
            return self._cancel
        if self._again:
            return Again(self._again)
        if self._hand_back:
            return HandBack(self._hand_back)
        if self._given_up and self.session.commits > self._commits:
            return Again(GIVEN_UP)
        if self._parked:
            return Resting(tuple(self._parked))
        if self._given_up:  # another walk would come to the same
            return Raised(TimeoutError(GIVEN_UP))
        if error is not None:
            return Raised(error)
        if not task.done() or task.cancelled():
            return Raised(asyncio.CancelledError("the node's task was cancelled from within"))
        return Returned(task.result())

    def _wake(self) -> None:
        if not self._signal.done():
            self._signal.set_result(None)


class Unresolved(Exception):
    """A call or wait of this walk has no answer in this walk: its awaiter hangs."""


TURNS: Final = 8  # what an answer needs at most to reach, through nested tasks and groups, the next ctx call
GIVEN_UP: Final = "the awaiter of a call was cancelled: a call's deadline is the activity's timeout="
DEPTH_MAX: Final = 20  # gathers within gathers that are looked through before the second's grace
