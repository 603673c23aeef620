"""The rule about names of the package that nothing in the package uses: code for tests alone belongs to the tests.

A name is used if the package has the word outside the name's own definition, or a page of the documentation as code.
So a dead name escapes if something else bears it.
"""

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Final

from tests.tidy_rules import AUTHORS_PACKAGE, Finding, Source

WORD: Final = re.compile(r"\w+")
CODE: Final = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
Named = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
# Decorators that leave the name as it is. Any other one registers the name, or a base class calls it.
PLAIN: Final = {
    "abc.abstractmethod", "classmethod", "functools.cache", "functools.cached_property", "property", "staticmethod",
}  # fmt: skip

CALLED_BY_OTHERS: Final = {
    "_decode_payload": "PyJWT calls it",
    "is_trace_id_random": "OpenTelemetry calls it",
    "settings_customise_sources": "pydantic-settings calls it",
}


def names_without_use(sources: Collection[Source], texts: Collection[str]) -> Iterator[Finding]:
    """Remove names of the package that only tests use. `texts`: other files in which a word is a use."""
    known: Counter[str] = Counter()
    for source in sources:
        known.update(_words(source.tree, source))
    for text in texts:
        known.update(WORD.findall(text))
    for source in sources:
        if source.module.startswith(AUTHORS_PACKAGE):
            continue
        for name, node in _names(source):
            if known[name] <= _itself(name, node) and not name.startswith("__"):
                yield source.found(node, f"{name} is used by no module of the package: move it to the tests")


def _itself(name: str, node: ast.stmt) -> int:
    """Count the places where a definition reads its own name. A method that calls another object's is an override."""
    found = [each for each in ast.walk(node) if isinstance(node, Named)]
    calls = sum(isinstance(each, ast.Name) and each.id == name for each in found)
    methods = [each.value for each in found if isinstance(each, ast.Attribute) and each.attr == name]
    return calls + sum(isinstance(each, ast.Name) and each.id == "self" for each in methods)


def _names(source: Source) -> Iterator[tuple[str, ast.stmt]]:
    """Yield each function, class, method and constant of a module that only its name can reach."""
    for node in source.nodes:
        if isinstance(node, Named) and {source.dotted(each) for each in node.decorator_list} <= PLAIN:
            yield node.name, node
    for node in source.tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        registers = source.path.startswith("outlast/operations/") and isinstance(getattr(node, "value", None), ast.Call)
        for target in targets if isinstance(node, ast.Assign | ast.AnnAssign) and not registers else ():
            if isinstance(target, ast.Name):
                yield target.id, node


def code_in(page: str) -> str:
    """Return what a page has as code."""
    return " ".join(CODE.findall(page))


def _words(top: ast.AST, source: Source) -> Iterator[str]:
    """Yield the names that are read below a node, and the words of its strings that are no docstrings."""
    for node in ast.walk(top):
        match node:
            case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name, ctx=ast.Load()):
                yield name
            case ast.MatchClass(kwd_attrs=names):
                yield from names
            case ast.Constant(value=str(text)) if id(node) not in source.docstrings:
                yield from WORD.findall(text)
