"""Iterators, workers and clients that a program leaves open: it ends with them."""

import asyncio
import inspect
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast.client import loop_thread
from outlast.client.loop_thread import LoopThread
from outlast.client.sync import SyncClient
from outlast.client.sync_stream import SyncStream
from outlast.errors import Misplaced
from tests.client import flows
from tests.client.test_sync import program
from tests.service.conftest import Running

SYNC = """
import builtins, gc, outlast, threading
from tests.client import flows

client = outlast.connect_sync()
run = client.start(flows.orders, {"supplier": "acme"})
kept = [run.events(), run.updates(), client.follow(run.id), client.updates(run.id)]
for each in kept:
    next(each)


def numbers():  # a generator of the user
    for event in run.events():
        yield event.number


kept.append(numbers())
next(kept[-1])


class Holder:  # a cycle
    def __init__(self):
        self.self, self.events = self, run.events()
        next(self.events)


Holder()
gc.collect()
Holder()
begun = threading.Barrier(3)


def waits():  # a daemon thread, which does not go on
    for event in run.events():
        if event.number == 1:
            begun.wait()


def leaves():  # a thread that has ended
    kept.append(run.events())
    next(kept[-1])
    begun.wait()


threading.Thread(target=waits, daemon=True).start()
threading.Thread(target=leaves).start()
begun.wait()


class Closer:  # calls while the interpreter ends
    def __del__(self):
        try:
            run.status()
        except outlast.errors.Misplaced as error:
            kept[0].close()
            client.close()


builtins.closer = Closer()
own = outlast.connect_sync(STORE)
serving = own.worker(flows.ALL)
serving.__enter__()
print("open", flush=True)
"""
ASYNC = """
import asyncio, outlast, threading
from tests.client import flows

kept = []


async def leave():
    client = await outlast.connect()
    run = await client.start(flows.orders, {"supplier": "acme"})
    for each in (run.events(), run.updates(), client.follow(run.id), client.updates(run.id)):
        await anext(each)
        kept.append(each)
    kept.append(asyncio.create_task(run.result()))


asyncio.run(leave())
unclosed = asyncio.new_event_loop()
unclosed.run_until_complete(leave())
aside = asyncio.new_event_loop()
threading.Thread(target=aside.run_forever, daemon=True).start()
asyncio.run_coroutine_threadsafe(leave(), aside).result()
print("open", flush=True)
"""


