"""`outlast serve` as a process of its own, with credentials, and `outlast worker` beside it where it walks nothing."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple

from bench.load.place import TENANT
from bench.usage import PROC
from outlast.service.identity.static import new_token

ROOT = Path(__file__).resolve().parents[2]
MODULE = "bench/load/works.py"
PATIENCE_S = 30


class Service(NamedTuple):
    """One that answers."""

    url: str
    pid: int
    approver: str  # the token of a person who may decide
    viewer: str  # of one who may look

    def resident(self) -> int:
        """The bytes of memory it holds."""
        pages = int((PROC / str(self.pid) / "statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def serving(store: str, log: Path, *, worker: bool) -> Iterator[Service]:
    """The service over a store; `worker`: in its process, else in one beside it. What they log goes to a file."""
    approver, first = new_token("ana@bench.example", tenant=TENANT, roles=["approver", "finance"], person=True)
    viewer, second = new_token("eve@bench.example", tenant=TENANT, roles=["viewer"], person=True)
    env = {name: value for name, value in os.environ.items() if not name.startswith("OUTLAST_")}
    env["OUTLAST_AUTH__TOKENS"] = f"{first}\n{second}"
    apart = [] if worker else ["--no-worker", "--no-dispatcher"]
    with ExitStack() as stack:
        command = partial(_command, stack.enter_context(log.open("a")), env)
        if not worker:
            stack.enter_context(command("--store", store, "-q", "worker", MODULE))
        serve = command("--store", store, "-o", "ndjson", "serve", MODULE, "--port", "0", *apart)
        process = stack.enter_context(serve)
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            sys.exit(f"outlast serve has ended ({process.wait()}): {log.read_text()[-2_000:]}")
        yield Service(json.loads(line)["url"], process.pid, approver, viewer)


@contextmanager
def dispatching(store: str, log: Path) -> Iterator[None]:
    """`outlast dispatcher` over a store, which may send to this machine."""
    allowed = {"OUTLAST_WEBHOOKS__ALLOW_PRIVATE": "true", "OUTLAST_WEBHOOKS__ALLOW_HTTP": "true"}
    with log.open("a") as file, _command(file, {**os.environ, **allowed}, "--store", store, "-q", "dispatcher"):
        yield


@contextmanager
def _command(log: IO[str], env: dict[str, str], *args: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "outlast", *args]
    process = subprocess.Popen(command, cwd=ROOT, env=env, text=True, stdout=subprocess.PIPE, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
        process.communicate()
