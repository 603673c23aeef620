"""One round: a service, a proxy, callers, and the comparison of what was claimed with what is in the store."""

import asyncio
import faulthandler
import json
import logging
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

import outlast
from outlast.core.machine import TERMINAL, SubscriptionStatus
from outlast.core.rows.outbox_rows import SUBSCRIPTION
from outlast.models.runs import RunSummary
from outlast.runtime.stores import open_store
from tests import forked
from tests.measured import unmeasured
from tests.proxied.callers import COMMAND_S, DONE, HANG_S, MAYBE, NOT_DONE, Callers, Said
from tests.proxied.flows import RECORD

ROOT = Path(__file__).parents[2]
QUIET_S = 300.0
PAGE = 200
SHOWN: Final = 40
"""Most reasons that the figures show."""
COUNTED: Final = ("raise", "rotate")
"""Acts that one mark has several times."""


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
    definite: float = 0.0
    """Smallest share of claims that are "done" or "nothing was changed". `Uncertain` is never false."""


class Stored(NamedTuple):
    """Rows of the store for each act, by its mark or run."""

    runs: dict[str, list[RunSummary]]
    of_id: dict[str, RunSummary]
    raised: dict[str, int]
    approved: set[str]
    rejected: set[str]
    hooks: Counter[str]
    rotated: Counter[str]
    removed: Counter[str]
    paused: Counter[str]
    wrong: list[str]

    @classmethod
    def empty(cls) -> "Stored":
        """Return the rows of an empty store."""
        return cls({}, {}, {}, set(), set(), Counter(), Counter(), Counter(), Counter(), [])


