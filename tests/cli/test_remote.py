"""The command line from another machine: the same commands, asked of a real `outlast serve` on loopback."""

import json
import os
import pty
import signal
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.cli.conftest import MODULE, PATIENCE_S, SHORT_OPTIONS, Answer, Terminal, eventually


class Far:
    """A terminal that reaches nothing but a service."""

    def __init__(self, terminal: Terminal, url: str, token: str = "") -> None:
        self.terminal, self.url, self.token = terminal, url, token

    def __call__(self, *args: str, stdin: str | None = None, **env: str) -> Answer:
        """Run one command; a store is nowhere near."""
        given = {"OUTLAST_STORE": "sqlite:/nowhere/at.db", "OUTLAST_URL": self.url, "OUTLAST_TOKEN": self.token, **env}
        return self.terminal(*args, stdin=stdin, env=given)

    def start(self, run: str, order_id: str = "A-17", cents: int = 4200) -> str:
        """A run that waits for its approval, and that approval."""
        answer = self("run", "refund", f"order_id={order_id}", f"cents={cents}", "--id", run, "--wait")
        assert answer.code == 5 and "PENDING_APPROVAL" in answer.out, answer
        return answer.out.rpartition("approval ")[2].split()[0]


def serve(outlast: Terminal, *, options: tuple[str, ...] = SHORT_OPTIONS, **env: str) -> str:
    """Start a service in a child process and return its address."""
    process = outlast.spawn("-o", "ndjson", "serve", outlast.module, "--port", "0", *options, **env)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate()
    return str(json.loads(line)["url"])


@pytest.fixture
def far(outlast: Terminal) -> Far:
    """A service without credentials, and a terminal far from its store."""
    return Far(outlast, serve(outlast))


def test_a_run_from_its_start_to_its_end(far: Far) -> None:
    approval = far.start("r1", "wait-1")
    listed = far("runs", "ls")
    assert "PENDING_APPROVAL" in listed.out and "1 approval → outlast approvals ls" in listed.err
    near, there = far.terminal("-o", "json", "runs", "show", "r1").json, far("-o", "json", "runs", "show", "r1").json
    assert near == there, "one shape, whichever way it was asked"
    assert approval in far("approvals", "ls").out
    shown = far("approvals", "show", approval)
    assert "exactly this call, once" in shown.out and "(you may)" in shown.out
    assert "works on it" in far("approvals", "claim", approval).out
    decided = far("approvals", "approve", approval, "--reason", "fine")
    assert decided.code == 0 and "approved by local:" in decided.out and "resumed in" in decided.out, decided
    again = far("approvals", "reject", approval, "--reason", "no")
    assert again.code == 4 and again.err.startswith("OUT-402  "), again
    eventually(lambda: "signal" in far("runs", "ls", "--waiting-for", "signal").out)
    assert "signal paid" in far("runs", "show", "r1").out
    assert far("signal", "r1", "paid", "--data", '{"by": "Ana"}', "--id", "s1").code == 0
    tailed = far("runs", "tail", "r1", "-o", "ndjson")
    assert tailed.code == 0 and "r1 COMPLETED; no further event will come" in tailed.err
    assert tailed.out == far.terminal("runs", "tail", "r1", "-o", "ndjson").out, "the stored bytes"
    last = json.loads(tailed.out.splitlines()[-1])["sequence"]
    over = far("runs", "tail", "r1", "-o", "ndjson", "--after", str(int(last)))
    assert (over.code, over.out) == (0, "") and "no further event will come" in over.err, "all of it was heard before"
    for command in (("runs", "show", "r1"), ("runs", "effects", "r1"), ("runs", "events", "r1"), ("versions", "ls")):
        assert far("-o", "json", *command).json == far.terminal("-o", "json", *command).json, command
    assert "nothing needs a person" in far("attention", "ls").out
    assert [w["serving"] for w in far("-o", "json", "workers", "ls").json["workers"]] == [True]


def test_an_error_of_the_service_has_the_same_three_lines(far: Far) -> None:
    for command in (("runs", "show", "r9"), ("runs", "tail", "r9"), ("explain", "r9"), ("approvals", "show", "ap_9")):
        near, there = far.terminal(*command), far(*command)
        assert (there.code, there.err) == (near.code, near.err) and there.code == 3, command
    bad = far("run", "refund", "order_id=A-1", "cents=many")
    assert bad.code == 2 and bad.err.startswith("OUT-103  ") and "cents" in bad.err
    assert far("run", "nothing").code == 3
    assert "the service has the code" in far("run", f"{MODULE}:refund").err


