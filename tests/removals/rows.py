"""Safeguards that carry a row of docs/requirements.md and that no harness of `tests/mutants.py` removes.

The docstring of each function is the sentence that no longer holds.
"""

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from outlast.core import (
    addresses,
    approvals,
    approver_rule,
    business_days,
    conclude,
    durations,
    events,
    failed_calls,
    machine,
    recovery,
    run_transition,
    verbs,
    window,
)
from outlast.core.children import settle_in_parent
from outlast.core.commit import AppendMessage, Commit
from outlast.core.effect_steps import Maybe, No, Unsent
from outlast.core.first_wait import Candidate, Winner, first_of
from outlast.core.maps import MapTerms, free_places, next_place
from outlast.core.rows import store_rows
from outlast.core.rows.map_rows import MapProgress
from outlast.core.webhooks import deliveries
from outlast.engine import admission, call_outcome, commands, results, run_end, snapshots
from outlast.flow import graph
from outlast.flow.workflow import Workflow
from outlast.insight import agent_steps, explanation, tenant_rows
from outlast.lint import linting
from outlast.outbox import signing
from outlast.store import bars
from outlast.telemetry import audit, logs, metrics, traces
from outlast.testing import driver, virtual_runtime
from outlast.upkeep import deploy_check, fsck
from tests.removals import Patch, replace


def everywhere(patch: Patch, old: Any, new: Any) -> None:
    """Replace a value in every module of Outlast and of the examples that holds it."""
    found = [
        (module, name)
        for module_name, module in list(sys.modules.items())
        if module_name.partition(".")[0] in ("outlast", "examples")
        for name, value in list(vars(module).items())
        if value is old
    ]
    assert found, f"no module holds {old}"
    for module, name in found:
        patch.setattr(module, name, new)


def _answers(patch: Patch, old: Callable[..., Any], answer: Any) -> None:
    replace(patch, old, lambda *args, **options: answer)


def _answers_later(patch: Patch, old: Callable[..., Any], answer: Any) -> None:
    async def answered(*args: Any, **options: Any) -> Any:
        return answer

    replace(patch, old, answered)


# --- RUN -------------------------------------------------------------------------------------
def undeclared_targets_loaded(patch: Patch) -> None:
    """A transition to a node that does not exist is refused when the workflow is loaded."""
    _answers(patch, graph._unknown_targets, ())


def any_transition_made(patch: Patch) -> None:
    """A change of a run's status that the table does not have is refused."""
    kept = machine.run_target

    def target(verb: str, source: Any) -> Any:
        try:
            return kept(verb, source)
        except machine.IllegalMove:
            return machine.RunStatus.RUNNING

    everywhere(patch, kept, target)


def every_run_admitted(patch: Patch) -> None:
    """A run over the maximum of its tenant waits for a slot."""
    _answers_later(patch, admission.needs_slot, False)


def lanes_without_versions(patch: Patch) -> None:
    """A worker takes only runs of versions that it has."""
    patch.setattr(Workflow, "lane", property(lambda self: f"{self.name}@1"))


def reasons_not_explained(patch: Patch) -> None:
    """The sentence about a run that needs a person says why."""
    _answers(patch, explanation._why, "")


def every_day_counted(patch: Patch) -> None:
    """Weekends and holidays are no business days."""
    _answers(patch, business_days.BusinessDays._free, False)


# --- CKP -------------------------------------------------------------------------------------
def nothing_behind_the_window(patch: Patch) -> None:
    """Rows behind the window of a run are purged while it lives."""
    _answers(patch, window.behind, ())


def checkpoints_without_state(patch: Patch) -> None:
    """The event of a checkpoint has the state."""
    kept = run_transition.event
    replace(
        patch,
        kept,
        lambda run, type_, at, data, snapshot=None: kept(
            run, type_, at, data, None if type_ is events.EventType.CHECKPOINT else snapshot
        ),
    )


def results_numbered_anew(patch: Patch) -> None:
    """A result that is emitted again has the key and the row of before."""
    kept = results.produced
    count = iter(range(10**9))
    replace(patch, kept, lambda result, key, kind: kept(result, f"{key}-{next(count)}", kind))


def results_left_behind(patch: Patch) -> None:
    """The results of a node land before the event that counts them."""
    _answers_later(patch, results.ResultBuffer.hand_in, None)


def contradictions_not_noticed(patch: Patch) -> None:
    """Recovery refuses rows that contradict each other."""
    _answers(patch, recovery.contradiction, "")


def states_written_whole(patch: Patch) -> None:
    """A part of the state that did not change is not written again."""
    kept = snapshots.encode
    count = iter(range(10**9))

    def encode(state: bytes, before: Any) -> Any:
        return kept(state + b" " * next(count), None)

    patch.setattr(snapshots, "encode", encode)


# --- REC -------------------------------------------------------------------------------------
def budgets_without_margin(patch: Patch) -> None:
    """The execution budget has a margin of one fifth."""
    patch.setattr(durations, "SAFETY", 1.0)


