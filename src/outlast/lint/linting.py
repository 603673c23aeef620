"""Check files by the rules, and leave out what a comment silences."""

import inspect
import io
import re
import tokenize
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Final, NamedTuple

from outlast.errors import InvalidInput
from outlast.flow.activity import Activity
from outlast.lint import declared_rules, node_rules, pure_rules  # noqa: F401 - each adds its rules
from outlast.lint.key_rules import FIELD
from outlast.lint.rules import CHECKS, RULES, LintFinding, LintRule
from outlast.lint.source_file import DeclaredActivity, SourceFile

SILENCED: Final = re.compile(r"#\s*outlast:\s*ignore(?:\[([A-Z0-9, ]*)\])?(.*)")
WITHOUT_REASON: Final = "OL001"
SILENCES_NOTHING: Final = "OL002"
NOT_READ: Final = "OL003"
RULES[WITHOUT_REASON] = LintRule(
    WITHOUT_REASON,
    "A comment that silences a rule says which rule and why, for the next reader.",
    "write # outlast: ignore[OL301] the reason",
)
RULES[SILENCES_NOTHING] = LintRule(
    SILENCES_NOTHING, "A comment that silences nothing hides the next mistake in its line.", "delete the comment"
)
RULES[NOT_READ] = LintRule(NOT_READ, "Nothing of this file was checked.", "correct its syntax")
DOES_NOT_LOAD: Final = "OL004"
RULES[DOES_NOT_LOAD] = LintRule(DOES_NOT_LOAD, "No worker can serve this module.", "correct the definition")
SKIPPED: Final = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist"})


class Linted(NamedTuple):
    """The findings of some files, and the number of files and lines that were read."""

    findings: Sequence[LintFinding]
    files: int
    lines: int


class _Silence(NamedTuple):
    codes: frozenset[str]
    reason: str
    column: int


def selected(select: Collection[str] = (), ignore: Collection[str] = ()) -> frozenset[str]:
    """Return the codes of the rules to check. Raises InvalidInput for an unknown code."""
    for code in (*select, *ignore):
        if code not in RULES:
            raise InvalidInput(f"there is no rule {code}", f"there are {', '.join(RULES)}", "outlast lint --rules")
    return frozenset(set(select or RULES) - set(ignore))


def lint_text(
    path: str,
    text: str,
    codes: Collection[str] | None = None,
    imported: Mapping[str, DeclaredActivity] = MappingProxyType({}),
) -> list[LintFinding]:
    """Return the findings of a file, by line.

    `codes`: the rules to check; None for all. `imported`: activities of other modules.
    """
    codes = selected() if codes is None else codes
    try:
        source = SourceFile(text, imported)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None) or 1
        return _not_read(path, line, str(getattr(error, "msg", error)), codes)
    if not source.uses_outlast:
        return []
    found: dict[tuple[int, int, str], LintFinding] = {}
    for code, check in CHECKS.items():
        if code in codes:
            for node, detail in check(source):
                line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1
                found.setdefault((line, column, code), _finding(path, line, column, code, detail))
    return _silenced(path, text, list(found.values()), codes)


def lint_file(path: Path, codes: Collection[str] | None = None, module: ModuleType | None = None) -> Linted:
    """Return the findings of one file; `module`: the same file, loaded. Raises InvalidInput if it cannot be read."""
    try:
        with tokenize.open(path) as file:
            text = file.read()
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read", error.strerror or str(error), "name a file or a folder") from error
    except (SyntaxError, UnicodeDecodeError) as error:
        return Linted(_not_read(str(path), 1, str(error), codes), 1, 0)
    imported = imported_activities(module) if module is not None else {}
    return Linted(lint_text(str(path), text, codes, imported), 1, text.count("\n") + (not text.endswith("\n")))


def _not_read(path: str, line: int, detail: str, codes: Collection[str] | None) -> list[LintFinding]:
    return [_finding(path, line, 1, NOT_READ, detail)] if codes is None or NOT_READ in codes else []


def imported_activities(module: ModuleType) -> dict[str, DeclaredActivity]:
    """Return the activities that a loaded module can see, by their names in it."""
    return {
        name: DeclaredActivity(
            FIELD.findall(each.key or ""),
            list(inspect.signature(each.fn).parameters),
            None if each.timeout is None else round(each.timeout.total_seconds() * 1_000),
            each.retry.attempts,
        )
        for name, each in vars(module).items()
        if isinstance(each, Activity)
    }


def python_files(path: Path) -> Iterator[Path]:
    """Yield a file, or the Python files of a folder. Hidden folders and installed packages are left out."""
    if not path.is_dir():
        yield path
        return
    for each in sorted(path.rglob("*.py")):
        inside = each.relative_to(path).parts
        if not any(part.startswith(".") or part in SKIPPED for part in inside):
            yield each


def finding_of(code: str, file: str, where: str, detail: str) -> LintFinding:
    """Return a finding at a place "file:line"; without one, at the first line of the file."""
    path, _, line = where.rpartition(":")
    return _finding(path or file, int(line) if line.isdecimal() else 1, 1, code, detail)


def _finding(path: str, line: int, column: int, code: str, detail: str) -> LintFinding:
    return LintFinding(path, line, column, code, detail, RULES[code].sentence, RULES[code].fix)


def _silenced(path: str, text: str, found: list[LintFinding], codes: Collection[str]) -> list[LintFinding]:
    """Leave out the findings that a comment in their line silences, and add what is wrong with such comments."""
    silences = dict(_silences(text))
    kept: list[LintFinding] = []
    used: set[int] = set()
    for each in found:
        silence = silences.get(each.line)
        if silence is not None and each.code in silence.codes and silence.reason:
            used.add(each.line)
        else:
            kept.append(each)
    for line, silence in silences.items():
        if not silence.codes or not silence.reason:
            code, detail = WITHOUT_REASON, "the comment has no " + ("reason" if silence.codes else "code of a rule")
        elif line not in used and all(each in codes or each not in RULES for each in silence.codes):
            code, detail = SILENCES_NOTHING, f"{', '.join(sorted(silence.codes))} is not found here"
        else:
            continue
        if code in codes:
            kept.append(_finding(path, line, silence.column, code, detail))
    return sorted(kept, key=lambda each: (each.line, each.column, each.code))


def _silences(text: str) -> Iterator[tuple[int, _Silence]]:
    """Yield each comment that silences rules, with its line."""
    if "outlast:" not in text:
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and (match := SILENCED.search(token.string)):
            codes = frozenset(part.strip() for part in (match[1] or "").split(",") if part.strip())
            yield token.start[0], _Silence(codes, match[2].strip(" -:"), token.start[1] + 1)
