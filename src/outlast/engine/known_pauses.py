"""Pauses of operators and circuit breakers of providers (S-23).

An operator pauses the kinds that `What` lists. A breaker pauses a provider that is away, and lets one run at a time try
it. A worker reads a change within one heartbeat.
"""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple, get_args

from outlast.core.acts import KeyedAct, with_token
from outlast.core.commit import Commit, Instant, Put, Wake, When
from outlast.core.durations import INLINE_WAIT_MAX, Liveness
from outlast.core.effect_steps import Answered, Maybe, No, Outcome, Unsent
from outlast.core.keys import check_given_reason
from outlast.core.limits import SMALL_ROWS_MAX, TEXT_CHARS_MAX
from outlast.core.paging import pages
from outlast.core.rows.limit_rows import PAUSE, Pause
from outlast.core.rows.run_columns import WaitingFor, What
from outlast.core.rows.run_rows import RUN, Run, is_over
from outlast.engine.call_outcome import TIMED_OUT
from outlast.errors import Conflict, InvalidInput, NotFound, Stale, StoreError
from outlast.store.landed_acts import done_before
from outlast.store.port import Store

TENANT = "tenant"
OPERATOR, BREAKER = "operator", "breaker"
PAGE = 500
KINDS: Final = get_args(What)


def pause_key(what: str, name: str = "") -> str:
    """Return the key of a pause: the kind and a name, as in `activity/NAME`, or `tenant`. Raises InvalidInput."""
    if what in KINDS and bool(name) == (what != TENANT):
        return f"{what}/{name}" if name else what
    named = " or ".join(each for each in KINDS if each != TENANT)
    raise InvalidInput(
        f"{what} {name} cannot be paused", f"{named} needs a name, {TENANT} has none", "pause activity NAME"
    )


def resume_command(key: str) -> str:
    """Return the command that ends a pause."""
    return f"outlast resume {key.replace('/', ' ')}"


