"""Demo of one run over an office: its worker is killed, people approve, answers are lost.

Worker, office and approver are separate processes. The end is proved by the store and by the office's own record.
`examples/desk` and `examples/acquisition` play it, each with a different plot.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from outlast.clocks import SystemClock
from outlast.core.approvals import Actor
from outlast.core.codec import digest
from outlast.core.commit import Mapping
from outlast.core.durations import HOUR, MINUTE, SECOND
from outlast.core.events import EventType
from outlast.core.machine import ApprovalStatus, EffectStatus, LeaseStatus
from outlast.core.rows.effect_rows import Approval, Effect
from outlast.core.rows.run_rows import Event, Run, is_over
from outlast.core.run_transition import rearmed
from outlast.errors import Conflict
from outlast.flow.workflow import Workflow
from outlast.insight.labels import shown_status
from outlast.runtime.operations import Operations
from outlast.store.port import Store, maintenance
from outlast.testing.record import Record

from .output import Output
from .processes import DemoFailed, DemoFolder, Processes
from .proof import (
    AFTER_DEATH,
    Claim,
    Proof,
    asked,
    claim,
    lines,
    mark,
    not_measured,
    proven,
    taken_over,
    takeover_seconds,
)
from .state import DemoState, Kill

POLL_S: Final = 0.03
TAKEOVER_MAX_MS: Final = MINUTE
THINKS: Final = 20 * HOUR  # business time until the unattended decision
REASON: Final = "checked with the team"


class Plot(NamedTuple):
    """The parts of a demo that differ: the workflow, its office, the moment of the kill, and how it ends."""

    about: str
    example: str
    """Package with the modules `workflow` and `office`."""
    workflow: Workflow[Any, Any, Any]
    given: dict[str, Any]
    address: str
    """Environment variable with the address of the office."""
    model: str
    """Path of the model in the office."""
    facts: tuple[str, ...]
    """Paths of the office that people change, not the run."""
    killed_in: str
    """Activity during which the worker is killed, after the office has executed it."""
    at_the_kill: str
    after_the_kill: str
    ends: str
    before_decision: Callable[[str, Approval], str] = lambda url, approval: ""
    """Change a fact at this address before an approval is decided; return what to say about it."""


class Requests(NamedTuple):
    """Count of the requests of one kind in the office's record."""

    sent: int
    executed: int
    distinct: int

    @property
    def repeated(self) -> int:
        """Number of executions beyond one per key."""
        return self.executed - self.distinct


