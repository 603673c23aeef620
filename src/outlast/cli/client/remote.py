"""The client of a service, over HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, TypeVar
from urllib.parse import quote

import httpx2
from typing_extensions import override

from outlast.cli.client import AnsweredPage, OutlastClient, ResultPage, RunPage, Verb, View, WebhookViews
from outlast.cli.client.connection import ServiceConnection, frames
from outlast.core.compensation import NO_UNDO
from outlast.core.machine import TERMINAL, Choice, DeliveryStatus, EffectStatus, Reason, RunStatus
from outlast.engine.pauses import What
from outlast.errors import InvalidInput, NotFound, OutlastError, Unavailable
from outlast.runtime.attention import verb_of
from outlast.runtime.clocks import SystemClock, new_id
from outlast.runtime.versions import UNSERVED, why_not
from outlast.runtime.views import ENDINGS


class RemoteWebhooks(WebhookViews):
    """Webhooks of the service; its settings limit their addresses."""

    def __init__(self, wire: ServiceConnection) -> None:
        self._wire = wire

    @override
    async def all(self) -> list[View]:
        return [await self.get(each["webhook"]) for each in (await self._wire.get("/webhooks"))["webhooks"]]

    @override
    async def get(self, webhook: str) -> View:
        view: View = await self._wire.get(f"/webhooks/{part(webhook)}")
        return view

    @override
    async def unsent(self) -> int:
        return int((await self._wire.get("/webhooks"))["unsent_ms"])

    @override
    async def add(
        self,
        url: str,
        *,
        name: str,
        types: Sequence[str],
        workflows: Sequence[str],
        headers: Mapping[str, str],
        from_start: bool,
    ) -> View:
        body = {
            "url": url,
            "name": name,
            "types": types,
            "workflows": workflows,
            "headers": headers,
            "from_start": from_start,
        }
        view: View = await self._wire.post("/webhooks", body)
        return view

    @override
    async def test(self, webhook: str) -> View:
        view: View = await self._wire.post(f"/webhooks/{part(webhook)}/test")
        return view

    @override
    async def deliveries(
        self, webhook: str, *, status: DeliveryStatus | None, cursor: str, limit: int
    ) -> tuple[list[View], str]:
        where = f"/webhooks/{part(webhook)}/deliveries" if webhook else "/deliveries"
        page = await self._wire.get(where, status=status, cursor=cursor, limit=limit)
        return page["deliveries"], page["next_cursor"]

    @override
    async def redeliver(self, delivery: str) -> int:
        if ":" in delivery:
            await self._wire.post(f"/deliveries/{part(delivery)}/redeliver")
            return 1
        n, more = 0, True
        while more:
            answer = await self._wire.post(f"/webhooks/{part(delivery)}/redeliver")
            n, more = n + answer["events"], answer["more"]
        return n

    @override
    async def rotate(self, webhook: str, *, keep: timedelta | None) -> View:
        view: View = await self._wire.post(f"/webhooks/{part(webhook)}/rotate", {"keep": iso(keep)})
        return view

    @override
    async def disable(self, webhook: str, *, reason: str) -> View:
        view: View = await self._wire.post(f"/webhooks/{part(webhook)}/disable", {"reason": reason})
        return view

    @override
    async def enable(self, webhook: str) -> View:
        view: View = await self._wire.post(f"/webhooks/{part(webhook)}/enable")
        return view

    @override
    async def remove(self, webhook: str) -> View:
        view: View = await self._wire.post(f"/webhooks/{part(webhook)}", method="DELETE")
        return view


T = TypeVar("T")
LOOK_S: Final = 0.1
PAGE: Final = 1_000
AWAY_MAX: Final = 60_000
"""Maximum time of attempts to reopen a stream, in ms."""
BACK_OFF_S: Final = (0.2, 0.5, 1.0, 2.0, 5.0)
ENDED_ONLY: Final = ("outcome", "reason", "not_undone")


def part(name: str) -> str:
    """Return a name quoted as one path segment."""
    return quote(name, safe="")


def iso(span: timedelta | None) -> str | None:
    """Return a duration in ISO 8601."""
    return f"PT{span.total_seconds():.3f}S" if span is not None else None


class RemoteClient(OutlastClient):
    """Client of one service. `lost` is called with a message when a stream breaks off and is reopened."""

    me = "you"
    codes = False

    def __init__(self, wire: ServiceConnection, lost: Callable[[str], None]) -> None:
        self.wire = wire
        self._lost = lost
        self._caller = ""
        self._clock = SystemClock()

    @override
    async def caller(self) -> str:
        if not self._caller:
            self._caller = str((await self.wire.get("/me"))["name"])
        return self._caller

    @override
    async def now_real(self) -> int:
        return self._clock.wall()

    @override
    async def until(self, look: Callable[[], Awaitable[T | None]], *, within_s: float) -> T | None:
        try:
            async with asyncio.timeout(within_s):
                while (found := await look()) is None:  # noqa: ASYNC110 - a remote service sets no event here
                    await asyncio.sleep(LOOK_S)
                return found
        except TimeoutError:
            return None

    @override
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
        page = await self.wire.get(
            "/runs", status=status, workflow=workflow, attention=attention, waiting_for=waiting_for,
            since=iso(since), cursor=cursor, limit=limit,
        )  # fmt: skip
        views: list[View] = page["runs"]
        due = frozenset(v["run"] for v in views if not v["owner"] and not v["waiting_for"])
        asked = sum(1 for v in views for wait in v["waiting_for"] if wait["kind"] == "approval")
        whole = not cursor and not page["next_cursor"] and not (status or workflow or attention or waiting_for or since)
        return RunPage(views, page["next_cursor"], due, len(views) if whole else None, asked)

    @override
    async def run(self, run: str) -> View:
        view: View = await self.wire.get(f"/runs/{part(run)}")
        view.pop("explained", None)
        if view["status"] not in TERMINAL:
            view = {name: value for name, value in view.items() if name not in ENDED_ONLY}
        return view

    @override
    async def run_summary(self, run: str) -> View:
        return await self.run(run)

    @override
    async def input(self, run: str) -> Any:
        return (await self.wire.get(f"/runs/{part(run)}/input"))["input"]

    @override
    async def results(self, run: str, *, after: int, limit: int) -> ResultPage:
        page = await self.wire.get(f"/runs/{part(run)}/results", after=after, limit=limit)
        return ResultPage(page["results"], page["count"], int(page["next_cursor"] or 0))

    @override
    async def last_event(self, run: str) -> int:
        events = await self.events(run)
        return int(events[-1]["sequence"]) if events else 0

    @override
    async def effects(self, run: str) -> list[View]:
        return [effect for _, effect in await self._ledger(run)]

    async def _ledger(self, run: str) -> list[tuple[str, View]]:
        """Return each effect of a run with its id at the service."""
        found: list[View] = (await self.wire.get(f"/runs/{part(run)}/effects"))["effects"]
        return [(str(effect.pop("id")), effect) for effect in found]

    @override
    async def ledger(
        self, *, status: EffectStatus | None, activity: str, run: str, since: timedelta | None, cursor: str, limit: int
    ) -> tuple[list[View], str]:
        page = await self.wire.get(
            "/effects", status=status, activity=activity, run=run, since=iso(since), cursor=cursor, limit=limit
        )
        for view in page["effects"]:
            view.pop("id")
        return page["effects"], page["next_cursor"]

    @override
    async def effect(self, run: str, key: str, *, visit: int | None) -> View:
        return (await self.named(run, key, visit))[1]

    async def named(self, run: str, key: str, visit: int | None) -> tuple[str, View]:
        """Return the uncertain effect of a key, else the latest, with its id at the service. Raises NotFound."""
        alike = [e for e in await self._ledger(run) if e[1]["key"] == key and visit in (None, e[1]["visit"])]
        if not alike:
            raise NotFound(
                f"run {run} has no effect {key}" + (f" in visit {visit}" if visit is not None else ""),
                "use the key that the ledger shows",
                f"outlast runs effects {run}",
            )
        return next((e for e in alike if e[1]["status"] == EffectStatus.UNCERTAIN), alike[-1])

    @override
    async def events(self, run: str, *, after: int = 0) -> list[View]:
        found: list[View] = []
        while True:
            page = await self.wire.get(f"/runs/{part(run)}/events", after=after, limit=PAGE)
            found += page["events"]
            if not page["next_cursor"]:
                return found
            after = page["last"]

    @override
    async def follow(self, run: str, *, after: int = 0) -> AsyncIterator[str]:
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
                if not heard and (await self.run_summary(run))["status"] in TERMINAL:
                    return
            except (httpx2.HTTPError, Unavailable) as error:
                gone = error
            if gone is not None:
                if since is None and begun:
                    self._lost(f"the stream broke off after event {after}; reconnecting")
                since = self._clock.mono() if since is None else since
                if not begun or self._clock.mono() - since > AWAY_MAX:
                    raise self.wire.away(gone) from gone
            await asyncio.sleep(BACK_OFF_S[min(failures, len(BACK_OFF_S) - 1)])
            failures += 1

    async def _stream(self, run: str, after: int) -> AsyncIterator[tuple[int, str]]:
        """Yield (0, '') once the stream is open, then number and text of each event until the stream ends."""
        async with self.wire.stream(f"/runs/{part(run)}/events", after) as lines:
            yield 0, ""
            async for number, text in frames(lines):
                yield int(number), text

    @override
    async def topology(self, view: View) -> View | None:
        try:
            found = await self.wire.get(f"/workflows/{part(view['workflow'])}")
        except NotFound:
            return None
        topology: View = found["topology"]
        return topology if found["lane"] == view["lane"] else None

    @override
    async def explain(self, run: str) -> View:
        view: View = await self.wire.get(f"/runs/{part(run)}/explain")
        return view

    @override
    async def input_schema(self, workflow: str) -> View:
        schema: View = (await self.wire.get(f"/workflows/{part(workflow)}"))["input_schema"]
        return schema

    @override
    async def start(self, workflow: str, given: bytes, *, run: str, key: str) -> tuple[View, bool]:
        try:
            data = json.loads(given)
        except (ValueError, RecursionError) as error:
            raise InvalidInput("the input is not JSON", str(error), "correct it") from error
        body = {"input": data, "id": run or new_id(f"{workflow[:4]}_")}  # the id makes a repetition the same run
        view: View = await self.wire.post(f"/workflows/{part(workflow)}/runs", body, key=key or None)
        return view, bool(view.pop("created"))

    @override
    async def signal(self, run: str, name: str, payload: View, *, signal_id: str) -> bool:
        body = {"payload": payload, **({"signal_id": signal_id} if signal_id else {})}
        return bool((await self.wire.post(f"/runs/{part(run)}/signals/{part(name)}", body))["new"])

    @override
    async def to_undo(self, run: str) -> list[str]:
        done = await self._done(run)
        return [f"{e['effect']} {e['key']}" for e in done if e["undo"] and not e["undo"].startswith(NO_UNDO)]

    @override
    async def not_undone(self, run: str) -> list[str]:
        kept = [e for e in await self._done(run) if not e["undo"] or e["undo"].startswith(NO_UNDO)]
        return [
            f"{e['effect']} {e['key']}" + (f": {e['undo'].removeprefix(NO_UNDO)}" if e["undo"] else "") for e in kept
        ]

    async def _done(self, run: str) -> list[View]:
        return [e for e in reversed(await self.effects(run)) if e["status"] == EffectStatus.DONE and e["run"] == run]

    @override
    async def cancel(self, run: str, *, reason: str) -> None:
        await self.wire.post(f"/runs/{part(run)}/cancel", {"reason": reason})

    @override
    async def go_on(self, run: str, *, reason: str) -> None:
        await self.wire.post(f"/runs/{part(run)}/continue", {"reason": reason})

    @override
    async def extend(self, run: str, *, by: timedelta, reason: str) -> None:
        await self.wire.post(f"/runs/{part(run)}/extend", {"reason": reason, "by": by.total_seconds()})

    # --- approvals -----------------------------------------------------------------------------
    @override
    async def approvals(
        self, *, status: str, mine: bool, overdue: bool, cursor: str, limit: int
    ) -> tuple[list[View], str]:
        page = await self.wire.get("/approvals", status=status, mine=mine, overdue=overdue, cursor=cursor, limit=limit)
        return page["approvals"], page["next_cursor"]

    @override
    async def approvals_of(self, run: str) -> list[View]:
        found, cursor = list[View](), ""
        while True:
            page = await self.wire.get("/approvals", run=run, cursor=cursor, limit=PAGE)
            found += page["approvals"]
            if not (cursor := page["next_cursor"]):
                return found

    @override
    async def approval(self, approval: str) -> View:
        return _shown(await self.wire.get(f"/approvals/{part(approval)}"))

    @override
    async def approve(self, approval: str, *, reason: str, alternative: int, changes: Mapping[str, Any] | None) -> View:
        offered = len((await self.approval(approval))["plans"])
        if not 0 <= alternative < offered:
            raise NotFound(
                f"approval {approval} has no alternative {alternative}",
                f"it offers {offered - 1} beside the requested plan",
                f"list them with: outlast approvals show {approval}",
            )
        body = {"decision": "approve", "reason": reason, "alternative": alternative}
        return await self._decide(approval, {**body, **({"changes": dict(changes)} if changes else {})})

    @override
    async def reject(self, approval: str, *, reason: str, again: bool) -> View:
        return await self._decide(approval, {"decision": "again" if again else "reject", "reason": reason})

    async def _decide(self, approval: str, body: View) -> View:
        seen = await self.approval(approval)
        answer = await self.wire.post(f"/approvals/{part(approval)}/decision", body, etag=f'"v{seen["version"]}"')
        return _shown(answer["approval"])

    @override
    async def claim_approval(self, approval: str) -> View:
        return _shown(await self.wire.post(f"/approvals/{part(approval)}/claim"))

    @override
    async def reassign(self, approval: str, who: str, *, reason: str) -> View:
        return _shown(await self.wire.post(f"/approvals/{part(approval)}/reassign", {"to": who, "reason": reason}))

    # --- attention, effects --------------------------------------------------------------------
    @override
    async def attention(
        self, *, reason: Reason | None, workflow: str, cursor: str, first: bool
    ) -> tuple[list[View], str]:
        page = await self.wire.get("/attention", reason=reason, workflow=workflow, cursor=cursor)
        return page["attention"], page["next_cursor"]

    @override
    async def attention_of(self, run: str) -> list[View]:
        view = await self.run(run)
        cursor = ""
        while view["attention"]:
            items, cursor = await self.attention(reason=None, workflow=view["workflow"], cursor=cursor, first=False)
            if found := [item for item in items if item["run"] == run]:
                return found
            if not cursor:
                break
        return []

    @override
    async def reason_of(self, run: str, choice: Choice, reason: Reason | None, key: str) -> Reason:
        entries = (await self.run(run))["attention"]
        found = [Reason(each["reason"]) for each in entries if reason in (None, each["reason"])]
        offered = [Reason(each["reason"]) for each in entries if choice in each["choices"]]
        return reason or next(iter(offered or found), Reason.EXCEPTION)

    @override
    async def answer(
        self, run: str, choice: Choice, *, reason: Reason | None, key: str, text: str, by: timedelta | None
    ) -> None:
        body: View = {"choice": choice.value, "reason": text, "key": key}
        if reason is not None:
            body["attention"] = reason.value
        if by is not None:
            body["by"] = by.total_seconds()
        await self.wire.post(f"/attention/{part(run)}/resolve", body)

    @override
    async def answer_all(
        self, reason: Reason, choice: Choice, *, text: str, workflow: str, by: timedelta | None, cursor: str
    ) -> AnsweredPage:
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

    @override
    async def resolve_effect(
        self, run: str, key: str, verb: Verb, *, reason: str, external_id: str, response: Any
    ) -> None:
        if not reason.strip():
            raise InvalidInput(
                "the service asks for a reason", "people will read it in the run's history", "say --reason …"
            )
        name, _ = await self.named(run, key, None)
        body: View = {"outcome": verb, "reason": reason}
        if verb == "happened":
            body |= {"external_id": external_id, "response": response}
        await self.wire.post(f"/effects/{part(name)}/resolve", body)

    # --- webhooks, workers, versions, pauses -----------------------------------------------------
    @property
    @override
    def webhooks(self) -> RemoteWebhooks:
        return RemoteWebhooks(self.wire)

    @override
    async def whoami(self) -> View:
        view: View = await self.wire.get("/me")
        return view

    @override
    async def workers(self) -> list[View]:
        views: list[View] = (await self.wire.get("/workers", all=True))["workers"]
        return views

    @override
    async def versions(self) -> list[View]:
        views: list[View] = (await self.wire.get("/versions"))["versions"]
        return views

    @override
    async def of_lane(self, workflow: str, lane: str) -> list[str]:
        found: list[str] = []
        for status in set(RunStatus) - TERMINAL:
            cursor, more = "", True
            while more:
                page = await self.wire.get("/runs", status=status, workflow=workflow, cursor=cursor, limit=PAGE)
                found += [view["run"] for view in page["runs"] if view["lane"] == lane]
                more = bool(cursor := page["next_cursor"])
        return list(dict.fromkeys(found))

    @override
    async def move_runs(
        self, workflow: str, version: int, runs: Sequence[str], *, node: str, reason: str
    ) -> tuple[Sequence[str], Sequence[tuple[str, str]]]:
        done: list[str] = []
        failed: list[tuple[str, str]] = []
        body = {"workflow": workflow, "version": version, "node": node, "reason": reason}
        for run in dict.fromkeys(runs):
            try:
                await self.wire.post(f"/runs/{part(run)}/move", body)
                done.append(run)
            except OutlastError as error:
                if error.refusal == UNSERVED:
                    raise
                failed.append((run, why_not(error)))
        return done, failed

    @override
    async def pauses(self) -> list[View]:
        views: list[View] = (await self.wire.get("/pauses"))["pauses"]
        return views

    @override
    async def pause(self, what: What, name: str, *, reason: str) -> View:
        view: View = await self.wire.post("/pauses", {"what": what, "name": name, "reason": reason})
        return view

    @override
    async def resume(self, what: What, name: str) -> View:
        view: View = await self.wire.post("/pauses/resume", {"what": what, "name": name})
        return view


def _shown(approval: View) -> View:
    """Return an approval without the schema of its requests."""
    approval.pop("schema")
    return approval
