"""Maps of a node: their first execution, and the window of children that their holder moves (S-31).

`core/maps.py` has the commits, and says why a crash between two of them loses and repeats nothing. The window moves
without the body of the node: it is executed when it asks for the map, and again when the map is settled.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from pydantic import BaseModel

from outlast.core import children, maps
from outlast.core.codec import canonical
from outlast.core.commit import Commit
from outlast.core.compensation import NO_UNDO
from outlast.core.conclude import Parked
from outlast.core.divergence import MAP
from outlast.core.enough import SetBounds, SetState, check_bounds
from outlast.core.keys import check_key, is_engine_key
from outlast.core.limits import ARGUMENTS_BYTES_MAX, CHILDREN_MAX, MAP_MAX, TEXT_CHARS_MAX
from outlast.core.maps import MapInput, MapTerms
from outlast.core.rows.columns import stored_text
from outlast.core.rows.effect_columns import NO_CHILD, NO_ERROR, ChildUndo
from outlast.core.rows.effect_rows import Effect, Memo
from outlast.core.rows.map_rows import MAP_INPUTS, MAP_OUTCOME, MAP_PROGRESS, MapOutcome, MapProgress
from outlast.core.rows.run_rows import TOKEN, Token
from outlast.core.run_transition import LogEntry
from outlast.engine.admission import limits_of
from outlast.engine.child_runs import (
    AskedChild,
    ChildOptions,
    NewChild,
    asked_child,
    check_room,
    found_workflow,
    take_places,
)
from outlast.engine.context_calls import shown_as
from outlast.engine.node_execution import NodeExecution, Unresolved
from outlast.engine.run_session import RunSession
from outlast.engine.start_budget import check_room_left, start_room
from outlast.errors import InvalidInput, LimitExceeded
from outlast.flow.activity import BoundCall
from outlast.flow.calls import Plan
from outlast.flow.child_tool import child_digest
from outlast.flow.fan_out import FanOut, Loaded
from outlast.flow.outcomes import ChildFailed
from outlast.flow.workflow import Workflow

EXAMPLE: Final = 'await ctx.map(research, {"tin": research.arguments("tin")}, at_most=20)'
PAGE: Final = 100  # outcomes that are read together
KEYS_SHOWN: Final = 5  # to a person who is asked about a map with other inputs


class AskedMap(NamedTuple):
    """A map as its node asks for it."""

    workflow: Workflow[Any, Any, Any]
    name: str
    inputs: tuple[MapInput, ...]
    digest: str
    terms: MapTerms


@shown_as("map")
def asked_map(
    execution: NodeExecution,
    workflow: object,
    inputs: Any,
    *,
    key: str = "",
    at_most: int = 100,
    min_successful: int | None = None,
    tolerated_failures: int | None = None,
    undo: Mapping[str, Plan[Any] | BaseModel] | None = None,
    no_undo: str = "",
) -> AskedMap:
    """Return the map that a node asks for. Raises InvalidInput, LimitExceeded."""
    found = found_workflow(workflow).scheduled_by(execution.session.held.run.scheduler)
    if not isinstance(inputs, Mapping):
        what = f"ctx.map({found.name}, …) was given a {type(inputs).__name__}"
        raise InvalidInput(what, "results are by key, so each input has one", EXAMPLE)
    if type(at_most) is not int or not 1 <= at_most <= CHILDREN_MAX:
        why = f"it is the number of children that live at a time, from 1 to {CHILDREN_MAX:,}"
        raise InvalidInput(f"ctx.map(at_most={at_most!r})", why, "at_most=20")
    if len(inputs) > MAP_MAX:
        why = f"it has {len(inputs):,}; a map has at most {MAP_MAX:,}"
        raise LimitExceeded(f"ctx.map({found.name}, …) has too many inputs", why, "make a map of each part of them")
    if undo is not None and len(inputs) > CHILDREN_MAX:
        why = f"what may have to be undone stays in the ledger of this run, so with undo= a map has {CHILDREN_MAX:,}"
        raise LimitExceeded(f"ctx.map({found.name}, …, undo=…) has {len(inputs):,} inputs", why, "make smaller maps")
    if undo is not None and undo.keys() != inputs.keys():
        other = min(map(str, undo.keys() ^ inputs.keys()))
        raise InvalidInput(
            f"ctx.map(undo=…) and its inputs differ in the key {other}", "each child has its own undo", "same keys"
        )
    check_bounds("ctx.map", SetBounds(len(inputs), min_successful, tolerated_failures))
    key = key or found.name
    check_key(f"map of {found.name}", key, 'key="prices"; left out, it is the name of the workflow')
    if is_engine_key(key):
        raise InvalidInput(f"a map cannot have the key {key[:200]}", "such keys are the engine's own", 'key="prices"')
    made: list[MapInput] = []
    for name, given in inputs.items():
        if not isinstance(name, str) or not name:
            raise InvalidInput(f"ctx.map(…) has the key {name!r}"[:200], "a key is a text", EXAMPLE)
        options = ChildOptions(key=maps.child_key(key, name), undo=undo[name] if undo else None, no_undo=no_undo)
        try:
            call = asked_child(execution, found, given, options).call
        except InvalidInput as error:
            what = f"input {name} of ctx.map: {error.what}"
            raise InvalidInput(what, error.why, error.fix, problems=error.problems) from error
        if len(call.args) > ARGUMENTS_BYTES_MAX:
            why = f"it takes {len(call.args):,} bytes, the limit is {ARGUMENTS_BYTES_MAX:,}"
            raise LimitExceeded(f"input {name} of ctx.map is too large", why, "keep large values elsewhere")
        planned = call.terms.undo
        made.append(MapInput(name, call.args.decode(), None if planned is None else planned._asdict()))
    terms = MapTerms(found.name, len(made), at_most, min_successful, tolerated_failures, no_undo)
    of = maps.map_digest(found.name, made)
    return AskedMap(found, maps.map_name(key, of), tuple(made), of, terms)


class MapWait:
    """A map that an execution of the node asks for, or that its holder moves on."""

    def __init__(self, execution: NodeExecution, name: str, workflow: Workflow[Any, Any, Any]) -> None:
        self.execution = execution
        self.name = name
        self.workflow = workflow

    @property
    def memo(self) -> Memo | None:
        """Return the memo of the map; None before its first commit."""
        held = self.execution.session.held
        return held.memos.get((held.run.visit, maps.memo_key(self.name)))

    @property
    def asked_as(self) -> str:
        """Return the name by which an execution asks for it (EFF-9)."""
        return f"{MAP}?{maps.memo_key(self.name)}"

    # --- the first execution -------------------------------------------------------------------------
    async def held(self, asked: AskedMap) -> None:
        """Wait until this execution has asked for all recorded maps, if this one is new (S-27)."""
        expected = self.execution.expected
        if expected is not None and self.memo is None and expected.holds(MAP):
            shown = canonical({"inputs": asked.terms.n, "keys": [each.key for each in asked.inputs[:KEYS_SHOWN]]})
            await expected.hold(MAP, BoundCall((), {}, maps.key_of_map(asked.name), shown, asked.digest))

    def log(self, asked: AskedMap, progress: MapProgress | None = None) -> None:
        """Add the begin of the map, or its end, to the history of the run, once."""
        n, name = asked.terms.n, maps.title(asked.terms.workflow, self.name)
        if progress is None:
            text = f"began the map of {name}: {n:,} {'input' if n == 1 else 'inputs'}"
            entry = LogEntry(f"outlast/map/{self.name}", text, {"map": self.name, "inputs": n})
        else:
            done = maps.counts(progress)
            text = f"the map of {name} has ended: {maps.counts_text(done)}"
            entry = LogEntry(f"outlast/map/{self.name}/end", text, {"map": self.name, **done})
        self.execution.log_entries[entry.key] = entry

    async def _begin(self, asked: AskedMap) -> None:
        session = self.execution.session
        run, store = session.held.run, session.store
        check_room(run, 0)
        asked.workflow.activities  # noqa: B018 - checks the definition, once
        portions = maps.portions_of(run, self.name, asked.inputs)
        prefix = maps.prefix_of(maps.key_of_map(self.name), maps.maps_of(run, session.held.memos.values()))
        terms = asked.terms._replace(prefix=prefix, firsts=tuple(each.first for each in portions))
        under = (run.tenant, run.run, run.visit, self.name)
        stored = {each.first for each in await store.rows(MAP_INPUTS, under)}
        missing = [each for each in portions if each.first not in stored]
        for commit in maps.keep_inputs(run, missing):
            await session.chain.land(commit)
        if self.execution.observed:
            self.execution.record_observed()
        await session.chain.land(maps.begin_map(run, self.name, asked.digest, terms, session.clock.now))

    # --- the window ----------------------------------------------------------------------------------
    async def answer(self, asked: AskedMap) -> MapProgress:
        """Return the progress of the map once it is settled. Raises Unresolved if the run parks."""
        if self.memo is None:
            if not self.execution.may_begin():
                raise Unresolved
            await self._begin(asked)
        progress = await self.move()
        if progress.settled:
            return progress
        self.park(progress)
        raise Unresolved

    async def move(self) -> MapProgress:
        """Count the children that have ended, start the next ones, and return the progress."""
        memo, session = self.memo, self.execution.session
        assert memo is not None
        terms, progress = maps.terms_of(memo), await self.progress()
        if progress.settled:
            return progress
        progress = await self._start(terms, await self._count(terms, progress))
        if not progress.decided:
            return progress
        calls = self._calls()
        await self._stop(calls)
        if maps.living(calls):
            return progress
        commit, progress = maps.settle(session.held.run, progress, session.clock.now)
        await session.chain.land(commit)
        return progress

    def park(self, progress: MapProgress) -> None:
        """Let the run wait until a child of the map has ended."""
        memo = self.memo
        assert memo is not None
        self.execution.park(Parked("park", maps.waiting(maps.terms_of(memo), progress, self._calls()), None))

    def _calls(self) -> dict[int, Effect]:
        held = self.execution.session.held
        return maps.calls_of(self.name, held.run, held.effects.values())

    async def _count(self, terms: MapTerms, progress: MapProgress) -> MapProgress:
        session = self.execution.session
        while True:
            held = session.held
            counted = maps.count(held.run, terms, progress, self._calls(), held.messages)
            if counted is None:
                return progress
            commit, progress = counted
            await session.chain.land(commit)
            if (clears := maps.cleared(session.held.run, progress, session.clock.now)) is not None:
                await session.chain.land(clears)

    async def _start(self, terms: MapTerms, progress: MapProgress) -> MapProgress:
        """Start children until the window is full, or the map is decided."""
        session = self.execution.session
        while not progress.decided:  # an input for which no child can be started takes no place
            room = CHILDREN_MAX - len(session.held.children)
            places = maps.free_places(terms, progress, self._calls(), room)
            if not places or not self.execution.may_begin():
                break
            progress = await self._start_at(places, terms, progress)
        return progress

    async def _start_at(self, places: range, terms: MapTerms, progress: MapProgress) -> MapProgress:
        """Start a child for each of these inputs, or count that it cannot be started."""
        execution, session = self.execution, self.execution.session
        if (left := check_room_left(execution, await start_room(execution), proposed=False)) > 0:
            places = places[:left]
        starts = await self._asked(terms, places)
        now, store = await session.store.now(), session.store
        limited = bool(await limits_of(store, session.held.run.tenant))
        new = [NewChild(execution, each, now) for each in starts]
        taken = dict(zip([each.token_key for each in new], await self._tokens(new), strict=True))
        await take_places(session, sum(token is None for token in taken.values()))
        commits: list[Commit] = []
        for n, each in zip(places, new, strict=True):
            refused = each.refused(taken[each.token_key])
            if refused is None:
                commits.append(each.commit(limited=limited))
                taken[each.token_key] = each.token  # another input may have the same key
                continue
            await self._land(commits)
            commits = []
            text = stored_text(f"{refused.what}: {refused.why}", TEXT_CHARS_MAX)
            commit, progress = maps.not_startable(session.held.run, terms, progress, n, text)
            await session.chain.land(commit)
            if progress.decided:
                return progress
        await self._land(commits)
        return progress

    async def _tokens(self, new: Sequence[NewChild]) -> Sequence[Token | None]:
        return await self.execution.session.store.load_many(TOKEN, [each.token_key for each in new])

    async def _land(self, commits: Sequence[Commit]) -> None:
        for commit in maps.merged(commits):
            await self.execution.session.chain.land(commit)

    async def _asked(self, terms: MapTerms, places: range) -> list[AskedChild]:
        """Return the children for these inputs, as the first execution has written them."""
        run = self.execution.session.held.run
        found: list[AskedChild] = []
        at = bisect_right(terms.firsts, places[0]) - 1
        for first in terms.firsts[at:]:
            if first > places[-1]:
                break
            key = (run.tenant, run.run, run.visit, self.name, first)
            row = await self.execution.session.store.load(MAP_INPUTS, key)
            assert row is not None, "it has landed before the memo"
            inputs = enumerate(row.inputs(), first)
            found += [self._child(terms, place, *each) for place, each in inputs if place in places]
        return found

    def _child(self, terms: MapTerms, place: int, key: str, args: str, undo: dict[str, Any] | None) -> AskedChild:
        run, workflow = self.execution.session.held.run, self.workflow
        planned = None if undo is None else ChildUndo(**undo)
        data = args.encode()
        begun = workflow.begin(data)
        no_undo = NO_UNDO + terms.no_undo if terms.no_undo else ""
        child = NO_CHILD._replace(undo=planned, map=self.name, place=place)
        of, undo_by = child_digest(workflow, begun), no_undo if planned is None else planned.activity
        call = children.ChildCall(run.visit, maps.child_key(terms.prefix, key), of, data, undo_by, child)
        return AskedChild(workflow, call)

    async def _stop(self, calls: Mapping[int, Effect]) -> None:
        """Ask the children that still live to end, because the map is decided."""
        session = self.execution.session
        run, why = session.held.run, f"the map {maps.key_of_map(self.name)} has enough, or cannot have it any more"
        asked = [each for each in maps.living(calls) if not each.child.stop]
        if asked:
            await self._land([children.stop(run, each, why) for each in asked])

    # --- its result ------------------------------------------------------------------------------------
    async def progress(self) -> MapProgress:
        """Return the progress of the map, once its first commit has landed. Raises StoreError."""
        run = self.execution.session.held.run
        found = await self.execution.session.store.load(MAP_PROGRESS, (run.tenant, run.run, run.visit, self.name))
        assert found is not None, "it has landed with the memo"
        return found

    def result(self, asked: AskedMap, progress: MapProgress) -> FanOut[str, Any]:
        """Return what the node gets."""
        keys = [each.key for each in asked.inputs]
        statuses = {key: maps.STATUSES[letter.lower()] for key, letter in zip(keys, progress.states, strict=True)}
        load = OutcomePages(self, asked, {key: n for n, key in enumerate(keys)})
        return FanOut(statuses, SetState(progress.decided), load)


class OutcomePages:
    """Outcomes of a map, read a page at a time when the node asks for one."""

    def __init__(self, wait: MapWait, asked: AskedMap, places: Mapping[str, int]) -> None:
        self._wait = wait
        self._asked = asked
        self._places = places
        self._page: dict[int, MapOutcome] = {}

    async def __call__(self, key: str) -> Loaded[Any]:
        """Return the outcome of a child. Raises ChildFailed."""
        place = self._places[key]
        row = self._page.get(place)
        if row is None:
            execution = self._wait.execution
            visit = execution.session.held.run.visit
            execution.note_progress()
            if execution.closing:
                await execution.never()
            first = place - place % PAGE
            ident = (visit, f"outcomes?{self._wait.name}?{first}")
            page: dict[int, MapOutcome] = await execution.deduplicate(ident, partial(self._read, first))
            self._page, row = page, page[place]
        if not row.error_text:
            return Loaded(self._asked.workflow.decode_outcome(row.answer()), len(row.response or b""))
        error = row.error or NO_ERROR
        memo = self._wait.memo
        assert memo is not None
        name = maps.child_key(maps.terms_of(memo).prefix, key)
        workflow = self._asked.workflow.name
        raise ChildFailed(workflow, name, row.child, error.code, error.detail, (row.visit, name), *error.below)

    async def _read(self, first: int) -> dict[int, MapOutcome]:
        execution = self._wait.execution
        run = execution.session.held.run
        prefix = (run.tenant, run.run, run.visit, self._wait.name)
        rows = await execution.session.store.rows(MAP_OUTCOME, prefix, after=(*prefix, first - 1), limit=PAGE)
        return {row.place: row for row in rows}


# --- without the body ------------------------------------------------------------------------------------
async def open_maps(session: RunSession) -> list[Memo]:
    """Return the memos of the maps of the visit that are not settled, if its body waits for them alone; else []."""
    held, run = session.held, session.held.run
    memos = maps.maps_of(run, held.memos.values())
    if not memos:
        return []
    keys = [(run.tenant, run.run, run.visit, maps.name_of(memo)) for memo in memos]
    found = await session.store.load_many(MAP_PROGRESS, keys)
    left = [memo for memo, row in zip(memos, found, strict=True) if row is not None and not row.settled]
    return left if maps.rests(run, held.memos, [maps.name_of(memo) for memo in left]) else []


async def kept_by_maps(session: RunSession) -> tuple[str, ...]:
    """Return lines about completed children of maps that nothing undoes, for the end of a run. Raises StoreError."""
    held, run = session.held, session.held.run
    undoable = {each.child.map for each in held.effects.values() if each.child_text and each.settled_at}
    memos = [memo for memo in held.memos.values() if memo.activity == MAP and memo.digest]
    named = [(memo, maps.name_of(memo)) for memo in memos if maps.name_of(memo) not in undoable]
    found = await session.store.load_many(
        MAP_PROGRESS, [(run.tenant, run.run, memo.visit, name) for memo, name in named]
    )
    lines = (
        maps.kept(name, maps.terms_of(memo), row)
        for (memo, name), row in zip(named, found, strict=True)
        if row is not None
    )
    return tuple(line for line in lines if line)


async def move_all(execution: NodeExecution, memos: Sequence[Memo]) -> None:
    """Move the windows of these maps. Never returns unless one of them is settled."""
    visit, waits = execution.session.held.run.visit, []
    for memo in memos:
        of = found_workflow(maps.terms_of(memo).workflow).scheduled_by(execution.session.held.run.scheduler)
        wait = MapWait(execution, maps.name_of(memo), of)
        waits.append((wait, await execution.deduplicate((visit, wait.asked_as), wait.move)))
    if not any(progress.settled for _, progress in waits):
        for wait, progress in waits:
            wait.park(progress)
        await execution.never()
