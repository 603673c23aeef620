"""One attempt at an untrusted receiver: its address, its deadline and the bounds of its answer (S22, S25)."""

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from outlast.clocks import SystemClock
from outlast.core.addresses import PUBLIC, AddressPolicy
from outlast.core.durations import DAY, SECOND
from outlast.core.limits import ANSWER_BYTES_MAX, ANSWER_CHARS_MAX
from outlast.core.webhooks.deliveries import Attempt
from outlast.outbox import delivery_client as client
from outlast.outbox.delivery_client import DeliveryClient
from tests.outbox.authority import Authority
from tests.outbox.helpers import DEVELOPMENT, Behaviour, Got, Receiver, answer

pytestmark = pytest.mark.req("OUT-6")
MIB = 1_048_576


async def here(host: str, port: int) -> Sequence[str]:
    """Resolve every name to this machine."""
    return ["127.0.0.1"]


@asynccontextmanager
async def poster(
    reach: AddressPolicy = DEVELOPMENT, *, tls: ssl.SSLContext | bool = True
) -> AsyncIterator[DeliveryClient]:
    made = DeliveryClient(reach, here, SystemClock(), tls=tls, timeout_ms=1_000)
    try:
        yield made
    finally:
        await made.close()


async def tried(behaviour: Behaviour, receiver: Receiver | None = None) -> Attempt:
    """Make one attempt at a receiver with this behaviour; it must end soon."""
    receiver = receiver or Receiver()
    receiver.behaviour = behaviour
    async with receiver.listening(), poster() as sending, asyncio.timeout(10):
        return await sending.post(receiver.url, {}, b"{}")


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(code: int) -> None:
    """Not even to an allowed address; the target is not evaluated."""

    async def live() -> None:
        async with Receiver().listening() as elsewhere:
            attempt = await tried(answer(code, location=elsewhere.url))
            assert (attempt.code, attempt.definite, elsewhere.got) == (code, False, [])
            assert "redirects are not followed" in attempt.error

    asyncio.run(live())


def test_a_cookie_is_not_kept() -> None:
    async def live() -> None:
        receiver = Receiver(answer(204, set_cookie="a=b; Path=/"))
        async with receiver.listening(), poster() as sending:
            for _ in range(2):
                await sending.post(receiver.url, {}, b"{}")
            assert len(receiver.got) == 2 and "cookie" not in receiver.got[1].headers

    asyncio.run(live())


@pytest.mark.parametrize(
    ("url", "reach"),
    [
        ("http://hooks.example/", PUBLIC),
        ("http://hooks.example:8080/", AddressPolicy.of(networks=["127.0.0.0/8"])),
        ("https://hooks.example:22/", AddressPolicy.of(networks=["127.0.0.0/8"])),
        ("https://me:secret@hooks.example/", DEVELOPMENT),
    ],
)
def test_the_form_of_a_url_is_checked_again_when_it_is_sent(url: str, reach: AddressPolicy) -> None:
    """The operator's policy may have changed, and the row may not have been checked."""

    async def live() -> None:
        async def asked(host: str, port: int) -> Sequence[str]:
            raise AssertionError("its name is not even looked up")

        sending = DeliveryClient(reach, asked, SystemClock())
        attempt = await sending.post(url, {}, b"{}")
        assert attempt.error.startswith("not sent: ") and not attempt.definite
        await sending.close()

    asyncio.run(live())


# --- bounds --------------------------------------------------------------------------------
def test_an_endless_answer_is_read_to_its_bound() -> None:
    sent = 0

    async def endless(got: Got, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while sent < 1_024 * MIB:
            writer.write(b"100000\r\n" + bytes(MIB) + b"\r\n")
            await writer.drain()
            sent += MIB

    attempt = asyncio.run(tried(endless))
    assert (attempt.code, attempt.error, len(attempt.answer)) == (200, "", ANSWER_CHARS_MAX)
    assert sent < 32 * MIB, "what the sockets hold; of it at most ANSWER_BYTES_MAX are read"
    assert ANSWER_BYTES_MAX <= 64 * 1_024


def test_an_answer_that_drips_has_a_second() -> None:
    async def drips(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 202 OK\r\ncontent-length: 1000000\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.02)

    attempt = asyncio.run(tried(drips))
    assert (attempt.code, attempt.error) == (202, "") and attempt.took_ms < 15_000


def test_a_head_that_drips_is_no_answer() -> None:
    """Each byte arrives in time, but the head does not."""

    async def drips(got: Got, writer: asyncio.StreamWriter) -> None:
        for byte in b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 10_000:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.02)

    attempt = asyncio.run(tried(drips))
    assert (attempt.code, attempt.error) == (0, "no answer within 1 s") and attempt.took_ms < 15_000


