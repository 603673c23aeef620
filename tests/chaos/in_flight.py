"""Many runs in flight, each in a slow call. Some workers are killed at once, and the takeovers are measured (REC-4).

Two fleets. `half`: four workers share the runs, and the two that hold the most are killed. `one`: one worker holds all
runs and is killed, and the others, started later, hold none. A run counts as executed when its receiver gets the call
again, which is later than its claim: the new holder has read its rows, executed its node and written an intent.
"""

import asyncio
import json
import os
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, NamedTuple

import httpx2

from bench.serving import STARTS
from outlast.core.rows.run_rows import RUN
from outlast.core.rows.store_rows import STORE, WORKER, Worker
from outlast.engine import commands
from outlast.runtime.stores import open_store
from outlast.store.port import Store
from outlast.store.queries import CountBy, Owned
from tests.chaos import flows
from tests.chaos.fleet import Fleet
from tests.chaos.fleet import Worker as Process
from tests.chaos.judge import TENANT, fsck, lines, rows_of, sharers, spread, taken_over
from tests.chaos.receivers import GO
from tests.measured import unmeasured
from tests.postgres.server import Server

Holders = Literal["one", "half"]
TARGET_MS = 30_000  # REC-4
CEILING_S = 900.0  # limit of each phase: all in flight, all taken over, all ended
LOOK_S = 0.5
SPARE = 200  # descriptors of a process besides those of its calls
ROOM = 1.2  # concurrency of a worker, relative to its share of the runs


class Flight(NamedTuple):
    """Options of a measurement."""

    store: str
    runs: int
    workers: int
    killed: int  # killed at the same time
    window_s: float = 15.0  # heartbeat window; renewed every third of it, at least every 5 s
    say: Callable[[str], None] = lambda text: None
    keep: Path | None = None
    holders: Holders = "half"  # "one": the first `killed` workers hold all runs, and the others none

    @property
    def places(self) -> int:
        """Return the concurrency of each worker: all runs if one holds them, else a share with room for the dead."""
        return self.runs if self.holders == "one" else int(self.runs / (self.workers - self.killed) * ROOM) + 1


def fly(flight: Flight) -> tuple[dict[str, Any], list[str]]:
    """Run the measurement. Returns its report and the errors."""
    assert 0 < flight.killed < flight.workers
    refused = too_few_descriptors(flight.runs, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    assert not refused, refused
    load = os.getloadavg()[0]
    with ExitStack() as stack:
        folder = flight.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="outlast-flight-")))
        folder.mkdir(parents=True, exist_ok=True)
        server = Server(fsync="on") if flight.store == "postgres" else None
        if server is not None:
            stack.callback(server.close)
        url = f"{server.url}?schema=flight" if server is not None else f"sqlite:{folder / 'flight.db'}"
        live = ("--heartbeat-window", f"{flight.window_s:g}s", "--attempt-timeout", "30m")
        fleet = Fleet(folder, url, wires=False, live=live, concurrency=flight.places)
        stack.callback(fleet.close)
        fleet.open_world(0)
        _hire(fleet, flight.killed if flight.holders == "one" else flight.workers)
        report = asyncio.run(_fly(flight, fleet, folder, url)) | {"load_before": load}
        codes = fleet.drain()
        return _judge(flight, url, folder, fleet.kills, report, codes)


def _hire(fleet: Fleet, count: int) -> None:
    for _ in range(count):
        fleet.hire_plain("tests.chaos.flows:slow")
    fleet.await_serving()


async def _fly(flight: Flight, fleet: Fleet, folder: Path, url: str) -> dict[str, Any]:
    store = await open_store(url)
    try:
        began = time.monotonic()
        await _start(store, flight.runs)
        in_flight_s = await _until(flight, "in flight", lambda: _asked(folder), flight.runs)
        if flight.holders == "one":
            await asyncio.to_thread(_hire, fleet, flight.workers - flight.killed)
        await asyncio.sleep(flight.window_s)  # so that the leases have random ages
        load_at_kill = os.getloadavg()[0]
        for worker in await _busiest(store, fleet, flight.killed):
            fleet.kill(worker)
        killed, used = time.time_ns() // 1_000_000, _cpu_s(fleet)
        held = await _held_by(store, fleet.kills)
        flight.say(f"{flight.killed} workers killed, which held {held} runs")

        async def taken() -> int:
            return held - await _held_by(store, fleet.kills)

        taken_s = await _until(flight, "taken over", taken, held)
        await _until(flight, "called again", lambda: _asked(folder), flight.runs + held)
        used, load_after = _cpu_s(fleet) - used, os.getloadavg()[0]
        async with httpx2.AsyncClient(base_url=fleet.world, trust_env=False) as http:
            await http.post(GO)

        async def ended() -> int:
            return (await store.query(CountBy(RUN, TENANT, "status"))).get("completed", 0)

        ended_s = await _until(flight, "ended", ended, flight.runs)
        return {
            "killed_at": killed,
            "held": held,
            "load_at_kill": load_at_kill,
            "load": load_after,
            "cpu_ms_a_run": round(used * 1_000 / max(held, 1), 2),  # CPU of the remaining workers
            "in_flight_s": round(in_flight_s, 1),
            "taken_s": round(taken_s, 1),
            "ended_s": round(ended_s, 1),
            "seconds": round(time.monotonic() - began, 1),
        }
    finally:
        await store.close()


