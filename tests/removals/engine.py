"""Safeguards of the engine and of the verbs that it speaks."""

import asyncio
from typing import Any

from outlast.core import (
    approvals,
    budget,
    compensation,
    conclude,
    divergence,
    durations,
    effect_steps,
    effect_verbs,
    enough,
    failed_calls,
    json_schema,
    mailbox,
    run_transition,
    verbs,
)
from outlast.core.commit import Commit, Done, Fence
from outlast.core.machine import ApprovalStatus, EffectStatus
from outlast.core.rows.all_kinds import Row
from outlast.core.rows.effect_rows import APPROVAL, Effect
from outlast.core.rows.row_kind import AnyKind, version_of
from outlast.core.rows.run_rows import RUN, Run
from outlast.core.state import growing_list
from outlast.core.state.snapshot_codec import StateChunk, decode, unpack
from outlast.engine import (
    activity_calls,
    admission,
    budget_checks,
    call_outcome,
    call_sets,
    capacity,
    commit_chain,
    effect_executor,
    ended_children,
    lease,
    named_waits,
    node_execution,
    permission,
    snapshots,
    stated_answers,
)
from outlast.engine import node_context as context
from outlast.engine.alerts import Alerts
from outlast.engine.commit_chain import CommitChain
from outlast.engine.effect_executor import EffectExecutor
from outlast.engine.expected_calls import ExpectedCalls, expected_by
from outlast.engine.held_run import HeldRun
from outlast.engine.holder_clock import HolderClock
from outlast.engine.late_records import LateRecords
from outlast.engine.run_executor import RunExecutor
from outlast.engine.run_session import RunSession
from outlast.errors import Ended, Stale
from outlast.flow import Allow, child_starts, functions, races
from outlast.store import bounds
from outlast.store.batch import Batch
from outlast.store.memory import MemoryStore
from tests.removals import Patch, replace


# --- the fence and the lease -----------------------------------------------------------------
def no_fence(patch: Patch) -> None:
    kept = Batch._fence

    def passed(self: Batch, claim: Fence) -> Any:
        try:
            return kept(self, claim)
        except (Stale, Ended):
            return self.row(RUN, (claim.tenant, claim.run))

    replace(patch, kept, passed)


def unfenced_commits(patch: Patch) -> None:
    kept = Batch._land
    replace(patch, kept, lambda self, commit: kept(self, commit._replace(fence=None)))


def unfenced_undo(patch: Patch) -> None:
    kept = compensation.intend_undo
    replace(patch, kept, lambda *args, **options: kept(*args, **options)._replace(fence=None))


def same_epoch(patch: Patch) -> None:
    kept = run_transition.transition

    def move(run: Run, verb: str, *rest: Any, **changes: Any) -> Any:
        if verb == "claim":
            changes["epoch"] = run.epoch
        return kept(run, verb, *rest, **changes)

    replace(patch, kept, move)


def early_takeover(patch: Patch) -> None:
    kept = capacity.Taking._due

    def due(self: Any, run: Run, now: Any) -> Any:
        if not run.owner:
            return kept(self, run, now)
        taker = self._taker
        return verbs.claim(run, worker=taker.worker, now=now, claim_ms=taker.claim_ms, closed={run.owner: 0})

    replace(patch, kept, due)
    candidates = MemoryStore._candidates

    def more(self: Any, *args: Any) -> Any:
        found = candidates(self, *args)
        rest = [r for r in self._core.rows.under(RUN, ()) if isinstance(r, Run) and r.owner.startswith("wk-")]
        return found + [r for r in rest if r not in found]

    replace(patch, candidates, more)


def no_last_check(patch: Patch) -> None:
    replace(patch, lease.Permit.refusal, lambda self, clock: "")


def clock_set_back(patch: Patch) -> None:
    def hear(self: HolderClock, now: Any) -> None:
        self._ahead_ms = now.real - self._clock.boot()

    replace(patch, HolderClock.hear, hear)


