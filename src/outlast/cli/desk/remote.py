"""A service stands in front of the store: what commands ask is asked of it over HTTP."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from outlast.cli.desk.port import AnsweredPage, Verb, View
from outlast.cli.desk.remote_runs import PAGE, RemoteRuns, part
from outlast.cli.desk.remote_webhooks import RemoteWebhooks
from outlast.core.machine import TERMINAL, Choice, Reason, RunStatus
from outlast.engine.pauses import What
from outlast.errors import InvalidInput, NotFound, OutlastError
from outlast.runtime.board import verb_of
from outlast.runtime.versions import UNSERVED, why_not


class Remote(RemoteRuns):
    """A desk over HTTP."""

    # --- approvals -----------------------------------------------------------------------------
    async def approvals(
        self, *, status: str, mine: bool, overdue: bool, cursor: str, limit: int
    ) -> tuple[list[View], str]:
        """One page."""
        page = await self.wire.get("/approvals", status=status, mine=mine, overdue=overdue, cursor=cursor, limit=limit)
        return page["approvals"], page["next_cursor"]

    async def approvals_of(self, run: str) -> list[View]:
        """Page by page."""
        found, cursor = list[View](), ""
        while True:
            page = await self.wire.get("/approvals", run=run, cursor=cursor, limit=PAGE)
            found += page["approvals"]
            if not (cursor := page["next_cursor"]):
                return found

    async def approval(self, approval: str) -> View:
        """With what was done before it was asked, and since."""
        return _shown(await self.wire.get(f"/approvals/{part(approval)}"))

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
        answer = await self.wire.post(f"/approvals/{part(approval)}/decision", body, etag=f'"v{seen["version"]}"')
        return _shown(answer["approval"])

    async def claim_approval(self, approval: str) -> View:
        """It binds nobody."""
        return _shown(await self.wire.post(f"/approvals/{part(approval)}/claim"))

    async def reassign(self, approval: str, who: str, *, reason: str) -> View:
        """The service reads the rule."""
        return _shown(await self.wire.post(f"/approvals/{part(approval)}/reassign", {"to": who, "reason": reason}))

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
        await self.wire.post(f"/attention/{part(run)}/resolve", body)

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
        name, _ = await self.named(run, key, None)
        body: View = {"outcome": verb, "reason": reason}
        if verb == "happened":
            body |= {"external_id": external_id, "response": response}
        await self.wire.post(f"/effects/{part(name)}/resolve", body)

    # --- the store -----------------------------------------------------------------------------
    @property
    def webhooks(self) -> RemoteWebhooks:
        """Of the service."""
        return RemoteWebhooks(self.wire)

    async def whoami(self) -> View:
        """As the token proves it."""
        view: View = await self.wire.get("/me")
        return view

    async def workers(self) -> list[View]:
        """Those that have gone, too."""
        views: list[View] = (await self.wire.get("/workers", all=True))["workers"]
        return views

    async def versions(self) -> list[View]:
        """As the service tells them."""
        views: list[View] = (await self.wire.get("/versions"))["versions"]
        return views

    async def of_lane(self, workflow: str, lane: str) -> list[str]:
        """Page by page."""
        found: list[str] = []
        for status in set(RunStatus) - TERMINAL:
            cursor, more = "", True
            while more:
                page = await self.wire.get("/runs", status=status, workflow=workflow, cursor=cursor, limit=PAGE)
                found += [view["run"] for view in page["runs"] if view["lane"] == lane]
                more = bool(cursor := page["next_cursor"])
        return list(dict.fromkeys(found))

    async def adopt(
        self, workflow: str, version: int, runs: Sequence[str], *, node: str, reason: str
    ) -> tuple[Sequence[str], Sequence[tuple[str, str]]]:
        """One request each. Raises NotFound where nobody serves that version."""
        done: list[str] = []
        failed: list[tuple[str, str]] = []
        body = {"workflow": workflow, "version": version, "node": node, "reason": reason}
        for run in dict.fromkeys(runs):
            try:
                await self.wire.post(f"/runs/{part(run)}/adopt", body)
                done.append(run)
            except OutlastError as error:
                if error.refusal == UNSERVED:
                    raise
                failed.append((run, why_not(error)))
        return done, failed

    async def holds(self) -> list[View]:
        """As the service tells them."""
        views: list[View] = (await self.wire.get("/holds"))["holds"]
        return views

    async def hold(self, what: What, name: str, *, reason: str) -> View:
        """It holds when this returns."""
        view: View = await self.wire.post("/holds", {"what": what, "name": name, "reason": reason})
        return view

    async def release(self, what: What, name: str) -> View:
        """It is released when this returns."""
        view: View = await self.wire.post("/holds/release", {"what": what, "name": name})
        return view


def _shown(approval: View) -> View:
    """Without the schema of what a request has to look like."""
    approval.pop("schema")
    return approval
