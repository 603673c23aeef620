"""Checks of maps: each letter of the progress has an outcome, and each outcome its child (S-31)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from outlast.core import maps
from outlast.core.children import place_of
from outlast.core.enough import SetState, state_of
from outlast.core.maps import COMPLETED, FAILED, NOT_STARTED, STATUSES, MapTerms
from outlast.core.rows.effect_rows import EFFECT, MEMO, Effect, Memo
from outlast.core.rows.map_rows import MAP_OUTCOME, MAP_PROGRESS, MapInputs, MapOutcome, MapProgress
from outlast.core.rows.run_rows import Floor, Run, is_over
from outlast.errors import Corrupt
from outlast.upkeep.fsck_checks import Violations, violation


class CheckedMap(NamedTuple):
    """A map as its memo has it, its progress, and its children in the ledger by the places of their inputs."""

    memo: Memo
    terms: MapTerms
    progress: MapProgress
    calls: Mapping[int, Effect]


def map_known(memos: Sequence[Memo], rows: Sequence[MapProgress], floor: Floor | None) -> Violations:
    """Check that each map has its progress, with a letter for each input, and each progress its map.

    Rows behind the `floor` of the history go one kind after the other.
    """
    first = 0 if floor is None else floor.visit
    memos, rows = [memo for memo in memos if memo.visit >= first], [row for row in rows if row.visit >= first]
    named = {(memo.visit, maps.name_of(memo)): memo for memo in memos}
    there = {(row.visit, row.key): row for row in rows}
    for key in named.keys() - there.keys():
        yield violation(MEMO, named[key], "its map has no progress")
    for key, row in there.items():
        if key not in named:
            yield violation(MAP_PROGRESS, row, "no memo names its map")
            continue
        n = maps.terms_of(named[key]).n
        if len(row.states) != n:
            yield violation(MAP_PROGRESS, row, f"it has {len(row.states):,} letters; the map has {n:,} inputs")
        elif unknown := set(row.states.lower()) - STATUSES.keys():
            yield violation(MAP_PROGRESS, row, f"it has the letter {min(unknown)}")


def map_inputs(one: CheckedMap, portions: Sequence[MapInputs]) -> Violations:
    """Check that the portions of inputs are those that the map names, each input once."""
    try:
        sizes = [(row.first, len(row.inputs())) for row in portions]
    except Corrupt as error:
        yield violation(MAP_PROGRESS, one.progress, error.what)
        return
    ends = [first + size for first, size in sizes]
    expected = [*one.terms.firsts[1:], one.terms.n]
    if [first for first, _ in sizes] != [*one.terms.firsts] or ends != expected:
        yield violation(MAP_PROGRESS, one.progress, f"its inputs begin at {[*one.terms.firsts]}; there are {sizes}")


def map_decided(one: CheckedMap) -> Violations:
    """Check that the children that count have decided the map, and that it is settled once all have ended."""
    row, bounds = one.progress, one.terms.bounds
    completed, others = row.states.count(COMPLETED), sum(row.states.count(each) for each in (FAILED, maps.CANCELLED))
    state = state_of(bounds, completed, others)
    if row.decided != ("" if state is SetState.GOES_ON else state.value):
        yield violation(MAP_PROGRESS, row, f"it is decided {row.decided or 'not yet'}; its letters say {state.value}")
    if row.settled and not row.decided:
        yield violation(MAP_PROGRESS, row, "it is settled, and not decided")
    if row.settled and (living := maps.living(one.calls)):
        yield violation(MAP_PROGRESS, row, f"it is settled, and {living[0].key} has not ended")
    if len(living := maps.living(one.calls)) > one.terms.at_most:
        yield violation(MAP_PROGRESS, row, f"{len(living):,} children live; at most {one.terms.at_most:,} may")


def map_calls(one: CheckedMap) -> Violations:
    """Check that a counted child has no row in the ledger, but one that may have to be undone."""
    for place, call in one.calls.items():
        if not 0 <= place < len(one.progress.states):
            yield violation(EFFECT, call, f"of the input {place}; the map has {len(one.progress.states):,}")
        elif one.progress.states[place] != NOT_STARTED and (call.child.undo is None or not call.settled_at):
            yield violation(EFFECT, call, f"it was counted as {one.progress.states[place]}, and its row is there")


def outcomes_counted(
    one: CheckedMap, outcomes: Iterable[MapOutcome], runs: Mapping[str, Run], root: Run | None
) -> Violations:
    """Check outcomes of a map against its letters and the runs of their children. `root`: of the tree."""
    states = one.progress.states
    for row in outcomes:
        letter = states[row.place] if 0 <= row.place < len(states) else NOT_STARTED
        run = runs.get(row.child)
        if letter == NOT_STARTED:
            yield violation(MAP_OUTCOME, row, "it was not counted")
        elif (letter.lower() == COMPLETED) == bool(row.error_text):
            yield violation(MAP_OUTCOME, row, f"it was counted as {letter}, and has {row.error_text or 'no error'}")
        elif not row.child:
            continue
        elif run is None:
            if root is not None and not is_over(root):
                yield violation(MAP_OUTCOME, row, f"its run {row.child} does not exist, and {root.run} has not ended")
        elif run.parent != row.run or place_of(run)[0] != row.visit:
            yield violation(MAP_OUTCOME, row, f"its run {row.child} was started by {run.parent} as {run.called_as}")
        elif is_over(run) and not row.is_detached and STATUSES[letter.lower()].value != run.status.value:
            yield violation(MAP_OUTCOME, row, f"its run {row.child} is {run.status.value}, and counted as {letter}")


def all_counted(one: CheckedMap, places: set[int]) -> Violations:
    """Check that each letter has its outcome. `places`: of the outcomes."""
    ended = (n for n, letter in enumerate(one.progress.states) if letter != NOT_STARTED)
    if lost := [n for n in ended if n not in places]:
        yield violation(MAP_PROGRESS, one.progress, f"it counts the input {lost[0]}, which has no outcome")
