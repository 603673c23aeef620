"""Nothing is sent inside the network, however an address is written and whenever a name changes its mind (S20-S22)."""

import asyncio
import threading
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path

import pytest

from outlast.clocks import SystemClock
from outlast.core.addresses import PUBLIC, AddressPolicy, NotAllowed, refusal
from outlast.core.machine import SubscriptionStatus
from outlast.errors import InvalidInput
from outlast.outbox.address import SystemResolver, checked_addresses, checked_url
from outlast.outbox.delivery_client import DeliveryClient
from outlast.runtime.webhooks import Webhooks
from tests.outbox.helpers import DEVELOPMENT, TENANT, Receiver, a_store, until, url_of

INSIDE = [
    "127.0.0.1", "127.8.8.8", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.169.254",
    "192.0.0.192", "224.0.0.1", "255.255.255.255", "240.0.0.1", "192.0.2.1", "198.18.0.1", "198.51.100.1",
    "203.0.113.1", "192.88.99.1", "::1", "::", "fe80::1", "fec0::1", "fc00::1", "fd00:ec2::254", "ff02::1",
    "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:224.0.0.1", "::ffff:192.0.0.192",
    "64:ff9b::e000:1", "2002:e000:1::", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1", "2002:7f00:1::", "2002:a00:1::", "::127.0.0.1", "::ffff:0:127.0.0.1", "2001:0:1::1",
    "2001:20::1", "2001:db8::1", "100::1", "3fff::1", "5f00::1", "8000::1",
]  # fmt: skip
OUTSIDE = ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "2001:4860:4860::8888", "64:ff9b::808:808", "::ffff:8.8.8.8"]
WRITTEN_OTHERWISE = [
    "127.0.0.1", "127.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "017700000001", "0", "localhost",
    "localhost.", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "169.254.169.254",
    "①②⑦.⓪.⓪.①", "127。0。0。1",
]  # fmt: skip


def test_the_settings_that_a_receiver_on_this_machine_needs_are_both_named() -> None:
    """The documentation named only one of the two settings."""
    wanted = {
        "webhooks.allow_http": AddressPolicy.of(private=True),
        "webhooks.allow_private": AddressPolicy.of(plain=True),
    }
    for name, reach in wanted.items():
        with pytest.raises(InvalidInput) as refused:
            checked_url("http://localhost:8000/hooks", reach)
        assert [name in problem for _, problem in refused.value.problems] == [True]
    assert checked_url("http://localhost:8000/hooks", AddressPolicy.of(private=True, plain=True)).port == 8000


def resolving(*answers: Sequence[str]) -> "Fake":
    """Return a resolver that gives these answers in order, then repeats the last."""
    return Fake(list(answers))


class Fake:
    """A name server controlled by the test."""

    def __init__(self, answers: list[Sequence[str]]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.mark.req("OUT-6")
@pytest.mark.parametrize("text", INSIDE)
def test_an_address_inside_is_refused(text: str) -> None:
    assert refusal(ip_address(text), PUBLIC)


@pytest.mark.req("OUT-6")
@pytest.mark.parametrize("text", OUTSIDE)
def test_an_address_outside_is_allowed(text: str) -> None:
    assert not refusal(ip_address(text), PUBLIC)


@pytest.mark.req("OUT-6")
def test_networks_that_an_operator_allows() -> None:
    reach = AddressPolicy.of(networks=["10.1.0.0/16"])
    assert not refusal(ip_address("10.1.2.3"), reach) and refusal(ip_address("10.2.0.1"), reach)
    assert not refusal(ip_address("127.0.0.1"), DEVELOPMENT)
    assert refusal(ip_address("169.254.169.254"), DEVELOPMENT), "where clouds keep secrets, never by this word"
    with pytest.raises(InvalidInput):
        AddressPolicy.of(networks=["10.1.0.0/99"])


@pytest.mark.req("OUT-6")
@pytest.mark.parametrize("host", WRITTEN_OTHERWISE)
def test_every_way_to_write_this_machine_is_refused_at_registration(host: str, tmp_path: Path) -> None:
    """Uses the system's resolver, which accepts every notation."""

    async def live() -> None:
        async with a_store(url_of(tmp_path)) as ops:
            ops.webhooks.reach = PUBLIC
            with pytest.raises(InvalidInput):
                await ops.webhooks.add(f"https://{host}/")
            assert not await ops.webhooks.list()

    asyncio.run(live())


@pytest.mark.req("OUT-6")
@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/", "http://example.com:443/", "ftp://example.com/", "https://me:secret@example.com/", "https://example.com:22/",
        "https:///x", "//example.com/", "file:///etc/passwd", "https://example.com/#part", "https://example.com:0/",
        "https://exa mple.com/", "https://example.com/\n", "gopher://example.com/", "", "https://" + "a" * 3_000,
        "https://example.com/\u202etxt", "https://example.com/\u00a0",
    ],
)  # fmt: skip
def test_the_form_of_a_url(url: str) -> None:
    with pytest.raises(InvalidInput):
        checked_url(url, PUBLIC)
    assert checked_url("https://example.com/hooks?x=1", PUBLIC).host == "example.com"


