"""Two replicas of a service over one store: one is killed between an act and its answer, the other gets the repetition.

Each operation that changes something has a case: its example, sent to a resource that waits. `IN_A_WORLD` has those
that need more. No row may change at the repetition, so the act happened once, whatever it is.
"""

import asyncio
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from secrets import token_hex
from threading import Thread
from typing import Any, NamedTuple

import httpx2
import pytest

from outlast import Context, workflow
from outlast.core.commit import Commit, Put
from outlast.core.machine import DeliveryStatus, LeaseStatus, Reason
from outlast.core.rows.all_kinds import KINDS
from outlast.core.rows.outbox_rows import CURSOR, DELIVERY, Cursor, Delivery
from outlast.core.rows.row_kind import key_of
from outlast.core.rows.run_columns import ATTENTION, Attention
from outlast.core.rows.run_rows import EVENT, RUN, Event
from outlast.core.rows.store_rows import REQUEST, STORE, WORKER, WRITER, Worker
from outlast.operations import OPERATIONS
from outlast.operations.declaration import Operation, sent, sent_fields
from outlast.service import idempotency
from tests import forked, slices
from tests.conformance.subject import put_run
from tests.dynamodb import server as dynamodb
from tests.postgres import server as postgres
from tests.service.conftest import ALL, Running, Service
from tests.service.flows import Wish, wishes
from tests.service.killed_replica import REACH

TENANT = "default"
WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})


@workflow
async def wishes_by_a_child(ctx: Context, text: str) -> str:
    return str(await ctx.run(wishes, Wish(text=text), no_undo="a wish is free"))


class Ask(NamedTuple):
    """Request of one case."""

    path: str
    body: Any = None
    method: str = "POST"
    headers: tuple[tuple[str, str], ...] = ()


class Receiver(NamedTuple):
    """Receiver of webhooks on this machine. `ids` counts the webhook-ids that it got."""

    url: str
    ids: Counter[str]


class Scene(NamedTuple):
    """The replica that answers the repetition, the URL of the store, the runs of the cases, and a receiver."""

    service: Service
    url: str
    runs: dict[str, str]
    approvals: dict[str, str]
    receiver: Receiver

    def rows(self) -> dict[tuple[str, Any], Any]:
        """Return every row of the store, except stored answers."""

        async def read() -> dict[tuple[str, Any], Any]:
            store = self.service.state.store
            kinds = [kind for kind in KINDS if kind not in (REQUEST, WRITER)]
            return {(kind.name, key_of(kind, row)): row for kind in kinds for row in await store.rows(kind, ())}

        found: dict[tuple[str, Any], Any] = self.service.call(read())
        return found

    def ask(self, path: str, body: Any) -> Any:
        answer = self.service.post(path, body)
        assert answer.is_success, answer.text
        return answer.json()

    def put(self, *puts: Put) -> None:
        self.service.call(self.service.state.store.commit(Commit(puts)))

    def shown(self, operation: str) -> tuple[tuple[str, str], ...]:
        """Return If-Match with the version of the approval of a case."""
        return (("If-Match", self.service.get(f"/v1/approvals/{self.approvals[operation]}").headers["etag"]),)

    def webhook(self) -> str:
        """Return the id of a new webhook, which was added without a key."""
        return str(self.ask("/v1/webhooks", {"url": f"{self.receiver.url}/{token_hex(4)}"})["webhook"])


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    ids: Counter[str] = Counter()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            ids[self.headers["webhook-id"]] += 1
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield Receiver(f"http://127.0.0.1:{server.server_port}", ids)
    server.shutdown()
    server.server_close()


@contextmanager
def new_store(kind: str, folder: Path) -> Iterator[str]:
    """Provide the URL of a new store of this kind."""
    name = f"once-{token_hex(6)}"
    if kind == "sqlite":
        yield f"sqlite:{folder / 'outlast.db'}"
    elif kind == "postgresql":
        schema = name.replace("-", "_")
        yield f"{postgres.url()}?schema={schema}"
        asyncio.run(postgres.drop(schema))
    else:
        yield dynamodb.url(name)
        asyncio.run(dynamodb.discard(name))


