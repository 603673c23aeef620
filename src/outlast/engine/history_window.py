"""The window of a run's history in its holder: which rows behind it are purged, and when (S-32).

`core/window.py` decides, and says why no crash loses a row. This module reads rows that a holder does not keep: the
oldest events, and the cursors of webhooks. It submits the portions in the chain of the run, between two executions of
nodes, so no execution sees a row go.
"""

from collections.abc import Callable
from itertools import islice
from typing import Final

from outlast.core import window
from outlast.core.rows.limit_rows import CALL_USAGE
from outlast.core.rows.map_rows import MAP_KINDS, MAP_OUTCOME
from outlast.core.rows.outbox_rows import DELIVERY, Delivery
from outlast.core.rows.row_kind import AnyKind, Key, key_of
from outlast.core.rows.run_rows import (
    EVENT,
    FLAGGING,
    FLOOR,
    RESULT,
    STATE_CHUNK,
    TOKEN,
    Event,
    Floor,
    Result,
    Run,
    Token,
)
from outlast.core.state.snapshot_codec import MARK, StateChunk
from outlast.core.usage import CallUsage
from outlast.core.window import Behind, LedgerRows, Portion, WindowTerms
from outlast.engine.passed_children import forget_runs_of, owed_to_webhooks
from outlast.engine.run_session import RunSession
from outlast.engine.snapshots import chunks_of
from outlast.store.queries import LastOrdinals

EVENTS_AT_ONCE: Final = 64
ROWS_AT_ONCE: Final = 200  # in one read of rows without a visit
LATE: Final = 400
"""Rows behind the floor from which several portions land beside one advance, so that visits of many calls keep pace."""
PORTIONS_MAX: Final = 32  # beside one advance