# --- the limit of admitted runs ------------------------------------------------------------
def raise_without_token(patch: Patch) -> None:
    patch.setattr(admission, "with_token", lambda commit, act, tenant, now: commit)


def raise_not_counted_again(patch: Patch) -> None:
    patch.setattr(admission, "Stale", ZeroDivisionError)  # the collision of two raises is not caught


# --- rows and their versions -----------------------------------------------------------------
def no_validation(patch: Patch) -> None:
    _without_versions(patch, None)


def decided_twice(patch: Patch) -> None:
    _without_versions(patch, APPROVAL)


def _without_versions(patch: Patch, only: AnyKind | None) -> None:
    """Accept every version of a row, of one kind or of all."""
    kept = Batch._put

    def put(self: Batch, write: Any, mine: Any) -> None:
        if only is None or write.kind is only:
            found = self.row(write.kind, write.row[: write.kind.key])
            if found is not None:
                version = version_of(write.kind, found)
                write = write._replace(replaces=version, row=_numbered(write.row, version + 1, write.kind))
        kept(self, write, mine)

    replace(patch, kept, put)


def _numbered(row: Row, version: int, kind: AnyKind) -> Row:
    return row._replace(version=version) if kind.versioned else row  # type: ignore[call-arg]


def state_without_chunks(patch: Patch) -> None:
    async def without(self: RunSession, commit: Any, values: Any) -> Any:
        return commit

    replace(patch, RunSession.with_chunks, without)


def chunks_of_the_list_not_kept(patch: Patch) -> None:
    kept = snapshots.values_of

    async def without(store: Any, rows: Any, history: Any = ()) -> tuple[StateChunk, ...]:
        found = await kept(store, rows, history)
        whole = {row.hash: unpack(row.packed, row.body, row.hash) for row in found}
        parts: set[str] = set()
        for event in (rows.last, *history):
            parts |= {span.value for span in decode(event.snapshot or b"{}", whole).spans}
        return tuple(row for row in found if row.hash in parts)

    replace(patch, kept, without)


def mutable_items_reused(patch: Patch) -> None:
    replace(patch, growing_list._is_immutable, lambda schema, refs: True)


def first_dump_not_compared(patch: Patch) -> None:
    replace(patch, growing_list.is_whole, lambda data, codec, state: True)


def list_shared_between_steps(patch: Patch) -> None:
    kept = growing_list.load_growing
    shared: list[Any] = []

    def load(codec: Any, items: growing_list.KeptItems) -> Any:
        state, again = kept(codec, items)
        shared[:] = getattr(state, items.of.name)
        setattr(state, items.of.name, shared)
        return state, again

    replace(patch, kept, load)


# --- the inbox and waits ----------------------------------------------------------------------
def no_inbox_check(patch: Patch) -> None:
    kept = Batch._fence
    replace(patch, kept, lambda self, claim: kept(self, claim._replace(inbox_seq=None)))


def no_inbox_check_in_bind(patch: Patch) -> None:
    kept = effect_verbs.bind

    def bind(*args: Any, **conditions: Any) -> Commit:
        commit = kept(*args, **conditions)
        assert commit.fence is not None
        return commit._replace(fence=commit.fence._replace(inbox_seq=None))

    replace(patch, kept, bind)


def no_deadline(patch: Patch) -> None:
    _without_condition(patch, "early")
    kept = named_waits.NamedWait._bind

    async def bind(self: Any, wait: Any) -> Any:
        if wait.deadline and self.kind == "sleep":
            return await self._land(wait, None, complete=False)
        return await kept(self, wait)

    replace(patch, kept, bind)


def signal_twice(patch: Patch) -> None:
    kept = mailbox.append_message

    def append(**given: Any) -> Any:
        commit = kept(**given)
        return commit._replace(writes=commit.writes[:1])

    replace(patch, kept, append)


def swallowed_wait(patch: Patch) -> None:
    kept = node_execution.NodeExecution._result

    def from_the_body(self: Any, task: Any) -> Any:
        if task.done() and not task.cancelled() and task.exception() is None:
            self._parked.clear()
        return kept(self, task)

    replace(patch, kept, from_the_body)


