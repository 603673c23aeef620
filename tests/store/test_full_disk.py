"""A full or read-only disk: reading commands work, errors name the disk, and work resumes with space."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from outlast.cli import cli
from outlast.core.rows.run_rows import RUN
from outlast.errors import Unavailable
from outlast.runtime.stores import open_store
from outlast.store.port import Store
from outlast.telemetry.logs import Outage
from tests import forked
from tests.cli.conftest import MODULE
from tests.conformance.subject import HandClock, run_row, start

BYTES = 40 * 1024 * 1024
PATIENCE_S = 60.0
READING = (("doctor",), ("runs", "ls"), ("fsck", "--chain"), ("runs", "show", "run-1"))


class Disk:
    """A small file system for one test."""

    def __init__(self, at: Path) -> None:
        self.at = at
        self.store = at / "s.db"
        self.url = f"sqlite:{self.store}"
        self._stone = at / "stone"

    def fill(self) -> None:
        with suppress(OSError), self._stone.open("ab", 0) as file:
            while True:
                file.write(bytes(4096))

    def free(self) -> None:
        self._stone.unlink()

    def remount(self, how: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{how}", self.at], check=True)

    def outlast(self, *words: str) -> Result:
        return CliRunner().invoke(cli, ["--store", self.url, *words])

    def read(self, but: str = "") -> None:
        """Assert that every reading command finds the run."""
        for command in READING:
            if but in command:
                continue
            said = self.outlast(*command)
            assert said.exit_code == (1 if command == ("doctor",) else 0), (command, said.output, said.exception)
            assert "OUT-" not in said.output


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """Mount a tmpfs for one test."""
    at = tmp_path / "small"
    at.mkdir()
    if os.getuid() or not sys.platform.startswith("linux") or not shutil.which("mount"):
        pytest.skip("mounting a small file system takes root on Linux")
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={BYTES}", "none", at], check=True)
    try:
        yield Disk(at)
    finally:
        subprocess.run(["umount", "-l", at], check=True)


async def refused(store: Store) -> Unavailable:
    """Commit until the first refusal and return it. Earlier commits fill the rest of the file."""
    for n in range(2, 10_000):
        try:
            await store.commit(start(run_row(f"run-{n}")))
        except Unavailable as error:
            return error
    raise AssertionError("the disk takes everything")


def made(disk: Disk, run: str = "run-1") -> None:
    said = disk.outlast("run", f"{MODULE}:refund", "order_id=A-1", "cents=1", "--id", run)
    assert said.exit_code == 0, said.output


@pytest.mark.req("RT-5", "RUN-3")
def test_a_full_disk_is_named_and_a_commit_after_it_lands(disk: Disk) -> None:
    made(disk)

    async def live() -> None:
        store = await open_store(disk.url)
        disk.fill()
        error = await refused(store)
        assert "its disk is full" in error.what and "free some space" in error.fix
        assert await store.rows(RUN, ()), "what is there is read"
        await asyncio.to_thread(disk.read, but="fsck")  # these rows are no whole runs
        said = await asyncio.to_thread(disk.outlast, "dispatcher")
        assert said.exit_code == 7 and "the disk is full" in said.output
        disk.free()
        await store.commit(start(run_row("run-0")))
        await store.close()

    asyncio.run(live())


@pytest.mark.req("RT-5")
def test_commands_that_read_need_no_space_and_no_process(disk: Disk) -> None:
    """After a clean stop there is no log, so the file alone is read. After a kill the log is read, too."""
    made(disk)
    disk.fill()
    disk.read()
    assert not Path(f"{disk.store}-wal").exists() or not Path(f"{disk.store}-wal").stat().st_size
    disk.free()
    killed = forked.Popen(["tests.store.test_full_disk", disk.url, "run-2"], stdout=subprocess.PIPE)
    assert killed.stdout is not None and killed.stdout.readline()
    killed.kill()
    killed.communicate()
    assert (disk.at / "s.db-wal").stat().st_size > 0
    disk.fill()
    disk.read(but="fsck")
    assert "run-2" in disk.outlast("--tenant", "acme", "runs", "ls").output, "the log's commits are not left out"


@pytest.mark.req("RT-5")
def test_commands_that_read_work_on_a_read_only_disk(disk: Disk) -> None:
    made(disk)
    (disk.at / "s.db.lock").unlink()
    disk.remount("ro")
    disk.read()
    said = disk.outlast("dispatcher")
    assert said.exit_code == 7 and "read only" in said.output
    disk.remount("rw")


@pytest.mark.req("RT-5")
def test_a_worker_logs_a_full_disk_once_and_its_end_once(disk: Disk) -> None:
    log = disk.at.parent / "worker.log"
    line = ("outlast", "--store", disk.url, "worker", "tests.e2e.flows", "--heartbeat-window", "900ms")
    with log.open("wb") as file:
        worker = forked.Popen([*line, "--heartbeat-every", "200ms"], stdout=file, stderr=file)
    try:
        when(lambda: "serves" in log.read_text())
        disk.fill()
        when(lambda: "its disk is full" in log.read_text())
        time.sleep(1.0)  # five renewals fail: the length of the outage is the condition
        disk.free()
        when(lambda: "is available again" in log.read_text() or "continues as" in log.read_text())
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE_S) == 0
    finally:
        worker.kill()
    said = log.read_text()
    assert said.count("starting no new work") == 1 and said.count("is available again") <= 1, said
    assert "free some space" in said and "Traceback" not in said


def test_an_outage_ends_when_a_commit_lands(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage("worker w", HandClock())
    outage.met("could not renew its lease", Unavailable("its disk is full"))
    outage.answered()
    assert "is available again" not in caplog.text
    outage.landed()
    outage.met("could not renew its lease", Unavailable("its disk is full"))
    outage.answered()
    assert "is available again" not in caplog.text and caplog.text.count("starting no new work") == 1
    outage.landed()
    outage.answered()
    assert caplog.text.count("is available again") == 1


def when(true: Callable[[], object]) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < give_up
        time.sleep(0.05)


async def commit_and_wait(url: str, run: str) -> None:
    store = await open_store(url)
    await store.commit(start(run_row(run)))
    sys.stdout.write("landed\n")
    sys.stdout.flush()
    await asyncio.sleep(PATIENCE_S)


if __name__ == "__main__":
    asyncio.run(commit_and_wait(*sys.argv[1:]))
