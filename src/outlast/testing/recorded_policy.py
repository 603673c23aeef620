"""Policy of a replay: each verdict that the run recorded counts again, because a policy may read facts of the past.

The present policy decides on every other request. Its changes are judged by `outlast policy test`.
"""

import copy
import json
from typing import Any, Final

from outlast.core.rows.effect_rows import Memo
from outlast.engine.policy_gate import decision_of
from outlast.flow.policy import Policy, PolicyRequest, Verdict, policy_version
from outlast.flow.workflow import Workflow
from outlast.upkeep.recording import Recording

_REMEMBERED: Final = ("offer", "proposal")


class RecordedPolicy:
    """A policy that repeats recorded verdicts, and asks the present policy for others."""

    def __init__(self, policy: Policy, recording: Recording) -> None:
        self.version: Final = policy_version(policy)
        self._policy = policy
        self._verdicts = recording.verdicts

    def __call__(self, request: PolicyRequest) -> Verdict:
        """Return the verdict on a call. Raises what the present policy raises."""
        mine = [each for each in self._verdicts if _is_of(each, request)]
        exact = [each for each in mine if each["occasion"] == request.occasion]
        usual = [] if request.occasion in _REMEMBERED else [e for e in mine if e["occasion"] == "commit"]
        for verdict in (exact + usual)[:1]:
            return decision_of(
                Memo("", "", request.visit, request.key, "", "", json.dumps(verdict).encode(), "", 0)
            ).verdict
        return self._policy(request)


def _is_of(verdict: dict[str, Any], request: PolicyRequest) -> bool:
    asked = (request.visit, request.activity, request.key)
    return (verdict["visit"], verdict["activity"], verdict["key"]) == asked


def with_recorded_policy(workflow: Workflow[Any, Any, Any], recording: Recording) -> Workflow[Any, Any, Any]:
    """Return the workflow with the verdicts that the run recorded; itself if it has no policy."""
    if workflow.policy is None or not recording.verdicts:
        return workflow
    shadow = copy.copy(workflow)
    vars(shadow)["policy"] = RecordedPolicy(workflow.policy, recording)
    return shadow