@contextmanager
def new_scene(store_url: str, receiver: Receiver) -> Iterator[Scene]:
    """Start the runs of all cases and wait until none of them changes by itself."""
    runs, approvals = dict[str, str](), dict[str, str]()
    plain = {each.id: each.path for each in OPERATIONS if each.changes and each.id not in IN_A_WORLD}
    waiting = [name for name, path in plain.items() if "{run}" in path]
    waiting += ["extend_run", "move_run", "move_run_to_scheduler", "redeliver", "redeliver_dead"]
    flagged = ("continue_run", "resolve_attention", "resolve_attention_of_many", "assign_attention")
    with Running(store_url, (*ALL, wishes_by_a_child)) as busy:
        parent = busy.start("wishes_by_a_child", text="detached")
        tree = busy.until(f"/v1/runs/{parent}/tree", lambda body: body["children"])
        runs["detach_run"] = tree["children"][0]["run"]
        busy.waits(runs["detach_run"])
        for name in waiting:
            runs[name] = busy.start("wish", text=name)
        for name in flagged:
            runs[name] = busy.start("call", order="broken")
        runs["resolve_effect"] = busy.start("call", order="A-1")
        for name in ("fork_run", "fork_run_live"):
            runs[name] = busy.start("job", rounds=1)
            busy.ended(runs[name])
        for name in waiting:
            busy.waits(runs[name])
        for name in (*flagged, "resolve_effect"):
            busy.flagged(runs[name])
        for name in ("decide_approval", *(name for name, path in plain.items() if "{approval}" in path)):
            approvals[name] = busy.asked()[0]
    with Running(store_url, worker=False) as service:
        service.state.reach = REACH
        yield Scene(service, store_url, runs, approvals, receiver)


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> Iterator[Callable[[str], Scene]]:
    """Provide one scene of each kind of store, made when its first case is played."""
    with ExitStack() as stack:

        @cache
        def scene_of(kind: str) -> Scene:
            url = stack.enter_context(new_store(kind, tmp_path_factory.mktemp("once")))
            return stack.enter_context(new_scene(url, receiver))

        yield scene_of


# --- the cases, by operation --------------------------------------------------------------------
def run_of(name: str, verb: str, body: Any) -> Callable[[Scene], Ask]:
    return lambda scene: Ask(f"/v1/runs/{scene.runs[name]}/{verb}", body)


def extended(scene: Scene) -> Ask:
    run = scene.runs["extend_run"]
    row = scene.service.call(scene.service.state.store.load(RUN, (TENANT, run)))
    old = ATTENTION.encode([Attention(Reason.TOTAL_TIMEOUT, 1, "it is old")])
    scene.service.call(scene.service.state.store.commit(put_run(row, attention_text=old)))
    return Ask(f"/v1/runs/{run}/extend", {"by": "P7D", "reason": "it is on its way"})


def worker_of_version_2(scene: Scene) -> str:
    now = scene.service.call(scene.service.state.store.now())
    name = f"w-{token_hex(4)}"
    row = Worker(STORE, name, 1, LeaseStatus.ALIVE, now.real + 3_600_000, "wish@2", "", now.real, now.real, "")
    scene.put(Put(WORKER, row, 0))
    return name


def moved(scene: Scene) -> Ask:
    worker_of_version_2(scene)
    body = {"workflow": "wish", "version": 2, "reason": "1 is gone"}
    return Ask(f"/v1/runs/{scene.runs['move_run']}/move", body)


def settled(scene: Scene) -> Ask:
    (effect,) = scene.service.get(f"/v1/runs/{scene.runs['resolve_effect']}/effects").json()["effects"]
    body = {"outcome": "happened", "external_id": "R-1", "response": "rang", "reason": "seen"}
    return Ask(f"/v1/effects/{effect['id']}/resolve", body, headers=(("If-Match", f'"v{effect["version"]}"'),))


def resumed(scene: Scene) -> Ask:
    scene.ask("/v1/pauses", {"what": "activity", "name": "ring", "reason": "strike"})
    return Ask("/v1/pauses/resume", {"what": "activity", "name": "ring"})


