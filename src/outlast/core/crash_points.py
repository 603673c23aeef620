"""Named places where a test may kill the process; nothing at all in production.

A place calls `point(name)`. Tests set `hook`, which is told the name and the labels of the commits at stake
("run verb key"), so that a crash cell is numbered by run, verb and key, never by physical commit.
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
    """Tell the test's hook, if there is one, that this place was reached."""
    if hook is not None:
        assert name in POINTS, name
        hook(name, labels)
