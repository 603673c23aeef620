"""Messages to Slack and Teams, sent over TLS to test servers with their names."""

import asyncio
import re
import time
from collections.abc import Callable

import pytest
from markdown_it import MarkdownIt

from outlast.core.addresses import PUBLIC, AddressPolicy
from outlast.core.webhooks.approval_notices import NoticeText
from outlast.core.webhooks.deliveries import Attempt
from outlast.outbox import delivery_client as client
from outlast.outbox.channel_address import checked_channel
from tests.mutants import remove
from tests.outbox.approvers import ASKING, PAGE, approvers, pending, post, rows_of, until_told
from tests.outbox.helpers import DEVELOPMENT, Behaviour, Got, Receiver, answer, dispatching, working
from tests.outbox.stand_ins import (
    SERVICES,
    SLACK_PATH,
    TEAMS_FLOW,
    TEAMS_SIGNATURE,
    Service,
    StandIns,
    hang,
    payload_of,
)
from tests.outbox.stand_ins import stand_ins as stand_ins

pytestmark = pytest.mark.req("OUT-2")

LINK = "https://outlast.example.com/ui/approvals/ap_1"
TEXT = NoticeText("Approval: Buy", f"Buy waits.\n{LINK}\n\n(asked:ap_1)", "asked:ap_1")
SECRETS = (*SLACK_PATH.split("/"), TEAMS_FLOW, TEAMS_SIGNATURE)
HOSTILE = (
    "Pay *bold* **strong** _it_ ~gone~ `code` <!channel> <!here|here> <@U1> <#C1> @here <at>Ana</at> "
    "[Approve](https://e.example/a) <https://e.example/a|Approve> &lt;!channel&gt; &#60;@U1&#62; \\*a\\* order_4711 "
    '{{DATE(2026-01-01T00:00:00Z, SHORT)}} "actions": [{"type": "Action.OpenUrl"}]'
)


@pytest.fixture(params=SERVICES)
def service(request: pytest.FixtureRequest) -> Service:
    """Return one of the two services."""
    return SERVICES[request.param]


async def sent(service: Service, reach: AddressPolicy = DEVELOPMENT, text: NoticeText = TEXT) -> Attempt:
    """Send one message."""
    return await post(service.address, text, reach)


def links(text: str) -> list[str]:
    """Return where a text links to if it is Markdown; fail if it has other markup."""
    inner = [token for block in MarkdownIt("commonmark").parse(text) for token in block.children or [block]]
    kinds = {"paragraph_open", "paragraph_close", "text", "softbreak", "link_open", "link_close"}
    assert {token.type for token in inner} <= kinds, inner
    return [str(token.attrs["href"]) for token in inner if token.type == "link_open"]


# --- what is sent ---------------------------------------------------------------------------
def test_slack_and_teams_receive_what_waits_for_whom_until_when_and_a_link(
    url: str, service: Service, stand_ins: StandIns
) -> None:
    async def live() -> None:
        async with approvers(url) as ops, stand_ins.listening(service) as receiver:
            made = await ops.webhooks.notify(service.address, role="finance", kinds=["asked"])
            async with working(ops.store, ASKING), dispatching(ops.store, public_url=PAGE):
                await ops.start_run("asking", {}, run_id="r")
                asked = (await pending(ops.store)).id
                await until_told(ops.store, made.webhook, f"delivered asked:{asked}")
            (got,) = receiver.got
            assert got.line == service.line and got.headers["host"] == service.host
            assert got.headers["content-type"].startswith("application/json")
            title, text = service.texts(payload_of(got))
            page = f"{PAGE}/ui/approvals/{asked}"
            first, link, key = [line for line in text.splitlines() if line]
            assert title == "Approval: Award to Acme GmbH, €184,200"
            assert re.fullmatch(
                r"Award to Acme GmbH, €184,200: waits for finance until 20\d\d-\d\d-\d\d \d\d:\d\d UTC, 96h left\. "
                r"Without a decision nothing is approved\.",
                first,
            )
            assert (link, key) == (
                page if service.host.endswith("slack.com") else f"[{page}]({page})",
                f"(asked:{asked})",
            )
            (row,) = await rows_of(ops.store, made.webhook)
            assert row.status == "delivered"

    asyncio.run(live())


