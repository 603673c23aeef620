"""Calls that were stored before the members of sets were written in order (CKP-8).

A set was stored in the order in which the process iterated it, so its digest differed between processes. A digest of
that time is compared by its call: the stored arguments are decoded and written in today's form. Only calls
whose parameters hold a set are judged, and only once their digests differ.
"""

import json
from collections.abc import Iterable
from typing import Any

from outlast.core.codec import canonical, digest
from outlast.core.rows.effect_rows import Approval, Effect, Memo
from outlast.core.rows.run_rows import Run
from outlast.errors import OutlastError
from outlast.flow.activity import IN_ORDER, Activity, BoundCall
from outlast.flow.calls import Plan


def is_same_call(activity: Activity[Any, Any], row: Effect | Memo, arguments: bytes, asked: str) -> bool:
    """True if a recorded call of the activity has these arguments, whose digest is `asked`."""
    if row.digest == asked:
        return True
    if row.activity != activity.name or not activity.has_sets:
        return False
    if isinstance(row, Memo):  # it keeps no arguments; a digest of that time has no mark
        return not row.digest.startswith(IN_ORDER)
    return _rewritten(activity, row.args) == arguments


def as_offered(activity: Activity[Any, Any], plan: Plan[Any], run: Run, approvals: Iterable[Approval]) -> Plan[Any]:
    """Return a plan in the form in which an approval of the run has stored the same call; as it is if none has."""
    if not activity.has_sets:
        return plan
    found: dict[bytes, None] = {}
    for approval in approvals:
        for offered in approval.plans:
            if (offered.activity, offered.key) == (plan.activity, plan.key):
                found[offered.arguments_text.encode()] = None
    if plan.arguments in found:
        return plan
    for stored in found:
        if _rewritten(activity, stored) == plan.arguments:
            return Plan(plan.activity, plan.key, stored, digest(plan.activity, plan.key, stored))
    return plan


def call_as_offered(
    activity: Activity[Any, Any], call: BoundCall, run: Run, approvals: Iterable[Approval]
) -> BoundCall:
    """Return a call in the form in which an approval of the run has stored it."""
    plan = as_offered(activity, Plan(activity.name, call.key, call.args_bytes, call.digest), run, approvals)
    return call._replace(args_bytes=plan.arguments, digest=plan.digest)


def rewritten_values(activity: Activity[Any, Any], arguments: bytes) -> dict[str, Any]:
    """Return stored arguments as JSON data in today's form; as they are if they no longer fit the activity."""
    again = _rewritten(activity, arguments) if activity.has_sets else None
    values: dict[str, Any] = json.loads(again or arguments)
    return values


def are_alike_but_for_order(one: bytes, other: bytes) -> bool:
    """True if two JSON texts differ at most in the order of their lists."""
    return one == other or _unordered(json.loads(one)) == _unordered(json.loads(other))


def _unordered(value: Any) -> bytes:
    if isinstance(value, dict):
        return canonical({name: _unordered(item).decode() for name, item in value.items()})
    if isinstance(value, list):
        return canonical(sorted(_unordered(item).decode() for item in value))
    return canonical(value)


def _rewritten(activity: Activity[Any, Any], arguments: bytes) -> bytes | None:
    try:
        args, kwargs = activity.load_args(arguments)
        return activity.plan(*args, **kwargs).arguments
    except OutlastError:  # it no longer fits the activity, so it is another call
        return None