class Told(logging.Handler):
    """Counts the warnings of the clients in place of printing them."""

    def __init__(self) -> None:
        super().__init__()
        self.n = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Count a warning."""
        self.n += 1


def play(plan: Plan) -> tuple[dict[str, Any], list[str]]:
    """Run the round. Returns its figures and a sentence for each fault."""
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="outlast-proxied-"))
        store = f"sqlite:{folder / 'outlast.db'}"
        record = folder / "record"
        record.touch()
        served = ("outlast", "-o", "ndjson", "--store", store, "serve", "tests/proxied/flows.py", "--port", "0")
        service = _start(stack, folder, "service", {RECORD: f"{record}"}, *served, log_only=True)
        url = _url_in(folder / "service.out", service)
        proxy = _start(stack, folder, "proxy", {}, "tests.proxied.proxy", url, f"{plan.seed}", f"{plan.rate}")
        between = proxy.stdout.readline().decode().strip()  # type: ignore[union-attr]
        callers = Callers(between, plan.seed, cli=plan.cli)
        told = _warnings(stack)
        begun = time.monotonic()
        ended = threading.Event()
        ender = threading.Thread(target=_end, args=(plan, callers, begun, ended))
        ender.start()
        try:
            asyncio.run(callers.go(plan.callers))
        finally:
            ended.set()
            callers.stop()
        ender.join()
        took_s = time.monotonic() - begun
        faults = json.loads(proxy.communicate()[0].splitlines()[-1])
        stored = asyncio.run(_stored(store))
        effects = record.read_text().split()
        wrong = callers.wrong + stored.wrong + judge(callers.said, stored, effects)
        figures = {
            "seed": plan.seed,
            "seconds": round(took_s, 1),
            "calls": sum(callers.calls.values()),
            "answers": sum(faults.values()),
            "broken": sum(n for name, n in faults.items() if not name.endswith("pass")),
            "faults": dict(sorted(faults.items())),
            "acts": dict(Counter(said.act for said in callers.said)),
            **claims_of(callers.said, stored, effects),
            "errors": dict(callers.errors),
            "effects": len(effects),
            "effects twice": sum(n > 1 for n in Counter(effects).values()),
            "false claims": sum("was called not done" in each or "was acknowledged" in each for each in wrong),
            "hangs": sum("hangs" in each for each in wrong),
            "reconnected streams": told.n,
            "longest call": [round(callers.longest[0], 1), callers.longest[1]],
        }
        counts = {name: n for name, n in figures.items() if name in ("answers", "broken", "effects")}
        wrong += unmeasured(acts=len(callers.said), **counts) + _weak(plan, figures)
    if wrong:
        figures["kept"] = f"{folder}"
    else:
        shutil.rmtree(folder)
    return figures, wrong


def claims_of(said: list[Said], stored: Stored, effects: list[str]) -> dict[str, Any]:
    """Return the claims by kind, the share of definite ones, and why others are not."""
    claims, times = Counter(each.heard for each in said), Counter(effects)
    unsure = [each for each in said if each.heard == MAYBE and each.act not in COUNTED]
    reasons = Counter(f"{each.heard}: {each.reason}" for each in said if each.heard != DONE)
    return {
        "claims": dict(claims),
        "definite": round((claims[DONE] + claims[NOT_DONE]) / max(len(said), 1), 3),
        "uncertain acts that happened": sum(_number(each.act, each.mark, stored, times) > 0 for each in unsure),
        "uncertain acts that did not": sum(_number(each.act, each.mark, stored, times) == 0 for each in unsure),
        "reasons": dict(reasons.most_common(SHOWN)),
    }


def _weak(plan: Plan, figures: dict[str, Any]) -> list[str]:
    """Return a sentence for each kind of claim that there were too few of, because then no claim could be false."""
    if not plan.definite:
        return []
    counts = {name: figures["claims"].get(name, 0) for name in (DONE, NOT_DONE, MAYBE)}
    weak = unmeasured(**{f"claims_{name.replace(' ', '_')}": n for name, n in counts.items()})
    if figures["definite"] < plan.definite:
        weak.append(f"only {figures['definite']:.0%} of the claims say whether the act was done")
    return weak


def _warnings(stack: ExitStack) -> Told:
    log, told = logging.getLogger("outlast.client"), Told()
    stack.callback(setattr, log, "propagate", log.propagate)
    stack.callback(log.removeHandler, told)
    log.addHandler(told)
    log.propagate = False
    return told


def _end(plan: Plan, callers: Callers, begun: float, ended: threading.Event) -> None:
    """End the acts in time, and the process if the callers do not end."""
    told = 0
    while not ended.is_set() and (time.monotonic() - begun < plan.seconds or len(callers.said) < plan.acts):
        ended.wait(min(1.0, plan.seconds))
        plan.say(f"{time.monotonic() - begun:5.0f} s, {len(callers.said)} acts, {len(callers.wrong)} wrong")
        for each in callers.wrong[told:]:
            plan.say(f"  wrong: {each}")
        told = len(callers.wrong)
    callers.stop()
    if not ended.wait(2 * COMMAND_S + HANG_S):
        faulthandler.dump_traceback()
        os._exit(3)  # nothing can interrupt a thread that hangs


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
    found = Stored.empty()
    async with outlast.connect(store) as client:
        if await _settled(client) is None:
            found.wrong.append(f"runs still go on after {QUIET_S} s")
        await _read_runs(client, found)
        for status, ids in (("approved", found.approved), ("rejected", found.rejected)):
            cursor, more = "", True
            while more:
                decided = await client.approvals(status=status, limit=PAGE, cursor=cursor)
                ids.update(each.approval for each in decided.approvals)
                more = bool(cursor := decided.next_cursor)
        for each in await client.pauses():
            found.paused[each.paused.partition(" ")[2]] += 1
    opened = await open_store(store)
    try:
        for hook in await opened.rows(SUBSCRIPTION, ()):
            gone = hook.status is SubscriptionStatus.REMOVED
            found.hooks[hook.name] += 1
            found.rotated[hook.name] += hook.version - 1 - gone
            found.removed[hook.name] += gone
    finally:
        await opened.close()
    return found


async def _read_runs(client: outlast.Client, found: Stored) -> None:
    cursor, more = "", True
    while more:
        page = await client.runs(limit=PAGE, cursor=cursor)
        for run in page.runs:
            given = await client.run_input(run.run)
            found.runs.setdefault(given["mark"], []).append(run)
            found.of_id[run.run] = run
            if run.workflow == "talk":
                calls = (await client.run(run.run)).budget.calls
                found.raised[run.run] = (calls or 1) - 1  # the workflow declares one
        more = bool(cursor := page.next_cursor)


async def _settled(client: outlast.Client) -> bool | None:
    """Wait until no run can go on. Only a fault reaches the limit."""

    async def none_moves() -> bool | None:
        summary = await client.runs(status="running", limit=1)
        queued = await client.runs(status="queued", limit=1)
        return True if not summary.runs and not queued.runs else None

    return await client.until(none_moves, within_s=QUIET_S)


def judge(said: list[Said], stored: Stored, effects: list[str]) -> list[str]:
    """Compare claims and store. Each act has its own mark, so its number in the store is 0 or 1."""
    wrong = [f"the effect {mark} happened {n} times" for mark, n in Counter(effects).items() if n > 1]
    times = Counter(effects)
    for mark, runs in stored.runs.items():
        if runs[0].workflow == "quick" and not times[mark]:
            wrong.append(f"the run of {mark} is {runs[0].status}, and its effect did not happen")
    for act, mark, heard, why in said:
        if act in COUNTED:
            continue
        n = _number(act, mark, stored, times)
        if n > 1:
            wrong.append(f"{act} {mark} is in the store {n} times")
        elif n == 0 and heard == DONE:
            wrong.append(f"{act} {mark} was acknowledged, and is not in the store")
        elif n and heard == NOT_DONE:
            wrong.append(f"{act} {mark} was called not done, and is in the store: {why}")
    for act, numbers in (("raise", stored.raised), ("rotate", stored.rotated)):
        for mark, claims in _of(act, said).items():
            n = numbers.get(mark, 0)
            if n < claims[DONE]:
                wrong.append(f"{act} {mark} was acknowledged {claims[DONE]} times, and happened {n} times")
            if n > claims[DONE] + claims[MAYBE]:
                wrong.append(f"{act} {mark} happened {n} times, and of others was called not done: {dict(claims)}")
    return wrong


def _of(act: str, said: list[Said]) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for each in said:
        if each.act == act:
            found.setdefault(each.mark, Counter())[each.heard] += 1
    return found


def _number(act: str, mark: str, stored: Stored, effects: Counter[str]) -> int:
    if act.startswith("start") or act == "command":
        return len(stored.runs.get(mark, []))
    numbers = {
        "add webhook": stored.hooks[mark],
        "remove webhook": stored.removed[mark],
        "pause": stored.paused[mark],
        "resume": 1 - stored.paused[mark],
        "signal": effects[mark],
        "approve": mark in stored.approved,
        "reject": mark in stored.rejected,
        "stale decision": mark in stored.approved | stored.rejected,
    }
    return int(stored.of_id[mark].status in TERMINAL if act == "cancel" else numbers[act])