class PauseCache:
    """Pauses as a worker last read them. A pause is read again before it stops a run."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.up: dict[tuple[str, str], Pause] = {}  # empty: no run needs to ask `first`

    async def refresh(self) -> None:
        """Read all pauses in effect. Raises StoreError."""
        rows = await self._store.rows(PAUSE, ())
        self.up = {(h.tenant, h.key): h for h in rows if h.up}

    def update(self, pause: Pause) -> None:
        """Update one pause that this worker has written or read."""
        if pause.up:
            self.up[pause.tenant, pause.key] = pause
        else:
            self.up.pop((pause.tenant, pause.key), None)

    async def stopping(self, run: Run) -> Pause | None:
        """Return the first pause in effect that stops the execution of a run, or None. Raises StoreError."""
        return await self.first(run.tenant, (f"workflow/{run.workflow}", TENANT)) if self.up else None

    async def first(self, tenant: str, keys: Sequence[str]) -> Pause | None:
        """Return the first pause in effect under these keys, or None. Raises StoreError."""
        for key in keys if self.up else ():
            if (tenant, key) in self.up:
                row = await self._store.load(PAUSE, (tenant, key))
                if row is not None and row.up:
                    return row
                self.up.pop((tenant, key), None)  # resumed since the last refresh
        return None


def waiting_for(pause: Pause) -> WaitingFor:
    """Return the wait of a run that meets a pause."""
    reason = f": {pause.reason}" if pause.reason else ""
    return WaitingFor(
        "pause", f"{pause.key}{reason}", who=pause.by, since=pause.since, then="continues when it is resumed"
    )


async def pause(store: Store, tenant: str, key: str, *, actor: str, reason: str, act: KeyedAct | None = None) -> None:
    """Stop new intents under `key`.

    A breaker that is open there becomes a pause of the operator.

    Raises Conflict if an operator has paused it, InvalidInput without a reason.
    """
    check_given_reason("a pause", "it is shown with each run that waits", reason)
    now = await store.now()
    if await done_before(store, act):
        return
    found = await store.load(PAUSE, (tenant, key))
    version = found.version if found is not None else 0
    if found is not None and found.up and found.kind == OPERATOR:
        raise Conflict(f"{key} is paused already", f"{found.by}: {found.reason}", resume_command(key))
    row = Pause(tenant, key, version + 1, 1, actor, reason, now.business)
    await _change(store, Commit((Put(PAUSE, row, version),), label=f"pause {key}"), key, act, now)


async def resume(store: Store, tenant: str, key: str, *, actor: str, act: KeyedAct | None = None) -> int:
    """End a pause and make the runs that wait for it due. Returns how many. Raises NotFound, Conflict."""
    if not await done_before(store, act):  # a process may have died before it woke the runs
        found = await store.load(PAUSE, (tenant, key))
        if found is None or not found.up:
            raise NotFound(f"{key} is not paused", f"tenant {tenant} has no such pause", "list them: outlast pauses")
        now = await store.now()
        row = found._replace(version=found.version + 1, up=0, by=actor, reason="", since=now.business)
        await _change(store, Commit((Put(PAUSE, row, found.version),), label=f"release {key}"), key, act, now)
    return await wake_all(store, tenant, key)


async def _change(store: Store, commit: Commit, key: str, act: KeyedAct | None, now: Instant) -> None:
    """Land a change of a pause, unless the act landed at the same time. Raises Conflict."""
    try:
        await store.commit(with_token(commit, act, key, now))
    except Stale:
        if not await done_before(store, act):
            raise Conflict(f"another operator has just changed {key}", "", "look again: outlast pauses") from None


async def wake_all(store: Store, tenant: str, key: str) -> int:
    """Make the runs due that wait for `key`, and return how many. A run that parks later checks by itself."""
    woken = 0
    async for page in pages(partial(store.page, RUN, tenant, {}, limit=PAGE)):
        waiting = [r for r in page.rows if not is_over(r) and _waits_for(r, key)]
        for i in range(0, len(waiting), SMALL_ROWS_MAX):
            wakes = tuple(Wake(r.tenant, r.run) for r in waiting[i : i + SMALL_ROWS_MAX])
            await store.commit(Commit(wakes, label=f"release {key}"))
        woken += len(waiting)
    return woken


def _waits_for(run: Run, key: str) -> bool:
    return any(w.kind == "pause" and w.what.split(":")[0] == key for w in run.waiting_for)


log = logging.getLogger("outlast.engine")
BY_THE_ENGINE: Final = "outlast"
RUNS_MIN: Final = 2  # because one run alone may have a wrong address
SHOWN: Final = 300


def says_away(outcome: Outcome) -> bool:
    """Return True if an outcome means that the provider is away: no bug in the activity, no conflict."""
    if isinstance(outcome, Unsent):
        return outcome.code == "not_sent" or outcome.after_ms > INLINE_WAIT_MAX
    if isinstance(outcome, Maybe):
        return outcome.code in ("timeout", "perhaps", f"http_{TIMED_OUT}") or outcome.code.startswith("http_5")
    return False


def key_of_provider(provider: str) -> str:
    """Return the key of a provider's pause."""
    return f"provider/{provider}"


class Streak(NamedTuple):
    """Consecutive attempts that found a provider away, and the runs that made them."""

    n: int
    runs: frozenset[str]


