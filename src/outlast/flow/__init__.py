"""The author API: workflows, nodes, activities and the context that a node receives.

This package declares and checks; it executes nothing. The engine implements `Context`.
"""

from outlast.core.approver_rule import Rule
from outlast.core.effect_steps import DidNotHappen, Happened, Unknown
from outlast.core.rows.effect_columns import FailedRun
from outlast.core.rows.run_columns import StatusLabels
from outlast.core.usage import Budget
from outlast.flow.activity import Activity, BoundCall, Effectful, activity, lookup
from outlast.flow.amount import Amount
from outlast.flow.approval_rule import Approvers, Decision, person, role
from outlast.flow.calendar_terms import business_days
from outlast.flow.calls import Call, Plan, RecordedCall, this_call
from outlast.flow.child_handle import ChildHandle, ParentHandle
from outlast.flow.context import Context
from outlast.flow.fan_out import FanOut
from outlast.flow.function_workflow import FunctionWorkflow, workflow
from outlast.flow.node import Node
from outlast.flow.options import RateLimit, Resend, Retry, resend
from outlast.flow.outcomes import (
    Cancel,
    ChildFailed,
    Fail,
    NotSent,
    Perhaps,
    Refusal,
    Refused,
    RetryLater,
    classify,
)
from outlast.flow.policy import Allow, Approved, Deny, NeedsApproval, Occasion, Policy, PolicyRequest, Verdict
from outlast.flow.policy_file import PolicyFile, policy_from_file
from outlast.flow.workflow import Workflow, workflows_of
from outlast.flow.workflow_options import Failures, WorkflowOptions

__all__ = [
    "Activity",
    "Allow",
    "Amount",
    "Approved",
    "Approvers",
    "BoundCall",
    "Budget",
    "Call",
    "Cancel",
    "ChildFailed",
    "ChildHandle",
    "Context",
    "Decision",
    "Deny",
    "DidNotHappen",
    "Effectful",
    "Fail",
    "FailedRun",
    "Failures",
    "FanOut",
    "FunctionWorkflow",
    "Happened",
    "NeedsApproval",
    "Node",
    "NotSent",
    "Occasion",
    "ParentHandle",
    "Perhaps",
    "Plan",
    "Policy",
    "PolicyFile",
    "PolicyRequest",
    "RateLimit",
    "RecordedCall",
    "Refusal",
    "Refused",
    "Resend",
    "Retry",
    "RetryLater",
    "Rule",
    "StatusLabels",
    "Unknown",
    "Verdict",
    "Workflow",
    "WorkflowOptions",
    "activity",
    "business_days",
    "classify",
    "lookup",
    "person",
    "policy_from_file",
    "resend",
    "role",
    "this_call",
    "workflow",
    "workflows_of",
]
