"""The table of removed safeguards: id, safeguard, the function that removes it, and the suites that must fail.

A suite that finds nothing proves nothing. Each harness applies the rows that name it, and fails unless it notices
every one of them. `tests/test_mutants.py` compares the harnesses with the table; RELIABILITY.md prints it.
"""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple

from tests.removals import (
    Patch,
    Permanent,
    agent,
    answers,
    dynamodb,
    engine,
    forks,
    gates,
    negotiation,
    outbox,
    pages,
    postgres,
    schedulers,
    service,
    store,
    testing,
    threads,
    values,
)

ROOT: Final = Path(__file__).resolve().parents[1]


class Suite(NamedTuple):
    """A harness that must fail when a safeguard is missing, and the command that shows it."""

    path: str
    title: str
    command: str


def _tests(path: str, title: str) -> Suite:
    return Suite(path, title, f"scripts/test {path}")


SIMULATION: Final = Suite("tests/simulation", "simulated schedules", "scripts/simulate --mutants")
CRASH: Final = _tests("tests/crash/test_mutants.py", "killed and frozen processes")
ENGINE: Final = _tests("tests/engine/test_safeguards.py", "the engine")
CHAIN: Final = _tests("tests/engine/test_commit_chain.py", "the commits of a holder")
UNDO: Final = _tests("tests/engine/test_compensation.py", "undo")
TREE_BUDGETS: Final = _tests("tests/engine/test_tree_budgets.py", "budgets of trees")
BUDGETS: Final = _tests("tests/engine/test_budgets.py", "budgets")
GATES: Final = _tests("tests/engine/test_call_gates.py", "gates of calls")
ANSWERS: Final = _tests("tests/engine/test_stated_answers.py", "answers of people")
FORK_WALKS: Final = _tests("tests/examples/test_fork_walks.py", "forks of the examples")
FORKS: Final = _tests("tests/engine/test_forks.py", "forks")
FORKS_OF_PARENTS: Final = _tests("tests/engine/test_forks_of_parents.py", "forks of runs with children")
LIVING_FORKS: Final = _tests("tests/engine/test_living_forks.py", "forks of runs in flight")
GIVEN_UP_FORKS: Final = _tests("tests/engine/test_given_up_forks.py", "starts of forks that were given up")
PREVIEWS: Final = _tests("tests/engine/test_fork_preview.py", "previews of forks")
RECORDED: Final = _tests("tests/recorded/test_recorded_examples.py", "recorded runs of the examples")
STORIES: Final = _tests("tests/testing/test_any_story.py", "stories of any_story")
EVALUATIONS: Final = _tests("tests/testing/test_evaluation.py", "evaluations of recorded runs")
FORK_PAGE: Final = _tests("tests/ui/test_fork_page.py", "the page of a fork")
ENDS: Final = _tests("tests/engine/test_when_empty.py", "ends without a result")
CHILD_STARTS: Final = _tests("tests/flow/test_child_starts.py", "starts of children at load")
CHILD_DIVERGENCE: Final = _tests("tests/engine/test_child_divergence.py", "re-runs that ask for other children")
PARENT_SIGNALS: Final = _tests("tests/engine/test_parent_signals.py", "signals of children to their parents")
ENDED_CHILDREN: Final = _tests("tests/engine/test_ended_children.py", "lists of children that have ended")
CALL_SETS: Final = _tests("tests/engine/test_call_sets.py", "sets of calls that end early")
START_BUDGETS: Final = _tests("tests/engine/test_start_budgets.py", "budgets of children")
RACES: Final = _tests("tests/flow/test_races.py", "races of waits at load")
DEVELOPER: Final = _tests("tests/engine/test_developer.py", "a worker beside its developer")
STATE: Final = _tests("tests/engine/test_state.py", "large states")
NEGOTIATION: Final = _tests("tests/examples/test_negotiation_safeguards.py", "the negotiation of the examples")
BUSINESS_DAYS: Final = _tests("tests/core/test_business_days.py", "business days")
VALUES: Final = _tests("tests/values/test_safeguards.py", "values that come back")
FORMER: Final = _tests("tests/values/test_former_digests.py", "digests from before")
ADMISSION: Final = _tests("tests/engine/test_admission.py", "the limit of admitted runs")
SLICES: Final = _tests("tests/engine/test_slices.py", "slices for other schedulers")
GROWING: Final = _tests("tests/engine/test_growing_states.py", "states that grow")
AGENTS: Final = _tests("tests/agent/test_safeguards.py", "agents")
CLIENTS: Final = _tests("tests/engine/test_public_only.py", "HTTP clients of tools")
SERVICE: Final = _tests("tests/service/test_safeguards.py", "the HTTP service")
PAGES: Final = _tests("tests/ui/test_safeguards.py", "the web UI")
MESSAGES: Final = _tests("tests/outbox/test_slack_and_teams.py", "messages to Slack and Teams")
PROXIES: Final = _tests("tests/client/test_lost_answers.py", "a client behind a proxy")
PEERS: Final = _tests("tests/client/test_broken_peers.py", "a client of broken peers")
LOGS: Final = _tests("tests/telemetry/test_logs.py", "logs")
STREAMS: Final = _tests("tests/service/test_event_poller.py", "event streams")
STORES: Final = _tests("tests/store/test_safeguards.py", "the stores")
FILES: Final = _tests("tests/store/test_file_identity.py", "the file of a store")
LISTS: Final = _tests("tests/runtime/test_listed_reads.py", "reads over many runs")
OWN_ERRORS: Final = _tests("tests/engine/test_own_errors.py", "errors of the package in an activity")
DISK: Final = _tests("tests/store/test_failing_disk.py", "a failing disk")
COMMITS: Final = _tests("tests/postgres/test_commits.py", "PostgreSQL: commits")
MAPPING: Final = _tests("tests/postgres/test_mapping.py", "PostgreSQL: changes of the clock mapping")
FAST_PATH: Final = _tests("tests/postgres/test_fast_path.py", "PostgreSQL: batches in one statement")
CLOCKS: Final = _tests("tests/dynamodb/test_clock.py", "DynamoDB: clocks")
READS: Final = _tests("tests/dynamodb/test_reads.py", "DynamoDB: reads")
RESCALED: Final = _tests("tests/dynamodb/test_mapping.py", "DynamoDB: changes of the clock mapping")
RETENTION: Final = _tests("tests/dynamodb/test_retention.py", "DynamoDB: retention")
FAULTS: Final = _tests("tests/dynamodb/test_faults.py", "DynamoDB: faults of the service")
LOCKS: Final = _tests("tests/dynamodb/test_locks.py", "DynamoDB: recovery locks")
REQUESTS: Final = _tests("tests/dynamodb/test_connection.py", "DynamoDB: requests")
LANDING: Final = _tests("tests/dynamodb/test_landing.py", "DynamoDB: landing of commits")
SCHEDULING: Final = _tests("tests/dynamodb/test_scheduling.py", "DynamoDB: order of commits, and takes")
CRASHES: Final = _tests("tests/dynamodb/test_crashes.py", "DynamoDB: killed processes and lost transactions")
ITEMS: Final = _tests("tests/dynamodb/test_items.py", "DynamoDB: keys and items")
FIRST_ANSWERS: Final = _tests("tests/lockstep/test_first_answers.py", "first answers of calls, beside frozen code")
THREADS: Final = _tests("tests/langgraph/test_safeguards.py", "threads of LangGraph")
CHAOS: Final = Suite("tests/chaos", "a real database under faults", "scripts/chaos --without ID")
FAILURES: Final = _tests("tests/failures/test_fail.py", "the twelve failures")
MODELS: Final = Suite("tests/models", "exhaustive search over the rules", "scripts/models")
SUITES: Final = (
    *(SIMULATION, CRASH, ENGINE, UNDO, BUDGETS, STATE, GROWING, SLICES, AGENTS, CLIENTS, SERVICE, PAGES, STREAMS),
    *(
        BUSINESS_DAYS,
        VALUES,
        FORMER,
        ANSWERS,
        ENDS,
        RACES,
        CHILD_STARTS,
        CHILD_DIVERGENCE,
        PARENT_SIGNALS,
        ENDED_CHILDREN,
        CALL_SETS,
        START_BUDGETS,
        DEVELOPER,
        MESSAGES,
        PROXIES,
        PEERS,
        LOGS,
    ),
    *(ADMISSION, FILES, LISTS, OWN_ERRORS, CHAIN, FIRST_ANSWERS, GATES, FORKS, FORK_WALKS, NEGOTIATION, THREADS),
    *(PREVIEWS, FORK_PAGE, EVALUATIONS, RECORDED, STORIES),
    *(STORES, DISK, COMMITS, MAPPING, FAST_PATH, ITEMS, REQUESTS, LANDING, SCHEDULING, CLOCKS, LOCKS),
    *(READS, RESCALED, FAULTS, RETENTION, CRASHES, CHAOS, FAILURES, MODELS),
)


