"""Client of messages to approvers: Slack, Teams and ntfy by the HTTP client of webhooks, mail by aiosmtplib.

Each connection goes to a checked address of the host that was typed. Proxies, `.netrc` and redirects are not used
(S20 to S22). An attempt has one deadline and reads a bounded answer.
"""

import asyncio
import contextlib
import json
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import format_datetime, make_msgid
from importlib import import_module
from typing import Any, Final

import httpx2

from outlast.core.addresses import AddressPolicy, NotAllowed
from outlast.core.clock_port import Clock
from outlast.core.durations import DELIVERY_TIMEOUT, SECOND
from outlast.core.limits import ANSWER_CHARS_MAX
from outlast.core.webhooks.approval_notices import NoticeText
from outlast.core.webhooks.deliveries import LATER, Attempt
from outlast.errors import InvalidInput
from outlast.outbox.address import Resolver, checked_addresses
from outlast.outbox.channel_address import Channel, Mail, checked_channel
from outlast.outbox.delivery_client import DeliveryClient

NTFY_BYTES_MAX: Final = 4_096  # of a message; a server makes a file of a longer one
REASON_CHARS: Final = 100  # of an answer, in the error
QUIT_S: Final = 1.0  # for the farewell, after a mail was accepted
_LINK: Final = re.compile(r"https?://\S+")
_JSON: Final = {"content-type": "application/json; charset=utf-8"}


class ChannelClient:
    """Sends messages of one subscription."""

    def __init__(
        self,
        reach: AddressPolicy,
        resolve: Resolver,
        clock: Clock,
        *,
        timeout_ms: int = DELIVERY_TIMEOUT,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        """`timeout_ms`: for one request or mail. `ended`: called after the connections are closed."""
        self._reach = reach
        self._resolve = resolve
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._tls = httpx2.create_ssl_context()
        self._http = DeliveryClient(reach, resolve, clock, tls=self._tls, timeout_ms=timeout_ms, ended=ended)

    async def close(self) -> None:
        """Close the connections and call `ended`."""
        await self._http.close()

    async def post(self, address: str, text: NoticeText) -> Attempt:
        """Send a message and return the result. Never raises for errors of the receiver.

        A message that is not accepted in time may still arrive.
        """
        started = self._clock.mono()
        try:
            channel = checked_channel(address, self._reach)
        except InvalidInput as error:
            return Attempt(0, "", f"not sent: {error.what}: {error.why}", 0)
        if channel.mail is not None:
            attempt = await self._mail(channel, channel.mail, text)
        else:
            attempt = await self._requests(channel, text)
        return attempt._replace(took_ms=self._clock.mono() - started)

    # --- HTTP ---------------------------------------------------------------------------------
    async def _requests(self, channel: Channel, text: NoticeText) -> Attempt:
        """Send one request for each recipient. Return the first failure, or else the last answer."""
        attempts = []
        for body in _bodies(channel, text, self._clock.wall()):
            attempt = await self._http.post(channel.url, {**_JSON, **dict(channel.headers)}, body)
            attempts.append(_understood(channel, attempt))
        return next((each for each in attempts if each.error), attempts[-1])

    # --- mail ---------------------------------------------------------------------------------
    async def _mail(self, channel: Channel, mail: Mail, text: NoticeText) -> Attempt:
        smtp = import_module("aiosmtplib")
        try:
            async with asyncio.timeout(self._timeout_ms / SECOND):
                addresses = await checked_addresses(channel.host, channel.port, self._resolve, self._reach)
                client = await self._connected(smtp, channel, mail, addresses)
                try:
                    message = _message(mail, text, self._clock.wall())
                    refused, _ = await client.send_message(message, sender=mail.sender[1], recipients=_recipients(mail))
                except BaseException:  # a cancellation, too, must not leave the connection open
                    client.close()
                    raise
            await _farewell(client)
            return _answered([(each.code, each.message) for each in refused.values()])
        except TimeoutError:
            return Attempt(0, "", f"not accepted within {self._timeout_ms / SECOND:g} s", 0)
        except NotAllowed as error:
            return Attempt(0, "", f"not sent: {error}", 0)
        except smtp.SMTPRecipientsRefused as error:
            return _answered([(each.code, each.message) for each in error.recipients])
        except smtp.SMTPResponseException as error:
            return _answered([(error.code, error.message)])
        except (smtp.SMTPException, OSError, ValueError) as error:
            return Attempt(0, "", f"{type(error).__name__}: {error}"[:ANSWER_CHARS_MAX], 0)

    async def _connected(self, smtp: Any, channel: Channel, mail: Mail, addresses: tuple[str, ...]) -> Any:
        """Return a client that is connected to the first address that accepts, and signed in."""
        sock = await _connection(addresses, channel.port)
        host = sock.getsockname()[0]
        client = smtp.SMTP(
            hostname=channel.host,
            sock=sock,
            local_hostname=f"[IPv6:{host}]" if ":" in host else f"[{host}]",  # the machine's name is no one's business
            username=mail.user or None,
            password=mail.password if mail.user else None,
            use_tls=mail.mode == "ssl",
            start_tls=mail.mode == "starttls",  # False: not even if it is offered; True: not without
            tls_context=None if mail.mode == "insecure" else self._tls,
            timeout=self._timeout_ms / SECOND,
        )
        try:
            await client.connect()
        except BaseException:  # a cancellation, too, must not leave the socket open
            client.close()
            sock.close()
            raise
        return client


async def _connection(addresses: tuple[str, ...], port: int) -> socket.socket:
    """Return a socket that is connected to the first of these addresses that accepts. Raises OSError."""
    for n, address in enumerate(addresses, 1):
        sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, (address, port))
        except BaseException as error:  # a cancellation, too, must not leave the socket open
            sock.close()
            if not isinstance(error, OSError) or n == len(addresses):
                raise
        else:
            return sock
    raise AssertionError("unreachable: a host without an address is an error")