def test_a_command_that_needs_the_store_refuses_a_service(far: Far) -> None:
    for command in (("fsck",), ("export", "r1"), ("purge", "--yes"), ("doctor",)):
        answer = far(*command)
        assert answer.code == 2 and "this command needs the store itself" in answer.err, (command, answer)
        assert "--store" in answer.err
    assert far("runs", "ls", "--store", far.terminal.url).code == 0, "what the line names counts"
    assert far("runs", "ls", "--store", far.terminal.url, "--url", far.url).code == 2
    assert far("runs", "ls", "--tenant", "acme").code == 2


def test_a_service_that_is_not_there(outlast: Terminal) -> None:
    answer = Far(outlast, "http://127.0.0.1:1")("runs", "ls")
    assert answer.code == 7 and "http://127.0.0.1:1 cannot be reached" in answer.err and "--url" in answer.err
    assert Far(outlast, "http://127.0.0.1:1")("runs", "tail", "r1").code == 7
    assert Far(outlast, "ftp://x")("runs", "ls").code == 2
    secret = Far(outlast, "http://ana:hunter2@127.0.0.1:1")("runs", "ls")
    assert secret.code == 2 and "hunter2" not in secret.err


def test_cancel_asks_for_confirmation_and_a_failed_run_is_reported(far: Far) -> None:
    far.start("r1")
    assert "not cancelled" in far("runs", "cancel", "r1", "--reason", "changed", stdin="n\n").out
    assert far("runs", "cancel", "r1", "--reason", "changed", "--yes").code == 0
    tailed = far("runs", "tail", "r1")
    assert tailed.code == 1 and "r1 CANCELLED" in tailed.err
    failed = far("run", "refund", "order_id=A-2", "cents=-1", "--wait")
    assert failed.code == 1 and "FAILED  nothing to refund" in failed.out


def test_the_outcome_and_the_graph(far: Far) -> None:
    approval = far.start("r1")
    graph = far("runs", "graph", "r1").out
    assert "✓ check " in graph and "▸ review " in graph and "· pay " in graph and graph.rstrip().endswith("→ end")
    assert far("runs", "graph", "r1", "--mermaid").out.startswith("flowchart LR\n")
    assert far("runs", "outcome", "r1").code == 5
    far("approvals", "approve", approval, "--reason", "fine")
    assert far("runs", "tail", "r1", "-q").code == 0
    assert far("runs", "outcome", "r1").json["order_id"] == "A-17"


def test_a_first_workflow_runs_as_it_is_written(outlast: Terminal) -> None:
    assert outlast("init").code == 0 and outlast("init").code == 4, "nothing is overwritten"
    code = (outlast.folder / "flows.py").read_text(encoding="utf-8").split("import Context")[1].splitlines()[1:]
    assert len([line for line in code if line.strip()]) <= 25
    process = outlast.spawn("-o", "ndjson", "serve", "flows.py", "--port", "0", *SHORT_OPTIONS)
    assert process.stdout is not None
    far = Far(outlast, json.loads(process.stdout.readline())["url"])
    waits = far("run", "order", 'suppliers=["acme", "blix"]', "--id", "o1", "--wait")
    assert waits.code == 5 and "by lead" in waits.out
    assert far("approvals", "approve", waits.out.rpartition("approval ")[2].split()[0], "--reason", "fine").code == 0
    assert far("runs", "tail", "o1", "-q").code == 0
    assert far("runs", "outcome", "o1").json["decided"] == "bought from acme"
    assert far("runs", "effects", "o1").out.count("executed") == 3


@pytest.mark.req("GATE-2")
def test_a_token_identifies_the_caller_and_is_never_printed(outlast: Terminal, tmp_path: Path) -> None:
    made = {
        name: outlast("-o", "json", "token", "new", name, *roles).json
        for name, roles in {"ana": ["approver", "finance", "operator"], "vic": ["viewer"]}.items()
    }
    url = serve(outlast, OUTLAST_AUTH__TOKENS="\n".join(each["line"] for each in made.values()))
    nobody = Far(outlast, url)("runs", "ls")
    assert nobody.code == 6 and nobody.err.startswith("OUT-411  ") and "→ set OUTLAST_TOKEN" in nobody.err
    ana = Far(outlast, url, made["ana"]["token"])
    approval = ana.start("r1")
    vic = Far(outlast, url, made["vic"]["token"])
    assert vic("runs", "ls").code == 0
    refused = vic("approvals", "approve", approval, "--reason", "please")
    assert refused.code == 6 and refused.err.startswith("OUT-403  ")
    file = tmp_path / "token"
    file.write_text(made["ana"]["token"] + "\n")
    named = Far(outlast, url)("approvals", "approve", approval, "--reason", "fine", OUTLAST_TOKEN_FILE=str(file))
    assert named.code == 0 and "approved by ana" in named.out, named
    shown = ana("config", "show")
    assert made["ana"]["token"] not in shown.out and "token" in shown.out


