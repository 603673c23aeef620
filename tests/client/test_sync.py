"""The client without `await`: the same surface, from any thread, with Ctrl-C, timeouts and forks."""

import ast
import asyncio
import inspect
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast import Client, RunHandle
from outlast.client import connect
from outlast.client.sync import SyncClient, SyncRunHandle, SyncWebhookClient, connect_sync
from outlast.errors import Misplaced, NotFound, RunCancelled, WaitTimeout
from outlast.models.runs import RunDelta
from outlast.runtime.client import WebhookClient
from tests.client import flows, sync_source
from tests.client.conftest import PATIENCE
from tests.service.conftest import Running

ROOT = Path(__file__).parents[2]
WITHOUT = {Client: {"until"}, RunHandle: {"client"}, WebhookClient: set[str]()}
"""Names that the sync client lacks: `until` awaits its argument."""


@pytest.fixture(scope="module", params=["in process", "http"])
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SyncClient]:
    """Return a client whose workflows are served."""
    url = f"sqlite:{tmp_path_factory.mktemp('sync') / 'outlast.db'}"
    if request.param == "http":
        with Running(url, flows.ALL) as service, outlast.connect_sync(service.url) as made:
            yield made
    else:
        with outlast.connect_sync(url) as made, made.worker(flows.ALL):
            yield made


def test_the_file_is_that_of_the_async_client() -> None:
    """Without layout, which another version of the formatter may change."""
    there = ast.parse(sync_source.TARGET.read_text(encoding="utf-8"))
    assert ast.dump(there) == ast.dump(ast.parse(sync_source.source())), "write it again: scripts/sync-client"


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    """Return name, kind and default of each parameter but `self`. Type checkers compare the types."""
    each = list(inspect.signature(function).parameters.values())[1:]
    return [(one.name, one.kind, one.default) for one in each]


@pytest.mark.parametrize(
    ("kind", "sync"), [(Client, SyncClient), (RunHandle, SyncRunHandle), (WebhookClient, SyncWebhookClient)]
)
def test_the_surface_is_that_of_the_async_client(kind: type[Any], sync: type[Any]) -> None:
    names = {name for name in dir(kind) if not name.startswith("_")} | set(getattr(kind, "__annotations__", {}))
    names -= WITHOUT[kind]
    made = inspect.getsource(sync)
    for name in names:
        one, other = getattr(kind, name, None), getattr(sync, name, None)
        if one is None or isinstance(one, property):
            assert other is not None or f"self.{name} = " in made, name
        else:
            assert parameters(one) == parameters(other), name
            assert other.__doc__, name
            assert one.__doc__ == other.__doc__ or name in sync_source.BY_HAND, "editors show it"


def test_connect_takes_the_same_parameters() -> None:
    assert [*inspect.signature(connect_sync).parameters] == [*inspect.signature(connect).parameters]


def test_a_run_from_its_start_to_its_end(client: SyncClient) -> None:
    run = client.start(flows.greet, "ana", times=2)
    assert run.result(PATIENCE) == flows.Greeting(text="hello ana hello ana ", letters=20)
    assert (run.workflow, run.created, repr(run)) == ("greet", True, f"<run {run.id} of greet>")
    assert client.get(run.id).status().run == client.get(flows.greet, run.id).detail().run == run.id
    assert next(run.events()).number == 1
    assert client.runs(q=run.id, limit=1).runs[0].run == run.id
    assert next(iter(client.follow(run.id))).startswith("{"), "an iteration may stop early"
    told = client.start(flows.narrate)
    updates = told.updates()
    assert not isinstance(next(updates), RunDelta) and told.signal("go", {"text": "hi"}, signal_id="s")
    assert "".join(each.text for each in updates if isinstance(each, RunDelta)) == "hi "
    assert isinstance(next(client.updates(told.id)), str)
    order = client.start("order", {"supplier": "acme"}, key="sync-1")
    assert order.signal("offer", {"cents": 5}, signal_id="s") and not order.signal("offer", {"cents": 5}, signal_id="s")
    order.cancel("no longer")
    with pytest.raises(RunCancelled):
        order.result(PATIENCE)
    assert client.webhooks.list() == []
    with pytest.raises(NotFound):
        client.get("r9").detail()


