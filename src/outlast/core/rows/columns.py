"""Columns of rows that hold structured values as text. The row keeps the text, its property answers the value.

Stores bind and return the text unchanged. Encode and decode of each column are side by side: those of runs in
`run_columns.py`, those of approvals in `approval_columns.py`, those of effects in `effect_columns.py`, those of workers
and subscriptions here.
"""

import json
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar, get_origin, get_type_hints

from outlast.errors import Corrupt

Given = TypeVar("Given")
Value = TypeVar("Value")
Typed = TypeVar("Typed", bound=tuple[Any, ...])

SUFFIX: Final = "_text"
"""Suffix of a field that holds the text of a column: the database's column `attention` is `Run.attention_text`."""
CACHED_TEXTS: Final = 512
CACHED_CHARS_MAX: Final = 16_384
_INTEGERS: Final = range(-(2**63), 2**63)
_UNREADABLE: Final = (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError)


def stored_text(text: object, chars_max: int) -> str:
    """Return a text for people as a row may hold it: at most `chars_max` characters, all of which every store can hold.

    NUL and halves of surrogate pairs are escaped: `\\x00`, `\\ud83d`. Every text that an author's code, a receiver or a
    policy gives passes here where its row is written. Never raises, also for an object that is no text.
    """
    if not isinstance(text, str):
        try:
            text = str(text)
        except Exception:  # because the __str__ of an author's class may raise anything
            text = f"a {type(text).__name__} without a text"
    if len(text) <= chars_max and text.isprintable():
        return text
    text = text[: chars_max + 1].replace("\0", "\\x00").encode(errors="backslashreplace").decode()
    return text if len(text) <= chars_max else text[: chars_max - 1] + "…"


def stored_data(data: Any, chars_max: int) -> Any:
    """Return JSON data whose texts are `stored_text`."""
    if isinstance(data, dict):
        return {name: stored_data(value, chars_max) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [stored_data(value, chars_max) for value in data]
    return stored_text(data, chars_max) if isinstance(data, str) else data


class Column(Generic[Given, Value]):
    """Conversion between the text of one column and its immutable value.

    Readers ask for the same few texts again and again, so the values of short texts are cached.
    """

    __slots__ = ("_cached", "_decode", "encode", "name")

    def __init__(
        self, name: str, encode: Callable[[Given], str], decode: Callable[[str], Value], *, cached: bool = True
    ) -> None:
        """Create a column. `cached` is False for secrets, which must not stay in memory."""
        self.name = name
        self.encode = encode
        self._decode = decode
        self._cached: Callable[[str], Value] = lru_cache(CACHED_TEXTS)(decode) if cached else decode

    def decode(self, text: str) -> Value:
        """Return the value of a text. Raises Corrupt if Outlast has not written the text."""
        try:
            if "\\ud" in text:
                text = _without_halves(text)
            return self._cached(text) if len(text) <= CACHED_CHARS_MAX else self._decode(text)
        except _UNREADABLE as error:
            raise Corrupt(f"its {self.name} cannot be read: {error!r}") from error


def _without_halves(text: str) -> str:
    """Return JSON text without halves of surrogate pairs, which no client could be sent."""
    return json.dumps(stored_data(json.loads(text), len(text)))


@cache
def _plain_types(of: type[Any]) -> tuple[tuple[str, type], ...]:
    hints = get_type_hints(of).items()
    return tuple(
        (name, str if get_origin(hint) is Literal else hint)
        for name, hint in hints
        if hint in (int, str) or get_origin(hint) is Literal
    )


def typed(value: Typed) -> Typed:
    """Return a decoded value whose texts are texts and whose numbers are integers of 64 bits.

    A reader may ask a store for a row with such a number in its key. Raises TypeError.
    """
    for name, of in _plain_types(type(value)):
        found = getattr(value, name)
        if type(found) is not of or (of is int and found not in _INTEGERS):
            raise TypeError(f"{name} is {found!r}"[:200])
    return value


def load_names(text: str) -> tuple[str, ...]:
    """Return the names in a JSON list; () for ''."""
    names = json.loads(text) if text else []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("it is no list of names")
    return tuple(names)


def decoded(data: str | bytes, name: str, *members: str) -> Any:
    """Return JSON data, or a member of it, decoded at each call because it is mutable. Raises Corrupt that names it."""
    try:
        text = data.decode() if isinstance(data, bytes) else data
        value = json.loads(_without_halves(text) if "\\ud" in text else text)
        for member in members:
            value = value[member]
        return value
    except _UNREADABLE as error:
        raise Corrupt(f"{name} cannot be read: {error!r}") from error


# --- workers -------------------------------------------------------------------------------
class WorkerHealth(NamedTuple):
    """Facts of a worker process at its last heartbeat; None = not known."""

    pid: int | None = None
    host: str | None = None
    version: str | None = None  # of Outlast
    holds: int | None = None  # runs
    of: int | None = None  # maximum number of runs
    draining: bool | None = None
    loop_late_ms: int | None = None  # delay of the event loop when it was last measured
    loop_ticked_ms: int | None = None  # time since the event loop last ran
    scheduler: str | None = None  # a guest's worker: the engine that it executes runs for
    away_since: int | None = None  # real; that engine cannot be reached since then
    away_why: str | None = None
    bridged_ms: int | None = None  # time since its bridge last searched for due runs


def _dump_health(health: WorkerHealth) -> str:
    return json.dumps({name: fact for name, fact in health._asdict().items() if fact is not None})


def _load_health(text: str) -> WorkerHealth:
    facts = json.loads(text) if text else {}
    return WorkerHealth(*(facts.get(name) for name in WorkerHealth._fields))  # a newer worker may write more


HEALTH: Final = Column("health", _dump_health, _load_health)


# --- subscriptions -------------------------------------------------------------------------
class WebhookSecret(NamedTuple):
    """Signing key of a subscription, and the custom headers of its deliveries, which are secrets, too."""

    key: str  # whsec_…
    headers: tuple[tuple[str, str], ...] = ()  # by lower-case name


def _dump_filter(names: Iterable[str]) -> str:
    names = sorted(set(names))
    return json.dumps(names) if names else ""


def _dump_secret(secret: WebhookSecret) -> str:
    return f"{secret.key}\n{_dump_headers(secret.headers)}" if secret.headers else secret.key


def _dump_headers(headers: Iterable[tuple[str, str]]) -> str:
    return json.dumps(dict(headers))


def _load_headers(text: str) -> tuple[tuple[str, str], ...]:
    return tuple(dict(json.loads(text)).items()) if text else ()


def _load_secret(text: str) -> WebhookSecret:
    key, _, headers = text.partition("\n")
    return WebhookSecret(key, _load_headers(headers))


TYPES: Final = Column("types", _dump_filter, load_names)
WORKFLOWS: Final = Column("workflows", _dump_filter, load_names)
SECRET: Final = Column("secret", _dump_secret, _load_secret, cached=False)
