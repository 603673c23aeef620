"""A limit of this process is no news about a provider: the call was not sent, is retried, and opens no breaker."""

import asyncio
import contextvars
import errno
import os
import resource
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import aiohttp
import httpx
import httpx2
import pytest
import requests
import urllib3

from outlast.core.durations import BREAKER_AFTER
from outlast.core.effect_steps import LOCAL_LIMIT, Maybe, Unsent
from outlast.core.rows.limit_rows import PAUSE
from outlast.engine.call_outcome import is_transient, judge
from outlast.engine.known_pauses import says_away
from outlast.engine.local_limits import NO_THREAD, NoPlace
from outlast.engine.thread_pool import DaemonPool
from outlast.flow import Retry
from outlast.insight.explanation import explain
from outlast.insight.tenant_rows import TenantRows
from tests.engine.test_breaker import Erp, out
from tests.engine.world import MINUTE, World

pytestmark = [pytest.mark.req("EFF-4", "EFF-5")]


REFUSING = "http://127.0.0.1:1"
"""Asked once first, so that a client has imported its modules."""


@contextmanager
def no_descriptor() -> Iterator[None]:
    """Let this process open no further file or socket."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.open(os.devnull, os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(int(each) for each in os.listdir("/proc/self/fd")) + 1, hard))
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for each in taken:
            os.close(each)


@pytest.fixture
def server() -> Iterator[int]:
    """Return the port of a server that accepts connections and answers nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        yield listening.getsockname()[1]


def without_descriptor(call: Callable[[str], Any], url: str) -> Exception:
    with suppress(Exception):
        call(REFUSING)
    with no_descriptor():
        try:
            call(url)
        except Exception as error:
            return error
    raise AssertionError("it was sent")


async def _in_loop(call: Callable[[str], Any], url: str) -> Exception:
    with suppress(Exception):
        await call(REFUSING)
    with no_descriptor():
        try:
            await call(url)
        except Exception as error:
            return error
    raise AssertionError("it was sent")


async def _httpx_async(url: str) -> None:
    async with httpx.AsyncClient(trust_env=False, verify=False) as client:
        await client.post(url)


async def _httpx2_async(url: str) -> None:
    async with httpx2.AsyncClient(trust_env=False, verify=False) as client:
        await client.post(url)


async def _aiohttp(url: str) -> None:
    async with aiohttp.ClientSession() as session, session.post(url):
        pass


async def _streams(url: str) -> None:
    await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))


SYNC: dict[str, Callable[[str], Any]] = {
    "httpx": lambda url: httpx.Client(trust_env=False, verify=False).post(url),
    "httpx2": lambda url: httpx2.Client(trust_env=False, verify=False).post(url),
    "requests": lambda url: requests.post(url, timeout=5),
    "urllib3": lambda url: urllib3.PoolManager(retries=False).request("POST", url),
    "urllib3 that retries": lambda url: urllib3.PoolManager(retries=urllib3.Retry(1)).request("POST", url),
    "socket": lambda url: socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))),
}
ASYNC: dict[str, Callable[[str], Any]] = {
    "httpx": _httpx_async, "httpx2": _httpx2_async, "aiohttp": _aiohttp, "streams": _streams,
}  # fmt: skip


@pytest.mark.parametrize("client", SYNC)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_without_a_descriptor_nothing_was_sent(client: str, server: int) -> None:
    assert_local(without_descriptor(SYNC[client], f"http://127.0.0.1:{server}"))


@pytest.mark.parametrize("client", ASYNC)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_without_a_descriptor_nothing_was_sent_from_a_loop(client: str, server: int) -> None:
    assert_local(asyncio.run(_in_loop(ASYNC[client], f"http://127.0.0.1:{server}")))


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_name_that_needs_a_descriptor_to_be_resolved(server: int) -> None:
    """The resolver does not tell that it could open no file: it says that the name is not known."""
    url = f"http://outlast-no-such-host.invalid:{server}"
    with suppress(httpx2.ConnectError):
        SYNC["httpx2"](url)
    with no_descriptor():
        with pytest.raises(httpx2.ConnectError) as failed:
            SYNC["httpx2"](url)
        assert_local(failed.value)


def assert_local(error: BaseException) -> None:
    outcome = judge(error)
    assert isinstance(outcome, Unsent) and outcome.code == LOCAL_LIMIT, (type(error).__mro__, error, outcome)
    assert not says_away(outcome) and is_transient(error)


def test_a_full_pool_is_a_limit_of_this_process() -> None:
    asyncio.run(_full_pools())


