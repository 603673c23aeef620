"""The auction over HTTP alone: `python -m tests.e2e.over_http` plays it and prints the result (scripts/http-demo).

The service, two workers, the suppliers' market and the portal for their bids are separate processes.
The buyer, the approvers and the operator are HTTP clients with a token each; none opens the store.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import click
import httpx2
from standardwebhooks import Webhook

from examples import buyer
from examples.negotiation.demo.proof import Claim, claim, lines, proven
from examples.negotiation.market.behaviour import load
from examples.negotiation.record import Count, count, in_flight, read
from examples.negotiation.samples import sample
from examples.trace_collector import Collector, tree
from outlast.service.identity import new_token
from outlast.telemetry.traces import parent_of
from tests import forked
from tests.e2e.helpers import GIVE_UP_S, ROOT, SHORT, when

WORKFLOW = "examples.negotiation.workflow"
TENANT = "corp"
KILL_ROUND = 3
SENT_WITHIN_S = 1.0  # of the 1.5 s that the slow supplier takes
# Who there is: name, roles, and whether it is a program.
CALLERS: Mapping[str, tuple[tuple[str, ...], bool]] = {
    "buyer": (("starter",), True),
    "portal": (("starter",), True),
    "watcher": (("viewer",), True),
    "agent": (("agent", "approver", "procurement-lead"), True),
    "root": (("admin",), False),
    "ops": (("monitor", "operator"), False),
    "eve": (("approver", "sales"), False),
    "ana": (("approver", "procurement-lead"), False),
    "ben": (("approver", "procurement-lead"), False),
}
Say = Callable[[str], None]


class Got(NamedTuple):
    """An event accepted by the webhook receiver after its library verified the received bytes."""

    id: str
    run: str
    sequence: int
    previous: int
    body: bytes


class Receiver:
    """A webhook receiver written as docs/webhooks.md describes; unverified requests are kept apart."""

    def __init__(self) -> None:
        self.secret = ""
        self.got: list[Got] = []
        self.forged = 0
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body, headers = self.rfile.read(int(self.headers["Content-Length"])), dict(self.headers)
                self.send_response(receiver.take(body, {name.lower(): value for name, value in headers.items()}))
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name http.server gives it
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hooks"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def take(self, body: bytes, headers: Mapping[str, str]) -> int:
        """Handle a request and return the status code."""
        try:
            event = Webhook(self.secret).verify(body, dict(headers))
        except Exception:  # whatever is wrong with it: it is not believed
            self.forged += 1
            return 400
        number, before = int(headers["outlast-sequence"]), int(headers["outlast-previous"])
        self.got.append(Got(headers["webhook-id"], event["subject"], number, before, body))
        return 204

    def of(self, run: str) -> list[Got]:
        """Return the verified events of one run."""
        return [got for got in self.got if got.run == run]

    def ended(self) -> int:
        """Count the runs whose completion was received."""
        return sum(b"workflow.completed" in got.body for got in self.got)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Stage:
    """The processes, their logs in one folder, and a client for each caller."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.record = folder / "market.jsonl"
        self.collector, self.receiver = Collector(), Receiver()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.url = ""
        lines, self.tokens = [], {}
        for name, (roles, program) in CALLERS.items():
            self.tokens[name], line = new_token(name, tenant=TENANT, roles=roles, person=not program)
            lines.append(line)
        (folder / "tokens").write_text("\n".join(lines), encoding="utf-8")

    def begin(self, name: str, *command: str, **env: str) -> None:
        """Start a process (`python -m` of the first word), its output in NAME.log; one that ran before has ended."""
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("OUTLAST_", "OTEL_"))}
        given = {
            "PYTHONPATH": f"{ROOT}",
            "OUTLAST_STORE": f"sqlite:{self.folder / 'outlast.db'}",
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.collector.url,
            "OTEL_BSP_SCHEDULE_DELAY": "20",  # spans that a killed process had not sent are lost
            "OTEL_SERVICE_NAME": name,
        }
        with (self.folder / f"{name}.log").open("wb") as log, (self.folder / f"{name}-err.log").open("ab") as err:
            self.processes[name] = forked.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=err,
                env={**clean, **given, **env}, start_new_session=True,
            )  # fmt: skip

    def first_line(self, name: str) -> dict[str, Any]:
        """Wait for the ready line of a process and return it."""

        def said() -> str:
            assert self.processes[name].poll() is None, self.said()
            return (self.folder / f"{name}.log").read_text().partition("\n")[0]

        line: dict[str, Any] = json.loads(when(said, self.said))
        return line

    def serve(self) -> None:
        """Start the service on its former port, with the dispatcher of webhooks and without a worker."""
        port = self.url.rpartition(":")[2] or "0"
        command = ["outlast", "-o", "ndjson", "--tenant", TENANT, "serve", WORKFLOW, "--port", port, "--no-worker"]
        allowed = {"OUTLAST_WEBHOOKS__ALLOW_PRIVATE": "true", "OUTLAST_WEBHOOKS__ALLOW_HTTP": "true"}
        self.begin("service", *command, OUTLAST_AUTH__TOKENS_FILE=f"{self.folder / 'tokens'}", **allowed)
        self.url = str(self.first_line("service")["url"])

    def worker(self, name: str, inbox: str) -> None:
        """Start a worker process and return it."""
        self.begin(name, "outlast", "worker", WORKFLOW, "--name", name, *SHORT, NEGOTIATION_INBOX=inbox)

    def open_all(self) -> str:
        """Start every process and return the market's address."""
        everybody = load("demo").model_dump()
        for supplier in everybody["suppliers"].values():  # no supplier is late, so no deadline of 24 h passes
            supplier["rules"] = [rule for rule in supplier["rules"] if rule["does"] != "late"]
        scenario = self.folder / "scenario.json"
        scenario.write_text(json.dumps(everybody), encoding="utf-8")
        market = ["examples.negotiation.market", "--record", f"{self.record}"]
        self.begin("market", *market, "--scenario", f"{scenario}")
        self.serve()
        self.begin("portal", "examples.negotiation.portal", OUTLAST_URL=self.url, OUTLAST_TOKEN=self.tokens["portal"])
        inbox = str(self.first_line("portal")["url"])
        for name in ("worker-a", "worker-b"):
            self.worker(name, inbox)
        with self.client("ops") as ops:
            when(lambda: sum(w["serving"] for w in ops.get("/v1/workers").json()["workers"]) == 2, self.said)
        return str(self.first_line("market")["url"])

    def client(self, name: str) -> httpx2.Client:
        """Return the HTTP client of a caller."""
        return buyer.client(self.url, self.tokens[name])

    def end(self, name: str) -> int:
        """Send SIGTERM and return the exit status."""
        self.processes[name].send_signal(signal.SIGTERM)
        return self.processes[name].wait(GIVE_UP_S)

    def kill(self, owner: str) -> str:
        """Kill the process of a worker id and return its name in this test."""
        name = self.name_of(owner)
        self.processes[name].kill()
        assert self.processes[name].wait(GIVE_UP_S) == -signal.SIGKILL
        return name

    def name_of(self, owner: str) -> str:
        """Return the name of a worker id in this test."""
        return next(name for name, each in self.processes.items() if owner.startswith(f"w-{each.pid}-"))

    def said(self) -> str:
        """Return the last lines of each log."""
        logs = sorted(self.folder.glob("*.log"))
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-2_000:]}" for log in logs)

    def close(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
                process.wait(GIVE_UP_S)
        self.receiver.close()
        self.collector.close()


@contextlib.contextmanager
def stage(folder: Path) -> Iterator[Stage]:
    """Start all processes, and stop them at the end of the block."""
    made = Stage(folder)
    try:
        yield made
    finally:
        made.close()


class DemoResult(NamedTuple):
    """Result of the demo, as the test asserts it."""

    run: dict[str, Any]
    traceparent: str
    started: list[httpx2.Response]
    refused: dict[str, httpx2.Response]
    decided: list[httpx2.Response]
    followed: list[buyer.Event]
    effects: list[dict[str, Any]]
    results: dict[str, Any]
    killed: str
    invitations: Count
    orders: Count
    bought: list[str]
    late: httpx2.Response


class HttpDemo:
    """The auction as a client sees it over HTTP."""

    def __init__(self, stage: Stage, say: Say) -> None:
        self._stage, self._say = stage, say
        self._followed: list[buyer.Event] = []
        self._refused: dict[str, httpx2.Response] = {}
        self.claims: tuple[Claim, ...] = ()

    def play(self) -> DemoResult:
        """Play the auction from its start to the award."""
        stage, say = self._stage, self._say
        market = stage.open_all()
        with contextlib.ExitStack() as stack:
            http = {name: stack.enter_context(stage.client(name)) for name in CALLERS}
            self._listen(http["root"])
            traceparent = f"00-{uuid4().hex}-{uuid4().hex[:16]}-01"
            given = {"input": sample("leverage", market=market, today=datetime.now(UTC).date())}
            headers = {"Idempotency-Key": "RFQ-2041", "traceparent": traceparent}
            started = [http["buyer"].post("/v1/workflows/negotiation/runs", json=given, headers=headers) for _ in "12"]
            run = str(started[0].json()["run"])
            say(f"POST /v1/workflows/negotiation/runs  {started[0].status_code}, again {started[1].status_code}: {run}")
            following = threading.Thread(target=self._follow, args=(http["watcher"], run), daemon=True)
            following.start()
            killed = self._kill(http["ops"], run)
            approval = str(when(lambda: buyer.waiting(http["ana"], run), stage.said))
            decided = self._decide(http, approval)
            following.join(GIVE_UP_S)
            assert not following.is_alive(), stage.said()
            whole = http["watcher"].get(f"/v1/runs/{run}").json()
            effects = http["watcher"].get(f"/v1/runs/{run}/effects").json()["effects"]
            results = http["watcher"].get(f"/v1/runs/{run}/results").json()
            bought = self._buy(market)
            late = http["portal"].post(f"/v1/runs/{run}/signals/bid.1.1", json={"payload": {}})
            when(lambda: stage.receiver.ended() == 2, stage.said)
        for name in [name for name in stage.processes if name != killed]:
            assert stage.end(name) == 0, stage.said()
        entries = read(stage.record)
        invitations, orders = count(entries, "invitations", run), count(entries, "orders", run)
        result = DemoResult(
            whole, traceparent, started, self._refused, decided, self._followed, effects, results, killed,
            invitations, orders, bought, late,
        )  # fmt: skip
        self._summary(result)
        return result

    def _buy(self, market: str) -> list[str]:
        """Run the example program, which buys once more, and return its output."""
        wanted = {**sample("leverage", market=market, today=datetime.now(UTC).date()), "reference": "RFQ-2042"}
        purchase = self._stage.folder / "purchase.json"
        purchase.write_text(json.dumps(wanted), encoding="utf-8")
        tokens = {"BUYER_TOKEN": self._stage.tokens["buyer"], "LEAD_TOKEN": self._stage.tokens["ana"]}
        done = subprocess.run(
            [sys.executable, f"{ROOT / 'examples/buyer.py'}", f"{purchase}"],
            env={"OUTLAST_URL": self._stage.url, **tokens},
            capture_output=True,
            text=True,
            timeout=GIVE_UP_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr + self._stage.said()
        lines = done.stdout.splitlines()
        self._say(f"examples/buyer.py: {lines[-1][:40]}…")
        return lines

    def _listen(self, root: httpx2.Client) -> None:
        made = root.post("/v1/webhooks", json={"url": self._stage.receiver.url})
        buyer.raised(made)
        self._stage.receiver.secret = made.json()["secret"]
        self._say(f"POST /v1/webhooks  {made.status_code}: {made.json()['webhook']} gets every event")

    def _follow(self, http: httpx2.Client, run: str) -> None:
        for event in buyer.events(http, run):
            self._followed.append(event)
            node = event.body["data"].get("node", "")
            if event.name in ("checkpoint", "taken_over", *buyer.ENDINGS):
                self._say(f"    event {event.seq:>2}  {event.name} {event.body['data'].get('completed', node)}")

    def _kill(self, ops: httpx2.Client, run: str) -> str:
        """Kill the holder of the run while an invitation of round 3 is in flight."""
        when(lambda: in_flight(read(self._stage.record), "invitations", KILL_ROUND), self._stage.said)
        owner = str(when(lambda: ops.get(f"/v1/runs/{run}").json()["owner"], self._stage.said))
        give_up = time.monotonic() + SENT_WITHIN_S
        while not self._has_sent(owner) and time.monotonic() < give_up:
            time.sleep(0.01)
        killed = self._stage.kill(owner)
        self._say(f"kill -9 {owner}  {killed}, an invitation of round {KILL_ROUND} in flight")
        return killed

    def _has_sent(self, owner: str) -> bool:
        """True if the collector has the spans of this round. The other invitations were answered at once."""
        name = self._stage.name_of(owner)
        return any(s.service == name and f"/{KILL_ROUND}" in s.said for s in self._stage.collector.spans)

    def _decide(self, http: Mapping[str, httpx2.Client], approval: str) -> list[httpx2.Response]:
        stage, say = self._stage, self._say
        path = f"/v1/approvals/{approval}/decision"
        shown = http["ana"].get(f"/v1/approvals/{approval}")
        seen = {"If-Match": shown.headers["ETag"]}
        yes = {"decision": "approve", "reason": "under budget"}
        for name in ("watcher", "buyer", "agent", "ops", "root", "eve"):
            self._refused[name] = http[name].post(path, json=yes, headers=seen)
        self._refused["unseen"] = http["ana"].post(path, json=yes)
        assert stage.end("service") == 0, stage.said()  # a deploy, while a person is waited for
        stage.serve()
        say(f"SIGTERM, and a new service on {stage.url}; streams go on behind their last event")
        buyer.raised(http["ben"].post(f"/v1/approvals/{approval}/claim"))
        self._refused["stale"] = http["ana"].post(path, json=yes, headers=seen)
        seen = {"If-Match": self._refused["stale"].headers["ETag"], "Idempotency-Key": "ana-1"}
        decided = [http["ana"].post(path, json=yes, headers=seen) for _ in "12"]
        self._refused["second"] = http["ben"].post(path, json=yes, headers={"If-Match": decided[0].headers["ETag"]})
        for name, answer in self._refused.items():
            said = answer.json()
            say(f"POST …/decision  {name:<8} {answer.status_code} {said['refusal'] or said['code']}: {said['title']}")
        say(f"POST …/decision  ana      {decided[0].status_code}, again {decided[1].status_code} (the stored answer)")
        return decided

    def _summary(self, result: DemoResult) -> None:
        say, stage = self._say, self._stage
        ours = parent_of(result.traceparent)
        assert ours is not None
        say(f"{result.run['shown']}: {result.run['outcome']['order_id']} by {result.run['outcome']['approved_by']}")
        self.claims = claims_of(result, delivered=len(stage.receiver.of(result.run["run"])))
        say(lines(self.claims))
        say(f"\ntrace {ours.trace:032x}")
        say("\n".join(tree(span for span in stage.collector.spans if span.trace == f"{ours.trace:032x}")))


def claims_of(result: DemoResult, *, delivered: int) -> tuple[Claim, ...]:
    """Return the claims about the demo. `delivered`: events of the run that a webhook accepted, signatures verified."""
    sent, taken, refused = result.invitations, result.run["takeovers"], result.refused
    return (
        claim(
            f"invitations: {sent.sent} sent, {sent.distinct} distinct, {sent.repeated} repeated",
            sent.repeated == 0,
            of=sent.sent,
        ),
        claim(
            f"events: {len(result.followed)} streamed, {delivered} signed and verified",
            delivered == len(result.followed),
            of=delivered,
        ),
        claim(f"{len(taken)} takeover after 1 kill", len(taken) == 1, of=1 if result.killed else 0),
        claim(
            f"{len(refused)} decisions refused, 1 taken",
            all(400 <= answer.status_code < 500 for answer in refused.values()),
            of=len(refused),
        ),
        claim(f"the run is {result.run['shown']}", result.run["shown"] == "AWARDED", of=1),
    )


def main() -> int:
    """Run the demo and print its result. Returns 1 if a claim does not hold."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, stage(Path(folder)) as made:
        demo = HttpDemo(made, click.echo)
        demo.play()
    click.echo(f"\n{time.monotonic() - began:.0f} s")
    return 0 if proven(demo.claims) else 1


if __name__ == "__main__":
    sys.exit(main())
