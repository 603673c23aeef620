"""`outlast serve` and `outlast dev` as processes: the banner, Ctrl-C, and runs that survive restarts."""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests import forked
from tests.docs.pages import ROOT, blocks
from tests.docs.terminal import agrees

FLOWS = Path(__file__).with_name("flows.py")
PATIENCE_S = 60.0


@contextmanager
def outlast(folder: Path, *args: str, **env: str) -> Iterator["subprocess.Popen[str]"]:
    """Run the command in a new process group, killed at the end."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OUTLAST_")}
    process = forked.Popen(
        ["outlast", *args], cwd=folder, text=True, start_new_session=True, env={**clean, **env},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def banner(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """Return the banner that it prints once it serves (`-o ndjson`)."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate()
    said: dict[str, Any] = json.loads(line)
    return said


def eventually(look: Any) -> Any:
    """Poll until the predicate holds."""
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            if found := look():
                return found
        except httpx2.HTTPError:
            pass  # it is restarting
        assert time.monotonic() < end, "it did not become so"
        time.sleep(0.05)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "flows.py").write_text(FLOWS.read_text(encoding="utf-8"), encoding="utf-8")
    return tmp_path


def test_one_process_serves_and_executes_and_stops_at_ctrl_c(folder: Path) -> None:
    with outlast(folder, "-o", "ndjson", "serve", "flows.py", "--port", "0") as process:
        said = banner(process)
        assert (
            said["serves"] == ["refund@1", "job@1", "wish@1", "vault@1", "order@1", "call@1"]
            and said["dispatcher"]
            and not said["authentication"]
        )
        with httpx2.Client(base_url=said["url"], timeout=PATIENCE_S) as client:
            started = client.post("/v1/workflows/job/runs", json={"input": {"rounds": 3}})
            run = started.json()["run"]
            eventually(lambda: client.get(f"/v1/runs/{run}").json()["ended_at"])
            with client.stream("GET", "/v1/events", headers={"Accept": "text/event-stream"}) as stream:
                lines = stream.iter_lines()
                assert next(lines).startswith("retry")
                process.send_signal(signal.SIGINT)
                for _ in lines:
                    pass  # the stream ends with the service
        _, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
        assert (
            "Stopped. Every run is safe" in err and "outlast serve flows.py --port 0" in err and "Traceback" not in err
        )


def test_other_addresses_need_credentials(folder: Path) -> None:
    for args in (("serve", "flows.py", "--host", "0.0.0.0"), ("serve", "--host", "::")):
        with outlast(folder, *args, "--port", "0") as process:
            _, err = process.communicate(timeout=PATIENCE_S)
            assert process.returncode == 2 and "without authentication" in err and "→" in err


def test_its_parts_can_be_left_out(folder: Path) -> None:
    with outlast(
        folder, "-o", "ndjson", "serve", "flows.py", "--port", "0", "--no-worker", "--no-dispatcher"
    ) as process:
        said = banner(process)
        assert (said["worker"], said["dispatcher"]) == ("", False)
        answer = httpx2.post(f"{said['url']}/v1/workflows/job/runs", json={"input": {"rounds": 1}})
        assert answer.status_code == 201 and answer.json()["served"] is False
        run = answer.json()["run"]
        with outlast(folder, "-q", "worker", "flows.py"):
            eventually(lambda: httpx2.get(f"{said['url']}/v1/runs/{run}", verify=False).json()["ended_at"])
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0


def test_a_used_port_is_reported_in_one_sentence(folder: Path) -> None:
    with outlast(folder, "-o", "ndjson", "serve", "flows.py", "--port", "0") as first:
        port = banner(first)["url"].rpartition(":")[2]
        with outlast(folder, "serve", "flows.py", "--port", port) as second:
            _, err = second.communicate(timeout=PATIENCE_S)
            assert second.returncode == 2 and "cannot listen on" in err and "Traceback" not in err


def test_dev_restarts_when_the_code_changes_and_the_run_continues(folder: Path) -> None:
    with outlast(folder, "dev", "flows.py", "--port", "0") as process:
        assert process.stdout is not None

        def url() -> str:
            while True:
                line = process.stdout.readline()  # type: ignore[union-attr]
                assert line, process.communicate()
                if match := re.match(r"outlast  (http://[^/]+)/ui/", line):
                    return match.group(1)

        first = url()
        run = httpx2.post(f"{first}/v1/workflows/wish/runs", json={"input": {"text": "?"}}).json()["run"]
        eventually(lambda: httpx2.get(f"{first}/v1/runs/{run}", verify=False).json()["status"] == "waiting")
        code = (folder / "flows.py").read_text(encoding="utf-8")
        changed = code.replace("ctx.state.text = said.text", 'ctx.state.text = f"changed: {said.text}"')
        assert changed != code
        (folder / "flows.py").write_text(changed, encoding="utf-8")
        second = url()
        answer = httpx2.post(
            f"{second}/v1/runs/{run}/signals/said", json={"payload": {"text": "hi"}}, timeout=PATIENCE_S
        )
        assert answer.status_code == 202
        body = eventually(lambda: (b := httpx2.get(f"{second}/v1/runs/{run}", verify=False).json())["ended_at"] and b)
        assert body["outcome"]["text"] == "changed: hi"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE_S)
        assert "flows.py changed: restarted" in err and "Traceback" not in err


