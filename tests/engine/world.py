"""Test world of the engine: one store, its processes, operators, and a receiver that records."""

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from pydantic import BaseModel

from outlast.core.approvals import Actor, PersonDecision
from outlast.core.attention import AttentionAnswer
from outlast.core.durations import Liveness
from outlast.core.machine import Choice, Reason
from outlast.core.rows.effect_rows import APPROVAL, EFFECT, EVIDENCE, WAIT, Approval, Effect, Evidence, Wait
from outlast.core.rows.limit_rows import SLOT, Slot
from outlast.core.rows.run_columns import Attention
from outlast.core.rows.run_rows import EVENT, MESSAGE, RUN, Event, Message, Run
from outlast.core.rows.store_rows import STORE, WORKER
from outlast.engine import commands
from outlast.engine import known_pauses as pauses
from outlast.engine.alerts import Notifier
from outlast.engine.call_errors import CallErrors
from outlast.engine.guest import Guest
from outlast.flow import Context, DidNotHappen, Happened, Unknown, Workflow, activity, lookup, this_call
from tests.engine.ground import Ground, InMemory
from tests.engine.process import Process, Time

SECOND = 1_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
QUIET = 181 * SECOND  # beyond start budget + attempt timeout + margin of the defaults


# --- the world ---------------------------------------------------------------------------------
class World:
    """Test world: one store, its processes and operators."""

    def __init__(self, ground: Callable[[Time], Ground] = InMemory) -> None:
        self.time = Time()
        self.ground = ground(self.time)
        self.time.answered = self.ground.answered
        self.core = self.ground.core
        self.store = self.ground.open("people")
        self.processes: list[Process] = []

    async def live(self, test: Callable[[], Any]) -> None:
        loop = asyncio.get_running_loop()
        loop.time = lambda: self.time.wall() / 1000
        loop._clock_resolution = 0.0005  # half of what virtual time can tell apart
        try:
            await test()
        finally:
            others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for _ in range(50):
                for task in others:
                    task.cancel()
                await asyncio.sleep(0)
                others = [task for task in others if not task.done()]
                if not others:
                    break

    def worker(
        self,
        *workflows: Workflow[Any],
        name: str = "",
        live: Liveness | None = None,
        concurrency: int = 100,
        notifier: Notifier | None = None,
        guest: Guest | None = None,
        errors: CallErrors | None = None,
    ) -> Process:
        name = name or f"wk-{len(self.processes) + 1}"
        store = self.ground.open(f"writer-{name}")
        process = Process(store, self.time, name, workflows, live, concurrency, notifier, guest, errors)
        self.processes.append(process)
        return process

    async def off_duty(self) -> None:
        """Stop all workers; only rows are left."""
        for process in self.processes:
            process.worker.drain()
        await self.settle()

    async def nights(self, *workflows: Workflow[Any], until: int, **options: Any) -> Process:
        """Let business time pass until `until` without a process, and start one ten seconds before."""
        await self.off_duty()
        await self.pass_(until - 10 * SECOND - self.time.wall())
        process = self.worker(*workflows, **options)
        await self.pass_(10 * SECOND)
        return process

    async def start(self, workflow: Workflow[Any], run: str = "r1", *, tenant: str = "t", **given: Any) -> str:
        await commands.start(self.store, workflow, given, tenant=tenant, actor="me", run=run)
        await self.time.settle()
        return run

    async def pass_(self, ms: int) -> None:
        await self.time.pass_(ms)

    async def settle(self) -> None:
        await self.time.settle()

    # --- people --------------------------------------------------------------------------------
    def _now(self, call: Any) -> None:
        """Run a coroutine to its end without passing virtual time."""
        self.ground.now(call)

    def signal_now(self, name: str, run: str = "r1", **payload: Any) -> None:
        self._now(commands.signal(self.store, tenant="t", run=run, name=name, payload=payload, actor="me"))

    def decide_now(self, approval: Approval) -> None:
        choice, boss = PersonDecision("approve", "because"), Actor("boss", claims=("boss",))
        self._now(commands.decide_approval(self.store, "t", approval.id, boss, choice, lambda run: None))

    def cancel_now(self, run: str = "r1") -> None:
        self._now(commands.cancel(self.store, tenant="t", run=run, actor="me", reason="no longer needed"))

    async def signal(self, name: str, run: str = "r1", *, signal_id: str = "", **payload: Any) -> bool:
        left = await commands.signal(
            self.store, tenant="t", run=run, name=name, payload=payload, actor="me", signal_id=signal_id
        )
        await self.settle()
        return left

    async def cancel(self, run: str = "r1") -> None:
        await commands.cancel(self.store, tenant="t", run=run, actor="me", reason="no longer needed")
        await self.settle()

    async def go_on(self, run: str = "r1") -> None:
        await commands.continue_run(self.store, tenant="t", run=run, actor="op", reason="looked into it")
        await self.settle()

    async def answer(
        self,
        reason: str,
        choice: str,
        run: str = "r1",
        *,
        key: str = "",
        by_ms: int = 0,
        settle: bool = True,
        text: str = "looked into it",
    ) -> None:
        await commands.resolve_attention(
            self.store,
            tenant="t",
            run=run,
            answer=AttentionAnswer(Choice(choice), text, Reason(reason), key, by_ms),
            actor="op",
        )
        if settle:
            await self.settle()

    async def hold(self, key: str) -> None:
        await pauses.pause(self.store, "t", key, actor="op", reason="an outage")
        await self.pass_(6 * SECOND)

    async def release(self, key: str) -> int:
        woken = await pauses.resume(self.store, "t", key, actor="op")
        await self.settle()
        return woken

    async def resolve(self, key: str, verb: Any, run: str = "r1", response: bytes | None = None) -> None:
        await commands.resolve_effect(
            self.store,
            tenant="t",
            run=run,
            key=key,
            verb=verb,
            actor="op",
            reason="asked them",
            encode=(lambda effect: response) if response is not None else None,
        )
        await self.settle()

    async def decide(
        self, approval: Approval, *, approve: bool = True, again: bool = False, alternative: int = 0, by: str = "boss"
    ) -> Approval:
        verb: Any = "again" if again else "approve" if approve else "reject"
        choice = PersonDecision(verb, "because", alternative)
        decided = await commands.decide_approval(
            self.store, "t", approval.id, Actor(by, claims=("boss",)), choice, lambda run: None
        )
        await self.settle()
        return decided

    # --- looking -------------------------------------------------------------------------------
    def _rows(self, kind: Any, run: str) -> list[Any]:
        return list(self.core.rows.under(kind, ("t", run)))

    def run(self, run: str = "r1", tenant: str = "t") -> Run:
        row = self.core.rows.get(RUN, (tenant, run))
        assert isinstance(row, Run)
        return row

    def status(self, run: str = "r1") -> str:
        return self.run(run).status.value

    def effects(self, run: str = "r1") -> list[Effect]:
        return sorted(self._rows(EFFECT, run), key=lambda e: e.ordinal)

    def effect(self, key: str, run: str = "r1") -> Effect:
        (row,) = [e for e in self.effects(run) if e.key == key]
        return row

    def waits(self, run: str = "r1") -> list[Wait]:
        return self._rows(WAIT, run)

    def approvals(self, run: str = "r1") -> list[Approval]:
        return sorted(self._rows(APPROVAL, run), key=lambda a: (a.asked_at, a.id))

    def pending(self, run: str = "r1") -> Approval:
        (row,) = [a for a in self.approvals(run) if a.status.value == "pending"]
        return row

    def evidence(self, run: str = "r1") -> list[Evidence]:
        return self._rows(EVIDENCE, run)

    def messages(self, run: str = "r1") -> list[Message]:
        return self._rows(MESSAGE, run)

    def events(self, run: str = "r1") -> list[Event]:
        return self._rows(EVENT, run)

    def verbs(self, run: str = "r1") -> list[str]:
        """Return the last part of every event's type: started, claimed, checkpoint, …"""
        return [e.type.rsplit(".", 1)[1] for e in self.events(run)]

    def last_event(self, run: str = "r1") -> dict[str, Any]:
        return json.loads(self.events(run)[-1].body)["data"]

    def outcome(self, run: str = "r1") -> Any:
        return self.last_event(run)["outcome"]

    def attention(self, run: str = "r1") -> tuple[Attention, ...]:
        return self.run(run).attention

    def reasons(self, run: str = "r1") -> list[str]:
        return [a.reason.value for a in self.attention(run)]

    def waiting(self, run: str = "r1") -> list[tuple[str, str]]:
        return [(w.kind, w.what) for w in self.run(run).waiting_for]

    def slots(self, tenant: str = "t") -> list[Slot]:
        return list(self.core.rows.under(SLOT, (tenant,)))

    def add_slots(self, tenant: str, n: int) -> None:
        for i in range(n):
            self.core.rows.put(SLOT, (tenant, i), Slot(tenant, i, 1, "", ""))

    def worker_row(self, name: str) -> Any:
        return self.core.rows.get(WORKER, (STORE, name))