class Mutant(NamedTuple):
    """One removed safeguard."""

    id: str
    removed: str
    """The safeguard, as the sentence that no longer holds."""
    apply: Callable[[Patch], None] | None
    """None for a variant of a model: the search builds the model without the rule."""
    suites: tuple[Suite, ...]


def _row(apply: Callable[[Patch], None], removed: str, *suites: Suite) -> Mutant:
    return Mutant(apply.__name__, removed, apply, suites)


OF_THE_ENGINE: Final = (
    # the fence and the lease
    _row(engine.no_fence, "The store refuses commits of a replaced holder.", SIMULATION, CRASH),
    _row(engine.unfenced_commits, "Every commit of a holder carries its fence.", ENGINE),
    _row(engine.unfenced_undo, "The intent of an undo carries the holder's fence.", UNDO),
    _row(engine.same_epoch, "A claim raises the epoch.", SIMULATION),
    _row(engine.early_takeover, "A run changes hands only after its worker's lease has expired.", SIMULATION),
    _row(
        engine.no_last_check,
        "A process checks its clocks at the last instant before a call.",
        SIMULATION,
        CRASH,
        ENGINE,
    ),
    _row(engine.clock_set_back, "A late answer does not set the holder's clock back.", SIMULATION),
    # the limit of admitted runs
    _row(engine.raise_without_token, "A raise of the limit that has landed is not repeated.", ADMISSION),
    _row(engine.raise_not_counted_again, "A raise that meets another one counts the slots of both.", ADMISSION),
    # rows and their versions
    _row(engine.no_validation, "A row is replaced only in the version that was read.", CRASH),
    _row(engine.decided_twice, "An approval is decided once.", SIMULATION, CRASH, ENGINE),
    _row(engine.state_without_chunks, "A checkpoint carries the chunks of its state.", STATE),
    _row(engine.chunks_of_the_list_not_kept, "A copy of a run has the chunks of its lists of chunks.", GROWING),
    _row(engine.mutable_items_reused, "Only items that cannot change keep their bytes.", GROWING),
    _row(engine.first_dump_not_compared, "The first state of a claim equals its whole dump.", GROWING),
    _row(engine.list_shared_between_steps, "Each node gets a new list.", GROWING),
    # values
    _row(values.weekends_counted, "A business day is no day of the weekend.", BUSINESS_DAYS),
    _row(values.holidays_counted, "A business day is no holiday.", BUSINESS_DAYS),
    _row(values.counted_from_the_request, "A term counts from the instant that a letter stated.", BUSINESS_DAYS),
    _row(values.values_not_compared, "A value is compared with what is loaded for it.", VALUES),
    _row(values.classes_not_checked, "A type that proves its round trip checks the classes of its parts.", VALUES),
    _row(values.states_not_loaded, "A state, an answer and a lookup are loaded before they count.", VALUES),
    _row(values.sets_as_iterated, "Sets are written in the order of their members.", VALUES),
    _row(values.defaults_not_checked, "The default of a parameter is a value of its type.", VALUES),
    _row(values.former_digests_not_decoded, "A digest of a set from before stands for its arguments.", FORMER),
    _row(values.former_inputs_not_decoded, "A start key finds a run whose input held a set before.", FORMER),
    # the inbox and waits
    _row(engine.no_inbox_check, "A run does not park with an unread message.", SIMULATION, CRASH, ENGINE, STORES),
    _row(engine.no_inbox_check_in_bind, "A deadline loses to a message that arrived before it.", ENGINE),
    _row(engine.no_deadline, "A wait ends by its deadline only once the store's clock has reached it.", SIMULATION),
    _row(engine.signal_twice, "A signal lands once under its id.", SIMULATION),
    _row(
        engine.swallowed_wait, "The context decides how a node ends, not a body that swallows the cancellation.", ENGINE
    ),
    _row(
        engine.given_up_waits, "A wait that its body gives up is put to a person, not waited for without end.", ENGINE
    ),
    _row(engine.waits_of_any_length, "A wait of more than 100 years is refused.", ENGINE),
    _row(
        engine.undecided_children_loaded, "A workflow that leaves open what undoes a child is not loaded.", CHILD_STARTS
    ),
    _row(
        engine.signals_not_expected,
        "A re-run sends no other signal to a child or to the parent.",
        CHILD_DIVERGENCE,
        PARENT_SIGNALS,
    ),
    _row(engine.ended_children_not_recorded, "Each re-run sees the same ends of children.", ENDED_CHILDREN),
    _row(engine.ended_sets_forgotten, "A set of calls that ended early is the same in each re-run.", CALL_SETS),
    _row(engine.ended_sets_not_expected, "A re-run asks for the sets of calls that ended early.", CALL_SETS),
    _row(engine.recorded_outcomes_not_counted, "Recorded outcomes count before a set begins a call.", CALL_SETS),
    _row(engine.gates_not_left, "A call at a gate when its set ends never begins.", CALL_SETS),
    _row(engine.starts_not_counted, "Starts at once do not pass a budget of children together.", START_BUDGETS),
    _row(engine.races_of_waits_loaded, "A workflow whose waits race is not loaded.", RACES),
    # effects
    _row(engine.caught_errors_not_recorded, "Each re-run sees the error that a body has caught.", ENGINE),
    _row(engine.any_part_of_the_package_refuses, "Only the client's error proves that nothing was done.", OWN_ERRORS),
    _row(engine.unrun_work_is_done, "A call that returned before its work ran is not done.", ENGINE),
    _row(engine.new_keys_not_held, "A new key of a re-run waits for the recorded ones.", ENGINE),
    _row(engine.missing_keys_forgotten, "A node that returns has asked for all that its visit recorded.", ENGINE),
    _row(engine.call_first, "The intent is durable before the call.", CRASH, ENGINE, CRASHES),
    _row(engine.intent_never_stored, "The intent reaches the store.", SIMULATION),
    _row(engine.no_ledger_hit, "A recorded effect is answered from the ledger.", SIMULATION, CRASH),
    _row(
        engine.no_settle_time,
        "An answer «did not happen» counts only after the settle time.",
        SIMULATION,
        CRASH,
        ENGINE,
    ),
    _row(
        engine.no_too_early, "A person's «did not happen» is accepted only after the settle time.", SIMULATION, ENGINE
    ),
    _row(
        engine.log_before_engine,
        "A log entry does not write a change of the run row before the engine's entry about it.",
        ENGINE,
    ),
    _row(engine.log_counts_as_advance, "A refused log entry takes no later record with it.", ENGINE),
    _row(engine.advance_after_refusal, "An advance behind a refused record is dropped.", CHAIN),
    _row(engine.called_after_giving_up, "A call that was given up as not sent is not made.", CHAIN),
    _row(engine.no_window, "A call is sent again only while the receiver remembers its key.", SIMULATION, ENGINE),
    _row(
        engine.blind_retry, "An open effect of a predecessor is settled as declared, not sent again.", SIMULATION, CHAOS
    ),
    _row(engine.cancel_ignored, "A cancel that precedes the intent prevents the call.", SIMULATION),
    _row(
        engine.earlier_attempt_forgotten,
        "An attempt that was not sent proves nothing about an earlier one.",
        SIMULATION,
    ),
    _row(
        engine.early_refusals_count,
        "A refusal counts only once no earlier request of its call can arrive.",
        ENGINE,
        STORIES,
    ),
    # undo
    _row(engine.undo_forwards, "Effects are undone in reverse order.", SIMULATION, UNDO),
    _row(engine.no_undo_decision, "The decision to undo is durable.", UNDO),
    # budgets
    _row(engine.answer_fits_any_schema, "A person's answer is checked by the stored schema.", ANSWERS),
    _row(engine.answer_unloaded, "A person's answer that does not load is asked again.", ANSWERS),
    _row(engine.answer_not_given, "A person's answer is given by a commit that ends its correction.", ANSWERS),
    _row(engine.undo_leaves_answer_open, "The intent of an undo ends the correction of an answer.", ANSWERS),
    _row(engine.answer_corrected_unseen, "Another kind of answer replaces one only on purpose.", ANSWERS),
    _row(engine.call_denied_early, "Only a call that has returned has no settle time in outlast dev.", DEVELOPER),
    _row(engine.no_budget_check, "A call is made only if the budgets leave something.", BUDGETS),
    _row(engine.tree_not_summed, "A call below a root counts the usage of the whole tree.", TREE_BUDGETS),
    _row(engine.root_not_asked, "A run that waits for the budget of its root asks the root.", TREE_BUDGETS),
    _row(engine.usage_of_this_claim_only, "A budget counts the usage of earlier holders.", BUDGETS),
    _row(engine.failed_attempts_are_free, "The usage of a failed attempt counts.", BUDGETS),
    _row(engine.usage_apart, "The usage of an answer lands in the commit of the answer.", BUDGETS),
    _row(engine.parks_by_the_old_budget, "A run parks only by the budget that is in force.", BUDGETS),
    # ends
    _row(engine.ends_judged_by_the_source, "A run whose calls all failed and that produced nothing fails.", ENDS),
    # approvals and policy
    _row(engine.other_plans_put_to_approvers, "A plan that differs after its decision goes to an operator.", ENGINE),
    _row(engine.no_digest, "An approval covers exactly the call that was approved.", SIMULATION, CRASH, ENGINE),
    _row(engine.used_twice, "An approval is used by one effect.", SIMULATION),
    _row(engine.no_expiry, "A decision after the expiry is refused by the store's clock.", SIMULATION, ENGINE),
    _row(engine.policy_not_asked, "Policy decides before every intent.", FAILURES),
    _row(engine.no_plane_check, "A node of the decision plane makes no write.", ENGINE),
    _row(engine.alerts_inline, "An alert that cannot be delivered does not stop the run.", FAILURES),
)
OF_THE_GATES: Final = (
    _row(gates.no_breaker_gate, "No call is made of an activity or a provider that is paused.", GATES),
    _row(gates.no_budget_gate, "No call is made once a budget is used up.", GATES),
    _row(gates.no_permission_gate, "No call is made before the policy and its approvers allow it.", GATES),
    _row(gates.no_limit_gate, "No call is intended without a seat of its rate limit.", GATES),
    _row(gates.no_thread_gate, "No call of a plain function is intended without a thread.", GATES),
    _row(gates.no_window_gate, "No call is intended while the window is full.", GATES),
    _row(gates.places_before_facts, "No place is taken before the facts allow the call.", GATES),
    _row(gates.no_second_look, "After a wait the facts are looked at again.", GATES),
    _row(gates.no_look_behind_the_window, "A call that waited for a place alone looks at the facts again.", GATES),
    _row(gates.lookups_by_old_budgets, "The budget of a lookup is read again after the wait for its seat.", GATES),
    _row(gates.grants_kept, "What was granted to a call that is not made is released.", GATES),
    _row(gates.endless_rounds, "A call whose facts change each time parks.", GATES),
)
OF_THE_THREADS: Final = (
    _row(threads.any_parent_followed, "A checkpoint follows the last one of its thread.", THREADS),
    _row(threads.erased_unnoticed, "A writer that found a value before it was deleted looks again.", THREADS),
    _row(threads.rows_before_their_thread, "No row of a thread is written before the one that lists it.", THREADS),
    _row(threads.values_not_compared_with_the_parent, "Of a value that grew, only the new bytes are written.", THREADS),
    _row(threads.ancestors_of_deltas_pruned, "A prune keeps what delta channels are made of.", THREADS),
    _row(threads.any_class_made, "Stored bytes make no objects of classes that were not allowed.", THREADS),
    _row(threads.any_format_read, "Formats that can run code are not read.", THREADS),
    _row(threads.removal_without_a_mark, "A thread is absent before the first of its rows is deleted.", THREADS),
    _row(threads.use_by_checkpoints_alone, "A thread is in use if a task or a subgraph has written.", THREADS),
    _row(threads.writers_past_a_removal, "No row is written to a thread that is being deleted.", THREADS),
    _row(threads.threads_purged_whatever_their_use, "A purge looks at a thread again before it deletes it.", THREADS),
    _row(threads.writers_without_turns, "A write of a task does not lose against each next checkpoint.", THREADS),
)
OF_THE_STORES: Final = (
    # S-1: the inbox
    _row(store.append_spends_version, "Appending a message spends no version of the run.", STORES),
    _row(store.append_wakes_owned_run, "A message does not make an owned run due.", STORES),
    _row(store.append_keeps_due_at, "A message makes a parked run due.", STORES),
    _row(store.ended_run_accepts_messages, "A run that has ended accepts no message.", STORES),
    _row(store.holder_overwrites_inbox_seq, "A holder's commit keeps the inbox number of the store.", STORES),
    # S-2, S-8: fences, versions, expectations
    _row(store.fence_without_epoch, "The fence compares the epoch.", STORES),
    _row(store.fence_without_visit, "The fence compares the visit.", STORES),
    _row(store.versions_not_compared, "The older version of a row loses.", STORES),
    _row(store.expectations_not_judged, "Expected rows are compared.", STORES),
    _row(store.time_conditions_not_judged, "Conditions on time are judged by the store's clock.", STORES),
    # S-4: time
    _row(store.wall_clock_time, "The store's time never goes back.", STORES),
    _row(store.mapping_not_shared, "Every process sees a change of the clock mapping.", STORES),
    # S-7: batches and chains
    _row(store.chains_ignored, "A chain ends at its first refused commit.", STORES),
    _row(store.chain_heals_in_next_batch, "A broken chain stays broken in later batches.", STORES),
    _row(store.refused_commit_half_lands, "A refused commit writes nothing.", STORES),
    _row(store.batch_reads_stored_rows, "A commit sees the earlier commits of its batch.", STORES),
    _row(store.versions_not_checked_in_sql, "The SQL statements compare versions.", STORES),
    _row(store.row_cache_never_cleared, "The row cache is cleared when another process has written.", STORES),
    _row(store.outdated_runs_believed, "A run cached before another process wrote is compared first.", STORES),
    _row(store.outdated_runs_compared_without_inbox, "The comparison includes the inbox number.", STORES),
    # S-5, S-9: the writer
    _row(store.closed_writer_commits, "A closed writer commits nothing.", STORES),
    _row(store.subscribers_not_woken, "Subscribers are woken when work lands.", STORES),
    _row(store.queue_dropped_on_close, "Commits that were submitted before the close land.", STORES),
    _row(store.bounds_not_checked, "Rows beyond the limits are rejected.", STORES),
    _row(store.purge_takes_running_runs, "Only runs that have ended are purged.", STORES),
    _row(store.purge_takes_runs_of_living_trees, "A tree is purged once all its runs have ended.", STORES),
    _row(store.purge_takes_a_root_first, "The runs below a root are purged before it.", STORES),
    _row(store.lists_read_strictly, "A read over many runs replaces a row that cannot be read.", LISTS),
    _row(store.emptied_stores_made_anew, "A store that lost its tables is not created again.", FILES),
    _row(store.tenants_not_separated, "A query answers rows of its tenant only.", STORES),
    _row(store.unanswered_commit_assumed_lost, "A COMMIT whose answer was lost is looked up, not repeated.", DISK),
    _row(store.unanswered_commit_assumed_landed, "A COMMIT whose answer was lost is looked up, not believed.", DISK),
    # PostgreSQL
    _row(postgres.unanswered_commit_repeated, "A COMMIT whose answer was lost is looked up.", CHAOS),
    _row(postgres.commits_not_durable, "An acknowledged commit is on the disk.", CHAOS),
    _row(
        postgres.expected_rows_not_locked,
        "Expected rows are locked, so that of two crossed commits one loses.",
        COMMITS,
    ),
    _row(postgres.mapping_change_without_lock, "A change of the mapping waits for batches that move runs.", MAPPING),
    _row(postgres.batch_without_lock, "A batch that moves runs waits for a change of the mapping.", MAPPING),
    _row(postgres.statement_without_inbox, "The statement compares the inbox number.", FAST_PATH),
    _row(postgres.statement_without_version, "The statement compares versions.", FAST_PATH),
    _row(postgres.statement_without_owner, "The statement writes only if every run is still owned.", FAST_PATH),
    _row(postgres.statement_without_subscriptions, "The statement notices a new subscription.", FAST_PATH),
    # DynamoDB
    _row(
        dynamodb.lost_requests_repeated, "A request whose answer was lost is not sent again unasked.", REQUESTS, LANDING
    ),
    _row(dynamodb.numbers_not_padded, "The order of keys is that of the numbers in them.", ITEMS, FAULTS),
    _row(dynamodb.bodies_of_any_write, "The items of a large row are of one write.", ITEMS, READS),
    _row(dynamodb.jumps_not_noticed, "A process whose clock is wrong writes nothing.", CLOCKS),
    _row(dynamodb.recovered_without_lock, "A second worker waits for the end of a recovery lock.", LOCKS),
    _row(dynamodb.receipts_not_compared, "A transaction lands only as the next one of its receipt.", LANDING, CRASHES),
    _row(dynamodb.settings_not_compared, "A transaction lands only by the settings that its judge knew.", LANDING),
    _row(dynamodb.lost_answers_count_as_refused, "A lost answer is resolved by the receipt.", LANDING, CRASHES),
    _row(dynamodb.refusals_by_old_rows, "A refusal is an answer only by rows read for it.", LANDING),
    _row(dynamodb.inboxes_without_turns, "A slow writer gets a turn at an inbox.", LANDING),
    _row(dynamodb.commits_of_a_run_at_once, "Commits of one run land in order.", SCHEDULING),
    _row(dynamodb.renewals_wait_for_reads, "A renewal has a free connection.", SCHEDULING),
    _row(
        dynamodb.older_mappings_not_searched, "A take finds runs armed by an older clock mapping.", SCHEDULING, RESCALED
    ),
    _row(dynamodb.claim_not_compared, "DynamoDB compares the claim of a run before it writes.", LOCKS),
    _row(
        dynamodb.run_read_once,
        "The row of a run is the same before and after its other rows were read.",
        READS,
        FAULTS,
    ),
    _row(dynamodb.live_runs_expire, "Nothing of a live run expires.", RETENTION),
    _row(dynamodb.marks_without_receipt, "An end of retention never meets a later run with the same id.", RETENTION),
)
OF_THE_TESTING_KIT: Final = (
    _row(testing.evaluations_write, "An evaluation sends no write, also one that waits for no person.", EVALUATIONS),
    _row(testing.evaluations_decide, "A write that is not recorded is a fact of its case.", EVALUATIONS),
    _row(testing.uncertain_undo_unanswered, "An uncertain undo is answered from the receivers' record.", RECORDED),
    _row(testing.stories_without_signals, "A story sends the signals for which its workflow waits.", STORIES),
    _row(testing.stories_without_refusals, "In two of three stories receivers refuse and answers are lost.", STORIES),
    _row(testing.stories_without_time, "A story waits for deadlines.", STORIES),
)
OF_FORKS: Final = (
    _row(forks.forks_ask_nobody, "A write of a fork waits for a person.", FORKS, FORK_WALKS, EVALUATIONS),
    _row(forks.living_children_adopted, "A fork starts its own child for one that goes on.", FORKS_OF_PARENTS),
    _row(forks.asks_not_handed_down, "A write below a fork waits for a person.", FORKS_OF_PARENTS),
    _row(forks.fork_uses_forgotten, "A recorded answer serves one call of a fork.", FORKS),
    _row(forks.undone_pasts_accepted, "A person accepts effects of a fork's past that were undone.", FORKS),
    _row(forks.lineages_share_nothing, "The forks of a run make a call once per run once.", FORKS),
    _row(forks.pasts_not_answered, "A call once per run that the ancestor has done answers its forks.", FORKS),
    _row(forks.recordings_not_used, "A call as before is answered from the recording of the ancestor.", FORK_WALKS),
    _row(forks.pasts_not_known, "The body of a fork knows the calls of its past.", FORKS),
    _row(
        forks.futures_known, "The body of a fork does not know calls that its ancestor made later.", FORKS, FORK_WALKS
    ),
    _row(forks.runs_in_flight_forked, "A run that may still act is not forked without a reason.", FORKS, LIVING_FORKS),
    _row(forks.notes_not_read, "A run with a note of a fork shares its calls once per run.", LIVING_FORKS),
    _row(forks.intents_without_version, "A holder that has not read a note makes no call once per run.", LIVING_FORKS),
    _row(forks.purges_not_seen, "A ledger that is purged while it is read is not forked.", LIVING_FORKS),
    _row(forks.forks_not_kept, "A run does not undo by itself what a fork relies on.", LIVING_FORKS),
    _row(forks.reopened_made_by_a_fork, "A fork waits for a call that its ancestor may repeat.", LIVING_FORKS),
    _row(forks.pasts_of_every_attempt, "A fork reads the copies of one attempt only.", LIVING_FORKS),
    _row(forks.fork_before_its_copies, "A fork has its past before it is a run.", FORKS),
    _row(forks.given_up_starts_go_on, "A start of a fork that was given up lands nothing more.", GIVEN_UP_FORKS),
    _row(forks.starts_of_one_name, "A start of a fork is not taken for an earlier one.", GIVEN_UP_FORKS),
    _row(forks.given_up_starts_stay, "The copies of a start that was given up are deleted.", GIVEN_UP_FORKS),
    _row(forks.starts_after_the_run, "A fork is not begun a second time once its run is there.", GIVEN_UP_FORKS),
    _row(forks.uses_not_counted, "A call of another run is of the past once the ancestor has used it.", FORKS),
    _row(forks.first_notes_kept, "A note says what its fork relies on.", LIVING_FORKS),
    _row(forks.purged_calls_made, "A person is asked about a call whose run was purged.", LIVING_FORKS),
    _row(forks.redacted_marks_kept, "A fork does not begin with the mark of a redacted value.", PREVIEWS),
    _row(forks.answers_previewed_for_ever, "A preview counts a recorded answer for one call.", PREVIEWS),
)
OF_FIRST_ANSWERS: Final = (
    _row(
        answers.calls_not_compared, "A call whose digest differs is compared before a person is asked.", FIRST_ANSWERS
    ),
    _row(
        answers.contradictions_not_asked,
        "A key is answered for one call only, unless a person chose so.",
        FIRST_ANSWERS,
    ),
    _row(answers.keys_of_other_activities, "A key is answered for one activity only.", FIRST_ANSWERS),
    _row(answers.calls_under_way_joined, "A call under way is joined by the same call only.", FIRST_ANSWERS),
    _row(answers.choices_not_joined, "A call joins the one under way if a person chose so.", FIRST_ANSWERS),
    _row(
        answers.new_calls_not_held,
        "A new call waits until the recorded ones of its activity are asked for.",
        FIRST_ANSWERS,
    ),
    _row(answers.tasks_left_behind_begin, "A task that a returned body left behind begins no call.", FIRST_ANSWERS),
    _row(
        answers.caught_errors_forgotten,
        "A caught error of a lookup is raised in each execution of the visit.",
        FIRST_ANSWERS,
    ),
    _row(answers.recorded_answers_not_replayed, "A recorded answer is replayed.", FIRST_ANSWERS),
    _row(answers.reopened_calls_refused, "A call that a person reopened is made.", FIRST_ANSWERS),
    _row(answers.uncertain_calls_refused, "A person is asked about a call that may have happened.", FIRST_ANSWERS),
    _row(answers.refused_calls_made_again, "A recorded refusal is raised.", FIRST_ANSWERS),
    _row(
        answers.stated_answers_replayed,
        "A person's answer is given by a commit that ends its correction.",
        FIRST_ANSWERS,
    ),
    _row(answers.recorded_arguments_dropped, "An open call keeps its arguments.", FIRST_ANSWERS),
    _row(answers.shared_rows_not_read, "A call once per tenant looks for the row of another run.", FIRST_ANSWERS),
    _row(answers.others_not_waited_for, "The open call of another run is waited for.", FIRST_ANSWERS),
    _row(
        answers.uses_not_recorded, "The use of another run's answer is recorded before it is returned.", FIRST_ANSWERS
    ),
    _row(
        answers.refusals_of_others_not_counted,
        "Another run's refusal counts for a run that counts failures.",
        FIRST_ANSWERS,
    ),
    _row(
        answers.owners_not_asked, "A stated answer that does not load waits while its own run goes on.", FIRST_ANSWERS
    ),
    _row(
        answers.unfit_answers_wait,
        "An answer that does not load, and that no person will correct, is an error.",
        FIRST_ANSWERS,
    ),
)
OF_SCHEDULERS: Final = (
    _row(schedulers.lanes_without_scheduler, "A worker serves the runs of its scheduler only.", SLICES),
    _row(schedulers.takes_over_for_a_guest, "No worker executes a run of a guest's dead worker by itself.", SLICES),
    _row(schedulers.dead_guests_runs_stay, "A run of a guest's dead worker is queued for its engine.", SLICES),
    _row(schedulers.slices_without_end, "A slice ends after its nodes.", SLICES),
    _row(schedulers.no_engine_timer, "An engine knows when a run falls due without a wake.", SLICES),
    _row(schedulers.no_sweep, "A bridge finds due runs that it could not announce.", SLICES),
)
OF_AGENTS: Final = (
    _row(agent.tools_not_withheld, "A tool that policy withholds is not offered to a model.", AGENTS),
    _row(agent.answers_not_stored, "An answer of a model is stored before it is used.", AGENTS),
    _row(agent.requests_share_a_key, "A request to a model is known by its digest.", AGENTS),
    _row(agent.lenient_arguments, "Arguments of a model are parsed without conversions and further fields.", AGENTS),
    _row(agent.proposals_of_any_visit, "A proposal becomes a call only in the visit it was made for.", AGENTS),
    _row(agent.already_done_not_asked, "A proposed call that the run has made is answered from the ledger.", AGENTS),
    _row(agent.conflicts_not_asked, "Two different calls of one answer do not use one key.", AGENTS),
    _row(agent.proposals_not_judged, "Policy decides about each proposal, with the model's name.", AGENTS),
    _row(agent.denials_not_remembered, "Each re-run of a visit gets the denial that the model was told.", AGENTS),
    _row(agent.agents_start_unasked, "Policy decides about the start of an agent by another one.", AGENTS),
    _row(agent.start_keeps_its_approval, "An approval permits the start of one agent.", AGENTS),
    _row(agent.asked_once_then_free, "After a person was asked about a call, others like it need approval.", AGENTS),
    _row(agent.approve_ignored, "A tool with `approve` waits for a person.", AGENTS),
    _row(agent.large_results_in_the_transcript, "A large result is stored once and read in pages.", AGENTS),
    _row(agent.keys_of_a_step, "A write of an agent is made once per run.", AGENTS),
    _row(agent.cut_answers_used, "A cut answer is no result of an agent.", AGENTS),
    _row(agent.drafts_of_typed_answers_used, "A text with two values of its type has none.", AGENTS),
    _row(agent.typed_answers_of_any_end, "A cut or filtered answer is no value of its type.", AGENTS),
    _row(agent.money_without_a_price, "A budget of money needs the price of its model.", AGENTS),
    _row(agent.any_address, "A tool whose address a model chooses reaches only the internet.", CLIENTS),
    _row(agent.address_resolved_again, "A connection goes to the address that was checked.", CLIENTS),
    _row(agent.keys_of_a_visit, "A tool of pydantic-ai with a key acts once per run.", AGENTS),
    _row(agent.cut_responses_used, "No call of a cut answer of pydantic-ai is made.", AGENTS),
    _row(agent.approvals_named_by_the_end_of_the_key, "Approvals of pydantic-ai differ by the whole key.", AGENTS),
    _row(agent.calls_without_their_id, "A tool call of pydantic-ai is known by the model's id of the call.", AGENTS),
    _row(agent.edited_arguments_dropped, "An approved call of pydantic-ai is made as the approver changed it.", AGENTS),
)
OF_THE_SERVICE: Final = (
    _row(service.unanswered_writes_called_undone, "A write without an answer is uncertain.", PROXIES),
    _row(service.answers_of_proxies_believed, "The answer of a proxy does not say how a write ended.", PROXIES),
    _row(service.answers_of_other_requests_believed, "An answer belongs to the request that it follows.", PEERS),
    _row(service.opened_streams_are_signs, "A stream that only opens is no sign of the service.", PEERS),
    _row(service.long_texts_redacted_whole, "The middle of a long text is cut before it is redacted.", LOGS),
    _row(service.no_if_match, "A decision names the version that the approver saw (If-Match).", SERVICE),
    _row(service.programs_decide, "Only people decide approvals.", SERVICE),
    _row(service.anyone_for_a_person, "Only the named person decides for a person.", SERVICE),
    _row(service.no_current_state, "A refused decision shows the current state.", SERVICE),
    _row(service.no_request_digest, "An idempotency key is bound to the body of its request.", SERVICE),
    _row(service.callers_share_keys, "An idempotency key belongs to one caller.", SERVICE),
    _row(service.tenants_share_keys, "An idempotency key belongs to one tenant.", SERVICE),
    _row(service.acts_without_identity, "The commit of an act under a key has its identity.", SERVICE),
    _row(service.sessions_count_as_guesses, "The sealed credential of a session is no guess.", SERVICE),
    _row(service.no_mark_in_flight, "A request in progress is not carried out a second time.", SERVICE),
    _row(service.uncertain_frees_the_key, "A request with an unknown outcome keeps its key.", SERVICE),
    _row(service.one_tenant_for_all, "A caller sees its own tenant only.", SERVICE, PAGES),
    _row(service.unsealed_cursors, "A cursor is valid for the list and tenant that it was made for.", SERVICE),
    _row(service.any_origin, "Requests of other web sites are refused (S15).", SERVICE),
    _row(service.any_media_type, "Bodies that an HTML form can send are refused (S15).", SERVICE),
    _row(service.any_depth, "Deeply nested bodies are refused before they are parsed (S17).", SERVICE),
    _row(service.any_body_size, "Bodies beyond the limit are refused (S17).", SERVICE),
    _row(service.no_security_headers, "Answers carry the security headers (S13, S15).", SERVICE),
    _row(service.errors_in_full, "Answers do not contain internal errors (S31).", SERVICE),
    _row(service.unbounded_stream, "A slow listener is disconnected at a limit.", SERVICE),
    _row(service.no_first_poll, "A stream of all runs begins with new events.", SERVICE),
    _row(service.moves_not_indexed, "A stream finds old runs that another process moved.", STREAMS),
    _row(outbox.markup_kept, "Texts of workflows mention no one and format nothing in a message.", MESSAGES),
    _row(outbox.messages_to_any_address, "A message goes to allowed addresses only (S21).", MESSAGES),
    _row(outbox.no_wait_that_was_asked_for, "A message is not sent again before the receiver's Retry-After.", MESSAGES),
)
OF_THE_PAGES: Final = (
    _row(pages.no_form_token, "A form carries the token of its page (S9, S15).", PAGES),
    _row(pages.forms_of_any_session, "Forms and stored regions belong to one session.", PAGES),
    _row(pages.forms_of_any_site, "A form names its sender, a page of the service (S15).", PAGES),
    _row(pages.any_next_page, "The sign-in leads to pages of the service only.", PAGES),
    _row(pages.endless_sessions, "A session ends after 7 days.", PAGES),
    _row(pages.unsealed_sessions, "Only the service makes sessions.", PAGES),
    _row(pages.pages_for_every_role, "A page needs the permission of its operation.", PAGES),
    _row(pages.forms_of_any_version, "A form acts on the version that it was shown for (S9).", PAGES),
    _row(pages.forks_not_shown, "A fork begins with terms whose preview was shown.", FORK_PAGE),
    _row(pages.unescaped_text, "Text of strangers is escaped in pages (S13).", PAGES),
    _row(pages.no_page_policy, "Every page has a policy that stops injected scripts (S13).", PAGES),
)


