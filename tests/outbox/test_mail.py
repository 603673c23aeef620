"""Mail to approvers: servers that encrypt, refuse, stall and lie; and one transaction for each message."""

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from outlast.core.addresses import AddressPolicy
from outlast.core.webhooks.approval_notices import NoticeText
from outlast.core.webhooks.deliveries import LATER
from outlast.outbox import channel_client
from tests.outbox.approvers import MailServer, post
from tests.outbox.authority import Authority

pytestmark = pytest.mark.req("OUT-2")

HOST = "smtp.example.com"
TEXT = NoticeText("Approval: Buy café", "Buy café waits.\nhttps://outlast.example.com/ui/approvals/ap_1", "asked:ap_1")
LOCAL = AddressPolicy.of(private=True)
"""This machine at any port, encrypted only."""


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    """Return an authority that clients trust; HOST is this machine."""
    made, real = Authority(tmp_path), socket.getaddrinfo

    def resolve(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        return real("127.0.0.1" if host == HOST else host, port, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setenv("SSL_CERT_FILE", str(made.bundle()))
    return made


def test_a_login_and_a_mail_are_sent_over_tls_that_is_started(authority: Authority) -> None:
    async def live() -> None:
        async with MailServer(login=True, tls=authority.serving(HOST)).listening() as server:
            address = f"mailtos://ana%40b:p%40ss@{HOST}:{server.port}?from=outlast@example.com&to=finance@example.com"
            attempt = await post(address, TEXT, LOCAL)
            assert (attempt.code, attempt.error) == (250, "")
        assert server.encrypted == [True] and server.logins == ["AUTH PLAIN AGFuYUBiAHBAc3M="]
        (mail,) = server.mails
        assert (mail["Subject"], mail["From"], mail["To"]) == (
            TEXT.title, "Outlast <outlast@example.com>", "finance@example.com",
        )  # fmt: skip
        assert mail["X-Outlast-Notification"] == "asked:ap_1" and mail["Date"] and mail["Message-ID"]
        assert mail.get_content_type() == "text/plain" and mail.get_content().splitlines() == TEXT.body.splitlines()

    asyncio.run(live())


def test_a_mail_is_sent_over_tls_from_the_beginning(authority: Authority) -> None:
    async def live() -> None:
        async with MailServer().listening(authority.serving(HOST)) as server:
            address = f"mailtos://{HOST}:{server.port}?mode=ssl&from=outlast@example.com"
            assert not (await post(address, TEXT, LOCAL)).error
        assert server.encrypted == [True] and server.recipients == ["outlast@example.com"]

    asyncio.run(live())


@pytest.mark.req("OUT-6")
@pytest.mark.parametrize("mode", ["starttls", "ssl"])
def test_a_certificate_for_another_name_gets_no_login(mode: str, authority: Authority) -> None:
    async def live() -> None:
        tls = authority.serving("evil.example")
        server = MailServer(login=True, tls=tls if mode == "starttls" else None)
        async with server.listening(tls if mode == "ssl" else None):
            address = f"mailtos://ana:secret@{HOST}:{server.port}?mode={mode}&from=a@b.example"
            attempt = await post(address, TEXT, LOCAL)
            assert "CERTIFICATE_VERIFY_FAILED" in attempt.error and not attempt.definite
        assert server.logins == [] and server.mails == []

    asyncio.run(live())


@pytest.mark.req("OUT-6")
def test_a_server_that_does_not_start_tls_gets_no_login(authority: Authority) -> None:
    async def live() -> None:
        stripped = MailServer(login=True)
        refusing = MailServer(login=True, tls=authority.serving(HOST), replies={"STARTTLS": ["454 not now"]})
        for server in (stripped, refusing):
            async with server.listening():
                address = f"mailtos://ana:secret@{HOST}:{server.port}?from=a@b.example"
                attempt = await post(address, TEXT, LOCAL)
                assert attempt.error and not attempt.definite
            assert server.logins == [] and server.mails == [] and server.sessions == 1

    asyncio.run(live())


def test_replies_that_arrive_before_tls_are_not_read_as_part_of_it(authority: Authority) -> None:
    async def live() -> None:
        injected = {"STARTTLS": ["220 go on\r\n250-AUTH PLAIN\r\n250 evil"]}
        async with MailServer(tls=authority.serving(HOST), replies=injected).listening() as server:
            address = f"mailtos://ana:secret@{HOST}:{server.port}?from=a@b.example"
            attempt = await post(address, TEXT, LOCAL, timeout_ms=2_000)
            assert attempt.error and server.logins == [] and server.mails == []

    asyncio.run(live())


CASES: dict[str, tuple[dict[str, list[str]], int, bool, bool]] = {
    "a full mailbox": ({"RCPT": ["452 mailbox full"]}, 452, False, True),
    "a grey list": ({"RCPT": ["450-come\r\n450 later"]}, 450, False, True),
    "too many mails": ({".": ["421 slow down"]}, 421, False, True),
    "too many sessions": ({"": ["421 too many connections"]}, 421, False, True),
    "an unknown mailbox": ({"RCPT": ["550 no such user"]}, 550, True, False),
    "a sender that may not": ({"MAIL": ["553 not yours"]}, 553, True, False),
    "a text that is refused": ({".": ["554 spam"]}, 554, True, False),
    "no service": ({"": ["554 no SMTP here"]}, 554, True, False),
    "an end in the middle": ({"DATA": ["CLOSE"]}, 0, False, False),
    "an end after the mail": ({".": ["CLOSE"]}, 0, False, False),
    "no greeting": ({"": ["CLOSE"]}, 0, False, False),
    "a page": ({"": ["HTTP/1.1 400 Bad Request"]}, -1, True, False),
}


@pytest.mark.parametrize("name", CASES)
def test_a_server_that_says_later_is_told_from_one_that_refuses(name: str) -> None:
    async def live() -> None:
        replies, code, definite, later = CASES[name]
        async with MailServer(replies=dict(replies)).listening() as server:
            attempt = await post(server.address, TEXT)
            assert attempt.error and not attempt.gone
            if code >= 0:
                assert (attempt.code, attempt.definite) == (code, definite)
            assert attempt.retry_after_ms == (LATER if later else 0)
            assert not (await post(server.address, TEXT)).error and len(server.mails) == 1

    asyncio.run(live())


def test_a_server_that_is_silent_costs_the_attempt_and_no_more() -> None:
    async def live() -> None:
        for silent in ("", "EHLO", "MAIL", "RCPT", "DATA", "."):
            async with MailServer(replies={silent: ["HANG"]}).listening() as server:
                attempt = await post(server.address, TEXT, timeout_ms=300)
                assert (attempt.code, attempt.definite) == (0, False)
                assert attempt.error == "not accepted within 0.3 s", silent

    asyncio.run(live())


def test_what_a_server_says_to_the_farewell_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_client, "QUIT_S", 0.2)

    async def live() -> None:
        for said in ("HANG", "CLOSE", "500 no"):
            async with MailServer(replies={"QUIT": [said]}).listening() as server:
                assert not (await post(server.address, TEXT)).error, said
                assert len(server.mails) == 1

    asyncio.run(live())


def test_all_recipients_are_in_one_mail_and_a_refusal_of_one_is_reported() -> None:
    async def live() -> None:
        async with MailServer().listening() as server:
            address = (
                f"mailto://127.0.0.1:{server.port}/ana@a.example/?from=o@a.example&to=bob@a.example,eve@a.example"
                "&cc=cc@a.example&bcc=bcc@a.example&reply=reply@a.example&name=Finance%20%22desk%22"
            )
            server.replies["RCPT"] = ["250 ok", "550 no such user"]
            attempt = await post(address, TEXT)
            assert (attempt.code, attempt.definite) == (550, True) and "no such user" in attempt.error
            assert server.recipients == [f"{each}@a.example" for each in ("ana", "bob", "eve", "cc", "bcc")]
            (mail,) = server.mails
            assert mail["To"] == "ana@a.example, bob@a.example, eve@a.example" and mail["Bcc"] is None
            assert (mail["Cc"], mail["Reply-To"]) == ("cc@a.example", "reply@a.example")
            assert mail["From"] == '"Finance \\"desk\\"" <o@a.example>'

    asyncio.run(live())


def test_an_endless_reply_is_not_read_to_its_end() -> None:
    async def live() -> None:
        async with MailServer(replies={"": ["220-" + "x" * 70_000]}).listening() as server:
            attempt = await post(server.address, TEXT)
            assert attempt.error and len(attempt.error) <= 1_000 and len(attempt.answer) <= 1_000

    asyncio.run(live())
