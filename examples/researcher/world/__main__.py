"""`python -m examples.researcher.world`: the site, the model and the receiver as one process, until it is ended."""

import argparse
import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from ...negotiation.loopback import serve
from .pages import Shape, Site
from .planner import THINKS_S, Planner
from .receiver import Receiver
from .record import Journal
from .register import Register
from .site import SiteServer

REGISTER_MAX = 60
"""Entries of each topic of a register: a model must see all its records at once."""


@contextlib.asynccontextmanager
async def serve_world(
    shape: Shape, record: Path, *, thinks_s: float = THINKS_S, sites: int = 1, register: Register | None = None
) -> AsyncIterator[list[str]]:
    """Serve the world for the duration of the block; yield the addresses of receiver, model, and each site.

    With a `register`, it is the site instead of that of the shape.
    """
    journal, site = Journal(record), register or Site(shape)
    async with contextlib.AsyncExitStack() as stack:
        receiver = await stack.enter_async_context(serve(Receiver(journal)))
        model = await stack.enter_async_context(serve(Planner(journal, thinks_s)))
        urls = [await stack.enter_async_context(serve(SiteServer(site, journal))) for _ in range(sites)]
        yield [f"{receiver}/hooks", f"{model}/v1", *urls]
    journal.close()


async def _run(shape: Shape, record: Path, thinks_s: float, sites: int, register: Register | None) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    world = serve_world(shape, record, thinks_s=thinks_s, sites=sites, register=register)
    async with world as (receiver, model, *urls):
        facts = {"url": urls[0], "sites": urls, "model": model, "receiver": receiver}
        asked = {"questions": [known.question for known in register.questions]} if register else {}
        print(json.dumps(facts | asked), flush=True)
        await stop.wait()


def main() -> int:
    """Serve the world. Print one JSON line with its addresses once it accepts requests."""
    cli = argparse.ArgumentParser(prog="researcher.world", description=__doc__)
    cli.add_argument("--record", type=Path, required=True, help="file to append the record to (JSON lines)")
    cli.add_argument("--entries", type=int, default=Shape().entries, help="entries of each topic [250]")
    cli.add_argument("--broken", type=float, default=Shape().broken, help="share of pages that answer 500 [0.02]")
    cli.add_argument("--empty", action="store_true", help="no page has a record")
    cli.add_argument("--closed", action="store_true", help="robots.txt answers 503")
    cli.add_argument("--thinks", type=float, default=THINKS_S, help="seconds until the model answers [0.2]")
    cli.add_argument("--sites", type=int, default=1, help="number of equal sites, each at a separate port [1]")
    cli.add_argument("--register", type=int, help="seed of a register with 25 questions, which is the site instead")
    given = cli.parse_args()
    shape = Shape(entries=given.entries, broken=given.broken, empty=given.empty, closed=given.closed)
    with contextlib.suppress(KeyboardInterrupt):
        register = None if given.register is None else Register(given.register, min(given.entries, REGISTER_MAX))
        asyncio.run(_run(shape, given.record, given.thinks, given.sites, register))
    return 0


if __name__ == "__main__":
    sys.exit(main())
