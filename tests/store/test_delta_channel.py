"""Sockets of listeners beside a SQLite file: made, found, cleaned up, and never waited for."""

import asyncio
import socket
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from outlast.core.state.delta_packets import Delta, DeltaOrigin
from outlast.store import delta_channel
from outlast.store.delta_channel import FOLDER, FileDeltas

HERE = DeltaOrigin("t", "r", "write", 1, 1, "", 0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "outlast.db"


def folder_of(path: Path) -> Path:
    return Path(f"{path}{FOLDER}")


def in_loop(test: Callable[[Path], Coroutine[Any, Any, None]]) -> Callable[[Path], None]:
    """Run a test in an event loop."""

    def run(path: Path) -> None:
        asyncio.run(test(path))

    return run


async def heard(channel: FileDeltas, sender: FileDeltas, text: str) -> str:
    """Return what a listener hears of a text."""
    found, news = list[str](), asyncio.Event()

    def hear(deltas: Sequence[Delta]) -> None:
        found.extend(each.text for each in deltas)
        news.set()

    end = channel.subscribe(hear)
    sender.publish([Delta(HERE, text)])
    async with asyncio.timeout(20):
        await news.wait()
    end()
    return "".join(found)


@in_loop
async def test_a_listener_leaves_nothing_behind(path: Path) -> None:
    a, b = FileDeltas(str(path), "a"), FileDeltas(str(path), "b")
    a.publish([Delta(HERE, "nobody")])
    assert not folder_of(path).exists()
    assert await heard(b, a, "text") == await heard(a, a, "text") == "text"
    assert not folder_of(path).exists()
    a.close()


@in_loop
async def test_a_long_path_works(path: Path) -> None:
    deep = path.parent / ("x" * 120)
    deep.mkdir()
    a, b = FileDeltas(str(deep / "outlast.db"), "a"), FileDeltas(str(deep / "outlast.db"), "b")
    assert await heard(b, a, "text") == "text"
    a.close()


@in_loop
async def test_the_socket_of_a_killed_listener_is_removed(path: Path) -> None:
    folder_of(path).mkdir(mode=0o700)
    dead = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    dead.bind(str(folder_of(path) / "dead.1"))
    dead.close()
    a, b = FileDeltas(str(path), "a"), FileDeltas(str(path), "b")
    assert await heard(b, a, "text") == "text"
    assert not folder_of(path).exists()
    a.close()


@in_loop
async def test_a_listener_that_does_not_read_is_not_waited_for(path: Path) -> None:
    folder_of(path).mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stopped:
        stopped.bind(str(folder_of(path) / "stopped.1"))
        a, b = FileDeltas(str(path), "a"), FileDeltas(str(path), "b")
        for _ in range(2_000):
            a.publish([Delta(HERE, "x" * 1_000)])
        assert await heard(b, a, "text") == "text"
        a.close()


@in_loop
async def test_a_folder_that_others_may_write_is_not_used(path: Path) -> None:
    """Another user could put a socket into it and read the texts."""
    folder_of(path).mkdir()
    folder_of(path).chmod(0o770)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as foreign:
        foreign.bind(str(folder_of(path) / "foreign.1"))
        foreign.setblocking(False)
        a = FileDeltas(str(path), "a")
        assert await heard(a, a, "own") == "own", "within a process no socket is needed"
        with pytest.raises(BlockingIOError):
            foreign.recv(100)
        a.close()


@in_loop
async def test_garbage_is_ignored(path: Path) -> None:
    a, found = FileDeltas(str(path), "a"), list[Delta]()
    end = a.subscribe(found.extend)
    (name,) = folder_of(path).iterdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        for data in (b"", b"{}", b"\xff" * delta_channel.DATAGRAM_BYTES):
            other.sendto(data, str(name))
    b = FileDeltas(str(path), "b")
    b.publish([Delta(HERE, "text")])
    async with asyncio.timeout(20):
        while not found:  # noqa: ASYNC110 - the list has no event
            await asyncio.sleep(0)
    assert found == [Delta(HERE, "text")]
    end()
    b.close()
