"""Secrets have no place in logs, spans and errors: what looks like one is left out (S29)."""

import re
from typing import Any, Final

GONE: Final = "[redacted]"
_NAMES: Final = (
    r"[\w-]*(?:password|passwd|secret|token|api[_-]?key|apikey|authorization|credential|private[_-]?key)[\w-]*"
)
_PATTERNS: Final = (
    # user:password@ of a URL or DSN; the user stays
    (re.compile(r"(?P<keep>\b[a-z][a-z0-9+.-]*://[^\s:/@]*:)[^\s@]+(?=@)", re.IGNORECASE), None),
    (re.compile(r"(?P<keep>\b(?:bearer|basic|digest)\s+)[A-Za-z0-9+/=._~-]{6,}", re.IGNORECASE), None),
    (re.compile(r"\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{8,}"), GONE),  # keys of model and payment providers
    (re.compile(r"\bwhsec_[A-Za-z0-9+/=]{8,}"), GONE),
    (re.compile(r"\b(?:gh[pousr]_|github_pat_|glpat-|xox[abprs]-)[A-Za-z0-9_-]{10,}"), GONE),
    (re.compile(r"\bA(?:KIA|SIA)[A-Z0-9]{16}\b"), GONE),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"), GONE),  # a JWT
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), GONE),
    # password=…, "api_key": "…", Authorization: …
    (
        re.compile(
            rf"(?P<keep>(?<![\w-]){_NAMES}[\"']?\s*[=:]\s*)"
            r"(?!\[redacted\])(?:\"[^\"]*\"|'[^']*'|[^\s,;&}\"']+)",
            re.IGNORECASE,
        ),
        None,
    ),
)
_NAME: Final = re.compile(_NAMES, re.IGNORECASE)


def redact(text: str) -> str:
    """The text, without what looks like a secret."""
    for pattern, whole in _PATTERNS:
        text = pattern.sub(whole if whole is not None else lambda m: m["keep"] + GONE, text)
    return text


def redacted(value: Any, name: str = "") -> Any:
    """Plain data, without what looks like a secret by its value or by its name."""
    if name and _NAME.fullmatch(name) and isinstance(value, str):
        return GONE
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {key: redacted(item, str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(item) for item in value]
    return value
