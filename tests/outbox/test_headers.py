"""Custom headers of a webhook: sent with each delivery, and their values never shown (S24)."""

import asyncio
import json
import logging

import pytest

from outlast.core.limits import ANSWER_CHARS_MAX, HEADERS_MAX
from outlast.core.rows.outbox_rows import DELIVERY
from outlast.errors import InvalidInput
from outlast.outbox.subscriptions import checked_headers
from outlast.telemetry.redact import GONE
from tests.outbox.helpers import Got, Receiver, a_store, answer, dispatching, settled, until, working

pytestmark = [pytest.mark.req("OUT-3"), pytest.mark.usefixtures("quick")]
VALUE = "k3y-of-the-gateway"
REFUSED = [
    "Host", "host", "Authorization", "Proxy-Authorization", "Cookie", "Connection", "Keep-Alive", "TE", "Trailer",
    "Transfer-Encoding", "Upgrade", "Proxy-Connection", "Content-Type", "Content-Length", "Content-Encoding", "Expect",
    "webhook-id", "Webhook-Signature", "webhook-timestamp", "outlast-sequence", "User-Agent", "Accept", "Origin", "Via",
    "Forwarded", "X-Forwarded-For", "x-forwarded-host", "X-Real-IP", "X-Original-URL", "X-HTTP-Method-Override",
    "X-Method-Override", "X-Host", "X-Rewrite-URL", "X-Webhook-Id", "X-Outlast-Sequence", "X-", "X-A_B", "X-A:B",
    "X-A ", "", ":path", "X-Ä", "X-A\r\nHost", "X-" + "a" * 200,
]  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_name_that_is_not_safe_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        checked_headers({name: VALUE})
    assert VALUE not in str(refused.value)


