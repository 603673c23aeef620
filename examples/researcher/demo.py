"""The demo of `outlast demo --sample researcher`: workers are killed every few seconds, and the work goes on.

Two equal sites are read at the same time. One run is carried by worker processes that the demo kills. The other is
carried by the demo's own process, and nothing happens to it. At the end both must be equal.
"""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator
from typing import Any, Final

from outlast import connect
from outlast.clocks import SystemClock
from outlast.core.addresses import AddressPolicy
from outlast.core.approvals import Actor
from outlast.core.durations import SECOND
from outlast.core.lanes import OWN
from outlast.core.rows.run_rows import Run, is_over
from outlast.errors import Conflict
from outlast.models.runs import RunDetail
from outlast.runtime.operations import Operations
from outlast.runtime.stores import open_store
from outlast.runtime.webhooks import new_dispatcher
from outlast.store.port import Store

from ..negotiation.demo.output import Output
from ..negotiation.demo.processes import ChildProcess, DemoFailed, DemoFolder, Processes
from ..negotiation.demo.proof import Claim, Proof, lines, proven
from ..negotiation.demo.state import DemoState
from . import chart, proof
from .fetching import AGENT, TIMEOUT
from .robots import parse
from .watch import Watch
from .workflow import research
from .world import record
from .world.pages import Shape, Site

PACKAGE: Final = __name__.removesuffix(".demo")  # another name in the wheel than in a checkout
QUESTION: Final = "Which heat pumps are quiet?"
SHORTER: Final = ("--heartbeat-window", "2s", "--heartbeat-every", "500ms", "--attempt-timeout", "30s")
PATIENCE_S: Final = "6"
"""Time limit of a page. With 1.5 s, a page of the run without a kill was too slow at a load of 14 on two cores."""
POLL_S: Final = 0.4
DELIVERED_WITHIN_MS: Final = 30_000
LOCAL: Final = AddressPolicy.of(private=True, plain=True)
ALLOWED: Final = {"OUTLAST_WEBHOOKS__ALLOW_HTTP": "true", "OUTLAST_WEBHOOKS__ALLOW_PRIVATE": "true"}


