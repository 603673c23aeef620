"""When enough of a set of calls or children have completed: it goes on, has enough, or too few can (S-31).

| the set | it |
|---|---|
| `min_successful` have completed | has enough |
| more than `tolerated_failures` have failed | has too few |
| `min_successful` can no longer complete | has too few |
| some have not ended | goes on |
| all have ended | has enough; without both bounds, too few if one has failed |

The first line that holds decides. It depends on numbers alone, so the order in which calls end changes nothing. Once
a set has ended, no further end of a member opens it again.

A set of calls that ends before all have started has a row, which names those that never start. Others need none,
because the ledger has their outcomes.
"""

import json
from collections.abc import Collection, Iterable, Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from outlast.core.approvals import withdraw
from outlast.core.codec import canonical, digest
from outlast.core.commit import Commit, Instant, Put, in_portions
from outlast.core.rows.effect_rows import MEMO, Approval, Memo
from outlast.core.rows.run_rows import Run
from outlast.core.run_transition import fence
from outlast.errors import InvalidInput

ENDED_EARLY: Final = "do_all?"
"""Prefix of the key of a memo: a set of calls that ended before all had started."""


class SetState(StrEnum):
    """State of a set, by the numbers of those that have completed and failed."""

    GOES_ON = "goes_on"
    ENOUGH = "enough"
    TOO_FEW = "too_few"


class SetBounds(NamedTuple):
    """Size of a set, and when it ends early."""

    total: int
    min_successful: int | None = None
    """Number that must complete; the set ends when so many have. None: all are awaited."""
    tolerated_failures: int | None = None
    """Number that may fail; the set ends when more have. None: any number, as long as `min_successful` can complete."""


def state_of(bounds: SetBounds, completed: int, failed: int) -> SetState:
    """Return what follows for a set, of which so many have completed and failed. The others have not ended."""
    left = bounds.total - completed - failed
    assert left >= 0, "a member ends once"
    least, most = bounds.min_successful, bounds.tolerated_failures
    if least is not None and completed >= least:
        return SetState.ENOUGH
    if (most is not None and failed > most) or (least is not None and completed + left < least):
        return SetState.TOO_FEW
    if left:
        return SetState.GOES_ON
    return SetState.TOO_FEW if failed and least is most is None else SetState.ENOUGH


def check_bounds(of: str, bounds: SetBounds) -> None:
    """Raise InvalidInput if a set cannot have these bounds. `of`: the method that was given them."""
    total, least, most = bounds
    if least is not None and (type(least) is not int or not 1 <= least <= max(total, 1)):
        why = f"it is a number from 1 to that of the set, which has {total:,}"
        raise InvalidInput(f"{of}(min_successful={least!r})", why, "min_successful=1")
    if most is not None and (type(most) is not int or most < 0):
        raise InvalidInput(f"{of}(tolerated_failures={most!r})", "it is a number from 0", "tolerated_failures=0")


# --- the row of a set that ended early --------------------------------------------------------------------
def set_of_calls(bounds: SetBounds, names: Iterable[str]) -> str:
    """Return the key of the memo of a set of calls. It depends on their names and the bounds, never on their order."""
    return ENDED_EARLY + digest(*map(str, bounds), *sorted(names))[:16]


def end_early(run: Run, key: str, names: Collection[str], never: Collection[str], now: Instant) -> Commit:
    """End a set of calls: those in `never` have not started, and never do."""
    at = [n for n, name in enumerate(sorted(set(names))) if name in never]
    assert at and len(never) == len(at), "a set of which all calls have started needs no row"
    of = sorted({name.partition("?")[0] for name in names})
    response = canonical(_Response(at, of)._asdict())
    memo = Memo(run.tenant, run.run, run.visit, key, "", "", response, "", now.business)
    return Commit((Put(MEMO, memo, 0),), fence(run), label=f"{run.run} end {key}")


def withdraw_requests(run: Run, never: Collection[str], approvals: Iterable[Approval], now: Instant) -> list[Commit]:
    """Withdraw the pending requests of the policy for calls that never start. Returns commits in order.

    Stale if one was decided in the meantime.
    """
    asked = (
        each
        for each in approvals
        if each.visit == run.visit
        and each.wait.startswith("policy/")
        and f"{each.plans[0].activity}?{each.plans[0].key}" in never
    )
    puts = (put for each in asked if (put := withdraw(each, now, why="there was enough without it")) is not None)
    return [Commit(portion, fence(run), label=f"{run.run} withdraw requests") for portion in in_portions(puts)]


def never_started(memo: Memo, names: Collection[str]) -> set[str]:
    """Return the names of the calls that never start."""
    in_order = sorted(set(names))
    return {in_order[n] for n in _read(memo).never}


def names_of_set(memo: Memo) -> Iterator[str]:
    """Yield the names for which a re-run must ask: one for each activity of the set, so that its new calls are held."""
    yield from (f"{activity}?{memo.key}" for activity in _read(memo).of)


class _Response(NamedTuple):
    never: list[int]  # places of the calls that never start, in the order of the names
    of: list[str]  # activities of the set


def _read(memo: Memo) -> _Response:
    assert memo.response is not None, "the memo of a set names its calls"
    return _Response(**json.loads(memo.response))
