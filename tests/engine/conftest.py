"""Tests of the engine are coroutines in a world of their own, whose time is virtual."""

import asyncio
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from outlast.flow.registry import ACTIVITIES
from tests.engine.world import World


@pytest.fixture
def world() -> World:
    """An empty world."""
    return World()


@pytest.fixture(autouse=True)
def _own_names() -> Iterator[None]:
    """What a test declares is gone after it: a stored name is found again only where one declaration answers."""
    before = {name: dict(places) for name, places in ACTIVITIES._by_name.items()}
    yield
    ACTIVITIES._by_name.clear()
    ACTIVITIES._by_name.update(before)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine test inside its world."""
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    given: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters}
    home = given.get("world") or World()
    asyncio.run(home.live(lambda: test(**given)))
    return True