async def _farewell(client: Any) -> None:
    """End a session whose mail was accepted. The server's reply changes nothing."""
    with contextlib.suppress(Exception):
        async with asyncio.timeout(QUIT_S):
            await client.quit()
    client.close()


def _recipients(mail: Mail) -> list[str]:
    return list(dict.fromkeys((*mail.to, *mail.cc, *mail.bcc)))


def _message(mail: Mail, text: NoticeText, wall: int) -> EmailMessage:
    """Return a mail of plain text, whose header has the key of the message."""
    message = EmailMessage()
    name, sender = mail.sender
    message["Subject"] = text.title
    message["From"] = Address(display_name=name, addr_spec=sender)
    for header, addresses in (("To", mail.to), ("Cc", mail.cc), ("Reply-To", mail.reply)):
        if addresses:
            message[header] = [Address(addr_spec=each) for each in addresses]
    message["Date"] = format_datetime(datetime.fromtimestamp(wall / SECOND, UTC))
    message["Message-ID"] = make_msgid(domain=sender.rpartition("@")[2])
    message["X-Outlast-Notification"] = text.key
    message.set_content(text.body)
    return message


def _answered(refusals: Sequence[tuple[int, str]]) -> Attempt:
    """Return the outcome of a mail from the answers that refused it or a recipient of it."""
    if not refusals:
        return Attempt(250, "", "", 0)
    code, text = refusals[0]
    answer = text.replace("\0", "\ufffd")[:ANSWER_CHARS_MAX]
    reason = " ".join(answer.split())[:REASON_CHARS]
    later = any(400 <= each < 500 for each, _ in refusals)
    error = f"answered {code}" + (f": {reason}" if reason else "")
    return Attempt(code, answer, error, 0, retry_after_ms=LATER if later else 0, definite=not later and code >= 500)


# --- HTTP -------------------------------------------------------------------------------------
def _bodies(channel: Channel, text: NoticeText, wall: int) -> Iterator[bytes]:
    """Yield the body of each request."""
    if channel.service == "ntfy":
        message = _fitting(text.body)
        for topic in channel.topics:
            yield _written({"topic": topic, "title": text.title, "message": message, **dict(channel.options)})
    elif channel.service == "teams":
        yield _written(_card(text))
    elif "/services/" in channel.url:
        title, body = _escaped(text.title), _escaped(text.body)
        attachment = {"title": title, "text": body, "color": "#3AA3E3", "footer": "Outlast", "ts": wall / SECOND}
        yield _written({"mrkdwn": False, "attachments": [attachment]})
    else:  # a workflow of Slack receives a variable
        yield _written({"text": f"{text.title}: {text.body}"})


def _written(payload: dict[str, object]) -> bytes:
    return json.dumps(payload, ensure_ascii=False).encode()


def _escaped(text: str) -> str:
    """Return a text as Slack shows it: these signs would begin links, mentions and entities."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _card(text: NoticeText) -> dict[str, object]:
    """Return an Adaptive Card. Its text is Markdown, where a bare URL is no link.

    Every URL in a body leads to a page of Outlast, because `inert_text` breaks others.
    """
    body = _LINK.sub(lambda found: f"[{found[0]}]({found[0].replace('(', '%28').replace(')', '%29')})", text.body)
    title = {"type": "TextBlock", "text": text.title, "style": "heading", "weight": "Bolder", "size": "Large"}
    content = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [
            {**title, "id": "title"},
            {"type": "TextBlock", "text": body, "style": "default", "wrap": True, "id": "body"},
        ],
        "msteams": {"width": "full"},
    }
    card = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": content}
    return {"type": "message", "attachments": [card]}


def _fitting(body: str) -> str:
    """Return a body that ntfy takes as a message: later paragraphs are left out; the last one, the key, stays."""
    *parts, key = body.split("\n\n")
    left = len(parts)
    while left > 1 and len("\n\n".join([*parts[:left], "…", key]).encode()) > NTFY_BYTES_MAX:
        left -= 1
    return body if left == len(parts) else "\n\n".join([*parts[:left], "…", key])


def _understood(channel: Channel, attempt: Attempt) -> Attempt:
    """Return the outcome with the reason that the service gives. A page in place of its answer is no acceptance."""
    error, text = attempt.error, attempt.answer.strip()
    hook = channel.service == "slack" and "/services/" in channel.url
    if not error and (text.startswith("<") or (hook and text != "ok")):
        error = f"answered {attempt.code}, but not as {channel.host} does"
    if error and attempt.code and (reason := " ".join(text.split())[:REASON_CHARS]):
        error += f": {reason}"
    return attempt._replace(error=error[:ANSWER_CHARS_MAX], gone=False)
