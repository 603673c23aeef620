"""Audit: rows in the store, otherwise lines in the log (S32)."""

import asyncio
import json
import logging
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request

from outlast.core.rows.run_rows import MESSAGE
from outlast.runtime.execution_runtime import local_actor
from outlast.service import multiprocess, problems
from outlast.service.secured_route import _outcome
from outlast.telemetry.audit import TEXT_CHARS_MAX, audit, scalars
from outlast.telemetry.logs import json_formatter
from tests.security.server import Service
from tests.security.test_matrix import TABLE
from tests.service.conftest import Running

NEEDED = {"timestamp", "event", "operation", "tenant", "by", "at", "outcome"}


class Lines(logging.Handler):
    """Collect audit lines."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(json_formatter())
        self.all: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.all.append(json.loads(self.format(record)))

    def last(self, operation: str) -> dict[str, Any]:
        found = [line for line in self.all if line["operation"] == operation]
        assert found and set(found[-1]) >= NEEDED, (operation, self.all)
        return found[-1]


@pytest.fixture
def lines() -> Iterator[Lines]:
    logger, handler = logging.getLogger("outlast.audit"), Lines()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(before)


@pytest.mark.req("GATE-8")
def test_every_write_leaves_an_audit_line(service: Service, lines: Lines) -> None:
    """Also refused requests, for every route of the application."""
    for row in TABLE:
        if row["method"] != "GET":
            path = row["path"].replace("{", "").replace("}", "")
            with service.client("monitor") as client:
                answer = client.request(row["method"], path, json={})
            line = lines.last(row["operation"])
            assert (line["outcome"], line["by"], line["tenant"], line["at"]) == (403, "monitor", "acme", "127.0.0.1")
            assert line["request_id"] == answer.headers["X-Request-Id"] and line["refusal"] in ("role", "not_a_person")


@pytest.mark.req("GATE-8")
def test_a_decision_is_audited_with_both_versions(service: Service, lines: Lines) -> None:
    run, approval, tag = service.approval("audit")
    body = {"decision": "approve", "reason": "within budget, password=canary-Pass-77AQ"}
    with service.client("eve", **{"If-Match": tag}) as client:
        assert client.post(f"/v1/approvals/{approval}/decision", json=body).status_code == 403
    assert (lines.last("decide_approval")["by"], lines.last("decide_approval")["refusal"]) == ("eve", "role")
    with service.client("ana", **{"If-Match": tag}) as client:
        answer = client.post(f"/v1/approvals/{approval}/decision", json=body)
    line = lines.last("decide_approval")
    assert (line["outcome"], line["by"], line["roles"], line["person"]) == (200, "ana", ["approver", "finance"], True)
    assert (line["old"], line["new"]) == (tag, answer.headers["ETag"])
    assert line["asked"]["decision"] == "approve" and "canary" not in json.dumps(line)
    with service.client("ben", **{"If-Match": tag}) as client:
        late = client.post(f"/v1/approvals/{approval}/decision", json=body)
    line = lines.last("decide_approval")
    assert (line["by"], line["outcome"], line["refusal"]) == ("ben", late.status_code, late.json()["refusal"])
    assert late.json()["current"]["decided_by"] == "ana", "a refusal with the present state"
    row = service.do(service.operations().rows.approval(approval))
    assert (row.decided_by, row.claims, row.reason) == ("ana", ("approver", "finance"), body["reason"])
    notes = service.do(service.app.state.service.store.rows(MESSAGE, ("acme", run)))
    assert [(note.kind, note.actor) for note in notes] == [("decision", "ana")]


@pytest.mark.req("GATE-8")
def test_changes_of_webhooks_and_pauses_are_audited(service: Service, lines: Lines) -> None:
    with service.client("admin") as client:
        made = client.post("/v1/webhooks", json={"url": "https://93.184.216.34/hook?token=canary-Pass-77AQ"}).json()
        hook = f"/v1/webhooks/{made['webhook']}"
        answers = [client.post(f"{hook}/rotate", json={}), client.post(f"{hook}/disable", json={"reason": "noisy"}),
                   client.post(f"{hook}/enable"), client.delete(hook)]  # fmt: skip
    assert [answer.status_code for answer in answers] == [200] * 4
    assert answers[1].json()["changed_by"] == "admin" and answers[1].json()["why"] == "noisy"
    for operation in ("add_webhook", "rotate_webhook", "disable_webhook", "enable_webhook", "remove_webhook"):
        assert (lines.last(operation)["by"], lines.last(operation)["outcome"]) == (
            "admin",
            201 if "add" in operation else 200,
        )
    assert lines.last("disable_webhook")["asked"] == {"reason": "noisy"}
    assert made["webhook"] in lines.last("rotate_webhook")["path"]
    with service.client("admin") as client:
        wish = {"address": "ntfys://93.184.216.34/canary-topic", "role": "finance"}
        told = client.post("/v1/notifications", json=wish)
    assert told.status_code == 201 and told.json()["audience"] == "role:finance" and "canary" not in told.text
    assert lines.last("add_notification")["asked"]["role"] == "finance"
    assert "canary" not in json.dumps(lines.all) and made["secret"] not in json.dumps(lines.all)


@pytest.mark.req("GATE-8")
@pytest.mark.parametrize(
    ("body", "outcome", "refusal"),
    [
        (b"\xff\xfe{}", 422, "not_json"), (b"{", 422, "not_json"), (b'{"input": 7}', 422, ""),
        (b"[" * 70, 422, "too_deep"), (b"{}", 422, ""), (b'{"input": {}, "id": "\\u0000"}', 422, ""),
    ],
    ids=range(6),
)  # fmt: skip
def test_the_audit_line_has_the_answered_status(
    service: Service, lines: Lines, body: bytes, outcome: int, refusal: str
) -> None:
    """Refused by Outlast, or by the framework before."""
    with service.client("req", **{"Content-Type": "application/json"}) as client:
        answer = client.post("/v1/workflows/payment/runs", content=body)
    line = lines.last("start_run")
    assert (line["outcome"], line["refusal"]) == (answer.status_code, answer.json()["refusal"]) == (outcome, refusal)


@pytest.mark.req("GATE-8")
@pytest.mark.parametrize("status", [400, 404, 406, 413, 415, 418, 500])
def test_an_error_of_the_framework_is_audited_as_answered(status: int) -> None:
    """Errors raised by an operation use the same table."""
    error = HTTPException(status)
    answer = asyncio.run(problems.on_http(Request({"type": "http", "headers": []}), error))
    assert _outcome(error) == (answer.status_code, json.loads(bytes(answer.body))["refusal"])


@pytest.mark.req("GATE-8")
def test_an_incomplete_body_is_audited(service: Service, lines: Lines, caplog: pytest.LogCaptureFixture) -> None:
    """A disconnect is not a fault of the service, and nothing is executed."""
    host, port = service.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as gone:
        gone.sendall(
            b"POST /v1/workflows/listener/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"X-Request-Id: gone-1\r\nAuthorization: Bearer " + service.tokens["acme", "starter"].encode() +
            b"\r\nContent-Length: 1000\r\n\r\n{"
        )  # fmt: skip
    service.until(lambda: any(line["request_id"] == "gone-1" for line in lines.all))
    (line,) = [line for line in lines.all if line["request_id"] == "gone-1"]
    assert (line["operation"], line["outcome"], line["by"]) == ("start_run", 408, "starter")
    assert "gone-1" not in caplog.text


@pytest.mark.req("GATE-8")
def test_an_audit_line_has_no_content_and_no_long_text(lines: Lines) -> None:
    """Truncated texts, numbers and flags of the request, without user data."""
    asked = scalars({"reason": "y" * 5_000, "version": 3, "input": {"name": "ana"}, "to": ["a"], "none": None})
    assert asked == {"reason": "y" * TEXT_CHARS_MAX, "version": 3}
    assert [scalars(found) for found in (None, [1], "text", {})] == [{}] * 4
    audit("cancel", tenant="t", by="ana", at="192.0.2.1", outcome=200, path="/" + "x" * 5_000)
    assert len(lines.last("cancel")["path"]) == TEXT_CHARS_MAX


def test_audit_lines_ignore_the_log_level() -> None:
    program = """
