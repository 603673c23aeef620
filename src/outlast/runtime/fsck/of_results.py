"""The check of what a run has produced."""

import json
from collections.abc import Sequence

from outlast.core.rows import EVENT, RESULT, Event, Result
from outlast.runtime.fsck.finding import Broken, broken


def results_counted(history: Sequence[Event], rows: Sequence[Result]) -> Broken:
    """Results are numbered 1 … n, and no event counts more of them than there are (I18, CKP-5, OUT-5)."""
    for n, row in enumerate(sorted(rows, key=lambda row: row.ordinal), 1):
        if row.ordinal != n:
            yield broken(RESULT, row, f"it has the ordinal {row.ordinal} where {n} comes next")
            break
    for row in rows:
        try:
            json.loads(row.data)
        except ValueError:
            yield broken(RESULT, row, "its data is not JSON")
    for event in history:
        if b'"results":' not in event.body:
            continue
        try:
            counted = json.loads(event.body)["data"].get("results")
        except (ValueError, KeyError, TypeError, AttributeError):
            continue  # told by history_bytes
        if isinstance(counted, dict) and counted.get("count", 0) > len(rows):
            yield broken(EVENT, event, f"it counts {counted['count']} results, and there are {len(rows)}")