TRIP = """from pydantic import BaseModel

from outlast import Context, Workflow, activity


class State(BaseModel):
    said: str = ""


@activity(key="book/{room}", no_undo="the hotel keeps it")
def book(room: str) -> str:
    return rooms[room]


rooms = {"R-1": "the first"}
trips = Workflow("trip", state=State)


@trips.node(start=True)
async def only(ctx: Context[State]) -> None:
    ctx.state.said = await ctx.do(book, "R-2")
"""


@pytest.mark.req("EFF-3")
def test_dev_asks_at_once_about_a_call_with_a_bug_and_takes_no_for_an_answer(folder: Path) -> None:
    """The question is that of docs/dev.md. Both commands of it run as printed, the first one with a wrong answer."""
    (folder / "flows.py").write_text(TRIP, encoding="utf-8")
    (page,) = [block.body for block in blocks(ROOT / "docs" / "dev.md") if block.language == "text"]
    with outlast(folder, "-q", "dev", "flows.py", "--port", "0") as process:
        assert process.stderr is not None
        with outlast(folder, "run", "flows.py:trip", "--id", "trip-1") as starting:
            assert starting.wait(PATIENCE_S) == 0, starting.communicate()
        lines: list[str] = []
        for line in iter(process.stderr.readline, ""):
            if lines or line.startswith("trip-1 needs you"):
                lines.append(line.rstrip("\n"))
            if "sends nothing more" in line:
                break
        assert len(lines) == len(page.splitlines()) and agrees(page, "\n".join(lines), {}), lines
        commands = [line.partition("→ ")[2] for line in lines if "→" in line]
        (folder / "flows.py").write_text(TRIP.replace('"R-1"', '"R-2"'), encoding="utf-8")
        for command, response, code in ((commands[0], "7", 2), (commands[1], "", 0)):
            typed = ["H-1" if word == "ID" else response if word == "JSON" else word for word in shlex.split(command)]
            with outlast(folder, *typed[1:]) as answering:
                _, err = answering.communicate(timeout=PATIENCE_S)
                assert answering.returncode == code, (command, err)
        with outlast(folder, "runs", "tail", "trip-1") as waiting:
            assert waiting.wait(PATIENCE_S) == 0, waiting.communicate()


def test_dev_exits_if_a_change_of_the_code_would_not_help(folder: Path) -> None:
    with outlast(folder, "-o", "ndjson", "serve", "flows.py", "--port", "0") as first:
        port = banner(first)["url"].rpartition(":")[2]
        for args, code, said in (
            (("--port", port), 2, "cannot listen on"),
            (("--store", "sqlite:nowhere/o.db"), 7, "does not exist"),
            (("--url", "http://127.0.0.1:1"), 2, "needs the store itself"),
        ):
            with outlast(folder, "dev", "flows.py", *args) as process:
                _, err = process.communicate(timeout=PATIENCE_S)
                assert (process.returncode, said in err) == (code, True), err


def test_dev_passes_options_on_and_keeps_its_port(folder: Path) -> None:
    with outlast(folder, "dev", "flows.py", "--port", "0", "-o", "ndjson", "--tenant", "acme") as process:
        first = banner(process)["url"]
        with (folder / "flows.py").open("a", encoding="utf-8") as code:
            print("def broken(:", file=code)
        assert process.stderr is not None
        until = iter(process.stderr.readline, "")
        assert any("SyntaxError" in line for line in until) and any("save a file" in line for line in until)
        # No request came, because a connection in TIME_WAIT would keep the port as well.
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", int(first.rpartition(":")[2])))
        (folder / "flows.py").write_text(FLOWS.read_text(encoding="utf-8"), encoding="utf-8")
        assert banner(process)["url"] == first
        assert httpx2.get(f"{first}/v1/me", verify=False).json()["tenant"] == "acme"


SLOW = """
import threading
from pydantic import BaseModel
from outlast import Context, Workflow, activity
class Nap(BaseModel):
    n: int
naps = Workflow("nap", state=Nap)
@activity(key="nap/{n}", no_undo="it was only a nap")
def nap(n: int) -> None:
    print("asleep", flush=True)
    threading.Event().wait(3600)
@naps.node(start=True)
async def sleep(ctx: Context[Nap]) -> None:
    await ctx.do(nap, ctx.state.n)
"""


@pytest.mark.parametrize("command", ["serve", "dev"])
def test_the_first_ctrl_c_waits_and_the_second_exits(folder: Path, command: str) -> None:
    (folder / "slow.py").write_text(SLOW, encoding="utf-8")
    with outlast(folder, "-o", "ndjson", command, "slow.py", "--port", "0") as process:
        url = banner(process)["url"]
        httpx2.post(f"{url}/v1/workflows/nap/runs", json={"input": {"n": 1}}).raise_for_status()
        assert process.stdout is not None and process.stderr is not None
        assert any(line == "asleep\n" for line in iter(process.stdout.readline, ""))
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        assert any("Ctrl-C again exits at once" in line for line in iter(process.stderr.readline, ""))
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