def dead_workers_keep_their_runs(patch: Patch) -> None:
    """A worker whose lease has ended is replaced."""
    _answers(patch, store_rows.has_expired, False)


def claims_that_hold_nothing(patch: Patch) -> None:
    """A run that a worker has claimed is not due for another one."""
    kept = verbs.claim

    def claim(*args: Any, **options: Any) -> Any:
        commit = kept(*args, **options)
        if commit is None:
            return None
        put = commit.writes[0]
        return commit._replace(writes=(put._replace(row=put.row._replace(due_at=1)), *commit.writes[1:]))

    replace(patch, kept, claim)


def leases_judged_by_one_clock(patch: Patch) -> None:
    """A lease has ended only if it has by every clock."""
    kept = store_rows.has_expired
    replace(patch, kept, lambda worker, real, skew: kept(worker, real, 0))


def failed_recoveries_not_counted(patch: Patch) -> None:
    """A failed recovery is counted."""
    kept = metrics.Counters.add

    def add(self: metrics.Counters, name: str, *labels: str, number: int = 1) -> None:
        if name != metrics.RECOVERY_LOCK_ACQUISITION_FAILURES:
            kept(self, name, *labels, number=number)

    replace(patch, kept, add)


# --- EFF -------------------------------------------------------------------------------------
def definite_answers_retried(patch: Patch) -> None:
    """A definite no of a receiver is not asked for again."""
    kept = call_outcome.judge

    def judge(error: BaseException, wall_ms: int = 0) -> Any:
        found = kept(error, wall_ms)
        return Unsent(found.code, found.detail) if isinstance(found, No) else found

    replace(patch, kept, judge)


def doubts_called_unsent(patch: Patch) -> None:
    """A call whose outcome is unknown is not called unsent."""
    kept = call_outcome.judge

    def judge(error: BaseException, wall_ms: int = 0) -> Any:
        found = kept(error, wall_ms)
        return Unsent(found.code, found.detail) if isinstance(found, Maybe) else found

    replace(patch, kept, judge)


def requests_without_key(patch: Patch) -> None:
    """A write of an activity carries the Idempotency-Key."""
    from outlast import http

    patch.setattr(http, "KEY", "X-Other-Key")


def ledger_not_shown(patch: Patch) -> None:
    """The effects of all runs can be listed."""
    _answers_later(patch, tenant_rows.TenantRows.ledger, ((), ""))


def open_calls_abandoned(patch: Patch) -> None:
    """A run that is cancelled settles its open effects before it ends."""
    _answers_later(patch, run_end._settle_all, None)


# --- GATE ------------------------------------------------------------------------------------
def approvers_not_compared(patch: Patch) -> None:
    """An approval counts only if its approvers were entitled."""
    _answers(patch, approvals.approvers_were_entitled, True)


def anyone_decides(patch: Patch) -> None:
    """Only a caller who may decide decides."""
    _answers(patch, approvals.check_may_decide, None)


def attention_without_clocks(patch: Patch) -> None:
    """A run that waits for a person has the clock of its reason."""
    from outlast.core.rows import run_columns

    _answers(patch, run_columns.attention_timers, ())


def no_ceiling(patch: Patch) -> None:
    """A run that has not ended after its total timeout needs a person."""
    _answers(patch, conclude.ceiling_passed, None)


def no_audit(patch: Patch) -> None:
    """Each write leaves an audit line."""
    _answers(patch, audit.audit, None)


def any_person_satisfies_a_rule(patch: Patch) -> None:
    """A rule that names a person is satisfied by this person only."""
    kept = approver_rule._matches
    replace(
        patch,
        kept,
        lambda term, roles, name: isinstance(term, approver_rule.Person) or kept(term, roles, name),
    )


# --- OUT -------------------------------------------------------------------------------------
def gaps_in_the_numbers(patch: Patch) -> None:
    """The events of a run have numbers without a gap."""
    kept = run_transition.changed

    def changed(row: Any, **values: Any) -> Any:
        return kept(row, **({**values, "seq": values["seq"] + 1} if "seq" in values else values))

    patch.setattr(run_transition, "changed", changed)


def held_cursors_taken(patch: Patch) -> None:
    """A cursor that a dispatcher holds is not taken by another one."""
    kept = deliveries.hold
    replace(patch, kept, lambda cursor, dispatcher, now: kept(cursor, dispatcher, now)._replace(due_at=now.real))


def other_bytes_signed(patch: Patch) -> None:
    """The signature is over the bytes that are sent."""
    kept = signing.headers
    replace(patch, kept, lambda message, body, *args, **options: kept(message, body + b" ", *args, **options))


def results_not_counted(patch: Patch) -> None:
    """The count of results is that of the rows."""
    _answers_later(patch, tenant_rows.TenantRows.counts_of_results, Counter())


