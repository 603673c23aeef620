"""Lands a commit by one transaction: judge it by known rows, verify by conditions, resolve lost answers (S-7 to S-9).

Why no commit lands twice and none is reported as lost after it landed:

1. Every transaction sets its receipt shard from number n - 1 to n, and one transaction at a time uses a shard. So of
   all copies of a request, at most one lands, whatever a network delays or repeats.
2. A commit is sent again only if the service said that it did not land, or after the fence `n - 1 → n + 1` landed.
   Numbers only grow. So a copy of transaction n that arrives later finds another number, and fails.
3. If the fence fails, a strong read of the shard tells the result: n was written by the transaction alone, n + 1 by a
   fence alone. Until then the shard is `lost`, no other transaction uses it, and the answer is Uncertain.
4. All that the judge assumed is a condition of the transaction: the rows, the settings, and that the writer is alive.
   A refusal is an answer only if it was judged by rows that were read strongly after the commit was submitted.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from outlast.core.commit import IDENTITY, AppendMessage, Chain, Commit, Done, Instant, Put, Wake
from outlast.core.crash_points import point
from outlast.core.durations import HEARTBEAT_WINDOW
from outlast.core.machine import ENDED
from outlast.core.rows.row_kind import AnyKind, Key, key_of
from outlast.core.rows.run_rows import RUN
from outlast.core.rows.store_rows import META, WRITER, Meta, Worker
from outlast.core.webhooks.deliveries import SUBSCRIBED_TENANTS, tenants_of
from outlast.errors import Corrupt, Rejected, Stale, StoreError, Unavailable, Uncertain
from outlast.store.batch import CHAIN, MAPPING, Batch
from outlast.store.dynamodb.connection import (
    RECOVERY_LOCKS,
    RUNS,
    Away,
    ConditionRefused,
    Conflicted,
    Connection,
    Throttled,
    Unusable,
    pause,
)
from outlast.store.dynamodb.items import (
    Item,
    Revision,
    decode,
    place,
    revision,
)
from outlast.store.dynamodb.reads import place_of
from outlast.store.dynamodb.receipts import REFUSED, Receipts, Shard, WriterSettings
from outlast.store.dynamodb.transact import (
    Action,
    Receipt,
    actions,
    changed_runs,
    keep_turns,
    receipt_action,
    turn_request,
)
from outlast.store.sql import warn_once
from outlast.store.store_clock import MAPPING_ROW, StoreClock, mapping_of

log = logging.getLogger("outlast.store")
KNOWN_MAX: Final = 20_000  # runs; about 1 KB each
LEASES_MAX: Final = 1_000
TURNS_MAX: Final = 50  # attempts to land one commit before it is refused as busy
BUSY_S: Final = 30.0  # … and the time after which no further attempt begins
URGENT_S: Final = 4.0  # the same for a renewal: below the heartbeat interval, so that there is time for two more
RESOLVE_S: Final = 30.0  # time to find out whether a transaction with a lost answer landed
TOGETHER_MAX: Final = 3  # refusals after which commits land one by one: a run that changes often stops no other
TURN_AFTER: Final = 3  # refusals after which a writer asks for the next turn at an inbox
LOCKED: Final = "lock"  # reason of Stale: another worker recovers this run


class Landed(NamedTuple):
    """Receipt of a landed commit, and the runs as it left them."""

    done: Done
    runs: dict[Key, Revision]


class Judged(NamedTuple):
    """Commits as the judge answers them, and the transaction of those accepted. Without actions, nothing is sent."""

    batch: Batch | None
    answers: Sequence[Done | StoreError]
    known: dict[Key, Revision]
    actions: Sequence[Action]
    receipt: Receipt
    inboxes: tuple[Item, ...] = ()  # keys of the runs that get a message


class Contended(Exception):
    """Several commits were refused together too often. Nothing landed; land each by itself."""


Prepare = Callable[[Shard, bool, set[str]], Awaitable[Judged | None]]
"""Function that returns the transaction to send over a shard; True: by rows that it reads first.