def given_up_waits(patch: Patch) -> None:
    replace(patch, context.NodeContext.given_up, lambda self: None)


# --- effects ------------------------------------------------------------------------------------
def call_first(patch: Patch) -> None:
    land, submit = CommitChain.land, CommitChain.submit
    late: dict[int, Commit] = {}

    async def landed(self: CommitChain, commit: Commit) -> Done:
        if " intend " not in commit.label:
            return await land(self, commit)
        late[id(self)] = commit
        self._held.apply(commit)
        return Done(self._held.inbox_known, self._clock.now)

    def submitted(self: CommitChain, commit: Commit) -> None:
        if id(self) in late:
            submit(self, late.pop(id(self)))
        submit(self, commit)

    replace(patch, land, landed)
    replace(patch, submit, submitted)


def intent_never_stored(patch: Patch) -> None:
    kept = CommitChain.land

    async def landed(self: CommitChain, commit: Commit) -> Done:
        if " intend " not in commit.label:
            return await kept(self, commit)
        self._held.apply(commit)
        return Done(self._held.inbox_known, self._clock.now)

    replace(patch, kept, landed)


def no_ledger_hit(patch: Patch) -> None:
    kept = activity_calls.perform

    async def perform(execution: Any, activity: Any, call: Any) -> Any:
        visit = execution.session.held.run.visit if activity.once_per == "visit" else 0
        effect = execution.session.held.effects.get((visit, call.key))
        if isinstance(effect, Effect) and effect.status is EffectStatus.DONE:
            attempt = effect_executor.attempt_of(execution, activity, call, effect, [])
            answered: Any = await execution.deduplicate(
                (visit, call.key), lambda: execution.services.caller.attempt(attempt)
            )
            return answered.value
        return await kept(execution, activity, call)

    replace(patch, kept, perform)


def no_settle_time(patch: Patch) -> None:
    kept = effect_verbs.intend
    replace(patch, kept, lambda run, what, *a, **k: kept(run, what._replace(settle_margin_ms=-(10**9)), *a, **k))


def no_too_early(patch: Patch) -> None:
    _without_condition(patch, "settle")
    replace(patch, mailbox.check_settled, lambda effect, now, what: None)


def no_window(patch: Patch) -> None:
    replace(patch, effect_steps._window_open, lambda effect, terms, now: terms.remembered_for > 0)


def blind_retry(patch: Patch) -> None:
    replace(patch, effect_steps._at_start, lambda *facts: effect_steps.Intend())


def cancel_ignored(patch: Patch) -> None:
    async def heed(self: Any, effect: Any) -> None:
        return

    replace(patch, EffectExecutor._check_cancel, heed)


def earlier_attempt_forgotten(patch: Patch) -> None:
    kept = effect_steps._not_sent
    replace(patch, kept, lambda *facts: kept(*facts[:-1], facts[-1]._replace(maybe_done=False)))


def early_refusals_count(patch: Patch) -> None:
    replace(patch, effect_steps._refused, lambda effect, terms, no, *facts: effect_steps.Refuse(no.code, no.detail))


# --- undo -----------------------------------------------------------------------------------------
def undo_forwards(patch: Patch) -> None:
    kept = compensation.owed
    replace(patch, kept, lambda run, rows: list(reversed(kept(run, rows))))


def no_undo_decision(patch: Patch) -> None:
    replace(patch, compensation.must_undo, lambda run, effects: False)


# --- budgets ----------------------------------------------------------------------------------------
def no_budget_check(patch: Patch) -> None:
    async def never(execution: Any, activity: str) -> None:
        pass

    replace(patch, budget_checks.check_budget, never)


def tree_not_summed(patch: Patch) -> None:
    replace(patch, RunSession.used_in_tree, RunSession.used)


def root_not_asked(patch: Patch) -> None:
    replace(patch, conclude.ask_root, lambda commit, run, waiting: commit)