def test_several_threads_use_one_client(client: SyncClient) -> None:
    def begin(n: int) -> str:
        run = client.start(flows.greet, f"thread {n % 4}")
        assert run.result(PATIENCE).text == f"hello thread {n % 4} "
        return run.id

    def same(n: int) -> str:
        return client.start(flows.greet, {"name": "one"}, key="threads").id

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(begin, range(16)))) == 16
        assert len(set(threads.map(same, range(16)))) == 1


def test_a_timeout_ends_a_call_and_leaves_the_client_usable(client: SyncClient) -> None:
    run = client.start(flows.orders, {"supplier": "slow"})
    with pytest.raises(WaitTimeout):
        run.result(0.05)
    assert run.status().run == run.id
    run.cancel("enough")


def test_a_call_from_a_running_loop_blocks_it_and_works(client: SyncClient) -> None:
    async def inside() -> str:
        return client.start(flows.greet, "loop").result(PATIENCE).text

    assert asyncio.run(inside()) == "hello loop "


def test_a_call_in_the_loop_of_the_client_is_refused(client: SyncClient) -> None:
    async def inside() -> None:
        client.runs()

    with pytest.raises(Misplaced, match="its own event loop"):
        client._loop.run(inside)


def test_a_closed_client_is_refused(tmp_path: Path) -> None:
    client = outlast.connect_sync(f"sqlite:{tmp_path / 'x.db'}")
    before = threading.active_count()
    client.close()
    client.close()
    assert threading.active_count() < before
    with pytest.raises(Misplaced, match="closed"):
        client.runs()


@contextmanager
def program(code: str, url: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program that uses a client of this store. It is killed if it has not ended by itself."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OUTLAST_STORE": url}
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


FORK = """
import os, outlast
from outlast.errors import Misplaced
client = outlast.connect_sync()
if os.fork() == 0:
    try:
        client.runs()
    except Misplaced as error:
        print(error.what, flush=True)
        with outlast.connect_sync() as own:
            own.runs()
        client.close()
        os._exit(0)
    os._exit(1)
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""
INTERRUPT = """
import asyncio, outlast, threading
from tests.client import flows, sync_source
async def until(tasks):  # besides itself and the one that keeps the loop open
    while len(asyncio.all_tasks()) - 2 != tasks:
        await asyncio.sleep(0)
def tell():
    client._loop.run(lambda: until(1))
    print("waiting", flush=True)
with outlast.connect_sync() as client:
    run = client.start(flows.orders, {"supplier": "acme"})
    try:
        threading.Thread(target=tell).start()
        run.result()
    except KeyboardInterrupt:
        client._loop.run(lambda: until(0))  # the wait is cancelled
        print("interrupted", run.status().status, flush=True)
"""
UNCLOSED = """
import outlast
client = outlast.connect_sync()
print(len(client.runs().runs))
"""


def test_a_forked_client_is_refused(tmp_path: Path) -> None:
    with program(FORK, f"sqlite:{tmp_path / 'x.db'}") as process:
        out, _ = process.communicate(timeout=60)
    assert out.splitlines() == ["this client was made in another process", "0"]


def test_ctrl_c_ends_a_wait(tmp_path: Path) -> None:
    with program(INTERRUPT, f"sqlite:{tmp_path / 'x.db'}") as process:
        assert process.stdout is not None and process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert (out, process.returncode) == ("interrupted queued\n", 0)


def test_a_program_ends_without_closing(tmp_path: Path) -> None:
    with program(UNCLOSED, f"sqlite:{tmp_path / 'x.db'}") as process:
        assert process.communicate(timeout=60)[0] == "0\n" and process.returncode == 0
