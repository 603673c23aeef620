"""Named places at which a test may kill the process; without effect in production.

The code calls `point(name)`. Tests set `hook`, which receives the name and the labels of the commits at stake ("run
verb key"). So a crash is identified by run, verb and key, never by a physical commit.
"""

from collections.abc import Callable, Sequence
from typing import Final

Hook = Callable[[str, Sequence[str]], None]

hook: Hook | None = None

POINTS: Final[dict[str, str]] = {
    "store.batch:before": "the commits are handed over, no transaction is open",
    "store.batch:inside": "every statement of the batch has run, COMMIT has not",
    "store.batch:after": "COMMIT has returned, no caller knows it yet",
    "store.checkpoint:before": "the write-ahead log is about to be copied into the database",
    "store.checkpoint:after": "the write-ahead log has been copied",
    "call:before": "the intent is durable, nothing has been sent",
    "call:after": "the answer is here, nothing has been recorded",
    "outbox.found": "new events are found, no cursor records them yet",
    "outbox.delivery:before": "an event is about to be sent, and its cursor is held",
    "outbox.delivery:after": "the receiver has answered, nothing has been recorded",
    "store.migration:inside": "the statements of a migration have run, COMMIT has not",
}


def point(name: str, labels: Sequence[str] = ()) -> None:
    """Call the hook of a test, if set, with the name of this place."""
    if hook is not None:
        assert name in POINTS, name
        hook(name, labels)
