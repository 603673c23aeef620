"""Each program of examples/applications starts a refund, a person approves it, and the program shows its end.

The programs run as processes over one store. The FastAPI application brings its own worker; the others share one.
"""

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

import outlast
from outlast.errors import Conflict, NotFound
from tests.docs.pages import ROOT, program
from tests.docs.terminal import environment, free_port

PROGRAMS = ROOT / "examples/applications"
WITHIN_S = 60.0
WSGI = """
import importlib, sys
from wsgiref.simple_server import make_server
make_server("127.0.0.1", int(sys.argv[3]), getattr(importlib.import_module(sys.argv[1]), sys.argv[2])).serve_forever()
"""
CELERY = """
from celery.contrib.testing.worker import start_worker
from celery_app import app, complain
with start_worker(app, perform_ping_check=False):
    print(*(complain.delay("A-4", 4200).get(timeout=50) for _ in range(2)))
"""
NOTEBOOK = """
import ast, asyncio, inspect, json, sys
from outlast.flow.source import syntax_tree
async def cells(path, names):
    for cell in json.load(open(path))["cells"]:
        if cell["cell_type"] == "code":
            tree = syntax_tree("".join(cell["source"]))
            last = tree.body[-1]
            if isinstance(last, ast.Expr):  # Jupyter shows the value of the last line
                tree.body[-1] = ast.copy_location(syntax_tree("shown = 0").body[0], last)
                tree.body[-1].value = last.value
            code = compile(ast.fix_missing_locations(tree), path, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            result = eval(code, names)
            if inspect.isawaitable(result):
                await result
            print(repr(names.pop("shown", None)))
asyncio.run(cells(sys.argv[1], {"__name__": "__main__"}))
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:{tmp_path_factory.mktemp('applications') / 'refunds.db'}"


@pytest.fixture(scope="module")
def env(store: str) -> dict[str, str]:
    return {**environment(), "OUTLAST_STORE": store, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(PROGRAMS)])}


@pytest.fixture(scope="module")
def client(store: str) -> Iterator[outlast.SyncClient]:
    with outlast.connect_sync(store) as found:
        yield found


@pytest.fixture(scope="module")
def worker(env: dict[str, str]) -> Iterator[None]:
    with process([sys.executable, "-m", "outlast", "worker", "refunds.py"], env):
        yield


@contextmanager
def process(command: list[str], env: dict[str, str]) -> Iterator["subprocess.Popen[str]"]:
    """Run a program until the block ends."""
    with subprocess.Popen(command, cwd=PROGRAMS, env=env, text=True, stdout=subprocess.PIPE) as running:
        try:
            yield running
        finally:
            running.terminate()


def approve(client: outlast.SyncClient, run: str) -> None:
    """Approve the refund of a run as soon as it is asked for."""
    give_up = time.monotonic() + WITHIN_S
    while not (asked := client.approvals(run=run, status="pending").approvals):
        assert time.monotonic() < give_up, client.explain(run)
        time.sleep(0.02)
    client.approve(asked[0].approval, reason="the goods came back")


def refund_over_http(url: str, client: outlast.SyncClient, order: str, reads: str = "refunds") -> None:
    """Start a refund twice over HTTP, approve it, and read its end."""
    with httpx2.Client(base_url=url, timeout=WITHIN_S) as http:
        give_up = time.monotonic() + WITHIN_S
        while True:
            try:
                answers = [http.post(f"/refunds/{order}?cents=4200") for _ in range(2)]
                break
            except httpx2.ConnectError:  # the server is starting
                assert time.monotonic() < give_up
                time.sleep(0.05)
        assert [answer.status_code for answer in answers] == [202, 202], answers[0].text
        (run,) = {answer.json()["run"] for answer in answers}
        approve(client, run)
        assert client.get(run).result(timeout=WITHIN_S) == f"receipt-{order}"
        assert http.get(f"/{reads}/{run}").json() == {"status": "COMPLETED"}
        assert http.get(f"/{reads}/no-such-run").status_code == 404


def test_fastapi(env: dict[str, str], client: outlast.SyncClient) -> None:
    port = free_port()
    with process([sys.executable, "-m", "uvicorn", "fastapi_app:app", "--port", port], env) as server:
        refund_over_http(f"http://127.0.0.1:{port}", client, "A-1")
        server.terminate()
        assert server.wait(WITHIN_S) in (0, -15)


@pytest.mark.usefixtures("worker")
def test_flask(env: dict[str, str], client: outlast.SyncClient) -> None:
    port = free_port()
    with process([sys.executable, "-c", WSGI, "flask_app", "app", port], env):
        refund_over_http(f"http://127.0.0.1:{port}", client, "A-2")


@pytest.mark.usefixtures("worker")
def test_django(env: dict[str, str], client: outlast.SyncClient) -> None:
    port = free_port()
    with process([sys.executable, "-c", WSGI, "django_app", "application", port], env):
        refund_over_http(f"http://127.0.0.1:{port}", client, "A-3", reads="runs")


@pytest.mark.usefixtures("worker")
def test_celery(env: dict[str, str], client: outlast.SyncClient) -> None:
    """The task is delivered twice, and there is one run."""
    brokers = {"CELERY_BROKER": "memory://", "CELERY_BACKEND": "cache+memory://"}
    done = subprocess.run(
        [sys.executable, "-c", CELERY], cwd=PROGRAMS, env=env | brokers, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.split()
    assert first == second
    approve(client, first)
    assert client.get(first).result(timeout=WITHIN_S) == "receipt-A-4"


@pytest.mark.usefixtures("worker")
def test_script(env: dict[str, str], client: outlast.SyncClient) -> None:
    with process([sys.executable, "-u", "script.py", "A-5", "4200"], env) as script:
        assert script.stdout is not None
        run, _, said = script.stdout.readline().partition(": ")
        assert said == "started\n"
        approve(client, run)
        assert script.stdout.read() == "receipt-A-5\n"
        assert script.wait(WITHIN_S) == 0


@pytest.mark.req("RT-3")
def test_langgraph(env: dict[str, str], tmp_path: Path) -> None:
    command = [sys.executable, f"{PROGRAMS / 'langgraph_app.py'}", "A-7", "4200"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "review -.-> pay;" in done.stdout
    said, receipt = done.stdout.splitlines()[-2:]
    assert said.startswith("waits for approval ap_")
    assert receipt == "receipt-A-7"


def test_notebook(env: dict[str, str]) -> None:
    command = [sys.executable, "-c", NOTEBOOK, "notebook.ipynb"]
    done = subprocess.run(command, cwd=PROGRAMS, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "dev.outlast.run.parked" in done.stdout and "'receipt-A-6'" in done.stdout


def test_the_comparison_program_prints_what_the_others_print(tmp_path: Path) -> None:
    """The Outlast program of docs/coming-from.md, whose person is this test."""
    page = (ROOT / "docs/coming-from.md").read_text(encoding="utf-8")
    found = re.search(r"```python title=refunds.py\n(.*?)```", page, re.DOTALL)
    assert found is not None
    (tmp_path / "program.py").write_text(found[1], encoding="utf-8")
    env = {**environment(), "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(
        [sys.executable, "-u", "program.py"], cwd=tmp_path, env=env, text=True, stdout=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        with outlast.connect_sync(f"sqlite:{tmp_path / 'refunds.db'}") as client:
            give_up = time.monotonic() + WITHIN_S
            while not (runs := client.runs().runs):
                assert time.monotonic() < give_up
            approve(client, runs[0].run)
        assert running.stdout.read() == "bank: 4200 cents back for A-1\nreceipt-A-1\n"


def test_the_functions_of_the_client_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page: dict[str, Any] = {"__name__": "page_client"}
    exec(compile(program(ROOT / "docs/client.md"), "docs/client.md", "exec"), page)
    refund = page["refund"]

    async def decide_all(client: outlast.Client) -> None:
        while True:
            with pytest.raises(NotFound, match="ap_9d9424199e"):  # the approval that the page rejects last
                await page["decide"](client)
            await asyncio.sleep(0.01)

    async def play() -> None:
        await page["with_a_store"]()
        async with outlast.connect("sqlite:orders.db") as client, client.worker([refund]):
            person = asyncio.create_task(decide_all(client))
            await client.start(refund, refund.arguments("A-0", 1), key="0", run_id="a-run-id")
            await asyncio.gather(page["read"](client), page["follow"](client), page["serve"](client))
            with pytest.raises(Conflict, match="a-run-id"):
                await page["act"](client)  # the run has ended
            await page["start"](client)
            with pytest.raises(NotFound, match="order"):
                await page["start_with_a_key"](client)  # a workflow that only a service knows
            person.cancel()
            with pytest.raises(asyncio.CancelledError):
                await person
            await client.get("a-run-id").result()

    asyncio.run(asyncio.wait_for(play(), WITHIN_S))
