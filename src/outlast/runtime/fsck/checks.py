"""The checks of one run by name, and the one function that asks them all."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from outlast.core.commit import Mapping
from outlast.core.rows import Event, Value
from outlast.runtime.fsck import of_approvals, of_deliveries, of_effects, of_history, of_run, of_store
from outlast.runtime.fsck.finding import Check, Finding, OneRun
from outlast.store.port import RunRows

OF_A_RUN: Final[tuple[Check, ...]] = (
    of_run.run_row,
    of_run.run_words,
    of_run.run_visits,
    of_run.run_clocks,
    of_run.run_mail,
    of_run.wait_bound,
    of_run.wait_visit,
    of_run.evidence_of_effect,
    of_effects.effect_row,
    of_effects.effect_digest,
    of_effects.effect_order,
    of_effects.effect_claim,
    of_effects.effect_open_at_end,
    of_effects.effect_undone,
    of_effects.undo_order,
    of_effects.run_restored,
    of_approvals.approval_decided,
    of_approvals.approval_plans,
    of_approvals.approval_consumed,
    of_approvals.approval_in_time,
    of_approvals.approval_at_end,
)
OF_HISTORY: Final[tuple[Check, ...]] = (
    of_history.history_numbers,
    of_history.history_head,
    of_history.history_chain,
    of_history.history_bytes,
    of_history.history_versions,
    of_history.history_moves,
    of_history.history_end,
    of_history.effect_settled,
    of_history.checkpoint_kept,
    of_history.state_whole,
)
OF_THE_STORE: Final[tuple[Callable[..., Any], ...]] = (
    of_store.slot_held,
    of_store.slot_named,
    of_store.owner_known,
    of_store.worker_lease,
    of_store.settings_safe,
    of_store.token_target,
    of_store.usage_of,
    of_store.usage_known,
    of_deliveries.event_told,
    of_deliveries.cursor_due,
)


def violations(
    rows: RunRows,
    history: Sequence[Event] | None = None,
    *,
    mapping: Mapping | None = None,
    generation: int | None = None,
    values: Sequence[Value] | None = None,
    chain: bool = True,
) -> list[Finding]:
    """What breaks an invariant in the rows of one run, as read in one snapshot; [] when nothing does.

    `history`: all its events up to that snapshot; without them only the rows are looked at. `values`: the large
    parts of its states; without them nothing is said of those.
    `mapping`, `generation`: the store's, for what depends on them. `chain`: compute hashes and digests anew. Pure:
    the simulator and the crash runs ask the same.
    """
    events = None if history is None else tuple(history)
    parts = None if values is None else tuple(values)
    one = OneRun(rows, events, mapping, generation, parts, chain)
    return findings(one)


def findings(one: OneRun) -> list[Finding]:
    """The findings of every check, in their order."""
    return [Finding(check.__name__, kind.name, key, text)
            for check in (*OF_A_RUN, *OF_HISTORY) for kind, key, text in check(one)]  # fmt: skip
