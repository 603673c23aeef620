"""Deltas: texts that a run shows while it works, and that are never stored. Their packets between processes."""

import json
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from outlast.core.limits import KIB

TEXT_BYTES: Final = 4 * KIB
"""Text of one delta in a packet; a longer one is split. As JSON a byte of text takes up to six bytes."""


class DeltaOrigin(NamedTuple):
    """Place in a run that produces a text. A text of another origin is another text."""

    tenant: str
    run: str
    node: str
    visit: int
    epoch: int
    """Number of the claim: a worker that takes the run over sends its texts from their beginning."""
    key: str
    """Key of the call that streams; '' for the node itself."""
    attempt: int
    """Number of the attempt of that call; 0 for the node."""


class Delta(NamedTuple):
    """Next piece of the text of one origin."""

    origin: DeltaOrigin
    text: str


def packets(deltas: Sequence[Delta], bytes_max: int, *, sender: str, to: str = "") -> list[str]:
    """Return the deltas as JSON texts of at most `bytes_max` bytes (at least 2 KiB), in order.

    `sender` and `to` name the process that sends and the store whose processes receive.
    """
    found: list[str] = []
    head = json.dumps({"sender": sender, "to": to})[:-1] + ', "deltas": ['
    body, size = list[str](), len(head) + 2
    for item in _items(deltas, bytes_max - size):
        if body and size + len(item) + 2 > bytes_max:
            found.append(f"{head}{', '.join(body)}]}}")
            body, size = [], len(head) + 2
        body.append(item)
        size += len(item) + 2
    return [*found, f"{head}{', '.join(body)}]}}"] if body else found


def _items(deltas: Sequence[Delta], bytes_max: int) -> Iterator[str]:
    """Yield each delta as ASCII JSON of at most `bytes_max`, split if its text is longer; drop one that cannot be."""
    for delta in deltas:
        empty = len(json.dumps([*delta.origin, ""]))
        chars = min(TEXT_BYTES, (bytes_max - empty - 2) // 12)  # a character outside of the BMP takes two escapes
        if chars > 0:
            for start in range(0, len(delta.text), chars):
                yield json.dumps([*delta.origin, delta.text[start : start + chars]])


class Packet(NamedTuple):
    """Received packet."""

    sender: str
    to: str
    deltas: tuple[Delta, ...]


def read_packet(text: str | bytes) -> Packet | None:
    """Return a received packet, or None if it is not one."""
    try:
        given = json.loads(text)
        found = tuple(_delta(*item) for item in given["deltas"])
        return Packet(str(given["sender"]), str(given["to"]), found)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _delta(tenant: str, run: str, node: str, visit: int, epoch: int, key: str, attempt: int, text: str) -> Delta:
    texts, numbers = (tenant, run, node, key, text), (visit, epoch, attempt)
    if not all(isinstance(each, str) for each in texts) or not all(isinstance(each, int) for each in numbers):
        raise TypeError("not a delta")
    return Delta(DeltaOrigin(tenant, run, node, visit, epoch, key, attempt), text)
