"""The receivers' record: one line for each request that arrived and each act, written before the caller hears of it.

Everything the receivers knows is read from here, so a receivers opened on a copy of the record goes on as the first would.
"""

import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

EntryKind = Literal["attempt", "executed", "asked"]
MISSING: Final = 404


@dataclass(frozen=True)
class RecordEntry:
    """One line: what happened at the receiver, when (ms), under which key, with which bytes."""

    kind: EntryKind
    n: int
    route: str
    """METHOD and path."""
    key: str
    """The Idempotency-Key as it came; '' without one."""
    sha256: str
    at: int
    status: int = 0
    answer: Any = None

    @property
    def identity(self) -> str:
        """What makes two requests one: their key, or, without a key, route and bytes."""
        return f"{self.route} {self.key or self.sha256[:12]}"

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.route} {self.key or '(no Idempotency-Key)'}"


class Record:
    """An append-only file of entries, and what it says."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: list[RecordEntry] = []
        if path.exists():
            lines = path.read_text(encoding="utf-8").splitlines()
            self.entries = [RecordEntry(**json.loads(line)) for line in lines]

    def add(
        self, kind: EntryKind, route: str, key: str, sha256: str, at: int, status: int = 0, answer: Any = None
    ) -> RecordEntry:
        """Write one line; it is in the file when this returns."""
        entry = RecordEntry(kind, len(self.entries) + 1, route, key, sha256, at, status, answer)
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(handle, json.dumps(asdict(entry)).encode() + b"\n")
        finally:
            os.close(handle)
        self.entries.append(entry)
        return entry

    def of(self, kind: EntryKind, key: str = "", route: str = "") -> list[RecordEntry]:
        """The entries of a kind; `key`: of this Idempotency-Key, or of the activity's key within it; `route`: of a
        path, or METHOD and path."""
        return [
            e
            for e in self.entries
            if e.kind == kind
            and (not key or e.key == key or e.key.endswith(f":{key}"))
            and (not route or e.route == route or e.route.partition(" ")[2] == route)
        ]

    def counts(self) -> Counter[str]:
        """How often each identity was acted upon."""
        return Counter(e.identity for e in self.entries if e.kind == "executed")

    def executed(self, key: str = "", *, route: str = "") -> int:
        """How often the receivers acted: under this key (an activity's, or a whole Idempotency-Key), at this path."""
        return len(self.of("executed", key, route))

    def assert_effects_once(self) -> None:
        """Raises AssertionError with a sentence for each thing that was done more than once."""
        if found := self.repeated():
            raise AssertionError("\n".join(found))

    def repeated(
        self, told: Mapping[str, int] = MappingProxyType({}), asks: Mapping[str, str] = MappingProxyType({})
    ) -> list[str]:
        """A sentence for each thing that was done more than once, and more often than `told`.

        `asks`: the activities that have a reconcile, by the keys of their effects.
        """
        found = []
        for identity, n in self.counts().items():
            if n > max(1, told.get(identity, 0)):
                first = next(e for e in self.entries if e.kind == "executed" and e.identity == identity)
                why = self._of_reconcile(first, asks) or _why(first)
                found.append(f"{first.title} was executed {n} times. {why}")
        return found

    def _of_reconcile(self, first: RecordEntry, asks: Mapping[str, str]) -> str:
        """Return why the question for this act did not find it; '' if there was none, and no reconcile to ask it."""
        path = first.route.partition(" ")[2]
        for each in self.of("asked"):
            mine = each.key == first.key if each.key in {e.key for e in self.of("executed")} else True
            if mine and each.n > first.n and each.status == MISSING and each.route.partition(" ")[2].startswith(path):
                return (
                    f"{each.route} asked for it and was answered {MISSING}, although this record has the act: "
                    "reconcile asks by something else than the Idempotency-Key. Correct it, or let the receiver know "
                    f'the question: route("{path}", asked=…)'
                )
        name = next((name for key, name in asks.items() if first.key.endswith(f":{key}")), "")
        return f"{name}.reconcile said that it did not happen, although the receiver has it: correct it" if name else ""

    def against(self, told: Mapping[str, int], asks: Mapping[str, str] = MappingProxyType({})) -> list[str]:
        """What this record says, given what the receivers did when nobody was killed: a sentence each."""
        found = self.repeated(told, asks)
        ours, theirs = by_route(self.counts()), by_route(told)
        for route in sorted({*ours, *theirs}):
            if found and any(route in sentence for sentence in found):
                continue
            if ours[route] > theirs[route]:
                keys = sorted({e.key for e in self.entries if e.kind == "executed" and e.route == route})
                found.append(
                    f"{route} acted {ours[route]} times instead of {theirs[route]}. It did under {len(keys)} keys "
                    f"({', '.join(keys[:4])}): a key made of time or chance is another on each attempt, so no receiver "
                    "can know the call again; send this_call().idempotency_key"
                )
            elif ours[route] < theirs[route]:
                found.append(f"{route} acted {ours[route]} times instead of {theirs[route]}: a call was lost")
        return found


def by_route(counts: Mapping[str, int]) -> Counter[str]:
    """How often each route acted."""
    found: Counter[str] = Counter()
    for identity, n in counts.items():
        found[identity.rpartition(" ")[0]] += n
    return found


def _why(entry: RecordEntry) -> str:
    if not entry.key:
        return (
            "It carried no Idempotency-Key, so the receiver could not know it again: send this_call().idempotency_key, "
            "or do not let the activity repeat"
        )
    return (
        "This receiver does not dedupe by key, so resend() is not true of it: declare .reconcile, or leave "
        'if_uncertain="ask_person"'
    )
