"""Calls of a replay, matched with those of the recording: the answer that a call gets, or how it differs.

Two instants count as equal if they are close, because no two executions take the same time. A secret counts as equal to
its stand-in if it is always the same secret. Everything here is a decision on values; `recorded_runs.py` plays.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any, Final, NamedTuple

from outlast.core.machine import EffectStatus
from outlast.upkeep.recording import AnsweredCall, CallKind, Recording
from outlast.upkeep.stand_ins import STAND_IN, StandIns, secrets_of

SAME_INSTANT_S: Final = 60
SHOWN_CHARS: Final = 200
INSTANT: Final = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?",
)
_ABSENT: Final = "(absent)"


class Difference(NamedTuple):
    """The first place at which a replay differs from its recording."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


@dataclass(frozen=True)
class MadeCall:
    """A call of the replay. `arguments` are plain data; None if they cannot be compared."""

    kind: CallKind
    activity: str
    key: str
    node: str
    visit: int
    arguments: dict[str, Any] | None

    @property
    def where(self) -> str:
        """Return the place in the run, and the call."""
        return f"node {self.node}, visit {self.visit}, {self.kind} {self.activity} ({self.key})"


@dataclass
class RecordedAnswers:
    """The recorded calls, and which of them the replay has made."""

    recording: Recording
    stand_ins: StandIns = field(default_factory=StandIns)
    instants: bool = True
    """Compare instants. A crash test does not, because its time passes in another way."""
    made: set[int] = field(default_factory=set)

    def answer(self, call: MadeCall) -> AnsweredCall | Difference:
        """Return the recorded call that answers this one, or how this one differs from all of them."""
        fitting = [(n, each) for n, each in enumerate(self.recording.calls) if _fits(each, call)]
        for n, each in fitting:
            if each.key == call.key or self.stand_ins.known_replaced(call.key) == each.key:
                if (different := self._of_arguments(each, call)) is not None:
                    return Difference(call.where, different)
                self.made.add(n)
                return each
        left = [(n, each) for n, each in fitting if n not in self.made]
        for n, each in left:
            if self._same_but_key(each, call):
                self.made.add(n)
                return each
        return Difference(call.where, self._unlike(call, [each for _, each in left if each.visit == call.visit]))

    def missing(self) -> Difference | None:
        """Return the first recorded call that the replay has not made, or None."""
        for n, call in enumerate(self.recording.calls):
            if n not in self.made and call.status != EffectStatus.REFUSED:
                where = f"node {call.node}, visit {call.visit}, {call.title}"
                return Difference(where, "the recorded run made this call, this one did not")
        return None

    def different(self, recorded: Any, actual: Any, path: str = "") -> str | None:
        """Return the first path at which two values differ and both values, or None."""
        bind_named(recorded, actual, self.stand_ins)
        return next(differences(recorded, actual, path, self.stand_ins, instants=self.instants), None)

    def _of_arguments(self, recorded: AnsweredCall, call: MadeCall) -> str | None:
        if recorded.arguments is None or call.arguments is None or not self.instants:
            return None
        return self.different(recorded.arguments, call.arguments, "arguments")

    def _same_but_key(self, recorded: AnsweredCall, call: MadeCall) -> bool:
        """Return True if only an instant or a secret in the key differs."""
        if not self.instants:
            return True
        if recorded.arguments is None or call.arguments is None:
            return False
        if self.different(recorded.arguments, call.arguments) is not None:
            return False
        return call.kind == "lookup" or self.different(recorded.key, call.key) is None

    def _unlike(self, call: MadeCall, left: Sequence[AnsweredCall]) -> str:
        if not left:
            others = [c.title for c in self.recording.calls if c.visit == call.visit]
            recorded = f"; recorded in this visit: {', '.join(others[:5])}" if others else ""
            return f"the recorded run did not make this call{recorded}"
        near = max(left, key=lambda each: _likeness(each, call))
        different = self._of_arguments(near, call)
        if different is not None:
            return different if near.key == call.key else f"{different}, in {near.key}"
        if near.arguments is None:
            return f"the recorded run made it as {near.key}, with other arguments"
        return f"key: {_shown(call.key)} instead of {_shown(near.key)} as recorded"


def _likeness(recorded: AnsweredCall, call: MadeCall) -> tuple[int, int]:
    """Return how many arguments are equal, and how far the keys are: the first of the most alike calls is compared."""
    mine, its = call.arguments or {}, recorded.arguments or {}
    equal = sum(name in its and its[name] == value for name, value in mine.items())
    begins_alike = takewhile(lambda pair: pair[0] == pair[1], zip(recorded.key, call.key, strict=False))
    return equal, len(list(begins_alike))


