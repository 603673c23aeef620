"""What the process that forks does once, so that none of the lives it forks has to: imports, contexts, descriptions."""

import asyncio
import functools
import ssl
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final

from outlast.engine import unserved_versions
from outlast.flow.topology import digest_of, topology_of
from outlast.flow.workflow import Workflow

CONTEXTS: Final = 8  # a life that opens more clients makes its own


def warm(workflows: Iterable[Workflow[Any]]) -> None:
    """Make ready what each life of these workflows would make anew."""
    described = functools.cache(topology_of)
    named = {id(described(workflow)): digest_of(described(workflow)) for workflow in workflows}
    vars(unserved_versions)["topology_of"] = described  # each worker asks for it when it begins
    vars(unserved_versions)["digest_of"] = lambda body: named[id(body)]
    if "httpx2" in sys.modules:
        asyncio.run(_one_request())


async def _one_request() -> None:
    """Import now what an HTTP client would import at its first call, and make its TLS contexts beforehand: loading the
    machine's certificates costs more than a whole life."""
    made = _Contexts(ssl.create_default_context)
    ssl.create_default_context = made
    httpx2 = sys.modules["httpx2"]
    for trusting in (True, False):
        async with httpx2.AsyncClient(trust_env=trusting) as http:
            try:
                await http.get("http://127.0.0.1:9/")
            except httpx2.TransportError:
                pass  # nobody is there
    made.stock()


class _Contexts:
    """Hands out contexts made beforehand, each once: no two clients share one."""

    def __init__(self, make: Callable[..., ssl.SSLContext]) -> None:
        self._make = make
        self._asked: list[dict[str, Any]] = []
        self._ready: list[tuple[dict[str, Any], ssl.SSLContext]] = []

    def __call__(self, *args: Any, **kwargs: Any) -> ssl.SSLContext:
        for n, (asked, context) in enumerate(self._ready):
            if asked == kwargs and not args:
                del self._ready[n]
                return context
        if not args and kwargs not in self._asked:
            self._asked.append(kwargs)
        return self._make(*args, **kwargs)

    def stock(self) -> None:
        """Make what was asked for so far, some times over."""
        self._ready = [(asked, self._make(**asked)) for asked in self._asked for _ in range(CONTEXTS)]
