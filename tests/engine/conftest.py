"""Tests of the engine: each is a coroutine in a world with virtual time."""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import pytest

from outlast.clocks import VirtualClock
from outlast.flow.registry import ACTIVITIES
from tests.engine.ground import Ground, InMemory
from tests.engine.world import World


def on_postgres(time: VirtualClock) -> Ground:
    """Return a schema on a real server."""
    from tests.engine.postgres_ground import OnPostgres  # which the kernel's own tests lack

    return OnPostgres(time)


GROUNDS: dict[str, Callable[[VirtualClock], Ground]] = {"memory": InMemory}
if find_spec("outlast.store.postgres") is not None:  # absent from `scripts/test --kernel`
    GROUNDS["postgres"] = on_postgres


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test marked `every_store` on a real PostgreSQL server too."""
    if metafunc.definition.get_closest_marker("every_store"):
        metafunc.parametrize("world", list(GROUNDS), indirect=True)


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Return a world without runs."""
    given = World(GROUNDS[getattr(request, "param", "memory")])
    yield given
    given.ground.close()


@pytest.fixture(autouse=True)
def _own_names(request: pytest.FixtureRequest) -> Iterator[None]:
    """Remove the names that another test or folder declared, because a stored name must have one declaration."""
    before = {name: dict(places) for name, places in ACTIVITIES._by_name.items()}
    for places in ACTIVITIES._by_name.values():
        for place in [p for p, a in places.items() if not _is_ours(a, request.module.__name__)]:
            del places[place]
    yield
    ACTIVITIES._by_name.clear()
    ACTIVITIES._by_name.update(before)


def _is_ours(activity: Any, module: str) -> bool:
    """Return True if the module of the test or a helper module of this folder declares it, outside of a function."""
    place = activity.__module__
    helps = place.startswith("tests.engine.") and not place.startswith("tests.engine.test_")
    return (helps or place == module) and "<locals>" not in activity.fn.__qualname__


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
