"""Credentials, endpoint and signature of requests to DynamoDB.

aiobotocore finds the endpoint and the credentials. It is imported only for an endpoint outside this machine, because
that takes half a second. The signature is made here, because botocore's costs as much as the rest of a request.
"""

import hashlib
import hmac
import os
import ssl
import time
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from outlast.errors import StoreUnusable

SERVICE: Final = "dynamodb"
TARGET: Final = "DynamoDB_20120810"
CONTENT_TYPE: Final = "application/x-amz-json-1.0"
FULL_PORTS: Final = {"http": 80, "https": 443}


class Keys(NamedTuple):
    """Credentials of one request."""

    access: str
    secret: str
    token: str | None = None


STAND_IN: Final = Keys("stand-in", "stand-in")
"""For a server on this machine, which checks none."""


class Endpoint(NamedTuple):
    """A server that answers for DynamoDB, and how to reach it."""

    url: str
    keys: Callable[[], Awaitable[Keys]]
    tls: ssl.SSLContext | None = None
    proxy: str | None = None

    @property
    def host(self) -> str:
        """Value of the Host header."""
        parts = urlsplit(self.url)
        port = "" if parts.port in (None, FULL_PORTS[parts.scheme]) else f":{parts.port}"
        name = parts.hostname or ""
        return f"[{name}]{port}" if ":" in name else f"{name}{port}"


async def find_endpoint(region: str, given: str | None) -> Endpoint:
    """Return the endpoint of a region, or the given one, with its credentials.

    A server on this machine gets the credentials of the environment, if there are any, and none of a file or a role.
    Raises StoreUnusable.
    """
    if given is not None and _on_this_machine(given):

        async def environment() -> Keys:
            return Keys(
                os.environ.get("AWS_ACCESS_KEY_ID") or STAND_IN.access,
                os.environ.get("AWS_SECRET_ACCESS_KEY") or STAND_IN.secret,
                os.environ.get("AWS_SESSION_TOKEN"),
            )

        return Endpoint(given.rstrip("/"), environment, _tls(given, None))

    from aiobotocore.session import get_session
    from botocore.exceptions import BotoCoreError
    from botocore.utils import get_environ_proxies

    session = get_session()
    try:
        credentials = await session.get_credentials()
        if credentials is None:
            raise StoreUnusable(
                "there are no credentials for DynamoDB",
                "the environment, the files of AWS and the role of this machine have none",
                "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or attach a role",
            )
        url = given or await _url(session, region)
        bundle = session.get_config_variable("ca_bundle")
        tls = _tls(url, bundle)
    except (BotoCoreError, ValueError, OSError) as error:
        raise StoreUnusable(
            "the settings for AWS cannot be used", f"{type(error).__name__}: {error}", "check them: aws configure list"
        ) from error

    async def found() -> Keys:
        frozen = await credentials.get_frozen_credentials()  # new ones before the present ones expire
        return Keys(frozen.access_key, frozen.secret_key, frozen.token)

    return Endpoint(url.rstrip("/"), found, tls, get_environ_proxies(url).get(urlsplit(url).scheme))


async def _url(session: Any, region: str) -> str:
    """Return the URL that AWS names for a region, with the settings for FIPS, IPv6 and private endpoints applied."""
    async with session.create_client(SERVICE, region_name=region) as client:
        url: str = client.meta.endpoint_url
    return url


def _on_this_machine(endpoint: str) -> bool:
    host = urlsplit(endpoint).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _tls(url: str, bundle: str | None) -> ssl.SSLContext | None:
    if not url.startswith("https:"):
        return None
    if bundle is None:
        from botocore.httpsession import get_cert_path

        bundle = get_cert_path(True)
    return ssl.create_default_context(cafile=bundle)


class Signer:
    """Signatures of version 4 for one endpoint. The key of a day is kept."""

    def __init__(self, region: str, host: str) -> None:
        self._region = region
        self._host = host
        self._day = ("", "")
        self._day_key = b""

    def headers(self, operation: str, body: bytes, keys: Keys, at_s: float) -> dict[str, str]:
        """Return the headers of a request sent at `at_s` seconds since 1970."""
        at = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(at_s))
        day = at[:8]
        headers = {
            "content-type": CONTENT_TYPE,
            "host": self._host,
            "user-agent": "outlast",
            "x-amz-date": at,
            "x-amz-target": f"{TARGET}.{operation}",
        }
        names = "content-type;host;x-amz-date;x-amz-target"
        lines = f"content-type:{CONTENT_TYPE}\nhost:{self._host}\nx-amz-date:{at}\n"
        if keys.token is not None:
            headers["x-amz-security-token"] = keys.token
            names = "content-type;host;x-amz-date;x-amz-security-token;x-amz-target"
            lines += f"x-amz-security-token:{keys.token}\n"
        text = f"POST\n/\n\n{lines}x-amz-target:{TARGET}.{operation}\n\n{names}\n{hashlib.sha256(body).hexdigest()}"
        scope = f"{day}/{self._region}/{SERVICE}/aws4_request"
        signed = f"AWS4-HMAC-SHA256\n{at}\n{scope}\n{hashlib.sha256(text.encode()).hexdigest()}"
        signature = hmac.digest(self._key(day, keys.secret), signed.encode(), "sha256").hex()
        headers["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={keys.access}/{scope}, SignedHeaders={names}, Signature={signature}"
        )
        return headers

    def _key(self, day: str, secret: str) -> bytes:
        if self._day != (day, secret):
            key = f"AWS4{secret}".encode()
            for part in (day, self._region, SERVICE, "aws4_request"):
                key = hmac.digest(key, part.encode(), "sha256")
            self._day, self._day_key = (day, secret), key
        return self._day_key
