"""Coroutine tests of deploys run in a world of virtual time, like those of the engine."""

from collections.abc import Iterator

import pytest

from outlast.flow.registry import ACTIVITIES
from tests.engine.conftest import pytest_pyfunc_call, world

__all__ = ["pytest_pyfunc_call", "world"]


@pytest.fixture(autouse=True)
def _names_of_other_tests() -> Iterator[None]:
    """Bring back the names that `code.load` removes from the process, because modules of other tests need them."""
    before = {name: dict(places) for name, places in ACTIVITIES._by_name.items()}
    yield
    ACTIVITIES._by_name.clear()
    ACTIVITIES._by_name.update(before)
