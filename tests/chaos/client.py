"""The callers, approvers and operators of a round, in one process that writes down each answer.

    python -m tests.chaos.client STORE RECEIVERS HISTORY SEED RATE WITHOUT

An answer is `ok` (acknowledged), `no` (refused) or `unknown`. The client starts runs until its input ends. It decides
approvals, sends signals and answers attention until it is killed.
"""

import asyncio
import contextlib
import json
import os
import random
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2

from outlast.core.approvals import EVERY_ROLE, Actor
from outlast.core.machine import ApprovalStatus, Choice, Reason
from outlast.core.rows.effect_rows import Approval
from outlast.core.rows.run_rows import Run
from outlast.errors import OutlastError, StoreError, Uncertain
from outlast.runtime.operations import Operations
from outlast.runtime.stores import open_store
from tests.chaos import flows

LOOK_S = 0.5
MIX = ("errand", "errand", "errand", "gate", "saga", "saga")
LEAD = Actor("lead", EVERY_ROLE)


class Client:
    """One client for a whole round."""

    def __init__(self, operations: Operations, world: str, history: Path, seed: int, rate: float) -> None:
        self._ops = operations
        self._http = httpx2.AsyncClient(base_url=world, trust_env=False)
        self._file = os.open(history, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._dice = random.Random(seed)
        self._rate = rate
        self._more = True
        self._tasks: set[asyncio.Task[None]] = set()

    async def say(self, op: str, act: Awaitable[Any], **about: Any) -> str:
        """Carry out a call, and write down its answer."""
        why = ""
        try:
            await act
            heard = "ok"
        except Uncertain as error:
            heard, why = "unknown", str(error)
        except StoreError as error:
            heard, why = ("no" if error.landed is False else "unknown"), str(error)
        except OutlastError as error:
            heard, why = "refused", str(error)
        line = {"op": op, "heard": heard, "why": why, "at": time.time_ns() // 1_000_000, **about}
        os.write(self._file, json.dumps(line).encode() + b"\n")
        return heard

    # --- starting ---------------------------------------------------------------------------------------
    async def start_runs(self) -> None:
        """Start runs at a rate, each in its own task, until `no_more`."""
        n = 0
        while self._more:
            n += 1
            task = asyncio.create_task(self._one(n, self._dice.choice(MIX)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            await asyncio.sleep(self._dice.expovariate(self._rate))

    async def _one(self, n: int, workflow: str) -> None:
        run = f"{workflow}-{n}"
        begun = self._ops.start_run(workflow, {"n": n}, run_id=run, key=run)
        if await self.say("start", begun, run=run) == "no":
            return  # refused: the id is not used again, so a run with it is an error
        if workflow == "gate":
            sid, heard = f"word-{n}", 0
            while heard < 2:  # sent twice with one id, and repeated after a lost answer, as a program would
                told = self._ops.signal(run, "word", {"text": f"word {n}"}, signal_id=sid)
                heard += await self.say("signal", told, run=run, id=sid) in ("ok", "refused")
                await asyncio.sleep(LOOK_S)
        elif self._dice.random() < 0.1:
            await asyncio.sleep(self._dice.random() * 3)
            await self.say("cancel", self._ops.cancel(run, reason="called off"), run=run)

    def no_more(self) -> None:
        """Stop starting runs; those begun go on."""
        self._more = False

    # --- people -------------------------------------------------------------------------------------------
    async def decide(self) -> None:
        """Approve or reject every pending approval."""
        pending, _ = await self._ops.rows.approvals(status=ApprovalStatus.PENDING.value, limit=200)
        await asyncio.gather(*(self._decide(row) for row in pending))

    async def _decide(self, row: Approval) -> None:
        if self._dice.random() < 0.8:
            await self.say("approve", self._ops.approve(row.id, reason="fine"), run=row.run, id=row.id)
        else:
            await self.say("reject", self._ops.reject(row.id, reason="no"), run=row.run, id=row.id)

    async def look_after(self) -> None:
        """Answer every run that requires attention, from the receivers' record."""
        cursor = ""
        while True:
            runs, cursor = await self._ops.rows.flagged(cursor=cursor)
            await asyncio.gather(*(self._answer(run) for run in runs))
            if not cursor:
                return

    async def _answer(self, run: Run) -> None:
        for entry in run.attention:
            about = {"run": run.run, "reason": entry.reason.value, "key": entry.key}
            if entry.reason is Reason.EFFECT_UNCERTAIN:
                await self._settle(run, entry.key, about)
            elif entry.reason is Reason.RETRIES_EXHAUSTED:
                await self.say("retry", self._retry(run, Choice.RETRY, entry.key), **about)
            elif entry.reason in (Reason.EXCEPTION, Reason.POISONED):
                await self.say("continue", self._retry(run, Choice.CONTINUE, entry.key), **about)
            elif entry.reason is Reason.UNDO_FAILED:
                await self.say("retry", self._retry(run, Choice.RETRY, entry.key), **about)

    async def _retry(self, run: Run, choice: Choice, key: str) -> None:
        (reason,) = [a.reason for a in run.attention if a.key == key][:1]
        await self._ops.answer(run.run, choice, reason=reason, text="try again", key=key)

    async def _settle(self, run: Run, key: str, about: dict[str, Any]) -> None:
        """Resolve an effect as "happened" or "did not happen", as a person with access to the receivers would."""
        doubt = await self._ops.rows.effect(run.run, key)
        kind, n = doubt.effect.activity, json.loads(doubt.effect.args)["n"]
        path = {"asked": "ask", "book": "book", "release": "release"}.get(kind, kind)
        seen = (await self._http.get(f"/{path}/{n}")).status_code == 200
        response = None if kind == "release" else f"/{path}/{n}"
        if seen:
            act = self._ops.resolve_effect(run.run, key, "happened", reason="seen", response=response)
        else:
            act = self._ops.resolve_effect(run.run, key, "did_not_happen", reason="not seen")
        await self.say("happened" if seen else "did_not_happen", act, path=f"/{path}/{n}", **about)

    async def again_and_again(self, act: Callable[[], Awaitable[None]]) -> None:
        """Repeat poll and action. A store or receiver that is unavailable is polled again later."""
        while True:
            with contextlib.suppress(OutlastError, httpx2.HTTPError):
                await act()
            await asyncio.sleep(LOOK_S)


async def main(store: str, world: str, history: Path, seed: int, rate: float) -> None:
    """Run the client until it is killed."""
    opened = await open_store(store)
    workflows = {each.name: each for each in (flows.errand, flows.gate, flows.saga, flows.slow)}
    client = Client(Operations(opened, tenant="default", actor=LEAD, workflows=workflows), world, history, seed, rate)
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin.fileno(), client.no_more)  # end of input: start no further runs
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    started = asyncio.create_task(client.start_runs())
    people = [asyncio.create_task(client.again_and_again(each)) for each in (client.decide, client.look_after)]
    await started
    loop.remove_reader(sys.stdin.fileno())
    while client._tasks:
        await asyncio.wait(client._tasks)
    await asyncio.gather(*people)


if __name__ == "__main__":
    STORE, WORLD, HISTORY, SEED, RATE, WITHOUT = sys.argv[1:]
    if WITHOUT:
        from tests.mutants import remove

        remove(WITHOUT)
    asyncio.run(main(STORE, WORLD, Path(HISTORY), int(SEED), float(RATE)))
