"""A file that `pytest --outlast-lint` checks."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from outlast.lint import LintFinding, lint_file


class Unclean(Exception):
    """The source of a file has mistakes."""

    def __init__(self, found: list[LintFinding]) -> None:
        super().__init__("\n".join(f"{each.place}: {each.code} {each.detail}\n  → {each.fix}" for each in found))


class LintedFile(pytest.File):
    """A Python file as pytest collects it for lint."""

    @override
    def collect(self) -> Iterator[pytest.Item]:
        yield LintItem.from_parent(self, name="outlast-lint")


class LintItem(pytest.Item):
    """The check of one file. Nothing is imported."""

    @override
    def runtest(self) -> None:
        if found := lint_file(self.path).findings:
            raise Unclean([*found])

    @override
    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        return str(excinfo.value) if isinstance(excinfo.value, Unclean) else super().repr_failure(excinfo, style)

    @override
    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, f"{self.path.name}: outlast lint"
