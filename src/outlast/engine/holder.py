"""One claimed run in this process: route, walk, verdict, one commit; again until the run is given back or over."""

import json
import logging
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from outlast.core.budget import INLINE_WAIT_MAX
from outlast.core.limits import TEXT_CHARS_MAX
from outlast.core.machine import Reason, RunStatus
from outlast.core.overlay import Armed, Attention, WaitingFor, attention_of, clocks_of
from outlast.core.route import Cancel, Rest, WalkOn, cancel_of, route
from outlast.core.verbs import Told, admit, advance, flag, hand_back, park, queue
from outlast.engine import slots
from outlast.engine.context import WalkContext
from outlast.engine.effects import EXHAUSTED, EffectRefused
from outlast.engine.ending import end, settle_for_end
from outlast.engine.ledger import Ledger, Lost, Moved, StoreAway
from outlast.engine.verdict import Again, Flagged, HandBack, Raised, Resting, Returned, Verdict
from outlast.engine.walk import Surroundings, Walk
from outlast.errors import NotStorable, OutlastError, Rejected, StoreError
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
        self._answered = False  # the walk under way follows a person's answer to all that was asked

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
            must_queue = self.ledger.run.queue and cancel_of(self.ledger.notes) is None
            if must_queue and not await self._admitted():
                return False
            return await self._step()
        except Moved:
            await self._reload()
            return True
        except StoreAway:
            await self._around.clock.sleep(INLINE_WAIT_MAX)
            await self._reload()
            return True

    async def _reload(self) -> None:
        """Fresh rows, as soon as the store answers."""
        while True:
            try:
                await self.ledger.settled()
                await self.ledger.reload()
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
        way = route(ledger.run, ledger.notes, ledger.effects)
        self._answered = isinstance(way, WalkOn) and way.cleared
        walk = Walk(ledger, self._workflow, self._around)
        if isinstance(way, Cancel):
            return await self._end(walk, RunStatus.CANCELLED, f"cancelled by {way.by}: {way.reason}", ())
        if isinstance(way, Rest):
            return await self._rest(way)
        node = self._workflow.nodes.get(ledger.run.node)
        if node is None:
            detail = f"{self._workflow.title} has no node {ledger.run.node} any more"
            return await self._flag((self._attention(Reason.NODE_GONE, detail),), ())
        return await self._walk(walk, node, way)

    # --- walking -----------------------------------------------------------------------------------
    async def _walk(self, walk: Walk, node: Node, way: WalkOn) -> bool:
        ledger = self.ledger
        try:
            state = self._workflow.state_codec.load(ledger.last.snapshot or b"{}")
        except NotStorable as error:
            return await self._flag((self._attention(Reason.CONTRADICTION, f"{error.what}: {error.why}"),), ())
        context = WalkContext(walk, state)
        verdict = await walk.run(lambda: node.fn(context), f'node "{node.name}" of {self._workflow.name}')
        told = ledger.unwritten(context.told.values())
        return await self._conclude(walk, node, context, verdict, told, way)

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
            return await self._rest_until(verdict, told, walk.asked, cleared=way.cleared)
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
        if most is not None and not way.one_more and (n := json.loads(ledger.run.visits).get(target, 0)) >= most:
            detail = f"node {target} has been entered {n} times; max_visits is {most}"
            return await self._flag((self._attention(Reason.VISITS_EXHAUSTED, detail),), told)
        commit = advance(
            ledger.run,
            node=target,
            label=node.status or "",
            state=state,
            now=ledger.now,
            budget_ms=self._budget_ms,
            told=told,
            cleared=way.cleared,
        )
        await ledger.land(commit)
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
            return await self._park(first, told, cleared=False)
        state = self.ledger.last.snapshot or b"{}"
        await end(walk, outcome, state=state, result=None, reason=_storable(reason)[:TEXT_CHARS_MAX], told=told)
        return False

    async def _flag(self, reasons: tuple[Attention, ...], told: tuple[Told, ...]) -> bool:
        ledger = self.ledger
        mapping = ledger.store.mapping()
        run = ledger.run._replace(attention="") if self._answered else ledger.run
        reasons = tuple(a._replace(detail=_storable(a.detail)) for a in reasons)
        await ledger.land(flag(run, reasons, mail=ledger.mail_read, now=ledger.now, mapping=mapping, told=told))
        return False

    async def _rest(self, way: Rest) -> bool:
        """Mail has come that does not answer what a person is asked: wait again, as before."""
        ledger = self.ledger
        waiting = [WaitingFor("attention", f"a person: {a.reason.value}", since=a.since) for a in way.still]
        await ledger.land(
            park(
                ledger.run,
                "park",
                mail=ledger.mail_read,
                waiting=waiting,
                clocks=clocks_of(ledger.run),
                now=ledger.now,
                mapping=ledger.store.mapping(),
            )
        )
        return False

    async def _rest_until(self, verdict: Resting, told: tuple[Told, ...], asked: set[str], *, cleared: bool) -> bool:
        """Park; notes that concern none of the waits do not make the walk begin again, however fast they come (S-1)."""
        while True:
            try:
                return await self._park(verdict, told, cleared=cleared)
            except Moved as moved:
                notes = await self.ledger.new_notes() if moved.reason == "mail" else ()
                if not notes or any(n.kind != "signal" or n.name in asked for n in notes):
                    raise
                await self.ledger.go_on()
                self.ledger.also_read(notes)

    async def _park(self, verdict: Resting, told: tuple[Told, ...], *, cleared: bool) -> bool:
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
                cleared=cleared or not attention_of(ledger.run),
            )
        )
        return False

    async def give_back(self, why: str) -> bool:
        """Hand the run to whoever takes it next, due at once."""
        ledger = self.ledger
        await ledger.settled()
        await ledger.land(hand_back(ledger.run, mail=None, now=ledger.now, mapping=ledger.store.mapping(), why=why))
        return False

    # --- admission --------------------------------------------------------------------------------------
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
            await ledger.land(admit(ledger.run, taken, now=ledger.now))
            return True
        seen = [slot for limit in limits for slot in limit]
        mapping = ledger.store.mapping()
        await ledger.land(queue(ledger.run, seen, now=ledger.now, clocks=(), mapping=mapping))
        return False

    def _attention(self, reason: Reason, detail: str) -> Attention:
        return Attention(reason, self.ledger.now.business, detail, seen=self.ledger.mail_read)


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
