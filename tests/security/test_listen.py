"""Bind addresses, hosts and origins (S15, S34)."""

import asyncio
from typing import Any

import pytest

from outlast.errors import Forbidden, InvalidInput, Unauthenticated
from outlast.service.identity import Anonymous, check_bind, proxy_options
from outlast.service.identity.listen import check_origin

HERE = ["127.0.0.1", "127.8.9.1", "localhost", "LOCALHOST.", "::1", "[::1]", "::ffff:127.0.0.1"]
ELSEWHERE = ["0.0.0.0", "::", "", "192.168.1.7", "10.0.0.1", "example.com", "localhost.example.com", "2130706433",
             "0x7f.1", "127.1", "::ffff:10.0.0.1", "169.254.1.1", "127.0.0.1.nip.io"]  # fmt: skip


@pytest.mark.parametrize("host", HERE)
def test_loopback_needs_no_authentication(host: str) -> None:
    check_bind(host, authenticates=False)


@pytest.mark.req("GATE-2")
@pytest.mark.parametrize("host", ELSEWHERE)
def test_other_addresses_require_authentication(host: str) -> None:
    check_bind(host, authenticates=True)
    with pytest.raises(InvalidInput, match=r"refuses to listen on .* without authentication"):
        check_bind(host, authenticates=False)


@pytest.mark.parametrize("client", ["192.0.2.1", "10.0.0.1", "", "testclient"])
def test_without_authentication_other_machines_are_refused(client: str) -> None:
    """For any bind address, because a mounted application does not know it."""
    with pytest.raises(Unauthenticated) as caught:
        asyncio.run(Anonymous("local:me").authenticate("", client))
    assert caught.value.refusal == "not_local"


def test_forwarded_headers_come_from_listed_proxies_only() -> None:
    assert proxy_options(()) == {"proxy_headers": False, "forwarded_allow_ips": []}
    assert proxy_options(("10.0.0.2",)) == {"proxy_headers": True, "forwarded_allow_ips": ["10.0.0.2"]}
    with pytest.raises(InvalidInput, match="cannot be"):
        proxy_options(("10.0.0.2", "*"))
    assert proxy_options(("10.0.0.0/8", "10.1.2.3/16", "fd00::/8"))["proxy_headers"]
    with pytest.raises(InvalidInput, match="not a proxy address"):
        proxy_options(("10.0.0.2", "lb.internal"))


def scope(method: str = "POST", **headers: str) -> dict[str, Any]:
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http", "method": method, "headers": pairs}


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"}, {"origin": "null"}, {"origin": "http://127.0.0.1:8001"},
        {"origin": "http://127.0.0.1.evil.example:8000"}, {"origin": ""}, {"origin": "http://["},
        {"sec_fetch_site": "cross-site"}, {"sec_fetch_site": "same-site"},
        {"origin": "http://127.0.0.1:8000", "sec_fetch_site": "cross-site"},
    ],
)  # fmt: skip
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_a_page_of_another_site_changes_nothing(method: str, headers: dict[str, str]) -> None:
    with pytest.raises(Forbidden) as caught:
        check_origin(scope(method, host="127.0.0.1:8000", **headers), local_only=False)
    assert caught.value.refusal == "cross_origin"


def test_programs_and_pages_of_the_same_site_are_allowed() -> None:
    for headers in [{}, {"origin": "http://127.0.0.1:8000", "sec_fetch_site": "same-origin"}]:
        check_origin(scope(host="127.0.0.1:8000", **headers), local_only=True)
    check_origin(scope("GET", host="127.0.0.1:8000", origin="https://evil.example"), local_only=True)
    check_origin(scope("GET", host="[::1]:8000"), local_only=True)
    check_origin(scope("GET", host="outlast.example.com"), local_only=False)


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://", ""])
def test_a_page_is_foreign_without_a_host(origin: str) -> None:
    with pytest.raises(Forbidden) as caught:
        check_origin(scope(origin=origin), local_only=False)
    assert caught.value.refusal == "cross_origin"


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8000",
        "",
        "10.0.0.1",
        "[",
        "localhost.evil.example",
        "localhost.",
        "localhost:",
        "localhost:x",
        "localhost:123456",
        "evil.example@localhost",
        "localhost/evil",
        "localhost?evil",
        "localhost#evil",
        "localhost, evil.example",
        " localhost",
        "127.0.0.1.",
        "127.1",
        "2130706433",
        "0x7f.0.0.1",
        "0.0.0.0",
        "[::]",
        "[::1",
        "::1",
        "[::1]evil",
        "localhost\\@evil.example",
        "app.localhost",
    ],
)
def test_without_authentication_only_localhost_names_are_served(host: str) -> None:
    """A page whose name resolves to this machine (DNS rebinding) sends its own name."""
    with pytest.raises(Forbidden) as caught:
        check_origin(scope("GET", host=host), local_only=True)
    assert caught.value.refusal == "host"
