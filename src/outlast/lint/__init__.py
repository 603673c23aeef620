"""Rules about workflows that are found in the source of a module, without running it: `outlast lint`."""

from outlast.lint.linting import (
    DOES_NOT_LOAD,
    Linted,
    finding_of,
    lint_file,
    lint_text,
    python_files,
    selected,
)
from outlast.lint.rules import RULES, LintFinding, LintRule

__all__ = [
    "DOES_NOT_LOAD",
    "RULES",
    "LintFinding",
    "LintRule",
    "Linted",
    "finding_of",
    "lint_file",
    "lint_text",
    "python_files",
    "selected",
]
