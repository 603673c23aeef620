"""Pairs of functions of the package that are almost equal: `python -m tests.duplicates` lists them, nearest first.

A function is the sequence of its syntax nodes, attributes, keywords and constants. Local names, annotations and
docstrings are left out, so that a copy with other names is found. Two functions are a pair if most runs of `RUN`
elements occur in both. A signature is repeated if a function of another module has the same `PARAMETERS_MIN`
parameters or more. `limits.toml` bounds both numbers. `client/sync.py` is generated and left out.
"""

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Final, NamedTuple

from outlast.flow.source import syntax_tree

ROOT: Final = Path(__file__).parents[1]
PACKAGE: Final = ROOT / "src" / "outlast"
GENERATED: Final = {"client/sync.py"}
RUN: Final = 6
ELEMENTS_MIN: Final = 25
"""Shorter functions are alike by nature, such as those that pass on."""
ALIKE: Final = 0.5
"""Part of the runs of both functions that is common to them."""
PARAMETERS_MIN: Final = 5
COMMON_MAX: Final = 40
"""A run that more functions have is an idiom, and is not compared."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Shape(NamedTuple):
    """A function with its place and the runs of its elements."""

    place: str
    runs: frozenset[tuple[str, ...]]


class Pair(NamedTuple):
    """Two functions with the part of their runs that they have in common."""

    part: float
    one: str
    other: str


def elements(function: Function) -> Iterator[str]:
    """Yield the elements of a function in the order of its text."""
    for argument in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs):
        yield f"argument {argument.arg}"
    body = function.body[ast.get_docstring(function) is not None :]
    for statement in body:
        yield from _below(statement)


def _below(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Constant(value=value):
            yield repr(value)
        case ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
            yield name
        case ast.expr_context() | ast.Name():
            pass
        case _:
            yield type(node).__name__
    for child in ast.iter_child_nodes(node):
        if not (isinstance(node, ast.AnnAssign) and child is node.annotation):
            yield from _below(child)


def shapes(path: str, tree: ast.AST) -> Iterator[Shape]:
    """Yield the functions of a file that are long enough to be compared. An inner function belongs to its outer one."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, Function):
            yield from shapes(path, node)
        elif len(found := [*elements(node)]) >= ELEMENTS_MIN:
            runs = (tuple(found[at : at + RUN]) for at in range(len(found) - RUN + 1))
            yield Shape(f"{path}:{node.lineno} {node.name}", frozenset(runs))


def pairs(found: list[Shape]) -> list[Pair]:
    """Return the pairs that are alike, nearest first."""
    having: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for number, shape in enumerate(found):
        for run in shape.runs:
            having[run].append(number)
    common: defaultdict[tuple[int, int], int] = defaultdict(int)
    for numbers in having.values():
        if len(numbers) <= COMMON_MAX:
            for two in combinations(numbers, 2):
                common[two] += 1
    alike = (
        Pair(both / len(found[i].runs | found[j].runs), found[i].place, found[j].place)
        for (i, j), both in common.items()
    )
    return sorted((pair for pair in alike if pair.part >= ALIKE), reverse=True)


def signature(function: Function) -> tuple[str, ...]:
    """Return the parameters of a function with their types, without `self`."""
    given = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    return tuple(ast.unparse(each) for each in given if each.arg not in ("self", "cls"))


def overrides(function: Function) -> bool:
    """Return True if the function is a method that is declared elsewhere."""
    return any(ast.unparse(each) == "override" for each in function.decorator_list)


def repeated_signatures(files: Mapping[str, ast.Module]) -> list[str]:
    """Return the signatures that more than one module has, one for each module after the first.

    A method with `@override` is not counted: a type checker compares it with the method that it overrides.
    """
    having: defaultdict[tuple[str, ...], dict[str, str]] = defaultdict(dict)
    for path, tree in files.items():
        for node in ast.walk(tree):
            if isinstance(node, Function) and not overrides(node) and len(given := signature(node)) >= PARAMETERS_MIN:
                having[given].setdefault(path, f"{path}:{node.lineno} {node.name}")
    return [place for places in having.values() for place in [*places.values()][1:]]


@cache
def package() -> Mapping[str, ast.Module]:
    """Return the files of the package that are written by hand."""
    found = ((path.relative_to(PACKAGE).as_posix(), path) for path in sorted(PACKAGE.rglob("*.py")))
    return {name: syntax_tree(path.read_text(encoding="utf-8")) for name, path in found if name not in GENERATED}


def of_the_package() -> list[Pair]:
    """Return the pairs of the package."""
    return pairs([shape for path, tree in package().items() for shape in shapes(path, tree)])


if __name__ == "__main__":
    sys.stdout.writelines(f"{pair.part:.2f}  {pair.one}  {pair.other}\n" for pair in of_the_package())
    sys.stdout.writelines(f"again  {place}\n" for place in repeated_signatures(package()))