class SampleDemo:
    """The demo of the researcher, played in a new folder."""

    shape: Shape = Shape()
    kill_every_ms: int = 5_000
    kills_max: int = 6

    def __init__(self, store: Store, folder: DemoFolder, state: DemoState, output: Output, *, unattended: bool) -> None:
        """`unattended` makes no difference, because it asks no person.

        Raises Conflict if the folder holds a demo, or if another engine is to schedule the run.
        """
        if folder.runtime != OWN:  # the service starts the run, and no worker of that engine would execute it
            raise Conflict("only Outlast schedules the run of this sample", "", "leave --runtime out")
        if state.run:
            raise Conflict(f"{folder.path} holds a demo already", "a sample is played from its beginning")
        self._folder, self._state, self._output = folder, state, output
        self._processes = Processes(folder, example=PACKAGE, server="world", options=SHORTER)
        self._clock = SystemClock()
        self._kills = 0
        self._held: set[str] = set()
        self._unequal = 0

    async def play(self) -> Proof:
        """Play to the end and stop every process. Raises DemoFailed."""
        pages, seconds = len(Site(self.shape).by_path), self.kill_every_ms // SECOND
        self._output.line(f"  a researcher reads {pages:,} pages; its worker is killed every {seconds} seconds\n")
        processes = self._processes
        try:
            processes.open_server("--sites", "2", "--entries", f"{self.shape.entries}")
            world = await processes.server_facts()
            os.environ.update(ALLOWED, OUTLAST_MODEL="chat:planner", OUTLAST_MODEL_URL=world["model"])
            os.environ.setdefault(TIMEOUT, PATIENCE_S)
            for _ in range(2):
                processes.start_worker()
            async with (
                self._service() as url,
                self._undisturbed(world["sites"][1], world["receiver"]) as (whole, its_secret),
            ):
                return await self._play(url, world, whole, its_secret)
        finally:
            await processes.close()

    async def _play(self, url: str, world: dict[str, Any], whole: "Undisturbed", its_secret: str) -> Proof:
        async with connect(url) as client:
            hook = await client.webhooks.add(world["receiver"], from_start=True)
            run = await client.start("research", {"site": world["sites"][0], "question": QUESTION})
            self._state.run, self._state.begun_at = run.id, self._clock.wall()
            self._state.save(self._folder.path)
            watch = Watch(client, run.id)
            self._output.line(f"  run       {run.id}\n  service   {url}\n")
            await self._watch(watch)
            mine, other = await proof.outcome(client, run.id), await whole.outcome()
            for each in (mine, other):
                await self._delivered(each.run, len(each.events))
        hits, site = record.read(self._processes.record), world["sites"][0]
        claims = [
            *proof.claims(
                mine,
                other,
                hits=hits,
                secrets=(hook.secret, its_secret),
                kills=self._kills,
                held=self._held,
                site=site,
            ),
            *proof.manners(hits, site, parse(Site(self.shape).robots, AGENT)),
            proof.counted(watch.polls, self._unequal),
        ]
        return self._report(mine, [row.data for row in watch.rows.values()], claims)

    @contextlib.asynccontextmanager
    async def _service(self) -> AsyncIterator[str]:
        """Run a service, which answers over HTTP and sends webhooks. It carries no run."""
        command = ("-o", "ndjson", "serve", f"{PACKAGE}.workflow", "--no-worker", "--port", "0")
        service = self._processes.start_command("service", *command)
        yield json.loads(await service.first_line('"url"'))["url"]

    @contextlib.asynccontextmanager
    async def _undisturbed(self, site: str, receiver: str) -> AsyncIterator[tuple["Undisturbed", str]]:
        """Execute the other run in this process, in a second store."""
        store = await open_store(f"sqlite:{self._folder.path / 'undisturbed.db'}")
        flows = {research.name: research}
        operations = Operations(store, tenant="default", actor=Actor("local:demo"), workflows=flows)
        operations.webhooks.reach = LOCAL
        secret = (await operations.webhooks.add(receiver, from_start=True)).secret
        dispatcher = new_dispatcher(store, reach=LOCAL)
        sending = asyncio.create_task(dispatcher.run())
        try:
            async with operations.worker([research]):
                begun = await operations.start_run(research.name, {"site": site, "question": QUESTION})
                yield Undisturbed(operations, begun.run), secret
        finally:
            dispatcher.drain()
            await asyncio.gather(sending, return_exceptions=True)
            await store.close()

    async def _watch(self, watch: Watch) -> RunDetail:
        """Show the progress and kill a worker every few seconds, until the run has ended."""
        output, kill_at = self._output, self._clock.mono() + self.kill_every_ms
        topics = rows = 0  # those seen, and the rows at the last kill: a worker that is killed has added some
        while True:
            for name in self._processes.check():
                output.line(f"    … {name} was silent for too long and gave up; another worker starts")
            detail = await self._polled(watch)
            for topic, entries in list(watch.topics.items())[topics:]:
                output.line(f"  ▸ {topic:<14}{entries} entries · {len(watch.rows):,} records so far")
            topics = len(watch.topics)
            if detail.ended_at is not None:
                output.status("")
                return detail
            if detail.attention:
                raise DemoFailed(f"run {detail.run} needs a person", detail.waiting_text)
            output.status("  ▸ collecting    ", f"{watch.line()} · {self._kills} kills")
            holder = self._processes.holder(detail.owner)
            if self._kills < self.kills_max and self._clock.mono() >= kill_at and holder and len(watch.rows) > rows:
                kill_at, rows = self._clock.mono() + self.kill_every_ms, len(watch.rows)
                self._held.add(detail.owner)
                await self._kill(holder, rows)
            await asyncio.sleep(POLL_S)

    async def _polled(self, watch: Watch) -> RunDetail:
        """Return the run as it is now, and count a poll at which its count differed from the rows."""
        try:
            return await watch.poll()
        except Conflict:
            self._unequal += 1
            return await watch.client.run(watch.run)

    async def _kill(self, holder: ChildProcess, rows: int) -> None:
        """Kill the worker that holds the run, and start another beside the one that is left."""
        self._kills += 1
        await self._processes.kill(holder)
        fresh = self._processes.start_worker()
        self._output.line(f"    ✗ kill -9 {holder.name} (pid {holder.pid}) at {rows:,} records; {fresh.name} starts")

    async def _delivered(self, run: str, events: int) -> None:
        """Wait until the receiver has accepted all events of a run. Raises DemoFailed."""
        give_up = self._clock.mono() + DELIVERED_WITHIN_MS
        while len(proof.accepted(record.read(self._processes.record), run)) < events:
            if self._clock.mono() > give_up:
                raise DemoFailed(f"not all {events} events of {run} were delivered")
            await asyncio.sleep(POLL_S)

    def _report(self, mine: proof.Outcome, records: list[Any], claims: list[Claim]) -> Proof:
        """Print the proof, write the page with the charts, and return the proof."""
        output, seconds = self._output, round((self._clock.wall() - self._state.begun_at) / SECOND, 1)
        output.line(f"\n  {mine.status} in {seconds}s {mine.reason}".rstrip())
        output.line(lines(claims))
        well = mine.status == "COMPLETED" and proven(claims)
        facts = {
            "outcome": mine.status,
            "run": mine.run,
            "rows": len(mine.rows),
            "events": len(mine.events),
            "kills": self._kills,
            "seconds": seconds,
            "claims": {each.text: each.holds for each in claims},
            "proven": well,
        }
        if self._processes.kept(well=well):
            text = chart.page(mine.run, QUESTION, records, [each.text for each in claims if each.holds])
            facts["report"] = f"{chart.write(self._folder.path, text)}"
            output.line(f"\n  Charts: {facts['report']}\n")
        return Proof(facts, tuple(claims))


class Undisturbed:
    """The run that is carried by the process of the demo."""

    def __init__(self, operations: Operations, run: str) -> None:
        self._operations = operations
        self.run = run

    async def outcome(self) -> proof.Outcome:
        """Wait for the end of the run and read it. Raises DemoFailed if it needs a person."""

        def rests(row: Run) -> bool:
            return is_over(row) or bool(row.attention)

        row = await self._operations.until_row(self.run, rests, within_s=None)
        if row is not None and row.attention:
            detail = await self._operations.run(self.run)
            raise DemoFailed(f"run {self.run} needs a person", detail.waiting_text)
        return await proof.outcome(self._operations, self.run)
