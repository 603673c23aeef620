"""Records that a holder writes without a fence: facts that came too late, and messages to runs that wait for it.

Theory of operation. A commit of the chain lands only while the claim is in force. Some facts stay true after the claim
is lost, and a successor or an operator needs them: an answer that came too late, usage that was paid, a call that was
not sent. They are written here, each in a separate commit, without a fence and outside the chain.

Faults, and why they harm nothing:

1. A record is lost, because the store is away or this process ends. Then an effect stays open, and is reconciled or
   shown to a person as if the answer had never come (S-10). No function here raises a StoreError; nothing waits for it.
2. A record is written twice, or after the same fact has landed. Rows of evidence and usage are only created, never
   replaced (`replaces` is 0), so the store refuses the second one.
3. A record contradicts the act of a successor. Evidence settles nothing by itself (S-10): the step that follows is
   decided by the successor or a person, who reads it.
4. A call is made although its proof of not having been sent exists. `intend` adds an entry before the intent lands.
   `begin_call` and `give_up` both remove it, within one event loop, so only one of them gets it. The other one makes
   no call, or proves nothing. An effect of which an earlier attempt may have happened has no proof at all.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from outlast.core import effect_verbs
from outlast.core.commit import Commit, Put
from outlast.core.failed_calls import EffectKey
from outlast.core.machine import EffectStatus
from outlast.core.mailbox import settled_elsewhere
from outlast.core.paging import pages
from outlast.core.rows.effect_columns import EffectError, EvidenceAnswer
from outlast.core.rows.effect_rows import EFFECT, USAGE, Effect
from outlast.core.rows.limit_rows import CALL_USAGE
from outlast.core.rows.row_kind import key_of
from outlast.core.rows.run_rows import RUN, is_over
from outlast.engine.holder_clock import HolderClock
from outlast.errors import StoreError
from outlast.store.port import Store

log = logging.getLogger("outlast.engine")
USERS_PER_READ: Final = 1_000


async def notify_waiting(store: Store, effect: Effect) -> None:
    """Send a message to every run that waits for this shared effect.

    Never raises (S-18).

    A run that misses the message finds the answer at its next check.
    """
    try:
        read = partial(store.page, USAGE, effect.tenant, {"key": effect.key}, limit=USERS_PER_READ)
        async for page in pages(read):
            runs = [row.run for row in page.rows if row.run != effect.by_run]
            await asyncio.gather(*(_notify_waiting(store, effect, run) for run in runs))
    except StoreError as error:
        log.warning("runs that wait for %s could not be notified: %s", effect.key, error)


async def _notify_waiting(store: Store, effect: Effect, run: str) -> None:
    row = await store.load(RUN, (effect.tenant, run))
    if row is None or is_over(row):
        return
    if not row.owner and not any(w.kind == "effect" and w.what.endswith(f" {effect.key}") for w in row.waiting_for):
        return  # the run used the effect before
    try:
        await store.commit(settled_elsewhere(effect, run))
    except StoreError:
        pass  # the run has ended, or finds the answer at its next check


class LateRecords:
    """Writer of the records of one held run that need no claim."""

    __slots__ = ("_clock", "_notifying", "_run", "_store", "_unsent")

    def __init__(self, store: Store, run: str, clock: HolderClock) -> None:
        self._store = store
        self._run = run
        self._clock = clock
        self._notifying: set[asyncio.Task[None]] = set()  # a task that nothing refers to may be collected
        self._unsent: dict[EffectKey, Effect | None] = {}  # intents whose call was not started

    # --- calls that were not sent -----------------------------------------------------------------
    def intend(self, ident: EffectKey, effect: Effect | None) -> None:
        """Note that a call is about to be intended. None: an earlier attempt may have happened, so nothing is proven.

        It comes before the intent is submitted: a holder that is lost while the intent lands can still give it up.
        """
        self._unsent[ident] = effect

    def begin_call(self, ident: EffectKey) -> bool:
        """Return True if the call may be made, because it was not given up. From here on it counts as sent."""
        if ident not in self._unsent:
            return False
        del self._unsent[ident]
        return True

    def is_unsent(self, effect: Effect) -> bool:
        """Return True if this attempt has been intended here, and its call was not started."""
        return self._unsent.get((effect.visit, effect.key)) == effect

    def take_unsent(self, effect: Effect) -> bool:
        """Return `is_unsent`. No call can begin under this intent any more."""
        return self._unsent.pop((effect.visit, effect.key), None) == effect

    def give_up(self) -> list[Effect]:
        """Return the attempts that are known not to be sent, and never will be: no call can begin any more."""
        unsent, self._unsent = self._unsent, {}
        return [effect for effect in unsent.values() if effect is not None]

    async def record_unsent(self, effects: Iterable[Effect]) -> None:
        """Record that these attempts were not sent, because the holder was replaced before it called."""
        for effect in effects:
            error = effect_verbs.too_late("its holder was replaced before it called", self._clock.now)
            await self._record_unsent(effect, error)

    async def _record_unsent(self, effect: Effect, error: EffectError) -> None:
        """Record that an attempt was not sent, if its intent has landed and no other attempt was made."""
        try:
            row = await self._store.load(EFFECT, key_of(EFFECT, effect))
            if row is not None and (row.epoch, row.attempts) == (effect.epoch, effect.attempts):
                await self._store.commit(effect_verbs.record_unsent(effect, error, self._clock.now))
        except StoreError:
            pass  # the evidence exists already, or the store is away: the effect stays open

    # --- answers and usage --------------------------------------------------------------------------
    async def record_answers(self, commits: Iterable[Commit]) -> None:
        """Record the answers and usage of commits that cannot land any more, for reconcilers and operators (S-10)."""
        for commit in commits:
            row = commit.writes[0].row if isinstance(commit.writes[0], Put) else None
            if puts := [put for put in commit.writes if isinstance(put, Put) and put.kind is CALL_USAGE]:
                await self.record_usage(puts)
            if isinstance(row, Effect) and row.error is not None and not row.settled_at and not row.settle_after:
                await self._record_unsent(row, row.error)  # a deferred attempt: its error says that it was not sent
            elif isinstance(row, Effect) and row.status is not EffectStatus.INTENDED:
                response = row.response.decode() if row.response is not None else None
                await self.record_answer(row, EvidenceAnswer(row.status.value, row.error, response))

    async def record_answer(self, effect: Effect, answer: EvidenceAnswer) -> None:
        """Record one answer as evidence."""
        try:
            await self._store.commit(effect_verbs.record_late_answer(effect, answer, self._clock.now))
        except StoreError:
            pass  # the evidence exists already, or the store is away: the effect stays open

    async def record_usage(self, puts: Sequence[Put]) -> None:
        """Record usage, because it was paid even if another worker holds the run."""
        try:
            await self._store.commit(Commit(tuple(puts), label=f"{self._run} used late"))
        except StoreError:
            pass  # it has landed, or the store is away

    # --- runs that wait -----------------------------------------------------------------------------
    def notify_waiting(self, settled: Effect) -> None:
        """Notify the runs that wait for a settled shared effect, in a task (S-18)."""
        task = asyncio.get_running_loop().create_task(notify_waiting(self._store, settled))
        self._notifying.add(task)
        task.add_done_callback(self._notifying.discard)
