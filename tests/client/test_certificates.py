"""A client verifies the certificate of a service, except where there can be none: plain HTTP to this machine."""

import asyncio
import ssl
from typing import Any

import pytest

from outlast.client.service_connection import ServiceConnection, base_of

pytestmark = pytest.mark.req("GATE-2")


@pytest.mark.parametrize(
    ("url", "verified"),
    [
        ("https://service.example", True),
        ("HTTPS://service.example", True),
        ("https://127.0.0.1:8443", True),
        ("HttpS://localhost/v1", True),
        ("http://service.example", True),  # a proxy of the environment may speak TLS
        ("http://127.0.0.1:8000", False),
        ("HTTP://localhost:8000", False),
    ],
)
def test_only_plain_http_to_this_machine_is_not_verified(url: str, verified: bool) -> None:
    async def verifies() -> bool:
        connection = ServiceConnection(base_of(url), "")
        try:
            pool: Any = vars(connection._client._transport)["_pool"]
            context: ssl.SSLContext = pool._ssl_context
            return context.verify_mode is ssl.CERT_REQUIRED and context.check_hostname
        finally:
            await connection.close()

    assert asyncio.run(verifies()) is verified
