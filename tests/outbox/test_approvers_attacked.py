"""Messages to approvers under attack and after a crash: forbidden addresses, redirects, names that move, SIGKILL."""

import asyncio
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from outlast.core.addresses import PUBLIC, AddressPolicy
from outlast.core.commit import Commit, Put
from outlast.core.rows.columns import SECRET, WebhookSecret
from outlast.core.rows.outbox_rows import SUBSCRIPTION
from outlast.core.webhooks.approval_notices import NoticeText
from outlast.errors import InvalidInput
from outlast.outbox.channel_address import checked_channel
from outlast.upkeep.fsck import Fsck
from outlast.upkeep.whole_store import examine
from tests import forked
from tests.forked import ROOT
from tests.outbox.approvers import (
    ASKING,
    MailServer,
    approvers,
    channel,
    message,
    ntfy,
    pending,
    post,
    rows_of,
    until_told,
)
from tests.outbox.helpers import TENANT, Receiver, answer, dispatching, settled, until, working

SLACK = "T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ"
TEXT = NoticeText("Approval: Buy", "Buy waits.", "asked:ap_1")
PLACES = ("outbox.found", "outbox.delivery:before", "outbox.delivery:after", "store.batch:before", "store.batch:after")


@pytest.mark.req("OUT-2")
@pytest.mark.parametrize("place", PLACES)
def test_a_message_may_come_twice_and_is_never_lost_wherever_a_dispatcher_dies(place: str, url: str) -> None:
    def life(n: int) -> forked.Popen:
        return forked.Popen(["tests.outbox.child", url, place, str(n)], cwd=ROOT)

    async def live() -> None:
        async with approvers(url) as ops, Receiver(answer(200)).listening() as receiver:
            made = await ops.webhooks.notify(ntfy(receiver), role="finance")
            async with working(ops.store, ASKING):
                await ops.start_run("asking", {}, run_id="r")
                asked = (await pending(ops.store)).id
            assert await asyncio.to_thread(life(1).wait, 30) == -signal.SIGKILL, "it died at this very place"
            last = life(0)
            try:
                told = (f"delivered asked:{asked}", f"scheduled reminder:{asked}")
                await until_told(ops.store, made.webhook, *told)
                await until(lambda: settled_but_for_the_reminder(ops, made.webhook))
            finally:
                last.kill()
                await asyncio.to_thread(last.wait)
            assert len(receiver.got) == (2 if place == "outbox.delivery:after" else len(receiver.got)) <= 2
            assert {message(got)["message"].splitlines()[-1] for got in receiver.got} == {f"(asked:{asked})"}
            assert (await Fsck(ops.store).look()).findings == ()

    async def settled_but_for_the_reminder(ops: Any, webhook: str) -> bool:
        return bool((await ops.webhooks.get(webhook)).behind == 0)

    asyncio.run(live())


