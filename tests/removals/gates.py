"""Safeguards of the gates that a call passes before its intent."""

from typing import Any

from outlast.engine import call_gates, effect_executor, lookups
from outlast.engine.call_gates import (
    BreakerGate,
    BudgetGate,
    GatedAttempt,
    LimitGate,
    PermissionGate,
    ThreadGate,
    WindowGate,
)
from tests.removals import Patch, replace


def _unneeded(self: Any, attempt: GatedAttempt) -> bool:
    return False


def no_breaker_gate(patch: Patch) -> None:
    replace(patch, BreakerGate.is_needed, _unneeded)


def no_budget_gate(patch: Patch) -> None:
    replace(patch, BudgetGate.is_needed, _unneeded)


def no_permission_gate(patch: Patch) -> None:
    replace(patch, PermissionGate.is_needed, _unneeded)


def no_limit_gate(patch: Patch) -> None:
    replace(patch, LimitGate.is_needed, _unneeded)


def no_thread_gate(patch: Patch) -> None:
    replace(patch, ThreadGate.is_needed, _unneeded)


def no_window_gate(patch: Patch) -> None:
    async def at_once(self: Any, attempt: GatedAttempt) -> None:
        window = attempt.execution.services.window
        most, window._most = window._most, float("inf")
        attempt.sending, window._most = window.enter_now(), most

    replace(patch, WindowGate.enter, at_once)


def places_before_facts(patch: Patch) -> None:
    patch.setattr(call_gates, "GATES", (*call_gates.GATES[3:], *call_gates.GATES[:3]))


def no_second_look(patch: Patch) -> None:
    async def holds(self: GatedAttempt, step: Any) -> bool:
        return True

    replace(patch, GatedAttempt._still_holds, holds)


def no_look_behind_the_window(patch: Patch) -> None:
    replace(patch, effect_executor.EffectExecutor._meets_fact, lambda self: False)


def grants_kept(patch: Patch) -> None:
    async def kept(self: GatedAttempt) -> None:
        pass

    replace(patch, GatedAttempt.release, kept)


def endless_rounds(patch: Patch) -> None:
    patch.setattr(call_gates, "ROUNDS_MAX", 1_000)


def lookups_by_old_budgets(patch: Patch) -> None:
    async def seat(execution: Any, activity: Any) -> Any:
        await lookups.check_budget(execution, activity.name)
        return await execution.call_seat(activity)

    replace(patch, lookups._seat_of_lookup, seat)