The set has the partition keys of runs that other workers recover.
"""


class Found(NamedTuple):
    """Rows by which a commit is judged. Of most rows only key and version are known or assumed."""

    runs: dict[Key, Revision | None]
    others: dict[tuple[str, Key], Any]
    shards: dict[str, int]  # number of receipt items, by writer

    def read(self, kind: AnyKind, key: Key) -> Any:
        """Return a row for Batch, or None."""
        if kind is RUN:
            found = self.runs.get(key)
            return None if found is None else found.run
        return self.others.get((kind.name, key))


class Lander:
    """Lands commits of one writer, several at once. Raises the errors of the port."""

    def __init__(
        self,
        connection: Connection,
        receipts: Receipts,
        store_clock: StoreClock,
        refusal: Callable[[], Unavailable | None] = lambda: None,
        *,
        skew: int = 0,
    ) -> None:
        """`refusal` returns why nothing may be written now, for example by a wrong clock, or None.

        `skew`: of the store; it is added to the end of recovery locks.
        """
        self.mapping = IDENTITY  # as last seen
        self.subscribed_tenants: frozenset[str] = frozenset()  # as last seen
        self.refusal = refusal
        self._skew = skew
        self.refreshed_at = 0.0  # time of the event loop
        self._connection = connection
        self._receipts = receipts
        self._env = connection.address.environment
        self._store_clock = store_clock
        self._known: dict[Key, Revision] = {}  # runs as this process last wrote or read them; may be outdated
        self._leases: dict[str, int] = {}  # ends of the leases that this process renewed, by worker

    def now(self) -> Instant:
        """Return the store's time by the clock mapping that this process saw last."""
        return self.mapping.at(self._store_clock.real())

    # --- settings ------------------------------------------------------------------------
    async def refresh(self) -> bool:
        """Read the clock mapping and the tenants with subscriptions. Return True if one has changed.

        Raises Unavailable.
        """
        items = await self._items([(META, MAPPING_ROW), (META, SUBSCRIBED_TENANTS)])
        self.refreshed_at = asyncio.get_running_loop().time()
        if not self._learn_settings(items):
            return False
        await self._receipts.raise_own()
        return True

    async def changed_settings(self) -> None:
        """Have every writer judge by the present settings, after this process changed them.

        A failure is logged: then the other writers find the change when they next poll.
        """
        try:
            await self.refresh()
            await self._receipts.announce()
        except Unavailable as error:
            log.warning("other writers will find changed settings later: %s", error)

    def _learn_settings(self, items: dict[tuple[str, Key], Any]) -> bool:
        receipts = self._receipts
        mapping, subscribed = (self._meta(items, key) for key in (MAPPING_ROW, SUBSCRIBED_TENANTS))
        found = WriterSettings(*(0 if row is None else row.version for row in (mapping, subscribed)))
        settings = receipts.settings.raised(found)
        if settings == receipts.settings:
            return False
        if found.mapping > receipts.settings.mapping:
            self.mapping = mapping_of(mapping)
        if found.subscribed > receipts.settings.subscribed:
            self.subscribed_tenants = tenants_of(subscribed)
        receipts.settings = settings
        return True

    def _meta(self, items: dict[tuple[str, Key], Any], key: Key) -> Meta | None:
        item = items.get((META.name, key))
        return None if item is None else decode(META, item)

    # --- one commit ------------------------------------------------------------------------
    async def land(
        self, commit: Commit, chain: Chain | None = None, *, urgent: bool = False, mapping: int | None = None
    ) -> Landed:
        """Land a commit, or raise Stale, Ended, Rejected, Unavailable or Uncertain.

        `urgent`: over its own shard. `mapping`: version of the clock mapping by which it was decided.
        """
        (answer,) = await self.land_together((commit,), chain, urgent=urgent, mapping=mapping)
        if isinstance(answer, StoreError):
            raise answer
        return answer

    async def land_together(
        self,
        commits: Sequence[Commit],
        chain: Chain | None = None,
        *,
        urgent: bool = False,
        mapping: int | None = None,
    ) -> list[Landed | StoreError]:
        """Land commits by one transaction, in which they must have room, and answer each. Refusals stop no other.

        Raises Stale, Unavailable or Uncertain if that concerns all of them.
        """
        labels = tuple([commit.label for commit in commits])
        point("store.batch:before", labels)
        if chain is not None and chain.broken:
            raise Stale(CHAIN)
        found = _assumed(commits)

        async def prepare(shard: Shard, exact: bool, locked: set[str]) -> Judged | None:
            rows = await self._read(commits) if exact else await self._read_runs(found)
            if mapping is not None and mapping != self.mapping.version:
                raise Stale(MAPPING)
            return self._judge(commits, chain, shard, rows, exact, locked)

        try:
            judged, late = await self._over(prepare, labels, urgent=urgent)
        except Contended:
            return await asyncio.gather(*(self._answer(commit, mapping) for commit in commits))
        assert judged.batch is not None
        runs = changed_runs(judged.batch, judged.known)
        for key, left in runs.items():
            self._remember(key, left)
        for commit, answer in zip(commits, judged.answers, strict=True):
            if isinstance(answer, Done):
                self._learn_leases(commit)
        if SUBSCRIBED_TENANTS in judged.batch.changes[META.name]:
            await self.changed_settings()
        point("store.batch:after", labels)
        # Of commits with a lost answer, a later time is safe: no caller then counts on time that has passed.
        now = self.now() if late else judged.batch.now
        return [
            Landed(answer._replace(now=now), runs) if isinstance(answer, Done) else answer for answer in judged.answers
        ]

    async def _answer(self, commit: Commit, mapping: int | None) -> Landed | StoreError:
        try:
            return await self.land(commit, mapping=mapping)
        except StoreError as error:
            return error

    async def land_alone(self, writes: Sequence[Action], label: str) -> None:
        """Land ready-made actions with a receipt.

        Raises ConditionRefused, with the reasons of these actions, if one of their conditions does not hold. Raises
        Rejected, Unavailable and Uncertain.
        """
        point("store.batch:before", (label,))

        async def prepare(shard: Shard, exact: bool, locked: set[str]) -> Judged | None:
            receipt = self._receipts.next(shard)
            return Judged(None, (), {}, [receipt_action(self._env, receipt), *writes], receipt)

        await self._over(prepare, (label,), judged=False)
        point("store.batch:after", (label,))

    async def _over(
        self, prepare: Prepare, labels: Sequence[str], *, urgent: bool = False, judged: bool = True
    ) -> tuple[Judged, bool]:
        """Land what `prepare` returns over a free shard. Errors of the connection become errors of the port."""
        if (off := self.refusal()) is not None:
            raise off
        receipts = self._receipts
        shard = receipts.urgent if urgent else await receipts.acquire()
        try:
            return await self._try(shard, prepare, labels, URGENT_S if urgent else BUSY_S, judged)
        except (Away, Unusable) as error:
            raise Unavailable("the store does not answer", str(error)) from error
        except Corrupt as error:
            raise Rejected(str(error)) from error
        finally:
            receipts.release(shard)

    async def _try(
        self, shard: Shard, prepare: Prepare, labels: Sequence[str], busy_s: float, judged: bool
    ) -> tuple[Judged, bool]:
        """Send a transaction until it has landed. Also return True if its answer was lost."""
        if shard.lost:
            await self._settle_lost(shard)
        loop = asyncio.get_running_loop()
        until = loop.time() + busy_s
        exact, refusals, late = False, 0, False
        locked: set[str] = set()
        for turn in range(TURNS_MAX):
            ready = await prepare(shard, exact, locked)
            if ready is None:
                exact = True
                continue
            if not ready.actions:
                return ready, False
            point("store.batch:inside", labels)
            try:
                landed = await self._send(shard, ready, busy_s)
                if landed is not None:
                    return ready, landed
                late = True
            except ConditionRefused as refused:
                if refused.reasons[0] == REFUSED:
                    if await self._look_at_receipt(shard):
                        return ready, True
                elif not judged:
                    raise ConditionRefused(refused.reasons[1:]) from refused
                else:
                    locked |= self._locked(ready, refused)
                refusals += 1
                if refusals == TOGETHER_MAX and len(ready.answers) > 1:
                    raise Contended from refused
                if exact and not await self._has_turn(ready, refusals):
                    await pause(turn, 0.002, 0.1)
                exact = judged
            except Conflicted:
                await pause(turn, 0.005, 0.1)
            except Throttled:
                await pause(turn, 0.05, 2.0)
            if loop.time() >= until:
                break
        if late:
            raise Unavailable("the store does not answer in time", "the commit was withdrawn by its receipt")
        raise Unavailable("the store is busy", "other transactions were faster each time")

    def _judge(
        self, commits: Sequence[Commit], chain: Chain | None, shard: Shard, found: Found, exact: bool, locked: set[str]
    ) -> Judged | None:
        """Return the answers and the transaction. None: a refusal or nothing to write, by rows that may be outdated.

        It does not wait, so that the settings of the receipt are those by which it judges.
        """
        batch = Batch(found.read, self.now(), subscribed_tenants=self.subscribed_tenants)
        answers: list[Done | StoreError] = []
        for commit in commits:
            try:
                if locked and locked & _partitions(commit):
                    raise Stale(LOCKED)
                answers.append(batch.land(commit, chain))
            except Stale as error:  # also Ended
                if not exact:
                    return None
                answers.append(error)
        accepted = [commit for commit, answer in zip(commits, answers, strict=True) if isinstance(answer, Done)]
        receipt = self._receipts.next(shard)
        known = {key: each for key, each in found.runs.items() if each is not None}
        if not (any(batch.changes.values()) or batch.published or batch.erased):
            return Judged(batch, answers, known, (), receipt) if exact else None
        built = actions(self._env, batch, accepted, receipt, known, lease_end=self._lease_end, shards=found.shards)
        writes = [write for commit in accepted for write in commit.writes]
        inboxes = tuple([place(RUN, write.message[:2]).key() for write in writes if type(write) is AppendMessage])
        for update in (action["Update"] for action in built if inboxes and "Update" in action):
            if update["Key"] in inboxes:
                keep_turns(update, receipt.writer, batch.now.real)
        return Judged(batch, answers, known, built, receipt, inboxes)

    async def _send(self, shard: Shard, ready: Judged, answer_s: float) -> bool | None:
        """Send a transaction. Return False if it landed, True if its answer was lost too, None if it can never land.

        Raises the errors by which the service says that it did not land, and Uncertain.
        """
        certain = False
        try:
            async with asyncio.timeout(answer_s):
                await self._connection.call("TransactWriteItems", TransactItems=list(ready.actions))
            shard.batch, certain = ready.receipt.batch, True
            return False
        except (ConditionRefused, Conflicted, Throttled, Unusable, Rejected):
            certain = True
            raise
        except (Away, TimeoutError) as error:
            if isinstance(error, Away) and not error.sent:
                certain = True
                raise
            shard.lost = True
            landed = await self._receipts.settle(shard, min(RESOLVE_S, answer_s))
            certain = True
            return True if landed else None
        finally:
            if not certain:  # Uncertain, or a bug: the shard is settled before its next transaction
                shard.lost = True

    async def _settle_lost(self, shard: Shard) -> None:
        try:
            await self._receipts.settle(shard, 0.0)
        except Uncertain as error:  # about an earlier commit: this one was not sent
            raise Unavailable("the store does not answer", error.why) from error

    async def _look_at_receipt(self, shard: Shard) -> bool:
        """Find out why the receipt of a transaction was refused. Return True if the transaction landed before.

        Raises Unavailable if the writer was closed.
        """
        found = await self._receipts.find(shard)
        if found is None:
            raise self._receipts.closed()
        n = shard.batch + 1
        shard.batch = found.batch
        if found.batch == n:
            return True
        if not found.alive:
            raise self._receipts.closed()
        if found.settings != self._receipts.settings:
            await self.refresh()
            await self._receipts.raise_own()
        return False

    async def _has_turn(self, ready: Judged, refusals: int) -> bool:
        """Ask for the next turn at the inboxes of a commit that was often too slow. True if all of them gave it."""
        if refusals < TURN_AFTER or not ready.inboxes:
            return False
        table = self._connection.address.table(RUNS)
        asked = [turn_request(table, key, ready.receipt.writer, refusals, self.now().real) for key in ready.inboxes]
        try:
            await asyncio.gather(*(self._receipts.items.call("UpdateItem", **each) for each in asked))
        except ConditionRefused:
            return False
        return True

    def _locked(self, ready: Judged, refused: ConditionRefused) -> set[str]:
        """Return the partition keys of the runs whose recovery lock was refused."""
        locks = self._connection.address.table(RECOVERY_LOCKS)
        return {
            action["Put"]["Item"]["pk"]["S"]
            for reason, action in zip(refused.reasons, ready.actions, strict=False)
            if reason == REFUSED and action.get("Put", {}).get("TableName") == locks
        }

    # --- rows --------------------------------------------------------------------------------
    async def _read_runs(self, assumed: Found) -> Found:
        """Return the assumed rows with the runs as they are known, and read those that are not."""
        runs = {key: self._known.get(key) for key in assumed.runs}
        missing: list[tuple[AnyKind, Key]] = [(RUN, key) for key, known in runs.items() if known is None]
        missing += [(WRITER, key) for name, key in assumed.others if name == WRITER.name]
        if not missing:
            return assumed._replace(runs=runs)
        found = self._found(await self._items(missing))
        others = {each: row for each, row in assumed.others.items() if each[0] != WRITER.name}
        return Found(runs | found.runs, others | found.others, found.shards)

    async def _read(self, commits: Sequence[Commit]) -> Found:
        """Read every row that the commits name, and the settings."""
        assumed = _assumed(commits)
        puts = [write for commit in commits for write in commit.writes if type(write) is Put]
        runs = {*assumed.runs, *(key_of(RUN, put.row) for put in puts if put.kind is RUN)}
        named: list[tuple[AnyKind, Key]] = [(RUN, key) for key in runs]
        kinds = {put.kind.name: put.kind for put in puts}
        kinds |= {expect.kind.name: expect.kind for commit in commits for expect in commit.expects}
        named += [(kinds[name], key) for name, key in assumed.others]
        settings: list[tuple[AnyKind, Key]] = [(META, MAPPING_ROW), (META, SUBSCRIBED_TENANTS)]
        items = await self._items([*named, *(each for each in settings if each not in named)])
        if self._learn_settings(items):
            await self._receipts.raise_own()
        for key in runs:
            self._known.pop(key, None)
        found = self._found(items)
        for key, each in found.runs.items():
            if each is not None:
                self._remember(key, each)
        return found

    async def read_at(self, entries: Iterable[Item]) -> list[Revision]:
        """Read the runs at these entries of an index strongly and remember them. Missing ones are left out.

        Raises Unavailable.
        """
        places = [place_of(RUNS, item) for item in entries]
        items = await self._receipts.items.whole_runs(places)
        found: list[Revision] = []
        for where in places:
            item = items.get(where)
            try:
                if isinstance(item, Corrupt):
                    raise item
                if item is not None:
                    found.append(revision(item))
            except Corrupt as error:
                warn_once(error.row[1] if error.row else (where.pk, where.sk), error.what)
        for each in found:
            self._remember(each.run[:2], each)
        return found

    async def _items(self, named: Iterable[tuple[AnyKind, Key]]) -> dict[tuple[str, Key], Any]:
        """Read the items of rows strongly. Rows without an item are missing from the answer. Raises Corrupt."""
        wanted = {place(kind, key): (kind.name, key) for kind, key in named}
        items = await self._receipts.items.whole_runs([*wanted])
        for item in items.values():
            if isinstance(item, Corrupt):
                raise item
        return {wanted[where]: item for where, item in items.items()}

    def _found(self, items: dict[tuple[str, Key], Any]) -> Found:
        found = Found({}, {}, {})
        for (name, key), item in items.items():
            if name == RUN.name:
                found.runs[key] = revision(item)
            elif name == WRITER.name:
                found.others[name, key] = decode(WRITER, item)
                found.shards[str(key[1])] = int(item["shards"]["N"])
            else:
                found.others[name, key] = (*key, int(item["version"]["N"]) if "version" in item else 1)
        return found

    def _remember(self, key: Key, left: Revision) -> None:
        self._known.pop(key, None)
        if left.run.owner != ENDED:
            self._known[key] = left
        if len(self._known) > KNOWN_MAX:
            del self._known[next(iter(self._known))]

    def _learn_leases(self, commit: Commit) -> None:
        for write in commit.writes:
            if type(write) is Put and isinstance(write.row, Worker):
                if len(self._leases) >= LEASES_MAX:
                    self._leases.clear()
                self._leases[write.row.id] = write.row.lease_until

    def _lease_end(self, worker: str) -> int:
        return self._leases.get(worker, self._store_clock.real() + HEARTBEAT_WINDOW) + self._skew


