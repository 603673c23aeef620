"""Lands batches in PostgreSQL: lock rows in one order, judge in memory, write by one statement (S-7 to S-9).

Possible faults, and why each commit is answered with its true result:

- *Two writers lock rows crosswise.* All lock in one order of kinds and keys. A lost race is repeated RACES_MAX times.
- *Known rows are outdated.* The statement that reads nothing locks each run at its known version and inbox_seq, or
  changes nothing. The next rung of LADDER reads more rows.
- *One commit makes a statement fail.* The last rung lands each commit in its own transaction, so only the one at fault
  is refused.
- *The answer to COMMIT is lost, and the batch may have landed, or may still land.* Its number is in the writer's row,
  written by the same transaction. `resolve` first ends the server's session that may still write, then reads the number
  by a commit. Until both have an answer the result is unknown, and after RESOLVE_S it is Uncertain.
- *A standby lacks what this server has.* The reading commit is not answered before the standby has both.
- *Another transaction holds a row for long.* The tickets that need it are returned in order, and the others land.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import asyncpg

from outlast.core import crash_points
from outlast.core.commit import IDENTITY, Commit, Done, Instant, Put
from outlast.core.machine import NO_HOLDER, LeaseStatus
from outlast.core.rows.all_kinds import KINDS, Row
from outlast.core.rows.outbox_rows import UNPUBLISHED
from outlast.core.rows.row_kind import AnyKind, Key
from outlast.core.rows.run_rows import RUN, Run
from outlast.core.rows.store_rows import META, STORE, WORKER, WRITER, Writer
from outlast.errors import Rejected, StoreError, StoreUnusable, Unavailable, Uncertain
from outlast.store import sql
from outlast.store.batch import Batch
from outlast.store.fair_queueing import DueQuery, FairQueue
from outlast.store.postgres import statements
from outlast.store.postgres.connection import AGAIN, ANSWER_S, AWAY, Address, reconnect, remedy
from outlast.store.postgres.known_runs import KnownRuns
from outlast.store.postgres.statements import RowKeys, WriteForm, arrays, row_keys
from outlast.store.queries import OWNED
from outlast.store.sql import DECODE
from outlast.store.store_clock import MAPPING_ROW, StoreClock, mapping_of
from outlast.store.tickets import Offers, Take, Ticket, candidates, judge, refuse, rows_to_read, taken

T = TypeVar("T")
RESOLVE_S: Final = 30.0  # time to find out the result of a COMMIT with a lost answer
ASK_AGAIN_S: Final = 0.2
RACES_MAX: Final = 5  # lost races before a commit is refused as busy
NO_TENANTS: Final[frozenset[str]] = frozenset()
KNOWN_AS: Final = ("text", "text", "bigint", "bigint")  # tenant, run, version, inbox_seq


class Mismatch(Exception):
    """A bulk write met a row of another version. The batch is judged again with every row read first."""


class Rung(NamedTuple):
    """A way of landing a batch. A lower rung knows more rows, and costs more round trips."""

    reads: str  # rows that it reads and locks before it judges
    together: bool  # all tickets in one transaction
    optimistic: bool  # a statement compares versions of rows that only a holder writes, and inserts without a look


# The rung above them reads no row: a batch of holders' commits on known runs is judged in memory and lands by one
# statement (decision 0031). It is left without effect if a known run is outdated or a commit would be refused. A rung
# of the table is left if a version differs or the server refuses a statement: one ticket is at fault, and the next
# rung finds out which. 99 % of the commits of effectful runs land by the statement, starts and takes by the first rung
# of the table (decision 0069).
LADDER: Final = (
    Rung("runs, and rows that other processes write", together=True, optimistic=True),
    Rung("all rows that a commit names", together=True, optimistic=False),
    Rung("all rows that one commit names", together=False, optimistic=False),
)


class BatchParameters(NamedTuple):
    """Rows of a batch as parameters: their forms, the count of each, their arrays, and whether to notify."""

    forms: list[WriteForm]
    counts: list[int]
    values: list[Any]
    notify: bool


class PostgresSession:
    """Lands batches over one connection and leaves a receipt of each. Used by one task at a time."""

    def __init__(self, address: Address, writer: str, store_clock: StoreClock, *, answer_s: float = ANSWER_S) -> None:
        self._address = address
        self._writer = writer
        self._answer_s = answer_s
        self._db: asyncpg.Connection[Any] | None = None
        self.server_session: tuple[Any, ...] = ()  # identity of the connection on the server, see SESSION
        self._batches = 0
        self.mapping = IDENTITY  # as last seen
        self.subscribed_tenants = NO_TENANTS  # tenants whose events are noted as unpublished; as last seen
        self._subscribed_text: str | None = None  # the same as stored text
        self.woken = False  # a run may have become due
        self._store_clock = store_clock
        self._known = KnownRuns()
        self._fair = FairQueue()
        self._offers = Offers()

    # --- the connection ------------------------------------------------------------------
    async def db(self) -> "asyncpg.Connection[Any]":
        """Return the connection, and reopen it if the last one is gone.

        Raises asyncpg's errors.
        """
        if self._db is None or self._db.is_closed():
            db = await reconnect(self._address, writes=True, answer_s=self._answer_s)
            self.server_session = tuple(await db.fetchrow(statements.SESSION) or ())
            self._db = db
        return self._db

    async def drop(self) -> None:
        """Give the connection up. The server rolls back its open transaction."""
        db, self._db = self._db, None
        if db is not None:
            db.terminate()

    async def close(self) -> None:
        """Close the connection in order."""
        db, self._db = self._db, None
        if db is not None and not db.is_closed():
            await db.close(timeout=5)

    def _receipt(self) -> tuple[int, str, str, str]:
        return (self._batches, STORE, self._writer, LeaseStatus.ALIVE.value)

    async def _commit(self, db: "asyncpg.Connection[Any]") -> None:
        """COMMIT, and find out the result if the answer is lost.

        Raises Unavailable and Uncertain.
        """
        try:
            await db.execute("COMMIT")
        except AWAY as error:
            await self.drop()
            await self.resolve(error)

    async def resolve(self, error: BaseException) -> None:
        """Return if the batch with the lost answer landed.

        Raises Unavailable if it did not, and Uncertain if this is unknown. The receipt decides, once the server session
        that may still write it has ended. A transaction id does not decide: after a crash of the server it may be given
        to another transaction (docs/decisions). The receipt is read by a commit, because a session that waits for a
        standby leaves its batch on this server alone when it is ended. A commit after it is not answered until the
        standby has both.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + RESOLVE_S
        old = self.server_session
        while loop.time() < until:
            try:
                db = await self.db()
                if old and not await db.fetch(statements.END, *old):
                    record = await db.fetchrow(statements.CONFIRM, STORE, self._writer)
                    break
            except (*AWAY, asyncpg.PostgresError, Unavailable):
                await self.drop()
            await asyncio.sleep(ASK_AGAIN_S)
        else:
            raise Uncertain("the store's answer was lost", f"{type(error).__name__}: {error}") from error
        row: Writer | None = None if record is None else DECODE[WRITER.name](tuple(record))
        if row is None:
            raise Uncertain("the store's answer was lost", "and this writer's receipts were deleted") from error
        if row.batch != self._batches:
            raise Unavailable("the store did not take the batch", str(error)) from error

    async def _roll_back(self, db: "asyncpg.Connection[Any]") -> None:
        """Leave no transaction open. A connection that cannot roll back is given up."""
        if self._db is db and not db.is_closed() and db.is_in_transaction():
            try:
                await db.execute("ROLLBACK")
            except (*AWAY, asyncpg.PostgresError):
                await self.drop()

    # --- one batch -----------------------------------------------------------------------
    async def land(self, tickets: Sequence[Ticket]) -> list[Ticket]:
        """Answer every ticket, except those whose rows another transaction holds. Return these in order.

        Try the statement without reads first, then each rung of LADDER.
        """
        labels = [t.work.label for t in tickets] if crash_points.hook else ()
        crash_points.point("store.batch:before", labels)
        if (runs := self._known.of(tickets)) is not None and await self._land_alone(tickets, runs, labels):
            return []
        for rung in LADDER:
            held: list[Ticket] = []
            for part in [tickets] if rung.together else [(ticket,) for ticket in tickets]:
                try:
                    held += await self._retried(part, rung.optimistic)
                except (Mismatch, asyncpg.PostgresError) as error:
                    if rung.together:
                        break
                    refuse(part, Rejected("the database refused a statement of this commit", str(error)))
            else:
                return held
        raise AssertionError("the last rung answers every ticket")

    async def _land_alone(self, tickets: Sequence[Ticket], runs: Sequence[Run], labels: Sequence[str]) -> bool:
        """Land a batch by one statement in one round trip, and return True.

        Return False without any effect if a commit would be refused or a known row is outdated. The caller then reads
        the rows.
        """
        now = self.mapping.at(self._store_clock.at_least(0))
        batch = Batch(self._known.read, now, optimistic=True, subscribed_tenants=self.subscribed_tenants)
        answers = [judge(ticket, batch) for ticket in tickets]
        if not all(isinstance(answer, Done) for answer in answers):
            return False  # a refusal counts only if it was judged by rows that were read
        parameters = self._parameters(batch, notify=False)
        assert not parameters.notify, "a run that falls due for others is written by a commit that reads the time"
        try:
            db = await self.db()
        except (*AWAY, asyncpg.PostgresError, StoreError, StoreUnusable):
            return False  # nothing was sent: the next attempt reports the error
        self._batches += 1  # before it is sent: a number is used once, so it tells which batch landed
        crash_points.point("store.batch:inside", labels)
        try:
            try:
                found = await db.fetchrow(
                    statements.write_alone(tuple(parameters.forms)),
                    *self._receipt(),
                    *arrays(KNOWN_AS, [(run.tenant, run.run, run.version, run.inbox_seq) for run in runs]),
                    len(runs),
                    sum(parameters.counts),
                    *MAPPING_ROW,
                    self._subscribed_text,
                    *parameters.values,
                )
                assert found is not None
                now = self._instant_of(tuple(found))
            except AWAY as error:  # the batch may have landed
                await self.drop()
                await self.resolve(error)
                now = await self._time_of(error)
        except StoreError as error:
            refuse(tickets, error)
            return True
        except (*AGAIN, asyncpg.PostgresError):
            return False  # the server answered, so nothing landed
        for ticket, answer in zip(tickets, answers, strict=True):
            assert isinstance(answer, Done)
            ticket.answer = answer._replace(now=now)
        self._learn(batch)
        crash_points.point("store.batch:after", labels)
        return True

    async def _time_of(self, error: BaseException) -> Instant:
        """Return a time after a batch that landed with a lost answer.

        A later time is safe, because no caller then counts on time that has passed. Raises Uncertain.
        """
        try:
            return await self.now(await self.db())
        except (*AWAY, asyncpg.PostgresError, StoreError) as second:
            await self.drop()
            raise Uncertain("the store's answer was lost", f"{error}; then {second}") from error

    async def _retried(self, tickets: Sequence[Ticket], optimistic: bool) -> list[Ticket]:
        """Repeat a transaction that lost a race.

        Raises the errors that one ticket causes.
        """
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
            except TimeoutError:  # the connection does not answer, and would not answer a ROLLBACK
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
            refuse(tickets, Unavailable("the store does not answer", f"{type(error).__name__}: {error}", remedy(error)))
        return held

    async def _transact(
        self, db: "asyncpg.Connection[Any]", tickets: Sequence[Ticket], optimistic: bool
    ) -> list[Ticket]:
        commits = [t.work for t in tickets if isinstance(t.work, Commit)]
        rows, busy = await self.lock(db, row_keys(commits, optimistic=optimistic))
        now = await self.now(db)
        batch = Batch(
            lambda kind, key: rows.get((kind.name, key)),
            now,
            optimistic=optimistic,
            subscribed_tenants=self.subscribed_tenants,
        )
        held: list[Ticket] = []
        for ticket in tickets:
            if self._is_blocked(ticket, busy, held):
                held.append(ticket)
            elif isinstance(ticket.work, Take):
                ticket.answer = await self._take(db, ticket.work, batch, rows)
            else:
                ticket.answer = judge(ticket, batch)
        if any(batch.changes.values()) or batch.published or batch.erased:
            await self.write(db, batch, [t.work.label for t in tickets] if crash_points.hook else ())
        for chain in batch.broken:
            chain.broken = True
        return held

    def _is_blocked(self, ticket: Ticket, busy: set[tuple[str, Key]], held: Sequence[Ticket]) -> bool:
        """Return True if another transaction holds a row of the ticket, or its chain waits for one (S-7)."""
        if not (busy or held) or not isinstance(ticket.work, Commit):
            return False
        if ticket.chain is not None and any(other.chain is ticket.chain for other in held):
            return True
        mine = row_keys((ticket.work,), optimistic=False)
        if any((kind.name, key) in busy for kind, keys in mine.items() for key in keys):
            return True
        runs = mine.get(RUN, set())
        return any(
            runs & row_keys((o.work,), optimistic=False).get(RUN, set()) for o in held if isinstance(o.work, Commit)
        )

    async def lock(
        self, db: "asyncpg.Connection[Any]", wanted: RowKeys
    ) -> tuple[dict[tuple[str, Key], Row], set[tuple[str, Key]]]:
        """Lock and read rows, runs first. Return them, and the keys of rows that others hold."""
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
        """Return the store's time, read after the rows were locked (S-14)."""
        found = await db.fetchrow(statements.NOW_AND_SUBSCRIBED, *MAPPING_ROW)
        assert found is not None
        self._subscribed_text = found[0]
        self.subscribed_tenants = frozenset(json.loads(found[0])) if found[0] else NO_TENANTS
        return self._instant_of(found[1:])

    def _instant_of(self, found: Sequence[Any]) -> Instant:
        real, *meta = found
        self.mapping = mapping_of(DECODE[META.name](tuple(meta)) if meta[0] is not None else None)
        return self.mapping.at(self._store_clock.at_least(real))

    async def alone(
        self,
        work: Callable[["asyncpg.Connection[Any]", Batch], Awaitable[T]],
        label: str,
        *,
        receipt: bool = True,
        begin: str = "BEGIN",
    ) -> T:
        """Run `work` in its own transaction, with a receipt unless the writer's own row is written.

        Raises StoreError or asyncpg's errors.
        """
        db = await self.db()
        try:
            await db.execute(begin)
            batch = Batch(lambda kind, key: None, await self.now(db))
            answer = await work(db, batch)
            if receipt:
                await self.write(db, batch, (label,), notify=True)
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
        real, limit = batch.now.real, rows_to_read(take, batch)
        if take.owners:
            found = [run for owner in take.owners for run in await self._runs(db, OWNED, owner, limit)]
        else:
            queries = self._fair.queries(take.lanes, limit, real, take.held)
            while query := queries.query:
                queries.answer(await self._due(db, query, real))
            found = queries.found
        try:
            moves = self._offers.moves(take.step, candidates(take, batch, found), batch.now, self.mapping)
        except Exception as error:  # an error in one step must not refuse other commits
            return error
        for run in found:
            rows[RUN.name, run[:2]] = run
        commits = [commit for _, commit in moves if commit is not None]
        more = {
            k: {key for key in v if (k.name, key) not in rows} for k, v in row_keys(commits, optimistic=True).items()
        }
        others, busy = await self.lock(db, more)
        rows.update(others)
        left = taken([(run, None if c is None or _names_any(c, busy) else c) for run, c in moves], batch)
        self._known.add_owners(run.owner for run in left if run.owner not in NO_HOLDER)
        return left

    async def _due(self, db: "asyncpg.Connection[Any]", query: DueQuery, real: int) -> list[Run]:
        limit = query.limit
        while True:
            if not query.without:
                found = await self._found(db, sql.DUE, query.lane, real, limit)
            else:
                without = sorted(query.without)
                found = await self._found(db, statements.DUE_BUT, query.lane, real, query.since, without, limit)
            runs = self._offers.read(found)
            if len(runs) >= query.limit or len(found) < limit:
                return runs[: query.limit]
            limit += len(found) - len(runs)  # those that cannot be read hide no others

    async def _runs(self, db: "asyncpg.Connection[Any]", statement: str, *values: object) -> list[Run]:
        return self._offers.read(await self._found(db, statement, *values))

    async def _found(self, db: "asyncpg.Connection[Any]", statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the columns of runs that no other transaction is taking, and lock them."""
        return [*map(tuple, await db.fetch(statements.locked(statement), *values))]

    # --- applying ------------------------------------------------------------------------
    async def write(
        self,
        db: "asyncpg.Connection[Any]",
        batch: Batch,
        labels: Sequence[str],
        *,
        notify: bool = False,
        commit: "Callable[[asyncpg.Connection[Any]], Awaitable[None]] | None" = None,
    ) -> None:
        """Write the rows of a batch with its receipt, and COMMIT by `commit`.

        Raises Mismatch, Unavailable and Uncertain.
        """
        if batch.published:
            await db.execute(statements.FORGET_PUBLISHED, *statements.keys_of(UNPUBLISHED, batch.published))
        for kind, keys in erased_keys(batch).items():
            await db.execute(statements.erase(kind), *statements.keys_of(kind, keys))
        parameters = self._parameters(batch, notify=notify)
        self._batches += 1
        statement = statements.write(tuple(parameters.forms), notify=parameters.notify)
        written = await db.fetchrow(statement, *self._receipt(), *parameters.values)
        assert written is not None
        if not written[0]:
            raise Unavailable(
                f"writer {self._writer} has been closed",
                "another process declared this one dead",
                "restart this process",
            )
        if list(written[1 : 1 + len(parameters.counts)]) != parameters.counts:
            raise Mismatch
        crash_points.point("store.batch:inside", labels)
        await (commit or self._commit)(db)
        self._learn(batch)
        crash_points.point("store.batch:after", labels)

    def _parameters(self, batch: Batch, *, notify: bool) -> BatchParameters:
        """Return the rows of a batch as parameters, and note whether subscribers must be woken."""
        parameters = BatchParameters([], [], [], False)
        for kind in KINDS:
            changes = batch.changes[kind.name].values()
            for insert in (True, False):
                rows = [left for left in changes if (left.replaces == 0) is insert]
                if rows:
                    form = WriteForm(kind, insert)
                    parameters.forms.append(form)
                    parameters.counts.append(len(rows))
                    parameters.values.extend(
                        arrays(form.types, [r.row if insert else (*r.row, r.replaces) for r in rows])
                    )
        woken = [left.row for left in batch.changes[RUN.name].values() if _may_be_due(left.row)]
        self.woken = self.woken or bool(woken) or notify
        due = any(isinstance(r, Run) and (r.due_at or 0) <= batch.now.real for r in woken)
        return parameters._replace(notify=notify or due)

    def _learn(self, batch: Batch) -> None:
        for left in batch.changes[RUN.name].values():
            assert isinstance(left.row, Run)
            self._known.remember(left.row)


def erased_keys(batch: Batch) -> dict[AnyKind, set[Key]]:
    """Return the keys of the rows that a batch deletes, by kind."""
    found: dict[AnyKind, set[Key]] = {}
    for kind, key in batch.erased:
        found.setdefault(kind, set()).add(key)
    return found


def _names_any(commit: Commit, busy: set[tuple[str, Key]]) -> bool:
    mine = row_keys((commit,), optimistic=False) if busy else {}
    return any((kind.name, key) in busy for kind, keys in mine.items() for key in keys)


def _move_runs(tickets: Sequence[Ticket]) -> bool:
    """Return True if a ticket may write a run.

    Lease renewals do not, so they wait for no lock.
    """
    return not all(
        isinstance(t.work, Commit)
        and t.work.fence is None
        and all(type(w) is Put and w.kind is WORKER for w in t.work.writes)
        for t in tickets
    )


def _may_be_due(row: Row) -> bool:
    return isinstance(row, Run) and row.owner == "" and row.due_at is not None
