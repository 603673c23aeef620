"""Crash points: named places where a test may kill the process. Without a hook they do nothing.

Code calls `point(name)`. Tests set `hook`, which gets the name and the labels ("run verb key") of the commits, so that
a crash point is identified by run, verb and key, never by a physical commit.
"""

from collections.abc import Callable, Sequence
from typing import Final

Hook = Callable[[str, Sequence[str]], None]

hook: Hook | None = None

POINTS: Final[dict[str, str]] = {
    "store.batch:before": "the commits are handed over, no transaction is open",
    "store.batch:inside": "every statement of the batch has run, COMMIT has not",
    "store.batch:after": "COMMIT has returned, nobody has been told",
    "store.checkpoint:before": "the write-ahead log is about to be copied into the database",
    "store.checkpoint:after": "the write-ahead log has been copied",
    "call:before": "the intent is durable, nothing has been sent",
    "call:after": "the answer is here, nothing has been recorded",
    "outbox.found": "what is owed is known, no cursor says so yet",
    "outbox.delivery:before": "an event is about to be sent, and its cursor is held",
    "outbox.delivery:after": "the receiver has answered, nothing has been recorded",
    "store.migration:inside": "the statements of a migration have run, COMMIT has not",
}


def point(name: str, labels: Sequence[str] = ()) -> None:
    """Call the hook of a test, if set, with the name of this place."""
    if hook is not None:
        assert name in POINTS, name
        hook(name, labels)
