"""A service stands in front of the store: what commands ask is asked of it over HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any, Final, TypeVar
from urllib.parse import quote

import httpx

from outlast.cli.desk.port import AnsweredPage, RunPage, Verb, View
from outlast.cli.desk.wire import Wire, frames
from outlast.core.compensation import NO_UNDO
from outlast.core.machine import TERMINAL, Choice, EffectStatus, Reason
from outlast.errors import InvalidInput, NotFound, OutlastError, Unavailable
from outlast.runtime.board import verb_of
from outlast.runtime.clocks import SystemClock
from outlast.runtime.views import ENDINGS

T = TypeVar("T")
LOOK_S: Final = 0.1
PAGE: Final = 1_000
AWAY_MAX: Final = 60_000
"""How long a stream is tried again, in ms."""
BACK_OFF_S: Final = (0.2, 0.5, 1.0, 2.0, 5.0)
ENDED_ONLY: Final = ("outcome", "reason", "standing")


def _part(name: str) -> str:
    """A name as one part of an address."""
    return quote(name, safe="")


class Remote:
    """A desk over HTTP. `lost`: is told once when a stream breaks off and is begun anew."""

    name = ""
    me = "you"
    codes = False

    def __init__(self, wire: Wire, lost: Callable[[str], None]) -> None:
        self.wire = wire
        self._lost = lost
        self._clock = SystemClock()

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

    # --- runs ----------------------------------------------------------------------------------
    async def runs(
        self, *, status: str, workflow: str, attention: bool, waiting_for: str, cursor: str, limit: int
    ) -> RunPage:
        """One page; the rest is not counted."""
        page = await self.wire.get(
            "/runs", status=status, workflow=workflow, attention=attention, waiting_for=waiting_for, cursor=cursor,
            limit=limit,
        )  # fmt: skip
        views: list[View] = page["runs"]
        due = frozenset(v["run"] for v in views if not v["owner"] and not v["waiting_for"])
        asked = sum(1 for v in views for wait in v["waiting_for"] if wait["kind"] == "approval")
        whole = not cursor and not page["next_cursor"] and not (status or workflow or attention or waiting_for)
        return RunPage(views, page["next_cursor"], due, len(views) if whole else None, asked)

    async def run(self, run: str) -> View:
        """As GET /runs/RUN tells it."""
        view: View = await self.wire.get(f"/runs/{_part(run)}")
        view.pop("explained", None)
        if view["status"] not in TERMINAL:
            view = {name: value for name, value in view.items() if name not in ENDED_ONLY}
        return view

    async def glance(self, run: str) -> View:
        """The same."""
        return await self.run(run)

    async def last_event(self, run: str) -> int:
        """Pages are read to the end."""
        events = await self.events(run)
        return int(events[-1]["sequence"]) if events else 0

    async def effects(self, run: str) -> list[View]:
        """As GET /runs/RUN/effects tells them."""
        return [effect for _, effect in await self._ledger(run)]

    async def _ledger(self, run: str) -> list[tuple[str, View]]:
        """Each with the id under which it is answered."""
        found: list[View] = (await self.wire.get(f"/runs/{_part(run)}/effects"))["effects"]
        return [(str(effect.pop("id")), effect) for effect in found]

    async def effect(self, run: str, key: str, *, visit: int | None) -> View:
        """Of those that its ledger tells."""
        return (await self._named(run, key, visit))[1]

    async def _named(self, run: str, key: str, visit: int | None) -> tuple[str, View]:
        alike = [e for e in await self._ledger(run) if e[1]["key"] == key and visit in (None, e[1]["visit"])]
        if not alike:
            raise NotFound(f"run {run} has no effect {key}", "", f"list them with: outlast runs effects {run}")
        return next((e for e in alike if e[1]["status"] == EffectStatus.UNCERTAIN), alike[-1])

    async def events(self, run: str, *, after: int = 0) -> list[View]:
        """Page by page."""
        found: list[View] = []
        while True:
            page = await self.wire.get(f"/runs/{_part(run)}/events", after=after, limit=PAGE)
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
            except (httpx.HTTPError, Unavailable) as error:
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
        async with self.wire.stream(f"/runs/{_part(run)}/events", after) as lines:
            yield 0, ""
            async for number, text in frames(lines):
                yield int(number), text

    async def topology(self, view: View) -> View | None:
        """Of the version that the service has loaded, where it is the run's."""
        try:
            found = await self.wire.get(f"/workflows/{_part(view['workflow'])}")
        except NotFound:
            return None
        topology: View = found["topology"]
        return topology if found["lane"] == view["lane"] else None

    async def explain(self, run: str) -> View:
        """As GET /runs/RUN/explain tells it."""
        view: View = await self.wire.get(f"/runs/{_part(run)}/explain")
        return view

    async def input_schema(self, workflow: str) -> View:
        """Of the newest version that the service has loaded. Raises NotFound."""
        schema: View = (await self.wire.get(f"/workflows/{_part(workflow)}"))["input_schema"]
        return schema

    async def start(self, workflow: str, given: bytes, *, run: str, key: str) -> tuple[View, bool]:
        """The service checks the input."""
        try:
            data = json.loads(given)
        except ValueError as error:
            raise InvalidInput("the input is not JSON", str(error), "correct it") from error
        body = {"input": data, **({"id": run} if run else {})}
        view: View = await self.wire.post(f"/workflows/{_part(workflow)}/runs", body, key=key)
        return view, bool(view.pop("created"))

    async def signal(self, run: str, name: str, payload: View, *, signal_id: str) -> bool:
        """Once, where it has an id."""
        body = {"payload": payload, **({"signal_id": signal_id} if signal_id else {})}
        return bool((await self.wire.post(f"/runs/{_part(run)}/signals/{_part(name)}", body))["new"])

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
        await self.wire.post(f"/runs/{_part(run)}/cancel", {"reason": reason})

    async def go_on(self, run: str, *, reason: str) -> None:
        """Recorded when this returns."""
        await self.wire.post(f"/runs/{_part(run)}/continue", {"reason": reason})

    async def extend(self, run: str, *, by: timedelta, reason: str) -> None:
        """Recorded when this returns."""
        await self.wire.post(f"/runs/{_part(run)}/extend", {"reason": reason, "by": by.total_seconds()})

    # --- approvals -----------------------------------------------------------------------------
    async def approvals(self, *, status: str, cursor: str, limit: int) -> tuple[list[View], str]:
        """One page."""
        page = await self.wire.get("/approvals", status=status, cursor=cursor, limit=limit)
        return page["approvals"], page["next_cursor"]

    async def approval(self, approval: str) -> View:
        """With what was done before it was asked, and since."""
        view: View = await self.wire.get(f"/approvals/{_part(approval)}")
        return view

    async def approve(self, approval: str, *, reason: str, alternative: int, changes: Mapping[str, Any] | None) -> View:
        """Of the version that is read now."""
        offered = len((await self.approval(approval))["plans"])
        if not 0 <= alternative < offered:
            raise NotFound(
                f"approval {approval} has no alternative {alternative}",
                f"it offers {offered - 1} beside the plan asked for",
                f"see them with: outlast approvals show {approval}",
            )
        body = {"decision": "approve", "reason": reason, "alternative": alternative}
        return await self._decide(approval, {**body, **({"changes": dict(changes)} if changes else {})})

    async def reject(self, approval: str, *, reason: str, again: bool) -> View:
        """Of the version that is read now."""
        return await self._decide(approval, {"decision": "again" if again else "reject", "reason": reason})

    async def _decide(self, approval: str, body: View) -> View:
        seen = await self.approval(approval)
        answer = await self.wire.post(f"/approvals/{_part(approval)}/decision", body, etag=f'"v{seen["version"]}"')
        view: View = answer["approval"]
        return view

    async def claim_approval(self, approval: str) -> View:
        """It binds nobody."""
        view: View = await self.wire.post(f"/approvals/{_part(approval)}/claim")
        return view

    async def reassign(self, approval: str, who: str, *, reason: str) -> View:
        """The service reads the rule."""
        view: View = await self.wire.post(f"/approvals/{_part(approval)}/reassign", {"to": who, "reason": reason})
        return view

    # --- attention, effects --------------------------------------------------------------------
    async def attention(
        self, *, reason: Reason | None, workflow: str, cursor: str, first: bool
    ) -> tuple[list[View], str]:
        """One page; the service knows itself which is the first."""
        page = await self.wire.get("/attention", reason=reason, workflow=workflow, cursor=cursor)
        return page["attention"], page["next_cursor"]

    async def attention_of(self, run: str) -> list[View]:
        """Pages of its workflow are read until it is found."""
        view = await self.run(run)
        cursor = ""
        while view["attention"]:
            items, cursor = await self.attention(reason=None, workflow=view["workflow"], cursor=cursor, first=False)
            if found := [item for item in items if item["run"] == run]:
                return found
            if not cursor:
                break
        return []

    async def reason_of(self, run: str, choice: Choice, reason: Reason | None, key: str) -> Reason:
        """The one named, or the first that offers the choice; the service says whether it may be answered."""
        entries = (await self.run(run))["attention"]
        found = [Reason(each["reason"]) for each in entries if reason in (None, each["reason"])]
        offered = [Reason(each["reason"]) for each in entries if choice in each["choices"]]
        return reason or next(iter(offered or found), Reason.EXCEPTION)

    async def answer(
        self, run: str, choice: Choice, *, reason: Reason | None, key: str, text: str, by: timedelta | None
    ) -> None:
        """Recorded when this returns."""
        body: View = {"choice": choice.value, "reason": text, "key": key}
        if reason is not None:
            body["attention"] = reason.value
        if by is not None:
            body["by"] = by.total_seconds()
        await self.wire.post(f"/attention/{_part(run)}/resolve", body)

    async def answer_all(
        self, reason: Reason, choice: Choice, *, text: str, workflow: str, by: timedelta | None, cursor: str
    ) -> AnsweredPage:
        """One request each."""
        items, further = await self.attention(reason=reason, workflow=workflow, cursor=cursor, first=False)
        done: dict[str, None] = {}
        failed: list[tuple[str, str]] = []
        for item in items:
            if item["run"] in done and reason is not Reason.EFFECT_UNCERTAIN:
                continue
            try:
                if reason is Reason.EFFECT_UNCERTAIN:
                    verb = verb_of(choice)
                    await self.resolve_effect(
                        item["run"], item["key"], verb, reason=text, external_id="", response=None
                    )
                else:
                    await self.answer(item["run"], choice, reason=reason, key="", text=text, by=by)
            except OutlastError as error:
                failed.append((item["run"], f"{error.what}: {error.why}" if error.why else error.what))
                continue
            done[item["run"]] = None
        return AnsweredPage(list(done), failed, further)

    async def resolve_effect(
        self, run: str, key: str, verb: Verb, *, reason: str, external_id: str, response: Any
    ) -> None:
        """The one in doubt of this key, else the latest."""
        if not reason.strip():
            raise InvalidInput(
                "the service asks for a reason", "people will read it in the run's history", "say --reason …"
            )
        name, _ = await self._named(run, key, None)
        body: View = {"outcome": verb, "reason": reason}
        if verb == "happened":
            body |= {"external_id": external_id, "response": response}
        await self.wire.post(f"/effects/{_part(name)}/resolve", body)

    # --- the store -----------------------------------------------------------------------------
    async def workers(self) -> list[View]:
        """Those that have gone, too."""
        views: list[View] = (await self.wire.get("/workers", all=True))["workers"]
        return views

    async def versions(self) -> list[View]:
        """As the service tells them."""
        views: list[View] = (await self.wire.get("/versions"))["versions"]
        return views
