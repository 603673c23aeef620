"""Writers that record the outcome of each commit, and an audit that compares the store with their record."""

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from outlast.clocks import SystemClock
from outlast.core.commit import Chain, Commit, Done, Put
from outlast.core.machine import RunStatus
from outlast.core.rows.effect_rows import EFFECT, Effect
from outlast.core.rows.run_rows import EVENT, RUN, Event, Run
from outlast.errors import Stale, StoreError
from outlast.store.dynamodb.store import DynamoStore, open_dynamodb
from outlast.store.port import Store
from tests.conformance.subject import (
    LANE,
    TENANT,
    append_message,
    claimed,
    done,
    effect_row,
    event_row,
    fence,
    message_row,
    messages,
    moved,
    run_row,
    start,
)

PAUSE_S = 0.01


@dataclass
class Ledger:
    """Names of commits by their outcome. A commit writes its name into a row that nothing deletes."""

    done: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    errors: dict[str, int] = field(default_factory=dict)

    def note(self, name: str, error: BaseException | None) -> None:
        """Record an outcome."""
        if error is None:
            self.done.add(name)
            return
        assert isinstance(error, StoreError), (name, error)
        self.errors[type(error).__name__] = self.errors.get(type(error).__name__, 0) + 1
        (self.unknown if error.landed is None else self.refused).add(name)

    def text(self) -> str:
        """Return the ledger for another process."""
        return json.dumps([sorted(self.done), sorted(self.refused), sorted(self.unknown), self.errors])

    @classmethod
    def merged(cls, texts: Iterable[str]) -> "Ledger":
        """Return the union of the ledgers of several processes."""
        found = cls()
        for each in texts:
            done, refused, unknown, errors = json.loads(each)
            found.done |= set(done)
            found.refused |= set(refused)
            found.unknown |= set(unknown)
            found.errors |= {name: found.errors.get(name, 0) + n for name, n in errors.items()}
        return found


async def opened(url: str, writer: str) -> DynamoStore:
    """Open a store by the clock of this machine."""
    return await open_dynamodb(url, writer=writer, clock=SystemClock())


class Driver:
    """One writer that moves runs on until it is stopped, whatever happens to its store."""

    def __init__(self, store: Store, name: str, ledger: Ledger) -> None:
        self.store, self.name, self.ledger = store, name, ledger
        self.stopped = False
        self._count = 0
        self._open: set[asyncio.Future[Done]] = set()

    async def drive(self, runs: Sequence[str], enough: Callable[[], bool] = lambda: False) -> None:
        """Move all runs at once until stopped, or until there is enough and other writers may claim them all."""

        async def one(run: str) -> None:
            while not self.stopped:
                try:
                    row = await self.store.load(RUN, (TENANT, run))
                    if enough() and (row is None or row.owner != self.name):
                        return
                    if row is None:
                        await self._start(run)
                    elif row.owner == "":
                        await self._claim(row)
                    elif row.owner == self.name:
                        await self._step(row)
                    else:
                        await asyncio.sleep(PAUSE_S)
                except Stale:
                    pass  # another writer has moved it
                except StoreError:
                    await asyncio.sleep(PAUSE_S)

        await asyncio.gather(*map(one, runs))
        if self._open:
            await asyncio.wait(self._open)

    def _next(self, run: str) -> str:
        self._count += 1
        return f"{self.name}/{run}/{self._count}"

    async def _land(self, name: str, commit: Commit, chain: Chain | None = None, *, linger: bool = False) -> None:
        future = self.store.submit(commit._replace(label=name), chain=chain, linger=linger)
        self._open.add(future)
        future.add_done_callback(lambda ended: self.ledger.note(name, ended.exception()))
        future.add_done_callback(self._open.discard)
        if not linger:
            await asyncio.shield(future)

    async def _start(self, run: str) -> None:
        name = self._next(run)
        whole = start(run_row(run))
        event = Put(EVENT, named(event_row(run, 1), name), 0)
        await self._land(name, whole._replace(writes=(whole.writes[0], event)))

    async def _claim(self, row: Run) -> None:
        name = self._next(row.run)
        mine = claimed(row, self.name, await self.store.now())._replace(seq=row.seq + 1)
        event = Put(EVENT, named(event_row(row.run, mine.seq, snapshot=None), name), 0)
        await self._land(name, Commit((Put(RUN, mine, row.version), event)))

    async def _step(self, mine: Run) -> None:
        """Intend, record, post and advance as the engine does."""
        chain, guard = Chain(), fence(mine)
        effect = effect_row(mine.run, key=self._next(mine.run))
        await self._land(effect.key, Commit((Put(EFFECT, effect, 0),), guard), chain)
        record = self._next(mine.run)
        after = done(effect, record.encode())
        await self._land(record, Commit((Put(EFFECT, after, 1),), guard), chain, linger=True)
        post = self._next(mine.run)
        await self._land(post, append_message(message_row(mine.run, post.encode())))
        advance = self._next(mine.run)
        row = moved(mine, seq=mine.seq + 1)
        if row.seq % 3 == 0:  # given back, so that another writer may claim it at once
            row = row._replace(owner="", status=RunStatus.QUEUED, epoch=row.epoch + 1)
        event = named(event_row(mine.run, row.seq, snapshot=None), advance)
        await self._land(advance, Commit((Put(RUN, row, mine.version), Put(EVENT, event, 0)), guard), chain)


async def watch(store: Store, runs: Sequence[str], enough: Callable[[], bool]) -> int:
    """Read the rows of runs again and again, and assert that they are of one moment. Return how often."""
    count = 0
    while not enough():
        try:
            found = await store.run_rows([(TENANT, run) for run in runs])
            await store.take((LANE,), 1, lambda run, now, mapping: None)
        except StoreError:
            await asyncio.sleep(PAUSE_S)
            continue
        count += 1
        for rows in found:
            if rows is None:
                continue
            assert [message.n for message in rows.messages] == list(range(1, rows.run.inbox_seq + 1))
            effects = [effect.key for effect in rows.effects]
            assert len(effects) == len(set(effects))
            assert rows.last.seq <= rows.run.seq
    return count


def named(event: Event, name: str) -> Event:
    """Return the event with the name of its commit."""
    return event._replace(correlation_id=name)


async def audit(store: Store, runs: Iterable[str], ledger: Ledger) -> int:
    """Assert that rows are whole, done commits are there and refused ones are not. Return the number of moves."""
    found: list[str] = []
    moves = 0
    for run in runs:
        row = await store.load(RUN, (TENANT, run))
        if row is None:
            continue
        events = [e for e in await store.rows(EVENT, (TENANT, run)) if isinstance(e, Event)]
        assert [e.seq for e in events] == list(range(1, row.seq + 1)), run
        assert row.version == row.seq, "each move wrote its event"
        inbox = await messages(store, run)
        assert [message.n for message in inbox] == list(range(1, row.inbox_seq + 1)), run
        effects = [e for e in await store.rows(EFFECT, (TENANT, run)) if isinstance(e, Effect)]
        found += [e.correlation_id for e in events] + [message.payload.decode() for message in inbox]
        found += [e.key for e in effects] + [e.response.decode() for e in effects if e.response is not None]
        moves += row.version
    assert len(found) == len(set(found)), "no commit landed twice"
    assert ledger.done <= {*found}, f"lost: {sorted(ledger.done - {*found})[:5]}"
    assert {*found} <= ledger.done | ledger.unknown, f"refused, but there: {sorted({*found} - ledger.done)[:5]}"
    return moves