import io, logging, os, sys
os.environ["OUTLAST_LOG_LEVEL"] = "ERROR"
from outlast.telemetry.audit import audit
from outlast.telemetry.logs import configure_logs
configure_logs(sys.stdout, str)
logging.getLogger("outlast.service").warning("not this")
audit("start_run", tenant="t", by="ana", at="192.0.2.1", outcome=201)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    (line,) = done.stdout.splitlines()
    assert json.loads(line)["operation"] == "start_run"


@pytest.mark.req("GATE-8")
def test_commands_are_audited_in_a_file(tmp_path: Path) -> None:
    """An export, a new token, a pause: user, address, arguments and exit code, without secrets."""
    file = tmp_path / "audit.jsonl"
    env = {"PATH": os.environ["PATH"], "OUTLAST_AUDIT": str(file), "SSH_CONNECTION": "198.51.100.7 5000 10.0.0.1 22"}

    def typed(*words: str, **more: str) -> int:
        command = [sys.executable, "-m", "outlast", *words]
        return subprocess.run(command, cwd=tmp_path, env={**env, **more}, capture_output=True, check=False).returncode

    assert typed("token", "new", "ana", "viewer", "--tenant", "acme") == 0
    assert typed("export", "r1", "--to", "x.json") == 7
    assert typed("runs", "ls", OUTLAST_STORE="postgresql://ana:canary-Pass-77AQ@127.0.0.1:1/x") == 7
    assert typed("--token", "olt_canary-Pass-77AQ-0123456789", "runs") == 2
    headers = ("--header", "X-Gateway=canary-Pass-77AQ", "--header=X-Way=canary-Pass-77AQ")
    assert typed("webhooks", "add", "https://x.example", *headers) == 7
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert lines[-1]["asked"].endswith(" --header X-Gateway=[redacted] --header=X-Way=[redacted]")
    assert all(set(line) >= NEEDED for line in lines)
    assert [(line["asked"].split()[0], line["outcome"]) for line in lines[:3]] == [
        ("token", 0),
        ("export", 7),
        ("runs", 7),
    ]
    assert (lines[0]["by"], lines[0]["at"]) == (local_actor(()).name, "198.51.100.7")
    assert (lines[0]["tenant"], lines[1]["tenant"]) == ("acme", "default")
    assert lines[2]["on"] == "postgresql://ana:[redacted]@127.0.0.1:1/x"
    assert "canary" not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert typed("runs", "ls", OUTLAST_AUDIT=str(tmp_path / "nowhere" / "x")) == 2


@pytest.mark.req("GATE-8")
def test_a_request_cut_off_by_the_stop_is_audited_and_answered(
    tmp_path: Path, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been executed, so neither the caller nor the audit may see a refusal or nothing."""
    monkeypatch.setattr(multiprocess, "GRACE_S", 0.1)
    entered, answers = threading.Event(), list[httpx2.Response]()

    async def never(*args: Any) -> None:
        entered.set()
        await asyncio.Event().wait()

    with Running(f"sqlite:{tmp_path / 'outlast.db'}", worker=False) as service:
        monkeypatch.setattr(service.state.store, "commit", never)
        ask = {"what": "tenant", "reason": "fire"}
        asking = threading.Thread(target=lambda: answers.append(httpx2.post(f"{service.url}/v1/pauses", json=ask)))
        asking.start()
        assert entered.wait(30)
    asking.join(30)
    (answer,) = answers
    assert (answer.status_code, answer.json()["code"], answer.json()["refusal"]) == (503, "OUT-505", "cut_off")
    line = lines.last("pause")
    assert (line["outcome"], line["refusal"], line["by"], line["asked"]) == (503, "cut_off", "local:ana", ask)