def _partitions(commit: Commit) -> set[str]:
    """Return the partition keys of the runs whose rows a commit writes."""
    return {place(RUN, key_of(RUN, put.row)).pk for put in commit.writes if type(put) is Put and put.kind is RUN}


def _assumed(commits: Iterable[Commit]) -> Found:
    """Return the rows that commits name, as they say that they are. Runs are named, but not known.

    If several commits name a row, that is the row as the first one names it.
    """
    found = Found({}, {}, {})
    for commit in commits:
        _assume(commit, found.runs, found.others)
    return found


def _assume(commit: Commit, runs: dict[Key, Revision | None], others: dict[tuple[str, Key], Any]) -> None:
    if commit.fence is not None:
        runs[commit.fence[:2]] = None
    for expect in commit.expects:
        if expect.kind is RUN:
            runs[expect.key] = None
        else:
            others.setdefault((expect.kind.name, expect.key), (*expect.key, expect.version) if expect.version else None)
    for write in commit.writes:
        if type(write) is AppendMessage:
            runs[write.message[:2]] = None
        elif type(write) is Wake:
            runs[write[:2]] = None
        elif type(write) is Put:
            key = key_of(write.kind, write.row)
            if write.kind is not RUN:
                others.setdefault((write.kind.name, key), (*key, write.replaces) if write.replaces else None)
            elif write.replaces:
                runs[key] = None
