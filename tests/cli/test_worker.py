"""`outlast worker` as a real process: output, stop, and takeover after its death."""

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import MODULE, PATIENCE_S, SHORT_OPTIONS, Terminal, eventually
from tests.frozen import freeze

SOON_S = 15.0
"""Below the grace of a worker that waits for its calls (25 s)."""


def calls(outlast: Terminal) -> Callable[[], list[str]]:
    """Return the recorded calls, line by line."""
    log = outlast.folder / "calls"
    return lambda: log.read_text(encoding="utf-8").splitlines() if log.exists() else []


def test_a_worker_prints_its_workflows_and_its_lease(outlast: Terminal) -> None:
    process = outlast.spawn("worker", MODULE, "--heartbeat-window", "2s", "-c", "3")
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(3)]
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert "serves refund@1 · store sqlite:" in lines[0]
    assert "heartbeat window  2s, renewed every 0.7s" in lines[1]
    assert "attempt timeout" in lines[2] and "= 600 s" in lines[2]


def test_runs_in_memory_are_not_called_safe(outlast: Terminal) -> None:
    process = outlast.spawn("worker", MODULE, "--store", "memory:")
    assert process.stdout is not None and "store memory:" in process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0 and "its runs are gone" in err and "safe" not in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_stops_with_a_sentence(outlast: Terminal, number: signal.Signals) -> None:
    process = outlast.worker()
    assert "serving refund@1 0 of 100" in " ".join(outlast("workers", "ls").out.split())
    process.send_signal(number)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert "Every run is safe in" in err and f"continues with: outlast worker {MODULE}" in err
    assert "Traceback" not in err
    assert "no worker serves this store" in outlast("workers", "ls").out
    assert "gone" in outlast("workers", "ls", "--all").out


@pytest.mark.req("FAIL-2")
def test_a_stopping_worker_gives_back_its_runs(outlast: Terminal) -> None:
    process = outlast.worker(REFUND_SLOW="1", REFUND_LOG=str(outlast.folder / "calls"))
    outlast.start()
    eventually(calls(outlast))  # the call is under way
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0 and "1 runs are given back" in err
    view = outlast.see()
    assert view["owner"] == "" and view["takeovers"] == []
    outlast.approval()
    assert calls(outlast)() == ["open A-17"]


def test_a_second_ctrl_c_leaves_at_once(outlast: Terminal) -> None:
    process = outlast.worker("--drain-grace", "60s", REFUND_SLOW="60", REFUND_LOG=str(outlast.folder / "calls"))
    outlast.start()
    eventually(calls(outlast))
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert any("Ctrl-C again exits at once" in line for line in iter(process.stderr.readline, ""))
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130 and "Traceback" not in err


@pytest.mark.req("REC-1", "RT-2")
def test_another_worker_takes_over_from_one_that_was_killed(outlast: Terminal) -> None:
    log = str(outlast.folder / "calls")
    first = outlast.worker("--attempt-timeout", "2s", REFUND_SLOW="60", REFUND_LOG=log)
    outlast.start()
    eventually(calls(outlast))
    first.kill()
    assert first.wait() == -signal.SIGKILL
    outlast.worker(REFUND_LOG=log)
    view = eventually(lambda: (v := outlast.see())["shown"] == "PENDING_APPROVAL" and v)
    (takeover,) = view["takeovers"]
    assert takeover["node"] == "check" and takeover["from"] != takeover["to"] and takeover["after_ms"] >= 0
    page = outlast("runs", "show", "r1").out
    assert "crashes      1" in page and f"check, 1st visit: {takeover['from']} → {takeover['to']}" in page
    assert "executed, called again ×1" in outlast("runs", "effects", "r1").row("open_case")
    assert calls(outlast)() == ["open A-17", "open A-17"]


@pytest.mark.req("RT-2")
def test_two_workers_on_one_file_share_the_work(outlast: Terminal) -> None:
    log = str(outlast.folder / "calls")
    workers = [outlast.worker(REFUND_LOG=log) for _ in range(2)]
    runs = [outlast.start(order_id=f"o{n}", run=f"r{n}") for n in range(12)]

    def asking() -> bool:
        return len(outlast("approvals", "ls", "-o", "json").json["approvals"]) == len(runs)

    eventually(asking)
    assert sorted(calls(outlast)()) == sorted(f"open o{n}" for n in range(12))
    for process in workers:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0


@pytest.mark.req("REC-3", "REC-5")
def test_a_replaced_worker_continues_under_a_new_id(outlast: Terminal) -> None:
    asleep = outlast.worker()
    (old,) = serving(outlast)
    freeze(asleep, outlast.folder / "refunds.db")
    outlast.worker()
    eventually(lambda: len(serving(outlast)) == 1 and old not in serving(outlast))
    asleep.send_signal(signal.SIGCONT)
    eventually(lambda: len(serving(outlast)) == 2)
    (new,) = [each for each in serving(outlast) if each.startswith(f"w-{asleep.pid}-")]
    assert new != old, "a closed id never serves again"
    asleep.send_signal(signal.SIGTERM)
    _, err = asleep.communicate(timeout=PATIENCE_S)
    assert asleep.returncode == 0
    assert f"{old} lost its lease and was replaced" in err and f"continues as {new}" in err
    assert "Traceback" not in err


