"""Who may decide, and what was decided."""

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
    """Who may decide: any of several sets of roles, each set held by one person: `role("a") | role("b") & role("c")`.

    `str(rule)` is its one written form, `a | b & c` (& binds tighter); `Rule.parse` reads it back.
    """

    any_of: frozenset[frozenset[str]]

    def __post_init__(self) -> None:
        if not self.any_of or not all(self.any_of):
            raise DefinitionError("a rule without a role", "nobody could ever decide", 'name one: role("finance")')
        if sum(map(len, self.any_of)) > ROLES_PER_RULE_MAX:
            raise DefinitionError(
                "a rule of too many roles",
                f"at most {ROLES_PER_RULE_MAX} can stand in one",
                "give these people a role of their own",
            )

    @classmethod
    def parse(cls, text: str) -> "Rule":
        """The rule written as `text`. Raises InvalidInput."""
        sets = [[name.strip() for name in part.split("&")] for part in text.split("|")]
        return cls(frozenset(frozenset(check_name("role", name) for name in names) for names in sets))

    def allows(self, roles: Container[str]) -> bool:
        """Whether somebody who holds `roles` may decide."""
        return any(all(name in roles for name in names) for names in self.any_of)

    def __or__(self, other: "Rule") -> "Rule":
        return Rule(self.any_of | other.any_of)

    def __and__(self, other: "Rule") -> "Rule":
        return Rule(frozenset(left | right for left in self.any_of for right in other.any_of))

    def __str__(self) -> str:
        return " | ".join(sorted(" & ".join(sorted(names)) for names in self.any_of))


def role(name: str) -> Rule:
    """Whoever holds this role. `|`: either; `&`: one person who holds both. Raises DefinitionError."""
    try:
        return Rule(frozenset({frozenset({check_name("role", name)})}))
    except InvalidInput as error:
        raise DefinitionError(error.what, error.why, error.fix) from None


class _Everything:
    def __contains__(self, name: object) -> bool:
        return True


EVERY_ROLE: Final[Container[str]] = _Everything()
"""The roles of the local operator, who holds them all."""


@dataclass(frozen=True)
class Decision(Generic[R_co]):
    """What was decided, by whom, and the plan that may now run (None unless approved).

    `again` = rejected, and the run should go round once more. A person's silence is never a decision.
    """

    outcome: Literal["approved", "rejected", "again"]
    reason: str
    by: str
    chosen: Plan[R_co] | None
    approvers: tuple[str, ...] = ()
    """Everyone whose approval counted, in the order they gave it."""
    changes: Mapping[str, JsonValue] = field(default_factory=dict)
    """The arguments that the decision changed, with their new values."""

    @property
    def approved(self) -> bool:
        """Whether `chosen` may run."""
        return self.chosen is not None
