"""The HTTP client against lost answers, busy services, redirects and services that are not there."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import httpx2
import pytest

import outlast
from outlast import Client
from outlast.errors import (
    Busy,
    Conflict,
    InvalidInput,
    OutlastError,
    RunCancelled,
    TooManyFailures,
    Unavailable,
    Uncertain,
)
from outlast.models.service import CallerInfo
from outlast.testing.http_receiver import CutConnection, HttpReceiver, HttpRequest, Reply
from tests.client import flows
from tests.client.conftest import PATIENCE
from tests.service.conftest import Running, Service

ME = {"name": "ana", "tenant": "t", "roles": [], "every_role": True, "person": True, "until_real": None}
Handler = Callable[[HttpRequest], Awaitable[Reply | None]]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Return a real service over SQLite."""
    with Running(f"sqlite:{tmp_path_factory.mktemp('http') / 'outlast.db'}", flows.ALL) as running:
        yield running


def between(handler: Handler, test: Callable[[Client], Awaitable[None]], **options: Any) -> None:
    """Run a test with a client whose requests reach `handler`."""

    async def go() -> None:
        receiver = HttpReceiver(handler)
        await receiver.open()
        try:
            async with outlast.connect(receiver.url, **options) as client:
                await test(client)
        finally:
            await receiver.close()

    asyncio.run(go())


def answer(body: Any, status: int = 200, **headers: str) -> Reply:
    """Return a JSON answer."""
    return Reply(status, json.dumps(body).encode(), tuple((k.replace("_", "-"), v) for k, v in headers.items()))


async def relay(service: Service, request: HttpRequest) -> Reply:
    """Return the answer of a service to a request."""
    headers = {name: value for name, value in request.headers.items() if name != "host"}
    async with httpx2.AsyncClient(base_url=service.url, trust_env=False, headers=headers) as http:
        got = await http.request(request.method, request.path, content=request.body, params=request.query)
    return Reply(got.status_code, got.content, (("content-type", got.headers.get("content-type", "")),))


def problem(code: str, status: int, refusal: str = "", **headers: str) -> Reply:
    """Return a problem answer of Outlast."""
    headers["content_type"] = "application/problem+json"
    return answer({"code": code, "title": "it failed", "status": status, "refusal": refusal}, status, **headers)


@pytest.mark.req("RUN-4")
def test_a_start_whose_answer_is_lost_happens_once(service: Service) -> None:
    forwarded: list[HttpRequest] = []

    async def forward(request: HttpRequest) -> Reply:
        got = await relay(service, request)
        if request.method == "POST":
            forwarded.append(request)
            if len(forwarded) in (1, 2, 4):
                raise CutConnection
        return got

    async def test(client: Client) -> None:
        run = await client.start(flows.orders, {"supplier": "once"})
        assert run.created and len(forwarded) == 3
        assert len({request.key for request in forwarded}) == 1, "one key for all repetitions"
        assert {json.loads(request.body)["id"] for request in forwarded} == {run.id}, "and one run, without a key"
        assert await run.signal("offer", {"cents": 1})
        assert len(forwarded) == 5
        (listed,) = [each for each in (await client.runs(workflow="order")).runs if each.run == run.id]
        assert listed.run == run.id
        await run.cancel("done")

    between(forward, test)


def test_an_answer_that_is_lost_for_good_is_uncertain_after_few_repetitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outlast.client.service_connection.REPEATS_S", (0.0, 0.01))
    asked: list[str] = []

    async def cut(request: HttpRequest) -> Reply:
        asked.append(request.method)
        raise CutConnection

    async def test(client: Client) -> None:
        with pytest.raises(Uncertain, match="did not answer"):
            await client.start("order", {})
        assert asked == ["POST"] * 3
        with pytest.raises(Unavailable, match="cannot be reached"):
            await client.whoami()

    between(cut, test)


def test_a_busy_service_is_asked_again_after_the_time_it_names() -> None:
    replies = [problem("OUT-414", 429, Retry_After="0"), problem("OUT-504", 503, Retry_After="0"), answer(ME)]
    replies += [problem("OUT-424", 409, "in_flight", Retry_After="0"), answer({"resumed": "x", "by": "a", "runs": 3})]
    replies += [problem("OUT-414", 429, Retry_After="99"), problem("OUT-412", 429, Retry_After="0")]

    async def reply(request: HttpRequest) -> Reply:
        return replies.pop(0)

    async def test(client: Client) -> None:
        assert (await client.whoami()).name == "ana"
        assert (await client.resume("tenant")).runs == 3
        with pytest.raises(Busy) as busy:
            await client.whoami()
        assert busy.value.retry_after_s == 99, "beyond the timeout of the request"
        with pytest.raises(TooManyFailures):
            await client.whoami()
        assert replies == []

    between(reply, test, timeout="10s")


