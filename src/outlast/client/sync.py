"""The client for programs without asyncio: Django, Flask, Celery, scripts. It wraps the async client in one place.

A call waits for another thread, which no longer runs once the interpreter ends, and which may wait for a lock of the
caller while the garbage collector runs. So a wait looks at both, and what is closed by the collector waits for nothing.
"""

import asyncio
import functools
import os
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, overload
from weakref import WeakSet

from pydantic import BaseModel
from typing_extensions import override

from outlast.client import TIMEOUT, connect
from outlast.core.approvals import Actor
from outlast.core.argument_checks import client_is_closed
from outlast.core.durations import Liveness
from outlast.errors import Misplaced, OutlastError, Unavailable
from outlast.flow.function_workflow import FunctionWorkflow
from outlast.flow.workflow import Workflow
from outlast.models.runs import CloudEvent, RunDelta
from outlast.runtime.client import Client
from outlast.runtime.run_handle import RunHandle, Timeout
from outlast.runtime.webhook_client import WebhookClient

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
In = TypeVar("In", bound=BaseModel)
Out = TypeVar("Out")
CLOSE_S = 30.0
LOOK_S = 0.5
"""Time after which a wait looks whether the thread that it waits for still runs."""


class LoopThread:
    """One event loop in a daemon thread. Any thread may run coroutines in it."""

    def __init__(self) -> None:
        ready: Future[asyncio.AbstractEventLoop] = Future()
        self._stop = asyncio.Event()
        self._streams: WeakSet[AsyncGenerator[Any]] = WeakSet()
        self._begun: set[Coroutine[Any, Any, Any]] = set()
        self._pid = os.getpid()
        self._open = True
        self._thread = threading.Thread(target=self._work, args=(ready,), name="outlast-client", daemon=True)
        self._thread.start()
        self._loop = ready.result()

    def _work(self, ready: Future[asyncio.AbstractEventLoop]) -> None:
        try:
            asyncio.run(self._serve(ready))
        finally:
            for coroutine in [*self._begun]:  # handed over as the loop ended, which has dropped them
                coroutine.close()

    async def _serve(self, ready: Future[asyncio.AbstractEventLoop]) -> None:
        ready.set_result(asyncio.get_running_loop())
        await self._stop.wait()
        calls = asyncio.all_tasks() - {asyncio.current_task()}
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        for stream in [*self._streams]:  # one after the other; the end of the loop would close their parts at once
            await asyncio.gather(stream.aclose(), return_exceptions=True)

    def run(self, work: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Run a coroutine in the loop and return its result. Ctrl-C cancels it. Raises Misplaced."""
        self.check()
        return self.result(self.begin(work))

    def begin(self, work: Callable[[], Coroutine[Any, Any, R]]) -> Future[R]:
        """Begin a coroutine in the loop. Raises Misplaced if another thread has ended the loop."""
        coroutine = work()
        self._begun.add(coroutine)
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError as error:  # the loop is closed
            self._begun.discard(coroutine)
            coroutine.close()
            raise client_is_closed() from error
        future.add_done_callback(lambda _: self._begun.discard(coroutine))
        return future

    def result(self, future: Future[R]) -> R:
        """Return the result of what `begin` began. Ctrl-C cancels it. Raises Misplaced if the loop ends before."""
        try:
            while True:
                try:
                    return future.result(LOOK_S)
                except TimeoutError:
                    if future.done():  # since then, or the coroutine raised this
                        return future.result()
                    if sys.is_finalizing() or not self._thread.is_alive():
                        raise _interrupted() from None
        except BaseException as error:  # also Ctrl-C in this thread; `cancel` has no effect on what has ended
            future.cancel()
            known = isinstance(error, OutlastError) and not isinstance(error, Unavailable)
            if (self._stop.is_set() or not self._open) and isinstance(error, Exception) and not known:
                raise _interrupted() from error
            raise

    def owns(self, stream: AsyncGenerator[Any]) -> None:
        """Note a stream that ends with the loop unless it is closed before."""
        if self._open:
            self._streams.add(stream)

    def submit(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Run a coroutine in the loop without waiting for it. It is left out if the loop has ended."""
        if self.usable:
            try:
                self.begin(work)
            except Misplaced:
                pass  # another thread has ended the loop, which closes what is open in it

    def stop(self, last: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """Run a `last` coroutine, then end the loop and its thread. A second call has no effect."""
        if last is not None:
            self._check_place()
        if not self.usable:
            return
        self._open = False
        try:
            if last is not None:
                self.result(self.begin(last))
        finally:
            with suppress(RuntimeError):  # another thread has ended the loop
                self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(CLOSE_S)

    @property
    def usable(self) -> bool:
        """True until it is stopped, in the process that made it, while its thread can run."""
        here = self._open and os.getpid() == self._pid
        return here and self._thread.is_alive() and not sys.is_finalizing()

    def check(self) -> None:
        """Raise Misplaced unless a call may wait here for the loop."""
        if os.getpid() != self._pid:
            raise Misplaced(
                "this client was made in another process",
                f"process {os.getpid()} was forked from {self._pid}; threads and connections do not survive a fork",
                "connect after the fork: in Celery at worker_process_init, in gunicorn in post_fork, or at first use",
            )
        if not self._open:
            raise client_is_closed()
        self._check_place()

    def _check_place(self) -> None:
        if threading.current_thread() is self._thread:
            raise Misplaced(
                "a sync client was called in its own event loop",
                "the call would wait for itself",
                "use outlast.connect, and await its methods",
            )


def _interrupted() -> Misplaced:
    return Misplaced(
        "this client was closed during a call",
        "what was sent before may have been carried out",
        "check whether it was done, and connect again; under the same key it is done once",
    )


class _Facade(Protocol):
    @property
    def _loop(self) -> LoopThread: ...
    @property
    def _target(self) -> Any: ...


class Blocking(Generic[P, R]):
    """A method of an async client as a blocking one, with the same parameters and the same result."""

    def __init__(self, method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, at: None, owner: type[Any]) -> Self: ...
    @overload
    def __get__(self, at: _Facade, owner: type[Any]) -> Callable[P, R]: ...
    def __get__(self, at: _Facade | None, owner: type[Any]) -> Self | Callable[P, R]:
        if at is None:
            return self
        method: Callable[P, Coroutine[Any, Any, R]] = getattr(at._target, self._method.__name__)
        loop = at._loop

        @functools.wraps(method)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            return loop.run(lambda: method(*args, **kwargs))

        return call


class SyncRunHandle(Generic[T]):
    """One run. `T` is the type of its outcome. Made by `SyncClient.start` and `SyncClient.get`.

    The methods are those of `RunHandle`, without `await`.
    """

    def __init__(self, loop: LoopThread, handle: RunHandle[T]) -> None:
        """Call `client.start` or `client.get` instead."""
        self._loop = loop
        self._target = handle
        self.id = handle.id
        self.workflow = handle.workflow
        self.created = handle.created

    status = Blocking(RunHandle.status)
    detail = Blocking(RunHandle.detail)
    signal = Blocking(RunHandle.signal)
    cancel = Blocking(RunHandle.cancel)

    def result(self, timeout: Timeout | None = None) -> T:
        """Wait until the run has ended and return its outcome. `timeout` and errors are those of `RunHandle.result`."""
        return self._loop.run(lambda: self._target.result(timeout))

    def events(self, *, after: int = 0) -> "SyncStream[CloudEvent]":
        """Yield the events of the run, live, until it has ended. `after`: the number of the last event not wanted."""
        return SyncStream(self._loop, self._target.events(after=after))

    def updates(self, *, after: int = 0) -> "SyncStream[CloudEvent | RunDelta]":
        """Yield as `events`, and each text that the run streams as it comes. `after` is that of `events`.

        A reader that lags loses texts, as with `RunHandle.updates`.
        """
        return SyncStream(self._loop, self._target.updates(after=after))

    def __repr__(self) -> str:
        return repr(self._target)


class SyncWebhookClient:
    """Webhooks of one tenant. The methods are those of `WebhookClient`, without `await`."""

    def __init__(self, loop: LoopThread, webhooks: WebhookClient) -> None:
        """Use `client.webhooks` instead."""
        self._loop = loop
        self._target = webhooks

    list = Blocking(WebhookClient.list)
    get = Blocking(WebhookClient.get)
    unsent_ms = Blocking(WebhookClient.unsent_ms)
    add = Blocking(WebhookClient.add)
    notify = Blocking(WebhookClient.notify)
    test = Blocking(WebhookClient.test)
    deliveries = Blocking(WebhookClient.deliveries)
    redeliver = Blocking(WebhookClient.redeliver)
    rotate = Blocking(WebhookClient.rotate)
    disable = Blocking(WebhookClient.disable)
    enable = Blocking(WebhookClient.enable)
    remove = Blocking(WebhookClient.remove)


class SyncClient:
    """Reads and actions of one caller in one tenant. Made by `connect_sync`.

    The methods are those of `Client`, without `await`.

    Any thread may use it, also several at once. Its connections live in one event loop in a separate thread. A call
    from a running event loop blocks that loop; use `outlast.connect` there. A process that forks connects after the
    fork: a call of a forked client raises Misplaced.
    """

    def __init__(self, loop: LoopThread, client: Client) -> None:
        """Call `connect_sync` instead."""
        self._loop = loop
        self._target = client
        self.me = client.me
        self.has_code = client.has_code
        self.scheduler = client.scheduler

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the connections and end the thread. A second call has no effect."""
        self._loop.stop(self._target.close)

    @property
    def webhooks(self) -> SyncWebhookClient:
        """Client for the webhooks of the tenant."""
        return SyncWebhookClient(self._loop, self._target.webhooks)

    @overload
    def start(self, workflow: FunctionWorkflow[P, Out], /, *args: P.args, **kwargs: P.kwargs) -> SyncRunHandle[Out]: ...
    @overload
    def start(
        self,
        workflow: Workflow[Any, In, Out],
        input: In,
        /,
        *,
        key: str = "",
        run_id: str = "",
        correlation_id: str = "",
        trace_id: str = "",
        scheduler: str = "",
    ) -> SyncRunHandle[Out]: ...
    @overload
    def start(
        self,
        workflow: Workflow[Any, Any, Out],
        input: Mapping[str, object],
        /,
        *,
        key: str = "",
        run_id: str = "",
        correlation_id: str = "",
        trace_id: str = "",
        scheduler: str = "",
    ) -> SyncRunHandle[Out]: ...
    @overload
    def start(
        self,
        workflow: str,
        input: Mapping[str, object] | BaseModel,
        /,
        *,
        key: str = "",
        run_id: str = "",
        correlation_id: str = "",
        trace_id: str = "",
        scheduler: str = "",
    ) -> SyncRunHandle[Any]: ...
    def start(self, workflow: Any, /, *args: Any, **kwargs: Any) -> SyncRunHandle[Any]:
        """Start a run and return its handle once it is durable. Parameters and errors are those of `Client.start`."""
        return SyncRunHandle(self._loop, self._loop.run(lambda: self._target.start(workflow, *args, **kwargs)))

    @overload
    def get(self, workflow: Workflow[Any, Any, Out], run: str, /) -> SyncRunHandle[Out]: ...
    @overload
    def get(self, workflow: str, run: str, /) -> SyncRunHandle[Any]: ...
    @overload
    def get(self, run: str, /) -> SyncRunHandle[Any]: ...
    def get(self, workflow: Any, run: str = "", /) -> SyncRunHandle[Any]:
        """Return the handle of a run without asking for it: `client.get(orders, "run-id")`, `client.get("run-id")`.

        `workflow` types the outcome. Its name, or `run` as the only argument, gives an outcome of plain JSON.
        """
        handle = self._target.get(workflow, run) if run else self._target.get(workflow)
        return SyncRunHandle(self._loop, handle)

    def follow(self, run: str, *, after: int = 0) -> "SyncStream[str]":
        """Yield the stored text of each event of a `run` `after` a number, as it is written, until it has ended."""
        return SyncStream(self._loop, self._target.follow(run, after=after))

    def updates(self, run: str, *, after: int = 0) -> "SyncStream[str | RunDelta]":
        """Yield as `follow` (`run` and `after`), and each text that the run streams as it comes."""
        return SyncStream(self._loop, self._target.updates(run, after=after))

    def worker(
        self,
        workflows: Sequence[Workflow[Any, Any, Any]],
        *,
        concurrency: int = 100,
        name: str = "",
        live: Liveness | None = None,
    ) -> AbstractContextManager[None]:
        """Serve workflows in this process while the block runs. Parameters and errors are those of `Client.worker`."""
        return _WorkerBlock(self._loop, self._target.worker(workflows, concurrency=concurrency, name=name, live=live))

    now = Blocking(Client.now)
    start_run = Blocking(Client.start_run)
    ended = Blocking(Client.ended)
    run_end = Blocking(Client.run_end)
    runs = Blocking(Client.runs)
    run = Blocking(Client.run)
    run_summary = Blocking(Client.run_summary)
    run_input = Blocking(Client.run_input)
    results = Blocking(Client.results)
    steps = Blocking(Client.steps)
    timeline = Blocking(Client.timeline)
    events = Blocking(Client.events)
    explain = Blocking(Client.explain)
    signal = Blocking(Client.signal)
    cancel = Blocking(Client.cancel)
    continue_run = Blocking(Client.continue_run)
    extend = Blocking(Client.extend)
    move_to = Blocking(Client.move_to)
    raise_budget = Blocking(Client.raise_budget)
    to_undo = Blocking(Client.to_undo)
    not_undone = Blocking(Client.not_undone)
    effects = Blocking(Client.effects)
    ledger = Blocking(Client.ledger)
    effect = Blocking(Client.effect)
    resolve_effect = Blocking(Client.resolve_effect)
    approvals = Blocking(Client.approvals)
    approval = Blocking(Client.approval)
    approve = Blocking(Client.approve)
    reject = Blocking(Client.reject)
    claim_approval = Blocking(Client.claim_approval)
    reassign = Blocking(Client.reassign)
    attention = Blocking(Client.attention)
    attention_of = Blocking(Client.attention_of)
    answer = Blocking(Client.answer)
    answer_all = Blocking(Client.answer_all)
    answer_many = Blocking(Client.answer_many)
    assign = Blocking(Client.assign)
    summary = Blocking(Client.summary)
    whoami = Blocking(Client.whoami)
    workers = Blocking(Client.workers)
    drain_worker = Blocking(Client.drain_worker)
    input_schema = Blocking(Client.input_schema)
    topology = Blocking(Client.topology)
    versions = Blocking(Client.versions)
    unfinished = Blocking(Client.unfinished)
    move_runs = Blocking(Client.move_runs)
    budgets = Blocking(Client.budgets)
    set_budget = Blocking(Client.set_budget)
    pauses = Blocking(Client.pauses)
    pause = Blocking(Client.pause)
    resume = Blocking(Client.resume)


class _WorkerBlock(AbstractContextManager[None]):
    """A worker that serves during the block. Streams that are left open end with the client."""

    def __init__(self, loop: LoopThread, serving: AbstractAsyncContextManager[None]) -> None:
        self._loop = loop
        self._serving = serving

    @override
    def __enter__(self) -> None:
        async def enter() -> None:
            await self._serving.__aenter__()

        self._loop.run(enter)

    @override
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        async def leave() -> None:
            await self._serving.__aexit__(None, None, None)

        self._loop.run(leave)


class SyncStream(Iterator[T]):
    """Items of a run, as `SyncRunHandle.events` and the like return them: iterate, and `close` it to stop early.

    One that is left open ends with the program or its client.
    """

    def __init__(self, loop: LoopThread, stream: AsyncGenerator[T]) -> None:
        """Read `stream` in `loop`. Programs call `run.events`, `run.updates`, `client.follow` or `client.updates`."""
        self._loop = loop
        self._stream = stream
        self._turn = threading.Lock()
        self._awaited: Future[tuple[T] | None] | None = None
        self._ended = threading.Event()
        self._inside = asyncio.Lock()
        """Held by what runs in the loop: a call that was cancelled ends before its stream is closed."""
        self._last = functools.partial(_close, stream, self._inside)
        loop.owns(stream)

    @override
    def __next__(self) -> T:
        with self._turn:  # one thread after the other
            if self._ended.is_set():
                raise StopIteration
            self._loop.check()
            self._awaited = self._loop.begin(self._one)
            if self._ended.is_set():  # by `close`, which has seen the future before this one
                self._awaited.cancel()
            try:
                found = self._loop.result(self._awaited)
            except BaseException as error:  # as with a generator, an exception ends the iteration
                self._loop.submit(self._last)
                if self._ended.is_set() and isinstance(error, CancelledError):  # by `close` in another thread
                    raise StopIteration from None
                self._ended.set()
                raise
            if found is None:
                self._ended.set()
                raise StopIteration
            return found[0]

    async def _one(self) -> tuple[T] | None:
        async with self._inside:
            async for item in self._stream:
                return (item,)
        return None

    def close(self) -> None:
        """Stop the iteration and its connection, also for a thread that waits. A second call has no effect."""
        if self._ended.is_set():
            return
        self._ended.set()
        if self._awaited is not None:
            self._awaited.cancel()
        if self._loop.usable:
            with self._turn:
                self._loop.run(self._last)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if not self._ended.is_set():  # the collector runs in any thread, and never waits
            self._loop.submit(self._last)


async def _close(stream: AsyncGenerator[Any], inside: asyncio.Lock) -> None:
    async with inside:
        await stream.aclose()


def connect_sync(
    target: str = "",
    *,
    token: str = "",
    tenant: str = "",
    actor: Actor | str | None = None,
    workflows: Sequence[Workflow[Any, Any, Any]] = (),
    timeout: Timeout = TIMEOUT,
) -> SyncClient:
    """Open a client without `await`: `with outlast.connect_sync(target) as client`.

    `target`, `token`, `tenant`, `actor`, `workflows` and `timeout` are those of `connect`, and so are the errors. Close
    the client, or use it with `with`.
    """
    loop = LoopThread()
    pending = connect(target, token=token, tenant=tenant, actor=actor, workflows=workflows, timeout=timeout)

    async def opened() -> Client:
        return await pending

    try:
        return SyncClient(loop, loop.run(opened))
    except BaseException:  # nothing remains of a client that could not be opened
        loop.stop()
        raise
