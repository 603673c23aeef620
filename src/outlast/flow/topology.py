"""Topology of one version of a workflow as plain data: the parts that must not change under a run (S-15)."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from pydantic import PydanticUserError

from outlast.core.business_days import BusinessDays
from outlast.core.codec import digest
from outlast.flow.activity import Activity
from outlast.flow.node import Node
from outlast.flow.options import Resend
from outlast.flow.reach import reach_of
from outlast.flow.workflow import Workflow


def topology_of(workflow: Workflow[Any]) -> dict[str, Any]:
    """Return the nodes, exits, waits, activities with keys and options, migrations, and the schema of the state.

    Equal in every process that runs the same code. Contains no data of runs. Raises DefinitionError.
    """
    return {
        "workflow": workflow.name,
        "version": workflow.version,
        "nodes": {name: _node(node) for name, node in sorted(workflow.nodes.items())},
        "activities": {name: _activity(each) for name, each in sorted(workflow.activities.items())},
        "state": _schema(workflow.state_codec.schema),
        "ceiling_ms": _length(workflow.ceiling),
        "budget": list(workflow.budget.limits) if workflow.budget is not None else [],
        "slot_while_waiting": workflow.slot_while_waiting,
        **({"history": list(workflow.window)} if workflow.window is not None else {}),
        **({"attributes": list(workflow.attributes.names)} if workflow.attributes is not None else {}),
        "migrations": sorted([m.from_, m.to] for m in workflow.migrations.all),
    }


def digest_of(topology: dict[str, Any]) -> str:
    """Return the digest that identifies this topology."""
    return digest(topology)


def _node(node: Node) -> dict[str, Any]:
    reach = reach_of(node.fn)
    return {
        "to": list(node.exits.targets),
        "ends": node.exits.ends,
        "start": node.start,
        "status": node.status_label,
        "end": node.end or "",
        "plane": node.plane,
        "max_visits": node.max_visits,
        "within_ms": _length(node.within),
        "ceiling_ms": _length(node.ceiling),
        "activities": list(reach.activities),
        "waits": reach.waits,
        "names_at_run_time": reach.open,
    }


def _activity(activity: Activity[Any, Any]) -> dict[str, Any]:
    return {
        "kind": activity.kind,
        "key": activity.key,
        "once_per": activity.once_per,
        "mode": activity.mode,
        "remembered_for_ms": _ms(activity.if_uncertain.remembered_for)
        if isinstance(activity.if_uncertain, Resend)
        else 0,
        "arguments": _schema(activity.arguments_schema),
        "answer": _schema(activity.response_codec.schema),
        "undo": activity.undo_fn is not None,
        "timeout_ms": _ms(activity.timeout),
        "attempts": activity.retry.attempts,
    }


def _schema(of: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return of()
    except PydanticUserError:  # a type that is stored, and has no JSON schema
        return {}


def _ms(span: timedelta | None) -> int:
    return int(span.total_seconds() * 1000) if span is not None else 0


def _length(term: timedelta | BusinessDays | None) -> int | str:
    """Return milliseconds, or the text of business days. Their holidays may differ between processes."""
    return str(term) if isinstance(term, BusinessDays) else _ms(term)