def test_a_message_to_slack_has_no_other_part(stand_ins: StandIns) -> None:
    async def live() -> None:
        async with stand_ins.listening(SERVICES["slack"]) as receiver:
            assert not (await sent(SERVICES["slack"])).error
        payload = payload_of(receiver.got[0])
        at = payload["attachments"][0].pop("ts")
        assert abs(at - time.time()) < 60
        assert payload == {
            "mrkdwn": False,
            "attachments": [{"title": TEXT.title, "text": TEXT.body, "color": "#3AA3E3", "footer": "Outlast"}],
        }

    asyncio.run(live())


def test_a_card_for_teams_has_no_other_part(stand_ins: StandIns) -> None:
    async def live() -> None:
        async with stand_ins.listening(SERVICES["teams"]) as receiver:
            assert not (await sent(SERVICES["teams"])).error
        (attachment,) = payload_of(receiver.got[0])["attachments"]
        assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
        card = attachment["content"]
        assert set(card) == {"$schema", "type", "version", "body", "msteams"}, "no actions"
        assert card["msteams"] == {"width": "full"}, "no mentions"
        assert [(part["type"], set(part)) for part in card["body"]] == [
            ("TextBlock", {"type", "text", "style", "weight", "size", "id"}),
            ("TextBlock", {"type", "text", "style", "wrap", "id"}),
        ], "texts, without selectAction"
        assert card["body"][1]["text"] == TEXT.body.replace(LINK, f"[{LINK}]({LINK})")

    asyncio.run(live())


@pytest.mark.req("OUT-6")
def test_hostile_text_neither_mentions_nor_formats_nor_links(url: str, service: Service, stand_ins: StandIns) -> None:
    async def live() -> None:
        async with approvers(url) as ops, stand_ins.listening(service) as receiver:
            made = await ops.webhooks.notify(service.address, role="finance", kinds=["asked"])
            async with working(ops.store, ASKING), dispatching(ops.store, public_url=PAGE):
                await ops.start_run("asking", {"summary": HOSTILE}, run_id="r")
                asked = (await pending(ops.store)).id
                await until_told(ops.store, made.webhook, f"delivered asked:{asked}")
        payload = payload_of(receiver.got[0])
        title, text = service.texts(payload)
        page = f"{PAGE}/ui/approvals/{asked}"
        assert text.count(page) == (1 if service.host.endswith("slack.com") else 2)
        said = f"{title}\n{text.replace(f'[{page}]({page})', '').replace(page, '')}"
        assert not set("<>@[]`|*~\\") & set(said) and "://" not in said.replace("(://)", "")
        assert "order_4711" in said and "{{" not in said
        assert links(title) == [] and links(text) == ([page] if "[" in text else [])
        entities = set(re.findall(r"&#?\w+;", title + text))
        assert entities <= {"&amp;"}, "what Slack shows as &"
        assert "entities" not in str(payload.get("attachments"))

    asyncio.run(live())


