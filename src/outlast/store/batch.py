"""Judges the commits of a batch in order, each against the rows as earlier commits left them (S-7).

All stores share this module. It reads rows through one function and writes nothing. The result is `changes`: the final
state of each row and the version that it replaces in the store.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from outlast.core.commit import AppendMessage, Chain, Commit, Done, Drop, Erase, Fence, Instant, Put, Wake, When
from outlast.core.machine import ENDED
from outlast.core.rows.all_kinds import KINDS, R
from outlast.core.rows.outbox_rows import UNPUBLISHED, Unpublished
from outlast.core.rows.row_kind import AnyKind, Key, Kind, version_of
from outlast.core.rows.run_rows import MESSAGE, RUN, Event, Run
from outlast.core.rows.store_rows import WRITER, Writer
from outlast.errors import Ended, Stale

Read = Callable[[AnyKind, Key], Any]
"""Function that returns the row of a kind at a key, or None."""

# Reasons of Stale, see `Store.submit`.
VERSION: Final = "version"
EPOCH: Final = "epoch"
INBOX_SEQ: Final = "inbox_seq"
MAPPING: Final = "mapping"
CHAIN: Final = "chain"
MISSING: Final = "missing"
OVER: Final = "the run has ended"


class RowChange(NamedTuple):
    """A row as a commit leaves it, and the version of the stored row that it replaces (0 if none)."""

    kind: AnyKind
    row: Any  # of the kind's row class
    replaces: int


CommitChanges = dict[tuple[str, Key], RowChange]


class Batch:
    """The commits of one transaction, judged at one instant of the store's clock.

    If `optimistic`, a Put of a kind that is not `read_first` is assumed to find the version it names. The store that
    applies `changes` must verify this, and otherwise judge the batch again without optimism.

    Each event of a tenant in `subscribed_tenants` is noted as unpublished (OUT-2). The store deletes the notes whose
    keys are in `published`, and before it writes, the rows in `erased`.
    """

    __slots__ = (
        "_optimistic",
        "_read",
        "_runs",
        "_subscribed_tenants",
        "broken",
        "changes",
        "erased",
        "now",
        "published",
    )

    def __init__(
        self, read: Read, now: Instant, *, optimistic: bool = False, subscribed_tenants: frozenset[str] = frozenset()
    ) -> None:
        self.now = now
        self.changes: dict[str, dict[Key, RowChange]] = {kind.name: {} for kind in KINDS}
        self._runs = self.changes[RUN.name]
        self.broken: set[Chain] = set()  # broken by the store when the batch has landed
        self._read = read
        self._optimistic = optimistic
        self._subscribed_tenants = subscribed_tenants
        self.published: list[Key] = []
        self.erased: list[tuple[AnyKind, Key]] = []

    def row(self, kind: Kind[R], key: Key) -> R | None:
        """Return a row as the commits judged so far leave it."""
        left = self.changes[kind.name].get(key)
        if left is None and self.erased and (kind, key) in self.erased:
            return None
        row: R | None = self._read(kind, key) if left is None else left.row
        return row

    def land(self, commit: Commit, chain: Chain | None = None) -> Done:
        """Add a commit to the batch, whole or not at all.

        Raises Stale or Ended. Stale breaks the chain.
        """
        if chain is not None and (chain.broken or chain in self.broken):
            raise Stale(CHAIN)
        try:
            return self._land(commit)
        except Stale:
            if chain is not None:
                self.broken.add(chain)
            raise

    def _land(self, commit: Commit) -> Done:
        writes, fence, expects, whens, _ = commit
        named: Key | None = None
        inbox_seq = 0
        if fence is not None:
            held = self._fence(fence)
            named, inbox_seq = held[:2], held.inbox_seq
        for expect in expects:
            row = self.row(expect.kind, expect.key)
            if (0 if row is None else version_of(expect.kind, row)) != expect.version:
                raise Stale(VERSION)
        for when in whens:
            self._when(when)
        mine: CommitChanges = {}
        published: list[Key] = []
        erased: list[tuple[AnyKind, Key]] = []
        for write in writes:
            if type(write) is Put:
                if write.kind is not RUN:
                    self._put(write, mine)
                else:
                    named = named or write.row[:2]
                    self._put_run(write, mine)
            elif type(write) is AppendMessage:
                named = named or write.message[:2]
                self._append_message(write, mine, fence)
            elif type(write) is Wake:
                self._wake(write, mine)
            elif type(write) is Erase:
                erased.append((write.kind, write.key))
            else:
                assert type(write) is Drop
                published.append(write)
        self.published += published
        for kind, key in erased:
            self.changes[kind.name].pop(key, None)
            self.erased.append((kind, key))
        changes = self.changes
        for (name, key), left in mine.items():
            changes[name][key] = left
        if named is not None and (moved := mine.get((RUN.name, named))) is not None:
            inbox_seq = moved.row.inbox_seq
        return Done(inbox_seq, self.now)

    def _fence(self, fence: Fence) -> Run:
        tenant, name, epoch, visit, inbox_seq, mapping, version = fence
        left = self._runs.get((tenant, name))
        run: Run | None = self._read(RUN, (tenant, name)) if left is None else left.row
        if run is None:
            raise Stale(MISSING)
        if run.owner == ENDED:
            raise Ended(OVER)
        if run.epoch != epoch or run.visit != visit:
            raise Stale(EPOCH)
        if inbox_seq is not None and run.inbox_seq != inbox_seq:
            raise Stale(INBOX_SEQ)
        if mapping is not None and mapping != self.now.mapping:
            raise Stale(MAPPING)
        if version is not None and run.version != version:
            raise Stale(VERSION)
        return run

    def _when(self, when: When) -> None:
        now = self.now.real if when.clock == "real" else self.now.business
        if (now >= when.at) != when.reached:
            raise Stale(when.why)

    def _found(self, kind: Kind[R], key: Key, mine: CommitChanges) -> tuple[R | None, int]:
        """Return a row as this commit leaves it so far, and the stored version (0 if none)."""
        left = mine.get((kind.name, key)) or self.changes[kind.name].get(key)
        if left is not None:
            return left.row, left.replaces
        if self.erased and (kind, key) in self.erased:
            return None, 0
        row: R | None = self._read(kind, key)
        return row, 0 if row is None else version_of(kind, row)

    def _put(self, write: Put, mine: CommitChanges) -> None:
        kind, row, replaces = write
        if self._subscribed_tenants and type(row) is Event and row.tenant in self._subscribed_tenants:
            mark = Unpublished(row.tenant, row.run, row.seq, row.type, row.at)
            mine[UNPUBLISHED.name, mark[: UNPUBLISHED.key]] = RowChange(UNPUBLISHED, mark, 0)
        name = kind.name
        key: Key = row[: kind.key]  # type: ignore[assignment]  # `key_of`, in the path of every row
        if self._optimistic and not kind.read_first and key not in self.changes[name]:
            mine[name, key] = RowChange(kind, row, replaces)
            return
        found, stored = self._found(kind, key, mine)
        if (0 if found is None else version_of(kind, found)) != replaces:
            raise Stale(VERSION)
        if kind is WRITER and found is not None:  # the store alone changes the receipt
            assert isinstance(row, Writer) and isinstance(found, Writer)
            row = row._replace(batch=found.batch)
        mine[name, key] = RowChange(kind, row, stored)

    def _put_run(self, write: Put, mine: CommitChanges) -> None:
        _, row, replaces = write
        assert type(row) is Run
        key = row[:2]
        found, stored = self._found(RUN, key, mine)
        inbox_seq = 0
        if found is not None:
            if found.owner == ENDED and replaces:
                raise Ended(OVER)
            inbox_seq = found.inbox_seq
        if (0 if found is None else found.version) != replaces:
            raise Stale(VERSION)
        # The store alone changes `inbox_seq`, so a holder's old value never overwrites it (S-1).
        mine[RUN.name, key] = RowChange(
            RUN, row if row.inbox_seq == inbox_seq else row._replace(inbox_seq=inbox_seq), stored
        )

    def _append_message(self, write: AppendMessage, mine: CommitChanges, fence: Fence | None) -> None:
        message = write.message
        run, stored = self._found(RUN, message[:2], mine)
        if run is None or run.owner == ENDED:
            if fence is not None and (fence.tenant, fence.run) != message[:2]:  # its holder decides again
                raise Stale(VERSION)
            raise Stale(MISSING) if run is None else Ended(OVER)
        n = run.inbox_seq + 1
        mine[MESSAGE.name, (*message[:2], n)] = RowChange(MESSAGE, message._replace(n=n, at=self.now.business), 0)
        mine[RUN.name, message[:2]] = RowChange(RUN, run._replace(inbox_seq=n, due_at=self._due_by_now(run)), stored)

    def _wake(self, write: Wake, mine: CommitChanges) -> None:
        key = (write.tenant, write.run)
        run, stored = self._existing_run(key, mine)
        due_at = self._due_by_now(run)
        if due_at != run.due_at:
            mine[RUN.name, key] = RowChange(RUN, run._replace(due_at=due_at), stored)

    def _existing_run(self, key: Key, mine: CommitChanges) -> tuple[Run, int]:
        run, stored = self._found(RUN, key, mine)
        if run is None:
            raise Stale(MISSING)
        return run, stored

    def _due_by_now(self, run: Run) -> int | None:
        """Return the due_at of a run that got a message: now if no worker owns it, else unchanged (S-1)."""
        if run.owner == "" and (run.due_at is None or run.due_at > self.now.real):
            return self.now.real
        return run.due_at
