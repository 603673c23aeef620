"""Draws the examples of the OpenAPI document from a real service: python -m tests.service.examples writes
src/outlast/service/examples.json. An example stays as it is until its fields change, so a new operation adds lines and
changes none. A body that is not sent here is that of the declared example. A test compares the fields."""

import asyncio
import base64
import contextlib
import hashlib
import http.server
import json
import platform
import re
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from outlast import Budget, Context, Workflow
from outlast.agent import ScriptedModel, agent_workflow
from outlast.core.addresses import AddressPolicy
from outlast.models.effects import effect_id
from outlast.operations import OPERATIONS
from outlast.operations.bodies import body_of
from outlast.operations.declaration import sent, sent_fields
from outlast.runtime.webhooks import new_dispatcher
from outlast.service import openapi
from tests.service import flows
from tests.service.conftest import Running, Service

TARGET: Final = Path(openapi.__file__).with_name("examples.json")
JSON: Final = "application/json"
WHOLE: Final = frozenset({"schema", "input_schema", "graph"})
ID: Final = re.compile(r"\b(bulk_|refu_|call_|wish_|sear_|ap_|wh_|w-|evt_|req_)[0-9A-Za-z+/=-]{8,}")
HEX: Final = re.compile(r'"([0-9a-f]{64}|[0-9a-f]{16})"')
EFFECT: Final = re.compile(r"\bWyJ[0-9A-Za-z_-]{12,}")
DECISION: Final = {"decision": "approve", "reason": "under the limit", "alternative": 0, "changes": {"cents": 4000}}
BAND: Final = timedelta(minutes=10)
INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
FIXED: Final = {
    **dict.fromkeys(
        ("took_ms", "loop_late_ms", "loop_ticked_ms", "heartbeat_ago_ms", "pid", "p50_ms", "p95_ms", "ms"), 12
    ),
    "lease_left_ms": 14_000,
}
MEASURED: Final = re.compile(rf'"({"|".join(FIXED)})": \d+')
SECRET: Final = re.compile(r"whsec_[0-9A-Za-z+/=_-]+")
SETTLES: Final = re.compile(r'"settles_in_ms": [1-9]\d*')
AGO: Final = re.compile(r"(?<![\w.])[\d.]+m?s ago")


class Search(BaseModel):
    place: str


searches = Workflow("search", state=Search)


@searches.node(start=True)
async def look(ctx: Context[Search]) -> None:
    await ctx.emit({"company": "Acme Packaging GmbH", "city": ctx.state.place}, key="lead/acme")


audits = Workflow("audit", state=Search, budget=Budget(calls=20, minutes=600))


@audits.node(start=True)
async def wait_for_books(ctx: Context[Search]) -> None:
    await ctx.sleep("30d")


clerk = agent_workflow("clerk", model=ScriptedModel(["Ready."]), instructions="Answer in one sentence.")