@pytest.mark.req("OUT-6")
@pytest.mark.parametrize("url", ["ftp://example.com:443/", "file://example.com:443/", "ws://example.com:443/"])
def test_nothing_but_http_is_spoken_whatever_else_is_allowed(url: str) -> None:
    for reach in (PUBLIC, DEVELOPMENT):
        with pytest.raises(InvalidInput, match="name a host"):
            checked_url(url, reach)


@pytest.mark.req("OUT-6")
def test_plain_http_and_its_ports_have_their_own_setting() -> None:
    plain, inside = AddressPolicy.of(plain=True), AddressPolicy.of(networks=["10.0.0.0/8"])
    for url in ("http://example.com/", "http://example.com:8080/", "https://example.com:8443/"):
        assert checked_url(url, plain).host == "example.com"
    for url, reach in (("http://example.com:22/", plain), ("http://example.com:443/", inside),
                       ("https://example.com:8080/", inside), ("https://example.com:8080/", PUBLIC)):  # fmt: skip
        with pytest.raises(InvalidInput):
            checked_url(url, reach)


@pytest.mark.req("OUT-6")
def test_one_address_inside_among_several_refuses_the_name() -> None:
    async def live() -> None:
        with pytest.raises(NotAllowed):
            await checked_addresses("example.com", 443, resolving(["8.8.8.8", "127.0.0.1"]), PUBLIC)
        assert await checked_addresses("example.com", 443, resolving(["8.8.8.8", "1.1.1.1"]), PUBLIC) == (
            "8.8.8.8",
            "1.1.1.1",
        )

    asyncio.run(live())


@pytest.mark.req("OUT-6")
def test_dns_rebinding_does_not_redirect_a_delivery() -> None:
    """DNS rebinding: the name is resolved once per delivery, and the checked address is used."""

    async def live() -> None:
        async with Receiver().listening() as receiver:
            # 127.0.0.2 is allowed here, as an address outside is in production; 127.0.0.1 is what an attacker wants.
            reach = AddressPolicy.of(networks=["127.0.0.2/32"])._replace(plain=True, any_port=True)
            url = f"http://hooks.example:{receiver.port}/"
            names = resolving(["127.0.0.2"], ["127.0.0.1"])
            poster = DeliveryClient(reach, names, SystemClock(), timeout_ms=1_000)
            first = await poster.post(url, {}, b"{}")
            assert "ConnectError" in first.error, "no server listens at the checked address"
            assert (names.asked, receiver.got) == (["hooks.example"], [])
            second = await poster.post(url, {}, b"{}")
            assert "not sent" in second.error and receiver.got == []
            await poster.close()

    asyncio.run(live())


@pytest.mark.req("OUT-6")
def test_the_name_stays_in_the_host_header_and_no_proxy_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async def live() -> None:
        async with Receiver().listening() as receiver, Receiver().listening() as proxy:
            for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
                monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
            poster = DeliveryClient(DEVELOPMENT, resolving(["127.0.0.1"]), SystemClock())
            attempt = await poster.post(f"http://hooks.example:{receiver.port}/x?y=1", {}, b"{}")
            assert (attempt.code, attempt.error) == (204, "")
            assert receiver.got[0].headers["host"] == f"hooks.example:{receiver.port}"
            assert proxy.got == []
            await poster.close()

    asyncio.run(live())


