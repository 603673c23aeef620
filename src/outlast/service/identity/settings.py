"""Whether the settings of authentication can be used, and which addresses are this machine alone."""

import ipaddress
from typing import Final
from urllib.parse import urlsplit

from outlast.core.limits import NAME
from outlast.errors import InvalidInput
from outlast.runtime.settings import AuthSettings

ALGORITHMS: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
"""All that can be chosen: signatures whose key the service cannot sign with itself, so no shared secrets, no `none`."""
LEEWAY_MAX_S: Final = 60


def check(settings: AuthSettings) -> None:
    """Raise InvalidInput that names everything that is missing or weak."""
    problems: list[tuple[str, str]] = []
    if settings.signed:
        needed = ("issuer", "audience", "jwks_url", *(() if settings.tenant else ("tenant_claim",)), "roles_claim",
                  "name_claim")  # fmt: skip
        problems += [(f"auth.{name}", "missing") for name in needed if not getattr(settings, name)]
        if settings.tenant and not NAME.fullmatch(settings.tenant):
            problems.append(("auth.tenant", "cannot name a tenant"))
        if not settings.algorithms:
            problems.append(("auth.algorithms", "none is named"))
        problems += [
            ("auth.algorithms", f"{name!r} is not one of {', '.join(sorted(ALGORITHMS))}")
            for name in settings.algorithms
            if name not in ALGORITHMS
        ]
        if settings.jwks_url and not _is_safe(settings.jwks_url):
            problems.append(("auth.jwks_url", "has to be https: whoever can change these keys can be anybody"))
        if not 0 <= settings.leeway_s <= LEEWAY_MAX_S:
            problems.append(("auth.leeway_s", f"from 0 to {LEEWAY_MAX_S} seconds"))
    if problems:
        raise InvalidInput("the settings of authentication cannot be used", problems=problems, fix="see security.md")


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
