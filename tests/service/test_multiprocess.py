"""`outlast serve --processes N`: several processes on one port that stop together."""

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from outlast.service.identity import new_token
from outlast.service.identity.lockout import MOST
from tests.service.test_serve import FLOWS, PATIENCE_S, banner, eventually, outlast

STREAM = {"Accept": "text/event-stream"}
LISTENERS = 12
ARGS = ("-o", "ndjson", "serve", "flows.py", "--processes", "2", "--port", "0")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "flows.py").write_text(FLOWS.read_text(encoding="utf-8"), encoding="utf-8")
    return tmp_path


@contextmanager
def several(folder: Path, *more: str) -> Iterator[tuple["subprocess.Popen[str]", dict[str, Any]]]:
    with outlast(folder, *ARGS, *more) as process:
        yield process, banner(process)


def begun_by(pid: int) -> list[int]:
    """Return the living child processes."""
    return [int(stat.parent.name) for stat in Path("/proc").glob("[0-9]*/stat") if _parent(stat) == pid]


def _parent(stat: Path) -> int:
    try:
        state, parent = stat.read_text().rpartition(")")[2].split()[:2]
    except OSError:  # it has just ended
        return 0
    return 0 if state == "Z" else int(parent)


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_all_processes_use_the_store_of_the_command_line(folder: Path) -> None:
    elsewhere = {"OUTLAST_URL": "http://127.0.0.1:1"}
    with outlast(folder, "--store", "sqlite:named.db", *ARGS, **elsewhere) as process:
        said = banner(process)
        assert said["store"].endswith("named.db")
        run = httpx2.post(f"{said['url']}/v1/workflows/job/runs", json={"input": {"rounds": 1}}).json()["run"]
        eventually(lambda: httpx2.get(f"{said['url']}/v1/runs/{run}", verify=False).json()["ended_at"])


@pytest.mark.req("RT-2")
def test_a_run_of_one_process_is_served_by_all(folder: Path) -> None:
    with several(folder) as (process, said):
        assert said["processes"] == 2 and said["worker"] and said["dispatcher"]
        assert len(begun_by(process.pid)) == 2
        heard: list[bool] = []

        def listen() -> None:
            with httpx2.stream("GET", f"{said['url']}/v1/events", headers=STREAM, timeout=PATIENCE_S) as stream:
                lines = stream.iter_lines()
                next(lines)
                opened.release()
                heard.append(any("dev.outlast.workflow.completed" in line for line in lines))

        opened = threading.Semaphore(0)
        with ThreadPoolExecutor(LISTENERS) as pool:  # dealt out by the system: all at one process is one in 2 ** 11
            done = [pool.submit(listen) for _ in range(LISTENERS)]
            for _ in done:
                assert opened.acquire(timeout=PATIENCE_S)
            started = httpx2.post(f"{said['url']}/v1/workflows/job/runs", json={"input": {"rounds": 2}})
            assert started.status_code == 201
            for _ in range(LISTENERS):
                eventually(
                    lambda: httpx2.get(f"{said['url']}{started.headers['location']}", verify=False).json()["ended_at"]
                )
            for each in done:
                each.result(PATIENCE_S)
        assert heard == [True] * LISTENERS


def test_all_processes_stop_with_their_parent(folder: Path) -> None:
    with several(folder) as (process, said):
        children = begun_by(process.pid)
        with httpx2.stream("GET", f"{said['url']}/v1/events", headers=STREAM, timeout=PATIENCE_S) as stream:
            lines = stream.iter_lines()
            next(lines)
            process.send_signal(signal.SIGTERM)
            for _ in lines:
                pass
        _, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0 and "outlast serve flows.py --port 0 --processes 2" in err, err
        assert "Traceback" not in err and len(err.splitlines()) == 2, "one says that it stopped, not each"
        assert not any(is_there(each) for each in children)


def test_no_process_outlives_its_parent(folder: Path) -> None:
    with several(folder) as (process, _):
        children = begun_by(process.pid)
        process.kill()
        process.wait(PATIENCE_S)
        eventually(lambda: not any(is_there(each) for each in children))


def test_all_stop_if_one_dies_so_that_a_supervisor_can_restart_them(folder: Path) -> None:
    with several(folder) as (process, said):
        first, second = begun_by(process.pid)
        os.kill(first, signal.SIGKILL)
        _, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 70 and "has ended, so the service stops" in err, err
        assert not is_there(second)
        with outlast(folder, *ARGS[:-1], said["url"].rpartition(":")[2]) as again:
            assert banner(again)["url"] == said["url"]


def test_a_shared_port_counts_as_used(folder: Path) -> None:
    with several(folder) as (_, said):
        port = said["url"].rpartition(":")[2]
        for args in ((*ARGS[:-1], port), ("serve", "--port", port)):
            with outlast(folder, *args) as second:
                _, err = second.communicate(timeout=PATIENCE_S)
                assert second.returncode == 2 and "cannot listen on" in err, err


def test_a_memory_store_with_several_processes_is_refused(folder: Path) -> None:
    with outlast(folder, "--store", "memory:", *ARGS) as process:
        _, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 2 and "cannot be shared by processes" in err, err


def test_the_counters_of_the_worker_are_at_the_metrics_port(folder: Path) -> None:
    with several(folder, "--metrics-port", "0") as (_, said):
        run = httpx2.post(f"{said['url']}/v1/workflows/job/runs", json={"input": {"rounds": 1}}).json()["run"]
        eventually(lambda: httpx2.get(f"{said['url']}/v1/runs/{run}", verify=False).json()["ended_at"])
        assert "outlast_workflow_duration_seconds_count" in httpx2.get(said["metrics"], verify=False).text
        assert "outlast_workflow_duration_seconds_count" not in httpx2.get(f"{said['url']}/metrics", verify=False).text


@pytest.mark.req("GATE-2")
def test_a_guess_counts_in_every_process(folder: Path) -> None:
    """Twenty guesses in total, and a valid token is accepted by every process."""
    token, line = new_token("ana", tenant="default", roles=["viewer"], person=True)
    with outlast(folder, *ARGS, OUTLAST_AUTH__TOKENS=line) as process:
        url = f"{banner(process)['url']}/v1/workflows"

        def ask(given: str) -> int:
            return httpx2.get(url, headers={"Authorization": f"Bearer {given}"}, timeout=PATIENCE_S).status_code

        assert ask(token) == 200
        guesses = [ask(f"olt_guess-{n}") for n in range(3 * MOST)]  # each over a new connection, so to any process
        assert guesses == [401] * MOST + [429] * (2 * MOST)
        assert [ask(token) for _ in range(LISTENERS)] == [200] * LISTENERS
        assert len(begun_by(process.pid)) == 2
