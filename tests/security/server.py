"""Service under attack: uvicorn on loopback, a store on disk, a worker, and tokens of all kinds of callers."""

import asyncio
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import uvicorn

from outlast.clocks import SystemClock
from outlast.core.approvals import Actor
from outlast.runtime.in_process import InProcessRuntime
from outlast.runtime.operations import Operations
from outlast.runtime.stores import open_store
from outlast.service.identity import Anonymous, Authenticator, AuthSettings, authenticator, new_token, proxy_options
from outlast.ui.app import asgi
from tests.security.flows import listeners, nested, payments

T = TypeVar("T")
ROLES = ("viewer", "starter", "worker", "agent", "approver", "operator", "admin", "monitor", "maintainer")
TENANTS = ("acme", "globex")
PEOPLE = {"ana": ["approver", "finance"], "ben": ["approver", "finance"], "eve": ["approver", "sales"],
          "req": ["approver", "finance", "starter"],
          "root": ["admin", "approver", "finance", "maintainer"]}  # fmt: skip
PROGRAMS = {"bot": ["agent", "approver", "finance", "admin"], "w1": ["worker", "approver", "finance", "admin"]}


class Service:
    """Running service. `tokens` maps (tenant, name) to a token. A name is a role, a person of PEOPLE or a program."""

    def __init__(self, url: str, loop: asyncio.AbstractEventLoop, tokens: dict[tuple[str, str], str], app: Any) -> None:
        self.url = url
        self.tokens = tokens
        self.app = app
        self._loop = loop

    def do(self, call: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the event loop of the service."""
        return asyncio.run_coroutine_threadsafe(call, self._loop).result(60)

    def client(self, name: str = "", tenant: str = "acme", *, token: str = "", **headers: str) -> httpx2.Client:
        """Return a client for this caller, or without a credential."""
        bearer = token or (self.tokens[tenant, name] if name else "")
        given = {**({"Authorization": f"Bearer {bearer}"} if bearer else {}), **headers}
        return httpx2.Client(base_url=self.url, headers=given, timeout=30, verify=False)  # TLS takes 25 ms to load

    def operations(self, tenant: str = "acme") -> Operations:
        """Return the operations of a tenant, without HTTP."""
        actor = Actor("test", frozenset({"finance", "admin"}), ("admin", "finance"))
        return Operations(self.app.state.service.store, tenant=tenant, actor=actor, workflows={})

    def start(self, workflow: str, given: dict[str, Any], *, by: str = "req", tenant: str = "acme") -> str:
        """Start a run as this caller and wait until it waits."""
        with self.client(by, tenant) as client:
            answer = client.post(f"/v1/workflows/{workflow}/runs", json={"input": given})
        assert answer.status_code == 201, answer.text
        run: str = answer.json()["run"]
        self.until(lambda: self.do(self.operations(tenant).rows.run(run)).status.value == "waiting")
        return run

    def approval(self, order: str, *, tenant: str = "acme", **given: Any) -> tuple[str, str, str]:
        """Return a pending approval: its run, its id and its ETag."""
        asked = {"order": order, "cents": 4_200, "within_ms": 3_600_000, "quorum": 1, **given}
        run = self.start("payment", asked, tenant=tenant)
        with self.client("ana", tenant) as client:
            (row,) = self.do(self.operations(tenant).rows.approvals_of(run))
            seen = client.get(f"/v1/approvals/{row.id}")
        assert seen.status_code == 200, seen.text
        return run, row.id, seen.headers["ETag"]

    def until(self, holds: Any, within_s: float = 20.0) -> None:
        """Wait until the predicate holds."""
        end = time.monotonic() + within_s
        while not holds():
            assert time.monotonic() < end, "it did not come to hold"
            time.sleep(0.01)


def lines() -> tuple[dict[tuple[str, str], str], str]:
    """Return tokens of all callers of both tenants, and their lines for the service."""
    tokens, found = {}, []
    for tenant in TENANTS:
        callers = {role: [role] for role in ROLES} | PEOPLE | PROGRAMS
        for name, roles in callers.items():
            person = name not in PROGRAMS and name not in ("worker", "agent", "monitor", "maintainer")
            tokens[tenant, name], line = new_token(name, tenant=tenant, roles=roles, person=person)
            found.append(line)
    return tokens, "\n".join(found)


@contextmanager
def serving(folder: Path, settings: AuthSettings | None = None, *, proxies: tuple[str, ...] = ()) -> Iterator[Service]:
    """Run a service during the block, with the tokens and these settings, or without credentials."""
    tokens, text = lines()
    ready = threading.Event()
    found: list[Any] = []

    async def serve() -> None:
        store = await open_store(f"sqlite:{folder}/outlast.db")
        door: Authenticator = Anonymous("local:me")
        if settings is not None:
            door = authenticator(AuthSettings(**{**vars(settings), "tokens": text}), SystemClock())
        app = asgi(store, [payments, listeners, nested], authenticator=door)
        config = uvicorn.Config(app, port=0, log_level="critical", **proxy_options(proxies))
        server = uvicorn.Server(config)
        server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        async with InProcessRuntime(store, [payments, listeners, nested]):
            task = asyncio.create_task(server.serve())
            while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
                await asyncio.sleep(0.01)
            port = server.servers[0].sockets[0].getsockname()[1]
            found.extend([f"http://127.0.0.1:{port}", asyncio.get_running_loop(), app, server])
            ready.set()
            await task
        await store.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert ready.wait(30)
        url, loop, app, _ = found
        yield Service(url, loop, tokens, app)
    finally:
        if found:
            found[3].should_exit = True
        thread.join(30)
    assert not thread.is_alive()