def enabled(scene: Scene) -> Ask:
    name = scene.webhook()
    scene.ask(f"/v1/webhooks/{name}/disable", {"reason": "a test"})
    return Ask(f"/v1/webhooks/{name}/enable")


def dead(scene: Scene, run: str) -> tuple[str, str]:
    """Return a webhook and the id of a delivery that was given up."""
    name = scene.webhook()
    event: Event = scene.service.call(scene.service.state.store.load(EVENT, (TENANT, run, 1)))
    at, event_id = event.at, f"{run}:1"
    cursor = Cursor(TENANT, run, name, 1, 1, "", None, 1, 1, 0, 0, 0, at)
    status = DeliveryStatus.DEAD
    row = Delivery(
        TENANT, run, name, 1, 1, status, event_id, event.type, 9, at, at, 0, 500, "", "it answered 500", 1, ""
    )
    scene.put(Put(CURSOR, cursor, 0), Put(DELIVERY, row, 0))
    return name, f"{name}:{run}:1"


def view_saved(scene: Scene) -> Ask:
    scene.ask("/v1/views", {"name": "orders of today", "query": "since:1d"})
    return Ask("/v1/views/remove", {"name": "orders of today"})


IN_A_WORLD: dict[str, Callable[[Scene], Ask]] = {
    "start_run": lambda scene: Ask("/v1/workflows/wish/runs", {"input": {"text": "new"}, "key": ""}),
    "fork_run": run_of("fork_run", "forks", {"from": "work", "approvers": "lead"}),
    "fork_run_live": run_of("fork_run_live", "live-forks", {"from": "work"}),
    "continue_run": run_of("continue_run", "continue", {"reason": "yes"}),
    "detach_run": run_of("detach_run", "detach", {"reason": "it takes too long"}),
    "extend_run": extended,
    "remove_view": view_saved,
    "move_run": moved,
    "move_run_to_scheduler": run_of(
        "move_run_to_scheduler", "scheduler", {"scheduler": "temporal", "force": True, "reason": "a test"}
    ),
    "decide_approval": lambda scene: Ask(
        f"/v1/approvals/{scene.approvals['decide_approval']}/decision",
        {"decision": "approve", "reason": "as agreed"},
        headers=scene.shown("decide_approval"),
    ),
    "resolve_attention": lambda scene: Ask(
        f"/v1/attention/{scene.runs['resolve_attention']}/resolve", {"choice": "fail", "reason": "no use"}
    ),
    "resolve_attention_of_many": lambda scene: Ask(
        "/v1/attention/resolve",
        {
            "attention": "exception", "choice": "continue", "reason": "try",
            "runs": [{"run": scene.runs["resolve_attention_of_many"]}],
        },
    ),
    "start_bulk_answer": lambda scene: Ask(
        "/v1/bulk-answers",
        {"attention": "exception", "choice": "continue", "reason": "try", "workflow": "call"},
    ),
    "assign_attention": lambda scene: Ask(
        "/v1/attention/assign", {"run": scene.runs["assign_attention"], "to": "ana", "note": "calls them"}
    ),
    "resolve_effect": settled,
    "resume": resumed,
    "add_webhook": lambda scene: Ask("/v1/webhooks", {"url": f"{scene.receiver.url}/added"}),
    "add_notification": lambda scene: Ask("/v1/notifications", {"address": "ntfys://1.1.1.1/topic", "role": "lead"}),
    "rotate_webhook": lambda scene: Ask(f"/v1/webhooks/{scene.webhook()}/rotate", {}),
    "enable_webhook": enabled,
    "redeliver_dead": lambda scene: Ask(
        f"/v1/webhooks/{dead(scene, scene.runs['redeliver_dead'])[0]}/redeliver"
    ),
    "redeliver": lambda scene: Ask(f"/v1/deliveries/{dead(scene, scene.runs['redeliver'])[1]}/redeliver"),
}  # fmt: skip
"""Requests of operations that need more than their example and a resource that waits."""


