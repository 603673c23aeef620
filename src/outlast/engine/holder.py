"""One claimed run in this process: route, walk, verdict, one commit; again until the run is given back or over."""

import json
import logging
import traceback
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

from outlast.core.admission import SlotChange, admit, queue
from outlast.core.attention import answered, flag, tripped
from outlast.core.budget import DEATHS_ALONE_MAX, DEATHS_THEN_ALONE, HOUR, INLINE_WAIT_MAX, SECOND
from outlast.core.limits import TEXT_CHARS_MAX
from outlast.core.machine import OVERLAY_ONLY, Choice, Reason, RunStatus
from outlast.core.moves import Told
from outlast.core.overlay import Armed, Attention, WaitingFor, stale_clock
from outlast.core.route import ENGINE, Cancel, Fail, Rest, WalkOn, route
from outlast.core.verbs import advance, hand_back, park
from outlast.engine import slots
from outlast.engine.context import WalkContext
from outlast.engine.ending import end, settle_for_end
from outlast.engine.holds import TENANT
from outlast.engine.ledger import Ledger, Lost, Moved, StoreAway
from outlast.engine.reasons import EffectRefused, held_up
from outlast.engine.verdict import Again, Flagged, HandBack, Raised, Resting, Returned, Verdict
from outlast.engine.walk import Surroundings, Walk
from outlast.engine.write import EXHAUSTED
from outlast.errors import NotStorable, OutlastError, Rejected, StoreError, Unavailable
from outlast.flow.node import Node
from outlast.flow.outcomes import Failed, Stopped
from outlast.flow.workflow import Workflow

log = logging.getLogger("outlast.engine")
TRACEBACK_CHARS = 4_000


