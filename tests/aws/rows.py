"""Rows of the conformance tests of AWS durable functions, each with our test and, if the result differs, the reason.

The ids and titles are those of aws-durable-execution-conformance-tests 1.0.0 (PyPI, Apache-2.0), whose runner needs AWS
Lambda: `test_requirements/child`, `callback`, `wait_for_callback`, `parallel` and `map`. A child context is a child run
here, a callback a signal, a branch a call of `ctx.do_all` or a child, and an item a child of `ctx.map`.
"""

from typing import Final, NamedTuple

SOURCE: Final = "aws-durable-execution-conformance-tests 1.0.0"
COUNTS: Final = {"child": 18, "callback": 19, "wait_for_callback": 15, "parallel": 22, "map": 20}
GROUPS: Final = {"3": "child", "4": "callback", "7": "wait_for_callback", "8": "parallel", "9": "map"}
DIFFER_MAX: Final = 0.25
"""Largest share of rows whose result may differ."""
HERE: Final = "tests/aws/test_rows.py"
KILLED: Final = "tests/crash/test_tree_points.py::test_a_tree_survives_the_death_of_its_worker"

ASKS: Final = (
    "An error that no code catches asks a person before the run ends. With the answer `fail`, the run fails. "
    "`raise Fail(…)` ends a run at once, and `except ChildFailed` or `except Refused` handles the error of a call."
)
NO_SERIALIZER: Final = (
    "A value comes back as it went in, or is refused: there is no serializer that changes it. The code of the child "
    "changes the value before it returns it."
)
NO_FAILURE: Final = (
    "A signal has no second form for a failure. The payload says it, and the code raises `Fail` or goes on."
)


class Row(NamedTuple):
    """A row of theirs."""

    title: str
    test: str
    """FILE::FUNCTION of the test that plays it."""
    differs: str = ""
    """What a user sees instead; '' if the result is the same."""


FAN_OUT: Final = "tests/aws/test_fan_out_rows.py"


def _set(title: str, test: str, differs: str = "") -> Row:
    return Row(title, f"{FAN_OUT}::test_{test}", differs)


def _row(title: str, test: str, differs: str = "") -> Row:
    return Row(title, test if "::" in test else f"{HERE}::test_{test}", differs)


