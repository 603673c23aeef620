"""Everything declared in this process, by name: the one place with module-level mutable state.

A name may be declared in several places of one process (two modules, two tests); it is an error only when a name
has to be found and two places answer. Declaring again at the same file and line (a reload) replaces.
"""

import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar, get_type_hints

from outlast.errors import DefinitionError, NotFound


class _Named(Protocol):
    name: str
    where: str


N = TypeVar("N", bound=_Named)


class Registry(Generic[N]):
    """Declared things of one kind, by name and by where they are declared."""

    def __init__(self, kind: str) -> None:
        self.kind: Final = kind
        self._by_name: Final[dict[str, dict[str, N]]] = {}

    def add(self, item: N) -> None:
        """Remember `item`, in place of what was declared on the same line."""
        self._by_name.setdefault(item.name, {})[item.where] = item

    def find(self, name: str) -> N:
        """The one thing of this name. Raises NotFound for none, DefinitionError for several."""
        found = list(self._by_name.get(name, {}).values())
        if not found:
            raise NotFound(
                f'no {self.kind} "{name}"',
                "this process has loaded nothing of that name",
                "import the module that declares it",
            )
        if len(found) > 1:
            raise ambiguous(self.kind, found)
        return found[0]


def ambiguous(kind: str, items: list[Any]) -> DefinitionError:
    """The error that names every place where `items`, all of one name, are declared."""
    places = " and ".join(sorted(item.where for item in items))
    return DefinitionError(
        f'{kind} "{items[0].name}" is declared more than once',
        f"at {places}; what is stored under the name could mean either",
        'give one of them another name, e.g. name="mail.send"'
        if kind == "activity"
        else "give one of them another name",
        where=items[-1].where,
    )


ACTIVITIES: Final[Registry[Any]] = Registry("activity")
WORKFLOWS: Final[Registry[Any]] = Registry("workflow")
CLASSIFIED: Final[dict[type[BaseException], Any]] = {}
"""What authors said of exceptions: their class → the class of flow/outcomes.py that says the same."""


def where_of(fn: Callable[..., Any]) -> str:
    """File and line of a function, relative to the working directory where it lies below it."""
    code = inspect.unwrap(fn).__code__
    return place(code.co_filename, code.co_firstlineno)


def where_called(depth: int) -> str:
    """File and line of the caller `depth` frames above the function that asks."""
    frame = sys._getframe(depth + 1)
    return place(frame.f_code.co_filename, frame.f_lineno)


def locals_of_caller(depth: int) -> Mapping[str, Any]:
    """A copy of the names local to the caller `depth` frames above; empty at module level."""
    frame = sys._getframe(depth + 1)
    return {} if frame.f_locals is frame.f_globals else dict(frame.f_locals)


def hints_of(fn: Callable[..., Any], names: Mapping[str, Any]) -> dict[str, Any]:
    """The annotations of `fn`, with text resolved by its module and then `names`. Raises NameError if that fails."""
    return get_type_hints(fn, localns=dict(names), include_extras=True)


def place(filename: str, line: int) -> str:
    """Return "file:line", relative to the working directory where the file lies below it."""
    path = Path(filename)
    try:
        return f"{path.relative_to(Path.cwd())}:{line}"
    except (ValueError, OSError):  # not below it, or the directory is gone
        return f"{filename}:{line}"
