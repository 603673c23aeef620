"""Stand-ins of secrets in a recording: the same text wherever one value occurs, in keys, arguments and answers.

A value counts as secret by the rules of exports (`telemetry/redact.py`). A replaced text is replaced everywhere,
because a key or a message may repeat it without its name. A short text and a number are replaced in their place only,
since they occur in other values by chance.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from outlast.telemetry.redact import KNOWN_CHARS_MIN, secret_values

STAND_IN: Final = re.compile(r"redacted-[1-9][0-9]*")
PLACES_MAX: Final = 20
Secret = str | int | float


class ReplacedValue(NamedTuple):
    """One replaced value: its stand-in, and the places where it was found."""

    stand_in: str
    places: tuple[str, ...]


class StandIns:
    """The stand-ins of one recording. The same value always gets the same one."""

    def __init__(self) -> None:
        self._known: dict[Secret, str] = {}
        self._places: dict[str, list[str]] = {}

    @property
    def replaced(self) -> tuple[ReplacedValue, ...]:
        """Every stand-in that was given, with its places, without the values."""
        return tuple(ReplacedValue(name, tuple(places)) for name, places in self._places.items())

    def bind(self, secret: Secret, stand_in: str) -> bool:
        """Let a value have this stand-in. Return False if it has another one, or the stand-in another value."""
        if secret in self._known:
            return self._known[secret] == stand_in
        if stand_in in self._known.values():
            return False
        self._known[secret] = stand_in
        return True

    def replace(self, value: Any, place: str = "") -> Any:
        """Return plain data with a stand-in for each secret. `place` names it in the list of replaced values."""
        for where, secret in secrets_of(value, place):
            name = self._known.setdefault(secret, f"redacted-{len(self._known) + 1}")
            places = self._places.setdefault(name, [])
            if where not in places and len(places) < PLACES_MAX:
                places.append(where)
        return self.known_replaced(value)

    def known_replaced(self, value: Any, name: str = "") -> Any:
        """Return plain data with the stand-ins that are known already."""
        if isinstance(value, str):
            return self._text(value, name)
        if isinstance(value, dict):
            return {self._text(key): self.known_replaced(item, _inner(name, key)) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.known_replaced(item, name) for item in value]
        if isinstance(value, int | float) and not isinstance(value, bool) and any(secret_values(value, name)):
            return int(self._known[value].rpartition("-")[2]) if value in self._known else value
        return value

    def _text(self, text: str, name: str = "") -> str:
        if text in self._known and (len(text) >= KNOWN_CHARS_MIN or any(secret_values(text, name))):
            return self._known[text]
        long = [secret for secret in self._known if isinstance(secret, str) and len(secret) >= KNOWN_CHARS_MIN]
        for secret in sorted(long, key=len, reverse=True):  # because one may contain another
            for spelling in _spellings(secret):
                text = text.replace(spelling, self._known[secret])
        return text


def secrets_of(value: Any, place: str = "", name: str = "") -> Iterator[tuple[str, Secret]]:
    """Yield the place and the value of each secret in plain data that is no stand-in yet."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from secrets_of(item, f"{place}.{key}" if place else str(key), _inner(name, str(key)))
    elif isinstance(value, list | tuple):
        for n, item in enumerate(value):
            yield from secrets_of(item, f"{place}[{n}]", name)
    else:
        for secret in secret_values(value, name):
            if secret != "" and not (isinstance(secret, str) and STAND_IN.fullmatch(secret)):
                yield place, secret


def _inner(name: str, key: str) -> str:
    """Return the name of a value below `key`: everything below the name of a secret is secret."""
    return name if name and any(secret_values("x" * KNOWN_CHARS_MIN, name)) else key


def _spellings(secret: str) -> Sequence[str]:
    escaped = json.dumps(secret, ensure_ascii=False)[1:-1]
    return tuple(dict.fromkeys((secret, escaped, quote(secret, safe="", errors="surrogatepass"))))