def test_errors_of_a_service_are_those_of_a_store() -> None:
    replies = [problem("OUT-423", 412, "stale"), problem("OUT-402", 410, "ended"), problem("OUT-999", 500)]
    kinds = [(Conflict, "moved"), (Conflict, "ended"), (OutlastError, "")]

    async def reply(request: HttpRequest) -> Reply:
        return replies.pop(0)

    async def test(client: Client) -> None:
        for kind, refusal in kinds:
            with pytest.raises(OutlastError) as refused:
                await client.run("r1")
            assert (type(refused.value), refused.value.refusal) == (kind, refusal)

    between(reply, test)


def test_an_answer_of_a_newer_service_is_read_and_a_strange_one_refused() -> None:
    replies = [answer({**ME, "shoe_size": 42}), answer({"name": "ana"}), answer([]), Reply(200, b"<html>")]
    replies += [Reply(404, b"nginx"), Reply(302, b"", (("location", "https://evil.example/v1/me"),))]

    async def reply(request: HttpRequest) -> Reply:
        return replies.pop(0)

    async def test(client: Client) -> None:
        assert isinstance(await client.whoami(), CallerInfo)
        for _ in range(5):
            with pytest.raises(Unavailable, match="is not an Outlast service"):
                await client.whoami()

    between(reply, test, token="secret")


def test_a_token_is_sent_and_a_service_that_hangs_times_out() -> None:
    seen: list[str] = []

    async def hang(request: HttpRequest) -> Reply | None:
        seen.append(request.headers.get("authorization", ""))
        return None

    async def test(client: Client) -> None:
        with pytest.raises(Unavailable, match="cannot be reached"):
            await client.whoami()
        with pytest.raises(Uncertain, match="did not answer"):
            await client.cancel("r1", reason="slow")
        assert seen == ["Bearer t-1", "Bearer t-1"]

    between(hang, test, token="t-1", timeout=0.2)


def test_a_target_that_cannot_be(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    async def opened(target: str, **options: Any) -> None:
        async with outlast.connect(target, **options) as client:
            await client.whoami()

    def refused(kind: type[OutlastError], match: str, target: str, **options: Any) -> None:
        with pytest.raises(kind, match=match):
            asyncio.run(opened(target, **options))

    refused(Unavailable, "cannot be reached", "http://127.0.0.1:1", timeout="1s")
    refused(InvalidInput, "this is not the URL", "https://ana:pw@example.com")
    refused(InvalidInput, "a service takes no tenant", "https://example.com", tenant="acme")
    refused(InvalidInput, "a service takes no actor", "https://example.com", actor="ana")
    refused(InvalidInput, "a store takes no token", "memory:", token="t")
    refused(InvalidInput, "is not a token", "http://127.0.0.1:1", token="two words")
    refused(OutlastError, "no store can be opened", "ftp://example.com")
    monkeypatch.setenv("OUTLAST_URL", "http://127.0.0.1:1")
    refused(Unavailable, "127.0.0.1:1 cannot be reached", "", timeout="1s")
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        asyncio.run(_only_opened("http://192.0.2.1", token="t"))
    assert "the token is sent unencrypted" in caplog.text


async def _only_opened(target: str, **options: Any) -> None:
    await (await outlast.connect(target, **options)).close()


def test_a_worker_needs_a_store(service: Service) -> None:
    async def test() -> None:
        async with await outlast.connect(service.url) as client:
            with pytest.raises(InvalidInput, match="a worker needs the store itself"):
                async with client.worker(flows.ALL):
                    pass

    asyncio.run(test())


def test_a_result_is_awaited_by_polls_if_there_are_too_many_streams(service: Service) -> None:
    refused: list[str] = []

    async def forward(request: HttpRequest) -> Reply:
        if "text/event-stream" in request.headers.get("accept", ""):
            refused.append(request.path)
            return problem("OUT-414", 429)
        return await relay(service, request)

    async def test(client: Client) -> None:
        run = await client.start(flows.orders, {"supplier": "poll"})
        waiting = asyncio.create_task(run.result(PATIENCE))

        async def streamed() -> bool | None:
            return True if refused else None

        assert await client.until(streamed, within_s=20)
        await run.cancel("done")
        with pytest.raises(RunCancelled):
            await waiting

    between(forward, test)