ROWS: Final = {
    "3-1": _row("Child context basic (single step inside)", "a_child_returns_the_result_of_its_step"),
    "3-2": _row("Child context with name", "a_child_has_a_key"),
    "3-3": _row("Child context with multiple sequential steps", "steps_of_a_child_follow_each_other"),
    "3-4": _row("Child context error (step fails, execution fails)", "an_error_of_a_child_asks_a_person", ASKS),
    "3-5": _row("Child context error caught (try/catch, execution succeeds)", "an_error_of_a_child_is_caught"),
    "3-6": _row("Nested child contexts", "children_have_children"),
    "3-7": _row("Child context with step retry (fails then succeeds)", "a_step_of_a_child_is_tried_again"),
    "3-8": _row("Child context with step retry exhaustion (child fails)", "used_up_attempts_ask_a_person", ASKS),
    "3-9": _row("Child context replay (returns cached result)", "a_child_that_has_ended_is_not_executed_again"),
    "3-10": _row("Child context with step and wait inside", "a_child_calls_and_waits"),
    "3-11": _row(
        "Child context large payload (ReplayChildren mode)",
        "a_large_outcome_is_refused",
        "An outcome has at most 256 KiB. A larger one is refused where it is returned: store it, and return its name.",
    ),
    "3-12": _row("Child context interrupted and re-executed", KILLED),
    "3-13": _row("Child context with wait inside - verify replay", "a_child_only_waits"),
    "3-14": _row(
        "Child context with custom serdes (succeed)",
        "a_value_comes_back_as_it_went_in",
        NO_SERIALIZER,
    ),
    "3-15": _row("Child context error without step", "an_error_without_a_step_asks_a_person", ASKS),
    "3-16": _row("Child context returning null", "a_child_returns_none"),
    "3-17": _row("Child context with durable logger only", "a_child_that_has_ended_logs_nothing_again"),
    "3-18": _row("Child context with step and wait inside, step and wait after", "calls_and_waits_after_a_child"),
    "4-1": _row("Create callback basic (success via external callback)", "a_signal_is_returned"),
    "4-2": _row("Create callback with explicit name", "a_signal_is_returned"),
    "4-3": _row("Create callback general timeout", "a_signal_that_does_not_come"),
    "4-4": _row("Create callback heartbeat timeout", "no_sign_of_life"),
    "4-5": _row("Create callback with heartbeat then success", "signs_of_life_put_the_deadline_off"),
    "4-6": _row("Create callback failure", "a_failure_is_a_payload", NO_FAILURE),
    "4-7": _row("Callback + Step + Wait for callback result (failure)", "a_failure_is_a_payload", NO_FAILURE),
    "4-8": _row("Callback + Step + Wait for callback result (timeout)", "a_signal_that_does_not_come"),
    "4-9": _row("Callback + Wait + Wait for callback result (success)", "a_signal_that_comes_during_a_sleep"),
    "4-10": _row("Callback + Wait + Wait for callback result (failure)", "a_failure_is_a_payload", NO_FAILURE),
    "4-11": _row(
        "Callback + Wait + Wait for callback result (timeout)",
        "a_deadline_begins_with_the_wait",
        "The timeout of `ctx.receive` begins when the code waits, not when a name is made. A signal that came during "
        "an earlier sleep counts. For one deadline over several waits, compute the instant once and give it "
        "as `until=`.",
    ),
    "4-12": _row("Callback resolves first, then a wait suspends", "a_sleep_after_a_signal"),
    "4-13": _row("Callback failure caught, then a wait", "a_sleep_after_a_signal"),
    "4-14": _row("Callback timeout caught, then a wait", "a_sleep_after_a_deadline"),
    "4-15": _row("Callback with custom serdes (typed object)", "a_payload_is_typed"),
    "4-16": _row("Callback with custom serdes (number)", "a_payload_is_typed"),
    "4-17": _row("Callback A, wait for A, callback B, wait for B", "two_signals_in_any_order"),
    "4-18": _row("Callbacks A and B, wait for A, wait for B", "two_signals_in_any_order"),
    "4-19": _row("Callbacks A and B, wait for B, wait for A", "two_signals_in_any_order"),
    "7-1": _row("Wait-for-callback basic", "a_call_and_its_answer"),
    "7-2": _row("Wait-for-callback with a static name", "a_call_and_its_answer"),
    "7-3": _row(
        "Wait-for-callback without a name",
        "a_signal_needs_a_name",
        "A wait for a signal has a name, because the sender names it. There is no generated callback id: the id of the "
        "run and the name are the address.",
    ),
    "7-4": _row("Wait-for-callback failure", "a_failure_is_a_payload", NO_FAILURE),
    "7-5": _row("Wait-for-callback timeout", "a_call_whose_answer_does_not_come"),
    "7-6": _row("Wait-for-callback failure caught", "a_failure_is_handled"),
    "7-7": _row("Wait-for-callback submitter always throws", "used_up_attempts_ask_a_person", ASKS),
    "7-8": _row("Wait-for-callback in a child context", "a_child_waits_for_its_answer"),
    "7-9": _row("Two wait-for-callbacks in sequence", "two_calls_and_their_answers"),
    "7-10": _row("Wait and step before a wait-for-callback", "a_sleep_and_a_call_before_it"),
    "7-11": _row("Wait-for-callback with a JSON object", "a_payload_is_typed"),
    "7-12": _row("Wait-for-callback heartbeat timeout", "no_sign_of_life"),
    "7-13": _row("Wait-for-callback heartbeat then success", "signs_of_life_put_the_deadline_off"),
    "7-14": _row("Wait-for-callback timeout caught", "a_deadline_is_handled"),
    "7-15": _row("Wait-for-callback without a payload", "an_empty_payload"),
    "8-1": _set("Parallel basic (two branches, each a single step)", "values_come_in_the_order_of_the_input"),
    "8-2": _set("Parallel without a name", "values_come_in_the_order_of_the_input"),
    "8-3": _set("Parallel with named branches", "values_come_in_the_order_of_the_input"),
    "8-4": _set("Parallel whose branches return different types", "values_keep_their_types"),
    "8-5": _set("Parallel without branches", "nothing_has_an_empty_result"),
    "8-6": _set("Parallel fail-fast (no failure tolerated)", "the_first_failure_ends_it"),
    "8-7": _set("Parallel whose result rethrows", "a_failure_that_no_code_catches_asks_a_person", ASKS),
    "8-8": _set("Parallel with min-successful", "enough_ends_it"),
    "8-9": _set("Parallel with a tolerated failure", "a_tolerated_failure_ends_nothing"),
    "8-10": _set("Parallel with more failures than tolerated", "more_failures_than_tolerated_end_it"),
    "8-11": _set("Parallel in any order of completion", "values_come_in_the_order_of_the_input"),
    "8-12": _set("Parallel with FLAT nesting", "values_come_in_the_order_of_the_input"),
    "8-13": _set("Parallel with a tolerated percentage exceeded", "a_percentage_is_a_number"),
    "8-14": _set("Parallel with a branch that suspends on a wait", "a_branch_that_waits"),
    "8-15": _set("Parallel with custom item serdes", "a_function_of_each_item", NO_SERIALIZER),
    "8-16": _set("Parallel whose branches all fail within tolerance", "all_may_fail"),
    "8-17": _set(
        "Parallel with min-successful never reached",
        "it_ends_when_too_few_are_left",
        "A set ends as soon as `min_successful` can no longer complete. The calls that are left are not made.",
    ),
    "8-18": _set("Parallel with both bounds, tolerance exceeded first", "too_many_failures_come_before_enough"),
    "8-19": _set(
        "Parallel with max-concurrency 0",
        "at_most_0_is_no_limit",
        "`ctx.do_all(at_most=0)` has no limit. A number below 0 is refused.",
    ),
    "8-20": _set("Parallel, accessors of the result", "a_tolerated_failure_ends_nothing"),
    "8-21": _set("Parallel inside a parallel", "one_inside_another"),
    "8-22": _set("Parallel with a percentage that is just tolerated", "a_percentage_is_a_number"),
    "9-1": _set("Map basic (each item a single step)", "a_function_of_each_item"),
    "9-2": _set("Map without a name", "a_function_of_each_item"),
    "9-3": _set("Map with the item and its index", "a_function_of_each_item"),
    "9-4": _set("Map without items", "nothing_has_an_empty_result"),
    "9-5": _set("Map fail-fast (no failure tolerated)", "the_first_failure_ends_it"),
    "9-6": _set("Map whose result rethrows", "a_failure_that_no_code_catches_asks_a_person", ASKS),
    "9-7": _set("Map with min-successful", "enough_ends_it"),
    "9-8": _set("Map with a tolerated failure", "a_tolerated_failure_ends_nothing"),
    "9-9": _set("Map with more failures than tolerated", "more_failures_than_tolerated_end_it"),
    "9-10": _set("Map with a tolerated percentage exceeded", "a_percentage_is_a_number"),
    "9-11": _set("Map in any order of completion", "a_map_in_any_order_of_ends"),
    "9-12": _set("Map with FLAT nesting", "a_function_of_each_item"),
    "9-13": _set("Map with an item namer", "a_function_of_each_item"),
    "9-14": _set("Map with custom item serdes", "a_function_of_each_item", NO_SERIALIZER),
    "9-15": _set("Map with an item that suspends on a wait", "a_branch_that_waits"),
    "9-16": _set("Map with a large result", "a_large_result_is_loaded_when_it_is_read"),
    "9-17": _set("Map, then a wait", "a_wait_after_a_map"),
    "9-18": _set("Map with a failure, then a wait", "a_wait_after_a_map_with_a_failure"),
    "9-19": _set("Map with custom operation serdes", "a_function_of_each_item", NO_SERIALIZER),
    "9-20": _set("Map with custom operation serdes, then a wait", "a_wait_after_a_map", NO_SERIALIZER),
}


def table() -> str:
    """Return the rows that differ as a table of docs/comparison.md: rows with the same reason share a line."""
    reasons: dict[str, list[str]] = {}
    for number, row in ROWS.items():
        if row.differs:
            reasons.setdefault(row.differs, []).append(number.replace("-", "."))
    lines = (f"| {', '.join(numbers)} | {reason} |" for reason, numbers in reasons.items())
    return "\n".join(("| row | what you see in Outlast |", "|---|---|", *lines))