class OfficeDemo:
    """A plot in one folder, played from its beginning."""

    def __init__(
        self, plot: Plot, store: Store, folder: DemoFolder, state: DemoState, output: Output, *, unattended: bool
    ) -> None:
        """`unattended`: a process of the demo approves. Raises Conflict if the folder holds a demo."""
        if state.run:
            raise Conflict(f"{folder.path} holds a demo already", "a sample is played from its beginning")
        self._ops = Operations(
            store, tenant="default", actor=Actor("local:demo"), workflows={plot.workflow.name: plot.workflow}
        )
        self._ops.scheduler = folder.runtime
        self._plot = plot
        self._state, self._output, self._unattended = state, output, unattended
        self._processes = Processes(folder, example=plot.example, server="office")
        self._clock = SystemClock()
        self._url = ""
        self._shown: set[str] = set()
        self._shown_alone = False

    async def play(self) -> Proof:
        """Play to the end of the run and stop every process. Raises DemoFailed."""
        try:
            await self._open()
            while not is_over(run := await self._poll()):
                if not self._state.kills and await self._in_flight():
                    await self._kill(run)
                if not run.owner and (approval := await self._pending()):
                    await self._decide(approval)
                elif self._waits(run):
                    await self._pass_time(run)
                await asyncio.sleep(POLL_S)
            await self._poll()
            return await self._prove()
        finally:
            await self._processes.stop_workers()
            await self._processes.close()

    async def _open(self) -> None:
        processes, state = self._processes, self._state
        self._output.line(f"  {self._plot.about}\n")
        processes.open_server("--misbehaves", "demo")
        self._url = await processes.server_url()
        processes.env = {self._plot.address: self._url, "OUTLAST_LOG_LEVEL": "warning"}
        await processes.open_engine()
        processes.start_worker()
        processes.start_worker()
        started = await self._ops.start_run(self._plot.workflow.name, self._plot.given)
        state.run, state.begun_at = started.run, self._clock.wall()
        state.add_clock(Mapping(0, state.begun_at, (await self._ops.store.now()).business, 1.0))
        state.save(processes.folder)
        self._output.line(f"  run       {state.run}\n  store     {processes.store_url}\n")

    # --- watching ------------------------------------------------------------------------------------
    async def _poll(self) -> Run:
        """Print the effects that were settled since the last poll. Raises DemoFailed if the run needs a person."""
        for name in self._processes.check():
            self._output.line(f"    … {name} was silent for too long and gave up; another worker starts")
        run = await self._ops.rows.run(self._state.run)
        for effect in sorted(await self._ops.rows.effects(run.run), key=lambda e: e.settled_at):
            if effect.settled_at and effect.key not in self._shown:
                self._shown.add(effect.key)
                happened = effect.status in (EffectStatus.DONE, EffectStatus.UNDONE)
                self._output.line(f"  {mark(happened)} {effect.activity:<16} {effect.key}{_remark(effect)}")
        for event in await self._ops.rows.history(run.run):
            if event.type == EventType.DENIED.value and (key := f"denied {event.seq}") not in self._shown:
                self._shown.add(key)
                data = event.data()
                self._output.line(f"  ✗ {data['activity']:<16} {data['effect_key']}   refused by {data['rule']}")
        if attention := run.attention:
            raise DemoFailed(f"run {run.run} needs a person: {attention[0].reason.value}", attention[0].detail)
        return run

    def _record(self) -> Record:
        return Record(self._processes.record)

    async def _pending(self) -> Approval | None:
        asked, _ = await self._ops.rows.approvals(status=ApprovalStatus.PENDING.value)
        return next((each for each in asked if each.run == self._state.run), None)

    def _waits(self, run: Run) -> bool:
        """Return True if the run waits for a signal, which the demo does not send."""
        return not run.owner and any(each.kind == "signal" and each.until for each in run.waiting_for)

    async def _pass_time(self, run: Run) -> None:
        """Let business time pass until the run no longer waits for its signal."""
        (waiting, *_) = (each for each in run.waiting_for if each.kind == "signal")
        ahead = waiting.until - (await self._ops.store.now()).business + 1
        if ahead <= 0:  # it has passed, and no worker has noticed yet
            return
        self._output.line(f"  ⏸ no {waiting.what} comes\n    … {round(ahead / HOUR)} hours of business time pass")
        await self._move_clock(ahead)

    async def _in_flight(self) -> bool:
        """Return True if the office has executed the call of the kill and no worker has recorded its answer."""
        effects = await self._ops.rows.effects(self._state.run)
        opening = [e.key for e in effects if e.activity == self._plot.killed_in and not e.settled_at]
        return any(self._record().executed(key) for key in opening)

    # --- the kill --------------------------------------------------------------------------------------
    async def _kill(self, run: Run) -> None:
        victim = self._processes.holder(run.owner)
        if victim is None:
            return
        self._state.kills.append(Kill(at=self._clock.wall(), worker=run.owner, name=victim.name, sent=1))
        await self._processes.kill(victim)
        self._output.line(
            f"    ✗ worker {victim.name} killed with SIGKILL on purpose (pid {victim.pid}): {self._plot.at_the_kill}"
        )
        give_up = self._clock.mono() + TAKEOVER_MAX_MS
        while (taken := await self._poll()).owner in ("", run.owner) and not taken.waiting_for:
            self._output.status("    … no worker holds the run until the lease expires")
            if self._clock.mono() > give_up:
                raise DemoFailed(f"no worker took over run {run.run}", f"{run.owner} still holds it")
            await asyncio.sleep(POLL_S)
        seconds = takeover_seconds(self._state, await self._ops.rows.history(run.run))
        self._output.line(
            f"    {mark(seconds is not None)} worker {self._processes.name_of(taken.owner)} took over after {seconds}s"
            f" {self._plot.after_the_kill}"
        )

    # --- people ---------------------------------------------------------------------------------------
    async def _decide(self, approval: Approval) -> None:
        """Let a command approve. While the first approval waits, no worker runs; afterwards a fresh one does."""
        output, processes = self._output, self._processes
        first = not self._shown_alone
        if first:
            await self._stop_all()
        output.line(f"  ⏸ {approval.summary}")
        command = ("approvals", "approve", approval.id, "--reason", REASON)
        hours = math.ceil((approval.within_until - (await self._ops.store.now()).business) / HOUR)
        waiting = f"    waiting for {approval.who} · no process holds the run · {hours}h left"
        if self._unattended:
            output.line(waiting)
            await self._move_clock(THINKS)
            output.line(f"    … {THINKS // HOUR} hours of business time pass" + (", and nothing runs" if first else ""))
        if said := self._plot.before_decision(self._url, approval):
            output.line(f"    ! {said}")
        if self._unattended:
            output.line(f"    $ {output.fold(processes.command(*command))}")
            status, said = await processes.run_command(*command)
            if status:
                raise DemoFailed(f"approvals approve ended with status {status}", said)
            output.line(f"      {said.partition(' · ')[0]}")
        else:
            typed = output.fold(processes.command("-q", *command))
            then = "; then a worker starts here" if first else ""
            output.prompt(f"\n  Approve it in another terminal{then}:\n\n    {typed}\n")
            output.status(waiting, works=False)
            while True:  # until another process has decided
                if not await self._pending():
                    break
                await asyncio.sleep(POLL_S)
        if first:
            processes.start_worker()

    async def _stop_all(self) -> None:
        """Stop every worker. Raises DemoFailed if a lease is left."""
        self._shown_alone = True
        await self._processes.stop_workers()
        alive = {w.id for w in await self._ops.rows.workers() if w.status is LeaseStatus.ALIVE}
        if alive - {kill.worker for kill in self._state.kills}:
            raise DemoFailed("a process still holds the run", f"leases {sorted(alive)}")

    async def _move_clock(self, ahead_ms: int) -> None:
        now = await self._ops.store.now()
        wanted = Mapping(0, now.real, now.business + ahead_ms, 1.0)
        self._state.add_clock(await maintenance(self._ops.store).set_mapping(wanted, rearmed))
        self._state.save(self._processes.folder)

    # --- the proof ------------------------------------------------------------------------------------
    async def _prove(self) -> Proof:
        ops, state = self._ops, self._state
        run, effects = await ops.rows.run(state.run), await ops.rows.effects(state.run)
        history = await ops.rows.history(state.run)
        seconds = round((self._clock.wall() - state.begun_at) / SECOND, 1)
        facts, claims = judged(self._plot, state, run, effects, history, self._record())
        facts |= {"store": ops.store.url, "seconds": seconds, "proven": proven(claims)}
        self._output.status("")
        self._output.line(f"\n  {facts['outcome']} in {facts['seconds']}s")
        self._output.line(lines(claims))
        if self._processes.kept(well=facts["proven"]):
            typed = self._output.fold(self._processes.command("runs", "steps", run.run))
            self._output.line(f"\n  Every step: {typed}\n")
        return Proof(facts, claims)


