"""Maps: one call that runs a workflow once for each of many inputs, a window of them at a time (S-31).

The inputs land first, in portions. Then a memo names the map, and its progress row has one letter for each input. The
holder starts children until the window is full. A child that has ended is *counted* by the holder: in one commit, its
outcome takes the place of its row in the ledger and of its message, and its letter is set. So the ledger of the parent
has the rows of a window, however many inputs there are.

Possible faults, and why no child is lost, repeated or counted twice:

- *The holder dies before the memo has landed.* No child was started. The portions have the digest of the inputs in
  their name, so the next execution finds those that are the same.
- *The holder dies after a start.* The row of the child is in the ledger, with its place in the map.
- *The holder dies after a child has ended.* Its row is in the ledger until it is counted.
- *A re-run asks for other keys or inputs.* Their digest is in the name of the map, so it asks for another map, and not
  for the recorded one: a person decides (S-27).
- *A child ends while the rest is cancelled.* Its letter says that it ended later: it is a result, and does not decide.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from outlast.core.children import CHILD_KIND
from outlast.core.codec import digest
from outlast.core.commit import Commit, Erase, Instant, Put, actions_of, bytes_of, further_items, in_portions
from outlast.core.divergence import MAP
from outlast.core.enough import SetBounds, SetState, state_of
from outlast.core.limits import ACTIONS_MAX, LARGE_ITEMS_MAX, PORTION_BYTES
from outlast.core.machine import EffectStatus, MemberStatus, RunStatus
from outlast.core.rows.effect_columns import ERROR, EffectError
from outlast.core.rows.effect_rows import EFFECT, MEMO, Effect, Memo
from outlast.core.rows.map_rows import MAP_INPUTS, MAP_OUTCOME, MAP_PROGRESS, MapInputs, MapOutcome, MapProgress
from outlast.core.rows.row_kind import key_of
from outlast.core.rows.run_columns import WaitingFor
from outlast.core.rows.run_rows import MESSAGE, Message, Run
from outlast.core.run_transition import LogEntry, fence, write_log

WAITED: Final = "map/"
"""Before the name of a map in `WaitingFor.who`; no id of a run begins so."""
NOT_STARTED, COMPLETED, FAILED, CANCELLED = "-", "c", "f", "x"
"""Letters of `MapProgress.states`. Those of children that ended after the map was decided are capitals."""
STATUSES: Final[Mapping[str, MemberStatus]] = {
    COMPLETED: MemberStatus.COMPLETED,
    FAILED: MemberStatus.FAILED,
    CANCELLED: MemberStatus.CANCELLED,
    NOT_STARTED: MemberStatus.NOT_STARTED,
}
INPUTS_BYTES: Final = 64 * 1024
"""A portion of inputs ends before the one that would exceed this: the next window decodes it anew."""
COUNTED_MAX: Final = 20  # children that one commit counts; each takes three to five of its actions
NOT_STARTABLE: Final = "not_startable"
"""Code of an input for which no child could be started."""


class MapTerms(NamedTuple):
    """Terms of a map, as its first execution has fixed them."""

    workflow: str
    n: int
    at_most: int
    min_successful: int | None
    tolerated_failures: int | None
    no_undo: str
    prefix: str = ""
    """Of the keys of its children: its key, with a number if the visit has another map of this key."""
    firsts: tuple[int, ...] = ()
    """Place of the first input of each portion."""

    @property
    def bounds(self) -> SetBounds:
        """Return when the map ends early."""
        return SetBounds(self.n, self.min_successful, self.tolerated_failures)


class MapInput(NamedTuple):
    """One input of a map."""

    key: str
    args: str  # JSON
    undo: dict[str, object] | None = None  # a ChildUndo


# --- the first execution ------------------------------------------------------------------------------
def map_digest(workflow: str, inputs: Iterable[MapInput]) -> str:
    """Return the digest of all keys and inputs, in their order."""
    return digest(workflow, *(part for each in inputs for part in (each.key, each.args)))


def map_name(key: str, of: str) -> str:
    """Return the name of a map in its visit. `of`: the digest of its keys and inputs."""
    return f"{key}?{of[:16]}"


def portions_of(run: Run, name: str, inputs: Sequence[MapInput]) -> list[MapInputs]:
    """Return the rows of the inputs of a map."""
    firsts, left = [0], INPUTS_BYTES
    for place, each in enumerate(inputs):
        size = len(each.key) + len(each.args)
        if left < size and place > firsts[-1]:
            firsts.append(place)
            left = INPUTS_BYTES
        left -= size
    ends = [*firsts[1:], len(inputs)]
    return [
        MapInputs(run.tenant, run.run, run.visit, name, first, json.dumps(inputs[first:end]).encode())
        for first, end in zip(firsts, ends, strict=True)
    ]


def keep_inputs(run: Run, rows: Iterable[MapInputs]) -> list[Commit]:
    """Write rows of inputs, before the map begins. Returns commits in order."""
    portions = in_portions(Put(MAP_INPUTS, each, 0) for each in rows)
    return [Commit(puts, fence(run), label=f"{run.run} map inputs {n}") for n, puts in enumerate(portions)]


def begin_map(run: Run, name: str, of: str, terms: MapTerms, now: Instant) -> Commit:
    """Write the memo of a map, and its progress. `of`: digest of its keys and inputs."""
    response = json.dumps(terms._asdict()).encode()
    memo = Memo(run.tenant, run.run, run.visit, memo_key(name), MAP, of, response, "", now.business)
    state = state_of(terms.bounds, 0, 0)
    decided = "" if state is SetState.GOES_ON else state.value
    progress = MapProgress(run.tenant, run.run, run.visit, name, 1, NOT_STARTED * terms.n, decided, 0)
    return Commit((Put(MEMO, memo, 0), Put(MAP_PROGRESS, progress, 0)), fence(run), label=f"{run.run} map {name}")


def memo_key(name: str) -> str:
    """Return the key of the memo of a map."""
    return f"map?{name}"


def terms_of(memo: Memo) -> MapTerms:
    """Return the terms of a map."""
    plain = json.loads(memo.response or b"{}")
    return MapTerms(**{**plain, "firsts": tuple(plain["firsts"])})


def name_of(memo: Memo) -> str:
    """Return the name of the map of a memo."""
    return memo.key.removeprefix("map?")


def key_of_map(name: str) -> str:
    """Return the key of a map, as its node has given it."""
    return name.rpartition("?")[0]


def title(workflow: str, name: str) -> str:
    """Return a map as people read it: its workflow, and its key if that is another word."""
    key = key_of_map(name)
    return workflow if key == workflow else f"{workflow} {key}"


def prefix_of(key: str, memos: Iterable[Memo]) -> str:
    """Return what the keys of the children of a new map begin with. `memos`: of the other maps of the visit."""
    others = sum(key_of_map(name_of(memo)) == key for memo in memos)
    return f"{key}.{others + 1}" if others else key


def child_key(prefix: str, of: str) -> str:
    """Return the key of a child in the ledger. `of`: the key of its input."""
    return f"{prefix}/{of}"


# --- what a holder finds ------------------------------------------------------------------------------
def maps_of(run: Run, memos: Iterable[Memo]) -> list[Memo]:
    """Return the memos of the maps of the visit."""
    return [memo for memo in memos if memo.activity == MAP and memo.visit == run.visit and memo.digest]


def rests_memo(run: Run, names: Iterable[str], now: Instant) -> Memo:
    """Return the memo which says that an execution of this code waits for these maps alone."""
    return Memo(run.tenant, run.run, run.visit, _rests_key(run, names), MAP, "", None, "", now.business)


def rests(run: Run, memos: Mapping[tuple[int, str], Memo], names: Collection[str]) -> bool:
    """Return True if the body waits for these maps alone, which are not settled."""
    return bool(names) and (run.visit, _rests_key(run, names)) in memos


def _rests_key(run: Run, names: Iterable[str]) -> str:
    return f"map-rests?{digest(run.lane, *sorted(names))[:16]}"


def calls_of(name: str, run: Run, effects: Iterable[Effect]) -> dict[int, Effect]:
    """Return the rows of the children of a map that are in the ledger, by the places of their inputs."""
    mine = (each for each in effects if each.child_text and each.visit == run.visit)
    return {each.child.place: each for each in mine if each.child.map == name}


def to_count(progress: MapProgress, calls: Mapping[int, Effect]) -> list[int]:
    """Return the places of the children that have ended and are not counted yet, in the order of their ends."""
    ended = (n for n, each in calls.items() if each.settled_at and progress.states[n] == NOT_STARTED)
    return sorted(ended, key=lambda n: (calls[n].settled_at, n))


def living(calls: Mapping[int, Effect]) -> list[Effect]:
    """Return the children that have not ended."""
    return [each for _, each in sorted(calls.items()) if not each.settled_at]


def next_place(progress: MapProgress, calls: Mapping[int, Effect]) -> int:
    """Return the place of the first input without a child."""
    return max(len(progress.states.rstrip(NOT_STARTED)), max(calls, default=-1) + 1)


def free_places(terms: MapTerms, progress: MapProgress, calls: Mapping[int, Effect], room: int) -> range:
    """Return the places of the inputs for which children may be started now. `room`: what their parent may start."""
    first = next_place(progress, calls)
    free = min(terms.at_most - len(living(calls)), room, terms.n - first)
    return range(first, first + max(free, 0))


# --- moving the window ----------------------------------------------------------------------------------
def letter_of(call: Effect) -> str:
    """Return the letter of a child that has ended."""
    if call.status is EffectStatus.DONE:
        return COMPLETED
    return CANCELLED if call.code == RunStatus.CANCELLED else FAILED


def count(
    run: Run,
    terms: MapTerms,
    progress: MapProgress,
    calls: Mapping[int, Effect],
    messages: Sequence[Message],
) -> tuple[Commit, MapProgress] | None:
    """Count children that have ended, as many as one commit takes; None for no child.

    A row that may have to be undone stays in the ledger. Of the others nothing but the outcome is kept.
    """
    puts: list[Put] = []
    erased: list[Erase] = []
    size, actions = 0, 0
    for n in to_count(progress, calls)[:COUNTED_MAX]:
        call = calls[n]
        row, mine = outcome_of(progress, n, call), _erased(call, messages)
        size += bytes_of(row)
        actions += 1 + sum(1 + further_items(each.size) for each in mine)
        if puts and (size > PORTION_BYTES or actions + LARGE_ITEMS_MAX + 5 > ACTIONS_MAX):
            break
        puts.append(Put(MAP_OUTCOME, row, 0))
        erased += mine
        progress = with_letter(terms, progress, n, letter_of(call))
    if not puts:
        return None
    progress = progress._replace(version=progress.version + 1)
    puts.append(Put(MAP_PROGRESS, progress, progress.version - 1))
    return Commit((*puts, *erased), fence(run), label=f"{run.run} map count {progress.key}"), progress


def cleared(run: Run, progress: MapProgress, now: Instant) -> Commit | None:
    """Clear the deaths that were counted against a run once its map has counted children; None without one (S-5).

    A long map has no advance that does. The entry of the history names the claim, so there is one for each.
    """
    if not (run.crash_count or run.group_max):
        return None
    text = f"the map {key_of_map(progress.key)} goes on: children were counted after workers died"
    entry = LogEntry(f"outlast/map/{progress.key}/on/{run.epoch}", text, {"map": progress.key})
    return write_log(run._replace(crash_count=0, group_max=0), [entry], now=now)


def outcome_of(progress: MapProgress, n: int, call: Effect) -> MapOutcome:
    """Return the outcome of a child that has ended."""
    tenant, run, visit, key, *_ = progress
    return MapOutcome(tenant, run, visit, key, n, call.external_id, call.response, call.error_text)


def _erased(call: Effect, messages: Iterable[Message]) -> list[Erase]:
    told = [Erase(MESSAGE, key_of(MESSAGE, m)) for m in messages if m.kind == CHILD_KIND and m.name == call.key]
    if call.child.undo is not None:
        return told
    return [Erase(EFFECT, key_of(EFFECT, call), bytes_of(call)), *told]


def with_letter(terms: MapTerms, progress: MapProgress, n: int, letter: str) -> MapProgress:
    """Return the progress once a child counts; decided if it has decided the map."""
    if progress.decided:
        letter = letter.upper()
    states = f"{progress.states[:n]}{letter}{progress.states[n + 1 :]}"
    progress = progress._replace(states=states)
    if progress.decided:
        return progress
    left = states.count(NOT_STARTED)
    completed = states.count(COMPLETED)
    state = state_of(terms.bounds, completed, terms.n - left - completed)
    return progress if state is SetState.GOES_ON else progress._replace(decided=state.value)


def not_startable(run: Run, terms: MapTerms, progress: MapProgress, n: int, why: str) -> tuple[Commit, MapProgress]:
    """Count an input for which no child can be started as failed."""
    error = ERROR.encode(EffectError(NOT_STARTABLE, why))
    tenant, run_id, visit, key, *_ = progress
    row = MapOutcome(tenant, run_id, visit, key, n, "", None, error)
    progress = with_letter(terms, progress, n, FAILED)._replace(version=progress.version + 1)
    writes = (Put(MAP_OUTCOME, row, 0), Put(MAP_PROGRESS, progress, progress.version - 1))
    return Commit(writes, fence(run), label=f"{run.run} map count {key}"), progress


def settle(run: Run, progress: MapProgress, now: Instant) -> tuple[Commit, MapProgress]:
    """Let the node go on: no child of the map lives, and no further one is started."""
    assert progress.decided
    row = progress._replace(version=progress.version + 1, settled=max(now.business, 1))
    put = Put(MAP_PROGRESS, row, progress.version)
    return Commit((put,), fence(run), label=f"{run.run} map settle {row.key}"), row


def counts(progress: MapProgress) -> dict[str, int]:
    """Return how many children have completed, failed, were cancelled, and have no counted end."""
    states = progress.states.lower()
    return {status.value: states.count(letter) for letter, status in STATUSES.items()}


def kept(name: str, terms: MapTerms, progress: MapProgress) -> str:
    """Return what stays of a map if its run fails: its completed children, of which no row says so. '' for none."""
    n = counts(progress)[MemberStatus.COMPLETED.value]
    why = f": {terms.no_undo}" if terms.no_undo else ""
    return f"{title(terms.workflow, name)}: {n:,} completed {'run' if n == 1 else 'runs'} of its map{why}" if n else ""


def counts_text(found: Mapping[str, int]) -> str:
    """Return the counts for people, without those that are 0."""
    return ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in found.items() if n) or "it had no inputs"


def waiting(terms: MapTerms, progress: MapProgress, calls: Mapping[int, Effect]) -> WaitingFor:
    """Return what operators see of a run that waits for a map."""
    ended, alive = terms.n - progress.states.count(NOT_STARTED), len(living(calls))
    what = f"{title(terms.workflow, progress.key)}: {ended:,} of {terms.n:,} have ended, {alive:,} run"
    is_last = progress.decided or next_place(progress, calls) >= terms.n
    then = "continues when these have ended" if is_last else "starts the next ones"
    return WaitingFor(CHILD_KIND, what, who=f"{WAITED}{progress.key}", then=then)


def waited_map(wait: WaitingFor) -> str:
    """Return the name of the map that a run waits for; '' for other waits."""
    return wait.who.removeprefix(WAITED) if wait.kind == CHILD_KIND and wait.who.startswith(WAITED) else ""


def waited(waits: Sequence[WaitingFor]) -> list[str] | None:
    """Return the names of the maps that a run waits for; None if it waits for anything else, too."""
    names = [name for each in waits if (name := waited_map(each))]
    return names if names and len(names) == len(waits) else None


def merged(commits: Sequence[Commit]) -> list[Commit]:
    """Return commits of one holder as few ones, in their order. No two of them may write the same row."""
    found: list[Commit] = []
    size = 0
    for commit in commits:
        more = sum(bytes_of(write.row) for write in commit.writes if isinstance(write, Put))
        if found:
            last = found[-1]
            both = last._replace(writes=(*last.writes, *commit.writes), expects=(*last.expects, *commit.expects))
            if size + more <= PORTION_BYTES and actions_of(both, LARGE_ITEMS_MAX) <= ACTIONS_MAX:
                found[-1], size = both, size + more
                continue
        found.append(commit)
        size = more
    return found