class Breakers:
    """Circuit breakers of one worker: outcomes of each provider and tenant since its last success."""

    def __init__(self, store: Store, cache: PauseCache, live: Liveness) -> None:
        self._store = store
        self._cache = cache
        self._live = live
        self._streaks: dict[tuple[str, str], Streak] = {}
        self._waking: set[asyncio.Task[None]] = set()

    def is_calm(self, tenant: str, provider: str, outcome: Outcome) -> bool:
        """Return True if an outcome changes nothing: the provider answers, as it did before."""
        return isinstance(outcome, Answered) and (tenant, provider) not in self._streaks

    async def record_outcome(self, tenant: str, provider: str, run: str, outcome: Outcome) -> bool:
        """Count the outcome of one attempt; True if it opened the breaker. Never raises StoreError."""
        name = (tenant, provider)
        if isinstance(outcome, Answered | No):
            self._streaks.pop(name, None)
            return False
        if not says_away(outcome) or not self._live.breaker_after:
            return False
        before = self._streaks.get(name, Streak(0, frozenset()))
        streak = Streak(before.n + 1, before.runs if len(before.runs) >= RUNS_MIN else before.runs | {run})
        self._streaks[name] = streak
        if streak.n < self._live.breaker_after or len(streak.runs) < RUNS_MIN:
            return False
        try:
            put = await self._trip(
                tenant, provider, f"{streak.n} calls in a row found it away; {_reason_of(run, outcome)}"
            )
        except StoreError as error:
            log.warning("the breaker of %s could not be opened: %s", provider, error)
            return False
        self._streaks.pop(name, None)
        return put

    async def _trip(self, tenant: str, provider: str, why: str) -> bool:
        key = key_of_provider(provider)
        found = await self._store.load(PAUSE, (tenant, key))
        if found is not None and found.up:
            self._cache.update(found)
            return False
        version = found.version if found is not None else 0
        now = await self._store.now()
        again_at = now.real + self._pause(1)
        row = Pause(tenant, key, version + 1, 1, BY_THE_ENGINE, why, now.business, BREAKER, again_at, 1)
        if not await self._put(row, version):
            return False
        log.warning("provider %s of tenant %s: %s", provider, tenant, why)
        return True

    def _pause(self, trips: int) -> int:
        """Return how long a breaker stays open, doubled with each failed try up to a maximum."""
        return int(min(self._live.breaker_pause * 2.0 ** (trips - 1), self._live.breaker_pause_max))

    async def _put(self, row: Pause, version: int, *whens: When) -> bool:
        """Write a pause if its row has not changed, and update the cache."""
        try:
            await self._store.commit(Commit((Put(PAUSE, row, version),), whens=whens, label=f"breaker {row.key}"))
        except Stale:
            return False
        self._cache.update(row)
        return True

    # --- half-open breakers ----------------------------------------------------------------------
    async def probe(self, pause: Pause, now_real: int, lease_ms: int) -> Pause | None:
        """Claim the right to try the provider, for `lease_ms`.

        Returns the pause as written, or None.

        The first run that writes the row has it. Afterwards another run may try. Raises StoreError.
        """
        if pause.kind != BREAKER or now_real < pause.again_at:
            return None
        row = pause._replace(version=pause.version + 1, again_at=now_real + lease_ms)
        due = When(pause.again_at, True, "real", "early")
        return row if await self._put(row, pause.version, due) else None

    async def give_back(self, lent: Pause) -> None:
        """Let another run try the provider, because the run with the right sends nothing.

        Never raises StoreError. A row that could not be written is tried again when the right has expired.
        """
        try:
            now = await self._store.now()
            await self._put(lent._replace(version=lent.version + 1, again_at=now.real), lent.version)
        except StoreError as error:
            log.warning("the right to try %s could not be given back: %s", lent.key, error)

    async def probed(self, lent: Pause, run: str, outcome: Outcome) -> None:
        """Close the breaker and wake its runs, or keep it open for longer, after a try.

        Never raises StoreError. A row that could not be written is tried again when the right has expired.
        """
        try:
            if isinstance(outcome, Answered | No):
                row = lent._replace(version=lent.version + 1, up=0, by=BY_THE_ENGINE)
                if await self._put(row, lent.version):
                    log.warning("%s of tenant %s answers again", lent.key, lent.tenant)
                    self._wake(lent)
                return
            trips = lent.trips + says_away(outcome)
            again_at = (await self._store.now()).real + self._pause(trips)
            why = f"tried {trips - 1} times since; {_reason_of(run, outcome)}" if trips > 1 else lent.reason
            await self._put(
                lent._replace(version=lent.version + 1, again_at=again_at, trips=trips, reason=why), lent.version
            )
        except StoreError as error:
            log.warning("the result of trying %s could not be written: %s", lent.key, error)

    def _wake(self, pause: Pause) -> None:
        task = asyncio.get_running_loop().create_task(self._wake_all(pause))
        self._waking.add(task)
        task.add_done_callback(self._waking.discard)

    async def _wake_all(self, pause: Pause) -> None:
        try:
            await wake_all(self._store, pause.tenant, pause.key)
        except StoreError as error:
            log.warning("runs that wait for %s check again by themselves: %s", pause.key, error)


def _reason_of(run: str, outcome: Outcome) -> str:
    assert isinstance(outcome, Unsent | Maybe)
    return f"run {run}: {outcome.code}: {outcome.detail.partition(chr(10))[0][:SHOWN]}"[:TEXT_CHARS_MAX]
