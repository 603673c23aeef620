"""One round: a service, a proxy, callers, and the comparison of what was claimed with what is in the store."""

import asyncio
import json
import os
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import outlast
from outlast.core.machine import TERMINAL
from outlast.models.runs import RunSummary
from tests import forked
from tests.measured import unmeasured
from tests.proxied.callers import DONE, MAYBE, NOT_DONE, Callers, Said
from tests.proxied.flows import RECORD

ROOT = Path(__file__).parents[2]
QUIET_S = 300.0
PAGE = 200


class Plan(NamedTuple):
    """Options of a round."""

    seed: int
    seconds: float
    callers: int = 8
    rate: float = 0.35
    cli: bool = True
    say: Callable[[str], None] = lambda text: None
    acts: int = 0
    """The round also goes on until so many acts were claimed."""


class Stored(NamedTuple):
    """Rows of the store for each act, by its mark or run."""

    runs: dict[str, list[RunSummary]]
    raised: dict[str, int]
    approved: set[str]
    hooks: Counter[str]
    paused: Counter[str]


def play(plan: Plan) -> tuple[dict[str, Any], list[str]]:
    """Run the round. Returns its figures and a sentence for each fault."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="outlast-proxied-")))
        store = f"sqlite:{folder / 'outlast.db'}"
        record = folder / "record"
        record.touch()
        served = ("outlast", "-o", "ndjson", "--store", store, "serve", "tests/proxied/flows.py", "--port", "0")
        service = _start(stack, folder, "service", {RECORD: f"{record}"}, *served, log_only=True)
        url = _url_in(folder / "service.out", service)
        proxy = _start(stack, folder, "proxy", {}, "tests.proxied.proxy", url, f"{plan.seed}", f"{plan.rate}")
        between = proxy.stdout.readline().decode().strip()  # type: ignore[union-attr]
        callers = Callers(between, plan.seed, cli=plan.cli)
        begun = time.monotonic()
        ender = threading.Thread(target=_end, args=(plan, callers, begun))
        ender.start()
        asyncio.run(callers.go(plan.callers))
        ender.join()
        took_s = time.monotonic() - begun
        faults = json.loads(proxy.communicate()[0].splitlines()[-1])
        stored = asyncio.run(_stored(store))
        wrong = callers.wrong + judge(callers.said, stored, record.read_text().split())
        figures = {
            "seed": plan.seed,
            "seconds": round(took_s, 1),
            "calls": sum(callers.calls.values()),
            "answers": sum(faults.values()),
            "broken": sum(n for name, n in faults.items() if not name.endswith("pass")),
            "faults": dict(sorted(faults.items())),
            "acts": dict(Counter(said.act for said in callers.said)),
            "claims": dict(Counter(said.heard for said in callers.said)),
            "errors": dict(callers.errors),
            "effects": len(record.read_text().split()),
            "longest call": [round(callers.longest[0], 1), callers.longest[1]],
        }
        counts = {name: n for name, n in figures.items() if name in ("answers", "broken", "effects")}
        return figures, wrong + unmeasured(acts=len(callers.said), **counts)


def _end(plan: Plan, callers: Callers, begun: float) -> None:
    while time.monotonic() - begun < plan.seconds or len(callers.said) < plan.acts:
        time.sleep(min(1.0, plan.seconds))
        plan.say(f"{time.monotonic() - begun:5.0f} s, {len(callers.said)} acts, {len(callers.wrong)} wrong")
    callers.stop()


def _url_in(file: Path, service: "subprocess.Popen[Any]") -> str:
    """Return the URL that a service prints when it serves."""
    while not (lines := file.read_text().splitlines()[:1]) or not lines[0].endswith("}"):
        assert service.poll() is None, file.with_suffix(".log").read_text()
        time.sleep(0.05)
    return str(json.loads(lines[0])["url"])


def _start(
    stack: ExitStack, folder: Path, name: str, env: dict[str, str], *args: str, log_only: bool = False
) -> "subprocess.Popen[Any]":
    with (folder / f"{name}.log").open("ab") as log, (folder / f"{name}.out").open("ab") as out:
        given = {**os.environ, "PYTHONPATH": f"{ROOT}", **env}
        process = forked.Popen(
            args, cwd=ROOT, env=given, stdin=subprocess.PIPE, stdout=out if log_only else subprocess.PIPE, stderr=log
        )

    def end() -> None:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()

    stack.callback(end)
    return process


async def _stored(store: str) -> Stored:
    """Read the store, once each run has ended or waits."""
    async with outlast.connect(store) as client:
        await _settled(client)
        found = Stored({}, {}, set(), Counter(), Counter())
        cursor = ""
        while True:
            page = await client.runs(limit=PAGE, cursor=cursor)
            for run in page.runs:
                given = await client.run_input(run.run)
                found.runs.setdefault(given["mark"], []).append(run)
                if run.workflow == "talk":
                    calls = (await client.run(run.run)).budget.calls
                    found.raised[run.run] = (calls or 1) - 1  # the workflow declares one
            if not (cursor := page.next_cursor):
                break
        cursor = ""
        while True:
            decided = await client.approvals(status="approved", limit=PAGE, cursor=cursor)
            found.approved.update(each.approval for each in decided.approvals)
            if not (cursor := decided.next_cursor):
                break
        for hook in await client.webhooks.list():
            found.hooks[hook.name] += 1
        for each in await client.pauses():
            found.paused[each.paused.partition(" ")[2]] += 1
        return found


async def _settled(client: outlast.Client) -> None:
    """Wait until no run can go on. Only a fault reaches the limit."""

    async def none_moves() -> bool | None:
        summary = await client.runs(status="running", limit=1)
        queued = await client.runs(status="queued", limit=1)
        return True if not summary.runs and not queued.runs else None

    await client.until(none_moves, within_s=QUIET_S)


def judge(said: list[Said], stored: Stored, effects: list[str]) -> list[str]:
    """Compare claims and store. Each act has its own mark, so its number in the store is 0 or 1."""
    wrong = [f"the effect {mark} happened {n} times" for mark, n in Counter(effects).items() if n > 1]
    times = Counter(effects)
    for act, mark, heard, why in said:
        if act == "raise":
            continue
        n = _number(act, mark, stored, times)
        if n > 1:
            wrong.append(f"{act} {mark} is in the store {n} times")
        elif n == 0 and heard == DONE:
            wrong.append(f"{act} {mark} was acknowledged, and is not in the store")
        elif n and heard == NOT_DONE:
            wrong.append(f"{act} {mark} was called not done, and is in the store: {why}")
    for run, claims in _raises(said).items():
        n = stored.raised.get(run, 0)
        if not claims[DONE] <= n <= claims[DONE] + claims[MAYBE]:
            wrong.append(f"{run} was raised {n} times, and its caller was told {dict(claims)}")
    return wrong


def _raises(said: list[Said]) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for each in said:
        if each.act == "raise":
            found.setdefault(each.mark, Counter())[each.heard] += 1
    return found


def _number(act: str, mark: str, stored: Stored, effects: Counter[str]) -> int:
    if act.startswith("start"):
        return len(stored.runs.get(mark, []))
    if act == "add webhook":
        return stored.hooks[mark]
    if act == "pause":
        return stored.paused[mark]
    runs = {run.run: run for group in stored.runs.values() for run in group}
    if act == "cancel":
        return int(runs[mark].status in TERMINAL)
    if act == "signal":
        return effects[mark]
    assert act == "approve", act
    return int(mark in stored.approved)
