"""Headers of a receiver's own: from a safe list, and their values are secrets (S24).

What the receiver's gateway asks for may be named (X-Api-Key); nothing that steers HTTP, says where a request comes
from, or is ours to say.
"""

import re
from collections.abc import Mapping
from typing import Final

from outlast.core.deliveries import Attempt, headers_of, secrets_in
from outlast.core.limits import HEADER_CHARS_MAX, HEADERS_MAX
from outlast.core.outgoing import Subscription
from outlast.errors import InvalidInput
from outlast.telemetry.redact import KNOWN_CHARS_MIN, redact

SAFE: Final = re.compile(r"x-[a-z0-9]+(?:-[a-z0-9]+)*|api-?key")
NEVER: Final = re.compile(
    r"x-(?:forwarded|original|rewrite|real|host|http|method|envoy|amzn?|cluster|remote|client|outlast|webhook)(?:-.*)?"
)
"""What proxies and frameworks believe: who asks, for which host, by which method; and names of ours."""
VALUE: Final = re.compile(r"[!-~](?:[ -~]*[!-~])?")


def checked_headers(given: Mapping[str, str]) -> dict[str, str]:
    """By lower-case name, each allowed. Raises InvalidInput with every problem, and never with a value."""
    problems: list[tuple[str, str]] = []
    if len(given) > HEADERS_MAX:
        problems.append(("headers", f"there are at most {HEADERS_MAX}"))
    found: dict[str, str] = {}
    for name, value in given.items():
        low = name.lower()
        if len(name) > 100 or not SAFE.fullmatch(low) or NEVER.fullmatch(low):
            problems.append((name[:100], "it is none of X-… and Api-Key, or one that proxies and frameworks believe"))
        elif low in found:
            problems.append((name, "it is given twice"))
        elif len(value) > HEADER_CHARS_MAX or not VALUE.fullmatch(value):
            problems.append((name, f"its value is 1 to {HEADER_CHARS_MAX} printable ASCII characters, no space around"))
        else:
            found[low] = value
    if problems:
        raise InvalidInput("these headers are not allowed for a webhook", problems=problems)
    return found


def veiled(attempt: Attempt, row: Subscription) -> Attempt:
    """An attempt whose answer and error repeat no secret of the subscription, as a receiver that echoes would."""
    known = [each for each in (*secrets_in(row), *headers_of(row).values()) if len(each) >= KNOWN_CHARS_MIN]
    return attempt._replace(answer=redact(attempt.answer, known), error=redact(attempt.error, known))
