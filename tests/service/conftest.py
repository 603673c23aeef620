"""Run a service on loopback with a real store and a worker, in a thread."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.routing import Match

from outlast.core.presence import PRESENCE_S
from outlast.flow.workflow import Workflow
from outlast.runtime.local_worker import Serving, worker_of
from outlast.runtime.stores import open_store
from outlast.service.connections import listen, url_of
from outlast.service.event_broadcaster import EventBroadcaster
from outlast.service.identity import Anonymous, Authenticator
from outlast.service.multiprocess import ServiceProcess
from outlast.service.openapi import OPEN
from outlast.service.request_limits import Bounds
from outlast.service.service_state import ServiceState
from outlast.ui.app import error_page, pages
from tests.service import flows

PATIENCE_S = 60.0
ALL = (flows.refunds, flows.jobs, flows.wishes, flows.calls, flows.orders, flows.vaults)


@dataclass
class Service:
    """Running service. `call` runs a coroutine in its event loop."""

    url: str
    state: ServiceState
    loop: asyncio.AbstractEventLoop
    client: httpx2.Client = field(init=False)

    def __post_init__(self) -> None:
        headers = {"Origin": self.url}  # as a browser sends it with a form
        self.client = httpx2.Client(base_url=self.url, timeout=PATIENCE_S, headers=headers, verify=False)

    def call(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE_S)

    def get(self, path: str, **more: Any) -> httpx2.Response:
        return self.client.get(path, **more)

    def post(self, path: str, json: Any = None, **headers: str) -> httpx2.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.post(path, json=json, headers=named)

    def start(self, workflow: str = "refund", **given: Any) -> str:
        """Start a run of this workflow and return its id."""
        given = given or {"order_id": "A-17", "cents": 4200}
        answer = self.post(f"/v1/workflows/{workflow}/runs", {"input": given})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["run"])

    def until(self, path: str, true: Any) -> Any:
        """Poll a path until the predicate holds, waiting for changes of the store in between."""

        async def look() -> Any:
            made = httpx2.AsyncClient(base_url=self.url, timeout=PATIENCE_S, verify=False)
            async with made as client, asyncio.timeout(PATIENCE_S):
                changed = asyncio.Event()
                end = self.state.store.on_change(changed.set)
                try:
                    while not true(body := (await client.get(path)).json()):
                        await _within(changed, 0.05)
                    return body
                finally:
                    end()

        return self.call(look())

    def asked(self, run: str = "") -> tuple[str, str]:
        """Return a pending approval and its ETag. Start a run if none is given."""
        run = run or self.start()
        view = self.until("/v1/approvals?status=pending", lambda body: any(a["run"] == run for a in body["approvals"]))
        (one,) = [a["approval"] for a in view["approvals"] if a["run"] == run]
        return one, self.get(f"/v1/approvals/{one}").headers["etag"]

    def decide(self, approval: str, tag: str, decision: str = "approve", **headers: str) -> httpx2.Response:
        body = {"decision": decision, "reason": "as agreed"}
        return self.post(f"/v1/approvals/{approval}/decision", body, if_match=tag, **headers)

    def waits(self, run: str) -> Any:
        """Return a run once it waits, no worker holds it, and it is not due: its row does not change by itself."""
        return self.until(
            f"/v1/runs/{run}", lambda body: body["status"] == "waiting" and not body["owner"] and not body["due"]
        )

    def flagged(self, run: str) -> Any:
        """Return a run once it requires a person and its worker has released it."""
        return self.until(f"/v1/runs/{run}", lambda body: body["attention"] and not body["owner"])

    def ended(self, run: str) -> Any:
        return self.until(f"/v1/runs/{run}", lambda body: body["ended_at"])


class Documented:
    """Application that notes each answer of a route that is not in the OpenAPI document."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.missing: set[tuple[str, int]] = set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def noted(message: Any) -> None:
            if message["type"] == "http.response.start":
                self._note(scope, message["status"])
            await send(message)

        await self._app(scope, receive, noted if scope["type"] == "http" else send)

    def _note(self, scope: Any, status: int) -> None:
        routes = self._app.routes if (route := scope.get("route")) is None else [route]
        for each in routes:  # no route is found before the head and the body are read
            if isinstance(each, APIRoute) and each.matches(scope)[0] is Match.FULL:
                known = documented(self._app).get(each.operation_id or "")
                if known is not None and str(status) not in known:
                    self.missing.add((str(each.operation_id), status))


@cache
def documented(app: FastAPI) -> dict[str, set[str]]:
    """Return the statuses that the document of an application lists, by operation. Probes need no credential."""
    return {
        operation["operationId"]: set(operation["responses"])
        for item in app.openapi()["paths"].values()
        for operation in item.values()
        if operation["operationId"] not in OPEN
    }


class Running:
    """Context manager that runs a service in a thread."""

    def __init__(
        self, url: str, workflows: Sequence[Workflow[Any]] = ALL, *, bounds: Bounds | None = None,
        authenticator: Authenticator | None = None, worker: bool = True, heartbeat_s: float = 15.0,
        presence_s: float = PRESENCE_S,
    ) -> None:  # fmt: skip
        self._make = (url, workflows, bounds or Bounds(), authenticator or Anonymous("local:ana"), worker, heartbeat_s)
        self._presence_s = presence_s
        self._ready: Future[Service] = Future()
        self._process: ServiceProcess | None = None

    def __enter__(self) -> Service:
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        self._service = self._ready.result(PATIENCE_S)
        return self._service

    def __exit__(self, *args: object) -> None:
        self._service.client.close()
        assert self._process is not None
        self._service.loop.call_soon_threadsafe(self._process.stop)
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the service stops"
        assert self._documented.missing == set(), "each answer of a route is in the OpenAPI document"

    async def _serve(self) -> None:
        url, workflows, bounds, authenticator, worker, heartbeat_s = self._make
        try:
            store = await open_store(url)
            state = ServiceState(
                store, authenticator, tuple(workflows), bounds, pages=pages(), error_page=error_page,
                presence_s=self._presence_s,
            )  # fmt: skip
            state.broadcaster = EventBroadcaster(store, heartbeat_s=heartbeat_s, most=state.broadcaster.most)
            listening = listen("127.0.0.1", 0)
            parts = [Serving(store, lambda: worker_of(store, workflows), stays=True)] if worker else []
            self._process = ServiceProcess(state, listening, list(parts), {})
            config = self._process._server.config
            config.app = self._documented = Documented(config.app)
            service = Service(url_of(listening), state, asyncio.get_running_loop())
            await self._process.run(lambda: self._ready.set_result(service))
            await store.close()
        except BaseException as error:  # raised where the test waits for the service
            if not self._ready.done():
                self._ready.set_exception(error)
            raise


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Service for the tests of one module, over a SQLite file."""
    with Running(f"sqlite:{tmp_path_factory.mktemp('service') / 'outlast.db'}") as running:
        yield running


@pytest.fixture
def folder_url(tmp_path: Path) -> str:
    """Return the URL of a new store."""
    return f"sqlite:{tmp_path / 'outlast.db'}"


async def _within(changed: asyncio.Event, seconds: float) -> None:
    """Wait until the event is set, and clear it, or until the timeout."""
    try:
        async with asyncio.timeout(seconds):
            await changed.wait()
    except TimeoutError:
        pass
    changed.clear()
