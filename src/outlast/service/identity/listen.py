"""Where a service may be reached: addresses it binds to, names it answers to, pages that may speak to it (S15, S34)."""

import re
from ipaddress import ip_network
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from outlast.errors import Forbidden, InvalidInput
from outlast.service.identity.settings import is_loopback

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


class SameOrigin:
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
