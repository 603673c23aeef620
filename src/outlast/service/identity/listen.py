"""Where a service may be reached: addresses it binds to, names it answers to, pages that may speak to it (S15, S34)."""

import ipaddress
import re
from ipaddress import ip_network
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from outlast.core.limits import NAME
from outlast.errors import Forbidden, InvalidInput
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


READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
HOST: Final = re.compile(r"(localhost|[0-9.]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?", re.IGNORECASE | re.ASCII)
ELSEWHERE: Final = frozenset({"cross-site", "same-site"})


def check_bind(host: str, *, authenticates: bool) -> None:
    """Raise InvalidInput for an address that others reach while nobody is asked who he is."""
    if authenticates or is_loopback(host):
        return
    raise InvalidInput(
        f"outlast serve refuses to listen on {host or 'every address'} without authentication",
        "whoever reaches that address could start, cancel and decide",
        "outlast token new NAME admin, and its line to OUTLAST_AUTH__TOKENS; or listen on 127.0.0.1",
    )


def proxy_options(proxies: tuple[str, ...]) -> dict[str, Any]:
    """What uvicorn is told of X-Forwarded-*: believed from these peers, from nobody where none is listed.

    Left alone, uvicorn believes 127.0.0.1 and what FORWARDED_ALLOW_IPS says. Raises InvalidInput for `*`, and for what
    is no address: nobody would be believed, and nobody told.
    """
    if "*" in proxies:
        raise InvalidInput(
            "not everybody can be a proxy", "whoever connects could name any address as his", "list their addresses"
        )
    for proxy in proxies:
        try:
            ip_network(proxy, strict=False)
        except ValueError:
            raise InvalidInput(
                f"{proxy!r} is no address of a proxy", "serve.proxies lists addresses and networks", "e.g. 10.0.0.2"
            ) from None
    return {"proxy_headers": bool(proxies), "forwarded_allow_ips": list(proxies)}


class SameOriginMiddleware:
    """Refuses requests that a page of another site makes a browser send, and, without authentication, those that
    reach this machine under another name than its own (DNS rebinding). Raises Forbidden: `cross_origin`, `host`."""

    def __init__(self, app: ASGIApp, *, local_only: bool) -> None:
        self._app = app
        self._local_only = local_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request; anything but HTTP goes through."""
        if scope["type"] == "http":
            check_origin(scope, local_only=self._local_only)
        await self._app(scope, receive, send)


def check_origin(scope: Scope, *, local_only: bool) -> None:
    """Raise Forbidden where another site's page speaks, or, `local_only`, where the host named is not this machine."""
    host = _header(scope, b"host")
    if local_only and not is_own_name(host):
        raise Forbidden(
            "this service answers to localhost only",
            f"the request names the host {host[:100] or '(none)'}, and nobody is asked who he is",
            "use http://127.0.0.1, or set up authentication",
            refusal="host",
        )
    if scope["method"] in READS:
        return
    origins = [value.decode("latin-1") for name, value in scope["headers"] if name == b"origin"]
    foreign = [origin for origin in origins if not host or _name(origin)[1] != host.lower()]
    if foreign or _header(scope, b"sec-fetch-site") in ELSEWHERE:
        raise Forbidden(
            "a page of another site may not do this",
            f"it comes from {foreign[0][:100] if foreign else 'another site'}, and this is {host[:100]}",
            "call the service from a program, or from a page of its own",
            refusal="cross_origin",
        )


def is_own_name(host: str) -> bool:
    """True if a `Host` names this machine: localhost or a loopback address, with any port, as `ssh -L` has one."""
    found = HOST.fullmatch(host)
    return found is not None and is_loopback(found[1])


def _name(address: str) -> tuple[str, str]:
    """The host of an address, and host with port; nothing of what cannot be read."""
    try:
        parts = urlsplit(address)
        return parts.hostname or "", parts.netloc.lower()
    except ValueError:
        return "", ""


def _header(scope: Scope, name: bytes) -> str:
    value: bytes = next((value for key, value in scope["headers"] if key == name), b"")
    return value.decode("latin-1")
