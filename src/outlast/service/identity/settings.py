"""Whose credentials a service believes, as data."""

import ipaddress
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from outlast.errors import InvalidInput
from outlast.runtime.settings import Auth

ALGORITHMS: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
"""All that can be chosen: signatures whose key the service cannot sign with itself, so no shared secrets, no `none`."""
LEEWAY_MAX_S: Final = 60


@dataclass(frozen=True)
class AuthSettings:
    """Tokens of one issuer (JWT), tokens of ours (`outlast token new`), or both. All empty: no authentication.

    A claim is named by its dotted path (`realm_access.roles`); one that stands under that very name, dots and all,
    comes first.
    """

    issuer: str = ""
    audience: str = ""
    jwks_url: str = ""
    algorithms: tuple[str, ...] = ("RS256", "ES256")
    tenant_claim: str = "tenant"
    roles_claim: str = "roles"
    name_claim: str = "sub"
    person_claim: str = ""
    """A claim that only the tokens of people have. Where none is named, no JWT is a person's, and none decides."""
    leeway_s: int = 30
    tokens: str = ""
    """Lines as `outlast token new` prints them: hashes, no secrets."""

    @classmethod
    def of(cls, auth: Auth) -> "AuthSettings":
        """The section [auth] of the settings."""
        return cls(
            issuer=auth.issuer,
            audience=auth.audience,
            jwks_url=auth.jwks_url,
            algorithms=tuple(auth.algorithms),
            tenant_claim=auth.tenant_claim,
            roles_claim=auth.roles_claim,
            name_claim=auth.name_claim,
            person_claim=auth.person_claim,
            tokens=auth.tokens.get_secret_value(),
        )

    @property
    def signed(self) -> bool:
        """Are tokens of an issuer believed?"""
        return bool(self.issuer or self.jwks_url or self.audience)

    @property
    def any(self) -> bool:
        """Is there any way to prove who one is?"""
        return self.signed or bool(self.tokens.strip())

    def check(self) -> None:
        """Raise InvalidInput that names everything that is missing or weak."""
        problems: list[tuple[str, str]] = []
        if self.signed:
            problems += [(f"auth.{name}", "missing") for name in ("issuer", "audience", "jwks_url", "tenant_claim",
                         "roles_claim", "name_claim") if not getattr(self, name)]  # fmt: skip
            if not self.algorithms:
                problems.append(("auth.algorithms", "none is named"))
            problems += [
                ("auth.algorithms", f"{name!r} is not one of {', '.join(sorted(ALGORITHMS))}")
                for name in self.algorithms
                if name not in ALGORITHMS
            ]
            if self.jwks_url and not _is_safe(self.jwks_url):
                problems.append(("auth.jwks_url", "has to be https: whoever can change these keys can be anybody"))
            if not 0 <= self.leeway_s <= LEEWAY_MAX_S:
                problems.append(("auth.leeway_s", f"from 0 to {LEEWAY_MAX_S} seconds"))
        if problems:
            raise InvalidInput(
                "the settings of authentication cannot be used", problems=problems, fix="see security.md"
            )


def _is_safe(url: str) -> bool:
    parts = urlsplit(url)
    if parts.username or parts.password or not parts.hostname:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname))


def is_loopback(host: str) -> bool:
    """Does this name or address mean this machine alone? No name but `localhost` does, whatever it resolves to."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback
