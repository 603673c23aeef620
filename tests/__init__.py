"""Tests of Outlast. Shared helpers are imported as `tests.name`."""

from typing import Final

from outlast.store import bounds

ROUTINE_BYTES: Final = bounds.ROUTINE_BYTES
# Every store in a process of tests checks each commit whole, so that rows that a verb made wrong are found.
vars(bounds)["ROUTINE_BYTES"] = 0
