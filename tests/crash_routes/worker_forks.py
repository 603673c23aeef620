"""A process without threads that has imported everything and forks workers; JSON lines in and out.

`hire` answers a pid. `kill` sends SIGKILL and answers the exit status as `waitpid` reports it. `left` answers the exit
status of a worker that may have ended by itself.
"""

import asyncio
import ctypes
import json
import os
import signal
import sys
from typing import Any

from examples.negotiation.suppliers import INBOX
from examples.negotiation.workflow import negotiation
from outlast.core.durations import Liveness
from outlast.runtime.local_worker import worker_of
from outlast.runtime.stores import open_store

PR_SET_PDEATHSIG = 1
LIVE = Liveness(
    heartbeat_window=900,
    heartbeat_every=300,
    attempt_timeout=1_500,
    start_budget=400,
    settle_margin=1_100,
    backoff_ceiling=2_000,
    checkpoint_write=500,
)
"""Short durations, so that a killed worker is replaced and an interrupted call settled within seconds."""


async def _serve(store_url: str, name: str) -> None:
    store = await open_store(store_url)
    await worker_of(store, [negotiation], live=LIVE, name=name).run()


def _be(asked: dict[str, Any]) -> None:
    """Run the worker. Never returns."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(3)
    os.environ[INBOX] = asked["inbox"]
    log = os.open(asked["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        asyncio.run(_serve(asked["store"], asked["name"]))
    finally:
        os._exit(4)  # it was silent for too long, and another worker replaced it


def _died(status: int) -> int:
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def main() -> None:
    negotiation.validate()
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["op"] == "hire":
            pid = os.fork()
            if pid == 0:
                _be(asked)
            answer = {"pid": pid}
        elif asked["op"] == "kill":
            os.kill(asked["pid"], signal.SIGKILL)
            answer = {"died": _died(os.waitpid(asked["pid"], 0)[1])}
        else:
            pid, status = os.waitpid(asked["pid"], os.WNOHANG)
            answer = {"died": _died(status) if pid else 0}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