@pytest.mark.req("OUT-6")
def test_a_name_server_that_is_silent_has_its_own_time() -> None:
    async def silent(host: str, port: int) -> Sequence[str]:
        await asyncio.sleep(60)
        return []

    async def live() -> None:
        begun = asyncio.get_running_loop().time()
        poster = DeliveryClient(PUBLIC, silent, SystemClock())
        attempt = await poster.post("https://example.com/", {}, b"{}")
        assert "no name server returned the address of example.com" in attempt.error
        assert asyncio.get_running_loop().time() - begun < 20
        await poster.close()
        SystemResolver().close()

    asyncio.run(live())


@pytest.mark.req("OUT-6")
def test_a_name_without_an_address_is_an_error(url: str) -> None:
    """The name exists without an address: the attempt fails, and registration is refused."""

    async def live() -> None:
        nowhere = resolving([])
        poster = DeliveryClient(PUBLIC, nowhere, SystemClock())
        attempt = await poster.post("https://hooks.example/", {}, b"{}")
        assert (attempt.code, attempt.error) == (0, "OSError: hooks.example has no address")
        await poster.close()
        async with a_store(url) as ops:
            hooks = Webhooks(ops.store, TENANT, ops.actor, PUBLIC, nowhere)
            with pytest.raises(InvalidInput, match="cannot be found"):
                await hooks.add("https://hooks.example/")
            assert not await hooks.list()

    asyncio.run(live())


@pytest.mark.req("OUT-6")
def test_enabling_checks_the_address_again(url: str) -> None:
    """The operator's settings or the address of the name may have changed."""

    async def live() -> None:
        async with a_store(url) as ops:
            name = (await ops.webhooks.add("http://127.0.0.1:9/")).webhook
            await ops.webhooks.disable(name, reason="for now")
            ops.webhooks.reach = AddressPolicy.of(plain=True)._replace(any_port=True)
            with pytest.raises(InvalidInput, match="not allowed"):
                await ops.webhooks.enable(name)
            assert (await ops.webhooks.get(name)).status == SubscriptionStatus.DISABLED

    asyncio.run(live())


@pytest.mark.req("OUT-6")
def test_the_address_of_a_test_event_is_checked_too(url: str) -> None:
    async def live() -> None:
        async with a_store(url) as ops, Receiver().listening() as receiver:
            name = (await ops.webhooks.add(receiver.url)).webhook
            ops.webhooks.reach = AddressPolicy.of(plain=True)._replace(any_port=True)
            assert "not sent" in (await ops.webhooks.test(name)).error and receiver.got == []

    asyncio.run(live())


def test_a_resolver_ends_with_its_poster() -> None:
    async def live() -> None:
        before = threading.active_count()
        for _ in range(5):
            own = SystemResolver()
            poster = DeliveryClient(PUBLIC, own, SystemClock(), ended=own.close)
            assert "not sent" in (await poster.post("https://localhost/", {}, b"{}")).error
            await poster.close()
        await until(lambda: threading.active_count() <= before)

    asyncio.run(live())


def test_a_resolver_ends_without_waiting_for_a_name_server_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lookups that have not started are cancelled."""
    asked, answers = threading.Semaphore(0), threading.Event()
    count: list[str] = []

    def hangs(host: str, port: int) -> list[str]:
        count.append(host)
        asked.release()
        answers.wait(60)
        return []

    async def live() -> None:
        monkeypatch.setattr("outlast.outbox.address._look_up", hangs)
        own = SystemResolver()
        asking = [asyncio.ensure_future(own(f"host-{n}", 443)) for n in range(3)]
        for _ in range(2):
            assert await asyncio.to_thread(asked.acquire, timeout=30)
        ending = threading.Thread(target=own.close)
        ending.start()
        await asyncio.to_thread(ending.join, 10)
        ended = not ending.is_alive()
        answers.set()
        await asyncio.gather(*asking, return_exceptions=True)
        assert ended and count == ["host-0", "host-1"]

    asyncio.run(live())