class HistoryWindow:
    """The window of one held run. Made for each claim, and again when its holder reads the rows."""

    def __init__(self, session: RunSession, terms: WindowTerms, floor: Floor) -> None:
        self.floor = floor
        self._session = session
        self._terms = terms
        self._erased = 0  # number of the last event that this holder has deleted
        self._again_in = 0  # visit before which the floor cannot move
        self._left = any(window.behind(floor, terms, self._rows(), ()))  # by a holder that died

    @classmethod
    async def open(cls, session: RunSession, terms: WindowTerms) -> "HistoryWindow":
        """Read the floor of a held run. Raises StoreError."""
        run = session.held.run
        floor = await session.store.load(FLOOR, (run.tenant, run.run))
        if floor is None:
            first = await session.store.load(EVENT, (run.tenant, run.run, 1))
            floor = window.first_floor(run, first or session.held.last)
        return cls(session, terms, floor)

    async def advanced(self) -> None:
        """Purge a portion of the rows behind the window, if there are enough of them. Call it after each advance.

        Raises StoreError, and as the chain does.
        """
        run, now = self._session.held.run, self._session.clock.now
        if self._left or (run.visit >= self._again_in and window.is_due(run, self.floor, self._terms, now)):
            for _ in range(PORTIONS_MAX):
                if not await self._purge(run):
                    break
        if window.must_sweep(run, self.floor):
            await self._sweep(run)

    async def _purge(self, run: Run) -> bool:
        """Submit one portion. Return True if the next should follow at once."""
        session, terms = self._session, self._terms
        key = (run.tenant, run.run)
        after: Key = (*key, self._erased) if self._erased else ()
        oldest = await session.store.rows(EVENT, key, after=after, limit=EVENTS_AT_ONCE)
        hold = window.hold_of(run, session.held.open_effects())
        owed, now = await owed_to_webhooks(session.store, key), session.clock.now
        floor = window.moved(run, self.floor, terms, oldest, hold=hold, owed=owed, now=now)
        gone = await self._passed([*islice(window.behind(floor, terms, self._rows(), oldest), LATE + 1)])
        if floor == self.floor and not gone:  # something holds it
            self._left, self._again_in = False, run.visit + terms.slack
            return False
        portion = window.portion(run, self.floor, floor, gone)
        self._submit(portion)
        seqs = [each.row.seq for each in gone[: portion.rows] if isinstance(each.row, Event)]
        self._erased = max(self._erased, *seqs) if seqs else self._erased
        self._left = not portion.is_last
        return len(gone) > LATE

    def _rows(self) -> LedgerRows:
        held = self._session.held
        return LedgerRows(held.effects, held.memos, held.waits, held.messages, held.evidence)

    async def _passed(self, gone: list[Behind]) -> list[Behind]:
        """Return the rows that may go now. Runs of children among them go first (`passed_children.py`)."""
        effects = self._session.held.effects.values()
        kept = frozenset(each.external_id for each in effects if each.child_text)
        of_maps = kept if any(each.kind is MAP_OUTCOME for each in gone) else frozenset[str]()
        return await forget_runs_of(self._session.store, gone, of_maps)

    def _submit(self, portion: Portion) -> None:
        self._session.chain.submit(portion.commit)
        self.floor = portion.floor

    # --- rows without a visit ---------------------------------------------------------------------------
    async def _sweep(self, run: Run) -> None:
        """Look through the rows of the run that have no visit, once for each length of the window."""
        session, terms, key = self._session, self._terms, (run.tenant, run.run)
        await session.chain.entered()
        now = session.clock.now
        await self._sweep_kind(run, TOKEN, lambda row: isinstance(row, Token) and window.is_forgotten(row, terms, now))
        if terms.results == "purge":
            (last,) = await session.store.query(LastOrdinals(RESULT, (key,)))
            await self._sweep_kind(
                run, RESULT, lambda row: isinstance(row, Result) and window.is_old(row, self.floor, terms, last)
            )
        await self._sweep_kind(
            run, DELIVERY, lambda row: isinstance(row, Delivery) and window.is_delivered(row, self.floor)
        )
        await self._sweep_kind(run, FLAGGING, lambda row: window.is_past_flagging(row, run, self.floor))
        for kind in MAP_KINDS:
            await self._sweep_kind(run, kind, lambda row: window.is_of_earlier_map(row, self.floor))
        await self._sum_usage(run)
        await self._sweep_chunks(run)
        self._submit(window.floor_swept(run, self.floor))

    async def _sweep_kind(self, run: Run, kind: AnyKind, is_gone: Callable[[object], bool]) -> None:
        key: Key = (run.tenant, run.run)
        after: Key = ()
        while page := await self._session.store.rows(kind, key, after=after, limit=ROWS_AT_ONCE):
            gone = await self._passed([Behind(kind, row) for row in page if is_gone(row)])
            while gone:
                portion = window.portion(run, self.floor, self.floor, gone)
                self._submit(portion)
                gone = gone[portion.rows :]
            after = key_of(kind, page[-1])
            if len(page) < ROWS_AT_ONCE:
                break

    async def _sum_usage(self, run: Run) -> None:
        session, key = self._session, (run.tenant, run.run)
        while True:
            rows: tuple[CallUsage, ...] = await session.store.rows(CALL_USAGE, key, limit=window.SUMMED_AT_ONCE)
            puts, gone = window.summed(self.floor, rows, session.clock.now)
            if not gone:
                return
            await session.used()  # before the rows that it counts are replaced
            floor = self.floor._replace(usage_n=self.floor.usage_n + len(puts))
            portion = window.portion(run, self.floor, floor, gone, len(gone), puts)
            await session.chain.land(portion.commit)
            self.floor = portion.floor

    async def _sweep_chunks(self, run: Run) -> None:
        """Delete the parts of large states that no kept snapshot names."""
        session, key = self._session, (run.tenant, run.run)
        if not await session.store.rows(STATE_CHUNK, key, limit=1):
            return
        await session.chain.land(window.floor_swept(run, self.floor).commit)  # all that was submitted has landed
        self.floor = self.floor._replace(version=self.floor.version + 1, swept=run.visit)
        named: set[str] = set()
        values: dict[str, bytes] = {}
        after: Key = ()
        while page := await session.store.rows(EVENT, key, after=after, limit=ROWS_AT_ONCE):
            for event in page:
                if (event.snapshot or b"")[:1] == MARK and (event.seq == 1 or event.seq >= self.floor.seq):
                    assert event.snapshot is not None
                    named.update(await chunks_of(session.store, key, event.snapshot, values))
            after = key_of(EVENT, page[-1])
        await self._sweep_kind(run, STATE_CHUNK, lambda row: isinstance(row, StateChunk) and row.hash not in named)
        await session.chain.land(window.floor_swept(run, self.floor).commit)  # before a state names one of them again
        self.floor = self.floor._replace(version=self.floor.version + 1)
