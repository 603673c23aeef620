"""A set of calls that may end before all have started (S-31): `ctx.do_all` with bounds.

`core/enough.py` decides when it ends. Faults, and why each re-run gets the same set:

1. *The order of arrival decides what the node gets.* Calls that have started are awaited and count as what they
   became. A row names the others, before the node gets anything.
2. *The holder dies before this row lands.* The next execution counts the recorded outcomes before it starts a call.
3. *A call waits at a gate when the set ends*, for an approval, a seat or a budget. It has no intent, so it has not
   started. The execution closes before anything is awaited, so the call passes no gate any more. The node runs again
   with the row, and does not ask for the call.
4. *A call that has started is uncertain, or waits for its retry.* It is one of the set. The run waits for it, as for
   any open call of a visit, and the next execution starts no other.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from outlast.core.effect_verbs import observed_key
from outlast.core.enough import SetBounds, SetState, end_early, never_started, set_of_calls, state_of, withdraw_requests
from outlast.core.failed_calls import EffectKey
from outlast.core.keys import tree_key
from outlast.core.machine import EffectStatus, MemberStatus
from outlast.core.mailbox import is_reopened
from outlast.core.rows.effect_rows import Effect
from outlast.engine.fork_calls import shared_key_of
from outlast.engine.node_execution import NodeExecution
from outlast.engine.tree_calls import scope_of, tree_of
from outlast.errors import AnswerNotStored, OutlastError
from outlast.flow.calls import Plan
from outlast.flow.fan_out import FanOut, Loaded
from outlast.flow.outcomes import Refused


class Failure(NamedTuple):
    """Error of a call of a set."""

    error: Exception


class EndedSet(NamedTuple):
    """A set that has ended: the value or the Failure of each call that has started, by its position."""

    state: SetState
    answers: dict[int, Any]


async def in_turns(calls: Iterable[int], at_most: int, make: Callable[[int], Awaitable[None]]) -> None:
    """Make calls in their order, so many at a time. The next one is asked for when there is a turn for it."""
    left = iter(calls)

    async def take_turns() -> None:  # no semaphore: a call that has not started must be no wait
        for n in left:
            await make(n)

    await asyncio.gather(*(take_turns() for _ in range(at_most)))


class CallSet:
    """The calls of one `do_all` with bounds in one execution of a node."""

    def __init__(
        self,
        execution: NodeExecution,
        plans: Sequence[Plan[Any]],
        bounds: SetBounds,
        at_most: int,
        make: Callable[[Plan[Any]], Awaitable[Any]],
    ) -> None:
        """`make` makes a call, or answers it from the ledger."""
        self._execution = execution
        self._held = execution.session.held
        self._plans = plans
        self._names = [f"{plan.activity}?{plan.key}" for plan in plans]
        self._bounds = bounds
        self._at_most = min(at_most or len(plans), len(plans))
        self._make = make
        self._key = set_of_calls(bounds, self._names)
        self._activities = [execution.workflow.activity(plan.activity) for plan in plans]
        self._keys: list[tuple[str, ...]] = []
        self._under_way: set[int] = set()
        self._answers: dict[int, Any] = {}
        self._ended = False

    async def end(self) -> EndedSet:
        """Make the calls until the set ends, and return those that have started. Raises LimitExceeded."""
        execution, held = self._execution, self._held
        execution.note_progress()
        if execution.closing:
            await execution.never()
        execution.count(self._names)  # before any starts, so that all fit or none
        if execution.expected is not None:
            execution.expected.ask_for({f"{plan.activity}?{self._key}" for plan in self._plans})
        everything = range(len(self._plans))
        memo = held.memos.get((held.run.visit, self._key))
        if memo is not None:
            never = never_started(memo, self._names)
            await self._withdraw(never)
            await self._settle(n for n in everything if self._names[n] not in never)
        else:
            self._keys = [await self._keys_of(n) for n in everything]
            await self._settle(n for n in everything if self._is_settled(n))
            if execution.lingering:  # a task that the body left behind starts nothing
                await execution.never()
            left = [n for n in everything if n not in self._answers]
            await self._settle(self._to_start(left))
            await self._end_early()
        return EndedSet(self._state(), self._answers)

    def _to_start(self, left: Sequence[int]) -> Iterator[int]:
        """Yield the calls that earlier executions have started, then the others until the set ends."""
        started = [n for n in left if self._has_started(n)]
        yield from started
        for n in left:
            if self._state() is not SetState.GOES_ON:
                return
            if n not in started:
                yield n

    async def _settle(self, calls: Iterable[int]) -> None:
        await in_turns(calls, self._at_most, self._settle_one)

    async def _settle_one(self, n: int) -> None:
        self._under_way.add(n)
        self._answers[n] = await self._answer(n)
        self._under_way.discard(n)
        await self._leave_gates()

    async def _answer(self, n: int) -> Any:
        """Return the value of a call, or its Failure. Raises what is a mistake of the author."""
        try:
            return await self._make(self._plans[n])
        except (Refused, AnswerNotStored) as error:
            return Failure(error)
        except Exception as error:  # because the function of a lookup may raise anything
            if self._activities[n].kind != "lookup" or isinstance(error, OutlastError):
                raise
            return Failure(error)

    def _state(self) -> SetState:
        failed = sum(isinstance(answer, Failure) for answer in self._answers.values())
        return state_of(self._bounds, len(self._answers) - failed, failed)

    # --- the end before all have started -------------------------------------------------------------------
    async def _leave_gates(self) -> None:
        """End the set at once if calls that have not started wait at a gate. Never returns then."""
        if self._ended or not self._keys or self._state() is SetState.GOES_ON:
            return
        if any(not self._has_started(n) for n in self._under_way):
            self._execution.run_again("a set of calls has ended, and some of them wait at a gate")
            await self._end_early()

    async def _end_early(self) -> None:
        """Record which calls of the set never start, if there are some."""
        started = {*self._answers, *(n for n in self._under_way if self._has_started(n))}
        never = set(self._names) - {self._names[n] for n in started}
        if never and not self._ended:
            self._ended = True
            ident = (self._held.run.visit, self._key)
            await self._execution.deduplicate(ident, partial(self._record_end, never))
            await self._withdraw(never)

    async def _record_end(self, never: set[str]) -> None:
        execution, session = self._execution, self._execution.session
        if execution.observed:
            execution.record_observed()
        await session.chain.land(end_early(session.held.run, self._key, self._names, never, session.clock.now))

    async def _withdraw(self, never: set[str]) -> None:
        """Withdraw the requests for approval of calls that never start."""
        session, held = self._execution.session, self._held
        commits = withdraw_requests(held.run, never, held.approvals.values(), session.clock.now)

        async def land() -> None:
            for commit in commits:
                await session.chain.land(commit)

        if commits:
            await self._execution.deduplicate((held.run.visit, f"withdraw?{self._key}"), land)

    # --- what the ledger has -----------------------------------------------------------------------------
    async def _keys_of(self, n: int) -> tuple[str, ...]:
        """Return the keys under which the ledger of this run may have a call."""
        session, plan, activity = self._execution.session, self._plans[n], self._activities[n]
        shared = shared_key_of(session, activity, plan.key)
        tree = tree_key(await tree_of(session), plan.key) if scope_of(session, activity) == "root" else ""
        return tuple(key for key in (plan.key, shared, tree) if key)

    def _idents(self, n: int) -> Iterator[EffectKey]:
        held, activity = self._held, self._activities[n]
        for key in self._keys[n]:
            yield held.run.visit, key
            yield 0, key
            if activity.once_per == "run" and (visit := held.visit_of(activity.name, key)):
                yield visit, key

    def _row(self, n: int) -> Effect | None:
        """Return the row of a write in the ledger of this run; None if it did not happen, or was undone."""
        rows = (self._held.effects.get(ident) for ident in self._idents(n))
        own = (row for row in rows if row is not None and row.activity == self._activities[n].name)
        return next((row for row in own if row.status is not EffectStatus.UNDONE and not is_reopened(row)), None)

    def _has_started(self, n: int) -> bool:
        """Return True if an intent of a call is recorded, or submitted by this execution. A lookup has none."""
        if self._activities[n].kind == "lookup":
            return n in self._under_way
        return self._row(n) is not None or any(ident in self._execution.intents for ident in self._idents(n))

    def _is_settled(self, n: int) -> bool:
        """Return True if the ledger has the outcome of a call."""
        if self._activities[n].kind == "lookup":
            observed = observed_key(self._plans[n].key, self._execution.continued_after)
            scopes, keys = (self._held.run.visit, 0), (self._plans[n].key, observed)
            return any((visit, key) in self._held.memos for visit in scopes for key in keys)
        row = self._row(n)
        return row is not None and bool(row.settled_at)


def fan_out(keys: Sequence[Any], ended: EndedSet) -> FanOut[Any, Any]:
    """Return the result of a set as the node gets it. `keys`: those of its calls, in order."""
    answers = {keys[n]: answer for n, answer in ended.answers.items()}

    def status_of(key: Any) -> MemberStatus:
        if key not in answers:
            return MemberStatus.NOT_STARTED
        return MemberStatus.FAILED if isinstance(answers[key], Failure) else MemberStatus.COMPLETED

    async def load(key: Any) -> Loaded[Any]:
        if isinstance(answers[key], Failure):
            raise answers[key].error
        return Loaded(answers[key])

    return FanOut({key: status_of(key) for key in keys}, ended.state, load)