OF_THE_NEGOTIATION: Final = (
    # limits of an agent
    _row(negotiation.no_walk_away, "No position of the buyer is beyond its walk-away.", NEGOTIATION),
    _row(negotiation.steps_of_any_size, "A position moves by at most one step in a round.", NEGOTIATION),
    _row(negotiation.positions_of_agents_not_judged, "An agent's position lies within one step.", NEGOTIATION),
    _row(negotiation.last_words_without_a_quote, "A last word is a quote from the supplier's note.", NEGOTIATION),
    _row(negotiation.moves_of_the_strategist_not_judged, "Each competing supplier is asked in a round.", NEGOTIATION),
    # rounds
    _row(negotiation.rounds_never_converge, "The rounds end early when the bids converge.", NEGOTIATION),
    _row(negotiation.rounds_converge_at_once, "The rounds go on while a price moves.", NEGOTIATION),
    _row(negotiation.feedback_for_the_first_alone, "Each round has its own feedback.", NEGOTIATION),
    _row(negotiation.bids_of_any_round_taken, "A bid counts in its round and cycle only.", NEGOTIATION),
    # award
    _row(negotiation.awards_without_an_approval, "An award above the threshold waits for a person.", NEGOTIATION),
    _row(negotiation.second_cycles_without_an_approval, "The award of a second cycle waits for a person.", NEGOTIATION),
    _row(negotiation.bids_of_the_rejected_round_kept, "No bid of a rejected round is evaluated again.", NEGOTIATION),
    _row(negotiation.fallen_winners_replaced_by_default, "A winner that falls out ends the run.", NEGOTIATION),
    _row(negotiation.bids_that_cannot_be_ordered_kept, "A bid that cannot be ordered is not awarded.", NEGOTIATION),
)


