"""Requests to a service under load, sent by wrk or by an open-loop generator that does not wait for answers."""

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from bench.load.place import Target
from bench.load.stack import Service

WRK = "wrk"
NO_WRK = (
    "this measurement asks with wrk, which is not installed: apt-get install wrk (Debian), brew install wrk (macOS)"
)
SCRIPT = Path(__file__).with_name("wrk.lua")
CONNECTIONS = 64
SPARE = 1.05  # because wrk stops after a time, not after a number
DECISION = json.dumps({"decision": "approve", "reason": "as agreed"})
# Reads of a front end: single runs and approvals, and sometimes a page of either.
READS = (("/v1/runs/{run}", 10), ("/v1/approvals/{approval}", 8), ("/v1/runs?limit=20", 1),
         ("/v1/approvals?status=pending&limit=20", 1))  # fmt: skip
Request = tuple[str, str, dict[str, str], str]


class Asked(NamedTuple):
    """Requests at one rate, and their answers."""

    requests: int
    per_s: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    failed: int
    """Answered with 5xx, or not at all."""
    refused: int
    """Answered with 4xx."""


class Plan(NamedTuple):
    """Decisions and reads, each at a rate per second for a time."""

    decisions: int
    reads: int
    seconds: int

    def targets(self) -> int:
        """Number of approvals that the plan needs."""
        return int(self.decisions * self.seconds * SPARE) + 1


def decisions(service: Service, targets: Sequence[Target]) -> list[Request]:
    """Return one decision per target, with its own key and the version that was shown."""
    headers = {"Authorization": f"Bearer {service.approver}"}
    return [
        ("POST", f"/v1/approvals/{t.approval}/decision",
         {**headers, "If-Match": t.etag, "Idempotency-Key": f"decide-{t.run}"}, DECISION)
        for t in targets
    ]  # fmt: skip


def reads(service: Service, targets: Sequence[Target], count: int) -> list[Request]:
    """Return a mix of READS over these targets, the same each time."""
    dice = random.Random(7)
    paths = dice.choices([path for path, _ in READS], [weight for _, weight in READS], k=count)
    headers = {"Authorization": f"Bearer {service.viewer}"}
    return [("GET", path.format(**dice.choice(targets)._asdict()), headers, "") for path in paths]


def wrk_is_here() -> bool:
    """True if wrk is installed."""
    return shutil.which(WRK) is not None


def by_wrk(folder: Path, service: Service, plan: Plan, targets: Sequence[Target]) -> tuple[Asked, Asked]:
    """Send decisions and reads with one wrk each. Latency counts from the time a request was sent."""
    asked = {
        "decisions": (plan.decisions, decisions(service, targets[: plan.targets()])),
        "reads": (plan.reads, reads(service, targets, int(plan.reads * plan.seconds * SPARE) + 1)),
    }
    for name, (_, requests) in asked.items():
        (folder / f"{name}.txt").write_text("".join(_line(*each) for each in requests))

    def one(name: str, rate: int) -> Asked:
        options = ["-t1", f"-c{CONNECTIONS}", f"-d{plan.seconds}s", "--timeout", "20s", "-s", str(SCRIPT)]
        done = subprocess.run(
            [WRK, *options, service.url, "--", str(folder / f"{name}.txt"), str(rate)],
            capture_output=True,
            text=True,
            check=False,
        )
        line = next((line for line in done.stdout.splitlines() if line.startswith("JSON ")), None)
        if line is None:
            sys.exit(f"wrk has failed: {done.stdout}{done.stderr}")
        told = json.loads(line.removeprefix("JSON "))
        return Asked(
            told["count"], told["count"] / told["seconds"], told["p50_ms"], told["p99_ms"], told["max_ms"],
            told["failed"] + told["broken"], told["refused"],
        )  # fmt: skip

    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(one, name, rate) for name, (rate, _) in asked.items()]
        return both[0].result(), both[1].result()


def _line(method: str, path: str, headers: dict[str, str], body: str) -> str:
    return "\t".join([method, path, body or "-", *(f"{name}={value}" for name, value in headers.items())]) + "\n"


def open_loop(folder: Path, service: Service, plan: Plan, targets: Sequence[Target]) -> tuple[Asked, Asked]:
    """Send decisions and reads at fixed times. Latency counts from the time a request was due."""
    streams: list[dict[str, Any]] = [
        {"rate": plan.decisions, "requests": decisions(service, targets[: plan.decisions * plan.seconds])},
    ]
    if plan.reads:
        streams.append({"rate": plan.reads, "requests": reads(service, targets, plan.reads * plan.seconds)})
    config = folder / "open-loop.json"
    config.write_text(json.dumps({"url": service.url, "streams": streams}))
    command = [sys.executable, "-m", "bench.load.open_loop", str(config)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found = [_asked(each) for each in json.loads(done.stdout)[: len(streams)]]
    return found[0], found[-1]


def _asked(told: dict[str, Any]) -> Asked:
    statuses = {int(status): count for status, count in told["statuses"].items()}
    failed = sum(count for status, count in statuses.items() if status == 0 or status >= 500)
    refused = sum(count for status, count in statuses.items() if 400 <= status < 500)
    return Asked(told["count"], told["per_s"], told["p50_ms"], told["p99_ms"], told["max_ms"], failed, refused)
