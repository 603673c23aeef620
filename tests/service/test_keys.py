"""Idempotency keys: in progress, of a dead process, and on PostgreSQL."""

import asyncio
import threading
import zlib
from collections.abc import Iterator
from secrets import token_hex
from typing import Any

import httpx2
import pytest
import uvicorn
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

import outlast
from outlast.core.codec import digest
from outlast.core.commit import Commit, Put
from outlast.core.durations import ANSWERS_KEPT, MINUTE
from outlast.core.rows.limit_rows import PAUSE
from outlast.core.rows.run_rows import RUN, Run
from outlast.core.rows.store_rows import REQUEST
from outlast.core.rows.store_rows import Request as Row
from outlast.runtime import InProcessRuntime, open_store
from outlast.service import idempotency
from outlast.service.connections import listen, url_of
from outlast.service.idempotency import IN_FLIGHT, once
from outlast.upkeep.whole_store import purge
from tests.postgres import server
from tests.service import flows
from tests.service.conftest import Running, Service

BODY = {"input": {"order_id": "K", "cents": 1}}
PATH = "/v1/workflows/refund/runs"
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """Return the URL of a new schema on the test server."""
    name = f"test_{token_hex(6)}"
    yield f"{server.url()}?schema={name}"
    asyncio.run(server.drop(name))


def left_by(service: Service, key: str, ago_ms: int) -> None:
    """Write the row that a process leaves if it died during this request."""
    stamp = digest("start_run", PATH, "", BODY)
    now = service.call(service.state.store.now()).business
    row = Row("default", digest("local:ana", key), 1, "local:ana", "start_run", stamp, 0, "", b"", now - ago_ms)
    service.call(service.state.store.commit(Commit((Put(REQUEST, row, 0),))))


@pytest.mark.req("RUN-4")
@pytest.mark.parametrize("body", [b"{", b"\xff\xfe", b'{"input": {"cents": 1e999}}', b"[" * 60, b'"\\ud800"'])
def test_an_invalid_body_is_refused_with_a_key_too(service: Service, body: bytes) -> None:
    headers = {"Content-Type": "application/json", "Idempotency-Key": "no-json"}
    answer = service.client.post(PATH, content=body, headers=headers)
    assert answer.status_code == 422, answer.text


@pytest.mark.req("RUN-4")
def test_a_key_in_progress_is_409_and_one_of_a_dead_process_is_free_later(service: Service) -> None:
    left_by(service, "young", 0)
    young = service.post(PATH, BODY, idempotency_key="young")
    assert (young.status_code, young.json()["refusal"], young.headers["retry-after"]) == (409, "in_flight", "1")
    left_by(service, "old", IN_FLIGHT + 1_000)
    old = service.post(PATH, BODY, idempotency_key="old")
    assert old.status_code == 201
    assert service.post(PATH, BODY, idempotency_key="old").headers["Idempotent-Replayed"] == "true"


@pytest.mark.req("RUN-4")
def test_concurrent_repetitions_start_one_run(service: Service) -> None:
    async def many() -> list[httpx2.Response]:
        async with httpx2.AsyncClient(base_url=service.url, timeout=30) as client:
            return list(
                await asyncio.gather(
                    *(client.post(PATH, json=BODY, headers={"Idempotency-Key": "m"}) for _ in range(20))
                )
            )

    answers = service.call(many())
    assert {each.status_code for each in answers} <= {201, 409}
    assert len({each.json()["run"] for each in answers if each.status_code == 201}) == 1


