"""Safeguards, each removed by its name in a process of its own: the seed that misses it shows that it is needed."""

from collections.abc import Callable
from typing import Any, Final

from outlast.core import compensation, ledger, moves, people, verbs
from outlast.core.commit import Done
from outlast.core.machine import ApprovalStatus
from outlast.core.rows import APPROVAL, RUN, Run, version_of
from outlast.engine import (
    activity_calls,
    approvals,
    capacity,
    commands,
    effect_executor,
    permission,
    run_executor,
    waits,
    worker,
)
from outlast.engine.run_session import RunSession
from outlast.store.batch import Batch
from outlast.store.memory import MemoryStore
from tests.failures import removed

MUTANTS: Final[dict[str, Callable[[], None]]] = {}


def mutant(fn: Callable[[], None]) -> Callable[[], None]:
    MUTANTS[fn.__name__] = fn
    return fn


def _everywhere(kept: Callable[..., Any], instead: Callable[..., Any]) -> None:
    """Put `instead` wherever a module of the engine or the core holds `kept`."""
    for module in (compensation, ledger, moves, people, verbs, approvals, commands, activity_calls, run_executor, permission, waits,
                   worker, effect_executor):  # fmt: skip
        for name, value in list(vars(module).items()):
            if value is kept:
                setattr(module, name, instead)


@mutant
def no_fence() -> None:
    """A holder that was replaced writes nothing."""
    removed.fence()


@mutant
def no_last_check() -> None:
    """A process that stood still looks at the clock before it sends."""
    removed.last_check()


@mutant
def no_quiet_time() -> None:
    """«Not found» is believed only when no call can be in the air."""
    kept = ledger.intend
    _everywhere(kept, lambda run, what, *a, **k: kept(run, what._replace(settle_margin_ms=-(10**9)), *a, **k))


@mutant
def call_first() -> None:
    """The intent is durable before the call."""
    land = RunSession.land

    async def late(self: RunSession, commit: Any) -> Any:
        if " intend " not in commit.label:
            return await land(self, commit)
        self._apply(commit)
        return _as_if(self)

    RunSession.land = late  # type: ignore[method-assign]


def _as_if(self: RunSession) -> Done:
    return Done(self.inbox_known, self.now)


@mutant
def no_ledger_hit() -> None:
    """A write that is recorded is not made again."""
    removed.ledger_hit()


@mutant
def no_expiry() -> None:
    """A decision after the expiry is refused by the store's clock."""
    kept = Batch._when
    Batch._when = lambda self, when: None if when.why == "expired" else kept(self, when)  # type: ignore[method-assign]


@mutant
def no_deadline() -> None:
    """A wait ends by its deadline only when the store's clock has reached it."""
    kept = Batch._when
    Batch._when = lambda self, when: None if when.why == "early" else kept(self, when)  # type: ignore[method-assign]
    plain = waits.NamedWait._bind

    async def bind(self: Any, wait: Any) -> Any:
        if wait.deadline and self.kind == "sleep":
            return await self._land(wait, None, complete=False)
        return await plain(self, wait)

    waits.NamedWait._bind = bind  # type: ignore[method-assign]


@mutant
def no_mail_check() -> None:
    """A run does not fall asleep with unread mail."""
    removed.mail_check()


@mutant
def same_epoch() -> None:
    """A claim raises the epoch."""
    kept = verbs.move

    def move(run: Run, verb: str, *rest: Any, **changes: Any) -> Any:
        if verb == "claim":
            changes["epoch"] = run.epoch
        return kept(run, verb, *rest, **changes)

    verbs.move = move  # type: ignore[assignment]


@mutant
def no_window() -> None:
    """A call is repeated only while the receiver remembers the first one."""
    effect_executor.EffectExecutor._window_open = lambda self, effect: True  # type: ignore[method-assign]
    effect_executor.EffectExecutor._within_the_window = lambda self, previous, allowed, now: allowed  # type: ignore[method-assign]


@mutant
def no_digest() -> None:
    """An approval covers exactly what was approved."""

    def any_of_them(execution: Any, plan: Any) -> list[Any]:
        now = execution.session.now.business
        found = [a for a in execution.session.approvals.values() if a.status is ApprovalStatus.APPROVED]
        return [a for a in found if not a.consumed_by and now < a.valid_until]

    permission.usable_approvals = any_of_them  # type: ignore[assignment]