class Recorder:
    """Client that keeps the first body of each schema that was sent or received."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.kept: dict[str, Any] = {}
        self._paths: dict[str, Any] = service.get("/openapi.json").json()["paths"]

    def __call__(self, method: str, path: str, body: Any = None, /, tag: str = "", **ids: str) -> Any:
        """Call an operation by its path in the document."""
        address, _, query = path.partition("?")
        operation = self._paths[address][method]
        headers = {"If-Match": tag} if tag else {}
        answer = self.service.client.request(
            method, f"{address.format(**ids)}?{query}".rstrip("?"), json=body, headers=headers
        )
        if body is not None:
            self._keep(operation["requestBody"], body)
        came = answer.json()
        if answer.is_success:
            self._keep(operation["responses"][str(answer.status_code)], _short(came))
        else:
            self.kept.setdefault("Problem", {name: value for name, value in came.items() if name != "current"})
        return came

    def _keep(self, of: dict[str, Any], body: Any) -> None:
        schema = of["content"][JSON]["schema"]
        name = schema.get("$ref", "").rpartition("/")[2]
        if name:
            self.kept.setdefault(name, body)


def record(service: Service, receiver: str) -> tuple[Recorder, dict[str, str]]:
    """Send and receive almost every kind of body at least once, and return runs for the rest.

    A run is asked about once nothing changes it any more.
    """
    ask = Recorder(service)
    service.until("/v1/versions", lambda body: body["versions"] and body["versions"][0]["topology"])
    for path in ("/healthz", "/v1/workers", "/v1/versions", "/v1/me", "/v1/workflows"):
        ask("get", path)
    ask("get", "/v1/workflows/{name}", name="refund")
    # one workflow, whose events are sent in order: so the newest delivery is always the same
    told = {"url": receiver, "name": "shop", "types": ["dev.outlast.workflow.*"], "workflows": ["search"]}
    hook = ask("post", "/v1/webhooks", told)["webhook"]
    given = {"input": {"order_id": "A-17", "cents": 4200}, "id": "refund-A-17"}
    run = service.post("/v1/workflows/refund/runs", given).json()["run"]
    service.waits(run)
    approval, tag = service.asked(run)
    ask("get", "/v1/runs?status=waiting")
    for what in ("", "/input", "/state", "/explain", "/unmovable", "/events"):
        ask("get", f"/v1/runs/{{run}}{what}", run=run)
    ask("get", "/v1/approvals?status=pending")
    ask("get", "/v1/approvals/{approval}", approval=approval)
    service.client.post(f"/v1/approvals/{approval}/decision", json=DECISION, headers={"If-Match": tag})
    service.ended(run)
    for what in ("effects", "checkpoints", "timeline", "steps", "tree"):
        ask("get", f"/v1/runs/{{run}}/{what}", run=run)
    other, _ = service.asked(service.start(order_id="A-18", cents=9900))
    second = service.get(f"/v1/approvals/{other}").json()["run"]
    ask("get", "/v1/runs/{run}/compare/{other}", run=run, other=second)
    ask("get", "/v1/runs/{run}/fork-points", run=run)
    terms = {"from": "pay", "approvers": "lead", "state": {"order_id": "A-17", "cents": 4100}}
    ask("post", "/v1/runs/{run}/fork-preview", terms, run=run)
    ask("post", "/v1/runs/{run}/forks", {"from": "pay", "approvers": "lead", "id": "refund-A-17-fork"}, run=run)
    found = service.start("search", place="Cordoba")
    service.ended(found)
    ask("get", "/v1/runs/{run}/results", run=found)
    _given_up(service, hook)  # before the summary, which counts it
    runs = _operate(ask)
    _hear(ask, hook)
    return ask, runs


def record_without_a_worker(ask: Recorder, runs: Mapping[str, str], approval: str) -> None:
    """Send what a worker would answer at once, so that the answer is always from before it. `runs`: they wait."""
    service = ask.service
    given = {"input": {"order_id": "A-18", "cents": 4200}, "id": "refund-A-18"}
    ask("post", "/v1/workflows/{name}/runs", given, name="refund")
    ask("post", "/v1/approvals/{approval}/reassign", {"to": "finance", "reason": "finance decides"}, approval=approval)
    ask("post", "/v1/approvals/{approval}/claim", approval=approval)
    tag = service.get(f"/v1/approvals/{approval}").headers["etag"]
    for _ in range(2):  # the second is refused
        ask("post", "/v1/approvals/{approval}/decision", DECISION, approval=approval, tag=tag)
    payload = {"payload": {"text": "hi"}, "signal_id": "s-1"}
    ask("post", "/v1/runs/{run}/signals/{name}", payload, run=runs["signal"], name="said")
    ask("post", "/v1/runs/{run}/continue", {"reason": "the telephone line works again"}, run=runs["continue"])
    ask("get", "/v1/bulk-answers?attention=exception&choice=continue&workflow=call")
    job = ask("post", "/v1/bulk-answers", {"attention": "exception", "choice": "continue", "reason": "the line works"})
    ask("get", "/v1/bulk-answers/{run}", run=job["run"])
    refuse = {"choice": "fail", "reason": "it cannot be completed"}
    ask("post", "/v1/attention/{run}/resolve", refuse, run=runs["resolve"])
    moved = {"scheduler": "temporal", "reason": "past one database", "force": True}
    ask("post", "/v1/runs/{run}/scheduler", moved, run=runs["scheduler"])
    ask("post", "/v1/runs/{run}/cancel", {"reason": "ordered twice"}, run=runs["cancel"])


def declared_bodies() -> dict[str, Any]:
    """Return the body of the example of each operation by its model, without values that are the defaults."""
    found: dict[str, Any] = {}
    for operation in OPERATIONS:
        body = sent(operation, operation.example).body
        given = {each.name: body[each.name] for each in sent_fields(operation) if each.name in body}
        default = {each.name: each.default for each in sent_fields(operation)}
        if short := {name: value for name, value in given.items() if value != default[name]}:
            found[body_of(operation).__name__] = short
    return found


def has_the_fields_of(old: Any, new: Any) -> bool:
    """Return True if two values have the same names of fields, wherever both have any."""
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(has_the_fields_of(old[name], new[name]) for name in old)
    if isinstance(old, list) and isinstance(new, list) and old and new:
        return has_the_fields_of(old[0], new[0])
    return True


def is_valid(name: str, old: Any, new: Any) -> bool:
    """Return True if an example can stay: its model accepts it, or a new one has the same fields."""
    bodies = {body_of(each).__name__: body_of(each) for each in OPERATIONS}
    if name not in bodies:
        return has_the_fields_of(old, new)
    try:
        bodies[name].model_validate_json(json.dumps(old))
    except ValidationError:
        return False
    return True


def kept(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return the new examples. A valid old one stays, because ids, instants and counts differ each time."""
    return {name: old[name] if name in old and is_valid(name, old[name], each) else each for name, each in new.items()}