@pytest.mark.req("RUN-4")
def test_an_answer_is_kept_for_a_week(folder_url: str) -> None:
    """`purge` removes it. The start key of a run and the identity of an act are kept."""
    with Running(folder_url, worker=False) as service:
        ops = service.state.operations(service.call(service.state.authenticator.authenticate("", "127.0.0.1")))
        ask = {"what": "activity", "name": "post", "reason": "strike"}
        first = service.post("/v1/pauses", ask, idempotency_key="h")
        begun = service.post(PATH, BODY, idempotency_key="r")
        assert (first.status_code, begun.status_code) == (201, 201)
        _skip(service, ANSWERS_KEPT - MINUTE)
        service.call(purge(ops))
        assert service.post("/v1/pauses", ask, idempotency_key="h").content == first.content
        _skip(service, 2 * MINUTE)
        assert service.post("/v1/pauses", ask, idempotency_key="h").status_code == 201, "nobody has purged yet"
        service.call(purge(ops))
        assert service.call(service.state.store.rows(REQUEST, ())) == ()
        made = service.call(service.state.store.rows(PAUSE, ()))
        assert service.post("/v1/pauses", ask, idempotency_key="h").status_code == 201, "the act has an identity"
        assert service.call(service.state.store.rows(PAUSE, ())) == made, "and is not done again"
        assert service.post("/v1/pauses", ask, idempotency_key="i").status_code == 409, "it is paused already"
        again = service.post(PATH, BODY, idempotency_key="r")
        assert (again.status_code, again.json()["run"]) == (200, begun.json()["run"])


def _skip(service: Service, ms: int) -> None:
    """Advance business time of the store."""

    async def go() -> None:
        store = service.state.store
        now, mapping = await store.now(), store.mapping()
        ahead = mapping._replace(base_real=now.real, base_business=now.business + ms)
        await store.set_mapping(ahead, lambda run, mapping: run.due_at)

    service.call(go())


def test_a_decision_and_a_stream_on_postgresql(postgres_url: str) -> None:
    with Running(postgres_url) as service:
        approval, tag = service.asked()
        first = service.decide(approval, tag, idempotency_key="p")
        assert first.status_code == 200
        assert service.decide(approval, tag, idempotency_key="p").content == first.content
        assert service.decide(approval, tag).json()["refusal"] == "decided"
        run = first.json()["run"]["run"]
        assert service.ended(run)["outcome"]
        answer = service.get(f"/v1/runs/{run}/events", headers={"Accept": "text/event-stream"})
        assert answer.text.count("\nid: ") >= 4 and "workflow.completed" in answer.text
        assert service.get("/v1/runs?q=%00").status_code in (200, 422)


@pytest.mark.req("RUN-4")
def test_one_repetition_takes_over_from_a_dead_process(service: Service) -> None:
    """Ten concurrent repetitions of the request of a dead process: one is executed."""
    ask = {"what": "activity", "name": "elsewhere", "reason": "x"}
    stamp = digest("pause", "/v1/pauses", "", ask)
    now = service.call(service.state.store.now()).business
    row = Row("default", digest("local:ana", "dead"), 1, "local:ana", "pause", stamp, 0, "", b"", now - IN_FLIGHT - 1)
    service.call(service.state.store.commit(Commit((Put(REQUEST, row, 0),))))

    async def many() -> list[httpx2.Response]:
        async with httpx2.AsyncClient(base_url=service.url, timeout=30) as client:
            headers = {"Idempotency-Key": "dead"}
            return list(
                await asyncio.gather(*(client.post("/v1/pauses", json=ask, headers=headers) for _ in range(10)))
            )

    answers = service.call(many())
    assert {each.status_code for each in answers} <= {201, 409}
    assert {each.json()["refusal"] for each in answers if each.status_code == 409} <= {"in_flight"}, "none did it too"


@pytest.mark.req("RUN-4")
def test_a_refusal_is_not_stored(service: Service) -> None:
    """Also if a handler returns it instead of raising."""
    statuses = [409, 201]

    async def inner(request: Request) -> Response:
        return Response(b"{}", statuses.pop(0))

    async def twice() -> list[int]:
        scope = {"type": "http", "method": "POST", "path": "/x", "query_string": b"", "headers": []}
        me = await service.state.authenticator.authenticate("", "127.0.0.1")
        store = service.state.store
        return [(await once(store, me, "x", "refused", Request(scope), inner)).status_code for _ in range(2)]

    assert service.call(twice()) == [409, 201]


