"""`python -m examples.negotiation.market`: the market as a separate process, until SIGINT or SIGTERM."""

import argparse
import asyncio
import contextlib
import json
import signal
import sys
from pathlib import Path

from pydantic import ValidationError

from ..loopback import serve
from .app import market_app
from .behaviour import Scenario, load


async def _run(scenario: Scenario, record: Path, port: int) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with serve(market_app(scenario, record), port) as url:
        print(json.dumps({"url": url, "scenario": scenario.name, "record": str(record)}), flush=True)
        await stop.wait()


def main() -> int:
    """Serve the market. Print one JSON line with its address once it accepts requests."""
    cli = argparse.ArgumentParser(prog="negotiation.market", description=__doc__)
    cli.add_argument("--port", type=int, default=0, help="port to listen on; 0 selects a free port [0]")
    cli.add_argument("--record", type=Path, required=True, help="file to append the record to (JSON lines)")
    cli.add_argument("--scenario", default="demo", help="name of a bundled scenario, or a file [demo]")
    given = cli.parse_args()
    try:
        scenario = load(given.scenario)
    except (FileNotFoundError, ValidationError) as wrong:
        print(f"market: {wrong}", file=sys.stderr)
        return 2
    with contextlib.suppress(KeyboardInterrupt):
        try:
            asyncio.run(_run(scenario, given.record, given.port))
        except OSError as wrong:
            print(f"market: {wrong}", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
