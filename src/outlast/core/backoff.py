"""How long to wait before the next attempt: exponential, with jitter, capped; or as the receiver asks."""

from email.utils import parsedate_to_datetime

from outlast.core.budget import BACKOFF_CEILING, RETRY_FIRST_WAIT, SECOND


def wait_before(
    attempt: int,
    chance: float,
    *,
    first_ms: int = RETRY_FIRST_WAIT,
    ceiling_ms: int = BACKOFF_CEILING,
    factor: float = 2.0,
) -> int:
    """Milliseconds before attempt `attempt` (2, 3, …): jitter in the upper half of first × factor^(attempt − 2).

    `chance` is a random number in [0, 1), handed in.
    """
    assert attempt >= 2 and 0 <= chance < 1
    whole = min(first_ms * factor ** min(attempt - 2, 30), ceiling_ms)
    return int(whole / 2 + whole / 2 * chance)


def asked_wait(retry_after: str, date: str, wall_ms: int, most_ms: int) -> int:
    """Milliseconds that a `Retry-After` header asks for, at most `most_ms`; 0 where it says nothing.

    `date`: the answer's Date header, by which an instant is read; `wall_ms`: this machine's clock where there is none.
    """
    said = retry_after.strip()
    if said.isascii() and said.isdigit():
        return min(int(said[:10]) * SECOND, most_ms)  # beyond ten digits it is beyond the bound in any case
    at, sent = _instant(said), _instant(date)
    if at is None:
        return 0
    seconds = at - (wall_ms / SECOND if sent is None else sent)
    return int(min(max(seconds, 0) * SECOND, most_ms))


def _instant(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, OverflowError):  # whatever a receiver writes into a header
        return None
