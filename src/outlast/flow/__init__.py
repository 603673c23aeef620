"""What an author writes: workflows, nodes, activities, and the context their nodes are given.

Boundary: this room declares and checks; it moves nothing. `Context` is an interface that the engine fills.
"""

from outlast.flow.activity import Activity, BoundCall, Effectful, activity, lookup
from outlast.flow.calls import Call, this_call
from outlast.flow.context import Context
from outlast.flow.declared import NoUndo, Repeat, Retry, repeat
from outlast.flow.node import Node
from outlast.flow.outcomes import (
    ActivityFailed,
    CannotTell,
    Failed,
    Found,
    NotFound,
    NotNow,
    NotSent,
    Perhaps,
    Refusal,
    Refused,
    Stopped,
)
from outlast.flow.people import Decision, Rule, role
from outlast.flow.plan import Plan
from outlast.flow.policy import Allow, Deny, NeedsApproval, Policy, PolicyRequest, Verdict
from outlast.flow.workflow import Workflow, workflows_of

__all__ = [
    "Activity",
    "ActivityFailed",
    "Allow",
    "BoundCall",
    "Call",
    "CannotTell",
    "Context",
    "Decision",
    "Deny",
    "Effectful",
    "Failed",
    "Found",
    "NeedsApproval",
    "NoUndo",
    "Node",
    "NotFound",
    "NotNow",
    "NotSent",
    "Perhaps",
    "Plan",
    "Policy",
    "PolicyRequest",
    "Refusal",
    "Refused",
    "Repeat",
    "Retry",
    "Rule",
    "Stopped",
    "Verdict",
    "Workflow",
    "activity",
    "lookup",
    "repeat",
    "role",
    "this_call",
    "workflows_of",
]