# --- answers ----------------------------------------------------------------------------------
CASES: dict[str, tuple[Behaviour, int, bool, int, str]] = {
    "a revoked hook": (answer(404, b"no_service"), 404, True, 0, "answered 404: no_service"),
    "a forbidden channel": (answer(403, b"action_prohibited"), 403, True, 0, "answered 403: action_prohibited"),
    "an archived channel": (answer(410, b"channel_is_archived"), 410, True, 0, "answered 410: channel_is_archived"),
    "a malformed message": (answer(400, b"invalid_payload"), 400, True, 0, "answered 400: invalid_payload"),
    "too many messages": (answer(429, b"rate_limits", retry_after="7"), 429, False, 7_000, "answered 429: rate_limits"),
    "an overload": (answer(503, b"", retry_after="3"), 503, False, 3_000, "answered 503"),
    "a fault": (answer(500, b"rollup_error"), 500, False, 0, "answered 500: rollup_error"),
    "a redirect": (
        answer(307, location="https://hooks.slack.com/elsewhere"), 307, False, 0,
        "answered 307, and redirects are not followed",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_refusals_and_failures_are_told_apart_with_code_and_reason(
    name: str, service: Service, stand_ins: StandIns
) -> None:
    async def live() -> None:
        behaviour, code, definite, wait, error = CASES[name]
        async with stand_ins.listening(service, script=[behaviour]) as receiver:
            attempt = await sent(service)
            assert (attempt.code, attempt.definite, attempt.retry_after_ms) == (code, definite, wait)
            assert attempt.error == error and not attempt.gone
            assert len(receiver.got) == 1, "one request for an attempt"
            accepted = await sent(service)
            assert accepted.error == "" and accepted.code in (200, 202)

    asyncio.run(live())


def test_a_page_in_place_of_slacks_answer_is_no_acceptance(stand_ins: StandIns) -> None:
    async def live() -> None:
        async with stand_ins.listening(SERVICES["slack"], script=[answer(200, b"<p>Sign in</p>")]):
            attempt = await sent(SERVICES["slack"])
            assert (attempt.code, attempt.definite) == (200, False)
            assert attempt.error.endswith(": <p>Sign in</p>")

    asyncio.run(live())


def test_of_a_large_answer_only_the_beginning_is_read(service: Service, stand_ins: StandIns) -> None:
    async def large(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 500 X\r\ncontent-length: 10000000\r\n\r\n" + b"x" * 65_536)
        await asyncio.Event().wait()  # a client that wants all of it waits until it gives up

    async def live() -> None:
        async with stand_ins.listening(service, script=[large]):
            attempt = await sent(service)
            assert attempt.code == 500 and len(attempt.answer) == 1_000 and len(attempt.error) < 200

    asyncio.run(live())


def test_the_status_decides_although_the_rest_never_comes(
    service: Service, stand_ins: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "BODY_S", 0.3)

    def only_the_head(status: int) -> Behaviour:
        async def begin(got: Got, writer: asyncio.StreamWriter) -> None:
            writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: 2\r\n\r\n".encode())
            await asyncio.Event().wait()

        return begin

    async def live() -> None:
        async with stand_ins.listening(service, script=[only_the_head(404), only_the_head(202)]):
            refused = await sent(service)
            assert (refused.code, refused.definite) == (404, True)
            accepted = not (await sent(service)).error
            assert accepted == service.host.endswith("azure.com"), "Slack accepts by a body, too"

    asyncio.run(live())


def test_a_server_that_hangs_is_tried_again(service: Service, stand_ins: StandIns) -> None:
    async def live() -> None:
        async with stand_ins.listening(service, script=[hang]):
            attempt = await post(service.address, TEXT, timeout_ms=300)
            assert (attempt.code, attempt.definite, attempt.error) == (0, False, "no answer within 0.3 s")

    asyncio.run(live())


def test_a_revoked_hook_is_given_up_and_waits_for_a_person(url: str, service: Service, stand_ins: StandIns) -> None:
    async def live() -> None:
        revoked = answer(404, f"no_service {SLACK_PATH} {TEAMS_SIGNATURE}".encode())
        async with approvers(url) as ops, stand_ins.listening(service, script=[revoked]) as receiver:
            made = await ops.webhooks.notify(service.address, role="finance", kinds=["asked"])
            async with working(ops.store, ASKING), dispatching(ops.store):
                await ops.start_run("asking", {}, run_id="r")
                asked = (await pending(ops.store)).id
                await until_told(ops.store, made.webhook, f"dead asked:{asked}")
                (item,) = await ops.webhooks.attention()
                assert item.webhook == made.webhook and item.detail.startswith("answered 404: no_service")
                (row,) = await rows_of(ops.store, made.webhook)
                assert (row.code, row.attempts) == (404, 1)
                own = [each for each in SECRETS if each in service.address]
                assert own and not [each for each in own if each in f"{item.detail} {row.answer} {row.error}"]
            assert len(receiver.got) == 1

    asyncio.run(live())


def test_a_service_that_is_overloaded_is_asked_again_when_it_said(
    url: str, service: Service, stand_ins: StandIns, soon: None
) -> None:
    async def live() -> None:
        script = [answer(429, retry_after="1"), answer(500)]
        async with approvers(url) as ops, stand_ins.listening(service, script=script) as receiver:
            made = await ops.webhooks.notify(service.address, role="finance", kinds=["asked"])
            async with working(ops.store, ASKING), dispatching(ops.store):
                await ops.start_run("asking", {}, run_id="r")
                asked = (await pending(ops.store)).id
                await until_told(ops.store, made.webhook, f"delivered asked:{asked}")
            first, second, third = receiver.got
            assert second.at - first.at >= 0.95, "without Retry-After it is tried again after 20 ms"
            assert first.body.count(asked.encode()) == third.body.count(asked.encode()) > 0
            (row,) = await rows_of(ops.store, made.webhook)
            assert (row.attempts, row.code) == (3, 200 if service.host.endswith("slack.com") else 202)
            assert not await ops.webhooks.attention()

    asyncio.run(live())


# --- where it leads ------------------------------------------------------------------------------
@pytest.mark.req("OUT-6")
def test_a_certificate_for_another_name_is_refused_and_no_secret_is_shown(
    url: str, service: Service, stand_ins: StandIns
) -> None:
    async def live() -> None:
        async with approvers(url) as ops, stand_ins.listening(service, certificate="evil.example") as receiver:
            made = await ops.webhooks.notify(service.address, role="finance")
            refused = await ops.webhooks.test(made.webhook)
            assert not refused.accepted and "CERTIFICATE_VERIFY_FAILED" in refused.error
            assert not [each for each in SECRETS if each in repr(refused)]
            assert receiver.got == []

    asyncio.run(live())


@pytest.mark.req("OUT-6")
def test_a_certificate_of_an_unknown_authority_is_refused(
    service: Service, stand_ins: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")

    async def live() -> None:
        async with stand_ins.listening(service) as receiver:
            assert "CERTIFICATE_VERIFY_FAILED" in (await sent(service)).error and receiver.got == []

    asyncio.run(live())


@pytest.mark.req("OUT-6")
def test_a_redirect_to_another_server_sends_it_nothing(service: Service, stand_ins: StandIns) -> None:
    async def live() -> None:
        async with Receiver().listening() as other:
            away = answer(308, location=f"http://127.0.0.1:{other.port}/hooks")
            async with stand_ins.listening(service, script=[away]) as receiver:
                assert (await sent(service)).code == 308
            assert len(receiver.got) == 1 and other.got == []

    asyncio.run(live())


@pytest.mark.req("OUT-6")
@pytest.mark.parametrize("at", ["127.0.0.1", "10.1.2.3", "169.254.169.254"])
def test_a_name_that_leads_into_the_network_is_refused_unless_it_is_allowed(
    at: str, url: str, service: Service, stand_ins: StandIns
) -> None:
    async def live() -> None:
        async with approvers(url) as ops, stand_ins.listening(service, at=at) as receiver:
            ops.webhooks.reach = PUBLIC
            with pytest.raises(Exception, match="not allowed for messages"):
                await ops.webhooks.notify(service.address, role="finance")
            attempt = await sent(service, PUBLIC)
            assert attempt.error == f"not sent: {service.host}: {at} is not an address on the internet"
            assert receiver.got == []
            if at == "127.0.0.1":
                allowed = AddressPolicy.of(networks=["127.0.0.0/8"])
                assert not (await sent(service, allowed)).error and len(receiver.got) == 1

    asyncio.run(live())


def test_a_workflow_of_slack_receives_title_and_text_as_its_variable(stand_ins: StandIns) -> None:
    async def live() -> None:
        async with stand_ins.listening(SERVICES["slack"]) as receiver:
            address = "https://hooks.slack.com/triggers/T1JJ3T3L2/4711/abcdef"
            assert not (await post(address, TEXT)).error
        (got,) = receiver.got
        assert got.line == "POST /triggers/T1JJ3T3L2/4711/abcdef HTTP/1.1"
        assert payload_of(got) == {"text": f"{TEXT.title}: {TEXT.body}"}

    asyncio.run(live())


def test_the_address_decides_which_host_of_slack_is_reached() -> None:
    hosts = {
        f"slack://{SLACK_PATH}": "hooks.slack.com",
        "https://hooks.slack.com/triggers/T1JJ3T3L2/123/abcdef": "hooks.slack.com",
        f"https://hooks.slack-gov.com/services/{SLACK_PATH}": "hooks.slack-gov.com",
    }
    for address, host in hosts.items():
        channel = checked_channel(address, PUBLIC)
        assert (channel.host, channel.shown) == (host, f"https://{host}/…"), address


# --- removals ---------------------------------------------------------------------------------
FAILS: dict[str, Callable[[str, StandIns], None]] = {
    "markup_kept": lambda url, stand_ins: test_hostile_text_neither_mentions_nor_formats_nor_links(
        url, SERVICES["teams"], stand_ins
    ),
    "messages_to_any_address": lambda url, stand_ins: (
        test_a_name_that_leads_into_the_network_is_refused_unless_it_is_allowed(
            "127.0.0.1", url, SERVICES["slack"], stand_ins
        )
    ),
    "no_wait_that_was_asked_for": lambda url, stand_ins: test_refusals_and_failures_are_told_apart_with_code_and_reason(
        "an overload", SERVICES["slack"], stand_ins
    ),
}


@pytest.mark.parametrize("safeguard", FAILS)
def test_a_removed_safeguard_is_noticed(
    safeguard: str, url: str, stand_ins: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove(safeguard, monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        FAILS[safeguard](url, stand_ins)
