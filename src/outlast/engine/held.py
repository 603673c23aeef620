"""One run as this worker holds it: what is to be said with its next move, and the moves by which it is given back."""

import logging
import traceback
from collections.abc import Iterable, Sequence
from typing import Any

from outlast.core.admission import SlotChange, admit, queue
from outlast.core.attention import flag, waiting_for
from outlast.core.commit import WRITES_MAX
from outlast.core.compensation import is_own
from outlast.core.ledger import doubt, is_unsent
from outlast.core.limits import TEXT_CHARS_MAX
from outlast.core.machine import OVERLAY_ONLY, Reason
from outlast.core.moves import Told
from outlast.core.overlay import Armed, Attention, stale_timer
from outlast.core.recovery import without_attempts
from outlast.core.route import Rest
from outlast.core.rows import Effect
from outlast.core.verbs import hand_back, park
from outlast.engine import admission
from outlast.engine.compatibility import activity_of
from outlast.engine.ledger import ConditionFailed, RunSession
from outlast.engine.user_code import text_of
from outlast.engine.verdict import Parked, Resting
from outlast.engine.walk import WorkerServices
from outlast.errors import OutlastError
from outlast.flow.workflow import Workflow
from outlast.telemetry.redact import redact, secrets_in

log = logging.getLogger("outlast.engine")
TRACEBACK_CHARS = 4_000
BESIDE = 10  # rows that a move writes beside the effects it doubts, without what is told


