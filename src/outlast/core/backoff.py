"""How long to wait before the next attempt: exponential, with jitter, capped."""

from outlast.core.budget import BACKOFF_CEILING, RETRY_FIRST_WAIT


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
