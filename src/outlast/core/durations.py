"""Durations of the engine in milliseconds, each with its requirement or its reason.

Two kinds (S-4). *Liveness* durations (heartbeat, call timeout, settle time, budget) are real time. *Business* durations
(approvals, ceilings) follow the business clock, which tests may speed up. Ids such as CKP-7 refer to
docs/requirements.md.
"""

import re
from collections.abc import Iterable
from datetime import timedelta
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple, TypeAlias

from outlast.core.business_days import BusinessDays
from outlast.errors import InvalidInput

SECOND: Final = 1_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
FAR: Final = 36_525 * DAY
"""100 years: the longest duration, and how far an instant may lie ahead. Above it, a calendar's year overflows."""

# --- business -------------------------------------------------------------------------------
APPROVAL_WITHIN: Final = 96 * HOUR  # GATE-3
APPROVAL_STALE_AFTER: Final = 7 * DAY  # counted from the approval's timeout (GATE-3)
RUN_CEILING: Final = 168 * HOUR  # asks a person, never ends the run by itself (GATE-4)
APPROVAL_VALID_FOR: Final = 24 * HOUR  # from the decision to its use (S-20)
RUNS_KEPT: Final = 30 * DAY  # checkpoints, events and everything else, counted from the run's end (CKP-7)
LEDGER_KEPT: Final = 7 * DAY  # effects, memos and late answers, counted from the run's end (CKP-7)

# --- liveness: recovery ------------------------------------------------------------------------
RECOVERY_TARGET: Final = 30 * SECOND  # REC-4
RESUME_TARGET: Final = 5 * SECOND  # GATE-2
HEARTBEAT_WINDOW: Final = 15 * SECOND  # half the recovery target
HEARTBEAT_EVERY: Final = 5 * SECOND  # a third of the window: two renewals may be lost
LOOP_STALL_MAX: Final = 20 * SECOND  # event loop without a tick: stop renewing the lease (S-5)
DRAIN_GRACE: Final = 25 * SECOND  # below the 30 s that orchestrators leave between SIGTERM and SIGKILL
ATTEMPT_TIMEOUT: Final = 120 * SECOND  # a call to an agent of a supplier
START_BUDGET: Final = 30 * SECOND  # cold start of a receiver; here the time from intent to sending (not_after)
ATTEMPTS_MAX: Final = 3  # EFF-4
BACKOFF_CEILING: Final = 45 * SECOND  # EFF-4
CHECKPOINT_WRITE: Final = 5 * SECOND  # REC-2
SAFETY: Final = 1.2  # REC-2

# --- poison (S-5) ---------------------------------------------------------------------------
DEATHS_THEN_GROUPS: Final = 2  # deaths of its worker after which a run is held beside half as many runs
DEATHS_ALONE_MAX: Final = 3  # deaths of a worker that held this run alone, before a person is asked
GROUP_PATIENCE: Final = RESUME_TARGET  # wait before a worker releases runs for one that no worker has capacity for

# --- liveness: calls -------------------------------------------------------------------------------
SETTLE_MARGIN: Final = (
    30 * SECOND
)  # added to not_after + attempt timeout, for a request that is still in transit (S-17)
RETRY_TOTAL_WAIT: Final = 60 * SECOND  # sum of the waits between attempts, not the elapsed time (EFF-4)
RETRY_FIRST_WAIT: Final = 1 * SECOND
RETRY_AFTER_MAX: Final = 168 * HOUR  # maximum that a receiver may ask for; as long as RUN_CEILING
INLINE_WAIT_MAX: Final = 5 * SECOND  # a longer wait parks the run (S-17)
CLOCK_STEP: Final = 10 * SECOND  # step of the wall clock that is logged, and followed if it goes forward
CLOCK_DIFFERENCE_MAX: Final = (
    2 * SECOND
)  # DynamoDB: of a process's clock from the service's; their Date header, in whole seconds, shows up to 1 s of it (S-4)
CLOCK_SKEW: Final = 2 * CLOCK_DIFFERENCE_MAX  # of two processes that each keep within it: one is fast, one slow
LOCK_KEPT: Final = 1 * HOUR  # DynamoDB: row of a recovery lock after its end, until TTL may delete it (REC-1)
CLOCK_DISAGREEMENT_MAX: Final = 1 * SECOND  # boot, wall and monotonic clocks since the intent (S-4)
FOREIGN_AWAIT_GRACE: Final = 1 * SECOND  # for a parked execution that awaits something outside the context (S-16)

