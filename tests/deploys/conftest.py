"""Coroutine tests of deploys run in a world of virtual time, like those of the engine."""

from tests.engine.conftest import pytest_pyfunc_call, world

__all__ = ["pytest_pyfunc_call", "world"]
