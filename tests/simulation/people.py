"""People of a seed: they decide early, late and twice, signal, cancel, and answer attention."""

import json
from collections.abc import Coroutine
from typing import Any

from outlast.core.approvals import Actor, PersonDecision
from outlast.core.attention import AttentionAnswer
from outlast.core.keys import idempotency_key
from outlast.core.machine import OVERLAY_ONLY, ApprovalStatus, Choice, EffectStatus, Reason, WaitStatus
from outlast.core.mailbox import EffectAnswer
from outlast.core.rows.effect_rows import APPROVAL, EFFECT, WAIT, Approval, Effect, Wait
from outlast.core.rows.run_columns import Attention
from outlast.core.rows.run_rows import RUN, Run, is_over
from outlast.core.run_transition import rearmed
from outlast.engine import commands
from outlast.errors import Conflict, NotFound, OutlastError, StoreError
from tests.simulation.environment import QUIET, Environment
from tests.simulation.loop import SECOND, Proc
from tests.simulation.receivers import Receivers
from tests.simulation.scenarios import SCENARIOS
from tests.simulation.wire import Wire

TENANT = "t"
ROUND_MS = 45 * SECOND  # how often the operators look at what waits for them


class People:
    """Approvers and operators of a seed."""

    def __init__(self, env: Environment, receivers: Receivers, runs: list[str]) -> None:
        self.env = env
        self.receivers = receivers
        self.runs = runs
        self.store: Any = Wire(env, Proc("people", 99))
        self.signals = 0
        self.acknowledged: set[tuple[str, str]] = set()  # signals whose sender got True
        self._answered: dict[tuple[str, str], int] = {}

    def begin(self) -> None:
        self.env.later(ROUND_MS, self._go_round)

    def _try(self, what: Coroutine[Any, Any, Any]) -> None:
        self.env.do(self._guarded(what))

    async def _guarded(self, what: Coroutine[Any, Any, Any]) -> None:
        try:
            await what
        except (Conflict, NotFound, StoreError) as error:
            self.env.say("is told: %s", error)
        except OutlastError as error:
            self.env.fail(f"a person got {error!r}")

    # --- approvals -------------------------------------------------------------------------------
    def asked(self, approval: Approval) -> None:
        """Schedule decisions about a pending approval, or none."""
        dice, left = self.env.dice, approval.within_until - approval.asked_at
        if dice.happens("decided_at_expiry", 0.5):
            wait = left + dice.choice((-1, 0, 1))
        elif dice.happens("decided_late", 0.3):
            wait = left + dice.span(2, 60 * SECOND)
        elif dice.rng.random() < 0.1:
            return
        else:
            wait = dice.span(1, left)
        self.env.later(wait, self._decide_soon, approval.id, "ann")
        if dice.happens("decided_twice", 0.5):
            self.env.later(wait + dice.choice((0, 0, 1, SECOND)), self._decide_soon, approval.id, "bob")

    def _decide_soon(self, approval: str, by: str) -> None:
        self._try(self._decide(approval, by))

    async def _decide(self, approval: str, by: str) -> None:
        row = await commands.find_approval(self.store, TENANT, approval)
        draw = self.env.dice.rng.random()
        verb: Any = "again" if row.again and draw < 0.2 else "reject" if draw > 0.9 else "approve"
        self.env.say("%s: %s %s", by, verb, approval)
        choice = PersonDecision(verb, "because", version=row.version)
        await commands.decide_approval(
            self.store, TENANT, approval, Actor(by, claims=("boss",)), choice, lambda run: None
        )
        self.env.say("%s got the answer that %s is decided", by, approval)

    # --- signals ---------------------------------------------------------------------------------
    def waits(self, wait: Wait) -> None:
        """Schedule signals for a declared wait, or none."""
        dice = self.env.dice
        if wait.kind == "sleep":
            return
        left = max(wait.deadline - self._business(), 1)
        for _ in range(dice.choice((0, 1, 1, 2) if wait.kind == "receive" else (0, 2, 3, 4))):
            at_end = dice.happens("signal_at_deadline", 0.5)
            ms = left + dice.choice((-1, 0, 1)) if at_end else dice.span(1, left + 5 * SECOND)
            self.signals += 1
            self.env.later(ms, self._signal_soon, wait.run, wait.name, self.signals)
            if dice.happens("signal_twice", 0.5):
                self.env.later(ms + dice.choice((0, 1, 5 * SECOND)), self._signal_soon, wait.run, wait.name,
                                  self.signals)  # fmt: skip

    def _business(self) -> int:
        return self.env.core.now().business

    def _signal_soon(self, run: str, name: str, n: int) -> None:
        self._try(self._signal(run, name, n))

    async def _signal(self, run: str, name: str, n: int) -> None:
        left = await commands.signal(
            self.store, tenant=TENANT, run=run, name=name, payload={"n": n}, actor="sue", signal_id=f"s{n}"
        )
        self.env.say("signal %s s%d to %s: %s", name, n, run, "left" if left else "was there")
        self.acknowledged.add((run, f"s{n}"))

    # --- cancels and clocks ------------------------------------------------------------------------
    def cancel_some(self) -> None:
        """Cancel one random run."""
        run = self.env.dice.choice(self.runs)
        self.env.say("somebody cancels %s", run)
        self._try(commands.cancel(self.store, tenant=TENANT, run=run, actor="sue", reason="no longer needed"))

    def skip_clock(self) -> None:
        """Skip business time to the next deadline, one ms beside it, or a random instant."""
        core, dice = self.env.core, self.env.dice
        now, mapping = core.now(), core.mapping()
        rows = [r for r in core.rows.under(APPROVAL, ()) if isinstance(r, Approval)]
        ends = [r.within_until - now.business for r in rows if r.status is ApprovalStatus.PENDING]
        waits = [r for r in core.rows.under(WAIT, ()) if isinstance(r, Wait)]
        ends += [w.deadline - now.business for w in waits if w.status is WaitStatus.OPEN and w.deadline]
        ms = dice.near([end for end in ends if end > 0], SECOND, 100 * SECOND)
        self.env.say("business time skips %d ms", ms)
        ahead = mapping._replace(base_real=now.real, base_business=now.business + ms)
        self._try(self.store.set_mapping(ahead, rearmed))

    # --- attention -------------------------------------------------------------------------------
    def flagged(self, run: Run) -> None:
        """Answer the attention of a run."""
        dice = self.env.dice
        for each in run.attention:
            boundary: tuple[int, ...] = ()
            if each.reason is Reason.EFFECT_UNCERTAIN:
                effect = self._effect(run, each)
                quiet = effect.settle_after - self.env.now() if effect is not None else 0
                if quiet > 0 and dice.happens("resolved_at_quiet", 0.7):
                    self.env.later(quiet + dice.choice((-1, 0, 1)), self._answer_soon, run.run, each, True)
                    continue
                if quiet > 0 and dice.happens("operator_early", 0.5):
                    self.env.later(dice.span(1, quiet), self._answer_soon, run.run, each, True)
                    continue
                boundary = (max(quiet, 0),)
            self.env.later(dice.near(boundary, SECOND, 90 * SECOND), self._answer_soon, run.run, each, False)

    def _effect(self, run: Run, each: Attention) -> Effect | None:
        row = self.env.core.rows.get(EFFECT, (run.tenant, run.run, each.visit, each.key))
        return row if isinstance(row, Effect) else None

    def _answer_soon(self, run: str, each: Attention, no: bool) -> None:
        self._try(self._answer(run, each, no))

    async def _answer(self, name: str, each: Attention, no: bool) -> None:
        run = self.env.core.rows.get(RUN, (TENANT, name))
        assert isinstance(run, Run)
        if is_over(run) or each.reason not in [a.reason for a in run.attention]:
            return
        if each.reason is Reason.EFFECT_UNCERTAIN:
            await self._resolve(run, each, no)
            return
        if each.reason is Reason.UNDO_FAILED:
            await self._undo_failed(run, each)
            return
        place = (name, each.reason.value)
        times = self._answered[place] = self._answered.get(place, 0) + 1
        choice = self._choice(each.reason, times)
        self.env.say("the operator answers %s of %s: %s", each.reason.value, name, choice.value)
        if choice is Choice.CONTINUE:
            await commands.continue_run(self.store, tenant=TENANT, run=name, actor="op", reason="looked into it")
            return
        by_ms = 600 * SECOND if choice is Choice.EXTEND else 0
        answer = AttentionAnswer(choice, "looked into it", each.reason, by_ms=by_ms)
        await commands.resolve_attention(self.store, tenant=TENANT, run=name, answer=answer, actor="op")

    def _choice(self, reason: Reason, times: int) -> Choice:
        if times > 2 and reason is not Reason.TOTAL_TIMEOUT:
            return Choice.CANCEL
        first: dict[Reason, Choice] = {
            Reason.APPROVAL_TIMEOUT: Choice.ASK_AGAIN,
            Reason.TOTAL_TIMEOUT: Choice.EXTEND,
            Reason.RETRIES_EXHAUSTED: Choice.RETRY,
            Reason.VISITS_EXHAUSTED: Choice.ONE_MORE,
        }
        return first.get(reason, Choice.CONTINUE)

    async def _resolve(self, run: Run, each: Attention, no: bool) -> None:
        """Answer an uncertain effect from the receiver's records. `no`: answer "did not happen" if it has not."""
        effect = self._effect(run, each)
        if effect is None or effect.status is not EffectStatus.UNCERTAIN:
            return
        done = self.receivers.executed.get(idempotency_key(effect.tenant, effect.run, effect.visit, effect.key))
        if done:
            verb: EffectAnswer = "happened"
            response: bytes | None = json.dumps(done[-1].response).encode()
        elif self.env.now() < effect.settle_after and not no:
            return  # the next round
        else:
            verb = "give_up" if self.env.dice.rng.random() < 0.2 and not no else "did_not_happen"
            response = None
        self.env.say("the operator: %s %s", effect.key, verb)
        await commands.resolve_effect(
            self.store,
            tenant=TENANT,
            run=run.run,
            key=effect.key,
            verb=verb,
            actor="op",
            reason="asked them",
            encode=(lambda _: response) if response is not None else None,
            version=effect.version,
        )

    async def _undo_failed(self, run: Run, each: Attention) -> None:
        """Let a failed undo be tried again, or answer that it is done, from the receiver's records."""
        undo = self._effect(run, each)
        if undo is None or self.env.now() < undo.settle_after:
            return  # the next round
        key = idempotency_key(undo.tenant, undo.run, undo.visit, undo.key)
        times = self._answered[run.run, key] = self._answered.get((run.run, key), 0) + 1
        by_hand = self.receivers.executed.get(key) or times > 3
        choice = Choice.DONE_BY_HAND if by_hand else Choice.RETRY
        self.env.say("the operator answers undo_failed of %s %s: %s", run.run, each.key, choice.value)
        answer = AttentionAnswer(choice, "asked them", each.reason, each.key)
        await commands.resolve_attention(self.store, tenant=TENANT, run=run.run, answer=answer, actor="op")

    # --- the round -------------------------------------------------------------------------------
    def _go_round(self) -> None:
        """Check all waiting runs again, so that no run is forgotten."""
        for run in self.env.core.rows.under(RUN, (TENANT,)):
            assert isinstance(run, Run)
            if is_over(run):
                continue
            for each in run.attention:
                if run.owner == "" or each.reason in OVERLAY_ONLY:
                    self._answer_soon(run.run, each, False)
        if not self.env.dice.storm:
            for row in self.env.core.rows.under(APPROVAL, (TENANT,)):
                assert isinstance(row, Approval)
                if row.status is ApprovalStatus.PENDING:
                    self._decide_soon(row.id, "cas")
        self.env.later(ROUND_MS, self._go_round)


def allowed(workflow: str, reason: Reason) -> bool:
    """Return True if this reason may appear in a run of this workflow without a finding."""
    everywhere = {
        Reason.EFFECT_UNCERTAIN,
        Reason.APPROVAL_TIMEOUT,
        Reason.TOTAL_TIMEOUT,
        Reason.RETRIES_EXHAUSTED,
        Reason.VISITS_EXHAUSTED,
        Reason.POISONED,
    }
    return reason in everywhere or reason in SCENARIOS[workflow].reasons


assert QUIET < ROUND_MS