def test_a_stream_continues_after_its_last_event_when_the_service_restarts(outlast: Terminal) -> None:
    url = serve(outlast)
    far, first = Far(outlast, url), outlast.processes[-1]
    approval = far.start("r1")
    tail = outlast.spawn("runs", "tail", "r1", "-o", "ndjson", OUTLAST_URL=url)
    assert tail.stdout is not None
    for line in iter(tail.stdout.readline, ""):
        if json.loads(line)["type"].endswith("parked"):
            last = int(json.loads(line)["sequence"])
            break
    first.send_signal(signal.SIGTERM)
    first.wait(PATIENCE_S)
    assert tail.stderr is not None and "reconnecting" in tail.stderr.readline(), "said while the service is away"
    port = url.rpartition(":")[2]
    again = outlast.spawn("-o", "ndjson", "serve", MODULE, "--port", port, *SHORT_OPTIONS)
    assert again.stdout is not None and again.stdout.readline(), again.communicate()
    assert far("approvals", "approve", approval, "--reason", "fine").code == 0
    out, err = tail.communicate(timeout=PATIENCE_S)
    numbers = [int(json.loads(line)["sequence"]) for line in out.splitlines()]
    assert tail.returncode == 0 and numbers == list(range(last + 1, last + 1 + len(numbers))), (numbers, err)
    assert "reconnecting" not in err, "once"


def test_on_a_terminal_it_is_one_line_for_each_node(far: Far) -> None:
    approval = far.start("r1")
    ours, theirs = pty.openpty()
    process = far.terminal.spawn("runs", "tail", "r1", OUTLAST_URL=far.url, TERM="xterm", COLUMNS="160", to=theirs)
    os.close(theirs)
    seen = b""

    def read() -> bytes:
        try:
            return os.read(ours, 65_536)
        except OSError:  # the pseudo terminal was closed
            return b""

    while b"no process is running" not in seen:
        more = read()
        assert more, seen
        seen += more
    assert far("approvals", "approve", approval, "--reason", "fine").code == 0
    while more := read():
        seen += more
    os.close(ours)
    last = seen.decode().replace("\r", "").rpartition("refund v1  COMPLETED")[2]
    assert process.wait(PATIENCE_S) == 0
    assert "✓ check" in last and "✓ review" in last and "✓ pay" in last and "last effect  issue_refund" in last
    assert "⏸ review" in seen.decode() and "· pay" in seen.decode()


class Forgetful(BaseHTTPRequestHandler):
    """Proxy that forwards requests to a service and drops the first answer."""

    url = ""
    lost = False

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        answer = httpx2.post(self.url + self.path, content=body, headers=dict(self.headers), trust_env=False)
        self.close_connection = True
        if not type(self).lost:
            type(self).lost = True
            return
        self.send_response(answer.status_code)
        self.send_header("Content-Type", answer.headers["content-type"])
        self.end_headers()
        self.wfile.write(answer.content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
        pass


def test_a_lost_secret_is_reported_and_only_one_webhook_exists(far: Far) -> None:
    between = ThreadingHTTPServer(("127.0.0.1", 0), type("Once", (Forgetful,), {"url": far.url, "lost": False}))
    threading.Thread(target=between.serve_forever, daemon=True).start()
    try:
        through = Far(far.terminal, f"http://127.0.0.1:{between.server_port}")
        added = through("webhooks", "add", "https://93.184.216.34/hook")
    finally:
        between.shutdown()
        between.server_close()
    (only,) = far("-o", "json", "webhooks", "ls").json["webhooks"]
    advice = f"rotate once more to see a secret (outlast webhooks rotate {only['webhook']})"
    assert added.code == 8 and advice in added.err, added
    assert "secret  wh" in far("webhooks", "rotate", only["webhook"]).out


@pytest.mark.parametrize(
    "command",
    [
        "effects resolve r1 pay/1 --happened T-1 --reason seen",
        "approvals approve ap_1 --set cents=1 --reason ok",
        "run refund order_id=A-17",
    ],
)
def test_a_module_for_a_service_is_refused(outlast: Terminal, command: str) -> None:
    """It would be ignored: the service has the code and checks by it."""
    address = "http://127.0.0.1:1"
    refused = outlast("--url", address, *command.split(), "--module", outlast.module)
    assert refused.code == 2 and "leave --module out" in refused.err
    unreachable = outlast("--url", address, *command.split(), env={"OUTLAST_MODULE": outlast.module})
    assert unreachable.code == 7, "a setting is for every command, so it is passed over"