def judged(
    plot: Plot, state: DemoState, run: Run, effects: tuple[Effect, ...], history: tuple[Event, ...], record: Record
) -> tuple[dict[str, Any], tuple[Claim, ...]]:
    """Return the facts of a finished run and the claims about them, from its rows and the office's record."""
    acts = counted(record, lambda route: not route.endswith((plot.model, *plot.facts)))
    answers = counted(record, lambda route: route.endswith(plot.model))
    denied = [event.data() for event in history if event.type == EventType.DENIED.value]
    killed = {kill.worker for kill in state.kills}
    facts: dict[str, Any] = {
        "outcome": shown_status(run),
        "run": run.run,
        "requests": {**acts._asdict(), "repeated": acts.repeated},
        "model_answers": {**answers._asdict(), "repeated": answers.sent - answers.distinct},
        "effects": dict(Counter(effect.status.value for effect in effects)),
        "settled_by_asking": asked(effects),
        "killed_calls_settled_by_asking": asked(tuple(e for e in effects if e.activity == plot.killed_in)),
        "refused_by_policy": [f"{each['effect_key']} ({each['rule']})" for each in denied],
        "crashes": sum(e.type in AFTER_DEATH and e.data()["from"] in killed for e in history),
        "takeover_seconds": takeover_seconds(state, history),
    }
    ended = claim(f"the run is {facts['outcome']}", facts["outcome"] == plot.ends, of=1)
    return facts, (*_claims(facts, record, effects, denied, len(state.kills)), ended)