def _operate(ask: Recorder) -> dict[str, str]:
    """Return runs that need a person, by what they are for."""
    service = ask.service
    flagged = [service.start("call", order=order) for order in ("A-1", "broken", "broken", "broken")]
    for each in flagged:
        service.flagged(each)
    ask("post", "/v1/attention/assign", {"run": flagged[1], "to": "ben", "note": "he calls the exchange"})
    ask("get", "/v1/attention?reason=exception")
    causes = ask("get", "/v1/causes?reason=exception")["causes"]
    ask("get", "/v1/causes/{cause}", cause=causes[0]["cause"])
    ask("get", "/v1/bars?bars=2")
    ask("get", "/v1/metrics/durations")
    ask("get", "/v1/metrics/decisions")
    (effect,) = ask("get", "/v1/runs/{run}/effects", run=flagged[0])["effects"]
    said = {"outcome": "happened", "external_id": "R-1", "response": "it rang", "reason": "it is in the call log"}
    ask("post", "/v1/effects/{effect}/resolve", said, effect=effect["id"])
    service.ended(flagged[0])
    ask("get", "/v1/summary")
    many = {"attention": "exception", "choice": "continue", "reason": "it rings", "runs": [{"run": flagged[3]}]}
    ask("post", "/v1/attention/resolve", many)
    hold = {"what": "activity", "name": "ring"}
    ask("post", "/v1/pauses", {**hold, "reason": "the exchange is down"})
    ask("get", "/v1/pauses")
    ask("post", "/v1/budgets", {"tokens": 1_000_000, "money": "50", "reason": "the plan of March"})
    ask("get", "/v1/budgets")
    ask("get", "/v1/usage")
    service.waits(service.start("audit", place="Cordoba"))
    ask("get", "/v1/budgets/runs")
    service.ended(service.post("/v1/workflows/clerk/runs", {"input": {"objective": "Are you there?"}}).json()["run"])
    prompts = ask("get", "/v1/prompts?workflow=clerk")["uses"]
    ask("get", "/v1/prompts/{prompt}", prompt=prompts[0]["prompt"])
    ask("get", "/v1/tools?workflow=call")
    ask("get", "/v1/tools/calls?workflow=call&limit=2")
    ask("post", "/v1/views", {"name": "calls that fail", "query": "workflow:call is:flagged"})
    ask("get", "/v1/views")
    ask("get", "/v1/audit?kind=effect")
    ask("post", "/v1/slots", {"slots": 20, "everywhere": False})
    ask("post", "/v1/pauses/resume", hold)
    return {"continue": flagged[1], "resolve": flagged[2]}


def _given_up(service: Service, hook: str) -> None:
    """Wait until each event was refused."""
    service.until(f"/v1/webhooks/{hook}", lambda body: body["dead"] and not body["owed"] and not body["behind"])


def _hear(ask: Recorder, hook: str) -> None:
    ask("get", "/v1/webhooks")
    ask("get", "/v1/webhooks/{webhook}", webhook=hook)
    ask("post", "/v1/webhooks/{webhook}/test", webhook=hook)
    dead = ask("get", "/v1/deliveries")["deliveries"][0]
    ask("post", "/v1/webhooks/{webhook}/redeliver", webhook=hook)
    _given_up(ask.service, hook)
    ask("post", "/v1/deliveries/{delivery}/redeliver", delivery=dead["delivery"])
    ask("post", "/v1/webhooks/{webhook}/rotate", {"keep": "PT2H"}, webhook=hook)
    ask("post", "/v1/webhooks/{webhook}/disable", {"reason": "noisy"}, webhook=hook)
    ask("post", "/v1/notifications", {"address": "ntfys://93.184.216.34/approvals", "role": "lead"})


