"""The receivers' record: a line for each request and each execution, written before the caller gets its answer.

Fake receivers read everything from here, so receivers opened on a copy of the record continue as the first would.
"""

import json
import os
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

EntryKind = Literal["attempt", "executed", "asked"]
MISSING: Final = 404


@dataclass(frozen=True)
class RecordEntry:
    """One line: an event at a receiver, its time in ms, its key, and the digest of its body."""

    kind: EntryKind
    n: int
    route: str
    """METHOD and path."""
    key: str
    """The Idempotency-Key header; empty without one."""
    sha256: str
    at: int
    status: int = 0
    answer: Any = None

    @property
    def identity(self) -> str:
        """Return the value that two requests of one call share: their key, or route and body without a key."""
        return f"{self.route} {self.key or self.sha256[:12]}"

    @property
    def title(self) -> str:
        """Return the route and the key for messages."""
        return f"{self.route} {self.key or '(no Idempotency-Key)'}"


class Record:
    """An append-only file of entries."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: list[RecordEntry] = []
        if path.exists():
            lines = path.read_text(encoding="utf-8").splitlines()
            self.entries = [RecordEntry(**json.loads(line)) for line in lines]

    def add(
        self, kind: EntryKind, route: str, key: str, sha256: str, at: int, status: int = 0, answer: Any = None
    ) -> RecordEntry:
        """Append an entry. It is in the file when this returns."""
        entry = RecordEntry(kind, len(self.entries) + 1, route, key, sha256, at, status, answer)
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(handle, json.dumps(asdict(entry)).encode() + b"\n")
        finally:
            os.close(handle)
        self.entries.append(entry)
        return entry

    def of(self, kind: EntryKind, key: str = "", route: str = "") -> list[RecordEntry]:
        """Return the entries of a kind.

        `key` is an Idempotency-Key, or the activity's key within it. `route` is a path, or METHOD and path.
        """
        return [
            e
            for e in self.entries
            if e.kind == kind
            and (not key or e.key == key or e.key.endswith(f":{key}"))
            and (not route or e.route == route or e.route.partition(" ")[2] == route)
        ]

    def counts(self) -> Counter[str]:
        """Return how often each identity was executed."""
        return Counter(e.identity for e in self.entries if e.kind == "executed")

    def executed(self, key: str = "", *, route: str = "") -> int:
        """Return how often a key or path was executed. `key` may be the activity's key or a whole Idempotency-Key."""
        return len(self.of("executed", key, route))

    def assert_effects_once(self) -> None:
        """Raise AssertionError with a sentence for each call that was executed more than once."""
        if found := self.repeated():
            raise AssertionError("\n".join(found))

    def repeated(
        self, reference: Mapping[str, int] = MappingProxyType({}), asks: Mapping[str, str] = MappingProxyType({})
    ) -> list[str]:
        """Return a sentence for each call that was executed more than once, and more often than in `reference`.

        `asks` maps the keys of effects to those activities that declare a reconcile function.
        """
        found = []
        for identity, n in self.counts().items():
            if n > max(1, reference.get(identity, 0)):
                first = next(e for e in self.entries if e.kind == "executed" and e.identity == identity)
                why = self._of_reconcile(first, asks) or _why(first)
                found.append(f"{first.title} was executed {n} times. {why}")
        return found

    def _of_reconcile(self, first: RecordEntry, asks: Mapping[str, str]) -> str:
        """Return why reconcile did not find this execution; empty if reconcile was not called or does not exist."""
        path = first.route.partition(" ")[2]
        for each in self.of("asked"):
            mine = each.key == first.key if each.key in {e.key for e in self.of("executed")} else True
            if mine and each.n > first.n and each.status == MISSING and each.route.partition(" ")[2].startswith(path):
                return (
                    f"{each.route} asked for the call and got {MISSING}, although this record contains it: "
                    "reconcile does not ask by the Idempotency-Key. Correct it, or define how the receiver is asked: "
                    f'route("{path}", asked=…)'
                )
        name = next((name for key, name in asks.items() if first.key.endswith(f":{key}")), "")
        return (
            f"{name}.reconcile returned DidNotHappen, although the receiver executed the call: correct it"
            if name
            else ""
        )

    def against(
        self,
        reference: Mapping[str, int],
        asks: Mapping[str, str] = MappingProxyType({}),
        cancelled: Collection[str] = (),
    ) -> list[str]:
        """Return the errors in this record, given the counts of the run without a crash.

        Calls of the runs `cancelled` may be missing or in addition. No call may be there twice.
        """
        found = self.repeated(reference, asks)
        ours, theirs = (by_route(_without(counts, cancelled)) for counts in (self.counts(), reference))
        for route in sorted({*ours, *theirs}):
            if found and any(route in sentence for sentence in found):
                continue
            if ours[route] > theirs[route]:
                keys = sorted({e.key for e in self.entries if e.kind == "executed" and e.route == route})
                found.append(
                    f"{route} was executed {ours[route]} times instead of {theirs[route]}, with {len(keys)} keys "
                    f"({', '.join(keys[:4])}). A key that contains a time or a random value changes with each attempt, "
                    "so no receiver can recognise the call: send this_call().idempotency_key"
                )
            elif ours[route] < theirs[route]:
                found.append(f"{route} was executed {ours[route]} times instead of {theirs[route]}: a call was lost")
        return found


def _without(counts: Mapping[str, int], runs: Collection[str]) -> dict[str, int]:
    return {identity: n for identity, n in counts.items() if not any(f":{run}:" in identity for run in runs)}


def by_route(counts: Mapping[str, int]) -> Counter[str]:
    """Sum the counts of each route."""
    found: Counter[str] = Counter()
    for identity, n in counts.items():
        found[identity.rpartition(" ")[0]] += n
    return found


def _why(entry: RecordEntry) -> str:
    if not entry.key:
        return (
            "The request has no Idempotency-Key, so the receiver cannot recognise it: send "
            "this_call().idempotency_key, or do not declare resend()"
        )
    return (
        "This receiver does not deduplicate by key, so resend() is wrong for it: declare .reconcile, or leave "
        'if_uncertain="ask_person"'
    )