def usage_of_this_claim_only(patch: Patch) -> None:
    async def since(self: RunSession) -> Any:
        return self.held.usage_since

    replace(patch, RunSession.used, since)


def failed_attempts_are_free(patch: Patch) -> None:
    replace(patch, RunSession.submit_usage, lambda self, ident, activity, used: used.clear())


def usage_apart(patch: Patch) -> None:
    kept = RunSession.usage_puts

    def apart(self: RunSession, *args: Any) -> tuple[Any, ...]:
        asyncio.get_running_loop().call_soon(self.chain.submit, budget.record_usage(self.held.run, kept(self, *args)))
        return ()

    replace(patch, kept, apart)


def parks_by_the_old_budget(patch: Patch) -> None:
    kept = node_execution.NodeExecution.out_of_budget
    replace(patch, kept, lambda self, attention, read: kept(self, attention, ()))


# --- approvals and policy ---------------------------------------------------------------------------
def no_digest(patch: Patch) -> None:
    def any_of_them(execution: Any, plan: Any) -> list[Any]:
        now = execution.session.clock.now.business
        found = [a for a in execution.session.held.approvals.values() if a.status is ApprovalStatus.APPROVED]
        return [a for a in found if not a.consumed_by and now < a.valid_until]

    replace(patch, permission.usable_approvals, any_of_them)


def used_twice(patch: Patch) -> None:
    def used_or_not(execution: Any, plan: Any) -> list[Any]:
        digest = plan.approval_digest(execution.session.held.run.tenant, execution.session.held.run.run)
        return [a for a in execution.session.held.approvals.values() if a.chosen == digest]

    replace(patch, permission.usable_approvals, used_or_not)
    kept = effect_verbs.intend

    def intend(*rest: Any, **more: Any) -> Any:
        if more.get("approval") is not None:
            more["approval"] = more["approval"]._replace(consumed_by="")
        return kept(*rest, **more)

    replace(patch, kept, intend)


def no_expiry(patch: Patch) -> None:
    _without_condition(patch, "expired")
    replace(patch, approvals.check_in_time, lambda approval, now: None)
    patch.setattr(bounds, "check_row", lambda kind, row: None)  # which refuses such a row, too


def new_keys_not_held(patch: Patch) -> None:
    async def begins(self: ExpectedCalls, activity: str, call: Any) -> None:
        return None

    replace(patch, ExpectedCalls.hold, begins)


def missing_keys_forgotten(patch: Patch) -> None:
    replace(patch, expected_by, lambda execution: None)


def policy_not_asked(patch: Patch) -> None:
    patch.setattr(permission, "ask", lambda *args, **options: Allow())


def no_plane_check(patch: Patch) -> None:
    replace(patch, permission._check_plane, lambda execution, activity, call: None)


def alerts_inline(patch: Patch) -> None:
    def inline(self: Alerts, run: Any, reasons: Any) -> None:
        raise ConnectionError("the channel is dead")

    replace(patch, Alerts.send, inline)


def _without_condition(patch: Patch, why: str) -> None:
    """Do not judge the conditions on time that give this reason."""
    kept = Batch._when
    replace(patch, kept, lambda self, when: None if when.why == why else kept(self, when))


# --- log entries -----------------------------------------------------------------------------
def log_before_engine(patch: Patch) -> None:
    kept = RunExecutor._write_log

    def write(self: RunExecutor, log_entries: Any) -> None:
        pending, self._pending = self._pending, []
        kept(self, log_entries)
        self._pending = pending

    replace(patch, kept, write)


def log_counts_as_advance(patch: Patch) -> None:
    replace(patch, commit_chain._logs, lambda commit: False)


def advance_after_refusal(patch: Patch) -> None:
    replace(patch, commit_chain._enters, lambda commit: False)


def called_after_giving_up(patch: Patch) -> None:
    def begin_call(self: LateRecords, ident: Any) -> bool:
        self._unsent.pop(ident, None)
        return True

    replace(patch, LateRecords.begin_call, begin_call)


