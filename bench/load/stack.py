"""`outlast serve` as a process of its own, with credentials."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from bench.load.place import TENANT
from bench.usage import resident_tree
from outlast.service.identity.static_tokens import new_token

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
        """The bytes of memory that it holds, and those that it has begun."""
        return resident_tree(self.pid)


@contextmanager
def serving(store: str, log: Path, *, processes: int) -> Iterator[Service]:
    """The service over a store, HTTP in so many processes. What they log goes to a file."""
    approver, first = new_token("ana@bench.example", tenant=TENANT, roles=["approver", "finance"], person=True)
    viewer, second = new_token("eve@bench.example", tenant=TENANT, roles=["viewer"], person=True)
    env = {name: value for name, value in os.environ.items() if not name.startswith("OUTLAST_")}
    env["OUTLAST_AUTH__TOKENS"] = f"{first}\n{second}"
    several = ["--processes", str(processes)] if processes > 1 else []
    words = ("--store", store, "-o", "ndjson", "serve", MODULE, "--port", "0", *several)
    with log.open("a") as file, _command(file, env, *words) as process:
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
