"""For each row of docs/requirements.md: the test that carries it, the removal that turns it red, and what is missing.

`python -m tests.rows` writes the page from this table and from the marks of the tests.
"""

from typing import Final, NamedTuple

ALL: Final = "all"
"""`missing` of a row that is planned."""


class Row(NamedTuple):
    """One requirement."""

    test: str
    """Below `tests`, with `::` before the name of the function; '' for a row that is planned."""
    removal: str
    """An id of `tests/mutants.py`, or a function of `tests/removals/rows.py`."""
    missing: str = ""
    """The part that this release does not have, in words; `ALL` for a row that is planned."""


PLANNED: Final = Row("", "", ALL)


def _row(file: str, test: str, removal: str, missing: str = "") -> Row:
    return Row(f"{file}.py::test_{test}", removal, missing)


ROWS: Final = {
    "RUN-1": _row(
        "flow/test_definition",
        "an_undeclared_target_is_refused_and_all_mistakes_are_reported_at_once",
        "undeclared_targets_loaded",
    ),
    "RUN-2": _row("core/test_machine", "every_pair_is_in_the_table_or_refused", "any_transition_made"),
    "RUN-3": _row("core/test_verbs", "a_replaced_holder_writes_nothing", "no_fence"),
    "RUN-4": _row("engine/test_mailbox", "a_signal_with_an_id_is_left_once", "signal_twice"),
    "RUN-5": _row("runtime/test_in_process", "no_call_reaches_another_tenants_rows", "tenants_not_separated"),
    "RUN-6": _row(
        "engine/test_admission",
        "runs_beyond_the_limit_start_in_their_order_as_slots_free",
        "every_run_admitted",
    ),
    "RUN-7": _row(
        "service/test_event_poller",
        "the_next_poll_finds_an_old_run_of_another_process",
        "moves_not_indexed",
    ),
    "RUN-8": _row(
        "deploys/test_moves",
        "a_stranded_run_continues_once_a_worker_of_its_version_is_back",
        "lanes_without_versions",
    ),
    "RUN-9": _row("insight/test_explain", "one_sentence_for_every_state", "reasons_not_explained"),
    "RUN-10": _row("engine/test_budgets", "a_raise_repeats_no_paid_call", "no_budget_check"),
    "RUN-11": _row(
        "core/test_business_days",
        "a_term_ends_at_the_same_wall_time_on_a_later_business_day",
        "every_day_counted",
    ),
    "RUN-12": _row(
        "engine/test_first",
        "of_several_answers_the_one_that_arrived_first_wins",
        "first_by_position",
    ),
    "RUN-13": _row(
        "engine/test_children",
        "an_end_while_the_parent_parks_is_not_missed",
        "end_of_child_not_told",
    ),
    "RUN-14": _row(
        "engine/test_maps",
        "a_map_runs_a_window_at_a_time_and_executes_the_body_twice",
        "every_input_started_at_once",
    ),
    "RUN-15": _row("engine/test_window", "a_long_loop_keeps_its_window", "nothing_behind_the_window"),
    "CKP-1": _row(
        "engine/test_walks",
        "one_checkpoint_for_each_node_and_none_in_the_middle",
        "checkpoints_without_state",
    ),
    "CKP-2": _row(
        "engine/test_attempts",
        "a_crash_after_the_record_and_before_the_advance_calls_nothing_again",
        "no_ledger_hit",
    ),
    "CKP-3": _row("engine/test_state", "an_unchanged_field_writes_nothing", "states_written_whole"),
    "CKP-4": _row("engine/test_results", "a_second_emit_replaces_the_row", "results_numbered_anew"),
    "CKP-5": _row("engine/test_results", "a_reader_of_the_event_finds_its_rows", "results_left_behind"),
    "CKP-6": _row("engine/test_contradictions", "recovery_refuses_rows_that_contradict", "contradictions_not_noticed"),
    "CKP-7": _row("cli/test_care", "purge_deletes_only_runs_that_ended_long_ago", "purge_takes_running_runs"),
    "CKP-8": _row("values/test_matrix", "a_value_that_would_be_another_one_is_refused", "values_not_compared"),
    "REC-1": _row(
        "engine/test_leases",
        "a_run_past_its_execution_budget_is_taken_from_a_living_worker",
        "early_takeover",
    ),
    "REC-2": _row("core/test_durations", "the_defaults_give_600_seconds_and_explain_the_sum", "budgets_without_margin"),
    "REC-3": _row(
        "engine/test_leases",
        "a_dead_worker_is_replaced_within_its_heartbeat_window",
        "dead_workers_keep_their_runs",
    ),
    "REC-4": _row(
        "engine/test_leases",
        "a_dead_worker_is_replaced_within_its_heartbeat_window",
        "dead_workers_keep_their_runs",
        "10,000 runs of one worker executed within 30 s on PostgreSQL on two cores, 31 s there",
    ),
    "REC-5": _row("engine/test_leases", "of_many_workers_one_claims_a_run", "claims_that_hold_nothing"),
    "REC-6": _row(
        "engine/test_skew",
        "a_worker_counts_as_dead_when_its_lease_has_ended_by_every_clock",
        "leases_judged_by_one_clock",
    ),
    "REC-7": _row(
        "engine/test_recovery",
        "a_recovery_that_another_worker_won_is_counted",
        "failed_recoveries_not_counted",
    ),
    "REC-8": PLANNED,
    "EFF-1": _row("engine/test_effects", "the_intent_is_durable_when_the_call_begins", "call_first"),
    "EFF-2": _row("engine/test_attempts", "an_effect_left_open_by_a_dead_worker_settles_by_its_mode", "blind_retry"),
    "EFF-3": _row(
        "engine/test_leases",
        "a_worker_that_was_frozen_and_replaced_sends_nothing_and_records_nothing",
        "no_last_check",
    ),
    "EFF-4": _row("engine/test_effects", "a_definite_no_is_never_tried_again", "definite_answers_retried"),
    "EFF-5": _row("engine/test_http", "only_effects_carry_the_idempotency_key", "requests_without_key"),
    "EFF-6": _row("engine/test_compensation", "effects_are_undone_in_reverse_order", "undo_forwards"),
    "EFF-7": _row("cli/test_decisions", "effects_are_listed_across_runs_and_shown_in_full", "ledger_not_shown"),
    "EFF-8": _row("engine/test_mailbox", "a_cancel_settles_effects_left_open_by_a_dead_worker", "open_calls_abandoned"),
    "EFF-9": _row("engine/test_divergence", "a_key_made_of_a_clock_is_held_and_a_person_is_asked", "new_keys_not_held"),
    "GATE-1": _row("engine/test_walks", "a_parked_wait_parks_the_run_despite_its_body", "swallowed_wait"),
    "GATE-2": _row("engine/test_consumption", "a_call_approved_without_the_role_is_not_made", "approvers_not_compared"),
    "GATE-3": _row(
        "engine/test_clocks",
        "96_hours_then_a_person_then_7_days_then_cancelled",
        "attention_without_clocks",
    ),
    "GATE-4": _row("engine/test_clocks", "168_hours_flag_once_under_the_trigger_s_name_and_never_kill", "no_ceiling"),
    "GATE-5": _row(
        "engine/test_clocks",
        "the_row_is_written_before_the_alert_and_a_failed_alert_hides_nothing",
        "alerts_inline",
    ),
    "GATE-6": _row(
        "engine/test_policy",
        "offers_and_checks_are_fixed_within_the_visit_and_effects_are_judged_again",
        "policy_not_asked",
    ),
    "GATE-7": _row("agent/test_admission", "a_proposal_is_refused_in_another_visit", "proposals_of_any_visit"),
    "GATE-8": _row("security/test_audit", "every_write_leaves_an_audit_line", "no_audit"),
    "GATE-9": _row("engine/test_consumption", "a_call_approved_once_is_made_once", "used_twice"),
    "GATE-10": _row(
        "core/test_approver_rule",
        "a_person_is_matched_by_name_and_a_role_by_roles",
        "any_person_satisfies_a_rule",
    ),
    "OUT-1": _row(
        "core/test_verbs",
        "numbers_have_no_gap_epochs_never_fall_and_an_ended_run_never_changes",
        "gaps_in_the_numbers",
    ),
    "OUT-2": _row("outbox/test_claims", "several_dispatchers_never_hold_one_cursor", "held_cursors_taken"),
    "OUT-3": _row("outbox/test_delivery", "every_event_is_delivered_in_order", "other_bytes_signed"),
    "OUT-4": _row(
        "engine/test_when_empty",
        "by_default_a_run_that_emits_fails_if_calls_failed_and_nothing_was_produced",
        "empty_ends_complete",
    ),
    "OUT-5": _row("runtime/test_results", "the_count_is_the_number_of_rows_that_are_fetched", "results_not_counted"),
    "OUT-6": _row("outbox/test_address", "an_address_inside_is_refused", "addresses_inside_allowed"),
    "OUT-7": _row("core/test_conclude", "a_run_fails_from_both_numbers_on", "broad_failures_complete"),
    "OBS-1": _row(
        "telemetry/test_traces",
        "one_trace_from_start_to_award_across_a_kill_and_an_approval",
        "waits_without_span",
    ),
    "OBS-2": _row("telemetry/test_metrics", "a_run_is_counted_and_its_rows_are_gauges", "durations_not_measured"),
    "OBS-3": _row("telemetry/test_logs", "a_run_is_logged_at_start_checkpoint_and_end_with_its_ids", "runs_not_logged"),
    "OBS-4": _row(
        "insight/test_steps",
        "an_agents_run_is_read_as_five_kinds_of_steps",
        "answers_of_models_are_lookups",
    ),
    "OBS-5": _row("runtime/test_bars", "each_bar_is_the_length_of_its_list", "flaggings_counted_twice"),
    "RT-1": _row("client/test_runtime", "one_key_is_one_run", "start_keys_of_their_own"),
    "RT-2": _row(
        "runtime/test_in_process",
        "it_serves_once_entered_and_reports_a_worker_of_an_earlier_command",
        "no_worker_inside",
    ),
    "RT-3": _row(
        "langgraph/test_saver",
        "of_two_checkpoints_after_one_parent_the_second_is_refused[Memory]",
        "second_checkpoint_accepted",
    ),
    "RT-4": _row("engine/test_schedulers", "our_worker_leaves_runs_of_a_guest", "lanes_without_scheduler"),
    "RT-5": _row(
        "conformance/test_stores",
        "store_keeps[the_replaced_holder_writes_nothing-Sqlite]",
        "fence_without_epoch",
    ),
    "RT-6": _row(
        "e2e/test_postgres",
        "a_worker_killed_in_the_middle_of_a_call_is_replaced_and_the_call_is_not_made_again",
        "blind_retry",
        "measurements with more than one machine",
    ),
    "APP-1": _row(
        "examples/test_cycle_back",
        "an_approver_may_ask_for_another_round_and_old_bids_are_never_evaluated_again",
        "superseded_bids_evaluated",
    ),
    "APP-2": _row("e2e/test_demo", "the_auction_is_killed_in_round_3_taken_over_approved_and_awarded", "no_ledger_hit"),
    "APP-3": _row("examples/test_acquisition", "a_failure_after_step_two_undoes_two_and_then_one", "undo_forwards"),
    "APP-4": _row("examples/test_researcher", "nothing_there_and_broken_are_told_apart", "broad_failures_complete"),
    "APP-5": _row("examples/test_desk", "an_approved_action_is_refused_when_a_fact_has_changed", "policy_not_asked"),
    "TEST-1": _row("testing/test_missing_kills", "with_the_kills_in_place_every_case_passes", "processes_not_killed"),
    "TEST-2": _row("testing/test_app", "ninety_six_hours_pass_at_once", "no_virtual_time"),
    "TEST-3": _row(
        "deploys/test_deploy_check",
        "the_check_names_exactly_the_runs_that_would_not_continue",
        "stranded_runs_not_named",
    ),
    "TEST-4": _row("cli/test_care", "fsck_names_the_row_and_exits_with_1", "nothing_found"),
    "FAIL-1": _row("engine/test_policy", "fail_1_a_model_proposes_a_disallowed_tool", "policy_not_asked"),
    "FAIL-2": _row(
        "engine/test_http",
        "fail_2_a_tool_times_out_after_performing_the_effect_and_a_person_is_asked",
        "doubts_called_unsent",
    ),
    "FAIL-3": _row("engine/test_effects", "the_intent_is_durable_when_the_call_begins", "call_first"),
    "FAIL-4": _row(
        "engine/test_attempts",
        "a_crash_after_the_record_and_before_the_advance_calls_nothing_again",
        "no_ledger_hit",
    ),
    "FAIL-5": _row("engine/test_approval_attacks", "fail_5_an_approval_arrives_after_expiry", "no_expiry"),
    "FAIL-6": _row("core/test_verbs", "a_replaced_holder_writes_nothing", "no_fence"),
    "FAIL-7": _row(
        "engine/test_compensation",
        "a_resend_left_open_by_a_crash_is_resent_to_be_undone",
        "open_calls_abandoned",
    ),
    "FAIL-8": _row("engine/test_crashes", "a_death_at_any_commit", "no_ledger_hit"),
    "FAIL-9": _row(
        "engine/test_clocks",
        "the_row_is_written_before_the_alert_and_a_failed_alert_hides_nothing",
        "alerts_inline",
    ),
    "FAIL-10": _row("engine/test_rounds", "recovery_overlaps_the_cycle_back", "no_ledger_hit"),
    "FAIL-11": _row("engine/test_crashes", "a_second_death_during_the_recovery", "blind_retry"),
    "FAIL-12": _row(
        "engine/test_leases",
        "a_worker_that_was_frozen_and_replaced_sends_nothing_and_records_nothing",
        "no_last_check",
    ),
}
"""In the order of the page."""

FURTHER: Final = {
    "RUN-4": _row(
        "engine/test_mailbox",
        "starting_again_is_the_same_run_and_with_another_input_refused",
        "start_keys_of_their_own",
    ),
    "RT-3": _row(
        "langgraph/test_langgraph", "a_run_is_a_thread_and_its_waits_are_interrupts", "threads_not_interrupted"
    ),
    "APP-3": _row(
        "engine/test_planes",
        "a_write_that_a_decision_makes_anyway_is_refused_without_an_effect",
        "no_plane_check",
    ),
    "TEST-3": _row("lint/test_rules", "each_mistake_is_named_in_its_line", "mistakes_not_named"),
}
"""A second test of a row whose parts are independent of each other."""


def proofs_of(one: str) -> tuple[Row, ...]:
    """Return the tests of a row with their removals; none for a row that is planned."""
    return tuple(row for row in (ROWS[one], FURTHER.get(one, PLANNED)) if row.test)