class RunMoves:
    """A claimed run and its ledger. Every move here is one commit, after which the run is no longer held."""

    def __init__(self, ledger: RunSession, workflow: Workflow[Any], around: WorkerServices) -> None:
        self.ledger = ledger
        self._workflow = workflow
        self._around = around
        self._pending: list[Told] = []  # what the engine has to say with the next move of the run row
        self._called: list[Attention] = []  # of whom people are to be told once that move stands

    def _told(self, told: Iterable[Told]) -> tuple[Told, ...]:
        """What the next move of the run row tells: what the engine has to say, then what the node said."""
        return self.ledger.unwritten([*self._pending, *told])

    async def _exception(self, error: BaseException, told: tuple[Told, ...]) -> bool:
        known = self._secrets()
        text = redact("".join(traceback.format_exception(error)), known)[-TRACEBACK_CHARS:]
        log.warning("run %s: %s", self.ledger.run.run, text)
        shown = str(error) if isinstance(error, OutlastError) else text_of(error)
        shown = redact(shown, known)[:TEXT_CHARS_MAX]
        return await self._flag((self._attention(Reason.EXCEPTION, f"{shown}\n{text}"),), told)

    def _secrets(self) -> frozenset[str]:
        ledger = self.ledger
        asked = (approval.plans for approval in ledger.approvals.values())
        return secrets_in(ledger.last.snapshot, *(effect.args for effect in ledger.effects.values()), *asked)

    # --- giving back ----------------------------------------------------------------------------------
    async def _flag(
        self, reasons: tuple[Attention, ...], told: tuple[Told, ...], parked: Sequence[Parked] = ()
    ) -> bool:
        """Call a person. An open effect with no attempt left is uncertain from the same commit on (EFF-2)."""
        ledger = self.ledger
        mapping = ledger.store.mapping()
        doubts = self._without_attempts()[: WRITES_MAX - BESIDE - 2 * len(told)]
        reasons += tuple(
            self._attention(Reason.EFFECT_UNCERTAIN, f"{code}: {detail}")._replace(key=e.key, visit=e.visit)
            for e, code, detail in doubts
        )
        reasons = tuple(a._replace(detail=storable(a.detail)) for a in reasons)
        freed = await self._slots_given_back()
        commit = flag(
            ledger.run,
            reasons,
            inbox_seq=ledger.inbox_read,
            now=ledger.now,
            mapping=mapping,
            told=told,
            freed=freed,
            doubted=[doubt(ledger.run, e, code, detail, now=ledger.now) for e, code, detail in doubts],
            waiting=[p.waiting for p in parked],
            timers=[p.armed for p in parked if p.armed is not None],
        )
        await ledger.land(commit)
        self._called += reasons
        self._notify()
        return False

    def _without_attempts(self) -> list[tuple[Effect, str, str]]:
        """Return the open effects that no attempt and no look-up can follow, each with why."""
        ledger, found = self.ledger, []
        for effect in ledger.open_effects():
            activity = activity_of(self._workflow, effect.activity) if is_own(ledger.run, effect) else None
            known = ledger.unsent.get((effect.visit, effect.key)) == effect or is_unsent(effect, ledger.evidence)
            if activity is None or known:
                continue
            if why := without_attempts(ledger.run, effect, activity.mode, activity.retry.attempts):
                found.append((effect, *why))
        return found

    def _notify(self) -> None:
        """The row says it first; telling people comes after, and may fail without hiding it (GATE-5)."""
        if self._called:
            self._around.notify(self.ledger.run, tuple(self._called))
            self._called = []

    async def _rest(self, way: Rest, parked: Sequence[Parked] = ()) -> bool:
        """Wait again, as before: what a person is asked is not answered. `parked`: what else is waited for."""
        ledger = self.ledger
        still = [a for a in way.left if a.reason not in OVERLAY_ONLY]
        timers = [p.armed for p in parked if p.armed is not None]
        await ledger.land(
            park(
                ledger.run,
                "park",
                inbox_seq=ledger.inbox_read,
                waiting=[*waiting_for(still), *(p.waiting for p in parked)],
                timers=[*stale_timer(still), *timers],
                now=ledger.now,
                mapping=ledger.store.mapping(),
                told=self._told(()),
                freed=await self._slots_given_back(),
            )
        )
        self._notify()
        return False

    async def _rest_until(self, verdict: Resting, told: tuple[Told, ...], asked: set[str]) -> bool:
        """Park; messages that concern none of the waits do not make the walk begin again, however fast they come (S-1)."""
        while True:
            try:
                return await self._park(verdict, told)
            except ConditionFailed as moved:
                messages = await self.ledger.new_notes() if moved.reason == "inbox_seq" else ()
                if not messages or any(n.kind != "signal" or n.name in asked for n in messages):
                    raise
                await self.ledger.go_on()
                self.ledger.also_read(messages)

    async def _park(self, verdict: Resting, told: tuple[Told, ...]) -> bool:
        ledger = self.ledger
        verbs = {p.verb for p in verdict.parked}
        verb = next(v for v in ("quiet", "retry", "park") if v in verbs)
        timers: list[Armed] = [p.armed for p in verdict.parked if p.armed is not None]
        await ledger.land(
            park(
                ledger.run,
                verb,
                inbox_seq=ledger.inbox_read,
                waiting=[p.waiting for p in verdict.parked],
                timers=timers,
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
        return await admission.heirs(ledger.store, await admission.held_by(ledger.store, ledger.run))

    async def give_back(self, why: str) -> bool:
        """Hand the run to whoever takes it next, due at once."""
        ledger = self.ledger
        await ledger.settled()
        mapping, told = ledger.store.mapping(), self._told(())
        await ledger.land(hand_back(ledger.run, inbox_seq=None, now=ledger.now, mapping=mapping, why=why, told=told))
        self._notify()
        return False

    # --- admission --------------------------------------------------------------------------------------
    async def _needs_slot(self) -> bool:
        """Before its first walk, or, where the workflow gives slots back while it waits, before any."""
        run = self.ledger.run
        if run.queue:
            return True
        gives_back = not self._workflow.slot_while_waiting and not run.slots
        return gives_back and bool(await admission.limits_of(self.ledger.store, run.tenant))

    async def _admitted(self) -> bool:
        """A slot of each limit, or asleep until one is handed over."""
        ledger = self.ledger
        limits = await admission.limits_of(ledger.store, ledger.run.tenant)
        picked = [admission.pick(ledger.run, limit) for limit in limits]
        taken = [slot for slot in picked if slot is not None]
        for slot in taken:
            if await admission.left_to_older(ledger.store, slot, ledger.run):
                raise ConditionFailed("an older run was given the slot")
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
        return Attention(reason, self.ledger.now.business, detail, seen=self.ledger.inbox_read)


def storable(text: str) -> str:
    """Text from anywhere, as every store can hold it: halves of surrogate pairs are spelt out."""
    return text.encode(errors="backslashreplace").decode()
