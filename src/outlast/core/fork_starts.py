"""Starts of forks that have not made their run yet, so that the copies of one that was given up are deleted (S-28).

Theory of operation. A start copies calls in several commits before its last one makes the run. If its process dies and
no caller repeats it, the copies belong to no run, and no purge of runs finds them. So each start has a meta row:

- The first commit writes this row, whose key begins with the instant, and a memo that names it. The memo has one key
  for all starts of a fork, so there is one start at a time, which all callers that repeat the request join.
- Each copy expects version 1 of the meta row. The commit that makes the run expects it, too, and deletes both rows.
- A sweep gives a start up by version 2 after FORK_STARTS_KEPT. From then on no copy lands and no run is made. The
  copies go first, then both rows. A caller that finds version 2 completes the deletion, then begins again.

The instant in the key makes each start another row. A process that was frozen in an earlier start of the same fork
expects a row that never exists again.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from outlast.core.codec import compact
from outlast.core.commit import Commit, Erase, Expect, Put, bytes_of, further_items
from outlast.core.durations import FORK_STARTS_KEPT
from outlast.core.forks import COPIES, PREFIX
from outlast.core.limits import PORTION_ROWS_MAX
from outlast.core.rows.columns import decoded
from outlast.core.rows.effect_rows import MEMO, Memo
from outlast.core.rows.row_kind import key_of
from outlast.core.rows.run_rows import TOKEN
from outlast.core.rows.store_rows import META, STORE, Meta
from outlast.errors import Corrupt

STARTS: Final = "fork-start/"
"""Beginning of the keys of the meta rows."""
START: Final = f"{PREFIX}start"
"""Key of the memo that names the meta row."""


class ForkStart(NamedTuple):
    """Start of a fork that has not made its run yet."""

    tenant: str
    run: str
    """Id of the fork."""
    of: str
    """The run that is forked."""
    at: int
    """Business instant of its first commit."""
    given_up: bool = False
    """Its rows are being deleted."""

    @property
    def key(self) -> tuple[str, str]:
        """Return the key of the meta row. Keys are in the order of the instants."""
        return STORE, f"{STARTS}{self.at:015d}/{self.tenant}/{self.run}"

    def row(self) -> Meta:
        """Return the meta row that makes the sweep find the start."""
        return Meta(*self.key, 2 if self.given_up else 1, json.dumps(self._asdict()))

    def memo(self) -> Memo:
        """Return the memo that names the meta row."""
        value = compact({"of": self.of, "at": self.at}).encode()
        return Memo(self.tenant, self.run, 0, START, "", "", value, "", self.at)

    @property
    def expects(self) -> Expect:
        """Return the condition that the start goes on, or that it is still being deleted."""
        return Expect(META, self.key, self.row().version)

    @property
    def erasures(self) -> tuple[Erase, Erase]:
        """Return the deletion of both rows."""
        return Erase(META, self.key), Erase(MEMO, key_of(MEMO, self.memo()))


def token_key(tenant: str, run: str) -> tuple[str, str, str]:
    """Return the key of the token of a fork. No purge deletes a token."""
    return tenant, "", f"fork/{run}"


def start_of(row: Meta) -> ForkStart:
    """Return the start in a meta row. Raises Corrupt."""
    try:
        found = ForkStart(**json.loads(row.value))
        if found.row() == row:
            return found
    except (ValueError, TypeError) as error:
        raise Corrupt(f"meta row {row.key}: {error!r}"[:300]) from error
    raise Corrupt(f"meta row {row.key}: it names another start, or has another version")


def start_in(memo: Memo) -> ForkStart:
    """Return the start that a memo names, as its first commit wrote it. Raises Corrupt."""
    value = decoded(memo.response or b"", f"the start in memo {memo.key}")
    try:
        return ForkStart(memo.tenant, memo.run, str(value["of"]), int(value["at"]))
    except (KeyError, ValueError, TypeError) as error:
        raise Corrupt(f"memo {memo.run}/{memo.key}: it names no start: {error!r}") from error


def begin(start: ForkStart) -> Commit:
    """Begin a start, unless the fork was started before."""
    puts = (Put(META, start.row(), 0), Put(MEMO, start.memo(), 0))
    return Commit(
        puts, expects=(Expect(TOKEN, token_key(start.tenant, start.run), 0),), label=f"{start.run} begin fork"
    )


def ending(start: ForkStart, first: Commit) -> Commit:
    """Return the commit that makes the run of a start, and ends the start."""
    return first._replace(writes=(*first.writes, *start.erasures), expects=(*first.expects, start.expects))


def is_over_age(start: ForkStart, business: int) -> bool:
    """Return True if a start is taken for given up at a business instant."""
    return start.at < business - FORK_STARTS_KEPT


def give_up(start: ForkStart) -> Commit:
    """Give a start up, so that no commit of it lands any more."""
    return Commit((Put(META, start._replace(given_up=True).row(), 1),), label=f"{start.run} give up fork")


def is_copy(memo: Memo) -> bool:
    """Return True if a memo keeps a copied call."""
    return memo.visit == 0 and memo.key.startswith(COPIES)


def erase_copies(start: ForkStart, memos: Iterable[Memo]) -> Sequence[Commit]:
    """Return the commits that delete those of these memos that are copies, of a start that was given up."""
    commits: list[Commit] = []
    portion: list[Erase] = []
    items = 0
    for memo in filter(is_copy, memos):
        erase = Erase(MEMO, key_of(MEMO, memo), bytes_of(memo))
        more = 1 + further_items(erase.size)
        if items + more > PORTION_ROWS_MAX:
            commits.append(_erasing(start, portion))
            portion, items = [], 0
        portion.append(erase)
        items += more
    return [*commits, *([_erasing(start, portion)] if portion else [])]


def _erasing(start: ForkStart, portion: Sequence[Erase]) -> Commit:
    return Commit(tuple(portion), expects=(start.expects,), label=f"{start.run} erase {portion[0].key[-1]}")


def end_removal(start: ForkStart) -> Commit:
    """Delete the rows of a start whose copies are gone."""
    return Commit(start.erasures, expects=(start.expects,), label=f"{start.run} forget fork")