@pytest.fixture(scope="module", params=["a store", "a service"])
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return a store or the URL of a service."""
    store = f"sqlite:{tmp_path_factory.mktemp('open') / 'outlast.db'}"
    if request.param == "a store":
        yield store
    else:
        with Running(store, flows.ALL) as service:
            yield service.url


@pytest.mark.parametrize("code", [SYNC, ASYNC], ids=["sync", "async"])
def test_a_program_ends_with_all_that_it_left_open(target: str, code: str, tmp_path: Path) -> None:
    with program(code.replace("STORE", repr(f"sqlite:{tmp_path / 'own.db'}")), target) as process:
        out, _ = process.communicate(timeout=300)
    assert out == "open\n" and process.returncode == 0, out


@pytest.fixture
def client(target: str) -> Iterator[SyncClient]:
    with outlast.connect_sync(target) as made:
        yield made


def test_an_iterator_closed_by_another_thread_ends(client: SyncClient) -> None:
    events = client.start(flows.orders, {"supplier": "x"}).events()
    seen, numbers = threading.Event(), list[int]()

    def follow() -> None:
        for event in events:
            numbers.append(event.number)
            seen.set()

    thread = threading.Thread(target=follow)
    thread.start()
    seen.wait()
    events.close()
    events.close()
    thread.join()
    assert numbers and list(events) == []


def test_a_thread_that_waits_for_the_next_item_goes_on_when_another_closes_the_iterator() -> None:
    loop = LoopThread()
    waiting = threading.Event()
    found: list[int] = []

    async def numbers() -> AsyncGenerator[int]:
        yield 1
        waiting.set()
        await asyncio.Event().wait()

    stream = SyncStream(loop, numbers())
    thread = threading.Thread(target=lambda: found.extend(stream), daemon=True)
    thread.start()
    waiting.wait()
    closing = threading.Thread(target=stream.close, daemon=True)
    closing.start()
    closing.join(60)
    assert not closing.is_alive()
    thread.join()
    loop.stop()
    assert found == [1]


def test_a_client_that_is_closed_while_threads_call_it_is_misplaced_for_all(target: str) -> None:
    """Each call returns, or raises an error of Outlast; none hangs."""
    with ThreadPoolExecutor(4) as threads:
        for _ in range(3):
            client = outlast.connect_sync(target)
            busy = threading.Barrier(5)
            calls = [threads.submit(_until_closed, client, busy, n) for n in range(4)]
            busy.wait()
            client.close()
            client.close()
            assert {type(call.result()) for call in calls} <= {Misplaced}, [call.result() for call in calls]


def _until_closed(client: SyncClient, busy: threading.Barrier, n: int) -> Exception:
    busy.wait()
    try:
        while True:
            client.whoami() if n % 2 else client.runs()
    except Exception as error:  # the error that a caller gets
        return error


def test_a_client_is_closed_by_several_threads_at_once(target: str) -> None:
    client = outlast.connect_sync(target)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: client.close(), range(4)))
    with pytest.raises(Misplaced, match="closed"):
        client.whoami()


def test_a_wait_ends_with_the_thread_that_it_waits_for() -> None:
    loop = LoopThread()
    waiting = threading.Event()

    async def forever() -> None:
        waiting.set()
        await asyncio.Event().wait()

    raised: list[BaseException] = []

    def wait() -> None:
        try:
            loop.run(forever)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    waiting.wait()
    loop._loop.call_soon_threadsafe(loop._stop.set)  # without `stop`, as a broken loop would end
    thread.join()
    loop._thread.join()
    assert not loop.usable
    with pytest.raises(Misplaced):
        loop.run(forever)
    assert [type(error) for error in raised] == [Misplaced]
    loop.stop()


def test_a_call_that_the_end_of_the_loop_drops_is_closed_and_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_thread, "LOOK_S", 0.01)
    loop = LoopThread()
    dropped: list[Coroutine[Any, Any, None]] = []
    begun: list[Future[None]] = []
    close = loop._loop.close

    async def call() -> None: ...

    def work() -> Coroutine[Any, Any, None]:
        dropped.append(call())
        return dropped[0]

    def close_after_a_call() -> None:
        begun.append(loop.begin(work))
        close()

    loop._loop.close = close_after_a_call  # type: ignore[method-assign]
    loop.stop()
    assert [inspect.getcoroutinestate(each) for each in dropped] == [inspect.CORO_CLOSED]
    assert not loop.usable
    with pytest.raises(Misplaced, match="closed during a call"):  # although nothing will ever set the future
        loop.result(begun[0])


class Ending:
    """The module `sys` of an interpreter that ends, in which daemon threads no longer run."""

    @staticmethod
    def is_finalizing() -> bool:
        return True


def test_nothing_waits_for_the_thread_once_the_interpreter_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """In some versions of Python such a thread still counts as alive, so this cannot rest on it."""
    monkeypatch.setattr(loop_thread, "LOOK_S", 0.01)
    loop = LoopThread()
    begun = loop.begin(lambda: asyncio.sleep(30))  # so that a wait for it ends without an error
    with monkeypatch.context() as patch:
        patch.setattr(loop_thread, "sys", Ending)
        assert not loop.usable
        with pytest.raises(Misplaced, match="closed during a call"):
            loop.result(begun)
    loop.stop()


def test_the_collector_does_not_wait_for_the_loop() -> None:
    """The thread of the loop may wait for a lock of the thread in which the collector runs."""
    loop = LoopThread()
    inside, collected, ended = threading.Event(), threading.Event(), threading.Event()
    waited: list[bool] = []

    async def numbers() -> AsyncGenerator[int]:
        try:
            yield 1
        finally:
            ended.set()

    def hold() -> None:
        inside.set()
        waited.append(collected.wait(60))

    kept = [SyncStream(loop, numbers())]
    assert next(kept[0]) == 1
    loop._loop.call_soon_threadsafe(hold)
    inside.wait()
    kept.clear()
    collected.set()
    ended.wait()
    loop.stop()
    assert waited == [True]


def test_a_client_stops_whose_loop_has_ended() -> None:
    loop = LoopThread()
    close = loop._loop.close

    def close_and_stop() -> None:
        close()
        ended.set()
        stopped.wait()

    ended, stopped = threading.Event(), threading.Event()
    loop._loop.close = close_and_stop  # type: ignore[method-assign]
    loop._loop.call_soon_threadsafe(loop._stop.set)
    ended.wait()
    stop = threading.Thread(target=lambda: (loop.stop(), outcome.append("stopped")))
    outcome: list[str] = []
    stop.start()
    while stop.is_alive() and loop.usable:
        stop.join(0.01)
    stopped.set()
    stop.join()
    assert outcome == ["stopped"]