@pytest.mark.parametrize(
    "value",
    ["", " a", "a ", "a\r\nHost: b", "a\nb", "a\rb", "a\0b", "a\tb", "ä", "a\x7fb", "a" * 1_001],
)
def test_a_value_that_is_no_header_is_refused_and_not_repeated(value: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        checked_headers({"X-Api-Key": value})
    assert len(value) < 3 or value not in str(refused.value)


def test_allowed_header_names_and_their_maximum() -> None:
    given = {"X-Api-Key": VALUE, "Api-Key": "a", "apikey": "b", "X-Tenant": "a b"}
    assert checked_headers(given) == {"x-api-key": VALUE, "api-key": "a", "apikey": "b", "x-tenant": "a b"}
    with pytest.raises(InvalidInput, match="twice"):
        checked_headers({"X-A": "1", "x-a": "2"})
    with pytest.raises(InvalidInput, match=str(HEADERS_MAX)):
        checked_headers({f"X-{n}": "1" for n in range(HEADERS_MAX + 1)})


@pytest.mark.every_store
def test_headers_are_sent_with_every_delivery_and_never_shown(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """With events, tests and redeliveries, before and after a rotation, and with a receiver that echoes them."""
    caplog.set_level(logging.DEBUG, logger="outlast")

    async def echo(got: Got, writer: asyncio.StreamWriter) -> None:
        said = json.dumps([got.headers, secret]).encode()
        await answer(422 if len(receiver.got) == 1 else 200, said)(got, writer)

    secret = ""
    receiver = Receiver(echo)

    async def live() -> list[object]:
        nonlocal secret
        async with a_store(url) as ops, receiver.listening():
            made = await ops.webhooks.add(receiver.url, headers={"X-Api-Key": VALUE})
            name, secret = made.webhook, made.secret
            shown: list[object] = [made, repr(await ops.webhooks.row(name))]
            async with working(ops.store), dispatching(ops.store):
                await ops.start_run("rounds", {"left": 1}, run_id="r")
                await until(lambda: settled(ops, name))
                rotated = await ops.webhooks.rotate(name)
                await ops.webhooks.redeliver(name)
                await until(lambda: settled(ops, name))
            test = await ops.webhooks.test(name)
            assert (test.code, test.error) == (200, "") and receiver.got[-1].verified(rotated.secret)
            rows = await ops.store.rows(DELIVERY, ())
            shown += [test, await ops.webhooks.deliveries(name), repr(rows), rotated]
            shown += [await ops.webhooks.get(name), await ops.webhooks.list(), await ops.webhooks.attention()]
            assert (await ops.webhooks.remove(name)).headers == []
            return shown

    shown = asyncio.run(live())
    assert len(receiver.got) > 3 and {got.headers["x-api-key"] for got in receiver.got} == {VALUE}
    assert "['x-api-key']" in str(shown[0]), "its name may be seen"
    for each in [*map(str, shown), caplog.text]:
        assert VALUE not in each and secret not in each


def test_an_error_made_of_the_answer_repeats_no_secret(url: str) -> None:
    """The error quotes an answer that is not HTTP, which may contain the sent headers."""

    async def echo(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(f"{got.headers['x-api-key']} {secret}\r\n\r\n".encode())
        await writer.drain()

    secret = ""

    async def live() -> list[str]:
        nonlocal secret
        async with a_store(url) as ops, Receiver(echo).listening() as receiver:
            made = await ops.webhooks.add(receiver.url, headers={"X-Api-Key": VALUE})
            name, secret = made.webhook, made.secret
            async with working(ops.store), dispatching(ops.store):
                await ops.start_run("rounds", {"left": 1}, run_id="r")

                async def failed() -> bool:
                    return bool((await ops.webhooks.deliveries(name)).deliveries)

                await until(failed)
            tried = await ops.webhooks.test(name)
            known = await ops.webhooks.deliveries(name)
            return [tried.error, *(each.error for each in known.deliveries)]

    for error in asyncio.run(live()):
        assert "RemoteProtocolError" in error and GONE in error, error
        assert VALUE not in error and secret not in error


def test_an_answer_that_is_cut_within_a_secret_keeps_no_piece_of_it(url: str) -> None:
    """Only the beginning is kept, and the cut may be within a secret."""

    async def echo(got: Got, writer: asyncio.StreamWriter) -> None:
        filled = "x" * (ANSWER_CHARS_MAX - len(VALUE) + 1) + VALUE
        await answer(422, filled.encode())(got, writer)

    async def live() -> str:
        async with a_store(url) as ops, Receiver(echo).listening() as receiver:
            made = await ops.webhooks.add(receiver.url, headers={"X-Api-Key": VALUE})
            return (await ops.webhooks.test(made.webhook)).answer

    said = asyncio.run(live())
    assert said.startswith("xxx") and said.endswith(GONE) and VALUE[:6] not in said


def test_a_secret_in_the_address_is_not_shown(url: str) -> None:
    """It does not belong there; lists and attention show the address without it."""

    async def live() -> list[object]:
        async with a_store(url) as ops, Receiver(answer(422)).listening() as receiver:
            made = await ops.webhooks.add(f"{receiver.url}?token={VALUE}")
            name = made.webhook
            async with working(ops.store), dispatching(ops.store):
                await ops.start_run("rounds", {"left": 1}, run_id="r")

                async def flagged() -> bool:
                    return bool(await ops.webhooks.attention())

                await until(flagged)
            return [made, await ops.webhooks.get(name), *await ops.webhooks.attention()]

    for shown in asyncio.run(live()):
        assert VALUE not in str(shown) and "token" not in str(shown) and "/…" in str(shown), shown


def test_a_short_common_value_is_not_redacted(url: str) -> None:
    async def live() -> str:
        async with a_store(url) as ops, Receiver(answer(422, b"a bad band")).listening() as receiver:
            made = await ops.webhooks.add(receiver.url, headers={"X-Kind": "a"})
            return (await ops.webhooks.test(made.webhook)).answer

    assert asyncio.run(live()) == "a bad band"
