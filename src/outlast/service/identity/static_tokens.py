"""Tokens of ours, for places without an issuer: random, kept as hashes, each with the caller it proves."""

import hashlib
import hmac
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from outlast.core.clock import Clock
from outlast.core.keys import check_name
from outlast.errors import InvalidInput
from outlast.runtime.clocks import new_credential
from outlast.service.identity.permissions import Principal, refusal_of_name
from outlast.service.identity.signed_tokens import EXPIRED, PROGRAMS, refused

PREFIX: Final = "olt_"
PARTS: Final = frozenset({"tenant", "roles", "person", "until", "sha256"})


@dataclass(frozen=True)
class StaticToken:
    """One line: NAME tenant=… roles=a,b person=yes|no [until=YYYY-MM-DD] sha256=…"""

    principal: Principal
    digest: bytes


class StaticTokens:
    """The tokens that a service knows."""

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
    """A new token, and the line by which a service knows it. Raises InvalidInput."""
    if name.split() != [name]:
        raise InvalidInput(f"{name!r} cannot name the owner of a token", "it is one word", "ana@corp.example")
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
    """The tokens of a file: one to a line; empty lines and those that begin with # are passed over.

    Raises InvalidInput that names every line that cannot be read, and never what stands in it.
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
        problems.append(("lines", "one token is given twice"))
    if problems:
        raise InvalidInput("the tokens cannot be read", problems=problems, fix="outlast token new NAME viewer")
    return found


def read_line(line: str) -> StaticToken:
    """One line. Raises InvalidInput."""
    name, *rest = line.split()
    given = dict(part.partition("=")[::2] for part in rest)
    if why := refusal_of_name(name):
        raise InvalidInput(f"the name {why}")
    if len(given) != len(rest) or set(given) - PARTS:
        raise InvalidInput(f"behind the name stand {', '.join(sorted(PARTS))}, each once")
    if "tenant" not in given:
        raise InvalidInput("tenant=… has to stand there")
    check_name("tenant", given["tenant"])
    roles = frozenset(check_name("role", role) for role in given.get("roles", "").split(",") if role)
    if given.get("person") not in ("yes", "no"):
        raise InvalidInput("person=yes or person=no has to stand there")
    person = given["person"] == "yes"
    if person and roles & PROGRAMS:
        raise InvalidInput(f"a person does not hold the role {', '.join(sorted(roles & PROGRAMS))}")
    try:
        digest = bytes.fromhex(given.get("sha256", ""))
        until = datetime.strptime(given["until"], "%Y-%m-%d").replace(tzinfo=UTC) if "until" in given else None
    except ValueError:
        raise InvalidInput("sha256= or until= cannot be read") from None
    if len(digest) != hashlib.sha256().digest_size:
        raise InvalidInput("sha256= has to hold 64 hexadecimal digits")
    until_ms = int(until.timestamp() * 1000) if until else 0
    principal = Principal(given["tenant"], name, roles, tuple(sorted(roles)), person, until_ms)
    return StaticToken(principal, digest)
