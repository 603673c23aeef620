"""`scripts/bench causes [--store NAME] [--flagged N] [--ended N] [--requests N]`: causes and bars beside many runs.

A worker executes a run that needs a person and one that completes. Their rows are copied: flagged runs of 40 causes,
and ended runs, over one day. The first SAMPLE copies have all their rows and are checked as `fsck` checks a run. Of
the others only the rows that lists and counts read are written, in the order of time, as commits write them. Then one
service in another process answers each address, one request at a time, after WARM requests that do not count. Printed:
milliseconds (p50, p95), bytes, and the load of the machine. On DynamoDB a read of all rows is compared with the causes.
"""

import argparse
import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import httpx2

from bench import bulk
from bench.engines import Place, engine_of
from bench.figures import percentile
from bench.flows import readonly
from bench.load import stack
from bench.serving import TENANT, opened, served, start_runs, until_status
from bench.slices import flagged as failing
from outlast.core.causes import CauseName, causes_in, causes_text, flagged, with_causes
from outlast.core.durations import DAY
from outlast.core.machine import RunStatus
from outlast.core.rows.all_kinds import Row
from outlast.core.rows.row_kind import AnyKind, Key, key_of
from outlast.core.rows.run_columns import ATTENTION
from outlast.core.rows.run_rows import EVENT, FLAGGING, RUN, Flagging, Run
from outlast.core.run_transition import flagging
from outlast.engine.snapshots import values_of
from outlast.store.port import Store
from outlast.upkeep.fsck import violations
from outlast.upkeep.fsck_checks import flaggings_kept

CAUSES: Final = 40
SAMPLE: Final = 200
WARM: Final = 5
REQUESTS: Final = {"dynamodb": 3}
"""Requests to each address, unless they are given: its emulator takes seconds for one. Of other stores 200."""
REPLY_S: Final = 120
AT_ONCE: Final = 1_000
FLAGGED, DONE = "flagged-0", "done-0"
PATHS: Final = (
    "/v1/causes",
    "/v1/bars",
    "/v1/bars?cause={cause}",
    "/v1/causes/{cause}",
    "/ui/",
    "/ui/runs",
    "/ui/causes/{cause}",
)
OF_A_RUN: Final = (*bulk.OF_A_RUN, FLAGGING)


