"""FAIL-1 to FAIL-12: the test of each failure, the safeguard that it relies on, and the removal that shows the need."""

import ast
from pathlib import Path
from typing import Any, Final, NamedTuple

from outlast.flow.source import syntax_tree

ROOT: Final = Path(__file__).resolve().parents[2]
E = "tests/engine/test_"
S = E + "safeguards.py"


class Failure(NamedTuple):
    """One failure: its test as file::function, its safeguard, and the id of the mutant that lacks it."""

    id: str
    what: str
    test: str
    safeguard: str
    mutant: str


FAILURES: Final = (
    Failure(
        "FAIL-1", "a model proposes a disallowed tool",
        E + "policy.py::test_fail_1_a_model_proposes_a_disallowed_tool",
        "policy decides before every intent", "policy_not_asked",
    ),
    Failure(
        "FAIL-2", "a tool times out after performing the effect",
        E + "effects.py::test_an_uncertain_call_is_not_resent_if_a_person_is_to_be_asked",
        "an open effect is settled as its activity declares, never simply sent again", "blind_retry",
    ),
    Failure(
        "FAIL-3", "a crash after the intent, before the call",
        S + "::test_without_a_durable_intent_a_crash_forgets_the_call",
        "the intent is durable before the call", "call_first",
    ),
    Failure(
        "FAIL-4", "a crash after the response, before advancing",
        "tests/crash/test_crash_points.py::test_a_crash_after_the_answer_repeats_nothing",
        "a recorded effect is answered from the ledger", "no_ledger_hit",
    ),
    Failure(
        "FAIL-5", "an approval arrives after its expiry",
        S + "::test_without_the_expiry_in_the_condition_a_late_decision_counts",
        "the expiry is a condition of the decision, judged by the store's clock", "no_expiry",
    ),
    Failure(
        "FAIL-6", "two workers resume one run",
        E + "leases.py::test_of_many_workers_one_claims_a_run",
        "a claim raises the epoch, and needs an expired lease", "early_takeover",
    ),
    Failure(
        "FAIL-7", "a cancellation during a call",
        E + "mailbox.py::test_a_cancel_inside_a_call_waits_for_its_outcome",
        "a call in flight settles before the end, and none begins after a cancel", "cancel_ignored",
    ),
    Failure(
        "FAIL-8", "a crash before the checkpoint, after a completed write",
        "tests/crash/test_crash_points.py::test_a_crash_after_the_answer_repeats_nothing",
        "a recorded effect is answered from the ledger", "no_ledger_hit",
    ),
    Failure(
        "FAIL-9", "the notification path is dead during an escalation",
        E + "clocks.py::test_the_row_is_written_before_the_alert_and_a_failed_alert_hides_nothing",
        "the row is written first, and errors of the channel stay in the channel", "alerts_inline",
    ),
    Failure(
        "FAIL-10", "recovery overlaps the cycle back",
        E + "rounds.py::test_recovery_overlaps_the_cycle_back",
        "the store refuses commits of a replaced holder", "no_fence",
    ),
    Failure(
        "FAIL-11", "the lease holder dies during recovery",
        "tests/crash/test_crash_points.py::test_a_second_crash_during_the_recovery",
        "recovery uses the same intents and records as the first pass", "call_first",
    ),
    Failure(
        "FAIL-12", "a paused process wakes after its lease was taken",
        S + "::test_without_the_last_check_a_replaced_holder_calls_a_second_time",
        "the check at the last instant, and the fence", "no_last_check",
    ),
)  # fmt: skip


COMPLETE: Final = frozenset(
    {
        ("all pairs", "trip"),
        ("all pairs", "trip-booked"),
        ("single cells", "refund"),
        ("single cells", "trip"),
        ("single cells", "trip-booked"),
        ("single cells", "auction"),
        ("single cells", "auction-batched"),
    }
)
"""Campaigns that are claimed to be complete: every crash point of the workflow was visited. A campaign that has run
to its end is added here together with its file in tests/crash/results."""


def is_complete(what: str, row: dict[str, Any]) -> bool:
    """True if a campaign visited every crash point, and every killed run ended like the uncrashed one."""
    if row.get("left", 0) or not row["run"] == row["killed"] == row["equal"]:
        return False
    return bool(row["run"] == row["listed"] if what == "single cells" else row["run"] >= row["listed"])


def functions(path: str) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return the functions at the top of a file."""
    tree = syntax_tree((ROOT / path).read_text(encoding="utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