@mutant
def used_twice() -> None:
    """An approval is consumed by one effect."""

    def used_or_not(execution: Any, plan: Any) -> list[Any]:
        digest = plan.approval_digest(execution.session.run.tenant, execution.session.run.run)
        return [a for a in execution.session.approvals.values() if a.chosen == digest]

    permission.usable_approvals = used_or_not  # type: ignore[assignment]
    kept = ledger.intend

    def intend(*rest: Any, **more: Any) -> Any:
        if more.get("approval") is not None:
            more["approval"] = more["approval"]._replace(consumed_by="")
        return kept(*rest, **more)

    _everywhere(kept, intend)


@mutant
def decided_twice() -> None:
    """An approval is decided once, whoever was first."""
    kept = Batch._put

    def put(self: Batch, wanted: Any, mine: Any) -> None:
        if wanted.kind is APPROVAL and wanted.replaces:
            found = self.row(APPROVAL, wanted.row[:3])
            assert found is not None
            version = version_of(APPROVAL, found)
            wanted = wanted._replace(replaces=version, row=wanted.row._replace(version=version + 1))
        kept(self, wanted, mine)

    Batch._put = put  # type: ignore[method-assign]


@mutant
def signal_twice() -> None:
    """A signal lands once under its id."""
    kept = people.append_message

    def post(**given: Any) -> Any:
        commit = kept(**given)
        return commit._replace(writes=commit.writes[:1])

    people.append_message = post


@mutant
def no_too_early() -> None:
    """«Did not happen» is accepted only when no call can be in the air."""
    kept = Batch._when
    Batch._when = lambda self, when: None if when.why == "settle" else kept(self, when)  # type: ignore[method-assign]


@mutant
def blind_retry() -> None:
    """A call of a predecessor whose outcome is open is not simply made again."""

    async def settle_open(self: Any, effect: Any) -> Any:
        return effect_executor.Next.CALL

    effect_executor.EffectExecutor.settle_open = settle_open  # type: ignore[method-assign]


@mutant
def impatient() -> None:
    """A run is taken from a worker only after its row was closed, which needs an expired lease."""
    kept = capacity.Taking._due

    def due(self: Any, run: Run, now: Any) -> Any:
        if not run.owner:
            return kept(self, run, now)
        taker = self._taker
        return verbs.claim(run, worker=taker.worker, now=now, budget_ms=taker.budget_ms, closed={run.owner: 0})

    capacity.Taking._due = due  # type: ignore[method-assign]
    candidates = MemoryStore._candidates

    def more(self: Any, *args: Any) -> Any:
        found = candidates(self, *args)
        rest = [r for r in self._core.shelf.under(RUN, ()) if isinstance(r, Run) and r.owner.startswith("wk-")]
        return found + [r for r in rest if r not in found]

    MemoryStore._candidates = more  # type: ignore[method-assign]


@mutant
def deaf_to_cancel() -> None:
    """A cancel that is there before the intent keeps the call back."""

    async def heed(self: Any, effect: Any) -> None:
        return

    effect_executor.EffectExecutor._check_cancel = heed  # type: ignore[method-assign]


@mutant
def forgets_perhaps() -> None:
    """An attempt that was not sent proves nothing of an earlier one."""
    kept = effect_executor.EffectExecutor._try_again

    async def again(self: Any, *rest: Any, happened: bool) -> Any:
        self._maybe_done = False
        return await kept(self, *rest, happened=happened)

    async def after(self: Any, effect: Any, outcome: Any) -> Any:
        self._maybe_done = False
        return await plain(self, effect, outcome)

    plain = effect_executor.EffectExecutor._after
    effect_executor.EffectExecutor._try_again = again  # type: ignore[method-assign]
    effect_executor.EffectExecutor._after = after  # type: ignore[method-assign]


@mutant
def undo_forwards() -> None:
    """Undo goes backwards."""
    kept = compensation.owed
    compensation.owed = lambda run, rows: list(reversed(kept(run, rows)))


@mutant
def time_of_the_last_answer() -> None:
    """An answer that is read late does not set a holder's time back."""

    def hear(self: Any, now: Any) -> None:
        self._ahead_ms = now.real - self._clock.boot()

    RunSession._hear = hear  # type: ignore[method-assign]
