"""Migrations of a run's state from one version of its workflow to another: declared and chained, never guessed."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from outlast.errors import DefinitionError
from outlast.flow.functions import refuse_unrun

Plain = dict[str, Any]


class Migration(NamedTuple):
    """A declared step from one version to another. `fn` takes the old state as plain data and returns the new one."""

    from_: int
    to: int
    fn: Callable[[Plain], Plain]
    renamed: Mapping[str, str]
    where: str
    dropped: tuple[str, ...] = ()


class Moved(NamedTuple):
    """Result of a chain of migrations: the node and the visits by their new names, and the state as plain data."""

    node: str
    visits: dict[str, int]
    state: Plain


def dropped_names(title: str, given: object, where: str) -> tuple[str, ...]:
    """Return the names of activities of `dropped=`. Raises DefinitionError unless it is a list of texts."""
    names = tuple(given) if isinstance(given, list | tuple | set | frozenset) else (None,)
    if not all(isinstance(name, str) and name for name in names):
        what = f"a migration of {title} has dropped={given!r}"
        raise DefinitionError(what, "it takes a list of names of activities", 'dropped=["mail"]', where=where)
    return names


class Migrations:
    """The migrations of one workflow, in both directions."""

    def __init__(self, title: str) -> None:
        self._title: Final = title
        self._from: Final[dict[int, dict[int, Migration]]] = {}

    def add(self, migration: Migration) -> None:
        """Add a declared migration. Raises DefinitionError if it is wrong or declared twice."""

        def wrong(why: str, fix: str) -> DefinitionError:
            what = f"a migration of {self._title} from {migration.from_!r} to {migration.to!r} {why}"
            return DefinitionError(what, migration.where, fix, where=migration.where)

        if any(type(version) is not int or version < 1 for version in (migration.from_, migration.to)):
            raise wrong("has an impossible version", "versions are whole numbers from 1")
        if migration.from_ == migration.to:
            raise wrong("changes no version", "set from_= to the version that the runs have now")
        ways = self._from.setdefault(migration.from_, {})
        same = ways.get(migration.to)
        if same is not None and same.where != migration.where:
            raise wrong("is declared twice", f"the other one is at {same.where}; keep one of them")
        ways[migration.to] = migration

    @property
    def all(self) -> tuple[Migration, ...]:
        """All declared migrations of the workflow."""
        return tuple(migration for ways in self._from.values() for migration in ways.values())

    def mistakes(self, version: int, nodes: Iterable[str]) -> Iterator[DefinitionError]:
        """Yield a mistake for each rename that names an unknown node of this version."""
        known = tuple(nodes)
        for migration in self.all:
            for old, new in migration.renamed.items():
                if migration.to == version and new not in known:
                    yield DefinitionError(
                        f'a migration of {self._title} renames "{old}" to "{new}", which is not a node',
                        f"there are {', '.join(known)}",
                        "correct the name in renamed=",
                        where=migration.where,
                    )

    def path(self, from_: int, to: int) -> tuple[Migration, ...] | None:
        """Return the shortest chain between two versions: () if they are equal, None if no chain exists."""
        reached: dict[int, tuple[Migration, ...]] = {from_: ()}
        edge = [from_]
        while edge and to not in reached:
            after: list[int] = []
            for version in edge:
                for migration in self._from.get(version, {}).values():
                    if migration.to not in reached:
                        reached[migration.to] = (*reached[version], migration)
                        after.append(migration.to)
            edge = after
        return reached.get(to)


def migrated(path: tuple[Migration, ...], node: str, visits: Mapping[str, int], state: Plain) -> Moved:
    """Run a chain of migrations.

    Raises the exceptions of the author's functions, and TypeError if one returns no dict.
    """
    counts = dict(visits)
    for migration in path:
        made: object = migration.fn(state)
        if not isinstance(made, dict):
            refuse_unrun(made, migration.fn, plain=True)
            name = getattr(migration.fn, "__name__", "a migration")
            raise TypeError(f"{name} ({migration.where}) returned {made!r}; a migration returns a dict")
        state = made
        node = migration.renamed.get(node, node)
        renamed: dict[str, int] = {}
        for name, n in counts.items():
            new = migration.renamed.get(name, name)
            renamed[new] = renamed.get(new, 0) + n
        counts = renamed
    return Moved(node, counts, state)
