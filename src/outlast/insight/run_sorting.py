"""Lists of runs in another order than newest start first.

No index has the duration or the cost of a run. So the newest runs that match are read, at most as many as the store
counts at once, and sorted here. The answer says among how many a list was sorted if further runs match.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from outlast.core.rows.run_rows import Run
from outlast.core.usage import NOTHING_USED, Amounts
from outlast.insight.tenant_rows import TenantRows, stopped_at
from outlast.operations.run_operations import ListRuns
from outlast.store.bounds import INT_MAX
from outlast.store.queries import Page, cursor_at, place_in

ASCENDING: Final = "-asc"
Place = tuple[int, int, str]
"""Position of a run in a sorted list: its value or the negative of it, the negative of its start, its id."""


class SortedPage(NamedTuple):
    """Page of a sorted list. `among`: number of the newest matching runs that the list has; None = all."""

    page: Page[Run]
    among: int | None


async def sorted_page(rows: TenantRows, of: ListRuns) -> SortedPage:
    """Return a page of the newest runs of a list in the order `sort`. Runs without a value come last.

    Further pages sort the runs that were there at the first page. Raises InvalidInput for a malformed cursor.
    """
    after, at = _place_in(of.cursor) if of.cursor else (None, (await rows.store.now()).business)
    by_start = not (of.started or of.ended or of.flagged)  # other lists have a cursor of another time
    begin = cursor_at((at + 1, "")) if of.cursor and by_start else ""
    found, complete = await rows.matching(replace(of, sort="", cursor=begin), rows.store.count_max)
    used = await rows.usage_of(found) if of.sort.startswith("cost") else {}
    left, further = page_in_order(found, of.sort, used, at, after, of.limit)
    return SortedPage(Page(left, cursor_at((*further, at)) if further else ""), None if complete else len(found))


def page_in_order(
    runs: Sequence[Run], sort: str, used: Mapping[str, Amounts], at: int, after: Place | None, limit: int
) -> tuple[tuple[Run, ...], Place | None]:
    """Return the runs after a place, at most `limit`, and the place of the last one if more follow.

    `used`: the usage of the runs; `at`: the instant up to which the duration of a run counts that neither
    ended nor needs a person.
    """
    name, sign = sort.removesuffix(ASCENDING), 1 if sort.endswith(ASCENDING) else -1

    def place(run: Run) -> Place:
        value = _value(name, run, used, at)
        return (INT_MAX if value is None else sign * value, -run.created_at, run.run)

    left = sorted((place(run), run) for run in runs if after is None or place(run) > after)
    page = left[:limit]
    return tuple([run for _, run in page]), page[-1][0] if len(left) > limit else None


def _value(name: str, run: Run, used: Mapping[str, Amounts], at: int) -> int | None:
    """Return the value by which a list is sorted; None for a run without it."""
    match name:
        case "started":
            return run.created_at
        case "ended":
            return run.ended_at or None
        case "took":
            return (stopped_at(run) or at) - run.created_at if run.created_at else None
        case _:
            return used.get(run.run, NOTHING_USED).money or None


def _place_in(cursor: str) -> tuple[Place, int]:
    """Return the place and the instant in a cursor. Raises InvalidInput."""
    value, start, run, at = place_in(cursor, (int, int, str, int))
    return (int(value), int(start), str(run)), int(at)