REFUSED = {
    "a file": "slack://TAAAAAAAA/BAAAAAAAA/CAAAAAAAAAAAAAAAAAAAAAAA?template=/etc/passwd",
    "a file of Teams": "workflows://prod.logic.azure.com:443/wf/sig?template=/etc/passwd",
    "a key file": "mailtos://u:p@smtp.example.com?to=a@b.example&pgp=encrypt&pgppub=/etc/passwd",
    "another URL": "ntfys://ntfy.sh/topic?attach=http://169.254.169.254/",
    "certificates unchecked": "ntfys://ntfy.sh/topic?verify=no",
    "redirects": "ntfys://ntfy.sh/topic?redirect=yes",
    "headers": "mailtos://u:p@smtp.example.com?to=a@b.example&+Bcc=c@d.example",
    "timeouts": "ntfys://ntfy.sh/topic?rto=9999",
    "unencrypted": "ntfy://ntfy.example.com/topic",
    "unencrypted mail": "mailto://smtp.example.com?from=a@b.example",
    "a port": "ntfys://ntfy.example.com:22/topic",
    "any other service": "json://example.com/",
    "a file service": "file:///etc/passwd",
    "any page": "https://example.com/hook",
    "a desktop": "dbus://",
    "no URL": "finance@corp.example",
    "spaces": "ntfys://ntfy.sh/a b",
    "a port with a letter": "ntfys://tk_SECRET@ntfy.corp.example:8443x/approvals",
    "a port of mail with a letter": "mailtos://u:p@smtp.example.com:2525x?from=a@b.example",
    "two ports": "ntfys://tk_SECRET@ntfy.corp.example:443:22/approvals",
    "port 0": "ntfys://ntfy.corp.example:0/approvals",
    "port 65536": "ntfys://ntfy.corp.example:65536/approvals",
    "an empty port": "ntfys://ntfy.corp.example:/approvals",
    "an @ in a password": "ntfys://ana:pa@ss@ntfy.corp.example/approvals",
    "a / in a password": "ntfys://ana:pa/ss@ntfy.corp.example/approvals",
    "a backslash": "ntfys://ntfy.sh\\@ntfy.corp.example/approvals",
    "no host": "ntfys:///approvals",
    "a host with an end": "ntfys://ntfy.corp.example./approvals",
    "a host of other letters": "ntfys://ntfy.c\u043erp.example/approvals",
    "no topic": "ntfys://ntfy.corp.example",
    "a topic as its host": "ntfys://approvals/",
    "the public server by a parameter": "ntfys://ntfy.corp.example/approvals?mode=cloud",
    "a parameter that is given twice": "ntfys://ntfy.corp.example/approvals?token=a&token=b",
    "a token that is no header": "ntfys://ntfy.corp.example/approvals?token=a%20b",
    "a token without one": "ntfys://ntfy.corp.example/approvals?auth=token",
    "a header in a name": "mailtos://u:p@smtp.example.com?from=a@b.example&name=x%0d%0aBcc:c@d.example",
    "a header in a sender": "mailtos://u:p@smtp.example.com?from=a@b.example%0d%0aBcc:c@d.example",
    "a header in a recipient": "mailtos://u:p@smtp.example.com?from=a@b.example&to=c@d.example%0aX:y",
    "a command in a password": "mailtos://u:p%0d%0aQUIT@smtp.example.com?from=a@b.example",
    "an invisible sign": "mailtos://u:p@smtp.example.com?from=a@b.example&name=%E2%80%AEnala",
    "a recipient that is none": "mailtos://u:p@smtp.example.com?from=a@b.example&to=finance",
    "two dots in a recipient": "mailtos://u:p@smtp.example.com?from=a@b.example&to=c..d@e.example",
    "no sender": "mailtos://smtp.example.com?to=a@b.example",
    "a server that is none": "mailtos://u:p@example.com?smtp=smtp.example.com:25",
    "a domain of mailboxes": "mailtos://u:p@gmail.com?to=a@b.example",
    "a mode of mail": "mailtos://u:p@smtp.example.com?from=a@b.example&mode=none",
    "a token of a bot": "slack://xoxb-1234-1234-4ddbc191d40ee098cbaae6f3523ada2d/finance",
    "a channel of Slack": f"slack://{SLACK}/finance",
    "a host that looks like Slack's": f"https://hooks.slack.com.evil.example/services/{SLACK}",
    "a user before Slack's host": f"https://hooks.slack.com@evil.example/services/{SLACK}",
    "another path of Slack": f"https://hooks.slack.com/services/{SLACK}/../../x",
    "no signature of Teams": "https://prod.logic.azure.com/workflows/643e69f8/triggers/manual/paths/invoke?sv=1.0",
}


@pytest.mark.req("OUT-6")
@pytest.mark.parametrize("name", REFUSED)
def test_an_address_that_reads_files_weakens_tls_or_leads_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="no address for messages") as refused:
        checked_channel(REFUSED[name], PUBLIC)
    assert REFUSED[name] not in str(refused.value)


@pytest.mark.parametrize(
    ("address", "shown", "url", "port"),
    [
        (f"https://hooks.slack.com/services/{SLACK}", "https://hooks.slack.com/…",
         f"https://hooks.slack.com/services/{SLACK}", 443),
        (f"slack://{SLACK}", "https://hooks.slack.com/…", f"https://hooks.slack.com/services/{SLACK}", 443),
        ("ntfys://ntfy.sh/topic", "ntfys://ntfy.sh/…", "https://ntfy.sh/", 443),
        ("ntfys://tk_secret@NTFY.corp.example:8443/topic", "ntfys://ntfy.corp.example:8443/…",
         "https://ntfy.corp.example:8443/", 8443),
        ("ntfys://[2606:4700::1]/topic", "ntfys://[2606:4700::1]/…", "https://[2606:4700::1]/", 443),
        ("mailtos://u%40b:p@smtp.example.com?from=a@b.example&to=c@d.example", "mailtos://smtp.example.com/…", "", 587),
        ("mailtos://u:p@smtp.example.com?mode=ssl&from=a@b.example", "mailtos://smtp.example.com/…", "", 465),
        ("mailtos://u:p@example.com?smtp=mail.example.com", "mailtos://mail.example.com/…", "", 587),
        (
            "https://prod-1.logic.azure.com:443/workflows/643e69f8/triggers/manual/paths/invoke"
            "?api-version=2016-06-01&sp=%2Ftriggers%2Fmanual%2Frun&sv=1.0&sig=abcdefgh",
            "https://prod-1.logic.azure.com:443/…",
            "https://prod-1.logic.azure.com:443/workflows/643e69f8/triggers/manual/paths/invoke"
            "?api-version=2016-06-01&sp=%2Ftriggers%2Fmanual%2Frun&sv=1.0&sig=abcdefgh", 443,
        ),
        (
            "workflows://prod-1.logic.azure.com/643e69f8/abcdefgh?pa=yes&route=41",
            "workflows://prod-1.logic.azure.com/…",
            "https://prod-1.logic.azure.com/powerautomate/automations/direct/cu/41/workflows/643e69f8/triggers/manual/"
            "paths/invoke?api-version=2022-03-01-preview&sp=%2Ftriggers%2Fmanual%2Frun&sv=1.0&sig=abcdefgh", 443,
        ),
    ],
)  # fmt: skip
def test_the_host_of_an_address_is_the_one_that_was_typed(address: str, shown: str, url: str, port: int) -> None:
    channel = checked_channel(address, PUBLIC)
    assert (channel.shown, channel.url, channel.port) == (shown, url, port)
    assert channel.host in shown


