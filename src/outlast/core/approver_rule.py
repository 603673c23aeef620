"""Rule of who may decide an approval: roles, named persons and their combinations, with a canonical text."""

import json
import re
from collections.abc import Container, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from outlast.core.keys import check_name
from outlast.core.limits import PERSON_CHARS_MAX, ROLES_PER_RULE_MAX
from outlast.core.visible import INVISIBLE
from outlast.errors import DefinitionError, InvalidInput

LOCAL: Final = "local:"
"""Prefix of the names that the command line gives local users."""
OF_RUN: Final = "run "
"""Prefix of the names under which runs act on one another."""
PERSON: Final = "person:"
"""Prefix of a person in the text of a rule. No role name has a colon."""

_PART: Final = re.compile(r'((?:"(?:[^"\\]|\\.)*"|[^|&"])*)([|&]|\Z)', re.DOTALL).match
_BARE: Final = re.compile(r'[^\s"|&]+').fullmatch


def identity(name: str) -> str:
    """Return the name of a caller as a rule names it: `ana` for the caller `ana` and for the local user `local:ana`."""
    return name.removeprefix(LOCAL)


def refusal_of_name(name: object) -> str:
    """Return why this text cannot be the name of a caller, or '' if it can."""
    if not isinstance(name, str) or not 0 < len(name) <= PERSON_CHARS_MAX:
        return f"is not a text of 1 to {PERSON_CHARS_MAX} characters"
    if not name.isprintable() or name != name.strip() or INVISIBLE.search(name):
        return "contains invisible characters"
    if name.lower().startswith(LOCAL):
        return f"begins with {LOCAL}, which is reserved for the command line"
    if name.lower().startswith(OF_RUN):
        return "begins with the word run, which is reserved for runs"
    return ""


@dataclass(frozen=True)
class Person:
    """Caller by name: the subject of a credential, or a local user. Written `person:ana`, or quoted as JSON text."""

    name: str

    def __post_init__(self) -> None:
        if why := refusal_of_name(self.name):
            raise InvalidInput(
                f"{self.name!r} cannot name a person"[:300],
                f"the name {why}",
                'give the name of the caller as its credential has it, e.g. "ana"',
            )

    def __str__(self) -> str:
        return PERSON + (self.name if _BARE(self.name) else json.dumps(self.name, ensure_ascii=False))


@dataclass(frozen=True)
class Rule:
    """A rule over roles and persons: sets of them, of which an approver must match one completely.

    Written `role("a") | role("b") & person("ana")`, which are the sets {a} and {b, ana} in `any_of`. `str(rule)` is its
    canonical text, `a | b & person:ana` (& binds tighter), which `Rule.parse` reads.
    """

    any_of: frozenset[frozenset[str | Person]]

    def __post_init__(self) -> None:
        if not self.any_of or not all(self.any_of):
            raise DefinitionError(
                "a rule without a role or a person", "no one could decide", 'name one: role("finance")'
            )
        if two := next((terms for terms in self.any_of if not _possible(terms)), None):
            raise DefinitionError(
                f"a rule requires one approver to be {_text(two)}",
                "one approver is one person, so no one could decide",
                'write person("ana") | person("bo"), or quorum=2',
            )
        if sum(map(len, self.any_of)) > ROLES_PER_RULE_MAX:
            raise DefinitionError(
                "a rule of too many roles",
                f"at most {ROLES_PER_RULE_MAX} roles and persons in one rule",
                "define one role for these people",
            )

    @classmethod
    @lru_cache(maxsize=1024)  # because a list of approvals repeats few rules
    def parse(cls, text: str) -> "Rule":
        """Return the rule written as `text`. Raises InvalidInput."""
        sets: list[set[str | Person]] = [set()]
        at, operator = 0, "&"
        while operator:
            part = _PART(text, at)
            if part is None:
                raise InvalidInput(
                    f"{text!r} is no rule"[:300], "a quotation mark is not closed", 'write person:"Ana B"'
                )
            sets[-1].add(_term(part[1].strip()))
            at, operator = part.end(), part[2]
            if operator == "|":
                sets.append(set())
        try:
            return cls(frozenset(map(frozenset, sets)))
        except DefinitionError as error:
            raise InvalidInput(error.what, error.why, error.fix) from None

    def allows(self, roles: Container[str], name: str) -> bool:
        """Return True if the caller of this `name` with these `roles` may decide."""
        return any(all(_matches(term, roles, name) for term in terms) for terms in self.any_of)

    @property
    def persons(self) -> frozenset[str]:
        """Names of the persons that the rule names."""
        return frozenset(term.name for terms in self.any_of for term in terms if isinstance(term, Person))

    @property
    def without_names(self) -> str:
        """Text of the rule with `person` in place of each person, for labels of metrics."""
        sets = {" & ".join(sorted(each if isinstance(each, str) else "person" for each in s)) for s in self.any_of}
        return " | ".join(sorted(sets))

    def names_role(self, role: str) -> bool:
        """Return True if the rule names this `role`."""
        return any(role in terms for terms in self.any_of)

    def __or__(self, other: "Rule") -> "Rule":
        return Rule(self.any_of | other.any_of)

    def __and__(self, other: "Rule") -> "Rule":
        both = frozenset(left | right for left in self.any_of for right in other.any_of)
        possible = frozenset(filter(_possible, both))
        return Rule(possible or both)  # if no person can match, the rule says so

    def __str__(self) -> str:
        return " | ".join(sorted(map(_text, self.any_of)))


def any_rule(rules: Iterable[Rule]) -> Rule:
    """Return the rule that each of these rules satisfies. Raises DefinitionError for none."""
    return Rule(frozenset(terms for rule in rules for terms in rule.any_of))


def _matches(term: str | Person, roles: Container[str], name: str) -> bool:
    if isinstance(term, Person):
        return bool(name) and term.name == identity(name)
    return term in roles


def _possible(terms: frozenset[str | Person]) -> bool:
    return sum(isinstance(term, Person) for term in terms) <= 1


def _text(terms: frozenset[str | Person]) -> str:
    return " & ".join(sorted(map(str, terms)))


def _term(text: str) -> str | Person:
    """Return the role or the person that a part of a rule's text names. Raises InvalidInput."""
    if not text.startswith(PERSON):
        return check_name("role", text)
    name = text.removeprefix(PERSON)
    if name.startswith('"'):
        try:
            return Person(json.loads(name))
        except ValueError:
            pass
    elif _BARE(name):
        return Person(name)
    raise InvalidInput(
        f"{text!r} names no person"[:300],
        "a name with spaces or other signs is quoted as JSON text",
        'write person:ana or person:"Ana B"',
    )
