"""Secrets in the URL of a webhook: its path and query are sent, stored, and shown nowhere."""

import asyncio

import pytest

from outlast.core.rows.outbox_rows import SUBSCRIPTION
from outlast.core.webhooks.deliveries import shown_url
from outlast.errors import InvalidInput
from outlast.upkeep.whole_store import examine
from tests.outbox.helpers import TENANT, Receiver, a_store, answer, dispatching, until, working

pytestmark = pytest.mark.req("GATE-2", "OUT-1")
PATH = "/services/T0abcdef/B0abcdef/PATHSECRET?QUERYSECRET&sig=SIGSECRET&page=3"
SECRETS = ("T0abcdef", "B0abcdef", "PATHSECRET", "QUERYSECRET", "SIGSECRET")


def test_the_path_and_query_of_a_webhook_are_sent_and_shown_nowhere(url: str) -> None:
    async def live() -> None:
        echo = answer(404, PATH.encode() + b" no_service in SIGSECRET")
        async with a_store(url) as ops, Receiver(echo).listening() as receiver:
            made = await ops.webhooks.add(f"http://127.0.0.1:{receiver.port}{PATH}", from_start=True)
            name = made.webhook

            async def given_up() -> bool:
                return (await ops.webhooks.get(name)).dead > 0

            async with working(ops.store), dispatching(ops.store):
                await ops.start_run("rounds", {"left": 1}, run_id="r")
                await until(given_up)
            assert {got.line for got in receiver.got} == {f"POST {PATH} HTTP/1.1"}
            tested = await ops.webhooks.test(name)
            views = (
                await ops.webhooks.list(), await ops.webhooks.rows(), await ops.webhooks.attention(), tested,
                (await ops.webhooks.deliveries()).deliveries, await examine(ops), await ops.summary(),
            )  # fmt: skip
            assert not [each for each in SECRETS if each in repr(views) + repr(made)]
            assert made.url == f"http://127.0.0.1:{receiver.port}/…" and made.url in repr(await ops.summary())
            assert tested.error == "answered 404" and "no_service" in tested.answer
            again = await ops.webhooks.enable((await ops.webhooks.disable(name, reason="quiet")).webhook)
            assert again.url == made.url
            row = await ops.store.load(SUBSCRIPTION, (TENANT, name))
            assert row is not None and row.url.endswith(PATH), "what is sent to is stored whole"

    asyncio.run(live())


@pytest.mark.parametrize(
    "url",
    ["https://example.com:PORTSECRET/x", "https://[PATHSECRET/x", "https://ann:PATHSECRET\u2100@example.com/"],
)
def test_a_url_that_cannot_be_read_is_not_repeated(url: str) -> None:
    from outlast.core.addresses import PUBLIC
    from outlast.outbox.address import checked_url

    with pytest.raises(InvalidInput) as refused:
        checked_url(url, PUBLIC)
    assert "SECRET" not in f"{refused.value!r} {refused.value}" and refused.value.__cause__ is None


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://example.com", "https://example.com"),
        ("https://example.com/", "https://example.com"),
        ("https://example.com:8443/x", "https://example.com:8443/…"),
        ("https://example.com?x", "https://example.com/…"),
        ("https://example.com#x", "https://example.com/…"),
        ("https://ann:pw@example.com/x", "https://example.com/…"),
        ("https://[2606:4700::1]:443/x", "https://[2606:4700::1]:443/…"),
        ("ntfys://ntfy.example.com/…", "ntfys://ntfy.example.com/…"),
        ("slack://…", "slack://…"),
    ],
)
def test_of_a_url_the_host_is_shown(url: str, shown: str) -> None:
    assert shown_url(url) == shown
    assert shown_url(shown) == shown
