"""Safeguards that seeded schedules and real kills both take out, each taken out in one way for both."""

from typing import Any

from outlast.core.commit import Fence
from outlast.core.machine import EffectStatus
from outlast.core.rows import RUN, Effect
from outlast.engine import activity_calls, context, effect_executor, lease
from outlast.errors import Ended, Stale
from outlast.store.batch import Batch


def replace(owner: Any, name: str, value: Any) -> None:
    """For good: whoever takes a safeguard out does it in a process of its own."""
    setattr(owner, name, value)


def fence() -> None:
    """Whoever writes is believed to be the holder still."""
    kept = Batch._fence

    def passed(self: Batch, claim: Fence) -> Any:
        try:
            return kept(self, claim)
        except (Stale, Ended):
            return self.row(RUN, (claim.tenant, claim.run))

    replace(Batch, "_fence", passed)


def mail_check() -> None:
    """Nobody compares the mail that was read with the mail that is there."""
    kept = Batch._fence
    replace(Batch, "_fence", lambda self, claim: kept(self, claim._replace(inbox_seq=None)))


def last_check() -> None:
    """No clock is looked at before a call is sent."""
    replace(lease.Permit, "refusal", lambda self, clock: "")


def ledger_hit() -> None:
    """A done write is made again by every walk that comes by."""
    kept = activity_calls.perform

    async def perform(execution: Any, activity: Any, call: Any) -> Any:
        visit = execution.session.run.visit if activity.once_per == "visit" else 0
        effect = execution.session.effects.get((visit, call.key))
        if isinstance(effect, Effect) and effect.status is EffectStatus.DONE:
            attempt = effect_executor.attempt_of(execution, activity, call.args, call.kwargs, effect)
            answered: Any = await execution.deduplicate(
                (visit, call.key), lambda: execution.services.caller.attempt(attempt)
            )
            return answered.value
        return await kept(execution, activity, call)

    replace(context, "perform", perform)