async def _full_pools() -> None:
    """Each client has one connection, which another request holds."""
    held = asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        held.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(hold, "127.0.0.1", 0) as listening:
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        for module in (httpx, httpx2):
            limits = module.Limits(max_connections=1)
            timeout = module.Timeout(20, pool=0.05)
            async with module.AsyncClient(trust_env=False, limits=limits, timeout=timeout) as client:
                held.clear()
                first = asyncio.create_task(client.post(url))
                await held.wait()
                with pytest.raises(module.PoolTimeout) as full:
                    await client.post(url)
                assert_local(full.value)
                first.cancel()
                await asyncio.wait([first])
        held.clear()
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as session:

            async def post(connect: float | None) -> None:
                async with session.post(url, timeout=aiohttp.ClientTimeout(total=20, connect=connect)):
                    pass

            first = asyncio.create_task(post(None))
            await held.wait()
            with pytest.raises(aiohttp.ConnectionTimeoutError) as waited:
                await post(0.05)
            assert_local(waited.value)
            first.cancel()
            await asyncio.wait([first])


def test_no_port_and_no_thread(server: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError) as failed:
        socket.create_connection(("127.0.0.1", server), source_address=("192.0.2.1", 0))
    assert failed.value.errno == errno.EADDRNOTAVAIL
    assert_local(failed.value)

    def start(thread: threading.Thread) -> None:
        raise RuntimeError(NO_THREAD)

    async def resolve() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(threading.Thread, "start", start)
            with pytest.raises(RuntimeError) as unresolved:
                await asyncio.open_connection("localhost", server)
        assert_local(unresolved.value)

    asyncio.run(resolve())
    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(RuntimeError) as anywhere:
        threading.Thread().start()
    assert isinstance(judge(anywhere.value), Maybe), "a thread that the author starts may follow a request"


def test_host_names_that_wait_for_a_thread() -> None:
    """A connection times out because the threads of the loop, which resolve names, are all taken."""

    async def go() -> None:
        loop, free = asyncio.get_running_loop(), threading.Event()
        assert not _waits(loop)
        taken = [loop.run_in_executor(None, free.wait) for _ in range(64)]
        try:
            assert _waits(loop)
            assert_local(httpx2.ConnectTimeout(""))
        finally:
            free.set()
        await asyncio.gather(*taken)
        assert judge(httpx2.ConnectTimeout("")).code == "not_sent"  # type: ignore[union-attr]

    asyncio.run(go())


def _waits(loop: Any) -> bool:
    executor = loop._default_executor
    return executor is not None and executor._work_queue.qsize() > 0


def test_an_error_that_may_follow_a_request_proves_nothing() -> None:
    for error in (OSError(errno.EMFILE, "a file of the author"), OSError(errno.ENOMEM, "x"), MemoryError()):
        assert isinstance(judge(error), Maybe)
    assert judge(httpx2.ConnectError("refused")).code == "not_sent"  # type: ignore[union-attr]


def test_a_pool_whose_thread_cannot_be_started_keeps_its_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> None:
        pool = DaemonPool(2)
        whole = threading.Thread.start

        def start(thread: threading.Thread) -> None:
            raise RuntimeError(NO_THREAD)

        monkeypatch.setattr(threading.Thread, "start", start)
        with pytest.raises(NoPlace) as none:
            pool.submit(lambda: 1, contextvars.Context())
        assert_local(none.value)
        monkeypatch.setattr(threading.Thread, "start", whole)
        assert await asyncio.wrap_future(pool.submit(lambda: 1, contextvars.Context())) == 1
        monkeypatch.setattr(threading.Thread, "start", start)
        busy = threading.Event()
        first = pool.submit(busy.wait, contextvars.Context())
        second = pool.submit(lambda: 2, contextvars.Context())
        busy.set()
        assert await asyncio.wrap_future(first) and await asyncio.wrap_future(second) == 2, "the one thread does both"
        pool.close()

    asyncio.run(go())


@pytest.mark.req("RUN-9")
async def test_congestion_opens_no_breaker_and_uses_up_no_attempts(world: World) -> None:
    erp = Erp()
    erp.away = httpx2.PoolTimeout("100 connections are in use")
    runs = await out(world, erp, 30, retry=Retry(attempts=3, first="8s", total_wait="10m"))
    assert len(erp.attempts) > BREAKER_AFTER
    await world.pass_(2 * MINUTE)
    assert [pause.key for pause in world.core.rows.under(PAUSE, ("t",))] == []
    waits = {wait.who for run in runs for wait in world.run(run).waiting_for}
    assert waits == {LOCAL_LIMIT} and max(erp.numbers) > 3, "attempts go on beyond the limit"
    said = explain(await TenantRows(world.store, "t").run_facts(runs[0]))
    assert "below the worker's concurrency" in said.sentence
    assert any("--concurrency" in command for command in said.unblock)
    erp.away = None
    await world.pass_(10 * MINUTE)
    assert {world.status(run) for run in runs} == {"completed"} and len(erp.did) == 30


async def test_congestion_without_end_is_refused_when_the_waits_are_used_up(world: World) -> None:
    erp = Erp()
    erp.away = httpx2.PoolTimeout("")
    runs = await out(world, erp, 2, retry=Retry(attempts=3, first="1s", total_wait="20s"))
    await world.pass_(2 * MINUTE)
    assert {str(reason) for run in runs for reason in world.reasons(run)} == {"retries_exhausted"} and erp.did == []
