"""Circuit breakers: one provider's outage is one item, and one run at a time tries whether it is over (S-23)."""

import asyncio
import logging
from typing import Final, NamedTuple

from outlast.core.budget import INLINE_WAIT_MAX, Liveness
from outlast.core.commit import Commit, Put, When
from outlast.core.limits import TEXT_CHARS_MAX
from outlast.core.rows import HOLD, Hold
from outlast.engine.call_outcome import TIMED_OUT, Answered, Maybe, No, Outcome, Unsent
from outlast.engine.pauses import BREAKER, PauseCache, wake_all
from outlast.errors import Stale, StoreError
from outlast.store.port import Store

log = logging.getLogger("outlast.engine")
BY_THE_ENGINE: Final = "outlast"
RUNS_MIN: Final = 2  # one run alone, which may have one wrong address, stops nobody else
SHOWN: Final = 300


def says_away(outcome: Outcome) -> bool:
    """Does it say that the provider is away? A mistake in the activity's own code, or a conflict, says nothing."""
    if isinstance(outcome, Unsent):
        return outcome.code == "not_sent" or outcome.after_ms > INLINE_WAIT_MAX
    if isinstance(outcome, Maybe):
        return outcome.code in ("timeout", "perhaps", f"http_{TIMED_OUT}") or outcome.code.startswith("http_5")
    return False


def key_of_provider(provider: str) -> str:
    """The key of its stop sign."""
    return f"provider/{provider}"


class Streak(NamedTuple):
    """Attempts in a row that found a provider away, and the runs that made them."""

    n: int
    runs: frozenset[str]


class Breakers:
    """What one worker has heard of each provider of each tenant; a success forgets it."""

    def __init__(self, store: Store, holds: PauseCache, live: Liveness) -> None:
        self._store = store
        self._holds = holds
        self._live = live
        self._streaks: dict[tuple[str, str], Streak] = {}
        self._waking: set[asyncio.Task[None]] = set()

    def is_calm(self, tenant: str, provider: str, outcome: Outcome) -> bool:
        """Nothing to do for an outcome like this: the provider answers, as it did before."""
        return isinstance(outcome, Answered) and (tenant, provider) not in self._streaks

    async def heard(self, tenant: str, provider: str, run: str, outcome: Outcome) -> bool:
        """Count one attempt; True when it put the breaker up. Never raises: what was not written is counted on."""
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
            put = await self._trip(tenant, provider, f"{streak.n} calls in a row found it away; {_said(run, outcome)}")
        except StoreError as error:
            log.warning("the breaker of %s could not be put up: %s", provider, error)
            return False
        self._streaks.pop(name, None)
        return put

    async def _trip(self, tenant: str, provider: str, why: str) -> bool:
        key = key_of_provider(provider)
        found = await self._store.load(HOLD, (tenant, key))
        if isinstance(found, Hold) and found.up:
            self._holds.learn(found)
            return False
        version = found.version if isinstance(found, Hold) else 0
        now = await self._store.now()
        again_at = now.real + self._pause(1)
        row = Hold(tenant, key, version + 1, 1, BY_THE_ENGINE, why, now.business, BREAKER, again_at, 1)
        if not await self._put(row, version):
            return False
        log.warning("provider %s of tenant %s: %s", provider, tenant, why)
        return True

    def _pause(self, trips: int) -> int:
        """How long it stays up before a run may try: doubled with each try that failed, up to the most."""
        return int(min(self._live.breaker_pause * 2.0 ** (trips - 1), self._live.breaker_pause_max))

    async def _put(self, row: Hold, version: int, *whens: When) -> bool:
        """Write the sign, if it is still as it was read; and know it here at once."""
        try:
            await self._store.commit(Commit((Put(HOLD, row, version),), whens=whens, label=f"breaker {row.key}"))
        except Stale:
            return False
        self._holds.learn(row)
        return True

    # --- trying whether it is over ----------------------------------------------------------------------
    async def probe(self, hold: Hold, now_real: int, lease_ms: int) -> Hold | None:
        """The right to try, for one run: the sign as it stands with it, or None. Whoever writes it first has it.

        It is lent for `lease_ms`, by which the attempt has come to its end; then another may try. Raises StoreError.
        """
        if hold.kind != BREAKER or now_real < hold.again_at:
            return None
        row = hold._replace(version=hold.version + 1, again_at=now_real + lease_ms)
        due = When(hold.again_at, True, "real", "early")
        return row if await self._put(row, hold.version, due) else None

    async def probed(self, lent: Hold, run: str, outcome: Outcome) -> None:
        """What the try came to: the sign goes down and whoever waits goes on, or it stays up for longer. Never
        raises: a sign that could not be written is tried again when its loan is over."""
        try:
            if isinstance(outcome, Answered | No):
                row = lent._replace(version=lent.version + 1, up=0, by=BY_THE_ENGINE)
                if await self._put(row, lent.version):
                    log.warning("%s of tenant %s answers again", lent.key, lent.tenant)
                    self._wake(lent)
                return
            trips = lent.trips + says_away(outcome)
            again_at = (await self._store.now()).real + self._pause(trips)
            why = f"tried {trips - 1} times since; {_said(run, outcome)}" if trips > 1 else lent.reason
            await self._put(
                lent._replace(version=lent.version + 1, again_at=again_at, trips=trips, reason=why), lent.version
            )
        except StoreError as error:
            log.warning("what trying %s came to could not be written: %s", lent.key, error)

    def _wake(self, hold: Hold) -> None:
        task = asyncio.get_running_loop().create_task(self._wake_all(hold))
        self._waking.add(task)
        task.add_done_callback(self._waking.discard)

    async def _wake_all(self, hold: Hold) -> None:
        try:
            await wake_all(self._store, hold.tenant, hold.key)
        except StoreError as error:
            log.warning("runs that wait for %s look again by themselves: %s", hold.key, error)


def _said(run: str, outcome: Outcome) -> str:
    assert isinstance(outcome, Unsent | Maybe)
    return f"run {run}: {outcome.code}: {outcome.detail.partition(chr(10))[0][:SHOWN]}"[:TEXT_CHARS_MAX]