def empty_ends_complete(patch: Patch) -> None:
    """A run whose calls failed and that produced nothing fails."""
    _answers(patch, failed_calls.when_nothing_was_produced, "complete")


def addresses_inside_allowed(patch: Patch) -> None:
    """An address inside the network is refused."""
    _answers(patch, addresses.refusal, "")


def broad_failures_complete(patch: Patch) -> None:
    """A run fails from its declared share of failed calls on."""
    _answers(patch, failed_calls.failed_broadly, "")


# --- OBS -------------------------------------------------------------------------------------
def waits_without_span(patch: Patch) -> None:
    """A wait is a span of the run's trace."""
    _answers(patch, traces.Traces.waited, None)


def durations_not_measured(patch: Patch) -> None:
    """Durations are counted in histograms."""
    _answers(patch, metrics.Counters.observe, None)


def runs_not_logged(patch: Patch) -> None:
    """The start, each checkpoint and the end of a run are logged."""
    _answers(patch, logs.RunLog.write, None)


def answers_of_models_are_lookups(patch: Patch) -> None:
    """An answer of a model is the step model_decision."""
    replace(patch, agent_steps._Steps._model_decision, agent_steps._Steps._lookup)


def flaggings_counted_twice(patch: Patch) -> None:
    """A bar counts a run that was flagged twice in its time once, as the list behind it shows it."""
    replace(
        patch,
        bars.FlaggedBars._counted,
        lambda self, rows, causes: self.span.counts([row.at for row in rows if not causes or row.causes in causes]),
    )


# --- RT and APP ------------------------------------------------------------------------------
def start_keys_of_their_own(patch: Patch) -> None:
    """Two starts under one key are one run."""
    kept = commands._start_key
    count = iter(range(10**9))
    replace(patch, kept, lambda workflow, key: f"{kept(workflow, key)}-{next(count)}")


def no_worker_inside(patch: Patch) -> None:
    """The in-process runtime executes the runs itself."""
    from outlast.runtime.in_process import InProcessRuntime

    async def enter(self: InProcessRuntime) -> InProcessRuntime:
        return self

    patch.setattr(InProcessRuntime, "__aenter__", enter)


def second_checkpoint_accepted(patch: Patch) -> None:
    """A checkpoint must follow the last one of its LangGraph thread."""
    from outlast.core import graph_threads

    replace(patch, graph_threads.check_follows, lambda *_, **__: None)


def threads_not_interrupted(patch: Patch) -> None:
    """A wait of a run is an interrupt of its LangGraph thread."""
    from langgraph.types import Command

    from outlast.langgraph import graph_of_workflow

    async def wait(state: Any) -> Any:
        return Command(goto=graph_of_workflow.ROUTE)

    replace(patch, graph_of_workflow.wait, wait)


def superseded_bids_evaluated(patch: Patch) -> None:
    """A superseded bid is not evaluated."""
    from examples.negotiation.state import Negotiation

    patch.setattr(Negotiation, "open_bids", lambda self: list(self.bids))


# --- TEST ------------------------------------------------------------------------------------
def processes_not_killed(patch: Patch) -> None:
    """A process is killed at the crash point of its case."""
    kept = driver.Driver._ask
    replace(patch, kept, lambda self, state, action, point: kept(self, state, action, None))


def no_virtual_time(patch: Patch) -> None:
    """Time that is skipped has passed."""
    _answers_later(patch, virtual_runtime.skip, None)


def stranded_runs_not_named(patch: Patch) -> None:
    """The check before a deploy names each run that would not continue."""
    _answers(patch, deploy_check.misfits, [])


def mistakes_not_named(patch: Patch) -> None:
    """Lint names each mistake in its line."""
    patch.setattr(linting, "CHECKS", {})


def nothing_found(patch: Patch) -> None:
    """Each violated invariant of a row is found."""
    _answers(patch, fsck.findings, [])


def first_by_position(patch: Patch) -> None:
    """Of several answers for one set of waits, the one that arrived first wins."""
    kept = first_of

    def by_position(waits: Sequence[Candidate], now: int) -> Winner | None:
        return kept([each._replace(number=i + 1 if each.number else 0) for i, each in enumerate(waits)], now)

    replace(patch, first_of, by_position)


def every_input_started_at_once(patch: Patch) -> None:
    """A map starts a child when one of its window has ended."""

    def all_of_them(terms: MapTerms, progress: MapProgress, calls: Any, room: int) -> range:
        return range(next_place(progress, calls), terms.n)

    replace(patch, free_places, all_of_them)


def end_of_child_not_told(patch: Patch) -> None:
    """The end of a child wakes its parent."""
    kept = settle_in_parent

    def untold(commit: Commit, *args: Any) -> Commit:
        settled = kept(commit, *args)
        return settled._replace(writes=tuple(each for each in settled.writes if not isinstance(each, AppendMessage)))

    replace(patch, settle_in_parent, untold)