def test_nothing_is_decompressed() -> None:
    bomb = gzip.compress(b"BOMB" * 1_000_000)
    attempt = asyncio.run(tried(answer(200, bomb, content_encoding="gzip")))
    assert attempt.error == "" and "BOMB" not in attempt.answer and len(attempt.answer) <= ANSWER_CHARS_MAX


def test_an_answer_is_kept_as_text_that_a_store_can_hold() -> None:
    attempt = asyncio.run(tried(answer(422, b"a\0b\xff<script>")))
    assert (attempt.answer, attempt.definite) == ("a\ufffdb\ufffd<script>", True)


def test_a_head_without_end_is_an_error() -> None:
    async def endless(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"x-" + b"y" * MIB)
            await writer.drain()

    attempt = asyncio.run(tried(endless))
    assert attempt.code == 0 and attempt.error and not attempt.definite


def test_answers_that_are_not_read_to_their_end_hold_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """An endless answer would otherwise use up the connections to its receiver."""
    monkeypatch.setattr(client, "CONNECTIONS", 2)

    async def endless(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n")
        while True:
            writer.write(bytes(MIB))
            await writer.drain()

    async def live() -> list[str]:
        async with Receiver(endless).listening() as receiver, poster() as sending:
            return [(await sending.post(receiver.url, {}, b"{}")).error for _ in range(5)]

    assert asyncio.run(live()) == [""] * 5


# --- what an answer means ------------------------------------------------------------------
@pytest.mark.parametrize(
    ("code", "said", "waits_ms"),
    [
        (429, "7", 7 * SECOND),
        (503, "120", 120 * SECOND),
        (429, "999999999999", DAY),
        (503, "Wed, 21 Oct 2099 07:28:00 GMT", DAY),
        (503, "Wed, 21 Oct 1999 07:28:00 GMT", 0),
        (429, "soon", SECOND),  # it is left alone for a moment in any case
        (429, "-5", SECOND),
        (500, "7", 0),
        (422, "7", 0),
    ],
)
def test_retry_after_is_respected_up_to_a_day(code: int, said: str, waits_ms: int) -> None:
    assert asyncio.run(tried(answer(code, retry_after=said))).retry_after_ms == waits_ms


@pytest.mark.parametrize("code", [400, 401, 403, 404, 405, 413, 415, 422, 451, 408, 409, 425, 429, 500, 502, 503, 599])
def test_which_answers_are_definite(code: int) -> None:
    attempt = asyncio.run(tried(answer(code)))
    assert attempt.error and attempt.definite == (code < 500 and code not in (408, 409, 425, 429))
    assert not attempt.gone


# --- TLS -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("presented", "known", "accepted"),
    [("hooks.example", True, True), ("other.example", True, False), ("hooks.example", False, False)],
    ids=["its name", "another name", "an unknown authority"],
)
def test_the_certificate_is_verified_for_the_name_although_the_address_is_used(
    presented: str, known: bool, accepted: bool, tmp_path: Path
) -> None:
    """SNI and certificate use the name; the connection uses the checked address."""
    asked: list[str | None] = []

    async def live() -> None:
        authority = Authority(tmp_path)
        serving = authority.serving(presented)
        serving.sni_callback = lambda _socket, name, _context: asked.append(name)
        receiver = Receiver()
        async with receiver.listening(serving), poster(tls=authority.trusted() if known else True) as sending:
            attempt = await sending.post(f"https://hooks.example:{receiver.port}/", {}, b"{}")
        assert asked == ["hooks.example"]
        assert (attempt.error == "", len(receiver.got) == 1) == (accepted, accepted), attempt

    asyncio.run(live())


def test_certificates_are_verified_by_default(tmp_path: Path) -> None:
    async def live() -> None:
        receiver = Receiver()
        async with receiver.listening(Authority(tmp_path).serving("hooks.example")):
            sending = DeliveryClient(DEVELOPMENT, here, SystemClock())
            attempt = await sending.post(f"https://hooks.example:{receiver.port}/", {}, b"{}")
            await sending.close()
        assert "CERTIFICATE_VERIFY_FAILED" in attempt.error and receiver.got == []

    asyncio.run(live())
