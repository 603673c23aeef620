"""Lands batches on PostgreSQL: rows locked in one order, judged in memory, written by one statement (S-7…S-9)."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import asyncpg

from outlast.core import points
from outlast.core.commit import IDENTITY, Commit, Done, Instant, Put
from outlast.core.machine import ENDED
from outlast.core.rows import KINDS, META, RUN, UNTOLD, WORKER, Key, Row, Run
from outlast.errors import Rejected, StoreError, StoreUnusable, Unavailable, Uncertain
from outlast.store import sql
from outlast.store.batch import Batch
from outlast.store.clock import MAPPING_ROW, StoreClock, mapping_of
from outlast.store.fair_queueing import DueQuery, FairQueue
from outlast.store.postgres import statements
from outlast.store.postgres.arrays import arrays
from outlast.store.postgres.connect import AGAIN, ANSWER_S, AWAY, Address
from outlast.store.postgres.line import Line
from outlast.store.postgres.named import Named, named
from outlast.store.postgres.plain import Known
from outlast.store.postgres.statements import Form
from outlast.store.sql import DECODE
from outlast.store.tickets import Take, Ticket, candidates, judge, most_of, refuse, taken

T = TypeVar("T")
RACES_MAX: Final = 5  # transactions that lost a race before the store is said to be busy
NOBODY: Final[frozenset[str]] = frozenset()
KNOWN_AS: Final = ("text", "text", "bigint", "bigint")  # tenant, run, version, inbox_seq
UNHELD: Final = frozenset({"", ENDED})


class Mismatch(Exception):
    """A bulk write met a row of another version: everything is judged again, with every row read first."""


class Drawn(NamedTuple):
    """What a batch leaves: the forms of its rows, how many of each, their arrays, and whether others are told."""

    forms: list[Form]
    counts: list[int]
    values: list[Any]
    notify: bool


class Session(Line):
    """Batches over one connection. Used by one task at a time."""

    def __init__(self, address: Address, writer: str, ticker: StoreClock, *, answer_s: float = ANSWER_S) -> None:
        super().__init__(address, writer, answer_s=answer_s)
        self.mapping = IDENTITY  # as last seen
        self.outlets = NOBODY  # the tenants whose events are noted as untold; as last seen
        self._listed: str | None = None  # the outlets, as the store keeps them
        self.woken = False  # a run may have become due
        self._ticker = ticker
        self._known = Known()
        self._fair = FairQueue()

    # --- one batch -----------------------------------------------------------------------
    async def land(self, tickets: Sequence[Ticket]) -> list[Ticket]:
        """Answer every ticket but those whose rows others hold just now: these are returned, in order.

        All in one transaction; else all with their rows read first; else one by one.
        """
        labels = [t.work.label for t in tickets] if points.hook else ()
        points.point("store.batch:before", labels)
        if (runs := self._known.of(tickets)) is not None and await self._land_alone(tickets, runs, labels):
            return []
        for optimistic in (True, False):
            try:
                return await self._retried(tickets, optimistic)
            except (Mismatch, asyncpg.PostgresError):
                pass  # one of them is at fault: which one, the next round tells
        held: list[Ticket] = []
        for ticket in tickets:
            try:
                held += await self._retried((ticket,), False)
            except (Mismatch, asyncpg.PostgresError) as error:
                refuse((ticket,), Rejected("the database refused a statement of this commit", str(error)))
        return held

    async def _land_alone(self, tickets: Sequence[Ticket], runs: Sequence[Run], labels: Sequence[str]) -> bool:
        """By one statement, in one round trip. False, and nothing has happened, where one of them would be refused or
        anything is not as we know it: then the rows are read, and tell."""
        now = self.mapping.at(self._ticker.heard(0))
        batch = Batch(self._known.read, now, optimistic=True, outlets=self.outlets)
        answers = [judge(ticket, batch) for ticket in tickets]
        if not all(isinstance(answer, Done) for answer in answers):
            return False
        drawn = self._drawn(batch, notify=False)
        assert not drawn.notify, "who falls due for others is left by a commit that asks for the time"
        try:
            db = await self.db()
        except (*AWAY, asyncpg.PostgresError, StoreError, StoreUnusable):
            return False  # nothing was sent; it is said why when it fails again
        self._batches += 1
        points.point("store.batch:inside", labels)
        try:
            try:
                found = await db.fetchrow(
                    statements.write_alone(tuple(drawn.forms)),
                    *self._receipt(),
                    *arrays(KNOWN_AS, [(run.tenant, run.run, run.version, run.inbox_seq) for run in runs]),
                    len(runs),
                    sum(drawn.counts),
                    *MAPPING_ROW,
                    self._listed,
                    *drawn.values,
                )
                assert found is not None
                now = self._heard(tuple(found))
            except AWAY as error:  # it may have landed
                await self.drop()
                await self._resolve(error)
                now = await self._time_of(error)
        except StoreError as error:
            refuse(tickets, error)
            return True
        except (*AGAIN, asyncpg.PostgresError):
            return False
        for ticket, answer in zip(tickets, answers, strict=True):
            assert isinstance(answer, Done)
            ticket.answer = answer._replace(now=now)
        self._learn(batch)
        points.point("store.batch:after", labels)
        return True

    async def _time_of(self, error: BaseException) -> Instant:
        """Of a batch that landed and whose answer was lost: a later one, so nobody counts on time he has not got.
        Raises Uncertain."""
        try:
            return await self.now(await self.db())
        except (*AWAY, asyncpg.PostgresError, StoreError) as second:
            await self.drop()
            raise Uncertain("the store's answer was lost", f"{error}; then {second}") from error

    async def _retried(self, tickets: Sequence[Ticket], optimistic: bool) -> list[Ticket]:
        """One transaction, repeated where it lost a race. Raises what is one ticket's fault."""
        for _ in range(RACES_MAX):
            try:
                return await self._attempt(tickets, optimistic)
            except AGAIN:
                await asyncio.sleep(0)
        refuse(tickets, Unavailable("the store is busy", "other transactions were faster each time"))
        return []

    async def _attempt(self, tickets: Sequence[Ticket], optimistic: bool) -> list[Ticket]:
        held: list[Ticket] = []
        try:
            db = await self.db()
            try:
                await db.execute(statements.BEGIN_MOVES if _move_runs(tickets) else "BEGIN")
                held = await self._transact(db, tickets, optimistic)
            except TimeoutError:  # the line is silent: a ROLLBACK would wait for the answer too
                await self.drop()
                raise
            finally:
                await self._roll_back(db)
        except StoreError as error:
            refuse(tickets, error)
        except StoreUnusable as error:
            refuse(tickets, Unavailable(error.what, error.why, error.fix))
        except AWAY as error:
            await self.drop()
            refuse(tickets, Unavailable("the store does not answer", f"{type(error).__name__}: {error}"))
        return held

    async def _transact(
        self, db: "asyncpg.Connection[Any]", tickets: Sequence[Ticket], optimistic: bool
    ) -> list[Ticket]:
        commits = [t.work for t in tickets if isinstance(t.work, Commit)]
        rows, busy = await self._lock(db, named(commits, optimistic=optimistic))
        now = await self.now(db)
        batch = Batch(lambda kind, key: rows.get((kind.name, key)), now, optimistic=optimistic, outlets=self.outlets)
        held: list[Ticket] = []
        for ticket in tickets:
            if self._must_wait(ticket, busy, held):
                held.append(ticket)
            elif isinstance(ticket.work, Take):
                ticket.answer = await self._take(db, ticket.work, batch, rows)
            else:
                ticket.answer = judge(ticket, batch)
        if any(batch.changes.values()) or batch.told:
            await self._write(db, batch, [t.work.label for t in tickets] if points.hook else ())
        for chain in batch.broken:
            chain.broken = True
        return held

    def _must_wait(self, ticket: Ticket, busy: set[tuple[str, Key]], held: Sequence[Ticket]) -> bool:
        """Does somebody else hold a row of it, or does a commit before it in its chain have to wait (S-7)?"""
        if not (busy or held) or not isinstance(ticket.work, Commit):
            return False
        if ticket.chain is not None and any(other.chain is ticket.chain for other in held):
            return True
        mine = named((ticket.work,), optimistic=False)
        if any((kind.name, key) in busy for kind, keys in mine.items() for key in keys):
            return True
        runs = mine.get(RUN, set())
        return any(
            runs & named((o.work,), optimistic=False).get(RUN, set()) for o in held if isinstance(o.work, Commit)
        )

    async def _lock(
        self, db: "asyncpg.Connection[Any]", wanted: Named
    ) -> tuple[dict[tuple[str, Key], Row], set[tuple[str, Key]]]:
        """Lock and read rows, runs first; and which of them somebody else holds."""
        rows: dict[tuple[str, Key], Row] = {}
        busy: set[tuple[str, Key]] = set()
        for kind in KINDS:
            keys = wanted.get(kind)
            if not keys:
                continue
            found = await db.fetch(statements.find(kind, lock=kind.versioned), *statements.keys_of(kind, keys))
            decode = DECODE[kind.name]
            for record in found:
                values = tuple(record)
                rows[kind.name, values[: kind.key]] = decode(values)
            if kind.versioned and len(found) < len(keys):
                missing = [key for key in keys if (kind.name, key) not in rows]
                there = await db.fetch(statements.exist(kind), *statements.keys_of(kind, missing))
                busy.update((kind.name, tuple(record)) for record in there)
        return rows, busy

    async def now(self, db: "asyncpg.Connection[Any]") -> Instant:
        """The store's time, read after the rows are locked (S-14), and the mapping of business time."""
        found = await db.fetchrow(statements.NOW_AND_OUTLETS, *MAPPING_ROW)
        assert found is not None
        self._listed = found[0]
        self.outlets = frozenset(json.loads(found[0])) if found[0] else NOBODY
        return self._heard(found[1:])

    def _heard(self, found: Sequence[Any]) -> Instant:
        real, *meta = found
        self.mapping = mapping_of(DECODE[META.name](tuple(meta)) if meta[0] is not None else None)
        return self.mapping.at(self._ticker.heard(real))

    async def alone(
        self,
        work: Callable[["asyncpg.Connection[Any]", Batch], Awaitable[T]],
        label: str,
        *,
        receipt: bool = True,
        begin: str = "BEGIN",
    ) -> T:
        """A transaction of its own for anything else, with its receipt (but for the writer's own row).

        Raises StoreError or asyncpg's errors.
        """
        db = await self.db()
        try:
            await db.execute(begin)
            batch = Batch(lambda kind, key: None, await self.now(db))
            answer = await work(db, batch)
            if receipt:
                await self._write(db, batch, (label,), notify=True)
            else:
                await db.execute("COMMIT")
        except TimeoutError:
            await self.drop()
            raise
        finally:
            await self._roll_back(db)
        return answer

    # --- taking --------------------------------------------------------------------------
    async def _take(
        self, db: "asyncpg.Connection[Any]", take: Take, batch: Batch, rows: dict[tuple[str, Key], Row]
    ) -> object:
        real, most = batch.now.real, most_of(take, batch)
        if take.owners:
            found = [run for owner in take.owners for run in await self._runs(db, sql.OWNED, owner, most)]
        else:
            looks = self._fair.looks(take.lanes, most, real, take.held)
            while ask := looks.ask:
                looks.hear(await self._due(db, ask, real))
            found = looks.found
        try:
            moves = [(run, take.step(run, batch.now, self.mapping)) for run in candidates(take, batch, found)]
        except Exception as error:  # a mistake in somebody's step must not refuse other people's commits
            return error
        for run in found:
            rows[RUN.name, run[:2]] = run
        commits = [commit for _, commit in moves if commit is not None]
        more = {k: {key for key in v if (k.name, key) not in rows} for k, v in named(commits, optimistic=True).items()}
        others, busy = await self._lock(db, more)
        rows.update(others)
        left = taken([(run, None if c is None or _names(c, busy) else c) for run, c in moves], batch)
        self._known.serve(run.owner for run in left if run.owner not in UNHELD)
        return left

    async def _due(self, db: "asyncpg.Connection[Any]", ask: DueQuery, real: int) -> list[Run]:
        if not ask.but:
            return await self._runs(db, sql.DUE, ask.lane, real, ask.most)
        return await self._runs(db, statements.DUE_BUT, ask.lane, real, ask.since, sorted(ask.but), ask.most)

    async def _runs(self, db: "asyncpg.Connection[Any]", statement: str, *values: object) -> list[Run]:
        """Those that nobody else is taking, held from here on."""
        return [sql.run_of(tuple(r)) for r in await db.fetch(statements.locked(statement), *values)]

    # --- applying ------------------------------------------------------------------------
    async def _write(
        self, db: "asyncpg.Connection[Any]", batch: Batch, labels: Sequence[str], *, notify: bool = False
    ) -> None:
        """Write what a batch leaves with its receipt, and COMMIT. Raises Mismatch, Unavailable, Uncertain."""
        if batch.told:
            await db.execute(statements.TOLD, *statements.keys_of(UNTOLD, batch.told))
        drawn = self._drawn(batch, notify=notify)
        self._batches += 1
        statement = statements.write(tuple(drawn.forms), notify=drawn.notify)
        written = await db.fetchrow(statement, *self._receipt(), *drawn.values)
        assert written is not None
        if not written[0]:
            raise Unavailable(f"writer {self._writer} has been closed", "another process took this one for dead",
                              "start this process again")  # fmt: skip
        if list(written[1 : 1 + len(drawn.counts)]) != drawn.counts:
            raise Mismatch
        points.point("store.batch:inside", labels)
        await self._commit(db)
        self._learn(batch)
        points.point("store.batch:after", labels)

    def _drawn(self, batch: Batch, *, notify: bool) -> Drawn:
        """What a batch leaves, as the statements take it. Notes whether somebody has to be woken."""
        drawn = Drawn([], [], [], False)
        for kind in KINDS:
            changes = batch.changes[kind.name].values()
            for insert in (True, False):
                rows = [left for left in changes if (left.replaces == 0) is insert]
                if rows:
                    form = Form(kind, insert)
                    drawn.forms.append(form)
                    drawn.counts.append(len(rows))
                    drawn.values.extend(arrays(form.types, [r.row if insert else (*r.row, r.replaces) for r in rows]))
        woken = [left.row for left in batch.changes[RUN.name].values() if _may_be_due(left.row)]
        self.woken = self.woken or bool(woken) or notify
        due = any(isinstance(r, Run) and (r.due_at or 0) <= batch.now.real for r in woken)
        return drawn._replace(notify=notify or due)

    def _learn(self, batch: Batch) -> None:
        for left in batch.changes[RUN.name].values():
            assert isinstance(left.row, Run)
            self._known.learn(left.row)


def _names(commit: Commit, busy: set[tuple[str, Key]]) -> bool:
    mine = named((commit,), optimistic=False) if busy else {}
    return any((kind.name, key) in busy for kind, keys in mine.items() for key in keys)


def _move_runs(tickets: Sequence[Ticket]) -> bool:
    """May they write a run? Renewals do not: they wait for nobody."""
    return not all(
        isinstance(t.work, Commit)
        and t.work.fence is None
        and all(type(w) is Put and w.kind is WORKER for w in t.work.writes)
        for t in tickets
    )


def _may_be_due(row: Row) -> bool:
    return isinstance(row, Run) and row.owner == "" and row.due_at is not None