# --- the receiver ------------------------------------------------------------------------------
class Acts:
    """Behaviour: it does what was asked, and the caller hears this error."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class Slow:
    """Behaviour: it does what was asked once `go` is set; `begun` tells that the request has arrived."""

    def __init__(self, answer: "str | BaseException | Acts | None" = None, *, acts_first: bool = False) -> None:
        self.begun = asyncio.Event()
        self.go = asyncio.Event()
        self.answer = answer
        self.acts_first = acts_first


class Receiver:
    """The other side: records every attempt and everything it did, under the caller's idempotency key."""

    def __init__(self, *script: Any, dedupes: bool = False) -> None:
        self.script = list(script)
        self.dedupes = dedupes
        self.attempts: list[str] = []
        self.numbers: list[int] = []
        self.did: list[str] = []
        self.asked = 0
        self.given: list[str] = []  # the responses it was handed to undo
        self.tells: list[Any] = []  # answers of `find`, one for each question; then the truth

    def _do(self, key: str) -> str:
        if not (self.dedupes and key in self.did):
            self.did.append(key)
        return f"did {key.rsplit(':', 1)[1]}"

    async def call(self) -> str:
        call = this_call()
        self.attempts.append(call.idempotency_key)
        self.numbers.append(call.attempt)
        act = self.script.pop(0) if self.script else None
        if isinstance(act, Slow):
            act.begun.set()
            done = self._do(call.idempotency_key) if act.acts_first else ""
            await act.go.wait()
            if isinstance(act.answer, BaseException):
                raise act.answer
            return done or self._do(call.idempotency_key)
        if isinstance(act, Acts):
            self._do(call.idempotency_key)
            raise act.error
        if isinstance(act, BaseException):
            raise act
        if act is not None:
            self._do(call.idempotency_key)
            return act
        return self._do(call.idempotency_key)

    async def find(self) -> Happened[str] | DidNotHappen | Unknown:
        self.asked += 1
        if self.tells:
            answer = self.tells.pop(0)
            if isinstance(answer, BaseException):
                raise answer
            return answer
        key = this_call().idempotency_key
        return Happened(f"did {key.rsplit(':', 1)[1]}", "ext-1") if key in self.did else DidNotHappen()