def _cpu_s(fleet: Fleet) -> float:
    """Return the CPU time of the workers."""
    used = 0
    for worker in fleet.workers:
        fields = Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()
        used += int(fields[11]) + int(fields[12])
    return used / os.sysconf("SC_CLK_TCK")


async def _start(store: Store, count: int) -> None:
    for at in range(0, count, STARTS):
        starts = [
            commands.start(store, flows.slow, {"n": n}, tenant=TENANT, actor="flight", run=f"slow-{n}")
            for n in range(at, min(at + STARTS, count))
        ]
        await asyncio.gather(*starts)


async def _until(flight: Flight, what: str, look: Callable[[], Any], wanted: int) -> float:
    """Wait until a count is reached or the time is up. Returns the seconds waited."""
    began = time.monotonic()
    while (n := await look()) < wanted and time.monotonic() - began < CEILING_S:
        flight.say(f"{time.monotonic() - began:5.0f} s  {n} of {wanted} {what}")
        await asyncio.sleep(LOOK_S)
    return time.monotonic() - began


async def _asked(folder: Path) -> int:
    """Return how many requests the receivers got."""
    path = folder / "world"
    return path.read_bytes().count(b'"asked"') if path.exists() else 0


async def _holds(store: Store) -> dict[int, int]:
    """Return how many runs each process holds."""
    rows = [row for row in await store.rows(WORKER, (STORE,)) if isinstance(row, Worker)]
    return {int(row.id.split("-")[1]): len(await store.query(Owned(row.id))) for row in rows}


async def _busiest(store: Store, fleet: Fleet, n: int) -> list[Process]:
    holds = await _holds(store)
    return sorted(fleet.workers, key=lambda worker: -holds[worker.pid])[:n]


async def _held_by(store: Store, kills: dict[int, int]) -> int:
    holds = await _holds(store)
    return sum(holds[pid] for pid in kills)


def _judge(
    flight: Flight, url: str, folder: Path, kills: dict[int, int], report: dict[str, Any], codes: list[int]
) -> tuple[dict[str, Any], list[str]]:
    rows = asyncio.run(rows_of(url))
    world = lines(folder / "world")
    killed = report.pop("killed_at")
    wrong: list[str] = []
    did = Counter(line["path"] for line in world if line["what"] == "did")
    statuses = Counter(run.status.value for run in rows.runs.values())
    claimed = taken_over(rows, kills)
    took, again = spread([*claimed.values()]), spread(called_again(world, claimed, killed))
    if took["runs"] != report["held"]:
        wrong.append(f"{report['held']} runs were held by the killed workers, and {took['runs']} were taken over")
    if again["runs"] != took["runs"]:
        wrong.append(f"{took['runs']} runs were taken over, and the calls of {again['runs']} were made again")
    wrong += unmeasured(takeovers=took["runs"]) + too_late({"takeover": took, "executed": again})
    if len(did) != flight.runs or set(did.values()) != {1}:
        wrong.append(f"{len(did)} of {flight.runs} calls were carried out, {sum(n > 1 for n in did.values())} twice")
    if statuses["completed"] != flight.runs:
        wrong.append(f"not all have completed: {dict(statuses)}")
    if any(codes):
        wrong.append(f"workers ended with {codes}")
    fsck(url, report, wrong)
    made = {
        "store": flight.store,
        "in_flight": flight.runs,
        "workers": flight.workers,
        "killed": flight.killed,
        "holders": flight.holders,
        "concurrency": flight.places,
        "heartbeat_window_s": flight.window_s,
        "takeover": took,
        "executed": again,
        "shared": sharers(rows, claimed, killed),
        **report,
        "wrong": wrong,
    }
    (folder / "flight.json").write_text(json.dumps(made, indent=1) + "\n")
    return made, wrong


def called_again(world: list[dict[str, Any]], claimed: Collection[str], killed: int) -> list[int]:
    """Return, for each of these runs whose call was made again, the ms from the kill to that call."""
    first: dict[str, int] = {}
    for line in world:
        run = line["path"].strip("/").replace("/", "-")
        if line["what"] == "asked" and line["at"] > killed and run in claimed:
            first.setdefault(run, line["at"] - killed)
    return [*first.values()]


def too_few_descriptors(runs: int, limit: int) -> str:
    """Return why this limit of open files is too small for so many calls, or an empty text.

    The receiver has a connection for each call, and so has a worker that holds all runs.
    """
    needed = runs + SPARE
    if limit == resource.RLIM_INFINITY or limit >= needed:
        return ""
    return f"{runs} calls need {needed} open files in one process, and `ulimit -n` allows {limit}: raise it"


def too_late(times: dict[str, dict[str, Any]]) -> list[str]:
    """Return a fault for each p99 and each last run beyond the target."""
    return [
        f"{name} {mark} of {each[f'{mark}_ms']} ms is above {TARGET_MS} ms"
        for name, each in times.items()
        if each["runs"]
        for mark in ("p99", "max")
        if each[f"{mark}_ms"] > TARGET_MS
    ]
