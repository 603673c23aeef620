"""Approval rules and decisions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from pydantic import JsonValue

from outlast.core.approvals import Rule
from outlast.core.keys import check_name
from outlast.errors import DefinitionError, InvalidInput
from outlast.flow.calls import Plan

R_co = TypeVar("R_co", covariant=True)


def role(name: str) -> Rule:
    """Return the rule "holds the role `name`". Combine rules with `|` (either) and `&` (one person holds both).

    Raises DefinitionError.
    """
    try:
        return Rule(frozenset({frozenset({check_name("role", name)})}))
    except InvalidInput as error:
        raise DefinitionError(error.what, error.why, error.fix) from None


@dataclass(frozen=True)
class Decision(Generic[R_co]):
    """The decision on an approval.

    `outcome` says how it ended, `by` who decided, `reason` why. `chosen` is the plan that may run; None unless
    approved. `again` means rejected with the wish that the run tries once more. A timeout is never a decision.
    """

    outcome: Literal["approved", "rejected", "again"]
    reason: str
    by: str
    chosen: Plan[R_co] | None
    approvers: tuple[str, ...] = ()
    """Names of all people whose approval counted, in the order of their votes."""
    changes: Mapping[str, JsonValue] = field(default_factory=dict)
    """The arguments that the approver changed, with their new values."""

    @property
    def approved(self) -> bool:
        """True if `chosen` may run."""
        return self.chosen is not None
