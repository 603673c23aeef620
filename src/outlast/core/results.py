"""The move by which a run keeps what it produced: rows under keys of the author's, in fenced chunks (CKP-4, S-11)."""

from collections.abc import Sequence
from typing import Final

from outlast.core.commit import WRITES_MAX, Commit, Put
from outlast.core.limits import COMMIT_BYTES_MAX, RESULT_BYTES_MAX
from outlast.core.rows import RESULT, Result, Run
from outlast.core.run_transition import fence

CHUNK_ROWS: Final = 50
CHUNK_BYTES: Final = COMMIT_BYTES_MAX // 2
assert CHUNK_ROWS <= WRITES_MAX and CHUNK_BYTES + RESULT_BYTES_MAX < COMMIT_BYTES_MAX, "a chunk is one commit"


def emit(run: Run, rows: Sequence[Result]) -> Commit:
    """Each row in place of the one it follows (version 1: it is new). Lands only under this claim and visit, so a
    holder that was replaced adds nothing; it moves no run row, and the event that counts them comes after (CKP-5)."""
    assert 0 < len(rows) <= CHUNK_ROWS
    assert all(row.version >= 1 and row.ordinal >= 1 and row[:2] == run[:2] for row in rows)
    puts = tuple(Put(RESULT, row, row.version - 1) for row in rows)
    return Commit(puts, fence(run), label=f"{run.run} emit {rows[0].key}")
