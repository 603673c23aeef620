"""Streams end with their credential and leave no state (S4, S10)."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from outlast.clocks import SystemClock
from outlast.errors import Unauthenticated, Unverifiable
from outlast.service import event_broadcaster
from outlast.service import event_stream as streams
from outlast.service.event_stream import EventListener
from outlast.service.identity import AuthSettings, Principal, authenticator, new_token
from outlast.service.identity.credentials import Credentials
from outlast.service.routes import history_routes as history
from tests.security import issuer as issuers
from tests.service.conftest import ALL, Running, Service
from tests.service.test_streams import stream

VIEWER = Principal("default", "vic", frozenset({"viewer", "starter"}), ("starter", "viewer"), person=True)


class Office:
    """Authenticator with one credential that can be revoked."""

    def __init__(self) -> None:
        self.principal = VIEWER
        self.error: Exception | None = None
        self.asked = 0
        self.clients = set[str]()

    async def authenticate(self, authorization: str, client: str) -> Principal:
        self.asked += 1
        self.clients.add(client)
        if self.error is not None:
            raise self.error
        return self.principal


@pytest.fixture
def office(monkeypatch: pytest.MonkeyPatch) -> Office:
    """Return an authenticator, and recheck credentials every 50 ms."""
    monkeypatch.setattr(history, "RECHECK_S", 0.05)
    return Office()


@pytest.fixture
def service(folder_url: str, office: Office) -> Iterator[Service]:
    with Running(folder_url, ALL, authenticator=office, heartbeat_s=0.1) as running:
        yield running


def closed(events: Iterator[dict[str, Any]]) -> bool:
    """Return True if the stream ends with the event `credential`."""
    last = [each for each in events if "comment" not in each][-1]
    return str(last.get("event")) == "credential"


@pytest.mark.req("GATE-2")
@pytest.mark.parametrize("path", ["/v1/runs/{run}/events", "/v1/events"])
def test_a_stream_ends_when_its_credential_expires(service: Service, office: Office, path: str) -> None:
    run = service.start("wish", text="?")
    office.principal = replace(VIEWER, until_ms=int(time.time() * 1000) + 1_000)
    with stream(service, path.format(run=run)) as events:
        assert closed(events)
    assert time.time() * 1000 >= office.principal.until_ms, "and not before"
    assert service.get("/v1/me").json()["until_real"].endswith("Z")


@pytest.mark.req("GATE-2")
@pytest.mark.parametrize("how", ["revoked", "no_role", "another", "other_tenant"])
def test_a_stream_ends_soon_after_its_credential_is_revoked(service: Service, office: Office, how: str) -> None:
    run = service.start("wish", text="?")
    with stream(service, f"/v1/runs/{run}/events") as events:
        assert next(each for each in events if "event" in each)
        if how == "revoked":
            office.error = Unauthenticated("the credential proves nothing")
        elif how == "no_role":
            office.principal = replace(VIEWER, roles=frozenset())
        elif how == "another":
            office.principal = replace(VIEWER, name="eve")
        else:
            office.principal = replace(VIEWER, tenant="globex")
        assert closed(events)
    assert office.clients == {"127.0.0.1"}, "whose guesses are counted"


@pytest.mark.req("GATE-2")
@pytest.mark.parametrize(("left_ms", "most_s"), [(5_000, 5.0), (0, 30.0), (10**9, 30.0)])
def test_the_credential_is_checked_regularly_and_at_its_expiry(
    monkeypatch: pytest.MonkeyPatch, left_ms: int, most_s: float
) -> None:
    """It outlasts neither its expiry nor a revocation by more than half a minute."""
    clock, slept = SystemClock(), list[float]()
    principal = replace(VIEWER, until_ms=clock.wall() + left_ms if left_ms else 0)

    class Enough(Exception):
        pass

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        raise Enough

    async def look() -> None:
        office = Office()
        office.principal = principal
        state: Any = SimpleNamespace(clock=clock, authenticator=office)
        request: Any = SimpleNamespace(
            state=SimpleNamespace(principal=principal), client=None, headers={},
            scope={"route": SimpleNamespace(operation_id="list_runs")},
        )  # fmt: skip
        with pytest.raises(Enough):
            await history.credential_ended(state, request)

    with monkeypatch.context() as patched:
        patched.setattr(history.asyncio, "sleep", sleep)
        asyncio.run(look())
    assert 0 < slept[0] <= most_s


@pytest.mark.req("GATE-2")
def test_a_stream_closes_if_its_last_event_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that reads nothing cannot keep a stream open after its credential expired."""
    monkeypatch.setattr(streams, "GOODBYE_S", 0.01)

    async def event_broadcaster() -> None:
        listener, left = EventListener("acme", ""), list[EventListener]()

        async def frames() -> AsyncIterator[bytes]:
            for _, data in await listener.received():
                yield data

        async def never(*message: Any) -> Any:
            await asyncio.Event().wait()

        async def at_once() -> None:
            return

        answer = streams.EventStream(frames(), listener, leave=left.append, expired=at_once)
        async with asyncio.timeout(60):
            await answer({"type": "http"}, never, never)
        assert left == [listener]

    asyncio.run(event_broadcaster())


