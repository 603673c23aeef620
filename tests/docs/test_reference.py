"""The API reference has every public name, and the docstrings describe every parameter."""

import inspect
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import griffe
import pytest
import yaml

import outlast
import outlast.agent
import outlast.errors
import outlast.flow
import outlast.http
import outlast.langgraph
import outlast.pydantic_ai
import outlast.runtime
import outlast.temporal
import outlast.testing
from tests.docs.pages import ROOT

PAGES = ROOT / "docs/reference"
ENTRY = re.compile(r"^::: (?P<path>[\w.]+)\n(?P<options>(?: {4}.*\n|\n(?= {4}))*)", re.MULTILINE)
OF_THE_CALLEE = {"args", "kwargs"}  # the parameters of the activity, not of the function that makes the call


def _is_error(each: object) -> bool:
    return isinstance(each, type) and issubclass(each, outlast.errors.OutlastError)


PUBLIC: dict[str, list[str]] = {
    "outlast": outlast.__all__,
    "outlast.flow": outlast.flow.__all__,
    "outlast.agent": outlast.agent.__all__,
    "outlast.http": outlast.http.__all__,
    "outlast.langgraph": outlast.langgraph.__all__,
    "outlast.pydantic_ai": outlast.pydantic_ai.__all__,
    "outlast.runtime": outlast.runtime.__all__,
    "outlast.temporal": outlast.temporal.__all__,
    "outlast.testing": outlast.testing.__all__,
    "outlast.errors": [name for name, each in vars(outlast.errors).items() if _is_error(each)],
}


class Entry(NamedTuple):
    """One `:::` of a page, with the members that it shows (None: all that are public and have a docstring)."""

    path: str
    members: list[str] | None
    hidden: re.Pattern[str]


@cache
def package() -> Any:
    """Return the package as griffe reads it, without importing it."""
    return griffe.load("outlast", search_paths=[str(ROOT / "src")], allow_inspection=False, resolve_aliases=True)


def found(path: str) -> Any:
    """Return the object at a path, through its aliases."""
    each = package()[path.removeprefix("outlast.")]
    each = each.final_target if each.is_alias else each
    module, _, name = path.rpartition(".")
    if each.is_module and inspect.isfunction(function := getattr(import_module(module), name, None)):
        return package()[f"{function.__module__}.{function.__name__}".removeprefix("outlast.")]
    return each  # `flow` has modules named `activity` and `workflow`, which the functions of these names hide


def entries() -> Iterator[Entry]:
    """Yield every entry of the reference pages."""
    for page in sorted(PAGES.glob("*.md")):
        for entry in ENTRY.finditer(page.read_text(encoding="utf-8")):
            options = (yaml.safe_load(entry["options"]) or {}).get("options", {})
            hidden = "|".join(one.removeprefix("!") for one in options.get("filters", ["!^_"]))
            yield Entry(entry["path"], options.get("members"), re.compile(hidden))


def shown(each: Any, entry: Entry) -> Iterator[Any]:
    """Yield an object of an entry and everything that its page shows below it."""
    yield each
    for name, member in each.members.items() if each.is_class or each.is_module else ():
        wanted = name in entry.members if entry.members is not None else not entry.hidden.search(f"{name}")
        if wanted and not name.startswith("_") and not member.is_alias and member.has_docstrings:
            yield from shown(member, entry._replace(members=None) if entry.members is not None else entry)


@cache
def all_shown() -> dict[str, Any]:
    """Return every object that a page shows, by path. It takes 2 s, so only the process of these tests reads them."""
    return {each.path: each for entry in entries() for each in shown(found(entry.path), entry)}


def callables() -> dict[str, Any]:
    """Return the classes and functions that a page shows, by path."""
    return {path: each for path, each in all_shown().items() if each.is_class or each.is_function}


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_on_a_page(module: str) -> None:
    missing = [name for name in PUBLIC[module] if found(f"{module}.{name}").path not in all_shown()]
    assert missing == [], f"add `::: {module}.NAME` to a page of docs/reference"


def text_of(each: Any) -> str:
    """Return the docstring of an object; of a class also those of its attributes, its constructor and its bases."""
    parts = [each.docstring.value if each.docstring else ""]
    if each.is_class:
        parts += [text_of(base) for base in each.mro()]
        parts += [f"`{n}` {m.docstring.value}" for n, m in each.members.items() if m.is_attribute and m.docstring]
        parts += [text_of(m) for n, m in each.members.items() if n == "__init__"]
    return "\n".join(parts)


def parameters(each: Any) -> set[str]:
    """Return the names of the parameters of a function or a constructor, of every overload if it has some.

    Of a TypedDict these are its keys, which are keyword arguments. A class that says "Made by …" is constructed by
    Outlast only.
    """
    if each.is_class:
        made = each.docstring is not None and "Made by" in each.docstring.value
        if any(getattr(base, "name", "") == "TypedDict" for base in each.bases):
            return {name for name, member in each.members.items() if member.is_attribute}
        own = ("__init__" in each.members and not made) or "dataclass" in each.labels
        ways = getattr(each.members.get("__init__"), "overloads", None) or [each]
        return {one.name for way in ways for one in way.parameters if one.name[0] != "_"} - {"self"} if own else set()
    return {one.name for way in each.overloads or [each] for one in way.parameters} - {"self", "cls"}


def undescribed(each: Any) -> list[str]:
    """Return the parameters that neither the docstring nor the list of its class names in backticks."""
    text = text_of(each)
    if re.search(r"\bParameters and errors are those of `", text):
        return []
    if each.is_function and each.parent and each.parent.is_class:
        text += text_of(each.parent).partition("Parameters of the methods:")[2]
    return [n for n in sorted(parameters(each) - OF_THE_CALLEE) if not re.search(rf"`{n}(?!\w)", text)]


def test_every_parameter_is_described() -> None:
    missing = {path: names for path, each in callables().items() if (names := undescribed(each))}
    assert missing == {}, "name them in the docstrings, in `backticks`"


def test_a_planted_parameter_is_missed() -> None:
    code = '''
def sent(url: str, *, name: str = "") -> None:
    """Send to `url`. A `named` thing is not the name."""

class Limit:
    """A limit of `most`."""
    def __init__(self, most: int, per: int) -> None: ...

class Options(TypedDict, total=False):
    """Options of a call."""
    most: int
    """Number of calls."""
    per: int
'''
    with griffe.temporary_visited_module(code) as module:
        assert [undescribed(module[name]) for name in ("sent", "Limit", "Options")] == [["name"], ["per"], ["per"]]


def test_the_walk_reaches_methods() -> None:
    reached = {
        "outlast.flow.context.Context.approval",
        "outlast.flow.workflow.Workflow.node",
        "outlast.errors.Busy",
        "outlast.flow.workflow_options.WorkflowOptions",
        "outlast.http.AsyncClient.send",
        "outlast.testing.virtual_runtime.App.start",
    }
    assert reached <= set(callables())
