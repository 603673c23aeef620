"""Checks of bind address, Host, Origin and trusted proxies (S15, S34)."""

import ipaddress
import re
from ipaddress import ip_network
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from outlast.errors import Forbidden, InvalidInput


def is_loopback(host: str) -> bool:
    """Return True for loopback addresses and `localhost`. Other names are False, whatever they resolve to."""
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
    """Raise InvalidInput if other machines could reach the service without authentication."""
    if authenticates or is_loopback(host):
        return
    raise InvalidInput(
        f"outlast serve refuses to listen on {host or 'every address'} without authentication",
        "any machine that reaches this address could start, cancel and decide",
        "add the line of `outlast token new NAME admin` to OUTLAST_AUTH__TOKENS, or listen on 127.0.0.1",
    )


def proxy_options(proxies: tuple[str, ...]) -> dict[str, Any]:
    """Return the options of uvicorn that trust X-Forwarded-* from these proxies only.

    By default uvicorn would trust 127.0.0.1 and FORWARDED_ALLOW_IPS. Raises InvalidInput for `*`, and for a text that
    is not an address, because uvicorn would silently ignore it.
    """
    if "*" in proxies:
        raise InvalidInput(
            "serve.proxies cannot be *", "any caller could then claim any address", "list the addresses of the proxies"
        )
    for proxy in proxies:
        try:
            ip_network(proxy, strict=False)
        except ValueError:
            raise InvalidInput(
                f"{proxy!r} is not a proxy address",
                "serve.proxies lists addresses and networks",
                "e.g. 10.0.0.2",
            ) from None
    return {"proxy_headers": bool(proxies), "forwarded_allow_ips": list(proxies)}


class SameOriginMiddleware:
    """Middleware that refuses requests of pages from other sites.

    Without authentication it also refuses requests whose Host is not this machine (DNS rebinding). Raises Forbidden:
    `cross_origin`, `host`.
    """

    def __init__(self, app: ASGIApp, *, local_only: bool) -> None:
        self._app = app
        self._local_only = local_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check an HTTP request and pass it on. Pass other protocols on unchecked."""
        if scope["type"] == "http":
            check_origin(scope, local_only=self._local_only)
        await self._app(scope, receive, send)


def check_origin(scope: Scope, *, local_only: bool) -> None:
    """Raise Forbidden for a page of another site or, if `local_only`, a Host other than this machine."""
    host = _header(scope, b"host")
    if local_only and not is_own_name(host):
        raise Forbidden(
            "this service only answers requests to localhost",
            f"the request names the host {host[:100] or '(none)'}, and it has no authentication",
            "use http://127.0.0.1, or set up authentication",
            refusal="host",
        )
    if scope["method"] in READS:
        return
    origins = [value.decode("latin-1") for name, value in scope["headers"] if name == b"origin"]
    foreign = [origin for origin in origins if not host or _name(origin)[1] != host.lower()]
    if foreign or _header(scope, b"sec-fetch-site") in ELSEWHERE:
        raise Forbidden(
            "pages of other sites may not do this",
            f"it comes from {foreign[0][:100] if foreign else 'another site'}, and this service is {host[:100]}",
            "call the service from a program, or from a page of the same site",
            refusal="cross_origin",
        )


def is_own_name(host: str) -> bool:
    """Return True if a Host is localhost or a loopback address, with any port (`ssh -L` uses other ports)."""
    found = HOST.fullmatch(host)
    return found is not None and is_loopback(found[1])


def _name(address: str) -> tuple[str, str]:
    """Return the host of a URL, and the host with its port; empty texts if it cannot be parsed."""
    try:
        parts = urlsplit(address)
        return parts.hostname or "", parts.netloc.lower()
    except ValueError:
        return "", ""


def _header(scope: Scope, name: bytes) -> str:
    value: bytes = next((value for key, value in scope["headers"] if key == name), b"")
    return value.decode("latin-1")