@pytest.mark.req("RUN-4")
def test_a_large_answer_is_not_stored_and_executed_once(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """The replay has the status and the Location, where the rest can be read."""
    monkeypatch.setattr(idempotency, "BODY_BYTES_MAX", 20)
    first, again = [service.post(PATH, {**BODY, "id": "large-1"}, idempotency_key="large") for _ in range(2)]
    assert (first.status_code, again.status_code, again.content) == (201, 201, b"")
    assert again.headers["Idempotent-Replayed"] == "true" and again.headers["location"] == first.headers["location"]
    assert "content-type" not in again.headers, "nothing is no JSON"


@pytest.mark.req("RUN-4")
def test_a_key_purged_meanwhile_is_in_flight(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row exists at the commit and is gone at the read: nothing is executed."""
    assert service.post(PATH, BODY, idempotency_key="gone").status_code == 201
    store = service.state.store
    load = store.load

    async def forgotten(table: Any, key: Any) -> Any:
        return None if table is REQUEST else await load(table, key)

    monkeypatch.setattr(store, "load", forgotten)
    answer = service.post(PATH, BODY, idempotency_key="gone")
    assert (answer.status_code, answer.json()["refusal"]) == (409, "in_flight")


def test_stored_answers_contain_no_secret(service: Service) -> None:
    ask, key = {"url": "https://93.184.215.14/hooks"}, "hook-1"
    first = service.post("/v1/webhooks", ask, Idempotency_Key=key)
    assert first.status_code == 201, first.text
    secret = first.json()["secret"]
    again = service.post("/v1/webhooks", ask, Idempotency_Key=key)
    assert (again.status_code, again.headers["Idempotent-Replayed"]) == (201, "true")
    assert again.headers["Location"] == first.headers["Location"] and secret not in again.text
    row = service.call(service.state.store.load(REQUEST, ("default", digest("local:ana", key))))
    assert isinstance(row, Row) and row.status == 201 and secret.encode() not in zlib.decompress(row.body)
    assert again.json() == {**first.json(), "secret": ""}, "everything else, so that the caller can rotate it"


@pytest.mark.req("OBS-1")
@pytest.mark.parametrize(("said", "kept"), [(TRACEPARENT, TRACEPARENT), ("somebody's", "")])
def test_a_run_starts_in_the_trace_of_its_caller(service: Service, said: str, kept: str) -> None:
    started = service.post(PATH, {**BODY, "id": f"traced-{len(kept)}"}, traceparent=said)
    row = service.call(service.state.store.load(RUN, ("default", started.json()["run"])))
    assert isinstance(row, Run) and row.trace_id == kept


def test_the_service_is_mounted_in_another_application(folder_url: str) -> None:
    """With a path prefix, links and limits still work."""
    listening = listen("127.0.0.1", 0)
    listening.listen()  # earlier requests wait for the server
    servers: list[uvicorn.Server] = []

    async def serve() -> None:
        store = await open_store(folder_url)
        app = FastAPI()
        app.mount("/outlast", outlast.asgi(store, [flows.jobs]))
        server = uvicorn.Server(uvicorn.Config(app, log_config=None))
        servers.append(server)
        async with InProcessRuntime(store, [flows.jobs]):
            await server._serve([listening])
        await store.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    with httpx2.Client(base_url=url_of(listening), timeout=30) as client:
        made: Any = client.post("/outlast/v1/workflows/job/runs", json={"input": {"rounds": 1}})
        assert made.status_code == 201 and made.headers["location"].startswith("/outlast/v1/runs/job_")
        assert client.get(made.headers["location"]).status_code == 200
        document = client.get("/outlast/openapi.json").json()
        assert document["servers"] == [{"url": "/outlast"}]
        assert client.get("/v1/runs").status_code == 404
        servers[0].should_exit = True
    thread.join(30)
    assert not thread.is_alive()
