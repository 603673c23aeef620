"""A program leaks secrets wherever it can: none of them may leave the store (S29).

Real processes on PostgreSQL with a password in its address, tokens, a webhook whose receiver is hostile, spans and
logs of every level. The list of places is that of docs/security.md.
"""

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import asyncpg
import httpx2
import pytest

from outlast.service.identity import new_token
from tests import forked
from tests.postgres.server import Server

MODULE = str(Path(__file__).with_name("leaky.py"))
OUTLAST = [sys.executable, "-m", "outlast"]
PLANTED = {
    "password in arguments": "canary-Pass-77AQ",
    "key of a model": "sk-canary1234567890abcdef",
    "authorization header": "canaryHeader0123456789",
    "password of the store": "canaryStorePw",
    "password of another database": "canaryOtherPw",
    "secret in an address": "canaryQuery42",
}


class Receiver:
    """Receiver that refuses every request and repeats it in the answer."""

    def __init__(self) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                said = f"{self.path} {self.headers} {body.decode(errors='replace')}".encode()
                seen.append(self.path)
                self.send_response(403 if self.path.startswith("/login") else 500)
                self.send_header("Content-Length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, *args: Any) -> None:
                pass

        self.seen = seen = list[str]()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Scene:
    """Processes, and every text that they output, by place."""

    def __init__(self, folder: Path, server: Server, receiver: Receiver) -> None:
        self.folder = folder
        self.server = server
        self.receiver = receiver
        self.planted = dict(PLANTED)
        self.places: dict[str, str] = {}
        roles = ["admin", "approver", "finance", "monitor"]
        self.token, line = new_token("root", tenant="default", roles=roles, person=True)
        self.planted["token of ours"] = self.token
        store = server.url.replace("postgres@", f"postgres:{PLANTED['password of the store']}@", 1)
        self.env = {
            "PATH": os.environ["PATH"], "OUTLAST_STORE": store, "OUTLAST_AUTH__TOKENS": line,
            "OUTLAST_WEBHOOKS__ALLOW_PRIVATE": "true", "OUTLAST_WEBHOOKS__ALLOW_HTTP": "true",
            "OUTLAST_WORKER__NOTIFY": f"{receiver.url}/notify?token={PLANTED['secret in an address']}",
            "OTEL_TRACES_EXPORTER": "console", "OUTLAST_LOG_LEVEL": "DEBUG",
            "LEAKY_SUPPLIER": f"{receiver.url}/login?api_key={PLANTED['secret in an address']}",
            "LEAKY_MODEL_KEY": PLANTED["key of a model"],
            "LEAKY_HEADER": f"Bearer {PLANTED['authorization header']}",
            "LEAKY_DSN": f"postgresql://app:{PLANTED['password of another database']}@db.internal:5432/app",
        }  # fmt: skip

    @contextmanager
    def running(self, *words: str) -> Iterator[str]:
        """Run a process that serves during the block. Its output is a place."""
        log = self.folder / f"{words[0]}.log"
        with log.open("wb") as err:
            process = subprocess.Popen(
                [*OUTLAST, *words], cwd=self.folder, env=self.env, stdout=subprocess.PIPE, stderr=err, text=True
            )
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            found = re.search(r"http://[\d.:]+", first)
            assert found, (first, log.read_text())
            yield found[0]
            self.places[f"argv while {words[0]} runs"] = argv(process.pid)
        finally:
            process.terminate()
            rest, _ = process.communicate(timeout=60)
            self.places[f"what {words[0]} says"] = first + rest + log.read_text()

    def typed(self, *words: str, **more: str) -> str:
        """Run a command. Its output is a place."""
        env = {**self.env, "OTEL_TRACES_EXPORTER": "none", **more}
        done = forked.run("outlast", *words, cwd=self.folder, env=env, capture_output=True, text=True)
        self.places[f"outlast {' '.join(words)}"] = done.stdout + done.stderr
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout

    def found(self) -> dict[str, list[str]]:
        """Return the places of each canary."""
        return {
            name: places
            for name, canary in self.planted.items()
            if (places := [place for place, text in self.places.items() if canary in text])
        }


def argv(pid: int) -> str:
    """Return the command lines of a process and its descendants."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    own = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return "\n".join([own, *(argv(int(child)) for child in children)])


def until(holds: Callable[[], Any]) -> Any:
    end = time.monotonic() + 60
    while not (found := holds()):
        assert time.monotonic() < end, "it did not come to hold"
        time.sleep(0.05)
    return found


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    server, receiver = Server(), Receiver()
    made = Scene(tmp_path_factory.mktemp("canaries"), server, receiver)
    try:
        play(made)
        yield made
    finally:
        receiver.close()
        server.close()


def play(scene: Scene) -> None:
    """Fail a run over its secrets, query everything about it, and at last remove the store."""
    with scene.running("serve", MODULE, "--port", "0") as url:
        with httpx2.Client(base_url=url, headers={"Authorization": f"Bearer {scene.token}"}, timeout=30) as client:
            run = failed_run(scene, client)
            problems(scene, client, run)
            for path in ("/metrics", "/v1/webhooks", f"/v1/runs/{run}/explain", "/v1/attention", "/openapi.json"):
                scene.places[f"GET {path}"] = client.get(path).raise_for_status().text
            commands(scene, run)
            scene.server.stop()
            answer = client.get("/v1/runs")
            assert answer.status_code == 503, answer.text
            scene.places["a store that is away"] = answer.text
            scene.typed("runs", "ls")
            scene.server.start()
    with scene.running("dev", MODULE, "--port", "0"):
        pass


def failed_run(scene: Scene, client: httpx2.Client) -> str:
    added = client.post(
        "/v1/webhooks", json={"url": f"{scene.receiver.url}/hook?token={PLANTED['secret in an address']}"}
    )
    assert added.status_code == 201, added.text
    scene.planted["secret of a webhook"] = added.json()["secret"]
    given = {"user": "ana", "password": PLANTED["password in arguments"]}
    started = client.post("/v1/workflows/leaky/runs", json={"input": given})
    assert started.status_code == 201, started.text
    run: str = started.json()["run"]
    (approval,) = until(lambda: client.get("/v1/approvals", params={"status": "pending"}).json()["approvals"])
    seen = client.get(f"/v1/approvals/{approval['approval']}")
    path = f"/v1/approvals/{approval['approval']}/decision"
    stale = client.post(path, json={"decision": "approve", "reason": "x"}, headers={"If-Match": '"v999"'})
    assert stale.status_code == 412
    scene.places["412, but for what it shows"] = json.dumps({**stale.json(), "current": ""})
    yes = {"decision": "approve", "reason": "let it"}
    assert client.post(path, json=yes, headers={"If-Match": seen.headers["ETag"]}).status_code == 200
    until(lambda: client.get(f"/v1/runs/{run}").json()["attention"])
    webhook = added.json()["webhook"]
    until(lambda: client.get(f"/v1/webhooks/{webhook}/deliveries").json()["deliveries"])
    scene.places["deliveries over HTTP"] = client.get(f"/v1/webhooks/{webhook}/deliveries").text
    scene.places["a webhook over HTTP"] = client.get(f"/v1/webhooks/{webhook}").text
    scene.places["a tried webhook over HTTP"] = client.post(f"/v1/webhooks/{webhook}/test").text
    for words in (("ls",), ("show", webhook), ("deliveries", webhook)):
        scene.typed("webhooks", *words)
        scene.typed("-o", "json", "webhooks", *words)
    assert any(each.startswith("/login") for each in scene.receiver.seen)
    return run


def problems(scene: Scene, client: httpx2.Client, run: str) -> None:
    """Refused requests: the error does not contain the value."""
    password, key, other = (PLANTED[name] for name in list(PLANTED)[:3])
    start = "/v1/workflows/leaky/runs"
    answers = [
        client.post(start, json={"input": {"user": 7, "password": [password], "api_key": key}}),
        client.post(start, json={"input": key, "password": password}),
        client.post(start, content=f'{{"password": "{password}"', headers={"Content-Type": "application/json"}),
        client.get(f"/v1/runs/{key}"), client.get(f"/v1/runs/{run}/{key}"),
        client.get("/v1/runs", params={"q": key * 9}), client.get("/v1/runs", params={"cursor": key}),
        client.post(f"/v1/workflows/{key}/runs", json={}),
        client.post("/v1/webhooks", json={"url": f"https://ana:{password}@example.com/x"}),
        client.post("/v1/webhooks", json={"url": f"ftp://ana:{password}@example.com/x"}),
        client.post(f"/v1/runs/{run}/signals/said", json={"payload": {"password": password}}),
        client.get("/v1/runs", headers={"Authorization": f"Bearer {other}"}),
        client.get("/v1/runs", headers={"Authorization": f"Basic {other}"}),
        client.post(f"/v1/runs/{run}/cancel", json={"reason": "x"}, headers={"If-Match": key}),
        client.post(f"/v1/runs/{run}/cancel", json={"reason": "x"}, headers={"Idempotency-Key": f"{key} {key}"}),
    ]  # fmt: skip
    for n, answer in enumerate(answers):
        assert 400 <= answer.status_code < 500 or answer.status_code == 202, (n, answer.text)
        scene.places[f"problem {n}"] = f"{answer.headers} {answer.text}"


def commands(scene: Scene, run: str) -> None:
    """Output of the command line about the store, its settings, and mistakes in them."""
    spoil(scene.server.url, run)
    for words in (("config", "show"), ("-o", "json", "config", "show"), ("doctor",), ("fsck", "--chain"),
                  ("fsck", "--json"), ("attention", "ls"), ("-o", "json", "attention", "ls"),
                  ("explain", run)):  # fmt: skip
        scene.typed(*words)
    assert "history_columns" in scene.places["outlast fsck --chain"]
    scene.typed("export", run, "--to", "run.json")
    scene.places["an export"] = (scene.folder / "run.json").read_text()
    scene.typed("export", run)
    scene.typed("verify", "run.json")
    scene.typed("token", "new", "ben", "viewer", "--tenant", "x" * 999)
    wrong = scene.env["OUTLAST_STORE"].replace("postgresql:", "mysql:")
    scene.typed("runs", "ls", "--limit", "1", OUTLAST_STORE=wrong)
    scene.typed("doctor", "--utc", OUTLAST_STORE=re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:1", scene.env["OUTLAST_STORE"]))
    scene.typed("config", "show", "-q", OUTLAST_URL=f"https://ana:{PLANTED['password of the store']}@example.com")
    lines = scene.env["OUTLAST_AUTH__TOKENS"]
    scene.typed("serve", "--port", "0", OUTLAST_AUTH__TOKENS=f"{lines} {scene.token}")


def spoil(url: str, run: str) -> None:
    """An event that names another workflow than its run, and in it a secret."""
    import asyncio

    async def change() -> None:
        db = await asyncpg.connect(url)
        key = PLANTED["key of a model"]
        await db.execute("UPDATE outlast.event SET workflow = $1 WHERE run = $2 AND seq = 1", key, run)
        await db.close()

    asyncio.run(change())


@pytest.mark.req("OBS-3")
@pytest.mark.parametrize("name", [*PLANTED, "token of ours", "secret of a webhook"])
def test_a_planted_secret_appears_nowhere(scene: Scene, name: str) -> None:
    assert scene.found().get(name, []) == []


def test_redacted_places_are_marked(scene: Scene) -> None:
    """The places are not empty and contain `[redacted]`."""
    for place in (
        "what serve says",
        "an export",
        "outlast attention ls",
        "deliveries over HTTP",
        "outlast config show",
    ):
        assert "[redacted]" in scene.places[place], place
    for word in ("workflow.start", "activity.login", "interrupt.waiting", '"event": "workflow.'):
        assert word in scene.places["what serve says"], word
    assert "outlast_effects_total" in scene.places["GET /metrics"]
    assert "--once" in scene.places["argv while dev runs"], "the process that serves is seen"