def _short(body: Any) -> Any:
    """Shorten lists to one item and tracebacks to one line, but not schemas."""
    if isinstance(body, dict):
        return {name: value if name in WHOLE else _short(value) for name, value in body.items()}
    if isinstance(body, list) and body and isinstance(body[0], dict):
        return [_short(body[0])]
    return body.partition("\n")[0] if isinstance(body, str) else body


def tidied(text: str) -> str:
    """Replace values that differ each time: ids by their order, instants by the ten minutes that they are in."""
    seen: dict[str, str] = {}
    numbers: Counter[str] = Counter()

    def of(found: str, kind: str, chars: int) -> str:
        if found not in seen:
            seen[found] = hashlib.sha256(f"{kind}{numbers[kind]}".encode()).hexdigest()[:chars]
            numbers[kind] += 1
        return seen[found]

    def id_(found: re.Match[str]) -> str:
        return found[1] + of(found[0], found[1], len(found[0]) - len(found[1]))

    def effect(found: re.Match[str]) -> str:
        run, visit, key = json.loads(base64.urlsafe_b64decode(found[0] + "=="))
        return effect_id(ID.sub(id_, run), visit, key)

    text = EFFECT.sub(effect, SECRET.sub("whsec_…", text))
    first = min(INSTANT.findall(text))
    text = HEX.sub(lambda found: f'"{of(found[0], "", len(found[1]))}"', ID.sub(id_, text))
    text = INSTANT.sub(lambda found: _moved(found[0], first), text)
    text = MEASURED.sub(lambda found: f'"{found[1]}": {FIXED[found[1]]}', text)
    return AGO.sub("2m ago", SETTLES.sub('"settles_in_ms": 179000', text))


def _moved(instant: str, first: str) -> str:
    """Move an instant to a day of all examples. Recording takes seconds, and a deadline is hours later."""
    begin = datetime(2026, 3, 2, 9, tzinfo=UTC)
    after = datetime.fromisoformat(instant) - datetime.fromisoformat(first)
    return f"{begin + after // BAND * BAND:%Y-%m-%dT%H:%M:%S}.000Z"


class _No(http.server.BaseHTTPRequestHandler):
    """Receiver that accepts no delivery."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        pass


@contextlib.contextmanager
def refusing() -> Iterator[str]:
    """Run a receiver that refuses deliveries; yield its URL."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _No)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/outlast"
    finally:
        server.shutdown()


def recorded() -> dict[str, Any]:
    """Record the examples with a new service. Two recordings are equal."""
    workflows = (flows.refunds, flows.wishes, flows.calls, searches, clerk, audits)
    with tempfile.TemporaryDirectory() as folder, refusing() as receiver:
        url = f"sqlite:{folder}/outlast.db"
        with Running(url, workflows) as service:
            service.state.reach = reach = AddressPolicy.of(private=True, plain=True, networks=())
            sender = new_dispatcher(service.state.store, reach=reach)
            telling = asyncio.run_coroutine_threadsafe(sender.run(), service.loop)
            try:
                ask, runs = record(service, receiver)
            finally:
                service.loop.call_soon_threadsafe(sender.drain)
                telling.result(30)
            wishes = {name: service.start("wish", text=name) for name in ("signal", "scheduler", "cancel")}
            asking = service.start()
            for run in (*wishes.values(), asking):
                service.waits(run)
            approval, _ = service.asked(asking)
            worker = service.get("/v1/workers").json()["workers"][0]["worker"]
            ask("post", "/v1/workers/{worker}/drain", {"reason": "the machine is replaced"}, worker=worker)
        with Running(url, workflows, worker=False) as ask.service:
            record_without_a_worker(ask, {**runs, **wishes}, approval)
        found = {**declared_bodies(), **ask.kept}
        text = json.dumps(found, ensure_ascii=False, sort_keys=True)
        for ours, shown in (
            ("ntfys://93.184.216.34/approvals", "ntfys://ntfy.example.com/approvals"),
            (receiver, "https://shop.example.com/outlast"), (receiver.rpartition("/")[0], "https://shop.example.com"),
            ("local:ana", "ana@corp.example"),
            (platform.node(), "worker-1"),
        ):  # fmt: skip
            text = text.replace(json.dumps(ours)[1:-1], shown)
    tidy: dict[str, Any] = json.loads(tidied(text))
    return tidy


if __name__ == "__main__":
    found = kept(json.loads(TARGET.read_text(encoding="utf-8")), recorded())
    TARGET.write_text(json.dumps(found, ensure_ascii=False, indent=1, sort_keys=True) + "\n", encoding="utf-8")
