"""Facts about a store in meta rows: its generation, the identity of its file, and the purge of ledgers."""

import json
from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

from outlast.core.rows.run_rows import Run
from outlast.core.rows.store_rows import STORE, Meta
from outlast.errors import Corrupt

GENERATION: Final = (STORE, "generation")
"""Key of the meta row of the generation."""
FILE: Final = (STORE, "file")
"""Key of the meta row that names the file."""
LEDGERS: Final = (STORE, "ledgers")
"""Key of the meta row of the purge of ledgers."""


class Generation(NamedTuple):
    """Generation n of a store, with a unique id."""

    n: int
    id: str
    since: int  # business

    def row(self) -> Meta:
        """Return the meta row of this generation; its version is the generation's number."""
        return Meta(*GENERATION, self.n, json.dumps({"n": self.n, "id": self.id, "since": self.since}))


def generation_of(row: Meta | None) -> Generation | None:
    """Return the generation in the meta row; None if there is no row. Raises Corrupt."""
    if row is None:
        return None
    try:
        value = json.loads(row.value)
        found = Generation(int(value["n"]), str(value["id"]), int(value["since"]))
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"meta row {row.key}: {error!r}") from error
    if found.n != row.version or found.n < 1 or not found.id:
        raise Corrupt(f"meta row {row.key}: generation {found.n} in version {row.version}")
    return found


class StoreFile(NamedTuple):
    """Identity of the file that a store lives in. Two files never have the same inode number and birth time.

    `path` and `host` are for people: a container has another host name each time it is created.
    """

    inode: int  # 0 = the file system has no inode numbers
    born: int  # ns since the epoch; 0 = the file system records no birth time
    path: str
    host: str
    copied_at: int = 0  # wall time of a backup that no process has opened for writing since; 0 = no backup

    def row(self, before: Meta | None) -> Meta:
        """Return the meta row that names this file, to be written after `before`."""
        return Meta(*FILE, before.version + 1 if before else 1, json.dumps(self._asdict()))


def store_file_of(row: Meta | None) -> StoreFile | None:
    """Return the file that the meta row names; None if no writer has named one yet. Raises Corrupt."""
    if row is None:
        return None
    try:
        value = json.loads(row.value)
        inode, born, copied_at = (int(value[name]) for name in ("inode", "born", "copied_at"))
        return StoreFile(inode, born, str(value["path"]), str(value["host"]), copied_at)
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"meta row {row.key}: {error!r}") from error


def compare_files(named: StoreFile | None, found: StoreFile) -> Literal["same", "renamed", "copy", "backup"]:
    """Compare the file that the store names with the file in which it was found.

    The device is ignored, because its number changes when the machine restarts. A birth time is ignored if either side
    has none. Path and host are ignored, because a volume has other names in each container.
    """
    if named is None:
        return "renamed"
    if named.copied_at:
        return "backup"
    if (named.inode != found.inode and named.inode and found.inode) or (
        named.born != found.born and named.born and found.born
    ):
        return "copy"
    return "same" if named == found else "renamed"


class PurgePoint(NamedTuple):
    """An ended run in the order of ends, in which runs are purged."""

    ended_at: int  # business
    tenant: str
    run: str


NO_END: Final = PurgePoint(0, "", "")


class LedgersPurged(NamedTuple):
    """Runs whose ledgers are gone: those up to `last`, and those up to `marked` that ended longer ago than `kept`.

    A database that deletes rows by itself does so with the marked ones (CKP-7).
    """

    last: PurgePoint = NO_END
    marked: PurgePoint = NO_END
    kept: int = 0

    def has(self, run: Run, now: int) -> bool:
        """True if the ledger of this run is gone at an instant of business time."""
        end = PurgePoint(run.ended_at, run.tenant, run.run)
        return run.ended_at > 0 and (end <= self.last or (end <= self.marked and run.ended_at + self.kept <= now))

    def row(self, before: Meta | None) -> Meta:
        """Return the meta row of this purge, to be written after `before`."""
        return Meta(*LEDGERS, before.version + 1 if before else 1, json.dumps(self))


NO_LEDGERS: Final = LedgersPurged()


def ledgers_of(row: Meta | None) -> LedgersPurged:
    """Return the purge in the meta row; NO_LEDGERS if there is no row. Raises Corrupt."""
    if row is None:
        return NO_LEDGERS
    try:
        last, marked, kept = json.loads(row.value)
        return LedgersPurged(_end(*last), _end(*marked), int(kept))
    except (ValueError, TypeError) as error:
        raise Corrupt(f"meta row {row.key}: {error!r}") from error


def _end(ended_at: Any, tenant: Any, run: Any) -> PurgePoint:
    return PurgePoint(int(ended_at), str(tenant), str(run))


def last_of(found: Sequence[tuple[int, str, str]], before: int, n: int) -> PurgePoint:
    """Return the end up to which a search went that found these at most `n` runs that ended before an instant."""
    return PurgePoint(*found[-1]) if len(found) == n else PurgePoint(before, "", "")


def ledgers_after(purged: LedgersPurged, found: Sequence[tuple[int, str, str]], before: int, n: int) -> LedgersPurged:
    """Return the purge after the ledgers of `found` were deleted: end, tenant and run, in this order.

    `found`: at most `n` runs after the last one that ended before an instant.
    """
    return purged._replace(last=max(purged.last, last_of(found, before, n)))