class Holder:
    """Walks one run for as long as this worker holds it."""

    def __init__(
        self,
        ledger: Ledger,
        workflows: Mapping[str, Workflow[Any]],
        around: Surroundings,
        budget_ms: int,
        draining: Callable[[], bool],
    ) -> None:
        self.ledger = ledger
        self._workflow = workflows[ledger.run.lane]
        self._around = around
        self._budget_ms = budget_ms
        self._draining = draining
        self._pending: list[Told] = []  # what the engine has to say with the next move of the run row
        self._called: list[Attention] = []  # of whom people are to be told once that move stands

    async def hold(self) -> None:
        """Until the run is given back, over, or no longer ours. Never raises for what the author's code does."""
        try:
            while await self._turn():
                pass
        except Lost:
            log.info("run %s is no longer held here", self.ledger.run.run)
            await self.ledger.abandon()
        except Exception as error:  # a fault of the engine itself: a person must look, nothing is tried in a circle
            await self._fault(error)

    async def _fault(self, error: Exception) -> None:
        log.exception("run %s: the engine failed", self.ledger.run.run)
        try:
            await self._reload()
            await self._exception(error, ())
        except (Lost, Moved, StoreAway, Rejected):
            log.warning("run %s could not be flagged; it is given back at the next renewal", self.ledger.run.run)

    async def _turn(self) -> bool:
        """One turn; True when this holder keeps the run."""
        try:
            self._check_ceiling()
            return await self._step()
        except Moved:
            await self._reload()
            return True
        except (StoreAway, Unavailable):
            await self._around.clock.sleep(INLINE_WAIT_MAX)
            await self._reload()
            return True

    async def _reload(self) -> None:
        """Fresh rows, as soon as the store answers."""
        while True:
            try:
                await self.ledger.settled()
                await self.ledger.reload()
                self._pending, self._called = [], []  # what was to be said of rows that are no more
                return
            except StoreError as error:
                log.warning("run %s: the store does not answer: %s", self.ledger.run.run, error.reason)
                await self._around.clock.sleep(INLINE_WAIT_MAX)

    async def _step(self) -> bool:
        try:
            return await self._go()
        except Rejected as error:  # what the author's code made cannot be stored: too large, or not text
            await self._reload()
            return await self._exception(error, ())

    async def _go(self) -> bool:
        ledger = self.ledger
        way = route(ledger.run, ledger.notes, ledger.effects, ledger.now.business)
        walk = Walk(ledger, self._workflow, self._around)
        if isinstance(way, Cancel):
            reason = way.reason if way.by == ENGINE else f"cancelled by {way.by}: {way.reason}"
            return await self._end(walk, RunStatus.CANCELLED, reason, self._told(()))
        if isinstance(way, Fail):
            return await self._end(walk, RunStatus.FAILED, f"failed by {way.by}: {way.reason}", self._told(()))
        if way.answers:
            ledger.run, said = answered(ledger.run, way.left, way.answers, now=ledger.now)
            self._pending.append(said)
        if isinstance(way, Rest):
            return await self._rest(way)
        if way.chose(Reason.POISONED, Choice.CONTINUE):  # written before it can kill its holder again
            return await self.give_back("a person let it go on")
        if await self._needs_slot() and not await self._admitted():
            return False
        node = self._workflow.nodes.get(ledger.run.node)
        if node is None:
            detail = f"{self._workflow.title} has no node {ledger.run.node} any more"
            return await self._flag((self._attention(Reason.NODE_GONE, detail),), self._told(()))
        return await self._walk(walk, node, way)

    def _check_ceiling(self) -> None:
        """The tripwire: passed, it calls a person with the next move, disarmed, and the run goes on (GATE-4)."""
        ledger = self.ledger
        run = ledger.run
        if not 0 < run.ceiling_at <= ledger.now.business:
            return
        age = (ledger.now.business - run.created_at) / HOUR
        detail = f"{run.run} is {age:.0f} h old and has not ended"
        reason = self._attention(Reason.TOTAL_TIMEOUT, detail)._replace(trigger=f"{run.workflow}_total_timeout")
        ledger.run, said = tripped(run, reason)
        self._called.append(reason)
        self._pending.append(said)

    def _told(self, told: Iterable[Told]) -> tuple[Told, ...]:
        """What the next move of the run row tells: what the engine has to say, then what the node said."""
        return self.ledger.unwritten([*self._pending, *told])

    # --- walking -----------------------------------------------------------------------------------
    async def _walk(self, walk: Walk, node: Node, way: WalkOn) -> bool:
        ledger = self.ledger
        if (stop := await self._stopped()) is not None:
            return await stop
        try:
            state = self._workflow.state_codec.load(ledger.last.snapshot or b"{}")
        except NotStorable as error:
            detail = f"{error.what}: {error.why}"
            return await self._flag((self._attention(Reason.CONTRADICTION, detail),), self._told(()))
        context = WalkContext(walk, state)
        verdict = await walk.run(lambda: node.fn(context), f'node "{node.name}" of {self._workflow.name}')
        told = self._told(context.told.values())
        return await self._conclude(walk, node, context, verdict, told, way)

    async def _stopped(self) -> Coroutine[Any, Any, bool] | None:
        """A reason not to walk at all: an operator's stop sign, or holders that die of this run (S-5, S-23)."""
        ledger = self.ledger
        run = ledger.run
        if run.deaths >= DEATHS_THEN_ALONE + DEATHS_ALONE_MAX:
            alone = f"at last {DEATHS_ALONE_MAX} times with nothing beside it"
            detail = f"its holder died {run.deaths} times in this visit, {alone}"
            return self._flag((self._attention(Reason.POISONED, detail),), self._told(()))
        hold = await self._around.held(run.tenant, (f"workflow/{run.workflow}", TENANT))
        if hold is not None:
            return self._park(Resting((held_up(hold, ledger.now.real),)), self._told(()))
        return None

    async def _conclude(
        self, walk: Walk, node: Node, context: WalkContext, verdict: Verdict, told: tuple[Told, ...], way: WalkOn
    ) -> bool:
        if isinstance(verdict, Returned):
            return await self._returned(walk, node, context, verdict.value, told, way)
        if isinstance(verdict, Raised):
            return await self._raised(walk, context, verdict.error, told)
        if isinstance(verdict, Flagged):
            return await self._flag(verdict.reasons, told)
        if isinstance(verdict, Cancel):
            await self._reload()
            return True
        if isinstance(verdict, Resting):
            return await self._rest_until(verdict, told, walk.asked)
        if isinstance(verdict, HandBack):
            return await self.give_back(verdict.why)
        assert isinstance(verdict, Again)
        await self._reload()
        return True

    async def _returned(
        self, walk: Walk, node: Node, context: WalkContext, target: Any, told: tuple[Told, ...], way: WalkOn
    ) -> bool:
        open_ = [e for e in self.ledger.open_effects() if e.visit in (0, self.ledger.run.visit)]
        if open_:
            names = ", ".join(f"{e.activity} {e.key}" for e in open_)
            detail = f"node {node.name} returned, but never asked for what an earlier walk had begun: {names}"
            return await self._flag((self._attention(Reason.WALK_DIVERGED, detail),), told)
        try:
            state = self._workflow.state_codec.dump(context.state)
            if target is None and node.exits.ends:
                result = json.loads(self._workflow.outcome_of(context.state))
                await end(walk, RunStatus.COMPLETED, state=state, result=result, reason="", told=told)
                return False
        except (Lost, Moved, StoreAway):
            raise
        except Exception as error:  # the author's state or outcome function: a person must look
            return await self._exception(error, told)
        if target not in node.exits.targets:
            return await self._exception(
                TypeError(f"node {node.name} returned {target!r}, which it does not declare"), told
            )
        return await self._advance(target, state, told, way)

    async def _advance(self, target: str, state: bytes, told: tuple[Told, ...], way: WalkOn) -> bool:
        ledger = self.ledger
        node = self._workflow.nodes[target]
        most = node.max_visits
        if most is not None and not _one_more(way) and (n := json.loads(ledger.run.visits).get(target, 0)) >= most:
            detail = f"node {target} has been entered {n} times; max_visits is {most}"
            return await self._flag((self._attention(Reason.VISITS_EXHAUSTED, detail),), told)
        commit = advance(
            ledger.run,
            node=target,
            label=node.status or "",
            state=state,
            now=ledger.now,
            budget_ms=self._budget_ms,
            ceiling_ms=int(node.ceiling.total_seconds() * SECOND) if node.ceiling else 0,
            told=told,
        )
        await ledger.land(commit)
        self._pending = []
        self._notify()
        if ledger.mail_moved:
            await self._reload()
        if self._draining():
            return await self.give_back("the worker drains")
        return True

    async def _raised(self, walk: Walk, context: WalkContext, error: BaseException, told: tuple[Told, ...]) -> bool:
        if isinstance(error, Failed | Stopped):
            outcome = RunStatus.FAILED if isinstance(error, Failed) else RunStatus.CANCELLED
            return await self._end(walk, outcome, error.reason, told)
        exhausted = _exhausted_in(error)
        if exhausted:
            return await self._flag(
                tuple(
                    self._attention(Reason.RETRIES_EXHAUSTED, e.refusal.detail)._replace(
                        visit=e.ident[0], key=e.ident[1]
                    )
                    for e in exhausted
                ),
                told,
            )
        return await self._exception(error, told)

    async def _exception(self, error: BaseException, told: tuple[Told, ...]) -> bool:
        text = "".join(traceback.format_exception(error))[-TRACEBACK_CHARS:]
        log.warning("run %s: %s", self.ledger.run.run, text)
        shown = str(error) if isinstance(error, OutlastError) else f"{type(error).__name__}: {error}"
        shown = shown[:TEXT_CHARS_MAX]
        return await self._flag((self._attention(Reason.EXCEPTION, f"{shown}\n{text}"),), told)

    # --- giving back ----------------------------------------------------------------------------------
    async def _end(self, walk: Walk, outcome: RunStatus, reason: str, told: tuple[Told, ...]) -> bool:
        first = await settle_for_end(walk)
        if isinstance(first, Flagged):
            return await self._flag(first.reasons, told)
        if isinstance(first, Resting):
            return await self._park(first, told)
        state = self.ledger.last.snapshot or b"{}"
        await end(walk, outcome, state=state, result=None, reason=_storable(reason)[:TEXT_CHARS_MAX], told=told)
        return False

    async def _flag(self, reasons: tuple[Attention, ...], told: tuple[Told, ...]) -> bool:
        ledger = self.ledger
        mapping = ledger.store.mapping()
        reasons = tuple(a._replace(detail=_storable(a.detail)) for a in reasons)
        freed = await self._slots_given_back()
        commit = flag(
            ledger.run, reasons, mail=ledger.mail_read, now=ledger.now, mapping=mapping, told=told, freed=freed
        )
        await ledger.land(commit)
        self._called += reasons
        self._notify()
        return False

    def _notify(self) -> None:
        """The row says it first; telling people comes after, and may fail without hiding it (GATE-5)."""
        if self._called:
            self._around.notify(self.ledger.run, tuple(self._called))
            self._called = []

    async def _rest(self, way: Rest) -> bool:
        """Mail has come that does not answer what a person is asked: wait again, as before."""
        ledger = self.ledger
        still = [a for a in way.left if a.reason not in OVERLAY_ONLY]
        waiting = [WaitingFor("attention", f"a person: {a.reason.value}", since=a.since) for a in still]
        await ledger.land(
            park(
                ledger.run,
                "park",
                mail=ledger.mail_read,
                waiting=waiting,
                clocks=stale_clock(still),
                now=ledger.now,
                mapping=ledger.store.mapping(),
                told=self._told(()),
                freed=await self._slots_given_back(),
            )
        )
        self._notify()
        return False

    async def _rest_until(self, verdict: Resting, told: tuple[Told, ...], asked: set[str]) -> bool:
        """Park; notes that concern none of the waits do not make the walk begin again, however fast they come (S-1)."""
        while True:
            try:
                return await self._park(verdict, told)
            except Moved as moved:
                notes = await self.ledger.new_notes() if moved.reason == "mail" else ()
                if not notes or any(n.kind != "signal" or n.name in asked for n in notes):
                    raise
                await self.ledger.go_on()
                self.ledger.also_read(notes)

    async def _park(self, verdict: Resting, told: tuple[Told, ...]) -> bool:
        ledger = self.ledger
        verbs = {p.verb for p in verdict.parked}
        verb = next(v for v in ("quiet", "retry", "park") if v in verbs)
        clocks: list[Armed] = [p.armed for p in verdict.parked if p.armed is not None]
        await ledger.land(
            park(
                ledger.run,
                verb,
                mail=ledger.mail_read,
                waiting=[p.waiting for p in verdict.parked],
                clocks=clocks,
                now=ledger.now,
                mapping=ledger.store.mapping(),
                told=told,
                freed=await self._slots_given_back() if verb == "park" else (),
            )
        )
        self._notify()
        return False

    async def _slots_given_back(self) -> tuple[SlotChange, ...]:
        """The slots of a run that waits, each with its heir, where its workflow keeps none while it waits (RUN-6)."""
        ledger = self.ledger
        if self._workflow.slot_while_waiting or not ledger.run.slots:
            return ()
        return await slots.heirs(ledger.store, await slots.held_by(ledger.store, ledger.run))

    async def give_back(self, why: str) -> bool:
        """Hand the run to whoever takes it next, due at once."""
        ledger = self.ledger
        await ledger.settled()
        mapping, told = ledger.store.mapping(), self._told(())
        await ledger.land(hand_back(ledger.run, mail=None, now=ledger.now, mapping=mapping, why=why, told=told))
        self._notify()
        return False

    # --- admission --------------------------------------------------------------------------------------
    async def _needs_slot(self) -> bool:
        """Before its first walk, or, where the workflow gives slots back while it waits, before any."""
        run = self.ledger.run
        if run.queue:
            return True
        gives_back = not self._workflow.slot_while_waiting and not run.slots
        return gives_back and bool(await slots.limits_of(self.ledger.store, run.tenant))

    async def _admitted(self) -> bool:
        """A slot of each limit, or asleep until one is handed over."""
        ledger = self.ledger
        limits = await slots.limits_of(ledger.store, ledger.run.tenant)
        picked = [slots.pick(ledger.run, limit) for limit in limits]
        taken = [slot for slot in picked if slot is not None]
        for slot in taken:
            if await slots.left_to_older(ledger.store, slot, ledger.run):
                raise Moved("an older run was given the slot")
        if len(taken) == len(picked):
            await ledger.land(admit(ledger.run, taken, now=ledger.now, told=self._told(())))
            self._pending = []
            self._notify()
            return True
        seen = [slot for limit in limits for slot in limit]
        mapping = ledger.store.mapping()
        await ledger.land(queue(ledger.run, seen, now=ledger.now, mapping=mapping, told=self._told(())))
        self._notify()
        return False

    def _attention(self, reason: Reason, detail: str) -> Attention:
        return Attention(reason, self.ledger.now.business, detail, seen=self.ledger.mail_read)


def _one_more(way: WalkOn) -> bool:
    """Did a person allow one visit beyond max_visits?"""
    return way.chose(Reason.VISITS_EXHAUSTED, Choice.ONE_MORE)


def _storable(text: str) -> str:
    """Text from anywhere, as every store can hold it: halves of surrogate pairs are spelt out."""
    return text.encode(errors="backslashreplace").decode()


def _exhausted_in(error: BaseException) -> list[EffectRefused]:
    """The refusals an uncaught error consists of, if all of them say that the attempts are used up; else none."""
    leaves = [error]
    while any(isinstance(leaf, BaseExceptionGroup) for leaf in leaves):
        leaves = [e for leaf in leaves for e in (leaf.exceptions if isinstance(leaf, BaseExceptionGroup) else [leaf])]
    found = {e.ident: e for e in leaves if isinstance(e, EffectRefused) and e.refusal.code == EXHAUSTED}
    return list(found.values()) if all(isinstance(e, EffectRefused) for e in leaves) else []