def _fits(recorded: AnsweredCall, call: MadeCall) -> bool:
    if (recorded.kind, recorded.activity) != (call.kind, call.activity):
        return False
    return recorded.visit == call.visit or recorded.scope == 0 or recorded.kind == "undo"


def differences(recorded: Any, actual: Any, path: str, stand_ins: StandIns, *, instants: bool = True) -> Iterator[str]:
    """Yield a sentence for each place at which two values differ, the first one first."""
    if isinstance(recorded, dict) and isinstance(actual, dict):
        for name in dict.fromkeys((*recorded, *actual)):
            inner = f"{path}.{name}" if path else str(name)
            one, other = recorded.get(name, _ABSENT), actual.get(name, _ABSENT)
            yield from _named(str(name), one, other, inner, stand_ins, instants=instants)
    elif isinstance(recorded, list) and isinstance(actual, list):
        for n in range(max(len(recorded), len(actual))):
            one = recorded[n] if n < len(recorded) else _ABSENT
            other = actual[n] if n < len(actual) else _ABSENT
            yield from differences(one, other, f"{path}[{n}]", stand_ins, instants=instants)
    elif not _same(recorded, actual, stand_ins, instants=instants):
        yield f"{path or 'value'}: {_shown(actual)} instead of {_shown(recorded)} as recorded"


def bind_named(recorded: Any, actual: Any, stand_ins: StandIns) -> None:
    """Let each secret under its name have the stand-in that the recording has at the same place."""
    if isinstance(recorded, dict) and isinstance(actual, dict):
        for name in (each for each in recorded if each in actual):
            one, other = recorded[name], actual[name]
            found = [secret for _, secret in secrets_of({name: other})]
            if isinstance(one, str) and STAND_IN.fullmatch(one) and found == [other]:
                stand_ins.bind(other, one)
            bind_named(one, other, stand_ins)
    elif isinstance(recorded, list) and isinstance(actual, list):
        for one, other in zip(recorded, actual, strict=False):
            bind_named(one, other, stand_ins)


def _named(name: str, recorded: Any, actual: Any, path: str, stand_ins: StandIns, *, instants: bool) -> Iterator[str]:
    """Compare two values of one name. A secret under its name is compared through its stand-in."""
    found = [secret for _, secret in secrets_of({name: actual})]
    if found and isinstance(recorded, str) and STAND_IN.fullmatch(recorded) and found == [actual]:
        if not stand_ins.bind(actual, recorded):
            yield f"{path}: another secret than recorded as {recorded}"
        return
    yield from differences(recorded, actual, path, stand_ins, instants=instants)


def _same(recorded: Any, actual: Any, stand_ins: StandIns, *, instants: bool) -> bool:
    if not isinstance(recorded, str) or not isinstance(actual, str):
        return (type(recorded) is type(actual) and bool(recorded == actual)) or _same_number(recorded, actual)
    if recorded == actual:
        return True
    names = STAND_IN.findall(recorded)
    secrets = [secret for _, secret in secrets_of(actual)]
    if names and len(names) == len(secrets) and not all(map(stand_ins.bind, secrets, names)):
        return False
    actual = str(stand_ins.known_replaced(actual))
    if recorded == actual:
        return True
    if INSTANT.sub("", recorded) != INSTANT.sub("", actual):
        return False
    ours, theirs = INSTANT.findall(recorded), INSTANT.findall(actual)
    return len(ours) == len(theirs) and (not instants or all(map(_close, ours, theirs)))


def _same_number(recorded: Any, actual: Any) -> bool:
    kinds = {type(recorded), type(actual)}
    return kinds == {int, float} and bool(recorded == actual)


def _close(recorded: str, actual: str) -> bool:
    one, other = (datetime.fromisoformat(text.replace(" ", "T")) for text in (recorded, actual))
    if (one.tzinfo is None) != (other.tzinfo is None):
        return False
    one, other = (each.replace(tzinfo=UTC) if each.tzinfo is None else each for each in (one, other))
    return abs((one - other).total_seconds()) <= SAME_INSTANT_S


def without_instants(value: Any) -> Any:
    """Return a value without the instants in its texts, which differ between two plays."""
    if isinstance(value, dict):
        return {name: without_instants(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_instants(item) for item in value]
    if isinstance(value, bytes):
        return INSTANT.sub("", value.decode(errors="replace"))
    return INSTANT.sub("", value) if isinstance(value, str) else value


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"