# --- liveness: polling for work ------------------------------------------------------------------
LINGER: Final = 10  # how long a commit without a waiter is held for the next batch (S-10)
CHANGE_POLL: Final = 20  # SQLite: shortest interval between checks for commits of other processes (decision 0026)
FILE_CHECK: Final = (
    1 * SECOND
)  # SQLite: interval of checks that the path still leads to the same file; 10 us each (decision 0049)
TURN_PATIENCE: Final = (
    HEARTBEAT_EVERY // 2
)  # SQLite: a longer wait for the write lock is logged, before a lease renewal is missed
HOLD_LOOK_AGAIN: Final = 60 * SECOND  # poll interval of a run that waits for the end of a pause
SHARED_LOOK_AGAIN: Final = HOLD_LOOK_AGAIN  # poll interval of a run that waits for a shared effect
BREAKER_AFTER: Final = (
    ATTEMPTS_MAX + 2
)  # consecutive failures; one run that uses up its attempts opens no breaker (S-23)
BREAKER_PAUSE: Final = (
    RECOVERY_TARGET  # a provider that recovers within our own recovery target is found at the first try
)
BREAKER_PAUSE_MAX: Final = 10 * MINUTE  # within this time the end of an outage is noticed
NOTICE_TIMEOUT: Final = 10 * SECOND  # a notification not accepted by then has failed (GATE-5)
NOTICE_LAST_CHANCE: Final = 2 * SECOND  # when a worker stops; with DRAIN_GRACE still below the 30 s of orchestrators
STORE_RETRY: Final = 200  # retry interval while the store is unavailable
KEPT_LOOK: Final = 100  # poll interval while a slot is reserved
SHARE_LOOK: Final = 500  # until a worker that was slower to close a dead worker's row claims of its runs, too
IDLE_LOOK: Final = RESUME_TARGET  # fallback poll for due runs, if no notification wakes the worker

# --- liveness: webhooks (OUT-2) -----------------------------------------------------
DELIVERY_TIMEOUT: Final = 10 * SECOND  # from name resolution to the response headers; as long again for the body
DELIVERY_DNS_TIMEOUT: Final = 3 * SECOND  # share of it for name resolution
DELIVERY_CLAIM: Final = 30 * SECOND  # three deliveries; then another dispatcher takes over the cursors of a dead one
DELIVERY_FIRST_WAIT: Final = 5 * SECOND  # time in which a receiver restarts
DELIVERY_BACKOFF_CEILING: Final = 1 * HOUR
DELIVERY_ATTEMPTS_MAX: Final = 30  # about a day: 5 s, 15 s, 45 s, … 1 h, less the jitter
DELIVERY_RETRY_AFTER_MAX: Final = 1 * DAY  # maximum that a receiver may ask for
DELIVERY_PAUSE_CEILING: Final = 5 * MINUTE  # of a receiver that asks to wait again and again, and names no longer time
DELIVERY_SIGN: Final = 10 * SECOND  # heartbeat of a dispatcher while there are subscriptions
DELIVERY_ALIVE: Final = 3 * DELIVERY_SIGN  # a dispatcher without a heartbeat for this long is dead
DELIVERY_LOOK: Final = 250  # poll interval for events of other processes while there are subscriptions
ANSWERS_KEPT: Final = 7 * DAY  # stored answers to Idempotency-Keys; tokens of starts and signals stay
FORK_STARTS_KEPT: Final = 7 * DAY  # of a fork that no run was made of, from its first commit
WORKERS_KEPT: Final = 7 * DAY  # real; row of a closed worker, from the end of its lease
FORGET_EVERY: Final = 10 * MINUTE  # real; interval at which workers purge
SECRET_KEPT: Final = 1 * DAY  # after a rotation both secrets sign for this long


