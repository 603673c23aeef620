"""Sizes of the package, which `limits.toml` bounds: `python -m tests.sizes` prints them, `--write` stores them.

A limit may be lowered at any time. A raise needs an entry `[[raise]]` with its date and its reason, which a reviewer
reads; `--write --reason TEXT` adds one for each size above its limit. `tests/test_limits.py` compares the file with the
one of the parent commit.
"""

import argparse
import ast
import datetime
import json
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from statistics import median
from typing import Final

from outlast import agent, flow, operations, testing
from outlast.flow.source import syntax_tree
from tests import duplicates, loaded

ROOT: Final = Path(__file__).parents[1]
PACKAGE: Final = ROOT / "src" / "outlast"
LIMITS: Final = ROOT / "limits.toml"
MANY_PARAMETERS: Final = 8
OLD_WORDS: Final = frozenset({"begun", "heard", "house", "said", "told", "whose"})
"""Parts of names that hide what a value is: `said` may be a text, an answer or a row."""
SKIP: Final = "# fmt: skip"
SLACK: Final = 1.03
"""A limit that is higher than this multiple of its size must be lowered."""
Sizes = dict[str, int]
Function = ast.FunctionDef | ast.AsyncFunctionDef


def statements_of(tree: ast.AST) -> int:
    """Count statements in bodies of functions, without docstrings, imports and inner signatures."""
    found = 0
    for function in (node for node in ast.walk(tree) if isinstance(node, Function)):
        for node in _inside(function):
            plain = not isinstance(node, Function | ast.ClassDef | ast.Import | ast.ImportFrom)
            found += plain and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
    return found


def _inside(function: ast.AST) -> Iterator[ast.stmt]:
    for child in ast.iter_child_nodes(function):
        if isinstance(child, Function | ast.ClassDef | ast.Lambda):
            continue
        if isinstance(child, ast.stmt):
            yield child
        yield from _inside(child)


@cache
def files() -> tuple[tuple[str, str, ast.Module], ...]:
    """Return each file of the package: the name of its part, its text and its tree."""
    return tuple(
        (_part(path), text, syntax_tree(text))
        for path in sorted(PACKAGE.rglob("*.py"))
        for text in [path.read_text(encoding="utf-8")]
    )


def _part(path: Path) -> str:
    """Return the package of a file; a store with a separate folder is a separate part."""
    parts = path.relative_to(PACKAGE).parts[:-1]
    return "/".join(parts[: 2 if parts[:1] == ("store",) else 1]) or "outlast"


@cache
def words_by_file() -> tuple[frozenset[str], ...]:
    """Return the words of each file of the package, the tests and the docs."""
    found = [*PACKAGE.rglob("*"), *(ROOT / "tests").rglob("*"), *(ROOT / "docs").rglob("*")]
    kinds = {".py", ".toml", ".json", ".csv", ".md", ".html", ".jsonl"}
    texts = (path.read_text(encoding="utf-8") for path in found if path.suffix in kinds and path.is_file())
    return tuple(frozenset(re.findall(r"\w+", text)) for text in texts)


def files_naming(words: frozenset[str]) -> int:
    """Count the files of the package, the tests and the docs that contain one of the words."""
    return sum(not words.isdisjoint(each) for each in words_by_file())


def old_names(tree: ast.AST) -> int:
    """Count the definitions whose name has an old word as a part."""
    found = 0
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                found += not OLD_WORDS.isdisjoint(name.lower().split("_"))
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                words = set(name.lower().split("_"))
                found += not OLD_WORDS.isdisjoint(words) and not name.startswith("test_")
            case _:
                pass
    return found


def skips_on_calls(text: str, tree: ast.Module) -> list[int]:
    """Return the lines of `# fmt: skip` on a call or a signature: it is for tables, which the formatter would spread.

    A call of one literal, such as `frozenset({...})`, is a table.
    """
    skipped = [number for number, line in enumerate(text.splitlines(), 1) if SKIP in line]
    if not skipped:
        return []
    plain = [node for node in ast.walk(tree) if isinstance(node, ast.stmt | ast.ExceptHandler)]
    return [line for line in skipped if not _is_table(_statement_at(line, plain))]


def _statement_at(line: int, statements: Iterable[ast.stmt | ast.ExceptHandler]) -> ast.AST | None:
    """Return the innermost statement, or head of one, that has this line."""
    found: ast.stmt | ast.ExceptHandler | None = None
    for node in statements:
        body = getattr(node, "body", None)
        end = body[0].lineno - 1 if body else node.end_lineno or node.lineno
        if node.lineno <= line <= end and (found is None or node.lineno >= found.lineno):
            found = node
    return found