# --- answers of people -----------------------------------------------------------------------
def answer_unloaded(patch: Patch) -> None:
    def raised(execution: Any, effect: Effect, error: Exception) -> None:
        raise error

    replace(patch, stated_answers.ask_again, raised)


def answer_not_given(patch: Patch) -> None:
    async def load(execution: Any, activity: Any, effect: Effect) -> Any:
        return stated_answers.load_answer(activity, effect)

    replace(patch, stated_answers.given_answer, load)


def undo_leaves_answer_open(patch: Patch) -> None:
    kept = compensation.intend_undo

    def intend(*args: Any, **options: Any) -> Commit:
        commit = kept(*args, **options)
        return commit._replace(writes=commit.writes[:1])

    replace(patch, kept, intend)


def answer_corrected_unseen(patch: Patch) -> None:
    kept = mailbox.check_resolvable
    replace(patch, kept, lambda effect, verb, now, *, correct=False: kept(effect, verb, now, correct=True))


def call_denied_early(patch: Patch) -> None:
    kept = effect_verbs.mark_uncertain
    replace(patch, kept, lambda *args, **options: kept(*args, **{**options, "returned": True}))


def answer_fits_any_schema(patch: Patch) -> None:
    replace(patch, json_schema.problems_by_schema, lambda schema, value: [])


# --- plans, waits and ends ---------------------------------------------------------------------
def other_plans_put_to_approvers(patch: Patch) -> None:
    replace(patch, divergence.is_replaced_again, lambda asked, latest: False)


def waits_of_any_length(patch: Patch) -> None:
    replace(patch, durations.check_near, lambda what, given, ms: None)


def races_of_waits_loaded(patch: Patch) -> None:
    replace(patch, races.waits_in_races, lambda nodes: iter(()))


def signals_not_expected(patch: Patch) -> None:
    patch.setattr(divergence, "SIGNAL", "no signal")


def ended_children_not_recorded(patch: Patch) -> None:
    async def forgets(execution: Any, key: str, found: Any) -> None:
        return None

    replace(patch, ended_children._record, forgets)


def ended_sets_forgotten(patch: Patch) -> None:
    kept = enough.end_early
    replace(patch, enough.end_early, lambda *given: kept(*given)._replace(writes=()))


def ended_sets_not_expected(patch: Patch) -> None:
    patch.setattr(divergence, "ENDED_EARLY", "no set")


def recorded_outcomes_not_counted(patch: Patch) -> None:
    replace(patch, call_sets.CallSet._is_settled, lambda self, n: False)
    replace(patch, call_sets.CallSet._to_start, lambda self, left: iter(left))


def gates_not_left(patch: Patch) -> None:
    async def stays(self: Any) -> None:
        """Leave the calls of an ended set at their gates."""

    replace(patch, call_sets.CallSet._leave_gates, stays)


def starts_not_counted(patch: Patch) -> None:
    def uncounted(self: Any, n: int) -> None:
        return None

    patch.setattr(HeldRun, "count_below_root", uncounted)
    patch.setattr(HeldRun, "begin_starts", uncounted)


def undecided_children_loaded(patch: Patch) -> None:
    replace(patch, child_starts.undecided_children, lambda nodes: iter(()))


def caught_errors_not_recorded(patch: Patch) -> None:
    replace(patch, node_execution.NodeExecution.observe, lambda self, ident, memo: None)


def unrun_work_is_done(patch: Patch) -> None:
    replace(patch, functions.unrun_part, lambda value: None)


def ends_judged_by_the_source(patch: Patch) -> None:
    def judged(declared: failed_calls.EmptyEnd, outcome: Any, calls: failed_calls.CallCount) -> Any:
        return declared.when_empty or ("fail" if calls.failed and declared.emits else "complete")

    replace(patch, failed_calls.when_nothing_was_produced, judged)


def any_part_of_the_package_refuses(patch: Patch) -> None:
    replace(patch, call_outcome._is_of_client, lambda error: True)
