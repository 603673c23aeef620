"""Messages to approvers under attack and after a crash: forbidden addresses, redirects, names that move, SIGKILL."""

import asyncio
import signal
import socket
from typing import Any

import pytest

from outlast.core.addresses import PUBLIC, AddressPolicy
from outlast.core.approval_notices import NoticeText
from outlast.errors import InvalidInput
from outlast.outbox import apprise_client
from outlast.outbox.apprise_client import AppriseClient, checked_target
from outlast.runtime.clocks import SystemClock
from outlast.runtime.fsck import Fsck
from tests import forked
from tests.forked import ROOT
from tests.outbox.approvers import ASKING, MailServer, approvers, message, ntfy, pending, rows_of, until_told
from tests.outbox.helpers import DEVELOPMENT, Receiver, answer, settled, until, working

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
}


@pytest.mark.req("OUT-6")
@pytest.mark.parametrize("name", REFUSED)
def test_an_address_that_reads_files_weakens_tls_or_leads_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="no address for messages") as refused:
        checked_target(REFUSED[name], PUBLIC)
    assert REFUSED[name] not in str(refused.value)


@pytest.mark.parametrize(
    ("address", "scheme", "hosts", "port"),
    [
        (f"https://hooks.slack.com/services/{SLACK}", "slack", "hooks.slack.com", 443),
        (f"slack://{SLACK}/#finance", "slack", "hooks.slack.com", 443),
        ("ntfys://ntfy.sh/topic", "ntfys", "ntfy.sh", 443),
        ("mailtos://u%40b:p@smtp.example.com?from=a@b.example&to=c@d.example", "mailtos", "smtp.example.com", 587),
        ("mailtos://u:p@smtp.example.com?mode=ssl&from=a@b.example", "mailtos", "smtp.example.com", 465),
        (
            "https://prod-1.logic.azure.com:443/workflows/643e69f8/triggers/manual/paths/invoke"
            "?api-version=2016-06-01&sp=%2Ftriggers%2Fmanual%2Frun&sv=1.0&sig=abcdefgh",
            "workflow", "prod-1.logic.azure.com", 443,
        ),
    ],
)  # fmt: skip
def test_addresses_of_the_four_services_are_read(address: str, scheme: str, hosts: str, port: int) -> None:
    target = checked_target(address, PUBLIC)
    assert (target.scheme, target.port, target.shown) == (scheme, port, f"{scheme}://…")
    assert hosts in target.hosts
    assert target.plugin.redirects is False and target.plugin.verify_certificate is True


@pytest.mark.req("OUT-6")
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "10.0.0.1", "169.254.169.254", "[::1]", "2130706433"])
def test_an_internal_address_is_refused_when_it_is_added_and_when_it_is_sent_to(url: str, host: str) -> None:
    async def live() -> None:
        async with approvers(url) as ops:
            ops.webhooks.reach = PUBLIC
            with pytest.raises(InvalidInput):
                await ops.webhooks.notify(f"ntfys://{host}/topic", role="finance")
            sent = await AppriseClient(PUBLIC, SystemClock()).post(f"ntfys://{host}/topic", TEXT)
            assert sent.error.startswith("not sent"), sent

    asyncio.run(live())


@pytest.mark.req("OUT-6")
def test_a_name_that_moves_to_an_internal_address_is_not_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name was public when it was checked; the check at the connection sees the address that is connected to."""
    real = getattr(socket.getaddrinfo, "__wrapped__", socket.getaddrinfo)  # without the guard

    def moved(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        return real("127.0.0.1" if host == "ntfy.example.com" else host, port, *args, **kwargs)

    async def live() -> None:
        async with Receiver(answer(200)).listening() as receiver:
            monkeypatch.setattr(socket, "getaddrinfo", moved)
            reach = AddressPolicy(plain=True, any_port=True)
            client = AppriseClient(reach, SystemClock())
            sent = await client.post(f"ntfy://ntfy.example.com:{receiver.port}/topic", TEXT)
            assert sent.error == "not sent: ntfy.example.com: 127.0.0.1 is not an address on the internet"
            assert receiver.got == []

    asyncio.run(live())


@pytest.mark.req("OUT-6")
def test_neither_a_redirect_nor_a_proxy_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def live() -> None:
        async with Receiver(answer(200)).listening() as other:
            away = answer(307, location=f"http://127.0.0.1:{other.port}/topic")
            async with Receiver(away).listening() as receiver:
                client = AppriseClient(DEVELOPMENT, SystemClock())
                assert (await client.post(ntfy(receiver), TEXT)).error
                assert len(receiver.got) == 1
                receiver.script = [answer(307, location="/elsewhere")]
                assert (await client.post(ntfy(receiver), TEXT)).error and len(receiver.got) == 2, "nor to itself"
                for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
                    monkeypatch.setenv(name, f"http://127.0.0.1:{other.port}")
                sent = await client.post(ntfy(receiver), TEXT)
                assert "proxies are not followed" in sent.error
            assert other.got == []

    asyncio.run(live())


def test_other_threads_resolve_names_as_before() -> None:
    apprise_client._guard_names()
    guarded = socket.getaddrinfo
    apprise_client._guard_names()
    assert socket.getaddrinfo is guarded, "once for a process"
    assert socket.getaddrinfo("127.0.0.1", 1)


def test_a_receiver_that_hangs_takes_only_the_threads_of_its_subscription(monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(*_: object) -> None:
        await asyncio.Event().wait()

    async def live() -> None:
        async with Receiver(silent).listening() as receiver, MailServer().listening() as mail:
            hung = AppriseClient(DEVELOPMENT, SystemClock(), timeout_ms=300)
            results = await asyncio.gather(*(hung.post(ntfy(receiver), TEXT) for _ in range(6)))
            assert {each.error for each in results} == {"not accepted within 0.3 s"}
            assert len(receiver.got) <= apprise_client.THREADS
            other = AppriseClient(DEVELOPMENT, SystemClock())
            assert not (await other.post(mail.address, TEXT)).error
            receiver.cut()

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
