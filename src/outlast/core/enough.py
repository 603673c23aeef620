"""When enough of a set of calls or children have completed: it goes on, has enough, or too few can (S-31).

| the set | it |
|---|---|
| `min_successful` have completed | has enough |
| more than `tolerated_failures` have failed | has too few |
| `min_successful` can no longer complete | has too few |
| some have not ended | goes on |
| all have ended | has enough; without both bounds, too few if one has failed |

The first line that holds decides. It depends on numbers alone, so the order in which calls end changes nothing.
"""

from enum import StrEnum
from typing import NamedTuple

from outlast.errors import InvalidInput


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
