"""The built-in workflow `outlast.bulk`: gives one answer to every flagged run of a filter (S-21).

A job without a reason cancels the unfinished runs that a query finds. All that follows is true of it, too.

Theory of operation. A job keeps the items of its next page in its state. An execution of the node answers these items,
then reads the next page. Faults, and why each run gets the answer once:

1. *The worker dies in the middle of a page.* The next execution has the same items. The commit of each answer writes a
   token that names job, run and key, so that an answer that has landed is found and counted, not given again.
2. *Two workers execute one job for a moment.* The token is a condition of the commit: the second one is refused.
3. *A run changes between its read and its answer.* The commit expects the version that was read. The item is read
   again, and left alone if it no longer fits.
4. *A run is flagged again after the answer.* Its entry is newer than the job, so no page has it again.
5. *The table of permissions changes.* Each page compares the roles that the job recorded with those that may answer.
   A worker does not know credentials: a job of a person whose credential was withdrawn is cancelled by an operator.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Final, Literal, NamedTuple, cast

from pydantic import BaseModel

from outlast.core.acts import KeyedAct, act_of
from outlast.core.approvals import Actor
from outlast.core.approver_rule import LOCAL
from outlast.core.attention import AttentionAnswer
from outlast.core.bulk_answers import (
    BULK,
    OF_CAUSE,
    PAGE,
    REFUSED_MAX,
    RESULT_MAX,
    AfterAnswer,
    BulkFilter,
    after_answer,
    bulk_keys,
    check_bulk,
    check_confirmed,
    check_found,
    check_query,
    left_alone,
)
from outlast.core.codec import digest
from outlast.core.commit import Expect
from outlast.core.durations import RUN_CEILING, ms_of
from outlast.core.keys import check_reason
from outlast.core.limits import RUNS_PER_READ
from outlast.core.machine import Choice, Reason
from outlast.core.paging import pages
from outlast.core.rows.row_kind import Key
from outlast.core.rows.run_rows import RUN, TOKEN, Run, Token, is_over
from outlast.engine import commands
from outlast.engine.node_context import NodeContext
from outlast.errors import Conflict, Forbidden, NotFound, OutlastError, StoreError
from outlast.flow.context import Context
from outlast.flow.workflow import Workflow
from outlast.insight.tenant_rows import TenantRows, is_asked_for
from outlast.models import exact_instant
from outlast.models.attention import why_not
from outlast.models.bulk import BulkAnswer, BulkResult, RefusedAnswer
from outlast.operations.attention_operations import PreviewBulkAnswer, StartBulkAnswer
from outlast.operations.run_query import parse_query
from outlast.store.bounds import INT_MAX
from outlast.store.landed_acts import done_before
from outlast.store.port import Store
from outlast.store.queries import Page
from outlast.telemetry.audit import audit

READS_MAX: Final = 5  # reads of one run that changes each time
AT_ONCE: Final = 10  # concurrent answers, because they share the store's batches
TOKENS_PER_READ: Final = 500
WINDOW: Final = 100  # visits that the history of a job keeps
EXTENSION: Final = timedelta(milliseconds=RUN_CEILING)
"""Default of `by` for the choice "extend"."""
MAY_ANSWER: Final = frozenset({"operator", "admin"})
"""Roles that may answer attention, as the table of permissions has them."""


class BulkItem(BaseModel):
    """Run that is to be answered, and the key of the effect ('' for all entries of the reason)."""

    run: str
    key: str = ""


class BulkState(BaseModel):
    """State of a job: its request and its progress."""

    reason: Reason | None
    choice: Choice
    text: str
    by: str
    roles: tuple[str, ...] = ()
    is_person: bool = True
    by_ms: int = 0
    before: int
    total: int
    cause: str = ""
    workflow: str = ""
    node: str = ""
    activity: str = ""
    version: int = 0
    contains: str = ""
    query: str = ""
    answered: int = 0
    refused: int = 0
    failures: tuple[RefusedAnswer, ...] = ()
    page: tuple[BulkItem, ...] = ()
    cursor: str = ""
    is_last: bool = False

    @property
    def filter(self) -> BulkFilter:
        """Return the filter of the job."""
        return BulkFilter(self.reason, self.cause, self.workflow, self.node, self.activity, self.version, self.contains)


class _BuiltIn(Workflow[BulkState]):
    is_built_in = True


class _Outcome(NamedTuple):
    item: BulkItem
    error: OutlastError | None


bulk: Final = _BuiltIn(
    BULK,
    state=BulkState,
    history=WINDOW,
    undo="keep",
    objective="{choice} for {total} runs",
    attributes={OF_CAUSE: "cause"},
)


@bulk.node(start=True, status="ANSWERING")
async def answer_page(ctx: Context[BulkState]) -> Literal["answer_page"] | None:
    """Answer the items of the page, then read the next page."""
    state, store = ctx.state, cast(NodeContext, ctx).store
    _check_rights(state)
    for outcome in await _answered(store, ctx.tenant, ctx.run_id, state):
        if outcome.error is None:
            state.answered += 1
            continue
        state.refused += 1
        if len(state.failures) < REFUSED_MAX:
            state.failures += (_refused(outcome.item, outcome.error),)
    if state.is_last:
        state.page = ()
        return None
    state.page, state.cursor, state.is_last = await _next_page(TenantRows(store, ctx.tenant), state)
    return "answer_page" if state.page or not state.is_last else None


def _check_rights(state: BulkState) -> None:
    """Raise Forbidden unless the person of a job may answer attention. A local operator has every role."""
    Actor(state.by, frozenset(state.roles), state.roles, person=state.is_person).check_person()
    if state.roles and not state.by.startswith(LOCAL) and MAY_ANSWER.isdisjoint(state.roles):
        raise Forbidden(
            f"{state.by} may not answer attention",
            f"it requires one of the roles {', '.join(sorted(MAY_ANSWER))}",
            "cancel the job, or let an operator start another one",
            refusal="role",
        )


async def _answered(store: Store, tenant: str, job: str, state: BulkState) -> list[_Outcome]:
    """Answer the items of a page, and return the outcome of each. Raises StoreError."""
    found: list[_Outcome] = []
    for i in range(0, len(state.page), AT_ONCE):
        part = state.page[i : i + AT_ONCE]
        found += await asyncio.gather(*(_one(store, tenant, job, state, item) for item in part))
    return found


async def _one(store: Store, tenant: str, job: str, state: BulkState, item: BulkItem) -> _Outcome:
    error: OutlastError | None = None
    try:
        await _answer(store, tenant, job, state, item)
    except StoreError:
        raise
    except OutlastError as refused:
        error = refused
    audit(
        "resolve_attention" if state.reason is not None else "cancel_run",
        tenant=tenant,
        by=state.by,
        at=f"job {job}",
        outcome=error.code if error is not None else "answered",
        refusal=error.refusal if error is not None else "",
        roles=list(state.roles),
        person=state.is_person,
        run=item.run,
        asked={
            "choice": state.choice.value,
            "attention": state.reason.value if state.reason is not None else "",
            "key": item.key,
            "reason": state.text,
        },
    )
    return _Outcome(item, error)


async def _answer(store: Store, tenant: str, job: str, state: BulkState, item: BulkItem) -> None:
    """Give the answer to one item, once. Raises Conflict if it no longer fits, and as `resolve_attention`."""
    act, found = answer_act(tenant, job, item), _found_by(state.query, state.before)
    for _ in range(READS_MAX):
        if await done_before(store, act):
            return
        run = await commands.find_run(store, tenant, item.run)
        if item.key not in bulk_keys(state.filter, run, before=state.before) or not found(run):
            raise left_alone(state.filter, run)
        seen = Expect(RUN, (tenant, run.run), run.version)
        try:
            await _land_answer(store, tenant, job, state, item, seen, act)
        except Conflict as error:
            if error.refusal != "moved":
                raise
        else:
            return
    raise commands.busy(f"run {item.run}")


async def _land_answer(
    store: Store, tenant: str, job: str, state: BulkState, item: BulkItem, seen: Expect, act: KeyedAct
) -> None:
    if state.reason is None:
        await commands.cancel(
            store, tenant=tenant, run=item.run, actor=state.by, reason=state.text, seen=seen, act=act, job=job
        )
        return
    by_ms = state.by_ms if state.choice is Choice.EXTEND else 0
    answer = AttentionAnswer(state.choice, state.text, state.reason, item.key, by_ms)
    await commands.resolve_attention(
        store, tenant=tenant, run=item.run, answer=answer, actor=state.by, seen=seen, act=act, job=job
    )


def _found_by(query: str, now: int) -> Callable[[Run], bool]:
    """Return whether a query finds a run. `now`: the instant at which its `since` ends."""
    if not query:
        return lambda run: True
    of = parse_query(query)
    earliest = now - ms_of("since", of.since) if of.since is not None else 0
    return lambda run: run.created_at >= earliest and is_asked_for(run, of)


def answer_act(tenant: str, job: str, item: BulkItem) -> KeyedAct:
    """Return the identity of one answer of a job. Its token belongs to the job, so that its answers can be listed."""
    act = act_of(tenant, job, "bulk_answer", digest(job, item.run, item.key))
    assert act is not None
    return act._replace(run=job)


async def _next_page(of: TenantRows, state: BulkState) -> tuple[tuple[BulkItem, ...], str, bool]:
    """Return the items after the cursor of a job, the next cursor, and whether there are no more."""
    given = state.filter
    found = await _read(of, given, state.query, state.before)(cursor=state.cursor, limit=PAGE)
    items = [BulkItem(run=run.run, key=key) for run in found.rows for key in bulk_keys(given, run, before=state.before)]
    return tuple(items), found.cursor, not found.cursor


def filter_of(asked: StartBulkAnswer | PreviewBulkAnswer) -> BulkFilter:
    """Return the filter of a request."""
    return BulkFilter(
        asked.reason, asked.cause, asked.workflow, asked.node, asked.activity, asked.version, asked.contains
    )


async def count_of_filter(of: TenantRows, given: BulkFilter, query: str = "") -> int:
    """Return the number of runs that fit a filter now, or of their uncertain effects.

    Raises InvalidInput for a query that cannot be read.
    """
    check_query(given, query)
    read = partial(_read(of, given, query, (await of.store.now()).business), limit=RUNS_PER_READ)
    return sum([len(bulk_keys(given, run, before=INT_MAX)) async for page in pages(read) for run in page.rows])


def _read(of: TenantRows, given: BulkFilter, query: str, now: int) -> Callable[..., Awaitable[Page[Run]]]:
    """Return the read of a page of the runs that fit a filter and a query."""
    found = _found_by(query, now)
    if given.reason is None:
        return partial(of.unfinished_of, parse_query(query), lambda run: found(run) and given.fits(run))
    return partial(
        of.flagged,
        reason=given.reason,
        workflow=given.workflow,
        node=given.node,
        cause=given.cause,
        keep=lambda run: found(run) and given.fits(run),
    )


async def start_job(of: TenantRows, actor: Actor, request: StartBulkAnswer, run: str) -> BulkAnswer:
    """Start the job `run`, or return it if it was started before.

    Raises NotFound, Conflict, and InvalidInput or LimitExceeded for a reason that cannot be stored.
    """
    check_bulk(request.reason, request.choice)
    check_reason(request.text)
    by_ms = ms_of("by", EXTENSION if request.by is None else request.by)
    if await of.store.load(RUN, (of.tenant, run)) is not None:
        return await job_of(of, run)
    total = await count_of_filter(of, filter_of(request), request.query)
    check_found(total, request.reason)
    check_confirmed(total, request.choice, request.confirm)
    state = BulkState(
        reason=request.reason,
        choice=request.choice,
        text=request.text,
        by=actor.name,
        roles=actor.recorded_roles,
        is_person=actor.person,
        by_ms=by_ms,
        before=(await of.store.now()).business,
        total=total,
        cause=request.cause,
        workflow=request.workflow,
        node=request.node,
        activity=request.activity,
        version=request.version,
        contains=request.contains,
        query=request.query,
    )
    await commands.start(
        of.store,
        bulk,
        state.model_dump_json().encode(),
        tenant=of.tenant,
        actor=actor.name,
        run=run,
        is_limited=False,
        message=("job", request.text),
    )
    return await job_of(of, run)


async def job_of(of: TenantRows, run: str) -> BulkAnswer:
    """Return the progress of a job. Raises NotFound."""
    if (await of.run(run)).workflow != BULK:
        raise NotFound(f"no job {run}", "it is a run of another workflow", f"outlast runs show {run}")
    rows, plain = await of.last_state(run)
    state = BulkState.model_validate(plain)
    return BulkAnswer(
        run=run,
        status=rows.run.status.value,
        ended=is_over(rows.run),
        total=state.total,
        answered=state.answered,
        refused=state.refused,
        moved_on=max(0, state.total - state.answered - state.refused) if is_over(rows.run) else 0,
        result=await _result(of, run, state),
        failures=list(state.failures),
        reason=state.reason.value if state.reason is not None else "",
        query=state.query,
        choice=state.choice.value,
        text=state.text,
        by=state.by,
        before=exact_instant(state.before),
        cause=state.cause,
        workflow=state.workflow,
        node=state.node,
        activity=state.activity,
        version=state.version,
        contains=state.contains,
    )


async def _result(of: TenantRows, job: str, state: BulkState) -> BulkResult:
    """Count what has become of the runs that a job has answered, by the tokens of its answers."""
    tokens: list[Token] = []
    after: Key = ()
    while len(tokens) < RESULT_MAX:
        page = await of.store.rows(TOKEN, (of.tenant, job), after=after, limit=TOKENS_PER_READ)
        tokens += page
        if len(page) < TOKENS_PER_READ:
            break
        after = (of.tenant, job, page[-1].key)
    names = list(dict.fromkeys(token.target for token in tokens[:RESULT_MAX]))
    found: Counter[AfterAnswer] = Counter()
    for first in range(0, len(names), TOKENS_PER_READ):
        keys = [(of.tenant, name) for name in names[first : first + TOKENS_PER_READ]]
        for run in await of.store.load_many(RUN, keys, listed=True):
            if run is not None:  # not purged
                found[after_answer(state.filter, state.choice, run, before=state.before)] += 1
    runs = sum(found.values())
    return BulkResult(
        runs=runs,
        recovered=found[AfterAnswer.RECOVERED],
        again=found[AfterAnswer.SAME] + found[AfterAnswer.OTHER],
        same=found[AfterAnswer.SAME],
        failed=found[AfterAnswer.FAILED],
        unfinished=found[AfterAnswer.UNFINISHED],
        at_least=len(tokens) >= RESULT_MAX or len(tokens) < state.answered or runs < len(names),
    )


def _refused(item: BulkItem, error: OutlastError) -> RefusedAnswer:
    return RefusedAnswer(run=item.run, key=item.key, error=why_not(error), code=error.code)