def fill(place: Place, runs: int, ended: int) -> None:
    """Fill an empty store."""
    asked, done, now = asyncio.run(_executed(place))
    names = bulk.names("flagged", 0, runs - 1)  # one more was executed
    bulk.insert(
        place, _written(asked, FLAGGED, names, lambda run, n: _needs_a_person(run, n, now - DAY * (runs - n) // runs))
    )
    names = bulk.names("ended", 0, ended)
    bulk.insert(place, _written(done, DONE, names, lambda run, n: _ended(run, n, now - DAY * (ended - n) // ended)))


async def _executed(place: Place) -> tuple[dict[AnyKind, tuple[Row, ...]], dict[AnyKind, tuple[Row, ...]], int]:
    async with opened(place.url) as store, served(store, failing):
        await start_runs(store, failing, 1, prefix="flagged-")
        await until_status(store, "waiting", 1)
        now = (await store.now()).business
    asked = await bulk.rows_of(place, FLAGGED, OF_A_RUN)
    async with opened(place.url) as store, served(store, readonly):
        await start_runs(store, readonly, 1, prefix="done-")
        await until_status(store, "completed", 1)
    return asked, await bulk.rows_of(place, DONE, OF_A_RUN), now


def _written(
    rows: dict[AnyKind, tuple[Row, ...]], run: str, names: list[str], changed: Any
) -> dict[AnyKind, Iterator[Row]]:
    """Return the rows of copies: of the first ones all, of the others those that lists and counts read."""
    (row,) = rows[RUN]
    found = bulk.copies({kind: of for kind, of in rows.items() if kind not in (RUN, FLAGGING)}, run, names[:SAMPLE])

    def of_runs() -> Iterator[Run]:
        for n, name in enumerate(names):
            assert isinstance(row, Run)
            yield changed(
                row._replace(run=name, correlation_id="", descent_text=row.descent_text.replace(run, name)), n
            )

    found[RUN] = of_runs()
    if rows[FLAGGING]:
        found[FLAGGING] = (_flagging(each, rows[FLAGGING][0]) for each in of_runs())
    return found


def _needs_a_person(run: Run, n: int, at: int) -> Run:
    (entry,) = run.attention
    words = chr(ord("a") + n % CAUSES % 26) * (1 + n % CAUSES // 26)
    entry = entry._replace(detail=f"ValueError: the {words} is unknown", cause="", since=at)
    return flagged(run._replace(created_at=at, attention_text=ATTENTION.encode(with_causes(run, [entry]))))


def _flagging(run: Run, of: Row) -> Flagging:
    assert isinstance(of, Flagging)
    return flagging(run, of.seq, run.attention)


def _ended(run: Run, n: int, at: int) -> Run:
    run = run._replace(ended_at=at, created_at=at - 1_000)
    if n % 10 != 9 or n < SAMPLE:
        return run
    cause = causes_text([CauseName("failed", f"{n % CAUSES:012x}")])
    return run._replace(status=RunStatus.FAILED, causes=cause)


async def check(place: Place) -> int:
    """Check the copies that have all their rows, and return their number. Raises AssertionError."""
    runs = [*bulk.names("flagged", 0, SAMPLE), *bulk.names("ended", 0, SAMPLE)]
    async with opened(place.url) as store:
        found = [each for each in await store.run_rows([(TENANT, run) for run in runs]) if each is not None]
        for each in found:
            events = await store.rows(EVENT, each.run[:2])
            values = await values_of(store, each, events)
            wrong = violations(each, events, values=values, chain=False, mapping=store.mapping())
            flags = await store.rows(FLAGGING, each.run[:2])
            assert not wrong and not [*flaggings_kept(each.run, flags)], (each.run.run, wrong)
    return len(found)


async def compare(place: Place, url: str) -> None:
    """Read all runs, print how long that took, and compare the causes with them. Raises AssertionError."""
    before, runs = time.perf_counter(), Counter[str]()
    async with opened(place.url) as store:
        async for row in rows_in_pages(store):
            runs.update(each.cause for each in causes_in(row.causes) if row.flagged_at)
    took = time.perf_counter() - before
    async with httpx2.AsyncClient(base_url=url, timeout=REPLY_S) as client:
        found = (await client.get("/v1/causes")).json()
    counts = Counter({each["cause"]: each["runs"] for each in found["causes"]})
    assert counts == runs or (found["at_least"] and counts <= runs), (runs, counts)
    print(f"all {runs.total():,} flagged runs read in {took:.1f} s; {counts.total():,} were counted", flush=True)


async def rows_in_pages(store: Store) -> AsyncIterator[Run]:
    """Read all runs of the tenant."""
    after: Key = ()
    while page := await store.rows(RUN, (TENANT,), after=after, limit=AT_ONCE, listed=True):
        for row in page:
            yield row
        after = key_of(RUN, page[-1])


async def load(url: str, requests: int) -> None:
    """Send requests and print what they took."""
    warm = min(WARM, requests)
    async with httpx2.AsyncClient(base_url=url, timeout=REPLY_S) as client:
        causes = (await client.get("/v1/causes")).json()["causes"]
        print(f"{len(causes)} causes, {sum(each['runs'] for each in causes):,} runs", flush=True)
        for path in PATHS:
            took, answer = list[float](), None
            for _ in range(warm + requests):
                before = time.perf_counter()
                answer = await client.get(path.format(cause=causes[0]["cause"]))
                took.append((time.perf_counter() - before) * 1_000)
                assert answer.status_code == 200, (path, answer.text[:500])
            assert answer is not None
            p50, p95 = (percentile(took[warm:], share) for share in (0.5, 0.95))
            print(f"{path:24} p50 {p50:8.1f}  p95 {p95:8.1f} ms  {len(answer.content):9,} bytes", flush=True)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="scripts/bench causes")
    parser.add_argument("--store", default="sqlite", choices=("sqlite", "postgres", "dynamodb"))
    parser.add_argument("--flagged", type=int, default=100_000)
    parser.add_argument("--ended", type=int, default=1_000_000)
    parser.add_argument("--requests", type=int, default=0, help="of each address [200, on DynamoDB 3]")
    given = parser.parse_args()
    with engine_of(given.store).place() as place:
        before = time.perf_counter()
        fill(place, given.flagged, given.ended)
        print(f"filled in {time.perf_counter() - before:.0f} s; load {os.getloadavg()[0]:.1f}", flush=True)
        print(f"checked {asyncio.run(check(place)):,} runs", flush=True)
        with stack.serving_here(place.url, place.folder / "log.txt", stack.PAGES) as (url, _):
            if given.store == "dynamodb":
                asyncio.run(compare(place, url))
            asyncio.run(load(url, given.requests or REQUESTS.get(given.store, 200)))
        print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
