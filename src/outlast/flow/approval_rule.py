"""Approval rules and decisions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, Literal, TypeAlias, TypeVar

from pydantic import JsonValue

from outlast.core.approver_rule import Person, Rule, any_rule
from outlast.core.keys import check_name
from outlast.errors import DefinitionError, InvalidInput
from outlast.flow.calls import Plan

R_co = TypeVar("R_co", covariant=True)
RISKS: Final = ("", "low", "medium", "high")
Approvers: TypeAlias = Rule | Sequence[Rule]
"""A rule, or several of which an approver has to satisfy one."""


def role(name: str) -> Rule:
    """Return the rule "holds the role `name`". Combine rules with `|` (either) and `&` (one person satisfies both).

    Raises DefinitionError.
    """
    try:
        return Rule(frozenset({frozenset({check_name("role", name)})}))
    except InvalidInput as error:
        raise DefinitionError(error.what, error.why, error.fix) from None


def person(name: str) -> Rule:
    """Return the rule "is the caller `name`": the subject of a credential, or the name of a local user.

    Raises DefinitionError.
    """
    try:
        return Rule(frozenset({frozenset({Person(name)})}))
    except InvalidInput as error:
        raise DefinitionError(error.what, error.why, error.fix) from None


def rule_of(where: str, by: Approvers) -> Rule:
    """Return the rule that `by` of `where` gives. Raises DefinitionError."""
    given: object = by  # a caller without a type checker may pass anything
    rules = [by] if isinstance(by, Rule) else list(by) if isinstance(given, Iterable) else []
    if not rules or not all(isinstance(each, Rule) for each in rules):
        raise DefinitionError(
            f"by of {where} is {by!r}"[:300],
            "it names roles and persons",
            'by=role("lead"), by=person("ana") or by=[role("lead"), person("bo")]',
        )
    return any_rule(rules)


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
