"""FAIL-1 to FAIL-12: the test of each, the safeguard it rests on, and what shows that the safeguard is needed."""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
E = "tests/engine/test_"
S = E + "safeguards.py"
SIM = "tests/simulation/mutants.py"
CRASH = "tests/crash/mutants.py"
STORE = "tests/store/test_safeguards.py"
DISK = "tests/store/test_failing_disk.py"
SERVICE = "tests/service/test_safeguards.py"
MODELS = "tests/models"


class Failure(NamedTuple):
    """One failure: its test, as file::function, its safeguard, and the place that removes it, as file::function."""

    id: str
    what: str
    test: str
    safeguard: str
    removed: str


FAILURES: Final = (
    Failure(
        "FAIL-1", "a model proposes a disallowed tool",
        E + "policy.py::test_fail_1_a_model_proposes_a_disallowed_tool",
        "policy is asked before every intent", "tests/failures/test_fail.py::test_fail_1",
    ),
    Failure(
        "FAIL-2", "a tool times out after performing the effect",
        E + "effects.py::test_what_perhaps_happened_is_never_repeated_where_a_person_is_to_be_asked",
        "an open effect is settled by its mode, never simply called again", SIM + "::blind_retry",
    ),
    Failure(
        "FAIL-3", "crash after the intent, before the call",
        S + "::test_without_a_durable_intent_a_crash_forgets_the_call",
        "the intent is durable before the call", CRASH + "::call_first",
    ),
    Failure(
        "FAIL-4", "crash after the response, before advancing",
        "tests/crash/test_cells.py::test_a_death_after_the_answer_repeats_nothing",
        "a recorded effect is answered from the ledger", CRASH + "::no_ledger_hit",
    ),
    Failure(
        "FAIL-5", "an approval arrives after its expiry",
        S + "::test_without_the_expiry_in_the_condition_a_late_decision_counts",
        "the expiry is in the condition of the decision, by the store's clock", SIM + "::no_expiry",
    ),
    Failure(
        "FAIL-6", "two workers resume one run",
        E + "leases.py::test_of_many_workers_one_takes_a_run",
        "a claim raises the epoch, and a lease must have expired", SIM + "::impatient",
    ),
    Failure(
        "FAIL-7", "a cancellation during a call",
        E + "mailbox.py::test_a_cancel_inside_a_call_waits_for_its_outcome",
        "a call in flight settles before the end; none begins after a cancel", SIM + "::deaf_to_cancel",
    ),
    Failure(
        "FAIL-8", "crash before the checkpoint, after a completed write",
        "tests/crash/test_cells.py::test_a_death_after_the_answer_repeats_nothing",
        "a recorded effect is answered from the ledger", SIM + "::no_ledger_hit",
    ),
    Failure(
        "FAIL-9", "the notification path is dead during an escalation",
        E + "clocks.py::test_the_row_says_it_first_and_a_dead_channel_hides_nothing",
        "the row says it first; what the channel raises stays in the channel",
        "tests/failures/test_fail.py::test_fail_9",
    ),
    Failure(
        "FAIL-10", "recovery overlaps the cycle-back",
        E + "rounds.py::test_recovery_overlaps_the_cycle_back",
        "what a replaced holder writes is refused", SIM + "::no_fence",
    ),
    Failure(
        "FAIL-11", "the lease holder dies during recovery",
        "tests/crash/test_cells.py::test_a_second_death_during_the_recovery",
        "recovery is made of the same intents and records as the first walk", CRASH + "::call_first",
    ),
    Failure(
        "FAIL-12", "a paused process wakes after its lease was taken",
        S + "::test_without_the_last_instant_check_a_zombie_s_call_is_a_second_effect",
        "the check at the last instant, and the fence", SIM + "::no_last_check",
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
"""What the kills of these stories are claimed to be: all there are, no place left for want of time. A campaign that has
run to its end is added here with its file in tests/crash/results."""


def is_complete(what: str, row: dict[str, Any]) -> bool:
    """Was every place of a story gone to, and was everyone that was gone to killed and found equal?"""
    if row.get("left", 0) or not row["run"] == row["killed"] == row["equal"]:
        return False
    return bool(row["run"] == row["listed"] if what == "single cells" else row["run"] >= row["listed"])


def functions(path: str) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    """The functions at the top of a file."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def removed_in(path: str) -> list[tuple[str, str]]:
    """The safeguards that a file (or the folder of the models) removes, each with what it is or what breaks."""
    if path == MODELS:
        return [each for rule in sorted((ROOT / MODELS).glob("s[0-9]*.py")) for each in _broken_variants(rule.stem)]
    if path == STORE:
        return _promises(path)
    found = []
    for name, node in functions(path).items():
        decorators = [ast.unparse(each) for each in node.decorator_list]
        if "mutant" in decorators or name.startswith("test_without_") or name in ALSO:
            found.append((name, (ast.get_docstring(node) or "").splitlines()[0] if ast.get_docstring(node) else ""))
    return found


def _broken_variants(rule: str) -> list[tuple[str, str]]:
    variants = import_module(f"{MODELS.replace('/', '.')}.{rule}").VARIANTS
    title = f"S-{int(rule[1:3])}"
    return [(f"{title}: {each.name}", f"found: {each.breaks}") for each in variants if each.breaks]


def _promises(path: str) -> list[tuple[str, str]]:
    """Of CASES, a table of (what removes it, the promise that breaks, the stores)."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    broken: dict[str, list[str]] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Tuple(elts=[ast.Name(id=name), ast.Constant(value=str(promise)), ast.Name()]):
                broken.setdefault(name, []).append(f"`{promise}`")
    return [(name, f"breaks {', '.join(promises)}") for name, promises in broken.items()]


ALSO: Final = ("test_a_plain_select_would_let_both_pass", "receipts", "durability")
HARNESSES: Final = (
    (SIM, "seeded schedules", "scripts/simulate --mutants"),
    (CRASH, "real kills", "scripts/test tests/crash/test_mutants.py"),
    (S, "the engine", f"scripts/test {S}"),
    (SERVICE, "the service", f"scripts/test {SERVICE}"),
    (E + "compensation.py", "undo", f"scripts/test {E}compensation.py"),
    (E + "state.py", "large states", f"scripts/test {E}state.py"),
    (STORE, "the stores", f"scripts/test {STORE}"),
    (DISK, "a disk that fails", f"scripts/test {DISK}"),
    ("tests/postgres/test_commits.py", "PostgreSQL", "scripts/test tests/postgres/test_commits.py"),
    ("tests/chaos/without.py", "a real database under fire", "scripts/chaos --without NAME"),
    (MODELS, "models, by search over all orders", "scripts/models"),
)
