"""Gates that a call passes before its intent, in one order (S-17, S-20, S-23, decision 0186).

Each gate passes, passes and grants something that must be released, or parks the run. Four things can go wrong while
a call waits at one of them:

1. *A scarce place is held while a person thinks or a provider is away.* It cannot be, because what may wait for long
   comes first, and parks the run. Places are taken last.
2. *A fact no longer holds when the intent is written.* The budget is spent, the approval has lapsed, an operator has
   paused the activity. If a place was free only after a wait, the step and each fact are looked at again. This look
   waits for no person and no place. If a fact fails, all is released and the first gate follows. The last check of the
   lease stays in the thread that sends (S-4).
3. *A grant is kept although no call is made.* Each grant is noted as it is given. `release` goes through the notes on
   every way out, the latest first: another step is due, the run parks, the task is cancelled, the store or a policy
   raises.
4. *A fact that changes each time keeps the call here without end.* After `ROUNDS_MAX` rounds the run parks.

The order, and what skips a gate (`again`: a call that may have happened is repeated; `end`: the run ends, and its open
effect is settled):

| gate           | call, or retry         | again                 | undo          | end             | grants           |
|----------------|------------------------|-----------------------|---------------|-----------------|------------------|
| hold           | `core/first_answer.py` | no                    | no            | no              |                  |
| breaker, pause | yes                    | yes                   | yes           | yes             | the right to try |
| budget         | yes                    | no                    | no            | no              |                  |
| permission     | policy, then approval  | policy, same approval | by the engine | same approval   |                  |
| rate limit     | with `limit=`          | with `limit=`         | with `limit=` | with `limit=`   | a seat           |
| thread         | without `async`        | without `async`       | never         | without `async` | a seat           |
| sending window | not in a transaction   | as a call             | as a call     | as a call       | a place          |

A gate that a call does not need costs nothing: `EffectExecutor` comes here only if one of them is needed. A call that
needs nothing but a place in the sending window waits for it there, and comes here if a gate is needed afterwards.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from outlast.core.conclude import Parked
from outlast.core.durations import INLINE_WAIT_MAX
from outlast.core.effect_steps import Intend, Purpose, Terms
from outlast.core.rows.effect_rows import Effect
from outlast.core.rows.limit_rows import Pause
from outlast.core.rows.run_columns import Timer, WaitingFor
from outlast.engine.budget_checks import check_budget, is_covered
from outlast.engine.known_pauses import BREAKER, key_of_provider
from outlast.engine.node_execution import NodeExecution, Unresolved
from outlast.engine.node_result import paused_by, paused_by_breaker
from outlast.engine.permission import UNASKED, Permission, permitted, permitted_still
from outlast.engine.send_window import Sending
from outlast.flow.activity import BoundCall
from outlast.flow.options import Callee

ROUNDS_MAX: Final = 3


class GatedAttempt:
    """One attempt on its way through the gates, and its grants."""

    __slots__ = (
        *("_granted", "allowed", "call", "callee", "execution", "paid", "probe", "waited", "row", "sending", "sent"),
        *("terms", "watches"),
    )

    def __init__(
        self,
        execution: NodeExecution,
        callee: Callee,
        call: BoundCall,
        terms: Terms,
        row: Effect | None,
        *,
        watches: bool,
    ) -> None:
        """`row`: that of the key, if there is one. `watches`: the executor looks at a breaker again without jitter."""
        self.execution = execution
        self.callee = callee
        self.call = call
        self.terms = terms
        self.row = row
        self.watches = watches
        self.paid = False
        """The attempt counts towards budgets: it is no undo, and none that finds out what happened."""
        self.allowed: Permission = UNASKED
        self.probe: Pause | None = None
        """The breaker that lends the attempt the right to try the provider."""
        self.sending: Sending | None = None
        self.sent = False
        """The call began, so its outcome ends the right to try."""
        self.waited = False
        """A place was not free at once, so what was known before may have changed."""
        self._granted: list[Callable[[], Awaitable[None] | None]] = []

    def grant(self, release: Callable[[], Awaitable[None] | None]) -> None:
        """Note how a grant is given back."""
        self._granted.append(release)

    async def pass_all(self, step: Intend, decide: Callable[[], Intend | None]) -> Intend | None:
        """Return the step that is due after all gates; None if another one is due, which `decide` tells.

        The caller releases all grants, on every way out. Raises Unresolved if the run parks or the execution has
        closed, Refused and Misplaced as `permitted`, StoreError.
        """
        for _ in range(ROUNDS_MAX):
            self._begin(step)
            for gate in GATES:
                if gate.is_needed(self):
                    self._check_open()
                    await gate.enter(self)
            again = decide()
            if again is None or not self.waited:
                return again
            if await self._still_holds(again):
                return decide()  # because the facts were read again
            await self.release()
            step = again
        self._park()
        raise Unresolved

    def _begin(self, step: Intend) -> None:
        self.paid = self.terms.purpose is Purpose.DO and not step.maybe_done
        self.allowed, self.waited = UNASKED, False

    def _check_open(self) -> None:
        if self.execution.closing and not self.execution.may_begin():
            raise Unresolved

    async def _still_holds(self, step: Intend) -> bool:
        """Return True if each fact allows the call as it is now. A gate may be needed that was not before."""
        self.paid = self.paid and not step.maybe_done
        for gate in GATES:
            if gate.is_needed(self) and not await gate.still_holds(self):
                return False
        return True

    async def release(self) -> None:
        """Give back all grants, the latest first. The right to try stays with a call that was sent."""
        try:
            while self._granted:
                returned = self._granted.pop()()
                if returned is not None:
                    await returned
        finally:
            if self._granted:  # one of them raised, or the task was cancelled: the others are given back, too
                await self.release()

    def _park(self) -> None:
        session, services = self.execution.session, self.execution.services
        now = session.clock.now
        at_real = now.real + round(INLINE_WAIT_MAX * (1 + services.chance()))  # else runs come back together
        what = f"{self.callee.name} {self.call.key}: what it needs has changed {ROUNDS_MAX} times while it waited"
        until = session.store.mapping().business(at_real)
        waiting = WaitingFor("limit", what, since=now.business, until=until, then="tries again")
        self.execution.park(Parked("park", waiting, Timer(what, at_real, real=True)))


class CallGate:
    """One thing that a call needs. The base is a gate without a fact, which needs no second look."""

    def is_needed(self, attempt: GatedAttempt) -> bool:
        """Return True unless the attempt may go by."""
        raise NotImplementedError

    async def enter(self, attempt: GatedAttempt) -> None:
        """Pass, noting what is granted. Raises Unresolved if the run has parked or a person is asked."""
        raise NotImplementedError

    async def still_holds(self, attempt: GatedAttempt) -> bool:
        """Return True if the gate would let the attempt pass now. Neither parks nor asks a person."""
        return True


class BreakerGate(CallGate):
    """No operator has paused the activity or its provider, and the provider answers or may be tried (S-23)."""

    def is_needed(self, attempt: GatedAttempt) -> bool:
        return bool(attempt.execution.services.pauses.up)

    async def enter(self, attempt: GatedAttempt) -> None:
        execution, terms = attempt.execution, attempt.terms
        session, services = execution.session, execution.services
        pause = await self._first(attempt)
        if pause is None:
            return
        lease_ms = terms.start_budget + terms.timeout + terms.settle_margin
        attempt.probe = await services.breakers.probe(pause, session.clock.now.real, lease_ms)
        if attempt.probe is not None:
            attempt.grant(lambda: self._give_back(attempt))
            return
        if pause.kind == BREAKER:
            again_at = max(pause.again_at, session.clock.now.real)
            jitter = 0 if attempt.watches else round(services.chance() * services.live.breaker_pause)
            execution.park(paused_by_breaker(pause, again_at + jitter + 1, session.store.mapping()))
        else:
            execution.park(paused_by(pause, session.clock.now.real))
        raise Unresolved

    async def still_holds(self, attempt: GatedAttempt) -> bool:
        pause, lent = await self._first(attempt), attempt.probe
        if pause is None:
            return True
        if lent is None or (pause.key, pause.version) != (lent.key, lent.version):
            return False
        # a right that ends during the call would let a second run try beside it
        return attempt.execution.session.clock.now.real + attempt.terms.timeout <= lent.again_at

    async def _first(self, attempt: GatedAttempt) -> Pause | None:
        callee, execution = attempt.callee, attempt.execution
        keys = (f"activity/{callee.name}", key_of_provider(callee.provider))
        return await execution.services.pauses.first(execution.session.held.run.tenant, keys)

    async def _give_back(self, attempt: GatedAttempt) -> None:
        if attempt.probe is not None and not attempt.sent:
            lent, attempt.probe = attempt.probe, None
            await attempt.execution.services.breakers.give_back(lent)


class BudgetGate(CallGate):
    """The budget of the run and the daily budget of its tenant are not used up (RUN-10)."""

    def is_needed(self, attempt: GatedAttempt) -> bool:
        execution = attempt.execution
        return attempt.paid and bool(execution.has_budget or execution.services.budgets.tenants)

    async def enter(self, attempt: GatedAttempt) -> None:
        await check_budget(attempt.execution, attempt.callee.name)

    async def still_holds(self, attempt: GatedAttempt) -> bool:
        return await is_covered(attempt.execution, attempt.callee.name)


class PermissionGate(CallGate):
    """The policy allows the call, and a person has approved exactly this one where that is needed (S-20, GATE-6)."""

    def is_needed(self, attempt: GatedAttempt) -> bool:
        execution = attempt.execution
        if attempt.terms.purpose is not Purpose.DO:
            return True
        held = execution.session.held
        return bool(held.approvals or execution.workflow.asks_permission or held.asks is not None)

    async def enter(self, attempt: GatedAttempt) -> None:
        purpose, callee, call = attempt.terms.purpose, attempt.callee, attempt.call
        attempt.allowed = await permitted(attempt.execution, purpose, callee, call, attempt.row)

    async def still_holds(self, attempt: GatedAttempt) -> bool:
        given, purpose = attempt.allowed, attempt.terms.purpose
        now = permitted_still(attempt.execution, purpose, attempt.callee, attempt.call, attempt.row, given)
        attempt.allowed = now or given
        return now is not None


class LimitGate(CallGate):
    """A seat under the rate limit of the activity or its provider is free (S-23)."""

    def is_needed(self, attempt: GatedAttempt) -> bool:
        return attempt.callee.limit is not None

    async def enter(self, attempt: GatedAttempt) -> None:
        seat = await attempt.execution.call_seat(attempt.callee)
        assert seat is not None, "the gate is needed only with a limit"
        attempt.grant(seat.leave)
        attempt.waited = True  # each seat is a commit, so other calls have moved since


class ThreadGate(CallGate):
    """A thread of this worker is free for a function without `async`."""

    def is_needed(self, attempt: GatedAttempt) -> bool:
        return not attempt.callee.is_async

    async def enter(self, attempt: GatedAttempt) -> None:
        seats = attempt.execution.services.caller.seats
        attempt.waited = attempt.waited or seats.locked()
        await seats.acquire()
        attempt.grant(seats.release)


class WindowGate(CallGate):
    """The worker has few intents that are durable and not yet sent (decision 0041)."""

    def is_needed(self, attempt: GatedAttempt) -> bool:
        return not attempt.terms.in_transaction

    async def enter(self, attempt: GatedAttempt) -> None:
        window = attempt.execution.services.window
        place = window.enter_now()
        if place is None:
            place, attempt.waited = await window.enter(), True
        attempt.sending = place
        attempt.grant(place.leave)


GATES: Final = (BreakerGate(), BudgetGate(), PermissionGate(), LimitGate(), ThreadGate(), WindowGate())
"""All gates but the hold, in their order. A gate that may wait for long comes before a scarce place."""
