"""The Context that a node is given: each verb handed to the room that knows it."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from pydantic import BaseModel, JsonValue

from outlast.core.budget import SECOND
from outlast.core.codec import canonical, digest
from outlast.core.limits import TEXT_CHARS_MAX, TOLD_BYTES_MAX
from outlast.core.machine import ApprovalStatus
from outlast.core.moves import Told
from outlast.core.people import votes_of
from outlast.engine.approvals import Question, changes_of, check_question, chosen_plan, request
from outlast.engine.effects import perform
from outlast.engine.lookups import look_up
from outlast.engine.policy import offered, proposed
from outlast.engine.results import Results, produced
from outlast.engine.waits import Named
from outlast.engine.walk import Walk
from outlast.errors import Conflict, InvalidInput, LimitExceeded
from outlast.flow.activity import Activity, BoundCall
from outlast.flow.context import Context
from outlast.flow.outcomes import ActivityFailed
from outlast.flow.people import Decision, Rule
from outlast.flow.plan import Plan
from outlast.flow.policy import Verdict

TOLD_MAX = 30


class WalkContext(Context[Any]):
    """A node's view of its run in one walk."""

    def __init__(self, walk: Walk, state: BaseModel) -> None:
        run = walk.ledger.run
        self._walk = walk
        self.state = state
        self.tenant = run.tenant
        self.run_id = run.run
        self.visit = run.visit
        self.entered_at = datetime.fromtimestamp(run.entered_at / SECOND, UTC)
        self.told: dict[str, Told] = {}
        self.results: Results | None = None

    # --- acting ----------------------------------------------------------------------------
    async def do(self, activity: Activity[Any, Any], /, *args: Any, **kwargs: Any) -> Any:
        """See Context."""
        return await self._perform(activity, activity.bind(args, kwargs))

    async def do_plan(self, plan: Plan[Any], /) -> Any:
        """See Context."""
        activity = self._walk.workflow.activity(plan.activity)
        return await self._perform(activity, self._bound(activity, plan))

    async def do_all(self, plans: Mapping[Any, Plan[Any]], /, *, refused: str = "raise") -> Any:
        """See Context."""
        if refused not in ("raise", "return"):
            raise InvalidInput(f"do_all(refused={refused!r})", "it can be left out, or be 'return'", 'refused="return"')
        self._walk.count(f"{plan.activity}?{plan.key}" for plan in plans.values())  # all of them, or none begins
        answers = await asyncio.gather(*(self._settled(plan) for plan in plans.values()))
        if refused == "raise":
            for answer in answers:
                if isinstance(answer, ActivityFailed):
                    raise answer
        plain = (a.refusal if isinstance(a, ActivityFailed) else a for a in answers)
        return dict(zip(plans, plain, strict=True))

    async def _settled(self, plan: Plan[Any]) -> Any:
        try:
            return await self.do_plan(plan)
        except ActivityFailed as failed:
            return failed

    async def _perform(self, activity: Activity[Any, Any], call: BoundCall) -> Any:
        self._walk.count((f"{activity.name}?{call.key}",))
        if activity.kind == "lookup":
            return await look_up(self._walk, activity, call)
        return await perform(self._walk, activity, call)

    def _bound(self, activity: Activity[Any, Any], plan: Plan[Any]) -> BoundCall:
        args, kwargs = activity.load_args(plan.arguments)
        return BoundCall(args, kwargs, plan.key, plan.arguments, plan.digest)

    async def approval(
        self,
        plan: Plan[Any],
        /,
        *,
        summary: str,
        by: Rule,
        within: timedelta,
        valid_for: timedelta = timedelta(hours=24),
        name: str = "",
        alternatives: Sequence[Plan[Any]] = (),
        again: bool = False,
        risk: str = "",
        not_requester: bool = False,
        quorum: int = 1,
        editable: Sequence[str] = (),
    ) -> Decision[Any]:
        """See Context."""
        walk = self._walk
        walk.stir()
        if walk.closing:
            await walk.hang()
        question = Question(
            name=name or plan.activity,
            plans=(plan, *alternatives),
            summary=summary,
            who=str(by),
            within_ms=int(within.total_seconds() * SECOND),
            valid_ms=int(valid_for.total_seconds() * SECOND),
            risk=risk,
            again=again,
            quorum=quorum,
            not_requester=not_requester,
            editable=tuple(editable),
        )
        check_question(question)
        flight = (walk.ledger.run.visit, f"approval?{question.name}")
        if flight[1] in walk.asked:
            raise Conflict(
                f"approval {question.name} was asked for twice in one visit",
                "an approval is known by its name, which is the activity's unless name= says another",
                "name each its own: ctx.approval(…, name=…)",
            )
        walk.asked.add(flight[1])
        walk.count((flight[1],))
        row = await walk.share(flight, lambda: request(walk, question))
        if row is None:
            await walk.hang()
        if row.status is ApprovalStatus.AGAIN:
            return Decision("again", row.reason, row.decided_by, None)
        if row.status is ApprovalStatus.REJECTED:
            return Decision("rejected", row.reason, row.decided_by, None)
        chosen = chosen_plan(walk, question, row)
        approvers = tuple(vote["by"] for vote in votes_of(row))
        return Decision("approved", row.reason, row.decided_by, chosen, approvers, changes_of(row))

    # --- asking policy ---------------------------------------------------------------------
    async def allowed(self, activities: Sequence[Activity[..., Any]], /) -> list[Activity[..., Any]]:
        """See Context."""
        names = sorted({activity.name for activity in activities})
        return list(await self._judged(f"allowed?{','.join(names)}", lambda: offered(self._walk, activities)))

    async def check(self, plan: Plan[Any], /, *, proposed_by: str = "") -> Verdict:
        """See Context."""
        verdict: Verdict = await self._judged(
            f"check?{plan.digest}", lambda: proposed(self._walk, plan, proposed_by[:TEXT_CHARS_MAX])
        )
        return verdict

    async def _judged(self, name: str, make: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        walk = self._walk
        walk.stir()
        if walk.closing:
            await walk.hang()
        walk.count((name,))
        return await walk.share((self.visit, name), make)

    # --- waiting ---------------------------------------------------------------------------
    async def sleep(self, name: str, /, *, until: datetime | timedelta) -> None:
        """See Context."""
        await self._wait(Named(self._walk, "sleep", name, until=until))

    async def receive(self, name: str, model: type[Any], /, *, until: datetime | timedelta | None = None) -> Any:
        """See Context."""
        wait = Named(self._walk, "receive", name, until=until, model=model)
        notes = await self._wait(wait)
        return wait.load(notes[0]) if notes else None

    async def collect(
        self, name: str, model: type[Any], /, *, until: datetime | timedelta, most: int | None = None
    ) -> list[Any]:
        """See Context."""
        if most is not None and most < 1:
            return []
        wait = Named(self._walk, "collect", name, until=until, model=model, most=most or 0)
        notes = await self._wait(wait)
        return [wait.load(note) for note in notes or ()]

    async def _wait(self, wait: Named) -> Any:
        walk = self._walk
        walk.stir()
        if walk.closing:
            await walk.hang()
        if wait.name in walk.asked:
            raise Conflict(
                f"wait {wait.name} was asked for twice in one visit", "a wait is known by its name", "name each its own"
            )
        walk.asked.add(wait.name)
        walk.count((f"wait?{wait.name}",))
        if (bound := wait.bound()) is not None:
            return wait.notes_of(bound)
        return await walk.share((self.visit, f"wait?{wait.name}"), wait.answer)

    # --- what would otherwise differ between walks -----------------------------------------
    def now(self) -> datetime:
        """See Context."""
        return self.entered_at

    def uuid(self, name: str, /) -> UUID:
        """See Context."""
        return UUID(hex=digest(self.tenant, self.run_id, self.visit, "uuid", name)[:32], version=4)

    def random(self, name: str, /) -> float:
        """See Context."""
        return int(digest(self.tenant, self.run_id, self.visit, "random", name)[:13], 16) / 16**13

    # --- telling ---------------------------------------------------------------------------
    def tell(self, key: str, text: str, /, **data: JsonValue) -> None:
        """See Context."""
        line = canonical({"key": key, "text": text, "data": data})  # refused here, in the author's line
        if len(self.told) >= TOLD_MAX or len(line) > TOLD_BYTES_MAX:
            raise LimitExceeded("too much was told in one walk", f"at most {TOLD_MAX} lines of {TOLD_BYTES_MAX} bytes")
        self.told.setdefault(key, Told(**json.loads(line)))

    # --- producing -------------------------------------------------------------------------
    async def emit(self, result: BaseModel | JsonValue, /, *, key: str, kind: str = "") -> None:
        """See Context."""
        walk = self._walk
        walk.stir()
        if walk.closing:
            await walk.hang()
        if self.results is None:
            self.results = Results(walk.ledger)
        if self.results.add(produced(result, key, kind)):
            await walk.share((self.visit, f"emit?{key}"), self.results.store)
