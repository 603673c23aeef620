"""A process without threads that has imported everything: forks one child for each life it is asked for.

JSON lines in and out. `{"op": "life", …}` answers when the child has ended or stopped; `{"op": "go_on"}` lets the
stopped one run to its end. A child that outlives this process is ended by the kernel.
"""

import asyncio
import ctypes
import gc
import json
import os
import signal
import sys
import threading
import traceback
from typing import Any

import httpx

from examples.negotiation import suppliers
from examples.negotiation.workflow import negotiation
from tests.crash import life
from tests.crash.auction_client import watch_mail
from tests.crash.refund import refund

WORKFLOWS = {"refund": refund, "negotiation": negotiation}
PR_SET_PDEATHSIG = 1


class Child:
    """A life under way: its process, and the memory it reports through."""

    def __init__(self, ask: dict[str, Any]) -> None:
        self._report = os.memfd_create("report")
        self.pid = os.fork()
        if self.pid == 0:
            _be(ask, self._report)

    def until_it_rests(self) -> dict[str, Any]:
        """Wait until it has ended or stopped."""
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            return {"stopped": True, "died": 0}
        with os.fdopen(self._report, "rb") as report:
            report.seek(0)
            said = report.read()
        self.pid = 0
        return {
            "stopped": False,
            "died": -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status),
            **(json.loads(said) if said else {}),
        }

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def end(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


def _be(ask: dict[str, Any], end: int) -> None:
    """The child: never returns."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(3)
    code = 0
    try:
        report = life.live(ask, [WORKFLOWS[ask["workflow"]]], watch_mail)
    except BaseException:  # whatever it was, the parent is told
        report, code = {"error": traceback.format_exc()}, 2
    with os.fdopen(end, "wb") as file:
        file.write(json.dumps(report).encode())
    os._exit(code)


async def _warm() -> None:
    """Import now what the HTTP client would import at its first call in each child."""
    async with httpx.AsyncClient(verify=suppliers._trust(), trust_env=False) as http:
        try:
            await http.get("http://127.0.0.1:9/")
        except httpx.TransportError:
            pass  # nobody is there


def main() -> None:
    for workflow in WORKFLOWS.values():
        workflow.validate()
    asyncio.run(_warm())
    assert threading.active_count() == 1, "a fork takes no other thread along"
    gc.collect()
    gc.freeze()
    stopped: list[Child] = []
    try:
        for line in sys.stdin:
            ask = json.loads(line)
            child = stopped.pop() if ask["op"] == "go_on" else Child(ask)
            if ask["op"] == "go_on":
                child.go_on()
            answer = child.until_it_rests()
            if answer["stopped"]:
                stopped.append(child)
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
    finally:
        for child in stopped:
            child.end()


if __name__ == "__main__":
    main()
