"""A program that uses Outlast inside a process and prints the global states that it changed, one a line.

`python -m tests.runtime.global_state FILE [plant]`. FILE lists the modules of others to import first, because what
those change is not Outlast's doing. The first call writes it. With `plant` it makes each change of `PLANTS` instead,
and prints those that it does not notice.
"""

import asyncio
import decimal
import faulthandler
import gc
import json
import logging
import os
import pkgutil
import random
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from tests.process_state import OURS, ProcessState, changes, process_state

PLANTS: Final[dict[str, Callable[[], Any]]] = {
    "environment": lambda: os.environ.update(PLANTED="1"),
    "warnings.filters": lambda: warnings.simplefilter("ignore"),
    "timeout of sockets": lambda: socket.setdefaulttimeout(7),
    "decimal context": lambda: setattr(decimal.getcontext(), "prec", 7),
    "gc thresholds": lambda: gc.set_threshold(7),
    "gc frozen": gc.freeze,
    "random state": random.random,
    "recursion limit": lambda: sys.setrecursionlimit(7_777),
    "faulthandler": faulthandler.enable,
    "sys.path": lambda: sys.path.append("planted"),
    "asyncio policy": lambda: asyncio.set_event_loop_policy(type(asyncio.get_event_loop_policy())()),
    "sys.excepthook": lambda: setattr(sys, "excepthook", print),
    "threading.excepthook": lambda: setattr(threading, "excepthook", print),
    "handler of SIGTERM": lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN),
    "logger ": logging.basicConfig,
    "logger planted": lambda: logging.getLogger("planted").setLevel(logging.DEBUG),
    "logger outlast": lambda: logging.getLogger("outlast").setLevel(logging.DEBUG),
    "socket.getaddrinfo is replaced": lambda: setattr(socket, "getaddrinfo", print),
    "json.decoder.JSONDecoder.decode is replaced": lambda: setattr(json.JSONDecoder, "decode", print),
    "json.planted is added": lambda: setattr(json, "planted", import_module("outlast.core.durations").span),
}


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def import_all() -> None:
    """Import every module of the package but `__main__`, which runs the command line."""
    import outlast

    for each in pkgutil.walk_packages(outlast.__path__, "outlast."):
        if not each.name.endswith("__main__"):
            import_module(each.name)


def report(when: str, before: ProcessState) -> None:
    for change in changes(before, process_state()):
        say(f"{when}: {change}")


async def embed(folder: str) -> None:
    """Connect, serve, start a run and close, as an application does that has set its own states."""
    import httpx2
    from pydantic import BaseModel

    import outlast

    before = process_state()

    class Order(BaseModel):
        name: str
        done: str = ""

    @outlast.activity(key="pack/{name}", once_per="run", no_undo="it is packed")
    async def pack(name: str) -> str:
        report("while an activity runs", before)
        return name.upper()

    failures = [ConnectionError("the connection was refused")]  # so that a wait between attempts is drawn

    @outlast.lookup(retry=outlast.Retry(first="1ms"))
    async def stock(name: str) -> int:
        if failures:
            raise failures.pop()
        return len(name)

    async def packing(ctx: outlast.Context[Order]) -> None:
        await ctx.do(stock, name=ctx.state.name)
        ctx.state.done = await ctx.do(pack, name=ctx.state.name)

    order: Any = outlast.Workflow("order", state=Order)
    order.node(packing, start=True)
    async with outlast.connect(f"sqlite:{folder}/app.db") as client, client.worker([order]):
        run = await client.start(order, Order(name="ana"))
        assert (await run.result("5m")).done == "ANA"
        report("while a worker serves", before)
    from outlast.runtime.stores import open_store

    store = await open_store("memory:")
    transport = httpx2.ASGITransport(outlast.asgi(store, [order]), client=("127.0.0.1", 1))
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        for path in ("/v1/runs", "/ui/"):
            assert (await http.get(path, follow_redirects=True)).status_code == 200
    await store.close()
    report("after the client and the service are closed", before)


def embed_sync(folder: str) -> None:
    import outlast

    with outlast.connect_sync(f"sqlite:{folder}/sync.db") as client:
        assert client.runs().runs == []


def others() -> Iterator[str]:
    return (name for name in sys.modules if name.partition(".")[0] not in OURS)


def main(listed: Path, *, only_plants: bool) -> None:
    if only_plants:
        for name, plant in PLANTS.items():
            before = process_state()
            plant()
            if name not in changes(before, process_state()):
                say(f"not noticed: {name}")
        return
    known = listed.read_text().split() if listed.exists() else []
    for name in known:
        with suppress(ImportError):
            import_module(name)
    before = process_state()
    import_all()
    if known:
        report("after the import", before)
    with TemporaryDirectory() as folder:
        asyncio.run(embed(folder))
        embed_sync(folder)
    if known:
        report("after the end", before)
    else:
        listed.write_text("\n".join(others()))


if __name__ == "__main__":
    main(Path(sys.argv[1]), only_plants="plant" in sys.argv[2:])