def serving(outlast: Terminal) -> list[str]:
    return [each["worker"] for each in outlast("workers", "ls", "-o", "json").json["workers"]]


@pytest.mark.req("REC-5")
def test_the_list_shows_how_each_worker_is(outlast: Terminal) -> None:
    process = outlast.worker("-c", "7", "--name", "blue")
    eventually(lambda: outlast("workers", "ls", "-o", "json").json["workers"][0]["heartbeat_ago_ms"] < 300)
    (view,) = outlast("workers", "ls", "-o", "json").json["workers"]
    assert (view["pid"], view["concurrency"], view["free"], view["state"]) == (process.pid, 7, 7, "serving")
    assert 0 < view["lease_left_ms"] <= 3_000 and view["loop_late_ms"] >= 0 and view["host"] and view["version"]
    row = outlast("workers", "ls").row(view["worker"])
    assert "blue serving refund@1 0 of 7" in row and f"{process.pid}@{view['host']}" in row and " left " in row
    process.kill()
    process.wait()
    eventually(lambda: "silent: its runs are taken over" in outlast("workers", "ls", "--all").out)


def test_a_run_without_a_worker_for_its_workflow_is_reported_at_once(outlast: Terminal) -> None:
    module = Path("other.py")
    module.write_text(
        "from pydantic import BaseModel\nfrom outlast import Context, Workflow\n"
        "class S(BaseModel):\n    n: int\nother = Workflow('other', state=S)\n"
        "@other.node(start=True)\nasync def go(ctx: Context[S]) -> None:\n    pass\n"
    )
    outlast.worker()
    started = outlast("run", "other.py:other", "n=1", "--id", "o1")
    assert started.code == 0 and "no worker serves other; start one: outlast worker other.py" in started.err
    assert "no worker serves other@1" in outlast("runs", "ls").out
    assert "no worker serves other@1" in outlast("runs", "show", "o1").out
    assert "no live worker serves other@1" in outlast("explain", "o1").out


def test_a_worker_without_a_module_is_a_usage_error(outlast: Terminal) -> None:
    assert outlast("worker", env={"OUTLAST_MODULE": ""}).code == 2


def test_a_worker_on_a_store_that_cannot_be_opened(outlast: Terminal) -> None:
    process = outlast.spawn("worker", MODULE, *SHORT_OPTIONS, "--store", "sqlite:nowhere/a.db")
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 7 and "the folder nowhere does not exist" in err and "Traceback" not in err


def test_an_authors_exception_in_the_log_does_nothing_to_a_terminal(outlast: Terminal) -> None:
    module = Path("evil.py")
    module.write_text(
        "from pydantic import BaseModel\nfrom outlast import Context, Workflow\n"
        "class S(BaseModel):\n    n: int\n"
        "evil = Workflow('evil', state=S)\n"
        "@evil.node(start=True)\nasync def go(ctx: Context[S]) -> None:\n    raise RuntimeError('\\x1b[2J')\n"
    )
    process = outlast.spawn("worker", "evil.py", *SHORT_OPTIONS)
    assert outlast("run", "evil.py:evil", "n=1", "--id", "r1").code == 0
    eventually(lambda: outlast.see()["attention"])
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert "\x1b" not in err and "\\x1b[2J" in err


@pytest.mark.req("RUN-3")
@pytest.mark.parametrize("end", ["", "-wal"])
def test_every_process_ends_when_its_store_is_deleted(outlast: Terminal, end: str) -> None:
    """Within two seconds, with exit code 4 and one sentence; a call under way is not waited for."""
    outlast.start()
    processes = [outlast.worker(REFUND_SLOW="1", REFUND_LOG=str(outlast.folder / "calls"))]
    if not end:
        processes += [
            outlast.spawn("dispatcher"),
            outlast.spawn("serve", "--port", "0", "--no-worker"),
            outlast.spawn("serve", "--port", "0", "--processes", "2", "--no-dispatcher"),
        ]
    for process in processes[1:]:
        assert process.stdout is not None and process.stdout.readline()
    eventually(calls(outlast))
    Path(f"{outlast.folder / 'refunds.db'}{end}").unlink()
    began = time.monotonic()
    for process in processes:
        _, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 4 and err.count("OUT-506  ") == 1, (process.args, process.returncode, err)
        assert f"refunds.db{end} was deleted" in err and "tart" in err and "Traceback" not in err, err
        assert "cannot" not in err and "answers again" not in err, err
    assert time.monotonic() - began < SOON_S
    if end:  # the log's commits were copied into the file
        assert outlast("fsck", "--chain").code == 0 and outlast.see()["effects"]
    else:  # a supervisor starts the worker again
        again = outlast.spawn("worker", MODULE, *SHORT_OPTIONS)
        _, err = again.communicate(timeout=PATIENCE_S)
        assert again.returncode == 7 and "was deleted or moved" in err and "Traceback" not in err, err
        assert not (outlast.folder / "refunds.db").exists()