class Liveness(NamedTuple):
    """Liveness durations that a deployment may set, one second or more."""

    heartbeat_window: int = HEARTBEAT_WINDOW
    heartbeat_every: int = HEARTBEAT_EVERY
    loop_stall_max: int = LOOP_STALL_MAX
    drain_grace: int = DRAIN_GRACE
    attempt_timeout: int = ATTEMPT_TIMEOUT
    start_budget: int = START_BUDGET
    settle_margin: int = SETTLE_MARGIN
    attempts_max: int = ATTEMPTS_MAX
    backoff_ceiling: int = BACKOFF_CEILING
    checkpoint_write: int = CHECKPOINT_WRITE
    breaker_after: int = BREAKER_AFTER  # number of failed calls; 0 = no circuit breakers
    breaker_pause: int = BREAKER_PAUSE
    breaker_pause_max: int = BREAKER_PAUSE_MAX
    runs_kept: int = RUNS_KEPT  # business, after a run's end; 0 = workers purge no runs
    ledger_kept: int = LEDGER_KEPT  # business, after a run's end; 0 = a ledger is kept as long as its run
    threads_kept: int = 0  # business, after the last change of a thread of LangGraph; 0 = workers purge no threads

    def checked(self) -> "Liveness":
        """Return self. Raises ValueError with a sentence that names the first relation that does not hold."""
        if 3 * self.heartbeat_every > self.heartbeat_window:
            raise ValueError(
                f"a heartbeat every {self.heartbeat_every} ms leaves no room for two lost renewals "
                f"in a window of {self.heartbeat_window} ms"
            )
        if not 0 < self.breaker_pause <= self.breaker_pause_max:
            raise ValueError("the first pause of a breaker is positive, and at most its longest")
        if max(self) > FAR:
            raise ValueError("a duration is at most 100 years")
        if min(self) < 0 or self.attempt_timeout == 0 or self.attempts_max == 0:
            raise ValueError("durations and attempts are positive")
        return self


class ClaimTime(NamedTuple):
    """Longest time that a worker holds a claimed run without releasing it, and its derivation (REC-2).

    Users read it as the execution budget. In code a budget is one of money, tokens or calls (`core/budget.py`).
    """

    ms: int
    derivation: str


def longest_claim(live: Liveness, calls: Iterable[tuple[int, int]] = ()) -> ClaimTime:
    """Return the time for the longest of `calls` (attempt timeout in ms, attempts) and of the defaults.

    It is 1.2 × ((attempt timeout + cold start) × attempts + back-off ceiling + checkpoint write).
    """
    timeout, attempts = max(
        [(live.attempt_timeout, live.attempts_max), *calls], key=lambda c: (c[0] + live.start_budget) * c[1]
    )
    worst = (timeout + live.start_budget) * attempts + live.backoff_ceiling + live.checkpoint_write
    ms = round(worst * SAFETY)
    derivation = (
        f"({timeout / SECOND:g} s attempt timeout + {live.start_budget / SECOND:g} s cold start) × {attempts} attempts"
        f" + {live.backoff_ceiling / SECOND:g} s back-off ceiling"
        f" + {live.checkpoint_write / SECOND:g} s checkpoint write"
        f" = {worst / SECOND:g} s, × {SAFETY:g} = {ms / SECOND:g} s"
    )
    return ClaimTime(ms, derivation)


assert longest_claim(Liveness()).ms == 600 * SECOND, "REC-2: the defaults give 600 s"
assert Liveness().checked()
assert HEARTBEAT_WINDOW + HEARTBEAT_EVERY < RECOVERY_TARGET, "a dead worker is replaced within the target"
assert HEARTBEAT_WINDOW + CLOCK_SKEW + HEARTBEAT_EVERY < RECOVERY_TARGET, "also if its clock and ours differ"
assert LOOP_STALL_MAX < HEARTBEAT_WINDOW + RECOVERY_TARGET, "a frozen loop loses its runs, not the target"
assert BREAKER_AFTER > ATTEMPTS_MAX and BREAKER_PAUSE > INLINE_WAIT_MAX, "a pause is worth parking for"
assert DRAIN_GRACE + NOTICE_LAST_CHANCE < 30 * SECOND
assert INLINE_WAIT_MAX < BACKOFF_CEILING < RETRY_TOTAL_WAIT
assert DELIVERY_DNS_TIMEOUT < DELIVERY_TIMEOUT < DELIVERY_CLAIM / 2, "a claim outlives the delivery that it covers"
assert DELIVERY_FIRST_WAIT < DELIVERY_BACKOFF_CEILING < DELIVERY_RETRY_AFTER_MAX
assert SETTLE_MARGIN > CLOCK_DISAGREEMENT_MAX, "the settle time covers what the last-instant check tolerates"
assert APPROVAL_WITHIN + APPROVAL_STALE_AFTER > RUN_CEILING, "so a ceiling must be declared, not assumed (GATE-4)"


Duration: TypeAlias = timedelta | str
"""A `timedelta`, or text such as "500ms", "10m", "96h", "1d" or "1h30m"."""
Term: TypeAlias = Duration | BusinessDays
"""A duration of business time, or a number of business days (`business_days`)."""
CALENDAR_PLACES: Final = "business days are for within=, timeout=, until=, valid_for= and ceiling= alone"
UNITS: Final = {"ms": 1, "s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY, "w": 7 * DAY}
WRITTEN: Final = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)(ms|s|m|h|d|w)")


