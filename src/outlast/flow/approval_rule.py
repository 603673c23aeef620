"""Approval rules and decisions."""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, Literal, TypeVar

from pydantic import JsonValue

from outlast.core.keys import check_name
from outlast.core.limits import ROLES_PER_RULE_MAX
from outlast.errors import DefinitionError, InvalidInput
from outlast.flow.calls import Plan

R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True)
class Rule:
    """A rule over roles: sets of roles, of which an approver must hold one completely.

    Written `role("a") | role("b") & role("c")`, which are the sets {a} and {b, c} in `any_of`. `str(rule)` is its
    canonical text, `a | b & c` (& binds tighter), which `Rule.parse` reads.
    """

    any_of: frozenset[frozenset[str]]

    def __post_init__(self) -> None:
        if not self.any_of or not all(self.any_of):
            raise DefinitionError("a rule without a role", "no one could decide", 'name one: role("finance")')
        if sum(map(len, self.any_of)) > ROLES_PER_RULE_MAX:
            raise DefinitionError(
                "a rule of too many roles",
                f"at most {ROLES_PER_RULE_MAX} roles in one rule",
                "define one role for these people",
            )

    @classmethod
    def parse(cls, text: str) -> "Rule":
        """Return the rule written as `text`. Raises InvalidInput."""
        sets = [[name.strip() for name in part.split("&")] for part in text.split("|")]
        return cls(frozenset(frozenset(check_name("role", name) for name in names) for names in sets))

    def allows(self, roles: Container[str]) -> bool:
        """True if a person with these `roles` may decide."""
        return any(all(name in roles for name in names) for names in self.any_of)

    def __or__(self, other: "Rule") -> "Rule":
        return Rule(self.any_of | other.any_of)

    def __and__(self, other: "Rule") -> "Rule":
        return Rule(frozenset(left | right for left in self.any_of for right in other.any_of))

    def __str__(self) -> str:
        return " | ".join(sorted(" & ".join(sorted(names)) for names in self.any_of))


def role(name: str) -> Rule:
    """Return the rule "holds the role `name`". Combine rules with `|` (either) and `&` (one person holds both).

    Raises DefinitionError.
    """
    try:
        return Rule(frozenset({frozenset({check_name("role", name)})}))
    except InvalidInput as error:
        raise DefinitionError(error.what, error.why, error.fix) from None


class _Everything:
    def __contains__(self, name: object) -> bool:
        return True


EVERY_ROLE: Final[Container[str]] = _Everything()
"""The roles of the local operator, who holds every role."""


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
