"""The graph of a workflow, read from the return annotations of its nodes and checked as a whole."""

from collections.abc import Iterator, Mapping
from types import NoneType, UnionType
from typing import Any, Final, Literal, NamedTuple, Never, NoReturn, Union, get_args, get_origin

from outlast.errors import DefinitionError


class Exits(NamedTuple):
    """The exits of a node: the nodes that may follow, and whether the run may end."""

    targets: tuple[str, ...]
    ends: bool


class Place(NamedTuple):
    """The part of a node that the graph needs."""

    name: str
    where: str
    start: bool
    max_visits: int | None
    exits: Exits


_ALWAYS_RAISES: Final = (Never, NoReturn)


def read_exits(annotation: Any) -> Exits | None:
    """Return the exits that an annotation declares: Literal["a", "b"], None, or both. None if it declares none."""
    while hasattr(annotation, "__value__"):  # `type Next = …` of Python 3.12
        annotation = annotation.__value__
    if annotation is None or annotation is NoneType or annotation in _ALWAYS_RAISES:
        return Exits((), True)
    origin = get_origin(annotation)
    if origin is Literal:
        names = get_args(annotation)
        if all(isinstance(name, str) for name in names):
            return Exits(tuple(names), False)
        return None
    if origin is Union or origin is UnionType:
        parts = [read_exits(part) for part in get_args(annotation)]
        known = [part for part in parts if part is not None]
        if len(known) == len(parts):
            targets = dict.fromkeys(name for part in known for name in part.targets)
            return Exits(tuple(targets), any(part.ends for part in known))
    return None


def mistakes(
    workflow: str, where: str, places: Mapping[str, Place], *, may_be_endless: bool = False
) -> Iterator[DefinitionError]:
    """Yield every mistake of the graph with its file, line, node and fix.

    `may_be_endless`: its loops need no maximum and no end, because its history is a window (S-32).
    """
    if not places:
        yield DefinitionError(f"{workflow} has no node", where, "declare one under @….node(start=True)", where=where)
        return
    yield from _unknown_targets(workflow, places)
    starts = [place.name for place in places.values() if place.start]
    if not starts:
        first = next(iter(places.values()))
        yield DefinitionError(
            f"{workflow} has no start node",
            f"none of {_names(list(places))} has start=True",
            f'write @….node(start=True) above the first one, e.g. "{first.name}"',
            where=first.where,
        )
    else:
        yield from _unreachable(workflow, places, starts)
    if not may_be_endless:
        yield from _endless(workflow, places)
        yield from _no_end(workflow, places)


def _unknown_targets(workflow: str, places: Mapping[str, Place]) -> Iterator[DefinitionError]:
    for place in places.values():
        for target in place.exits.targets:
            if target not in places:
                yield DefinitionError(
                    f'node "{place.name}" of {workflow} ({place.where}) leads to "{target}", which is not a node',
                    f"its return annotation names it; there are {_names(list(places))}",
                    f'correct the name in Literal[…], or declare a node "{target}"',
                    where=place.where,
                )


def _unreachable(workflow: str, places: Mapping[str, Place], starts: list[str]) -> Iterator[DefinitionError]:
    reached = _closure(starts, {name: _targets(place, places) for name, place in places.items()})
    for place in places.values():
        if place.name not in reached:
            yield DefinitionError(
                f'node "{place.name}" of {workflow} ({place.where}) can never be reached',
                f'no path leads to it from the start node "{starts[0]}"',
                f'name it in the return annotation of the node before it: Literal["{place.name}"], or remove it',
                where=place.where,
            )


def _endless(workflow: str, places: Mapping[str, Place]) -> Iterator[DefinitionError]:
    """Yield a mistake for each loop in which no node has a maximum."""
    free = {name: _targets(place, places) for name, place in places.items() if place.max_visits is None}
    reported: set[str] = set()
    for name in free:
        loop = _loop_from(name, free)
        if loop and reported.isdisjoint(loop):
            reported.update(loop)
            place = places[name]
            way = " → ".join([*loop, loop[0]])
            yield DefinitionError(
                f'node "{name}" of {workflow} ({place.where}) is in a loop without a maximum',
                f"{way} has no limit",
                f'limit one of its nodes: @….node(max_visits=5), e.g. "{name}"; or keep a window: history=1_000',
                where=place.where,
            )


def _no_end(workflow: str, places: Mapping[str, Place]) -> Iterator[DefinitionError]:
    before: dict[str, list[str]] = {name: [] for name in places}
    for place in places.values():
        for target in _targets(place, places):
            before[target].append(place.name)
    ending = _closure([place.name for place in places.values() if place.exits.ends], before)
    for place in places.values():
        unknown = any(target not in places for target in place.exits.targets)
        if place.name not in ending and not unknown:
            yield DefinitionError(
                f'node "{place.name}" of {workflow} ({place.where}) has no path to an end',
                "a run that enters it can never complete",
                "let it, or a node after it, return None: -> None, or -> Literal[…] | None",
                where=place.where,
            )


def _targets(place: Place, places: Mapping[str, Place]) -> list[str]:
    return [target for target in place.exits.targets if target in places]


def _closure(first: list[str], leads_to: Mapping[str, list[str]]) -> set[str]:
    seen, todo = set(first), list(first)
    while todo:
        for name in leads_to[todo.pop()]:
            if name not in seen:
                seen.add(name)
                todo.append(name)
    return seen


def _loop_from(start: str, leads_to: Mapping[str, list[str]]) -> list[str]:
    """Return a shortest loop from `start` back to it as a list of names; [] if no loop exists."""
    came_from: dict[str, str] = {}
    todo = [start]
    while todo:
        name = todo.pop(0)
        for target in leads_to[name]:
            if target == start:
                way = [name]
                while way[-1] != start:
                    way.append(came_from[way[-1]])
                return way[::-1]
            if target in leads_to and target not in came_from:
                came_from[target] = name
                todo.append(target)
    return []


def _names(names: list[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
