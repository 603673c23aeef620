"""The parent's end of the process that forks: asks for a life, hears its pid and how it went."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from outlast.errors import InvalidInput
from outlast.testing.loading import Code
from outlast.testing.places import Broken


class Forker:
    """A process that has imported the code under test, and forks a child for each life."""

    def __init__(self, code: Code, env: Mapping[str, str]) -> None:
        if not hasattr(os, "fork"):
            raise InvalidInput("crash tests need os.fork", "this system has none", "run them on Linux or macOS")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "outlast.testing.zygote"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **env},
        )
        self._say(code.plain())
        answer = self._hear()
        if "error" in answer:
            self.close()
            raise InvalidInput(
                "the workflow cannot be loaded in a process of its own",
                f"{answer['error']}\n{answer['trace']}",
                "its module is imported afresh there: it must not need what only this test session has set up",
            )

    def _say(self, what: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what).encode() + b"\n")
        self._process.stdin.flush()

    def _hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Broken("the process that forks has ended")
        return dict(json.loads(line))

    def life(self, ask: dict[str, Any], born: Callable[[int], None] = lambda pid: None) -> dict[str, Any]:
        """One life to its end, its death or its stop; `born` is told its pid."""
        self._say(ask)
        born(self._hear()["pid"])
        return self._hear()

    def go_on(self) -> dict[str, Any]:
        """The stopped life goes on to its end."""
        self._say({"op": "go_on"})
        return self._hear()

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(10)


@contextmanager
def forker(code: Code, env: Mapping[str, str] = MappingProxyType({})) -> Iterator[Forker]:
    """A forker that ends with the block. `env`: variables that the code finds when it is imported."""
    one = Forker(code, env)
    try:
        yield one
    finally:
        one.close()