TOO_FAR: Final = "the limit is 100 years"
NO_END: Final = "leave the timeout out for a wait without end"


def too_far(what: str, given: object) -> InvalidInput:
    """Return the error of a duration or an instant that is more than 100 years ahead."""
    return InvalidInput(f"{what} is {given!r}"[:200], TOO_FAR, NO_END)


def check_near(what: str, given: object, ms: float) -> None:
    """Raise InvalidInput if a duration, or the time to an instant, exceeds 100 years. `given`: as it was written."""
    if abs(ms) > FAR:
        raise too_far(what, given)


def milliseconds(text: str) -> int:
    """Return the milliseconds of a text such as 500ms, 2s, 10m or 1h30m, up to 100 years. Raises ValueError."""
    if (ms := _parsed(text)) > FAR:
        raise ValueError(f"{text!r} is too long: {TOO_FAR}; leave it out if there is to be no end")
    return ms


def _parsed(text: str) -> int:
    parts = WRITTEN.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is no duration: write 500ms, 2s, 10m or 1h30m")
    return round(sum(float(number) * UNITS[unit] for number, unit in parts))


def timedelta_of(what: str, given: Duration) -> timedelta:
    """Return a duration as `timedelta`, up to 100 years. Raises InvalidInput, which calls it `what`."""
    span = _span_of(what, given)
    check_near(what, given, span / timedelta(milliseconds=1))
    return span


def _span_of(what: str, given: Duration) -> timedelta:
    if isinstance(given, timedelta):
        return given
    try:
        ms = _parsed(given)
    except (TypeError, ValueError):  # a caller without a type checker may pass anything
        why = 'a duration is a timedelta, or text such as "500ms", "10m", "96h", "1d" or "1h30m"'
        wrong: object = given
        why = CALENDAR_PLACES if isinstance(wrong, BusinessDays) else why
        raise InvalidInput(f"{what} is {given!r}"[:200], why, 'e.g. "12h" or timedelta(hours=12)') from None
    try:
        return timedelta(milliseconds=ms)
    except OverflowError:
        raise too_far(what, given) from None


def ms_of(what: str, given: Duration, *, any_length: bool = False) -> int:
    """Return a duration in milliseconds. Raises as `timedelta_of`.

    `any_length`: the caller checks the length (`check_near`) if no row has the instant already.
    """
    span = _span_of(what, given) if any_length else timedelta_of(what, given)
    return int(span / timedelta(milliseconds=1))


def span(ms: int) -> str:
    """Write a duration with at most two units, rounded to the smaller one: 0.4s, 28s, 3m20s, 56h, 4d6h."""
    if ms < 9_950:
        return f"{ms / SECOND:.1f}".removesuffix(".0") + "s"
    if (seconds := _nearest(ms, SECOND)) < 60:
        return f"{seconds}s"
    if seconds < 10 * 60:
        return _two(seconds, 60, "m", "s")
    if (minutes := _nearest(ms, MINUTE)) < 2 * 60:
        return f"{minutes}m"
    if (hours := _nearest(ms, HOUR)) < 100:
        return f"{hours}h"
    return _two(hours, 24, "d", "h")


def measured_span(ms: int) -> str:
    """Write a measured duration: below a second in milliseconds, else as `span`. A negative one counts as 0."""
    return f"{max(0, ms)} ms" if ms < SECOND else span(ms)


def _nearest(ms: int, unit: int) -> int:
    return (ms + unit // 2) // unit


def _two(count: int, per: int, large: str, small: str) -> str:
    rest = count % per
    return f"{count // per}{large}" + (f"{rest}{small}" if rest else "")


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

    `date`: the answer's Date header, by which an instant is read; `wall_ms`: this machine's clock if there is no Date
    header.
    """
    text = retry_after.strip()
    if text.isascii() and text.isdigit():
        return min(int(text[:10]) * SECOND, most_ms)  # beyond ten digits it is beyond the bound in any case
    at, sent = _instant(text), _instant(date)
    if at is None:
        return 0
    seconds = at - (wall_ms / SECOND if sent is None else sent)
    return int(min(max(seconds, 0) * SECOND, most_ms))


def _instant(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, OverflowError):  # whatever a receiver writes into a header
        return None