def _is_table(node: ast.AST | None) -> bool:
    if isinstance(node, ast.ImportFrom):
        return True
    value = getattr(node, "value", None)
    if isinstance(value, ast.Call) and len(value.args) == 1 and not value.keywords:
        (value,) = value.args
    return isinstance(value, ast.Dict | ast.List | ast.Set | ast.Tuple) and not isinstance(node, ast.Expr)


def measure() -> Sizes:
    """Return the sizes by name, as in `limits.toml`."""
    sizes: Counter[str] = Counter()
    for part, text, tree in files():
        sizes[f"statements.{part}"] += statements_of(tree)
        sizes[f"modules.{part}"] += 1
        sizes["old_names.src"] += old_names(tree)
        sizes["fmt_skip"] += text.count(SKIP)
        sizes["fmt_skip_on_calls"] += len(skips_on_calls(text, tree))
        for node in ast.walk(tree):
            if isinstance(node, Function):
                given = node.args
                sizes["functions_with_many_parameters"] += (
                    len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs) >= MANY_PARAMETERS
                )
    for path in (ROOT / "tests").rglob("*.py"):
        sizes["old_names.tests"] += old_names(syntax_tree(path.read_text(encoding="utf-8")))
    sizes["duplicate_functions"] = len(duplicates.of_the_package())
    sizes["repeated_signatures"] = len(duplicates.repeated_signatures(duplicates.package()))
    small = loaded.in_a_process()
    sizes["modules_of_a_small_program"] = len(small)
    sizes["lines_of_a_small_program"] = loaded.rounded(sum(small.values()))
    import outlast

    for name, module in (("outlast", outlast), ("flow", flow), ("agent", agent), ("testing", testing)):
        sizes[f"exports.{name}"] = len(module.__all__)
    names = (frozenset((each.id, each.id.upper(), each.request.__name__)) for each in operations.OPERATIONS)
    sizes["files_of_an_operation"] = int(median(map(files_naming, names)))
    return dict(sorted(sizes.items()))


def read(text: str) -> tuple[Sizes, list[dict[str, object]]]:
    """Return the limits of a `limits.toml`, and its raises."""
    found = tomllib.loads(text)
    return found["limits"], found.get("raise", [])


def written(sizes: Sizes, raises: str) -> str:
    """Return the text of a `limits.toml`."""
    lines = (f'"{name}" = {size}' for name, size in sizes.items())
    return "\n".join((HEAD, "[limits]", *lines, "", raises)).rstrip() + "\n"


def raised(limits: Sizes, sizes: Sizes, date: datetime.date, reason: str) -> str:
    """Return an entry `[[raise]]` for each size above its limit."""
    why = json.dumps(reason, ensure_ascii=False)
    return "".join(
        f'\n[[raise]]\nname = "{name}"\nto = {size}\ndate = {date}\nreason = {why}\n'
        for name, size in sizes.items()
        if size > limits.get(name, 0)
    )


HEAD: Final = """\
# Sizes that only shrink: `python -m tests.sizes --write` lowers them. To raise some: `--write --reason TEXT`, which
# adds a [[raise]] with name, to, date and reason. Statements are those in bodies of functions; files_of_an_operation
# is the number of files of the package, the tests and the docs that name an operation, as the median of all
# operations. old_names counts definitions with a word that hides what a value is (tests/sizes.py), tests/duplicates.py
# lists the duplicates, and tests/loaded.py the modules of a small program.
"""


def main(words: Sequence[str]) -> None:
    """Print the sizes, and store them if asked."""
    parser = argparse.ArgumentParser(prog="python -m tests.sizes", description=__doc__)
    parser.add_argument("--write", action="store_true", help="Store the sizes as limits.")
    parser.add_argument("--reason", help="Add a raise with this reason for each size above its limit.")
    given, now = parser.parse_args(words), measure()
    if given.write:
        before = LIMITS.read_text(encoding="utf-8")
        _, mark, raises = before.partition("\n[[raise]]")
        today = datetime.datetime.now(datetime.UTC).date()
        added = raised(read(before)[0], now, today, given.reason) if given.reason else ""
        LIMITS.write_text(written(now, f"{mark}{raises}{added}".lstrip()))
    sys.stdout.writelines(f"{name:40} {size:>7,}\n" for name, size in now.items())


if __name__ == "__main__":
    main(sys.argv[1:])