@pytest.mark.req("OUT-6")
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "10.0.0.1", "169.254.169.254", "[::1]", "2130706433"])
def test_an_internal_address_is_refused_when_it_is_added_and_when_it_is_sent_to(url: str, host: str) -> None:
    async def live() -> None:
        async with approvers(url) as ops:
            ops.webhooks.reach = PUBLIC
            with pytest.raises(InvalidInput):
                await ops.webhooks.notify(f"ntfys://{host}/topic", role="finance")
            for address in (f"ntfys://{host}/topic", f"mailtos://{host}?from=a@b.example"):
                sent = await post(address, TEXT, PUBLIC)
                assert sent.error.startswith("not sent") and "not an address on the internet" in sent.error, sent

    asyncio.run(live())


@pytest.mark.req("OUT-6")
@pytest.mark.parametrize(
    "address", ["ntfy://moving.example.com:{}/topic", "mailto://moving.example.com:{}?from=a@b.example"]
)
def test_a_name_that_moves_to_an_internal_address_is_not_connected_to(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name was public when it was checked; the check at the connection sees the address that is connected to."""
    real = socket.getaddrinfo

    def moved(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        return real("127.0.0.1" if host == "moving.example.com" else host, port, *args, **kwargs)

    async def live() -> None:
        async with Receiver(answer(200)).listening() as receiver, MailServer().listening() as server:
            monkeypatch.setattr(socket, "getaddrinfo", moved)
            reach = AddressPolicy(plain=True, any_port=True)
            port = server.port if address.startswith("mail") else receiver.port
            sent = await post(address.format(port), TEXT, reach)
            assert sent.error == "not sent: moving.example.com: 127.0.0.1 is not an address on the internet"
            assert receiver.got == [] and server.sessions == 0

    asyncio.run(live())


@pytest.mark.req("OUT-6")
def test_neither_a_redirect_nor_a_proxy_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def live() -> None:
        async with Receiver(answer(200)).listening() as other:
            away = answer(307, location=f"http://127.0.0.1:{other.port}/topic")
            async with Receiver(answer(200), script=[away]).listening() as receiver:
                assert "redirects are not followed" in (await post(ntfy(receiver), TEXT)).error
                receiver.script = [answer(307, location="/elsewhere")]
                assert (await post(ntfy(receiver), TEXT)).error and len(receiver.got) == 2, "nor to itself"
                for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
                    monkeypatch.setenv(name, f"http://127.0.0.1:{other.port}")
                assert not (await post(ntfy(receiver), TEXT)).error and len(receiver.got) == 3
            assert other.got == []

    asyncio.run(live())


@pytest.mark.req("OUT-6")
def test_the_logins_of_the_operator_go_to_no_channel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    netrc = tmp_path / ".netrc"
    netrc.write_text("machine 127.0.0.1 login op password operators\ndefault login op password operators\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HOME", str(tmp_path))

    async def live() -> None:
        async with Receiver(answer(200)).listening() as receiver, MailServer(login=True).listening() as server:
            assert not (await post(f"ntfy://127.0.0.1:{receiver.port}/approvals", TEXT)).error
            assert "authorization" not in receiver.got[0].headers
            assert not (await post(server.address, TEXT)).error and server.logins == []
            assert socket.getfqdn() not in server.greeting and socket.gethostname() not in server.greeting

    asyncio.run(live())


@pytest.mark.parametrize(
    ("login", "header"),
    [
        ("ana:p%40ss@", "Basic YW5hOnBAc3M="),
        ("tk_secret@", "Bearer tk_secret"),
        (":tk_secret@", "Basic OnRrX3NlY3JldA=="),
        ("", None),
    ],
)
def test_an_address_of_ntfy_signs_in_as_it_says(login: str, header: str | None) -> None:
    async def live() -> None:
        async with Receiver(answer(200)).listening() as receiver:
            address = f"ntfy://{login}127.0.0.1:{receiver.port}/one/two?priority=high&tags=a,b"
            assert not (await post(address, TEXT)).error
            assert [message(got)["topic"] for got in receiver.got] == ["one", "two"]
            for got in receiver.got:
                assert got.line == "POST / HTTP/1.1" and got.headers.get("authorization") == header
                assert message(got) == {
                    "topic": message(got)["topic"], "title": TEXT.title, "message": TEXT.body, "tags": ["a", "b"],
                    "priority": 4,
                }  # fmt: skip

    asyncio.run(live())


def test_of_several_topics_the_refusal_of_one_is_reported() -> None:
    async def live() -> None:
        async with Receiver(answer(200), script=[answer(200), answer(403, b"forbidden")]).listening() as receiver:
            attempt = await post(f"ntfy://127.0.0.1:{receiver.port}/one/two/three", TEXT)
            assert (attempt.code, attempt.definite, attempt.error) == (403, True, "answered 403: forbidden")
            assert len(receiver.got) == 3

    asyncio.run(live())


def test_a_message_that_is_too_long_for_ntfy_keeps_its_beginning_and_its_key() -> None:
    async def live() -> None:
        async with Receiver(answer(200)).listening() as receiver:
            parts = [f"{n} " + 400 * "\u4e2d" for n in range(5)]
            await post(f"ntfy://127.0.0.1:{receiver.port}/t", TEXT._replace(body="\n\n".join([*parts, "(asked:ap_1)"])))
            said = message(receiver.got[0])["message"]
            assert said.split("\n\n") == [*parts[:3], "…", "(asked:ap_1)"] and len(said.encode()) <= 4_096

    asyncio.run(live())


def test_a_receiver_that_hangs_delays_no_other_subscription() -> None:
    async def silent(*_: object) -> None:
        await asyncio.Event().wait()

    async def live() -> None:
        async with Receiver(silent).listening() as receiver, MailServer().listening() as mail:
            async with channel(timeout_ms=300) as hung:
                results = await asyncio.gather(*(hung.post(ntfy(receiver), TEXT) for _ in range(6)))
                assert {each.error for each in results} == {"no answer within 0.3 s"}
            assert not (await post(mail.address, TEXT)).error
            receiver.cut()

    asyncio.run(live())


def test_a_stored_address_that_is_refused_now_is_named_when_the_dispatcher_starts(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def live() -> None:
        async with approvers(url) as ops, Receiver(answer(200)).listening() as receiver:
            made = await ops.webhooks.notify(ntfy(receiver), role="finance", kinds=["asked"])
            fine = await ops.webhooks.notify(ntfy(receiver), role="finance", kinds=["asked"])
            row = await ops.store.load(SUBSCRIPTION, (TENANT, made.webhook))
            assert row is not None
            secret = SECRET.encode(WebhookSecret("ntfys://hidden-topic", ()))
            older = row._replace(version=row.version + 1, url="ntfys://…", secret_text=secret)
            await ops.store.commit(Commit((Put(SUBSCRIPTION, older, row.version),)))
            async with working(ops.store, ASKING), dispatching(ops.store):
                await ops.start_run("asking", {}, run_id="r")
                asked = (await pending(ops.store)).id
                await until_told(ops.store, made.webhook, f"owed asked:{asked}")
                await until_told(ops.store, fine.webhook, f"delivered asked:{asked}")
            (said,) = [each.getMessage() for each in caplog.records if "sends no message" in each.getMessage()]
            assert made.webhook in said and fine.webhook not in said and "hidden" not in said
            (found,) = [each for each in await examine(ops) if "sends no message" in each.found]
            assert made.webhook in found.found and "a topic" in found.fix
            (failed,) = await rows_of(ops.store, made.webhook)
            assert failed.error.startswith("not sent") and len(receiver.got) == 1

    asyncio.run(live())


@pytest.mark.req("GATE-2")
def test_a_subscription_that_is_removed_forgets_its_address(url: str) -> None:
    async def live() -> None:
        async with approvers(url) as ops, Receiver(answer(200)).listening() as receiver:
            made = await ops.webhooks.notify(ntfy(receiver), role="finance")
            await ops.webhooks.disable(made.webhook, reason="quiet")
            await ops.webhooks.enable(made.webhook)
            await ops.webhooks.remove(made.webhook)
            assert await settled(ops, made.webhook) and await rows_of(ops.store, made.webhook) == []

    asyncio.run(live())
