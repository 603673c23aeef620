"""Requests to the site: bounded in time and size, at the pace that the site asks for.

A redirect is not followed here. It is an answer, so that each request has its turn under the rate limit, and the rules
of the site are asked about each address.
"""

import asyncio
import os
from typing import Any

import httpx2

from outlast import Refused, Retry, RetryLater, lookup, this_call
from outlast.flow import RateLimit
from outlast.http import AsyncClient

from .extract import NotARecord, extract
from .records import Page
from .robots import ADDRESS_CHARS_MAX, address

AGENT = "outlast-researcher"
ATTEMPTS, SLOW_ATTEMPTS = 3, 2  # a page that is too slow delays the list that names it
BYTES_MAX = 200_000
ROBOTS_BYTES_MAX = 500_000
TIMEOUT = "RESEARCHER_TIMEOUT_S"
"""The environment variable with another `TIMEOUT_S`. It belongs to the installation: a busy machine takes more."""
TIMEOUT_S = 1.5
"""Longest time for a whole page."""
HEADERS = {"User-Agent": AGENT, "Accept-Encoding": "identity"}  # identity: a small answer cannot become a large page
RETRY = Retry(attempts=ATTEMPTS, first="50ms", total_wait="5s")
_clients: dict[str, AsyncClient] = {}


@lookup(key="robots", once_per="run", retry=RETRY)
async def read_robots(site: str) -> str:
    """Return robots.txt of the site; '' if it has none. Refused if it cannot be read: then nothing may be read."""
    status, _, body = await _get(site, "/robots.txt", ROBOTS_BYTES_MAX)
    if 400 <= status < 500:
        return ""
    if status != 200:
        raise _later(f"http_{status}")
    return body.decode(errors="replace")


async def _read(site: str, path: str) -> Page:
    status, headers, body = await _get(site, path, BYTES_MAX)
    if status in (301, 302, 303, 307, 308):
        target = address(site, path, headers.get("location", ""))
        if target is None:
            raise Refused("leads_elsewhere", headers.get("location", "")[:ADDRESS_CHARS_MAX])
        return Page(moved_to=target)
    if status >= 500 or status in (408, 425, 429):
        raise _later(f"http_{status}")
    if status != 200:
        raise Refused(f"http_{status}")
    if "html" not in headers.get("content-type", ""):
        raise Refused("not_html", headers.get("content-type", "")[:100])
    try:
        return extract(site, path, body.decode(errors="replace"))
    except NotARecord as wrong:
        raise Refused("not_a_record", f"{wrong}") from None


def _reader(per_second: float) -> Any:
    """Return the lookup that reads pages at one pace. All runs of a store share it."""
    name = f"read-{per_second:g}-a-second"
    limit = RateLimit(concurrent=16, per_second=per_second)
    return lookup(name=name, key="page/{path}", retry=RETRY, provider=f"site-{per_second:g}", limit=limit)(_read)


read_fast, read, read_slowly = _reader(125), _reader(10), _reader(1)
PACES = {0.008: read_fast, 0.1: read, 1.0: read_slowly}
"""Seconds between requests → the lookup that keeps them."""
USUAL_DELAY = 0.1
"""Seconds between requests to a site that asks for none."""


def reader_for(delay: float) -> Any:
    """Return the lookup with the highest pace that a site allows, or None if it asks for a slower one."""
    return next((each for pace, each in PACES.items() if pace >= (delay or USUAL_DELAY)), None)


async def _get(site: str, path: str, bytes_max: int) -> tuple[int, httpx2.Headers, bytes]:
    """Return status, headers and body. Raises Refused, and RetryLater before the last attempt."""
    http = _clients.get(site) or _clients.setdefault(site, AsyncClient(base_url=site, headers=HEADERS, verify=False))
    try:
        async with asyncio.timeout(float(os.environ.get(TIMEOUT, TIMEOUT_S))), http.stream("GET", path) as answer:
            return answer.status_code, answer.headers, await _body(answer, bytes_max)
    except TimeoutError:
        raise _later("too_slow", SLOW_ATTEMPTS) from None
    except httpx2.TransportError as error:
        raise _later("no_connection" if isinstance(error, httpx2.ConnectError) else "broken_answer") from None


async def _body(answer: httpx2.Response, bytes_max: int) -> bytes:
    """Return the body of an answer, read no further than its limit. Raises Refused."""
    if answer.headers.get("content-encoding", "identity") != "identity":
        raise Refused("encoded", answer.headers["content-encoding"][:100])
    body = b""
    async for chunk in answer.aiter_raw():
        body += chunk
        if len(body) > bytes_max:
            raise Refused("too_large", f"more than {bytes_max:,} bytes")
    return body


def _later(code: str, attempts: int = ATTEMPTS) -> Refused | RetryLater:
    """Return the error for a failure that another attempt may mend: a refusal at the last of so many attempts."""
    return RetryLater(code) if this_call().attempt < attempts else Refused(code)
