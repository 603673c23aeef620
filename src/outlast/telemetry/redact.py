"""Removal of secrets from texts of logs, spans and errors (S29).

Texts may be truncated (the start of an answer, the first 2,000 characters of a sentence). The beginning of a secret
at the end of a text is removed too.
"""

import json
import re
from collections.abc import Collection, Iterator
from functools import lru_cache
from itertools import zip_longest
from typing import Any, Final
from urllib.parse import quote

GONE: Final = "[redacted]"
_WORDS: Final = r"(?:password|passwd|secret|token|api[_-]?key|authorization|credential|private[_-]?key)"
# Bounded, possessive patterns: input is attacker-controlled and must not cause catastrophic backtracking (S19).
_PATTERNS: Final = tuple(
    (needed, re.compile(pattern, flags))
    for needed, pattern, flags in (
        # user:password@ of a URL or DSN; the user is kept
        ("://", r"(?P<keep>://[^\s:/@]{0,200}+:)[^\s/]{1,250}(?=@)", 0),
        # … and one that was truncated before its @; ports and IPv6 addresses are kept
        ("://", r"(?P<keep>://[^\s:/@\[]{0,200}+:)(?!\d{1,5}\W{0,9}\Z)[^\s/@]{1,250}\Z", 0),
        ("", r"(?P<keep>\b(?:bearer|basic|digest)\s{1,9}+)[A-Za-z0-9+/=._~-]{6,}", re.IGNORECASE),
        ("k-", r"(?P<keep>)\b[spr]k-[A-Za-z0-9_-]{8,}", 0),  # keys of model and payment providers
        ("k_", r"(?P<keep>)\b[spr]k_[A-Za-z0-9_-]{8,}", 0),
        ("whsec_", r"(?P<keep>)\bwhsec_[A-Za-z0-9+/=]{8,}", 0),
        # Outlast's own tokens, whole or truncated
        ("olt_", r"(?P<keep>)\bolt_(?:[A-Za-z0-9_-]{20,}|[A-Za-z0-9_-]{6,}\Z)", 0),
        ("gh", r"(?P<keep>)\bgh[pousr]_[A-Za-z0-9_-]{10,}", 0),
        ("github_pat_", r"(?P<keep>)\bgithub_pat_[A-Za-z0-9_-]{10,}", 0),
        ("glpat-", r"(?P<keep>)\bglpat-[A-Za-z0-9_-]{10,}", 0),
        ("xox", r"(?P<keep>)\bxox[abprs]-[A-Za-z0-9_-]{10,}", 0),
        ("AKIA", r"(?P<keep>)\bAKIA[A-Z0-9]{16}\b", 0),
        ("ASIA", r"(?P<keep>)\bASIA[A-Z0-9]{16}\b", 0),
        # a JWT
        ("eyJ", r"(?P<keep>)(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]*+", 0),
        (
            "-----BEGIN ",
            r"(?P<keep>)-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)",
            re.DOTALL,
        ),
    )
)
"""Each pattern follows a literal that every match contains. Searching for the literal first is ten times faster."""
# password=…, "api_key": "…", \"secret\": \"…\", Authorization: …
_NAMED: Final = re.compile(
    rf"(?P<keep>(?<![\w-])(?=[\w-]{{0,200}}?{_WORDS})[\w-]{{1,200}}+\\{{0,4}}[\"']?\s{{0,9}}+[=:]\s{{0,9}}+)"
    r"(?!\[redacted\]|(?:bearer|basic|digest)\s+(?:\[redacted\]|…))"
    r"(?:\\{1,4}\"[^\"]*(?:\"|\Z)|\"(?:[^\"\\]|\\.)*+(?:\"|\\?\Z)|'[^']*(?:'|\Z)|[^\s,;&}\"']+)",
    re.IGNORECASE | re.DOTALL,
)
_CLEAN: Final = rf"\g<keep>{GONE}"
_WORD: Final = re.compile(_WORDS, re.IGNORECASE)
_NAME: Final = re.compile(r"[\w-]{1,200}+")
_JSON: Final = ("{", "[", b"{", b"[")
SHOWN_CHARS_MAX: Final = 32_000  # redaction takes up to 5 s for 4 MB, in the event loop
KNOWN_CHARS_MIN: Final = 6
"""Shorter secrets occur in ordinary words."""


def redact(text: str, known: Collection[str] = ()) -> str:
    """Return the text without texts that look like secrets, and without the known ones (`secrets_in`)."""
    spelt = {spelling for secret in known for spelling in _spellings(secret)}
    for secret in sorted(spelt, key=len, reverse=True):  # because one may be the beginning of another
        text = _cut(text.replace(secret, GONE), secret)
    for needed, pattern in _PATTERNS:
        if needed in text:
            text = pattern.sub(_CLEAN, text)
    return _NAMED.sub(_CLEAN, text) if "=" in text or ":" in text else text


