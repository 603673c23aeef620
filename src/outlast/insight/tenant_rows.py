"""Rows of one tenant, read without changing them."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar, get_args

from outlast.core import children, mailbox
from outlast.core.assignments import Assignment, assignments_of, assignments_row
from outlast.core.attributes import attribute_text, has_attributes
from outlast.core.business_days import Due
from outlast.core.causes import cause_mark
from outlast.core.commit import Instant
from outlast.core.divergence import MAP
from outlast.core.drain import DRAINS, DrainRequest, drains_of
from outlast.core.durations import ms_of
from outlast.core.events import selects
from outlast.core.forks import ForkTerms, terms_in, terms_of
from outlast.core.kept_deadlines import ceiling_key, kept_due
from outlast.core.lanes import lane_of, version_in
from outlast.core.limits import ATTRIBUTE_CHARS_MAX, DESCENDANTS_MAX, RUNS_PER_READ
from outlast.core.living_forks import notes_of
from outlast.core.machine import ApprovalStatus, EffectStatus, Reason, RunStatus
from outlast.core.mailbox import is_unknown
from outlast.core.maps import calls_of, living
from outlast.core.paging import pages
from outlast.core.rows.columns import decoded, stored_text
from outlast.core.rows.effect_rows import APPROVAL, EFFECT, EVIDENCE, MEMO, USAGE, Approval, Effect, Evidence, Wait
from outlast.core.rows.limit_rows import CALL_USAGE, PAUSE, SLOT, Pause, Slot
from outlast.core.rows.row_kind import Key
from outlast.core.rows.run_columns import WaitingKind
from outlast.core.rows.run_rows import (
    ATTRIBUTE,
    EVENT,
    FLOOR,
    RESULT,
    RUN,
    Event,
    Flagging,
    Message,
    Result,
    Run,
    is_over,
)
from outlast.core.rows.store_rows import META, STORE, TOPOLOGY, WORKER, Worker, lanes_served
from outlast.core.run_filters import interval_of, where_of
from outlast.core.usage import NO_LIMITS, Amounts, Limits
from outlast.engine import commands
from outlast.engine import known_pauses as pauses
from outlast.engine.budget_checks import waiting_below
from outlast.engine.commands import no_run
from outlast.engine.detached_children import is_counted_detached
from outlast.engine.snapshots import joined, state_of_rows
from outlast.engine.store_maintenance import ledger_purged
from outlast.errors import InvalidInput, NotFound
from outlast.insight.agent_steps import StepRows
from outlast.insight.answer_schemas import AnswerSchemas, AskedEffect, answer_schemas, returns_text
from outlast.insight.course_steps import CourseRows
from outlast.insight.labels import is_held, may_have_open_calls
from outlast.insight.run_facts import (
    BlockingRun,
    RunFacts,
    awaited_children,
    awaited_maps,
    blocking_path,
    in_order,
    messages_of,
    waits_for,
)
from outlast.insight.run_history import RunHistory
from outlast.insight.run_maps import counted_children, maps_of
from outlast.insight.run_timeline import TimelineRows
from outlast.operations.effect_operations import ListLedger
from outlast.operations.run_operations import ListRuns
from outlast.operations.run_query import KNOWN
from outlast.store.bars import OUTCOMES, LastFlaggings, OfRuns, RunsByEnd, end_place, flagging_place
from outlast.store.open_calls import OpenCalls
from outlast.store.open_rows import OpenRows, Summary, SummaryRows, marks
from outlast.store.port import RunRows, Store, clock_step
from outlast.store.queries import (
    ByOrdinal,
    LastOrdinals,
    Newest,
    Owned,
    Page,
    Query,
    RunsBelow,
    cursor_at,
    cursor_of,
    place_after,
    place_of,
)
from outlast.store.usage_sums import RunsUsage, RunUsage, TreeUsage

EVERY_RUN: Final = ListRuns()
PAGE_ROWS_MAX = 1_000
EVENTS_PER_READ = 1_000
RESULTS_PER_READ = 1_000
PAGES_PER_CALL = 100  # bounds one call whose filter matches few rows
EVENTS_EXPLAINED = 50  # newest events of a run that an explanation uses
TREE_READS_MAX = 200  # rows of a tree that are read to find the run that holds another one up

EffectName = tuple[str, int, str]
"""Run, visit and key, as an attention entry names an effect."""


def effect_name(effect: Effect) -> EffectName:
    """Return the name of an effect: its run, visit and key."""
    return effect.by_run or effect.run, effect.visit, effect.key


class EffectEvidence(NamedTuple):
    """An effect, and the late answers that replaced workers received for it."""

    effect: Effect
    evidence: tuple[Evidence, ...]
    takes_response: bool = False
    """`happened` needs the return value of the call."""


class ComparedRows(NamedTuple):
    """Rows of one run. `given`: its input as JSON; None if it has been deleted."""

    steps: StepRows
    waits: Sequence[Wait]
    messages: Sequence[Message]
    given: bytes | None
    ledger_purged: bool

    @property
    def run(self) -> Run:
        """Return the row of the run."""
        return self.steps.history.run


T = TypeVar("T")


def _check_page(limit: int, **chosen: tuple[str, Iterable[str]]) -> None:
    """Raise InvalidInput for a size of a page, or a value of a filter, that does not exist. '' does not filter."""
    if type(limit) is not int or not 1 <= limit <= PAGE_ROWS_MAX:
        raise InvalidInput(f"limit is {limit!r}", f"a page has 1 to {PAGE_ROWS_MAX:,} rows", "use the cursor for more")
    for name, (value, allowed) in chosen.items():
        if value and value not in tuple(allowed):
            raise InvalidInput(f"{name} is {value!r}", f"it is one of {', '.join(allowed)}", "choose one of these")


def _behind(effects: Sequence[Effect], cursor: str) -> Sequence[Effect]:
    """Return the effects behind the one that a cursor names, or all for ''."""
    after = place_after(EFFECT, cursor)
    if after is None:
        return effects
    at = next((i for i, each in enumerate(effects) if place_of(EFFECT, each) == after), None)
    return effects[at + 1 :] if at is not None else [each for each in effects if each.first_at < int(after[0])]


def _contains(row: Run, text: str) -> bool:
    folded = text.casefold()
    return (
        text in row.run
        or text in row.correlation_id
        or folded in row.objective.casefold()
        or any(folded in attribute_text(each.value).casefold() for each in row.attributes)
        or any(text in each.key or folded in each.detail.casefold() for each in row.attention)
    )


def is_asked_for(row: Run, of: ListRuns) -> bool:
    """True if every filter of a list keeps the run, except `since`."""
    return (
        of.status in ("", row.status)
        and of.workflow in ("", row.workflow)
        and (not of.attention or bool(row.attention_text))
        and (not of.waiting_for or any(wait.kind == of.waiting_for for wait in row.waiting_for))
        and (not of.q or _contains(row, of.q))
        and of.forked_from in ("", row.forked_from)
        and of.parent in ("", row.parent)
        and of.root in ("", row.root)
        and not (of.no_children and row.parent)
        and of.node in ("", row.node)
        and of.version in (0, version_in(row.lane))
        and (not of.reason or any(entry.reason == of.reason for entry in row.attention))
        and (not of.cause or cause_mark(of.cause) in row.causes)
        and (not of.where or has_attributes(row, where_of(of.where)))
        and (not of.started or _in_interval("started", of.started, row.created_at))
        and (not of.stopped or _in_interval("stopped", of.stopped, stopped_at(row)))
        and (not of.ended or _in_interval("ended", of.ended, row.ended_at))
    )


def stopped_at(row: Run) -> int:
    """Return when a run ended or, if it needs a person, when the first reason for it began; 0 for any other run."""
    return row.ended_at or row.flagged_at


def _in_interval(name: str, text: str, at: int) -> bool:
    interval = interval_of(name, text)
    return interval is not None and interval.has(at)


def is_free(of: ListRuns) -> bool:
    """True if a list has a filter that no index serves, so that it looks through rows."""
    of_rows = of.waiting_for or of.q or of.node or of.version or of.stopped
    of_tree = of.forked_from or of.parent or of.root or of.no_children
    return bool(of_rows or of_tree or of.reason or of.cause)


def _of_rows(of: ListRuns) -> ListRuns:
    """Return the filters of a list by time that its index does not serve."""
    version = 0 if of.workflow else of.version
    return replace(of, workflow="", version=version, reason="", cause="", flagged="", cursor="", limit=EVERY_RUN.limit)


def _of_index(of: ListRuns) -> OfRuns:
    """Return the runs that a list by time finds in its index."""
    lane = lane_of(of.workflow, of.version) if of.workflow and of.version else ""
    return OfRuns(of.workflow, lane, next(iter(marks(of.reason, of.cause)), ""))


run_place: Final[Callable[[Run], Key]] = partial(place_of, RUN)
"""Return the position of a run in lists by the time of its start."""


class TenantRows:
    """Reader of one tenant's rows. A method that names a run, an effect or an approval raises NotFound."""

    def __init__(self, store: Store, tenant: str) -> None:
        self.store = store
        self.tenant = tenant

    # --- runs -------------------------------------------------------------------------------------
    async def run(self, run: str) -> Run:
        """Return the row of a run."""
        return await commands.find_run(self.store, self.tenant, run)

    async def runs(
        self, of: ListRuns = EVERY_RUN, *, is_unfinished: bool = False, pages: int = PAGES_PER_CALL
    ) -> Page[Run]:
        """Return runs, newest first, and the cursor of the next page ('' at the end). For filters, see `Client.runs`.

        Filters that no index serves (`is_free`) are applied to at most `pages` pages, so a page may hold fewer than
        `limit` runs and still have a cursor. The children of a run are found by its ledger. `is_unfinished`: runs
        that have ended are passed over, if they would have to be read. The order is not that of `sort`, for which see
        `sorted_page`.
        """
        _check_page(
            of.limit,
            status=(of.status, RunStatus),
            waiting_for=(of.waiting_for, get_args(WaitingKind)),
            reason=(of.reason, Reason),
        )
        for name in ("started", "stopped", "ended", "flagged"):
            interval_of(name, getattr(of, name))
        earliest = (await self.store.now()).business - ms_of("since", of.since) if of.since is not None else None
        if (started := interval_of("started", of.started)) is not None and not of.flagged and not of.ended:
            earliest = max(earliest or 0, started.low)
            of = of if of.cursor else replace(of, cursor=cursor_at((started.high, "")))
        named = (("status", of.status), ("workflow", of.workflow))
        where: tuple[tuple[str, str | int], ...] = tuple((name, value) for name, value in named if value)
        if is_unfinished:
            where = (*where, ("ended_at", 0))
        flagged = bool(of.attention or of.reason)

        def a_page(after: str) -> Query[Page[Run]]:
            if flagged:
                return OpenRows(RUN, self.tenant, where, after, size, of.reason, of.cause)
            return Newest(RUN, self.tenant, where, after, size)

        if of.flagged:
            return await self._flagged_in(of, earliest or 0, pages)
        if of.ended and not of.where and not of.parent and not flagged:
            return await self._ended_in(of, earliest or 0, pages)
        parent = await self.store.load(RUN, (self.tenant, of.parent)) if of.parent else None
        if parent is not None and not await ledger_purged(self.store, parent):
            return await self._children(of, earliest or 0)
        if of.where:
            return await self._with_attributes(of, earliest or 0, pages)
        filtered = is_free(of)
        size = of.limit if earliest is None else of.limit + 1
        size = max(size, RUNS_PER_READ) if filtered else size
        return await self._kept(
            a_page,
            (lambda row: is_asked_for(row, of)) if filtered else None,
            of.cursor,
            of.limit,
            pages=pages,
            earliest=earliest,
        )

    async def unfinished_of(
        self, of: ListRuns, keep: Callable[[Run], bool], *, cursor: str = "", limit: int = RUNS_PER_READ
    ) -> Page[Run]:
        """Return at most `limit` runs of a list that have not ended and are kept, and the next cursor.

        Raises InvalidInput for a filter that does not exist.
        """
        after = cursor
        for _ in range(PAGES_PER_CALL):
            page = await self.runs(replace(of, cursor=after, limit=limit), is_unfinished=True)
            found = tuple(row for row in page.rows if not is_over(row) and keep(row))
            if found or not page.cursor:
                return Page(found, page.cursor)
            after = page.cursor
        return Page((), after)

    async def matching(self, of: ListRuns, most: int) -> tuple[list[Run], bool]:
        """Return the newest runs of a list, at most `most`, and whether these are all.

        With a filter that no index serves it looks at as many rows as a page of the list does.
        """
        found: list[Run] = []
        free = is_free(of)
        of = replace(of, limit=min(most, RUNS_PER_READ if free else PAGE_ROWS_MAX))
        for _ in range(PAGES_PER_CALL):
            page = await self.runs(of, pages=1 if free else PAGES_PER_CALL)
            found += page.rows
            if not page.cursor or len(found) >= most:
                return found[:most], not page.cursor and len(found) <= most
            of = replace(of, cursor=page.cursor)
        return found, False

    async def _with_attributes(self, of: ListRuns, earliest: int, pages: int) -> Page[Run]:
        """Return a page of the runs with attributes, newest first, by the index of the first one.

        Raises InvalidInput for a name that no workflow declares, if no run is found.
        """
        pairs = where_of(of.where)
        name, value = pairs[0]
        where = (("name", name), ("value", stored_text(value, ATTRIBUTE_CHARS_MAX)))
        after, found = place_after(RUN, of.cursor), list[Run]()
        cursor = cursor_at((*after, name)) if after is not None else ""
        for _ in range(pages):
            page = await self.store.query(Newest(ATTRIBUTE, self.tenant, where, cursor, RUNS_PER_READ))
            keys = [(self.tenant, each.run) for each in page.rows if each.at >= earliest]
            rows = await self.store.load_many(RUN, keys, listed=True) if keys else ()
            found += [row for row in rows if row is not None and is_asked_for(row, of)]
            if len(found) > of.limit:
                return Page(tuple(found[: of.limit]), cursor_of(RUN, found[of.limit - 1]))
            cursor = page.cursor
            if not cursor or len(keys) < len(page.rows):
                cursor = ""
                break
        if not found and not of.cursor:
            await self._check_attributes([each for each, _ in pairs])
        further = cursor_at(place_after(ATTRIBUTE, cursor)[:-1]) if cursor else ""  # type: ignore[index]
        return Page(tuple(found), further)

    async def _ended_in(self, of: ListRuns, earliest: int, pages: int) -> Page[Run]:
        """Return a page of the runs that ended in an interval, the latest end first."""
        interval = interval_of("ended", of.ended)
        assert interval is not None
        wanted, statuses = _of_index(of), tuple(each for each in OUTCOMES if of.status in ("", each.value))
        filtered = replace(_of_rows(of), ended="", status="") != EVERY_RUN

        def keep(row: Run) -> bool:
            return row.created_at >= earliest and is_asked_for(row, of)

        size = max(of.limit, RUNS_PER_READ) if filtered else of.limit
        return await self._kept(
            lambda after: RunsByEnd(self.tenant, interval, wanted, statuses, after, size),
            keep if filtered else None,
            of.cursor,
            of.limit,
            pages=pages,
            place=end_place,
        )

    async def _flagged_in(self, of: ListRuns, earliest: int, pages: int) -> Page[Run]:
        """Return a page of the runs that began to need a person in an interval, the latest first.

        Workflow, version, reason and cause are those of that time.
        """
        interval = interval_of("flagged", of.flagged)
        assert interval is not None
        wanted, rest = _of_index(of), _of_rows(of)
        size = of.limit if rest == EVERY_RUN else max(of.limit, RUNS_PER_READ)
        cursor, found = of.cursor, list[tuple[Flagging, Run]]()
        for _ in range(pages):
            page = await self.store.query(LastFlaggings(self.tenant, interval, wanted, cursor, size))
            rows = await self.store.load_many(RUN, [(self.tenant, each.run) for each in page.rows], listed=True)
            for each, row in zip(page.rows, rows, strict=True):
                is_wanted = rest.version in (0, version_in(each.lane))
                if row is None or not is_wanted or row.created_at < earliest:
                    continue
                if is_asked_for(row, replace(rest, version=0)):
                    found.append((each, row))
            cursor = page.cursor
            if len(found) > of.limit or not cursor or rest == EVERY_RUN:
                break
        kept = found[: of.limit]
        further = cursor_at(flagging_place(kept[-1][0])) if len(found) > len(kept) else cursor
        return Page(tuple([row for _, row in kept]), further)

    async def _check_attributes(self, names: Sequence[str]) -> None:
        """Raise InvalidInput for a name that no workflow declares as an attribute."""
        lanes = await self.store.rows(TOPOLOGY, (STORE,), listed=True)
        declared = {each for row in lanes for each in row.structure().get("attributes", ())}
        unknown = next((name for name in names if name not in declared), None)
        if unknown is not None:
            known = f"declared are {', '.join(sorted(declared))}" if declared else "none is declared"
            raise InvalidInput(
                f"no workflow declares the attribute {unknown!r}",
                f"{known}; other terms are {', '.join(KNOWN)}",
                "write a text with a colon in quotation marks",
            )

    async def _children(self, of: ListRuns, earliest: int) -> Page[Run]:
        """Return a page of the runs that one run has started, newest first."""
        calls = [call for call in await self.store.rows(EFFECT, (self.tenant, of.parent)) if call.child_text]
        ids = [run for call in calls for run in children.runs_of(call)]
        ids += {*await counted_children(self.store, self.tenant, of.parent)} - {*ids}
        after = place_after(RUN, of.cursor)
        found: list[Run] = []
        for first in range(0, len(ids), RUNS_PER_READ):
            keys = [(self.tenant, run) for run in ids[first : first + RUNS_PER_READ]]
            rows = await self.store.load_many(RUN, keys, listed=True)
            found += [row for row in rows if row is not None and is_asked_for(row, of) and row.created_at >= earliest]
        found.sort(key=lambda row: place_of(RUN, row), reverse=True)
        left = [row for row in found if after is None or place_of(RUN, row) < after]
        page = tuple(left[: of.limit])
        return Page(page, cursor_of(RUN, page[-1]) if len(left) > of.limit else "")

    async def _kept(
        self,
        page_after: Callable[[str], Query[Page[Run]]],
        keep: Callable[[Run], bool] | None,
        cursor: str,
        limit: int,
        *,
        pages: int = PAGES_PER_CALL,
        earliest: int | None = None,
        place: Callable[[Run], Key] = run_place,
    ) -> Page[Run]:
        """Return at most `limit` runs to keep (None: all), and the next cursor. Reads at most `pages` pages.

        Ends at the first run that was created before `earliest`, because pages are newest first. After the last run of
        a page it looks for one more to keep, so that a cursor leads to further runs.
        """
        found: list[Run] = []
        for _ in range(pages):
            page = await self.store.query(page_after(cursor))
            for row in page.rows:
                if earliest is not None and row.created_at < earliest:
                    return Page(tuple(found), "")
                if keep is not None and not keep(row):
                    continue
                if len(found) == limit:
                    return Page(tuple(found), cursor_at(place(found[-1])))
                found.append(row)
            cursor = page.cursor
            if not cursor or (keep is None and earliest is None):
                break
        return Page(tuple(found), cursor)

    async def flagged(
        self,
        *,
        reason: Reason | None = None,
        workflow: str = "",
        version: int | None = None,
        node: str = "",
        cause: str = "",
        keep: Callable[[Run], bool] | None = None,
        cursor: str = "",
        limit: int = RUNS_PER_READ,
    ) -> Page[Run]:
        """Return at most `limit` runs that need a person, for one reason and cause or any, and the next cursor.

        Other runs are passed over, so that the first page of a reason, and of those to `keep`, has its first runs.
        """
        _check_page(limit)
        where = tuple((name, value) for name, value in (("workflow", workflow), ("node", node)) if value)
        filtered = keep is not None or version is not None
        size = max(limit, RUNS_PER_READ) if filtered else limit

        def is_asked_for(row: Run) -> bool:
            return version in (None, version_in(row.lane)) and (keep is None or keep(row))

        return await self._kept(
            lambda after: OpenRows(RUN, self.tenant, where, after, size, reason.value if reason else "", cause),
            is_asked_for if filtered else None,
            cursor,
            limit,
        )

    async def input(self, run: str) -> Any:
        """Return the run's input as its workflow parsed it."""
        await self.run(run)
        first = await self.store.load(EVENT, (self.tenant, run, 1))
        if first is None or first.snapshot is None:
            raise NotFound(f"the input of run {run} has been deleted")
        state = (await joined(self.store, (self.tenant, run), first.snapshot)).state
        return decoded(state, f"the input of run {run}")

    async def last_state(self, run: str) -> tuple[RunRows, Any]:
        """Return the rows of a run and its state at the last checkpoint."""
        rows = await self.rows_of(run)
        if rows.last.snapshot is None:
            raise NotFound(f"the state of run {run} has been deleted")
        return rows, decoded(await state_of_rows(self.store, rows), f"the state of run {run}")

    async def state_at(self, run: str, checkpoint: int) -> tuple[Event, Any]:
        """Return an event of a run and the state that it wrote. Raises NotFound."""
        await self.run(run)
        event = await self.store.load(EVENT, (self.tenant, run, checkpoint))
        if event is None or event.snapshot is None:
            raise NotFound(
                f"event {checkpoint} of run {run} wrote no state",
                "a start, a checkpoint, a move and an end write it, and it is deleted with the history",
                f"choose one: outlast runs events {run} --type checkpoint",
            )
        state = (await joined(self.store, (self.tenant, run), event.snapshot)).state
        return event, decoded(state, f"the state of run {run} at event {checkpoint}")

    async def rows_of(self, run: str) -> RunRows:
        """Read all rows of a run in one snapshot. Raises NotFound."""
        (rows,) = await self.store.run_rows([(self.tenant, run)])
        if rows is None:
            raise no_run(self.tenant, run)
        return rows

    async def run_facts(self, run: str, rows: RunRows | None = None) -> RunFacts:
        """Read the rows that an explanation of a run uses, with those of the run that holds it up in its tree.

        `rows`: those of the run, if they were read before.
        """
        facts = await self._own_facts(run, rows)
        path = await self._blocking_path(facts.run)
        if not path:
            return facts
        below = BlockingRun(tuple(each.run for each in path), await self._own_facts(path[-1].run))
        return facts._replace(below=below)

    async def _blocking_path(self, run: Run) -> tuple[Run, ...]:
        """Return the runs from a child that a run waits for down to the one that waits for no child.

        At most TREE_READS_MAX rows are read; then a run that waits for a child may be the last of the path.
        """
        paths, left = list[tuple[Run, ...]](), TREE_READS_MAX
        level: list[tuple[Run, ...]] = [(run,)]
        while level:
            asked = [(path, child) for path in level for child in await self._awaited(path[-1])][:left]
            keys = [(self.tenant, child) for _, child in asked]
            found = await self.store.load_many(RUN, keys, listed=True) if keys else ()
            left -= len(asked)
            longer = [(*path, row) for (path, _), row in zip(asked, found, strict=True) if row and not is_over(row)]
            level = [path for path in longer if left and _waits_below(path[-1]) and not path[-1].attention]
            paths += [path for path in longer if path not in level]
        return blocking_path(paths)[1:]

    async def _awaited(self, run: Run) -> list[str]:
        """Return the ids of the children that a run waits for, with those of maps that live."""
        found, names = awaited_children(run), awaited_maps(run)
        if names:
            calls = await self.store.rows(EFFECT, (self.tenant, run.run, run.visit))
            found += [each.external_id for name in names for each in living(calls_of(name, run, calls))]
        return found

    async def held_up_by(self, runs: Sequence[Run]) -> dict[str, int]:
        """Return the number of runs of its tree that each run holds up.

        These are the runs above a child that wait for it, and those below a root that wait for its budget.
        """
        counts = {run.run: 0 for run in runs if run.root}
        for run in runs:
            if not run.root and any(a.reason is Reason.BUDGET_EXHAUSTED for a in run.attention):
                counts[run.run] = len(await waiting_below(self.store, run, await messages_of(self.store, run)))
        level = [(run.run, run) for run in runs if run.root]
        while level:  # at most DEPTH_MAX reads, because each level is above the last one
            keys = list(dict.fromkeys((self.tenant, child.parent) for _, child in level))
            rows = await self.store.load_many(RUN, keys, listed=True)
            above = {row.run: row for row in rows if row is not None}
            level = [
                (first, parent)
                for first, child in level
                if (parent := above.get(child.parent)) is not None and waits_for(parent, child)
            ]
            counts |= {first: counts[first] + 1 for first, _ in level}
            level = [(first, parent) for first, parent in level if parent.parent]
        return counts

    async def above(self, run: Run) -> list[Run]:
        """Return the runs above a run in its tree, the root first."""
        found: list[Run] = []
        parent = run.parent
        while parent:  # at most DEPTH_MAX reads
            row = await self.store.load(RUN, (self.tenant, parent))
            if row is None:
                break
            found.insert(0, row)
            parent = row.parent
        return found

    async def _own_facts(self, run: str, rows: RunRows | None = None) -> RunFacts:
        rows = rows or await self.rows_of(run)
        after = max(0, rows.run.seq - EVENTS_EXPLAINED)
        events = await self.store.rows(
            EVENT, (self.tenant, run), after=(self.tenant, run, after), limit=EVENTS_EXPLAINED
        )
        topology = await self.store.load(TOPOLOGY, (STORE, rows.run.lane))
        structure = topology.structure() if topology is not None else {}
        limits = Limits(*structure["budget"]) if structure.get("budget") else NO_LIMITS
        memos = {(memo.visit, memo.key): memo for memo in rows.memos}
        return RunFacts(
            run=rows.run,
            now=rows.now,
            events=tuple(e for e in events if e.seq <= rows.run.seq),
            effects=(*rows.effects, *(e for e in rows.shared if e.by_run == run)),
            used=tuple(e for e in rows.shared if e.by_run != run),
            waits=rows.waits,
            approvals=rows.approvals,
            messages=rows.messages,
            slots=await self.slots(),
            workers=await self.workers(),
            pauses=await self.pauses(),
            evidence=rows.evidence,
            clock_step=await clock_step(self.store),
            results=(await self.counts_of_results([rows.run]))[run],
            spent=await self.store.query(RunUsage(self.tenant, run)),
            below_spent=await self._spent_below(rows, limits),
            limits=limits,
            answer_schemas=answer_schemas(structure),
            ledger_purged=await ledger_purged(self.store, rows.run),
            ceiling=await self._ceiling(rows.run),
            fork=terms_of(memos) or await self._first_terms(rows.run),
            fork_notes=notes_of(memos),
            detached=await self._is_detached(rows.run),
            floor=await self.store.load(FLOOR, (self.tenant, run)),
            maps=await maps_of(self.store, rows),
        )

    async def _is_detached(self, run: Run) -> bool:
        """Return True if an operator has let the parent of a run go on without it."""
        if not run.parent:
            return False
        call = await self.store.load(EFFECT, (run.tenant, run.parent, *children.place_of(run)))
        if call is None:
            return not is_over(run) and await is_counted_detached(self.store, run)
        return call.external_id == run.run and call.child.detached

    async def _spent_below(self, rows: RunRows, limits: Limits) -> Amounts | None:
        """Return the usage of the runs below a root; None for a run without children, and for one below a root."""
        run = rows.run
        has_children = any(each.child_text for each in rows.effects) or any(m.activity == MAP for m in rows.memos)
        if run.root or not has_children:
            return None
        used = await self.store.query(TreeUsage(self.tenant, run.run, but=run.run))
        if limits.children is None:
            return used
        own = sum(each.attempts for each in rows.effects if each.child_text and not each.undoes)
        below = await self.store.query(RunsBelow(self.tenant, run.run, DESCENDANTS_MAX))
        return used._replace(children=max(0, below - own))

    async def _first_terms(self, run: Run) -> ForkTerms | None:
        """Return the terms of a fork whose ledger was purged, from its first event; None if the run is no fork."""
        first = await self.store.load(EVENT, (self.tenant, run.run, 1)) if run.forked_from else None
        return None if first is None else terms_in(first)

    async def _ceiling(self, run: Run) -> Due | None:
        """Return how the armed ceiling of a run was counted, if it is in business days."""
        if not run.ceiling_at:
            return None
        scope, key = (run.tenant, run.run, 0), ceiling_key(run.ceiling_at)
        memos = await self.store.rows(MEMO, scope, after=(*scope, key), limit=1)
        return kept_due(memos[0]) if memos and memos[0].key.startswith(key) else None

    async def answer_schemas(self, lanes: Iterable[str]) -> Mapping[str, AnswerSchemas]:
        """Return the schemas of the answers of each lane's activities, as the workers that serve it declare them."""
        named = sorted(set(lanes))
        rows = await self.store.load_many(TOPOLOGY, [(STORE, lane) for lane in named]) if named else ()
        return {
            lane: answer_schemas(row.structure() if row is not None else {})
            for lane, row in zip(named, rows, strict=True)
        }

    async def answer_schemas_of(self, run: Run) -> AnswerSchemas:
        """Return the schemas of the answers of a run's activities."""
        return (await self.answer_schemas([run.lane]))[run.lane]

    async def asked_effects(self, effects: Iterable[Effect]) -> Mapping[EffectName, AskedEffect]:
        """Return the effects that a person may answer by their kind, with what an answer needs."""
        asked = [effect for effect in effects if mailbox.may_answer(effect)]
        runs = sorted({effect.by_run or effect.run for effect in asked})
        rows = await self.store.load_many(RUN, [(self.tenant, run) for run in runs], listed=True) if runs else ()
        return await self._asked_effects(asked, {row.run: row for row in rows if row is not None})

    async def _asked_effects(
        self, effects: Sequence[Effect], runs: Mapping[str, Run]
    ) -> Mapping[EffectName, AskedEffect]:
        named = [(runs[owner], each) for each in effects if (owner := each.by_run or each.run) in runs]
        schemas = await self.answer_schemas(run.lane for run, _ in named)
        return {
            effect_name(each): AskedEffect(returns_text(schemas[run.lane].get(each.activity)), is_over(run))
            for run, each in named
        }

    # --- history and results of a run --------------------------------------------------------------
    async def history(self, run: str, *, after: int = 0, limit: int = EVENTS_PER_READ) -> tuple[Event, ...]:
        """Return events of a run after a sequence number."""
        await self.run(run)
        return await self._events(run, after, limit)

    async def _events(self, run: str, after: int = 0, limit: int = EVENTS_PER_READ) -> tuple[Event, ...]:
        return await self.store.rows(EVENT, (self.tenant, run), after=(self.tenant, run, after), limit=limit)

    async def history_of(
        self, run: str, types: Sequence[str], *, after: int, limit: int
    ) -> tuple[list[Event], int, bool]:
        """Return at most `limit` events of these types after a number, all for ().

        Also return the number of the last event that was read, and whether more may follow.
        """
        found: list[Event] = []
        while True:
            page = await self.history(run, after=after, limit=EVENTS_PER_READ if types else limit)
            for event in page:
                after = event.seq
                if not types or selects(types, event.type):
                    found.append(event)
                    if len(found) == limit:
                        return found, after, True
            if not types or len(page) < EVENTS_PER_READ:
                return found, after, False

    async def full_history(self, run: str) -> tuple[Event, ...]:
        """Return every event of a run. Raises NotFound."""
        await self.run(run)
        return await self._every_event(run)

    async def _every_event(self, run: str) -> tuple[Event, ...]:
        found = list(await self._events(run))
        while len(found) % EVENTS_PER_READ == 0 and (page := await self._events(run, len(found))):
            found += page
        return tuple(found)

    async def run_history(self, run: Run) -> RunHistory:
        """Return a run, as its row was read, with every event up to it."""
        return RunHistory(run, [event for event in await self._every_event(run.run) if event.seq <= run.seq])

    async def step_rows(self, run: str, limit: int) -> StepRows:
        """Read the rows that a page of `limit` steps is made from: all of the run, its whole history included."""
        _check_page(limit)
        return await self.steps_from(await self.rows_of(run))

    async def steps_from(self, rows: RunRows) -> StepRows:
        """Return the same from the rows of a run that were read before."""
        history, effects = await self.run_history(rows.run), (*rows.effects, *rows.shared)
        usage = await self.store.rows(CALL_USAGE, (self.tenant, rows.run.run))
        given = await self._given(history)
        whole = not await ledger_purged(self.store, rows.run)
        course = CourseRows(await self._timeline(rows, history), rows.messages, given, whole)
        return StepRows(history, rows.memos, effects, rows.approvals, usage, self.store.mapping().business, course)

    async def _given(self, history: RunHistory) -> bytes | None:
        """Return the input of a run as JSON; None if it has been deleted."""
        first = history.events[0].snapshot if history.events else None
        run = history.run
        return None if first is None else (await joined(self.store, (run.tenant, run.run), first)).state

    async def compared_rows(self, run: str, limit: int) -> ComparedRows:
        """Read the rows by which a run is compared with another one, for a page of `limit` differences."""
        _check_page(limit)
        rows = await self.rows_of(run)
        steps = await self.steps_from(rows)
        assert steps.course is not None
        return ComparedRows(steps, rows.waits, rows.messages, steps.course.given, not steps.course.whole)

    async def timeline_rows(self, run: str) -> TimelineRows:
        """Read the rows that the timeline of a run is made from."""
        rows = await self.rows_of(run)
        found = await self._timeline(rows, await self.run_history(rows.run))
        return found._replace(memos=rows.memos, usage=await self.store.rows(CALL_USAGE, (self.tenant, run)))

    async def _timeline(self, rows: RunRows, history: RunHistory) -> TimelineRows:
        own = (*rows.effects, *(effect for effect in rows.shared if effect.by_run == rows.run.run))
        mapping, workers = self.store.mapping(), await self.workers()
        return TimelineRows(history, own, rows.waits, rows.approvals, workers, rows.now, mapping.business, mapping.real)

    async def results(self, run: str, *, after: int = 0, limit: int = RESULTS_PER_READ) -> tuple[Result, ...]:
        """Return up to 1,000 results of a run in order of first emission, after an ordinal."""
        await self.run(run)
        at_most = max(0, min(limit, RESULTS_PER_READ))
        return await self.store.query(ByOrdinal(RESULT, (self.tenant, run), after=after, limit=at_most))

    async def count_results(self, run: str) -> int:
        """Count the results of a run."""
        row = await self.run(run)
        return (await self.counts_of_results([row]))[run]

    async def counts_of_results(self, runs: Sequence[Run]) -> dict[str, int]:
        """Count the results of each run in one query: a chunk lands whole, and numbers its rows without gaps (I18)."""
        claimed = [row.run for row in runs if row.version > 1]  # an unclaimed run has no results
        keys = tuple((self.tenant, run) for run in claimed)
        counted = await self.store.query(LastOrdinals(RESULT, keys)) if keys else ()
        return dict.fromkeys((row.run for row in runs), 0) | dict(zip(claimed, counted, strict=True))

    async def usage_of(self, runs: Sequence[Run]) -> dict[str, Amounts]:
        """Return the usage of each run of which calls have reported some."""
        claimed = tuple([row.run for row in runs if row.version > 1])  # an unclaimed run has called nothing
        return await self.store.query(RunsUsage(self.tenant, claimed)) if claimed else {}

    async def oldest_calls(self, runs: Sequence[Run]) -> dict[str, int]:
        """Return the lowest epoch of the open calls of each run whose shown status depends on it, in one query."""
        asked = tuple((row.run, row.visit) for row in runs if may_have_open_calls(row))
        return await self.store.query(OpenCalls(self.tenant, asked)) if asked else {}

    # --- effects ----------------------------------------------------------------------------------
    async def effects(self, run: str) -> tuple[Effect, ...]:
        """Return the effects of a run in the order of their intents.

        Shared effects of other runs that this run uses or waits for come last, with their owner in `by_run`.
        """
        return await self.effects_of(await self.run(run))

    async def effects_of(self, run: Run) -> tuple[Effect, ...]:
        """Return the effects of a run whose row is loaded, ordered as `effects` orders them."""
        own = list(await self.store.rows(EFFECT, (self.tenant, run.run)))
        for used in await self.store.rows(USAGE, (self.tenant, run.run)):
            (row,) = await self.store.load_many(EFFECT, [(self.tenant, "", 0, str(used[2]))], listed=True)
            own += [row] if row is not None else []
        return in_order(run.run, own)

    async def ledger(self, of: ListLedger) -> tuple[tuple[Effect, ...], str]:
        """Return effects of all runs by first intent, newest first, and the next cursor; `since` limits their age."""
        _check_page(of.limit)
        since_real = (await self.store.now()).real - ms_of("since", of.since) if of.since is not None else 0
        if of.unknown and of.status is not None:
            raise InvalidInput("status and unknown exclude each other", "an unknown effect is refused", "leave one out")
        if of.run:
            of_run = await self.store.rows(EFFECT, (self.tenant, of.run))
            rows = [e for e in of_run if of.activity in ("", e.activity) and of.status in (None, e.status)]
            rows = [e for e in rows if is_unknown(e)] if of.unknown else rows
            rows.sort(key=lambda e: (e.first_at, e.ordinal), reverse=True)
            left = _behind([e for e in rows if e.first_at >= since_real], of.cursor)
            return tuple(left[: of.limit]), cursor_of(EFFECT, left[of.limit - 1]) if len(left) > of.limit else ""
        where: tuple[tuple[str, str | int], ...] = (("activity", of.activity),) if of.activity else ()
        if of.status is EffectStatus.UNCERTAIN or of.unknown:
            query = OpenRows(EFFECT, self.tenant, where, of.cursor, of.limit, unknown=of.unknown)
            found = await self.store.query(query)
        else:
            where += () if of.status is None else (("status", of.status.value),)
            found = await self.store.query(Newest(EFFECT, self.tenant, where, of.cursor, of.limit))
        recent = tuple(e for e in found.rows if e.first_at >= since_real)
        at_the_end = len(recent) < len(found.rows) or not found.cursor
        return recent, "" if at_the_end else cursor_of(EFFECT, found.rows[-1])

    async def effect(self, run: str, key: str, *, visit: int | None = None) -> EffectEvidence:
        """Return one effect and its evidence: of a visit, else the uncertain one, else the latest."""
        effect = await commands.find_effect(self.store, self.tenant, run, key, visit=visit)
        return EffectEvidence(effect, await self._evidence_of(effect))

    async def held_runs(self, effects: Iterable[Effect]) -> frozenset[str]:
        """Return the runs of these effects that are open and held by a worker now."""
        runs = {e.by_run or e.run for e in effects if e.status is EffectStatus.INTENDED}
        rows = await self.store.load_many(RUN, [(self.tenant, run) for run in runs], listed=True) if runs else ()
        return frozenset(row.run for row in rows if row is not None and is_held(row))

    async def evidence(self, run: str) -> tuple[Evidence, ...]:
        """Return late answers that replaced holders of a run received."""
        await self.run(run)
        return await self.store.rows(EVIDENCE, (self.tenant, run))

    async def uncertain_evidence(self, runs: Sequence[Run]) -> dict[EffectName, EffectEvidence]:
        """Return the uncertain effects for which these runs need a person, by name; settled ones are left out."""
        found: dict[EffectName, EffectEvidence] = {}
        for run in runs:
            for entry in run.attention:
                if entry.reason is not Reason.EFFECT_UNCERTAIN:
                    continue
                effect = await self._named(run, entry.visit, entry.key)
                if effect is not None and effect.status is EffectStatus.UNCERTAIN:
                    found[run.run, entry.visit, entry.key] = EffectEvidence(effect, await self._evidence_of(effect))
        asked = await self._asked_effects([each.effect for each in found.values()], {r.run: r for r in runs})
        return {name: each._replace(takes_response=bool(asked[name].returns)) for name, each in found.items()}

    async def _evidence_of(self, effect: Effect) -> tuple[Evidence, ...]:
        key = (effect.tenant, effect.by_run or effect.run, effect.visit, effect.key)
        return await self.store.rows(EVIDENCE, key, listed=True)

    async def _named(self, run: Run, visit: int, key: str) -> Effect | None:
        """Return the run's own effect, or the tenant's if visit is 0."""
        for owner in (run.run,) if visit else (run.run, ""):
            (row,) = await self.store.load_many(EFFECT, [(run.tenant, owner, visit, key)], listed=True)
            if row is not None:
                return row
        return None

    # --- approvals ---------------------------------------------------------------------------------
    async def approval(self, approval: str) -> Approval:
        """Return the row of an approval."""
        return await commands.find_approval(self.store, self.tenant, approval)

    async def approvals(
        self,
        *,
        status: str = "",
        run: str = "",
        decided_by: str = "",
        by_deadline: bool = False,
        cursor: str = "",
        limit: int = 50,
    ) -> Page[Approval]:
        """Return approvals, newest first, and the cursor of the next page.

        `by_deadline`: only pending ones, the earliest deadline first.
        """
        _check_page(limit, status=(status, ApprovalStatus))
        named = (("status", status), ("run", run), ("decided_by", decided_by))
        where = tuple((name, value) for name, value in named if value)
        of_pages = OpenRows if by_deadline else Newest
        return await self.store.query(of_pages(APPROVAL, self.tenant, where, cursor, limit))

    async def summary(self, lanes: Iterable[str] = ()) -> tuple[SummaryRows, Instant]:
        """Return the rows of a summary and the time. `lanes`: those of the loaded workflows."""
        now = await self.store.now()
        of = self.store
        return await of.query(Summary(self.tenant, now.real, tuple(lanes), of.count_max, now.business)), now

    async def approvals_of(self, run: str) -> tuple[Approval, ...]:
        """Return every approval of one run."""
        return await commands.approvals_of(self.store, self.tenant, run)

    # --- pauses and slots --------------------------------------------------------------------------
    async def pauses(self) -> tuple[Pause, ...]:
        """Return pauses and open circuit breakers."""
        rows = await self.store.rows(PAUSE, (self.tenant,))
        return tuple(r for r in rows if r.up)

    async def held_up(self) -> dict[str, int]:
        """Count waiting runs by the key of the pause they wait for."""
        counts: Counter[str] = Counter()
        async for page in pages(partial(self.store.page, RUN, self.tenant, {}, limit=RUNS_PER_READ)):
            for row in page.rows:
                counts.update({w.what.partition(":")[0] for w in row.waiting_for if w.kind == "pause"})
        return dict(counts)

    async def breakers(self) -> tuple[tuple[Pause, int], ...]:
        """Return the open circuit breakers, each with its number of waiting runs."""
        up = [pause for pause in await self.pauses() if pause.kind == pauses.BREAKER]
        waiting = await self.held_up() if up else {}
        return tuple((pause, waiting.get(pause.key, 0)) for pause in up)

    async def slots(self) -> tuple[Slot, ...]:
        """Return the slot rows of this tenant and the global ones."""
        return (*await self.store.rows(SLOT, (STORE,)), *await self.store.rows(SLOT, (self.tenant,)))

    # --- workers ----------------------------------------------------------------------------------
    async def workers(self) -> tuple[Worker, ...]:
        """Return the workers of this store, closed ones included."""
        return await self.store.rows(WORKER, (STORE,))

    async def drains(self) -> dict[str, DrainRequest]:
        """Return the requests to drain, by worker."""
        return drains_of(await self.store.load(META, DRAINS))

    async def assignments(self) -> dict[str, list[Assignment]]:
        """Return the assignments of attention items, by run."""
        return assignments_of(await self.store.load(META, assignments_row(self.tenant)))

    async def held(self, worker: str) -> int:
        """Count the runs that a worker holds, of all tenants."""
        return len(await self.store.query(Owned(worker)))

    async def serving(self) -> frozenset[str]:
        """Return the lanes served by at least one worker with a valid lease."""
        now = await self.store.now()
        return lanes_served(await self.workers(), now.real)


def _waits_below(run: Run) -> bool:
    return bool(awaited_children(run) or awaited_maps(run))
