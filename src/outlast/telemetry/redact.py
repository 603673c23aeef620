"""Secrets have no place in logs, spans and errors: what looks like one is left out (S29)."""

import json
import re
from collections.abc import Collection, Iterator
from typing import Any, Final

GONE: Final = "[redacted]"
_WORDS: Final = r"(?:password|passwd|secret|token|api[_-]?key|apikey|authorization|credential|private[_-]?key)"
# Bounded and possessive: the texts are also of those who would like a worker to stand still (S19).
_PATTERNS: Final = (
    # user:password@ of a URL or DSN; the user stays
    (re.compile(r"(?P<keep>\b[a-z][a-z0-9+.-]{0,20}+://[^\s:/@]{0,200}+:)[^\s/]{1,250}(?=@)", re.IGNORECASE), None),
    (re.compile(r"(?P<keep>\b(?:bearer|basic|digest)\s{1,9}+)[A-Za-z0-9+/=._~-]{6,}", re.IGNORECASE), None),
    (re.compile(r"\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{8,}"), GONE),  # keys of model and payment providers
    (re.compile(r"\bwhsec_[A-Za-z0-9+/=]{8,}"), GONE),
    (re.compile(r"\bolt_[A-Za-z0-9_-]{20,}"), GONE),  # tokens of ours
    (re.compile(r"\b(?:gh[pousr]_|github_pat_|glpat-|xox[abprs]-)[A-Za-z0-9_-]{10,}"), GONE),
    (re.compile(r"\bA(?:KIA|SIA)[A-Z0-9]{16}\b"), GONE),
    (re.compile(r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]*+"), GONE),  # a JWT
    (re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)", re.DOTALL),
     GONE),
    # password=…, "api_key": "…", \"secret\": \"…\", Authorization: …
    (
        re.compile(
            rf"(?P<keep>(?<![\w-])(?=[\w-]{{0,200}}?{_WORDS})[\w-]{{1,200}}+\\{{0,4}}[\"']?\s{{0,9}}+[=:]\s{{0,9}}+)"
            r"(?!\[redacted\]|(?:bearer|basic|digest)\s+(?:\[redacted\]|…))"
            r"(?:\\{1,4}\"[^\"]*\"|\"(?:[^\"\\]|\\.)*+\"|'[^']*'|[^\s,;&}\"']+)",
            re.IGNORECASE | re.DOTALL,
        ),
        None,
    ),
)  # fmt: skip
_WORD: Final = re.compile(_WORDS, re.IGNORECASE)
_NAME: Final = re.compile(r"[\w-]{1,200}+")
_JSON: Final = ("{", "[", b"{", b"[")
KNOWN_CHARS_MIN: Final = 6
"""A shorter secret stands in every other word."""


def redact(text: str, known: Collection[str] = ()) -> str:
    """The text, without what looks like a secret, and without those that are known (`secrets_in`)."""
    for secret in known:
        text = text.replace(secret, GONE)
    for pattern, whole in _PATTERNS:
        text = pattern.sub(whole if whole is not None else lambda m: m["keep"] + GONE, text)
    return text


def redacted(value: Any, name: str = "") -> Any:
    """Plain data, without what looks like a secret by its value or by its name; JSON within a text too."""
    secret = bool(_NAME.fullmatch(name) and _WORD.search(name))
    if secret and _is_told(value, name):
        return GONE
    if isinstance(value, str):
        return _within(value) if value[:1] in _JSON else redact(value)
    if isinstance(value, dict):
        return {key: redacted(item, name if secret else str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(item, name) for item in value]
    return value


def secrets_in(*values: Any) -> frozenset[str]:
    """The texts that stand under the name of a secret in plain data, or in JSON as text or bytes: an error may repeat
    them where no name says what they are."""
    return frozenset(text for value in values for text in _secrets(value, False))


def _secrets(value: Any, secret: bool) -> Iterator[str]:
    if isinstance(value, bytes | str) and value[:1] in _JSON:
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _secrets(item, secret or bool(_NAME.fullmatch(str(name)) and _WORD.search(str(name))))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _secrets(item, secret)
    elif secret and isinstance(value, str) and len(value) >= KNOWN_CHARS_MIN:
        yield value


def _is_told(value: Any, name: str) -> bool:
    """Does it say anything? A number of tokens is none of theirs."""
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
