"""The count of results beside each status is the number of rows, at every poll, while a worker emits and is killed."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast.upkeep.fsck import Fsck
from tests import forked
from tests.e2e.flows import NEW, ROUNDS
from tests.e2e.helpers import GIVE_UP_S, ROOT, Installation, installation, when
from tests.frozen import freeze
from tests.service.conftest import Running, Service

POLLS, KILLED_AT = 7, (3, 5)


@pytest.fixture
def s(tmp_path: Path) -> Iterator[Installation]:
    with installation(tmp_path) as opened:
        yield opened


@pytest.fixture
def service(s: Installation) -> Iterator[Service]:
    with Running(s.url, [], worker=False) as running:
        yield running


def rows_over_http(service: Service) -> list[dict[str, Any]]:
    """Fetch every page of results. Each page has the same count."""
    found: list[dict[str, Any]] = []
    counts = set()
    while True:
        after = found[-1]["ordinal"] if found else 0
        page = service.get(f"/v1/runs/r1/results?limit=1000&after={after}").json()
        found += page["results"]
        counts.add(page["count"])
        if not page["next_cursor"]:
            assert counts == {len(found)}
            return found


def in_cli(url: str, *words: str) -> Any:
    process = forked.Popen(
        ["outlast", "--store", url, "-o", "json", *words], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    said, _ = process.communicate(timeout=GIVE_UP_S)
    return json.loads(said)


def counts(s: Installation, service: Service, *, everywhere: bool) -> dict[str, int]:
    """Return the count of results that each status shows."""
    with outlast.connect_sync(service.url) as client:
        handle = client.get("r1")
        shown = {
            "HTTP list": service.get("/v1/runs").json()["runs"][0]["results"],
            "HTTP detail": service.get("/v1/runs/r1").json()["results"],
            "HTTP explain": service.get("/v1/runs/r1/explain").json()["results"],
            "handle status": handle.status().results,
            "handle detail": handle.detail().results,
        }
    if everywhere:
        shown |= {
            "CLI list": in_cli(s.url, "runs", "ls")["runs"][0]["results"],
            "CLI show": in_cli(s.url, "runs", "show", "r1")["results"],
            "CLI explain": in_cli(s.url, "explain", "r1")["results"],
            "CLI results": in_cli(s.url, "runs", "results", "r1")["count"],
        }
    return shown


@pytest.mark.req("OUT-5", "OUT-7", "RUN-7")
def test_the_count_beside_a_status_is_the_number_of_rows_at_every_poll(s: Installation, service: Service) -> None:
    s.do(lambda ops: ops.start_run("harvest", {}, run_id="r1", key="r1"))
    assert set(counts(s, service, everywhere=False).values()) == {0} and rows_over_http(service) == []
    worker, seen = s.hire(), [0]
    for n in range(1, POLLS + 1):
        when(lambda: s.do(lambda ops: ops.rows.count_results("r1")) > seen[-1], s.said)
        if n in KILLED_AT:
            worker.kill()
            assert worker.wait(GIVE_UP_S) == -signal.SIGKILL
        else:
            freeze(worker, s.folder / "outlast.db")
        seen.append(len(rows_over_http(service)))
        shown = counts(s, service, everywhere=n in KILLED_AT)
        assert shown == dict.fromkeys(shown, seen[-1])
        if n in KILLED_AT:
            worker = s.hire()
        else:
            worker.send_signal(signal.SIGCONT)
    when(lambda: service.get("/v1/runs/r1").json()["ended_at"], s.said)
    rows = rows_over_http(service)
    assert set(counts(s, service, everywhere=True).values()) == {len(rows)} == {ROUNDS * NEW}
    assert [row["key"] for row in rows] == [f"row/{i}" for i in range(ROUNDS * NEW)]
    assert seen == sorted(set(seen)) and seen[-1] < len(rows)
    assert s.do(lambda ops: Fsck(ops.store).look()).findings == ()
