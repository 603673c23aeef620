"""Registry of everything declared in this process, by name: the only module-level mutable state.

A name may be declared in several places of one process, for instance in two tests. That is an error only if the name
is looked up. A second declaration at the same file and line (a reload) replaces the first.
"""

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar, get_type_hints

from outlast.errors import DefinitionError, NotFound


class _Named(Protocol):
    name: str
    where: str


N = TypeVar("N", bound=_Named)


class Registry(Generic[N]):
    """Declarations of one kind, by name and by place."""

    def __init__(self, kind: str) -> None:
        self.kind: Final = kind
        self._by_name: Final[dict[str, dict[str, N]]] = {}

    def add(self, item: N) -> None:
        """Add a declaration; it replaces one from the same line."""
        self._by_name.setdefault(item.name, {})[item.where] = item

    def find(self, name: str) -> N:
        """Return the declaration of this name. Raises NotFound for none and DefinitionError for several."""
        found = list(self._by_name.get(name, {}).values())
        if not found:
            raise NotFound(
                f'no {self.kind} "{name}"',
                "this process has not loaded it",
                "import the module that declares it",
            )
        if len(found) > 1:
            raise ambiguous(self.kind, found)
        return found[0]

    def all(self) -> Iterator[N]:
        """Yield every declaration, in the order of their names' first declaration."""
        for places in list(self._by_name.values()):
            yield from list(places.values())


class ActivitySource(Protocol):
    """A value of the author's code that represents several activities, such as an agent with its tools."""

    name: str
    where: str

    @property
    def owner(self) -> object:
        """The value that the code of a node mentions."""

    def activities(self) -> Sequence[Any]:
        """Return its activities; the same objects each time. Raises DefinitionError."""


def ambiguous(kind: str, items: list[Any]) -> DefinitionError:
    """Return the error that names every place where `items`, all of one name, are declared."""
    places = " and ".join(sorted(item.where for item in items))
    return DefinitionError(
        f'{kind} "{items[0].name}" is declared more than once',
        f"at {places}; a name in the store could mean either",
        'give one of them another name, e.g. name="mail.send"'
        if kind == "activity"
        else "give one of them another name",
        where=items[-1].where,
    )


ACTIVITIES: Final[Registry[Any]] = Registry("activity")
WORKFLOWS: Final[Registry[Any]] = Registry("workflow")
SOURCES: Final[Registry[ActivitySource]] = Registry("source of activities")
PRICED: Final[list[Callable[[Any], bool]]] = []
"""Functions that return True if the price of a model is known, by the model or its name. Added by `outlast.agent`."""
CLASSIFIED: Final[dict[type[BaseException], Any]] = {}
"""Outcomes that authors declared for exceptions: exception class → class of flow/outcomes.py."""


def find_activity(name: str) -> Any:
    """Return the only activity of this name, also one of a source. Raises NotFound and DefinitionError."""
    try:
        return ACTIVITIES.find(name)
    except NotFound:
        for source in SOURCES.all():
            source.activities()  # declares those that were not needed so far
        return ACTIVITIES.find(name)


def where_of(fn: Callable[..., Any]) -> str:
    """Return the file and line of a function, relative to the working directory if the file is below it."""
    code = inspect.unwrap(fn).__code__
    return place(code.co_filename, code.co_firstlineno)


def where_called(depth: int) -> str:
    """Return the file and line of the caller `depth` frames above the calling function."""
    frame = sys._getframe(depth + 1)
    return place(frame.f_code.co_filename, frame.f_lineno)


def locals_of_caller(depth: int) -> Mapping[str, Any]:
    """Return a copy of the local names of the caller `depth` frames above; empty at module level."""
    frame = sys._getframe(depth + 1)
    return {} if frame.f_locals is frame.f_globals else dict(frame.f_locals)


def hints_of(fn: Callable[..., Any], names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the annotations of `fn`, with text resolved by its module and then by `names`. Raises NameError."""
    return get_type_hints(fn, localns=dict(names), include_extras=True)


def place(filename: str, line: int) -> str:
    """Return "file:line", relative to the working directory if the file is below it."""
    path = Path(filename)
    try:
        return f"{path.relative_to(Path.cwd())}:{line}"
    except (ValueError, OSError):  # not below it, or the directory is gone
        return f"{filename}:{line}"