def write(
    receiver: Receiver,
    *,
    name: str = "order",
    mode: str = "ask",
    undo: "bool | Receiver" = False,
    undo_terms: dict[str, Any] | None = None,
    key: str = "",
    **options: Any,
) -> Any:
    """A write on the receiver, of one parameter, in one of the three modes (`resend` must bring if_uncertain).

    `undo`: by a call of the same receiver, or of another; `undo_terms`: as `.undo(…)` takes them, and `asks` for a
    reconcile that asks that receiver.
    """

    @activity(
        key=key or name + "/{what}",
        name=name,
        no_undo=None if undo else "a test undoes nothing",
        **options,
    )
    async def act(what: str, amount: int = 1) -> str:
        return await receiver.call()

    if mode == "reconcile":

        @act.reconcile
        async def find(what: str, amount: int = 1) -> Happened[str] | DidNotHappen | Unknown:
            return await receiver.find()

    if undo:
        other = undo if isinstance(undo, Receiver) else receiver
        terms = dict(undo_terms or {})
        if terms.pop("asks", False):

            async def undone(done: str, what: str, amount: int = 1) -> Happened[str] | DidNotHappen | Unknown:
                return await other.find()

            terms["reconcile"] = undone

        @act.undo(**terms)
        async def take_back(done: str, what: str, amount: int = 1) -> str:
            other.given.append(done)
            return await other.call()

    return act


def reading(commands: Callable[[], Any], *, name: str = "price", **options: Any) -> Any:
    """A lookup that answers what `answers` returns or raises."""

    @lookup(name=name, **options)
    async def look(what: str) -> str:
        return str(commands())

    return look


# --- workflows ---------------------------------------------------------------------------------
class State(BaseModel):
    said: list[str] = []
    n: int = 0


class Go(BaseModel):
    """Payload of a signal."""

    word: str = ""


Body = Callable[[Context[State]], Any]


def one_node(body: Body, *, name: str = "flow", **options: Any) -> Workflow[State]:
    """Return a workflow of one node, whose state is what it produced: it completes also if each of its calls failed."""
    flow = Workflow(name, state=State, **{"when_empty": "complete", **options})

    @flow.node(start=True)
    async def only(ctx: Context[State]) -> None:
        await body(ctx)

    return flow.validate()


def ordering(act: Any, *what: str, **options: Any) -> Workflow[State]:
    """A workflow of one node that calls `act` for each of `what`, one after the other, and keeps the answers."""

    async def body(ctx: Context[State]) -> None:
        for each in what:
            ctx.state.said.append(await ctx.do(act, each))

    return one_node(body, **options)


async def threads_rest(world: World) -> None:
    """Wait until no thread has a call of a plain function and what they returned has arrived, without virtual time."""
    pools = [process.worker._services.caller._pool for process in world.processes]
    while True:
        await world.settle()
        if all(pool._idle >= len(pool.threads) for pool in pools):
            break
        await asyncio.to_thread(lambda: None)
    await asyncio.sleep(0)  # what was returned before the last look arrives in the loop
    await world.settle()


async def threads_and_time(world: World, done: Callable[[], bool], within: int, step: int = QUIET) -> None:
    """Let virtual time pass in steps until `done`. None passes while a thread has a call of a plain function."""
    for _ in range(within // step + 1):
        await threads_rest(world)
        if done():
            return
        await world.pass_(step)
    await threads_rest(world)


def after(**span: float) -> timedelta:
    return timedelta(**span)