def _of_the_models() -> tuple[Mutant, ...]:
    """Return the broken variants of the models, each with the violation that the search must find."""
    found = []
    for path in sorted((ROOT / MODELS.path).glob("s[0-9]*.py")):
        for variant in import_module(f"tests.models.{path.stem}").VARIANTS:
            if variant.breaks:
                title = f"S-{int(path.stem[1:3])}: {variant.name}"
                found.append(Mutant(title, f"found: {variant.breaks}", None, (MODELS,)))
    return tuple(found)


BY_ID: Final = {
    mutant.id: mutant
    for mutant in (
        *OF_THE_ENGINE,
        *OF_THE_GATES,
        *OF_FIRST_ANSWERS,
        *OF_FORKS,
        *OF_THE_TESTING_KIT,
        *OF_SCHEDULERS,
        *OF_AGENTS,
        *OF_THE_THREADS,
        *OF_THE_STORES,
        *OF_THE_SERVICE,
        *OF_THE_PAGES,
        *OF_THE_NEGOTIATION,
    )
}


def table() -> tuple[Mutant, ...]:
    """Return every row, those of the models included."""
    return (*BY_ID.values(), *_of_the_models())


def of(suite: Suite) -> tuple[Mutant, ...]:
    """Return the rows whose removal a suite must notice."""
    return tuple(mutant for mutant in (table() if suite is MODELS else BY_ID.values()) if suite in mutant.suites)


def remove(mutant_id: str, patch: Patch | None = None) -> None:
    """Remove a safeguard; without a patch for the rest of the process. Raises KeyError for an unknown id."""
    apply = BY_ID[mutant_id].apply
    assert apply is not None
    apply(patch or Permanent())
