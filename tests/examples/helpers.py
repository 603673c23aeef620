"""Helpers for the tests of the negotiation: a market process, a recording inbox, and a polling wait."""

import asyncio
import contextlib
import json
import multiprocessing
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import httpx2

from examples.negotiation.inbox import Posted, inbox_app
from examples.negotiation.letters import Feedback, Invitation, Line
from examples.negotiation.loopback import serve
from examples.negotiation.market import __main__ as market_program
from examples.negotiation.purchase import Purchase
from examples.negotiation.record import Arrived, Entry, Offered, read
from examples.negotiation.samples import sample

ROOT = Path(__file__).parents[2]
GIVE_UP_S = 60
"""Time limit of a wait. Only a failing test reaches it."""

SKUS = ("sheet-1208", "box-m")


def plain(line: str) -> str:
    """Return a line of the demo without names and figures that differ."""
    line = re.sub(r"local:\w+", "local:ana", line.strip())
    return re.sub(r"\bw-\d\b|\bpid \d+|\b\d+\.\d+s", "#", line)


def purchase(name: str = "leverage", **changes: Any) -> Purchase:
    return Purchase.model_validate(sample(name) | changes)


def invitation(*, run_id: str = "r1", answer_to: str = "http://127.0.0.1:9/", round_number: int = 1) -> dict[str, Any]:
    asked = Invitation(
        reference="RFQ-1",
        category="packaging",
        currency="EUR",
        lines=[Line(sku="sheet-1208", quantity=100, unit="pieces")],
        need_by=date(2026, 4, 20),
        cycle=1,
        round=round_number,
        rounds=5,
        closes_at=datetime(2026, 3, 3, tzinfo=UTC),
        run_id=run_id,
        answer_to=answer_to,
    )
    return asked.model_dump(mode="json")


def feedback(best_cents: int, *, round_number: int = 1, run_id: str = "r1") -> dict[str, Any]:
    said = Feedback(run_id=run_id, cycle=1, round=round_number, best_cents=best_cents, rank=2, bidders=3)
    return said.model_dump(mode="json")


def client(timeout_s: float = GIVE_UP_S) -> httpx2.AsyncClient:
    """Return a client for plain HTTP. It loads no certificates, because that is slow."""
    return httpx2.AsyncClient(trust_env=False, verify=False, timeout=timeout_s)


@dataclass
class Market:
    """A market that runs in its own process."""

    url: str
    record: Path

    def entries(self, run_id: str) -> list[Entry]:
        """Return the market's record of one run."""
        everything = read(self.record)
        arrivals = {e.n for e in everything if isinstance(e, Arrived) and e.run_id == run_id}
        return [e for e in everything if (e.run_id == run_id if isinstance(e, Offered) else e.n in arrivals)]

    async def post(
        self, supplier: str, kind: str, body: object, key: str, timeout_s: float = GIVE_UP_S
    ) -> httpx2.Response:
        async with client(timeout_s) as http:
            address = f"{self.url}/suppliers/{supplier}/{kind}"
            return await http.post(address, json=body, headers={"Idempotency-Key": key} if key else {})

    async def get(self, path: str) -> httpx2.Response:
        async with client() as http:
            return await http.get(f"{self.url}{path}")

    async def until(self, run_id: str, seen: Callable[[list[Entry]], bool]) -> list[Entry]:
        """Wait until `seen` is true for the record of a run, and return the record."""
        await when(lambda: seen(self.entries(run_id)), lambda: self.entries(run_id))
        return self.entries(run_id)


async def when(holds: Callable[[], bool], otherwise: Callable[[], object]) -> None:
    give_up = time.monotonic() + GIVE_UP_S
    while not holds():
        assert time.monotonic() < give_up, otherwise()
        await asyncio.sleep(0.01)


FORKING = multiprocessing.get_context("forkserver")
FORKING.set_forkserver_preload(["examples.negotiation.market.__main__"])
"""Forks each market from a process that has imported it, because the import takes longer than most tests."""


def _serve(arguments: list[str], output: Connection) -> None:
    """Run the market in the child process."""
    sys.argv = ["market", *arguments]
    sys.stdout = open(output.fileno(), "w", closefd=False)  # noqa: SIM115 - it ends with its process
    sys.exit(market_program.main())


@contextlib.contextmanager
def market(folder: Path, scenario: str | dict[str, Any]) -> Iterator[Market]:
    """Run a market process for the block, with a named or given scenario. Assert that it exits with 0."""
    if isinstance(scenario, dict):
        path = folder / "scenario.json"
        path.write_text(json.dumps({"name": "test", "suppliers": scenario}), encoding="utf-8")
        scenario = str(path)
    record = folder / "market.jsonl"
    read_end, write_end = os.pipe()
    with open(read_end, encoding="utf-8") as said, Connection(write_end, readable=False) as output:
        arguments = ["--record", str(record), "--scenario", scenario]
        process = FORKING.Process(target=_serve, args=(arguments, output), daemon=True)
        process.start()
        output.close()
        try:
            ready = said.readline()
            assert ready, "the market ended before it was ready"
            yield Market(json.loads(ready)["url"], record)
        finally:
            process.terminate()
            process.join(GIVE_UP_S)
    assert process.exitcode == 0


@dataclass
class Inbox:
    """An inbox that collects signals in a list. The first `refusals` fail as with an unreachable store."""

    url: str = ""
    refusals: int = 0
    answer: Posted = "accepted"
    signals: list[tuple[str, str, dict[str, Any], str]] = field(default_factory=list)

    async def signal(self, run_id: str, name: str, payload: dict[str, Any], signal_id: str) -> Posted:
        if self.refusals:
            self.refusals -= 1
            raise ConnectionError("the store is away")
        self.signals.append((run_id, name, payload, signal_id))
        return self.answer

    def ids(self) -> set[str]:
        return {signal_id for _, _, _, signal_id in self.signals}


@contextlib.asynccontextmanager
async def inbox(**given: Any) -> AsyncIterator[Inbox]:
    held = Inbox(**given)
    async with serve(inbox_app(held.signal)) as url:
        held.url = url
        yield held