def redact_shown(text: str, known: Collection[str] = ()) -> str:
    """Return a text of authors' code as `redact` does. The middle of a long one is left out before.

    For texts that are shown in part. An exception may repeat a whole input, and redaction blocks the event loop.
    """
    return redact(shortened(text), known)


def shortened(text: str) -> str:
    """Return the beginning and the end of a text that is too long to be redacted in an event loop."""
    if len(text) <= SHOWN_CHARS_MAX:
        return text
    half = SHOWN_CHARS_MAX // 2
    return f"{text[:half]} … {len(text) - 2 * half:,} characters left out … {text[-half:]}"


def _spellings(secret: str) -> Iterator[str]:
    """Yield the secret as it is, as JSON with and without escaped slashes, and as percent-encoded text."""
    yield secret
    for ascii_ in (True, False):
        spelt = json.dumps(secret, ensure_ascii=ascii_)[1:-1]
        yield from (spelt, spelt.replace("/", "\\/"))
    for safe in ("/", ""):
        yield quote(secret, safe=safe, errors="surrogatepass")


def _cut(text: str, secret: str) -> str:
    """Remove the beginning of the secret from the end of the text."""
    for n in range(min(len(secret) - 1, len(text)), KNOWN_CHARS_MIN - 1, -1):
        if text.endswith(secret[:n]):
            return text[:-n] + GONE
    return text


def redacted(value: Any, name: str = "") -> Any:
    """Return plain data without values that are secret by their form or by their name; also inside JSON texts."""
    secret = bool(name) and _is_secret(name)
    if secret and _may_be_secret(value, name):
        return GONE
    if isinstance(value, str):
        return _within(value) if value[:1] in _JSON else redact(value)
    if isinstance(value, dict):
        return {key: redacted(item, name if secret else str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(item, name) for item in value]
    return value


def restored(given: Any, before: Any) -> Any:
    """Return plain data that a person edited after it was `redacted`, with the removed values in their old places.

    `before`: the data before it was redacted. Raises ValueError with the path of a mark for which there is no value.
    """
    return _restored(given, before, redacted(before), ())


def _restored(given: Any, before: Any, shown: Any, path: tuple[str, ...]) -> Any:
    if isinstance(given, dict):
        old, seen = (each if isinstance(each, dict) else {} for each in (before, shown))
        return {
            name: _restored(item, old.get(name), seen.get(name), (*path, str(name))) for name, item in given.items()
        }
    if isinstance(given, list):
        were, marked = (each if isinstance(each, list) else [] for each in (before, shown))
        places = zip_longest(given, were[: len(given)], marked[: len(given)])
        return [_restored(*each, (*path, str(n))) for n, each in enumerate(places)]
    if not (isinstance(given, str) and GONE in given):
        return given
    if given != shown:
        raise ValueError(".".join(path))
    return before


def secrets_in(*values: Any) -> frozenset[str]:
    """Return the texts stored under the name of a secret, in plain data or JSON.

    Errors may repeat them without the name.
    """
    return frozenset(text for value in values for text in _secrets(value, False))


def _secrets(value: Any, secret: bool) -> Iterator[str]:
    if isinstance(value, bytes | str) and value[:1] in _JSON:
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _secrets(item, secret or _is_secret(str(name)))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _secrets(item, secret)
    elif secret and isinstance(value, str) and len(value) >= KNOWN_CHARS_MIN:
        yield value


@lru_cache(1_000)  # a few names repeat
def _is_secret(name: str) -> bool:
    return bool(_NAME.fullmatch(name) and _WORD.search(name))


def _may_be_secret(value: Any, name: str) -> bool:
    """True if the value can be a secret. A number of tokens is not."""
    if isinstance(value, str):
        return bool(value)
    return isinstance(value, int | float) and not isinstance(value, bool) and "token" not in name.lower()


def _within(text: str) -> str:
    try:
        value = json.loads(text)
        clean = redacted(value)
    except (ValueError, RecursionError):
        return redact(text)
    return text if clean == value else json.dumps(clean, ensure_ascii=False)


def secret_values(value: Any, name: str = "") -> Iterator[str | int | float]:
    """Yield each value that `redacted` removes from plain data, as often as it occurs."""
    secret = bool(name) and _is_secret(name)
    if secret and _may_be_secret(value, name):
        yield value
    elif isinstance(value, str):
        yield from _in_text(value)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from secret_values(item, name if secret else str(key))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from secret_values(item, name)


def _in_text(text: str) -> Iterator[str | int | float]:
    if text[:1] in _JSON:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            pass
        else:
            yield from secret_values(value)
            return
    for needed, pattern in _PATTERNS:
        if needed in text:
            yield from (text[found.end("keep") : found.end()] for found in pattern.finditer(text))
    if "=" in text or ":" in text:
        yield from (text[found.end("keep") : found.end()].strip("\\\"'") for found in _NAMED.finditer(text))