def case_of(operation: Operation[Any, Any]) -> Callable[[Scene], Ask]:
    """Return the example of an operation as a request: to a run or approval that waits, a new webhook or a worker."""

    def make(scene: Scene) -> Ask:
        request = sent(operation, operation.example)
        known = {
            "run": lambda: scene.runs[operation.id],
            "approval": lambda: scene.approvals[operation.id],
            "webhook": scene.webhook,
            "worker": lambda: worker_of_version_2(scene),
        }
        path = operation.path
        for each in sent_fields(operation):
            if each.kind == "path":
                value = known[each.name]() if each.name in known else getattr(operation.example, each.field)
                path = path.replace(f"{{{each.name}}}", value)
        headers = scene.shown(operation.id) if operation.conditional == "approval" else ()
        return Ask(f"/v1{path}", request.body, operation.method, headers)

    return make


CHANGES_NOTHING = {"preview_fork"}
"""A read whose request has a body, because a state is too long for an address."""
CASES = {
    each.id: IN_A_WORLD.get(each.id) or case_of(each)
    for each in OPERATIONS
    if each.changes and each.id not in CHANGES_NOTHING
}
"""A request of each operation that changes something."""


def test_every_route_that_writes_has_a_case(tmp_path: Path) -> None:
    with Running(f"sqlite:{tmp_path / 'outlast.db'}", worker=False) as service:
        document = service.get("/openapi.json").json()
    writing = {
        operation["operationId"]
        for item in document["paths"].values()
        for method, operation in item.items()
        if method.upper() in WRITES
    }
    assert writing == set(CASES) | CHANGES_NOTHING


def answered(url: str, ask: Ask, key: str) -> httpx2.Response:
    headers = {"Idempotency-Key": key, **dict(ask.headers)}
    with httpx2.Client(base_url=url, timeout=60, verify=False) as client:
        return client.request(ask.method, ask.path, json=ask.body, headers=headers)


def killed_at(url: str, ask: Ask, key: str) -> None:
    """Send a request to a replica that is killed after its act."""
    command = ["tests.service.killed_replica", url]
    with forked.Popen(command, stdout=subprocess.PIPE, text=True) as replica:
        try:
            assert replica.stdout is not None
            address = replica.stdout.readline().strip()
            assert address, "it serves"
            with pytest.raises(httpx2.TransportError):
                answered(address, ask, key)
        finally:
            replica.kill()


OTHERS = [(store, operation) for store in ("postgresql", "dynamodb") for operation in CASES]
DRAWN = 6
"""Cases on other stores in a default run; `TEST_SEED=all` plays each."""


@pytest.mark.req("RUN-4")
@pytest.mark.parametrize(
    ("store", "operation"),
    [*(("sqlite", operation) for operation in CASES), *slices.params(OTHERS, DRAWN, "killed replicas")],
)
def test_a_write_whose_replica_is_killed_before_its_answer_is_done_once(
    scenes: Callable[[str], Scene], monkeypatch: pytest.MonkeyPatch, store: str, operation: str
) -> None:
    scene = scenes(store)
    monkeypatch.setattr(idempotency, "IN_FLIGHT", 0)  # as if the minute after the death were over
    ask, key = CASES[operation](scene), f"{store}-{operation}"
    before, told = scene.rows(), sum(scene.receiver.ids.values())
    known = set(scene.receiver.ids)
    killed_at(scene.url, ask, key)
    done = scene.rows()
    assert done != before or sum(scene.receiver.ids.values()) > told, "the act has landed"
    again = answered(scene.service.url, ask, key)
    assert again.is_success, again.text
    assert scene.rows() == done, "the repetition changes nothing"
    assert again.json().get("secret", "") == "", "and shows no secret"
    replayed = answered(scene.service.url, ask, key)
    assert (replayed.status_code, replayed.headers["Idempotent-Replayed"]) == (again.status_code, "true")
    assert replayed.json() == again.json() and scene.rows() == done
    if operation == "test_webhook":
        assert len(set(scene.receiver.ids) - known) == 1, "a receiver knows the repetition by its id"
