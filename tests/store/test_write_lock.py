"""Warnings about a write lock that another process holds for long."""

import fcntl
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.store.sqlite import write_lock
from outlast.store.sqlite.write_lock import WriteLock

PATIENCE_S = 60.0


class Looks:
    """The pauses of the watching thread, which the test ends one by one."""

    def __init__(self) -> None:
        self._paused, self._go = threading.Semaphore(0), threading.Semaphore(0)

    def pause(self, seconds: float) -> None:
        """Replace `sleep` of the watching thread."""
        self._paused.release()
        assert self._go.acquire(timeout=PATIENCE_S)

    def begun(self) -> None:
        """Wait until a thread waits for the lock and is watched."""
        assert self._paused.acquire(timeout=PATIENCE_S)

    def look(self, *, last: bool = False) -> None:
        """Let the watching thread check once. With `last`, it finds no wait and ends."""
        self._go.release()
        if not last:
            self.begun()


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    found = Looks()
    monkeypatch.setattr(write_lock, "sleep", found.pause)
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


@pytest.fixture
def holder(path: Path) -> Iterator[WriteLock]:
    found = WriteLock(path)
    yield found
    found.close()


def waiting(mine: WriteLock) -> threading.Thread:
    """Start a thread that takes the lock and releases it at once."""

    def want() -> None:
        with mine:
            pass

    thread = threading.Thread(target=want)
    thread.start()
    return thread


def over(thread: threading.Thread) -> None:
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_a_long_wait_and_its_end_are_logged_once(
    path: Path, holder: WriteLock, looks: Looks, caplog: pytest.LogCaptureFixture
) -> None:
    mine = WriteLock(path)
    for _ in range(2):  # once per wait
        caplog.clear()
        with holder:
            thread = waiting(mine)
            looks.begun()
            looks.look()
            looks.look()
            (said,) = caplog.messages
            assert said.startswith(f"waiting to write to {path}: ") and "process" in said
        over(thread)
        assert caplog.messages == [said, f"{path} can be written to again"]
        looks.look(last=True)
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    mine.close()


def test_short_waits_are_not_logged(
    path: Path, holder: WriteLock, looks: Looks, caplog: pytest.LogCaptureFixture
) -> None:
    mine = WriteLock(path)
    with holder:
        thread = waiting(mine)
        looks.begun()
    over(thread)
    with holder:  # the next look meets another wait
        thread = waiting(mine)
        while mine._wait is None:
            thread.join(0.001)
        looks.look()
    over(thread)
    looks.look(last=True)
    assert caplog.messages == []
    mine.close()


def test_the_holder_of_the_lock_is_named_if_the_system_knows(
    path: Path, looks: Looks, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, file = WriteLock(path), os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT)
    of = os.fstat(file)
    this = f"{os.major(of.st_dev):02x}:{os.minor(of.st_dev):02x}:{of.st_ino}"
    locks = path.with_name("locks")
    locks.write_text(
        f"1: POSIX  ADVISORY  WRITE 11 {this} 0 EOF\n2: FLOCK  ADVISORY  WRITE 12 {this}0 0 EOF\n"
        f"3: FLOCK  ADVISORY  WRITE 13 {this} 0 EOF\n3: -> FLOCK  ADVISORY  WRITE 14 {this} 0 EOF\n"
    )
    for there, named in ((locks, "process 13"), (path.with_name("nothing"), "another process")):
        monkeypatch.setattr(write_lock, "LOCKS", there)
        caplog.clear()
        fcntl.flock(file, fcntl.LOCK_EX)
        thread = waiting(mine)
        looks.begun()
        looks.look()
        fcntl.flock(file, fcntl.LOCK_UN)
        over(thread)
        looks.look(last=True)
        assert f": {named} has held the lock" in caplog.messages[0]
    os.close(file)
    mine.close()
