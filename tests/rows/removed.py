"""Finds the removal of a row: one of `tests/mutants.py`, or a function of `tests/removals/rows.py`."""

from collections.abc import Callable
from typing import Any

from tests import mutants
from tests.removals import Permanent, rows


def removal_of(name: str) -> Callable[[Any], None]:
    """Return the function that takes the safeguard away. Raises KeyError for an unknown name."""
    known = mutants.BY_ID.get(name)
    found = known.apply if known is not None else vars(rows)[name]
    assert found is not None
    return found


def sentence_of(name: str) -> str:
    """Return the sentence that no longer holds after the removal."""
    known = mutants.BY_ID.get(name)
    return known.removed if known is not None else (vars(rows)[name].__doc__ or "").strip()


def remove(name: str) -> None:
    """Take a safeguard away for the rest of the process."""
    removal_of(name)(Permanent())