def _remark(effect: Effect) -> str:
    if effect.error is not None:
        return f"   refused by the receiver: {effect.error.code}"
    if effect.settled_by == "reconcile":
        return "   the receiver was asked: it had happened"
    return f"   after {effect.attempts} attempts under one key" if effect.attempts > 1 else ""


def counted(record: Record, fits: Any) -> Requests:
    """Count the requests whose route fits."""
    sent = [e for e in record.of("attempt") if fits(e.route)]
    executed = [e for e in record.of("executed") if fits(e.route)]
    return Requests(len(sent), len(executed), len({e.identity for e in executed}))


def _claims(
    facts: dict[str, Any], record: Record, effects: tuple[Effect, ...], denied: list[dict[str, Any]], kills: int
) -> tuple[Claim, ...]:
    """Return the claims. They hold for any model; a configured one may do less than the script."""
    done = [effect for effect in effects if effect.status is EffectStatus.DONE]
    agree = all(record.executed(effect.key) == 1 for effect in done) and len(done) == facts["requests"]["executed"]
    requests, answers = facts["requests"], facts["model_answers"]
    refused = facts["refused_by_policy"]
    settled = facts["killed_calls_settled_by_asking"]
    not_executed = not any(digest(effect.args) == each["arguments_digest"] for effect in effects for each in denied)
    return (
        claim(
            f"the office's own record: {requests['executed']} requests executed, {requests['distinct']} distinct keys, "
            f"{requests['repeated']} repeated",
            requests["repeated"] == 0,
            of=requests["executed"],
        ),
        claim(f"the store and that record agree on each of the {len(done)} effects", agree, of=len(done)),
        claim(
            f"{answers['sent']} requests to the model, {answers['distinct']} distinct, "
            f"{answers['repeated']} paid twice",
            answers["repeated"] == 0,
            of=answers["sent"],
        )
        if answers["sent"]
        else not_measured("requests to the model, because it is not the model of this demo, which counts them"),
        claim(
            f"{facts['crashes']} crash, taken over by another worker; {settled} cut call settled by asking",
            facts["crashes"] == kills <= settled and facts["takeover_seconds"] is not None,
            of=kills,
        )
        if kills
        else not_measured("crashes, because the model proposed no call at which this demo kills a worker"),
        *taken_over(facts["takeover_seconds"], kills),
        claim(f"refused by policy, and not executed: {', '.join(refused)}", not_executed, of=len(denied))
        if refused
        else not_measured("refusals by policy, because every proposed call was allowed"),
    )
