"""Lists of runs in another order than newest start first.

No index has the duration or the cost of a run. So the newest runs that match are read, at most as many as the store
counts at once, and sorted here. The answer says among how many a list was sorted if further runs match.
"""

import json
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from outlast.core.rows.run_rows import Run
from outlast.core.usage import NOTHING_USED, Amounts
from outlast.errors import InvalidInput
from outlast.insight.tenant_rows import TenantRows, stopped_at
from outlast.operations.run_operations import ListRuns
from outlast.store.bounds import INT_MAX
from outlast.store.queries import Page, cursor_at

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
    value_of, sign = _VALUES[sort.removesuffix(ASCENDING)], 1 if sort.endswith(ASCENDING) else -1

    def place(run: Run) -> Place:
        value = value_of(run, used, at)
        return (INT_MAX if value is None else sign * value, -run.created_at, run.run)

    left = sorted((place(run), run) for run in runs if after is None or place(run) > after)
    page = left[:limit]
    return tuple([run for _, run in page]), page[-1][0] if len(left) > limit else None


def _started(run: Run, used: Mapping[str, Amounts], at: int) -> int | None:
    return run.created_at


def _ended(run: Run, used: Mapping[str, Amounts], at: int) -> int | None:
    return run.ended_at or None


def _took(run: Run, used: Mapping[str, Amounts], at: int) -> int | None:
    return (stopped_at(run) or at) - run.created_at if run.created_at else None


def _cost(run: Run, used: Mapping[str, Amounts], at: int) -> int | None:
    return used.get(run.run, NOTHING_USED).money or None


_VALUES: Final[Mapping[str, Callable[[Run, Mapping[str, Amounts], int], int | None]]] = {
    "started": _started, "ended": _ended, "took": _took, "cost": _cost,
}  # fmt: skip


def _place_in(cursor: str) -> tuple[Place, int]:
    """Return the place and the instant in a cursor. Raises InvalidInput."""
    try:
        found: Any = json.loads(urlsafe_b64decode(cursor))
        value, start, run, at = found
        if not isinstance(run, str) or not all(type(n) is int and abs(n) <= INT_MAX for n in (value, start, at)):
            raise ValueError("another list")
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidInput("this cursor was not issued by this list", fix="begin again without a cursor") from error
    return (value, start, run), at