@pytest.mark.parametrize(("fault", "told"), [(RuntimeError("ours"), True), (ConnectionResetError(), False)], ids=str)
def test_a_fault_of_a_stream_is_logged_and_a_disconnect_is_not(fault: Exception, told: bool) -> None:
    async def event_broadcaster() -> None:
        async def frames() -> AsyncIterator[bytes]:
            yield b"data: 1\n\n"
            raise fault

        async def send(message: Any) -> None:
            pass

        async def never() -> Any:
            await asyncio.Event().wait()

        answer = streams.EventStream(frames(), EventListener("acme", ""), leave=lambda listener: None, expired=never)
        async with asyncio.timeout(60):
            await answer({"type": "http"}, never, send)

    with pytest.raises(RuntimeError, match="ours") if told else contextlib.nullcontext():
        asyncio.run(event_broadcaster())


def test_an_unavailable_issuer_revokes_nothing(service: Service, office: Office) -> None:
    run = service.start("wish", text="?")
    with stream(service, f"/v1/runs/{run}/events") as events:
        assert next(each for each in events if "event" in each)
        office.error = Unverifiable("the issuer's keys cannot be had")
        asked = office.asked
        beats = 0
        while office.asked < asked + 3 or beats < 2:
            beats += "comment" in next(events)
        office.error = Unauthenticated("the credential proves nothing")
        assert closed(events)


@pytest.mark.req("GATE-2")
def test_every_kind_of_credential_has_its_expiry() -> None:
    asyncio.run(_ends())


async def _ends() -> None:
    clock = SystemClock()
    exp = int(time.time()) + 60
    with issuers.serving() as issuer:
        door: Credentials = authenticator(issuer.settings(), clock)
        signed = await door.authenticate(f"Bearer {issuers.token(exp=exp)}", "1.2.3.4")
        far = await door.authenticate(f"Bearer {issuers.token(exp=10**15)}", "1.2.3.4")
    assert signed.until_ms == (exp + issuer.settings().leeway_s) * 1000
    assert far.until_ms < 10**15, "an instant that can be written"
    until = datetime(2099, 1, 1, tzinfo=UTC)
    for end, ms in ((until, int(until.timestamp() * 1000)), (None, 0)):
        made, line = new_token("ana", tenant="default", roles=["viewer"], person=True, until=end)
        door = authenticator(AuthSettings(tokens=line), clock)  # type: ignore[arg-type]  # pydantic makes it a secret
        assert (await door.authenticate(f"Bearer {made}", "1.2.3.4")).until_ms == ms


def test_ended_streams_leave_no_state(service: Service, office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the end of the run, the listener or the credential, no listener, run or task is left."""
    monkeypatch.setattr(event_broadcaster, "KEEP_S", 0.0)
    run, other = service.start("wish", text="?"), service.start("wish", text="?")
    for _ in range(5):
        for path in (f"/v1/runs/{run}/events", f"/v1/runs/{other}/events", "/v1/events"):
            with stream(service, path) as events:
                next(events)  # and gone
    with stream(service, f"/v1/runs/{run}/events") as events, stream(service, "/v1/events") as all_runs:
        service.post(f"/v1/runs/{run}/signals/said", {"payload": {"text": "hi"}})
        assert service.call(_listening()), "there is what is to go"
        assert [each for each in events if "event" in each]
        office.error = Unauthenticated("the credential proves nothing")
        assert closed(all_runs)
    office.error = None
    watcher = service.state.broadcaster
    service.call(_until(lambda: not len(watcher) and not watcher._tenants))
    assert (watcher._listeners, watcher._runs, watcher._announced, watcher._expected) == ({}, {}, {}, {})
    service.call(_until(lambda: not _of_streams()))


def _of_streams() -> list[Any]:
    """Return the tasks of this event loop that belong to a stream."""
    files = (
        "/service/event_stream.py",
        "/service/routes/history_routes.py",
        "/service/event_broadcaster.py",
        "/service/event_stream.py",
    )
    codes = [getattr(each.get_coro(), "cr_code", None) for each in asyncio.all_tasks()]
    return [code for code in codes if code is not None and code.co_filename.endswith(files)]


async def _listening() -> bool:
    return bool(_of_streams())


async def _until(true: Any) -> None:
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110 - what others do is looked at
            await asyncio.sleep(0.02)
