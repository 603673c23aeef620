"""Telling people: an endpoint that hangs, drips or never ends costs a moment, is counted, and holds up no run."""

import asyncio

import pytest

from outlast.core.machine import Reason
from outlast.core.rows.run_columns import Attention
from outlast.core.rows.run_rows import Run
from outlast.engine.alerts import Alerts
from outlast.outbox.delivery_client import HttpNotifier
from outlast.telemetry import DLQ_PUBLISH_FAILED, Counters
from tests.conformance.subject import T0, run_row
from tests.outbox.helpers import Behaviour, Got, Receiver, answer, until

pytestmark = pytest.mark.req("GATE-5", "FAIL-9")
MIB = 1_048_576


async def silent(got: Got, writer: asyncio.StreamWriter) -> None:
    """Accept the request and never answer."""
    await asyncio.sleep(60)


async def dripping(got: Got, writer: asyncio.StreamWriter) -> None:
    """Send a byte of the head now and then."""
    while True:
        writer.write(b"H")
        await writer.drain()
        await asyncio.sleep(0.02)


def attention() -> Attention:
    return Attention(Reason.EXCEPTION, T0, "first line\nsecond line")


@pytest.mark.parametrize(
    "behaviour", [silent, dripping, answer(500), answer(302)], ids=["silent", "dripping", "500", "302"]
)
def test_a_lost_notification_is_counted_and_delays_no_run(
    behaviour: Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outlast.engine.alerts.NOTICE_TIMEOUT", 60_000)  # the engine's own end, for any notifier

    async def live() -> None:
        async with Receiver(behaviour).listening() as receiver:
            counters = Counters()
            notices = Alerts(HttpNotifier(receiver.url, timeout_s=1.5), counters)
            notices.send(run_row(), [attention()])
            assert not receiver.got, "the walk goes on"
            await until(lambda: counters[DLQ_PUBLISH_FAILED] > 0)  # by the notifier's own deadline
            await notices.flush()
            assert counters[DLQ_PUBLISH_FAILED] == 1 and len(receiver.got) == 1
            receiver.cut()

    asyncio.run(live())


def test_the_log_of_a_lost_notification_does_not_repeat_its_url(caplog: pytest.LogCaptureFixture) -> None:
    async def live() -> None:
        async with Receiver(answer(404)).listening() as receiver:
            notices = Alerts(HttpNotifier(f"{receiver.url}/PATHSECRET?sig=SIGSECRET"), Counters())
            notices.send(run_row(), [attention()])
            await until(lambda: "alert failed" in caplog.text)
            await notices.flush()

    asyncio.run(live())
    assert "answered 404" in caplog.text and "SECRET" not in caplog.text


def test_an_endless_answer_is_not_read() -> None:
    sent = 0

    async def endless(got: Got, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\n\r\n")
        while True:
            writer.write(bytes(MIB))
            await writer.drain()
            sent += MIB

    async def live() -> None:
        async with Receiver(endless).listening() as receiver:
            run: Run = run_row()
            async with asyncio.timeout(60):
                await HttpNotifier(receiver.url).notify(run, [attention()])
            assert receiver.got[0].event["reasons"][0]["detail"] == "first line"
            assert sent < 32 * MIB, "what the sockets hold"

    asyncio.run(live())
