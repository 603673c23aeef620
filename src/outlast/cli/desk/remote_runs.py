"""A service stands in front of the store: what commands ask of runs is asked of it over HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any, Final, TypeVar
from urllib.parse import quote

import httpx2

from outlast.cli.desk.port import ResultPage, RunPage, View
from outlast.cli.desk.wire import Wire, frames
from outlast.core.compensation import NO_UNDO
from outlast.core.machine import TERMINAL, EffectStatus
from outlast.errors import InvalidInput, NotFound, Unavailable
from outlast.runtime.clocks import SystemClock
from outlast.runtime.views import ENDINGS

T = TypeVar("T")
LOOK_S: Final = 0.1
PAGE: Final = 1_000
AWAY_MAX: Final = 60_000
"""How long a stream is tried again, in ms."""
BACK_OFF_S: Final = (0.2, 0.5, 1.0, 2.0, 5.0)
ENDED_ONLY: Final = ("outcome", "reason", "standing")


def part(name: str) -> str:
    """A name as one part of an address."""
    return quote(name, safe="")


def iso(span: timedelta | None) -> str | None:
    """A duration as the service reads it (ISO 8601)."""
    return f"PT{span.total_seconds():.3f}S" if span is not None else None


class RemoteRuns:
    """The part of a desk that is about runs. `lost`: is told once when a stream breaks off and is begun anew."""

    me = "you"
    codes = False

    def __init__(self, wire: Wire, lost: Callable[[str], None]) -> None:
        self.wire = wire
        self._lost = lost
        self._caller = ""
        self._clock = SystemClock()

    async def caller(self) -> str:
        """Whoever the token proves, asked for once."""
        if not self._caller:
            self._caller = str((await self.wire.get("/me"))["name"])
        return self._caller

    async def now_real(self) -> int:
        """This machine's clock: the service does not tell its own."""
        return self._clock.wall()

    async def until(self, look: Callable[[], Awaitable[T | None]], *, within_s: float) -> T | None:
        """By asking again."""
        try:
            async with asyncio.timeout(within_s):
                while (found := await look()) is None:  # noqa: ASYNC110 - the other side is another machine
                    await asyncio.sleep(LOOK_S)
                return found
        except TimeoutError:
            return None

    async def runs(
        self,
        *,
        status: str,
        workflow: str,
        attention: bool,
        waiting_for: str,
        since: timedelta | None,
        cursor: str,
        limit: int,
    ) -> RunPage:
        """One page; the rest is not counted."""
        page = await self.wire.get(
            "/runs", status=status, workflow=workflow, attention=attention, waiting_for=waiting_for,
            since=iso(since), cursor=cursor, limit=limit,
        )  # fmt: skip
        views: list[View] = page["runs"]
        due = frozenset(v["run"] for v in views if not v["owner"] and not v["waiting_for"])
        asked = sum(1 for v in views for wait in v["waiting_for"] if wait["kind"] == "approval")
        whole = not cursor and not page["next_cursor"] and not (status or workflow or attention or waiting_for or since)
        return RunPage(views, page["next_cursor"], due, len(views) if whole else None, asked)

    async def run(self, run: str) -> View:
        """As GET /runs/RUN tells it."""
        view: View = await self.wire.get(f"/runs/{part(run)}")
        view.pop("explained", None)
        if view["status"] not in TERMINAL:
            view = {name: value for name, value in view.items() if name not in ENDED_ONLY}
        return view

    async def glance(self, run: str) -> View:
        """The same."""
        return await self.run(run)

    async def input(self, run: str) -> Any:
        """As GET /runs/RUN/input tells it."""
        return (await self.wire.get(f"/runs/{part(run)}/input"))["input"]

    async def results(self, run: str, *, after: int, limit: int) -> ResultPage:
        """As GET /runs/RUN/results tells them."""
        page = await self.wire.get(f"/runs/{part(run)}/results", after=after, limit=limit)
        return ResultPage(page["results"], page["count"], int(page["next_cursor"] or 0))

    async def last_event(self, run: str) -> int:
        """Pages are read to the end."""
        events = await self.events(run)
        return int(events[-1]["sequence"]) if events else 0

    async def effects(self, run: str) -> list[View]:
        """As GET /runs/RUN/effects tells them."""
        return [effect for _, effect in await self._ledger(run)]

    async def _ledger(self, run: str) -> list[tuple[str, View]]:
        """Each with the id under which it is answered."""
        found: list[View] = (await self.wire.get(f"/runs/{part(run)}/effects"))["effects"]
        return [(str(effect.pop("id")), effect) for effect in found]

    async def ledger(
        self, *, status: EffectStatus | None, activity: str, run: str, since: timedelta | None, cursor: str, limit: int
    ) -> tuple[list[View], str]:
        """As GET /effects tells it."""
        page = await self.wire.get(
            "/effects", status=status, activity=activity, run=run, since=iso(since), cursor=cursor, limit=limit
        )
        for view in page["effects"]:
            view.pop("id")
        return page["effects"], page["next_cursor"]

    async def effect(self, run: str, key: str, *, visit: int | None) -> View:
        """Of those that its ledger tells."""
        return (await self.named(run, key, visit))[1]

    async def named(self, run: str, key: str, visit: int | None) -> tuple[str, View]:
        """The one in doubt of this key, else the latest, with the id under which it is answered. Raises NotFound."""
        alike = [e for e in await self._ledger(run) if e[1]["key"] == key and visit in (None, e[1]["visit"])]
        if not alike:
            raise NotFound(
                f"run {run} has no effect {key}" + (f" in visit {visit}" if visit is not None else ""),
                "keys are spelt as the ledger shows them",
                f"outlast runs effects {run}",
            )
        return next((e for e in alike if e[1]["status"] == EffectStatus.UNCERTAIN), alike[-1])

    async def events(self, run: str, *, after: int = 0) -> list[View]:
        """Page by page."""
        found: list[View] = []
        while True:
            page = await self.wire.get(f"/runs/{part(run)}/events", after=after, limit=PAGE)
            found += page["events"]
            if not page["next_cursor"]:
                return found
            after = page["last"]

    async def follow(self, run: str, *, after: int = 0) -> AsyncIterator[str]:
        """The stream, begun anew behind the last event where it breaks off. Raises Unavailable after a minute away."""
        failures, begun = 0, False
        since: int | None = None
        while True:
            heard, gone = False, None
            try:
                async for number, text in self._stream(run, after):
                    failures, begun, since = 0, True, None
                    if not text:
                        continue
                    after, heard = number, True
                    yield text
                    if json.loads(text)["type"] in ENDINGS:
                        return
                if not heard and (await self.glance(run))["status"] in TERMINAL:
                    return
            except (httpx2.HTTPError, Unavailable) as error:
                gone = error
            if gone is not None:
                if since is None and begun:
                    self._lost(f"the stream broke off after event {after}; it is begun anew behind it")
                since = self._clock.mono() if since is None else since
                if not begun or self._clock.mono() - since > AWAY_MAX:
                    raise self.wire.away(gone) from gone
            await asyncio.sleep(BACK_OFF_S[min(failures, len(BACK_OFF_S) - 1)])
            failures += 1

    async def _stream(self, run: str, after: int) -> AsyncIterator[tuple[int, str]]:
        """Number and text of each event until the stream ends; first of all (0, ''): it has begun."""
        async with self.wire.stream(f"/runs/{part(run)}/events", after) as lines:
            yield 0, ""
            async for number, text in frames(lines):
                yield int(number), text

    async def topology(self, view: View) -> View | None:
        """Of the version that the service has loaded, where it is the run's."""
        try:
            found = await self.wire.get(f"/workflows/{part(view['workflow'])}")
        except NotFound:
            return None
        topology: View = found["topology"]
        return topology if found["lane"] == view["lane"] else None

    async def explain(self, run: str) -> View:
        """As GET /runs/RUN/explain tells it."""
        view: View = await self.wire.get(f"/runs/{part(run)}/explain")
        return view

    async def input_schema(self, workflow: str) -> View:
        """Of the newest version that the service has loaded. Raises NotFound."""
        schema: View = (await self.wire.get(f"/workflows/{part(workflow)}"))["input_schema"]
        return schema

    async def start(self, workflow: str, given: bytes, *, run: str, key: str) -> tuple[View, bool]:
        """The service checks the input."""
        try:
            data = json.loads(given)
        except (ValueError, RecursionError) as error:
            raise InvalidInput("the input is not JSON", str(error), "correct it") from error
        body = {"input": data, **({"id": run} if run else {})}
        view: View = await self.wire.post(f"/workflows/{part(workflow)}/runs", body, key=key)
        return view, bool(view.pop("created"))

    async def signal(self, run: str, name: str, payload: View, *, signal_id: str) -> bool:
        """Once, where it has an id."""
        body = {"payload": payload, **({"signal_id": signal_id} if signal_id else {})}
        return bool((await self.wire.post(f"/runs/{part(run)}/signals/{part(name)}", body))["new"])

    async def to_undo(self, run: str) -> list[str]:
        """Of the ledger as it is told."""
        done = await self._done(run)
        return [f"{e['effect']} {e['key']}" for e in done if e["undo"] and not e["undo"].startswith(NO_UNDO)]

    async def standing(self, run: str) -> list[str]:
        """Of the ledger as it is told."""
        kept = [e for e in await self._done(run) if not e["undo"] or e["undo"].startswith(NO_UNDO)]
        return [
            f"{e['effect']} {e['key']}" + (f": {e['undo'].removeprefix(NO_UNDO)}" if e["undo"] else "") for e in kept
        ]

    async def _done(self, run: str) -> list[View]:
        return [e for e in reversed(await self.effects(run)) if e["status"] == EffectStatus.DONE and e["run"] == run]

    async def cancel(self, run: str, *, reason: str) -> None:
        """Recorded when this returns."""
        await self.wire.post(f"/runs/{part(run)}/cancel", {"reason": reason})

    async def go_on(self, run: str, *, reason: str) -> None:
        """Recorded when this returns."""
        await self.wire.post(f"/runs/{part(run)}/continue", {"reason": reason})

    async def extend(self, run: str, *, by: timedelta, reason: str) -> None:
        """Recorded when this returns."""
        await self.wire.post(f"/runs/{part(run)}/extend", {"reason": reason, "by": by.total_seconds()})
