"""The store is here: what commands ask is read from its rows."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from outlast.cli.desk.local_runs import LocalRuns
from outlast.cli.desk.local_webhooks import LocalWebhooks
from outlast.cli.desk.port import AnsweredPage, Verb, View
from outlast.core.events import iso
from outlast.core.machine import ApprovalStatus, Choice, Reason
from outlast.core.overlay import attention_of
from outlast.core.rows import Approval, Run
from outlast.engine.pauses import What
from outlast.flow.people import Rule
from outlast.runtime import inbox
from outlast.runtime import versions as of_store
from outlast.runtime.answering import answer_entry, entry_of
from outlast.runtime.answers import away_view, entry_view
from outlast.runtime.inbox import listed_approval, whole_approval
from outlast.runtime.views import caller_view, hold_view, worker_view


class Local(LocalRuns):
    """A desk over `Operations`."""

    # --- approvals -----------------------------------------------------------------------------
    async def approvals(
        self, *, status: str, mine: bool, overdue: bool, cursor: str, limit: int
    ) -> tuple[list[View], str]:
        """One page."""
        only = ApprovalStatus(status) if status else None
        rows, further = await inbox.approvals(
            self.ops, status=only, mine=mine, overdue=overdue, cursor=cursor, limit=limit
        )
        return [listed_approval(self.ops, row) for row in rows], further

    async def approvals_of(self, run: str) -> list[View]:
        """From the rows."""
        return [listed_approval(self.ops, row) for row in await self.ops.approvals_of(run)]

    async def approval(self, approval: str) -> View:
        """With whether this actor may decide."""
        return await self._whole(await self.ops.approval(approval))

    async def approve(self, approval: str, *, reason: str, alternative: int, changes: Mapping[str, Any] | None) -> View:
        """With the code that is loaded, where values change."""
        return await self._whole(
            await self.ops.approve(approval, reason=reason, alternative=alternative, changes=changes)
        )

    async def reject(self, approval: str, *, reason: str, again: bool) -> View:
        """The call is not made."""
        return await self._whole(await self.ops.reject(approval, reason=reason, again=again))

    async def claim_approval(self, approval: str) -> View:
        """It binds nobody."""
        return await self._whole(await self.ops.claim_approval(approval))

    async def reassign(self, approval: str, who: str, *, reason: str) -> View:
        """Raises InvalidInput for a rule that cannot be read."""
        return await self._whole(await self.ops.reassign(approval, Rule.parse(who), reason=reason))

    async def _whole(self, row: Approval) -> View:
        return await whole_approval(self.ops, row, await self.ops.run(row.run))

    # --- attention, effects --------------------------------------------------------------------
    async def attention(
        self, *, reason: Reason | None, workflow: str, cursor: str, first: bool
    ) -> tuple[list[View], str]:
        """Of one page of runs; breakers on the first."""
        rows, further = await self.ops.flagged(reason=reason, workflow=workflow, cursor=cursor)
        views = [v for v in await self._items(rows) if reason in (None, v["reason"])]
        away = [away_view(hold, n) for hold, n in await self.ops.breakers()] if first and reason is None else []
        if first and reason in (None, Reason.WEBHOOK_DEAD):
            away += await self.ops.webhooks.attention()
        return [*away, *views], further

    async def attention_of(self, run: str) -> list[View]:
        """Every reason."""
        return await self._items([await self.ops.run(run)])

    async def _items(self, rows: Sequence[Run]) -> list[View]:
        doubts = await self.ops.doubts(rows)
        now = await self.ops.store.now()
        return [
            entry_view(row, entry, doubts.get((row.run, entry.visit, entry.key)), now)
            for row in rows
            for entry in attention_of(row)
        ]

    async def reason_of(self, run: str, choice: Choice, reason: Reason | None, key: str) -> Reason:
        """Raises Conflict, InvalidInput where it is not clear."""
        return entry_of(await self.ops.run(run), choice, reason, key).reason

    async def answer(
        self, run: str, choice: Choice, *, reason: Reason | None, key: str, text: str, by: timedelta | None
    ) -> None:
        """Of exactly this reason."""
        row = await self.ops.run(run)
        await answer_entry(self.ops, row, entry_of(row, choice, reason, key), choice, text, by)

    async def answer_all(
        self, reason: Reason, choice: Choice, *, text: str, workflow: str, by: timedelta | None, cursor: str
    ) -> AnsweredPage:
        """Each once."""
        page = await self.ops.answer_all(reason, choice, text=text, workflow=workflow, by=by, cursor=cursor)
        return AnsweredPage(page.done, page.failed, page.cursor)

    async def resolve_effect(
        self, run: str, key: str, verb: Verb, *, reason: str, external_id: str, response: Any
    ) -> None:
        """Checked against the activity where its code is loaded."""
        await self.ops.resolve_effect(run, key, verb, reason=reason, external_id=external_id, response=response)

    # --- the store -----------------------------------------------------------------------------
    @property
    def webhooks(self) -> LocalWebhooks:
        """They may lead where the settings allow."""
        return LocalWebhooks(self.ops)

    async def whoami(self) -> View:
        """The user of this machine."""
        return caller_view(self.ops.actor, self.ops.tenant)

    async def workers(self) -> list[View]:
        """With what each holds."""
        now = await self.ops.store.now()
        return [worker_view(row, now, await self.ops.held(row.id)) for row in await self.ops.workers()]

    async def versions(self) -> list[View]:
        """With instants as text."""
        found = await of_store.versions(self.ops)
        return [{**v._asdict(), "since": iso(v.since) if v.since else None} for v in found]

    async def of_lane(self, workflow: str, lane: str) -> list[str]:
        """From the rows."""
        rows = await of_store.unfinished(self.ops.store, self.ops.tenant, workflow)
        return [row.run for row in rows if row.lane == lane]

    async def adopt(
        self, workflow: str, version: int, runs: Sequence[str], *, node: str, reason: str
    ) -> tuple[Sequence[str], Sequence[tuple[str, str]]]:
        """Each by a note."""
        return await of_store.adopt(self.ops, workflow, version, runs, node=node, reason=reason)

    async def holds(self) -> list[View]:
        """With how many runs wait for each."""
        waiting, business = await self.ops.held_up(), self.ops.store.mapping().business
        return [hold_view(each, waiting.get(each.key, 0), business) for each in await self.ops.holds()]

    async def hold(self, what: What, name: str, *, reason: str) -> View:
        """By a row."""
        await self.ops.hold(what, name, reason=reason)
        return {"held": f"{what} {name}".strip(), "by": await self.caller(), "reason": reason}

    async def release(self, what: What, name: str) -> View:
        """And wake who waited."""
        woken = await self.ops.release(what, name)
        return {"released": f"{what} {name}".strip(), "by": await self.caller(), "runs": woken}
