"""The rules of `outlast lint`: a code, a sentence and a fix each, and what a check of them finds."""

import ast
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from outlast.lint.source_file import SourceFile


class LintRule(NamedTuple):
    """One mistake that the source shows."""

    code: str
    sentence: str
    """Why it is a mistake."""
    fix: str


class LintFinding(NamedTuple):
    """A place in a file that breaks a rule. `detail` names what was found there."""

    path: str
    line: int
    column: int
    code: str
    detail: str
    sentence: str
    fix: str

    @property
    def place(self) -> str:
        """File and line, as editors open them."""
        return f"{self.path}:{self.line}"


Found: TypeAlias = Iterator[tuple[ast.AST, str]]
"""Each place that breaks a rule, and what was found there."""
Check: TypeAlias = "Callable[[SourceFile], Found]"

RULES: Final[dict[str, LintRule]] = {}
"""Every rule by its code, in the order of the documentation."""
CHECKS: Final[dict[str, Check]] = {}


def rule(code: str, sentence: str, fix: str) -> Callable[[Check], Check]:
    """Declare the rule of a check."""

    def add(check: Check) -> Check:
        RULES[code] = LintRule(code, sentence, fix)
        CHECKS[code] = check
        return check

    return add
