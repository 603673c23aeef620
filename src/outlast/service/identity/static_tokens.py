"""Random tokens for installations without an issuer, stored as hashes together with their caller."""

import hashlib
import hmac
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from outlast.clocks import new_credential
from outlast.core.approver_rule import refusal_of_name
from outlast.core.clock_port import Clock
from outlast.core.keys import check_name
from outlast.errors import InvalidInput
from outlast.service.identity.permissions import Principal
from outlast.service.identity.signed_tokens import EXPIRED, PROGRAMS, refused

PREFIX: Final = "olt_"
PARTS: Final = frozenset({"tenant", "roles", "person", "until", "sha256"})


@dataclass(frozen=True)
class StaticToken:
    """Parsed token line: NAME tenant=… roles=a,b person=yes|no [until=YYYY-MM-DD] sha256=…"""

    principal: Principal
    digest: bytes


class StaticTokens:
    """Set of the tokens that a service accepts."""

    def __init__(self, tokens: Iterable[StaticToken], clock: Clock) -> None:
        self._tokens = tuple(tokens)
        self._clock = clock

    def read(self, given: bytes) -> Principal:
        """Return the caller of the token with this digest. Raises Unauthenticated.

        Every hash is compared, each in constant time.
        """
        found: StaticToken | None = None
        for known in self._tokens:
            if hmac.compare_digest(known.digest, given):
                found = known
        if found is None:
            raise refused("invalid")
        until_ms = found.principal.until_ms
        if until_ms and self._clock.wall() >= until_ms:
            raise refused(EXPIRED, guess=False)
        return found.principal


def new_token(
    name: str, *, tenant: str, roles: Collection[str], person: bool, until: datetime | None = None
) -> tuple[str, str]:
    """Return a new token, and the line by which a service accepts it. Raises InvalidInput."""
    if name.split() != [name]:
        raise InvalidInput(
            f"{name!r} cannot name the owner of a token", "a name has no spaces", "e.g. ana@corp.example"
        )
    for role in roles:
        check_name("role", role)
    token = PREFIX + new_credential()
    digest = hashlib.sha256(token.encode()).hexdigest()
    parts = [name, f"tenant={tenant}", f"roles={','.join(sorted(set(roles)))}", f"person={'yes' if person else 'no'}"]
    parts += [f"until={until:%Y-%m-%d}"] if until else []
    line = " ".join([*parts, f"sha256={digest}"])
    read_line(line)
    return token, line


def read_lines(text: str) -> list[StaticToken]:
    """Parse token lines, skipping empty lines and comments that begin with #.

    Raises InvalidInput that lists every invalid line by number, never its content.
    """
    found: list[StaticToken] = []
    problems: list[tuple[str, str]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                found.append(read_line(line))
            except InvalidInput as error:
                problems.append((f"line {number}", error.what))
    if len({token.digest for token in found}) < len(found):
        problems.append(("lines", "a token appears twice"))
    if problems:
        raise InvalidInput("the tokens are invalid", problems=problems, fix="outlast token new NAME viewer")
    return found


def read_line(line: str) -> StaticToken:
    """Parse one token line. Raises InvalidInput."""
    name, *rest = line.split()
    given = dict(part.partition("=")[::2] for part in rest)
    if why := refusal_of_name(name):
        raise InvalidInput(f"the name {why}")
    if len(given) != len(rest) or set(given) - PARTS:
        raise InvalidInput(f"the name is followed by {', '.join(sorted(PARTS))}, each once")
    if "tenant" not in given:
        raise InvalidInput("tenant=… is missing")
    check_name("tenant", given["tenant"])
    roles = frozenset(check_name("role", role) for role in given.get("roles", "").split(",") if role)
    if given.get("person") not in ("yes", "no"):
        raise InvalidInput("person=yes or person=no is missing")
    person = given["person"] == "yes"
    if person and roles & PROGRAMS:
        raise InvalidInput(f"a person cannot have the role {', '.join(sorted(roles & PROGRAMS))}")
    try:
        digest = bytes.fromhex(given.get("sha256", ""))
        until = datetime.strptime(given["until"], "%Y-%m-%d").replace(tzinfo=UTC) if "until" in given else None
    except ValueError:
        raise InvalidInput("sha256= or until= is invalid") from None
    if len(digest) != hashlib.sha256().digest_size:
        raise InvalidInput("sha256= must have 64 hexadecimal digits")
    until_ms = int(until.timestamp() * 1000) if until else 0
    principal = Principal(given["tenant"], name, roles, tuple(sorted(roles)), person, until_ms)
    return StaticToken(principal, digest)
