"""Page of `outlast runs compare`: two runs, where they part, and a table of their differences."""

from datetime import timedelta

from outlast.cli.screen import Screen
from outlast.insight.difference_words import equal_text, facets_text, parting_text, side_text, title_of, took_text
from outlast.models.comparison import ComparedRun, RunComparison, RunDifference

MS = timedelta(milliseconds=1)


def print_comparison(screen: Screen, found: RunComparison) -> None:
    """Print both runs, the place where they part, and a page of their differences side by side."""
    took = [_took_ms(each) for each in (found.run, found.other)]
    runs = [("A", *_run_row(found.run, *took)), ("B", *_run_row(found.other, *reversed(took)))]
    screen.table(("", "RUN", "VERSION", "STATUS", "VISITS", "CALLS", "TOKENS", "MONEY", "TOOK"), runs)
    screen.line(parting_text(found))
    for sentence in found.not_compared:
        screen.line(sentence)
    if found.differences:
        rows = [row for each in found.differences for row in _rows(each)]
        screen.table(("N", "WHAT", "DIFFERS", "A", "B"), rows)
    shown = len(found.differences)
    of = "differences" if found.rows == found.total else f"rows, {found.total} differences"
    screen.advice(f"{shown} of {found.rows} {of}; {equal_text(found.equal_visits, found.equal_calls)}")
    screen.further("differences", found.next_cursor)


def _took_ms(run: ComparedRun) -> int | None:
    return (run.ended - run.began) // MS if run.ended is not None else None


def _run_row(run: ComparedRun, took: int | None, other: int | None) -> tuple[str, ...]:
    counts = f"{run.visits}", f"{run.calls}", f"{run.tokens or ''}"
    return run.run, f"{run.workflow}@{run.workflow_version}", run.status, *counts, run.money, took_text(took, other)


def _rows(each: RunDifference) -> list[tuple[str, ...]]:
    """Return the rows of a difference: those folded before it, its sides, and its changed values."""
    rows: list[tuple[str, ...]] = []
    if each.equal_visits or each.equal_calls:
        rows.append(("", f"= {equal_text(each.equal_visits, each.equal_calls)}", "", "", ""))
    sides = side_text(each.run, each.other), side_text(each.other, each.run)
    rows.append((f"{each.n}", title_of(each), facets_text(each), *sides))
    rows += [("", f"  {c.path or 'value'}", c.of, c.run or "–", c.other or "–") for c in each.changes]
    if each.more_changes:
        rows.append(("", f"  {each.more_changes} further places", "", "", ""))
    return rows
