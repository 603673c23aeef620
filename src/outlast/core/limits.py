"""All size limits, equal for all stores."""

import re

KIB = 1024

# --- names and keys (S-18) -----------------------------------------------------------------
NAME_CHARS_MAX = 100
NAME_PATTERN = rf"[A-Za-z0-9._-]{{3,{NAME_CHARS_MAX}}}|[A-Za-z0-9_-]{{1,2}}|[A-Za-z0-9_-]\.|\.[A-Za-z0-9_-]"
"""Excludes `.` and `..`, because a URL with them leads to another path."""
NAME = re.compile(NAME_PATTERN)
KEY_BYTES_MAX = 500
IDEMPOTENCY_KEY_CHARS_MAX = 255
"""Length that common receivers accept in the `Idempotency-Key` header."""

# --- bytes of stored values ----------------------------------------------------------------
STATE_BYTES_MAX = 8 * KIB * KIB
"""State of a run; parts that do not change between checkpoints are stored once (core/state/snapshot_codec.py)."""
INPUT_BYTES_MAX = 2 * KIB * KIB
"""Initial state; it lands in the commit that starts the run."""
ARGUMENTS_BYTES_MAX = 256 * KIB
RESPONSE_BYTES_MAX = 256 * KIB
OUTCOME_BYTES_MAX = 256 * KIB
MESSAGE_BYTES_MAX = 64 * KIB
RESULT_BYTES_MAX = 256 * KIB
SIGNAL_SCHEMA_BYTES_MAX = 16 * KIB
"""JSON Schema of a signal, stored with the wait for it. A larger one is left out."""
LOG_ENTRY_BYTES_MAX = 16 * KIB
ANSWERS_MAX = 100
"""Runs that get one answer in one request."""
ASSIGNMENTS_MAX = 500
"""Attention items of a tenant that are assigned to people. They are in one row."""
LOG_ENTRIES_MAX = 30
"""Of `ctx.log` in one visit."""
ROW_BYTES_MAX = 1024 * KIB
"""Text and bytes of one stored row."""
COMMIT_BYTES_MAX = 3 * ROW_BYTES_MAX
"""Text and bytes of all rows of one commit."""
ANSWER_BYTES_MAX = 16 * KIB
"""Bytes read of a receiver's answer before its connection is closed."""
ANSWER_CHARS_MAX = 1_000
"""Characters stored of it."""
URL_CHARS_MAX = 2_000
HEADERS_MAX = 10
HEADER_CHARS_MAX = 1_000
SUBSCRIPTIONS_MAX = 1_000
"""Per tenant, without removed ones."""

# --- one commit, which is one transaction of DynamoDB (decision 0083) -----------------------------
ACTIONS_MAX = 100
"""Rows that one commit writes, checks and implies, counted by `actions_of`. Every store enforces it."""
TRANSACTION_BYTES = 4_000_000
"""Bytes of all items that a transaction writes or checks."""
ITEM_BYTES = 350 * KIB
"""Text and bytes of a row in one item; a larger row continues in further items. An item has at most 400 KB."""
ASSIGNMENT_BYTES_MAX = ITEM_BYTES
"""All assignments of a tenant; long notes fill it before ASSIGNMENTS_MAX."""
VIEWS_BYTES_MAX = ITEM_BYTES
"""All saved views of a tenant; long queries of other scripts fill it before VIEWS_MAX."""
LARGE_ITEMS_MAX = 2 * COMMIT_BYTES_MAX // ITEM_BYTES
"""Further items for the large rows of one commit. A row that needs n has more than n * ITEM_BYTES / 2."""
ITEM_OVERHEAD = 3 * KIB
"""Names of attributes, keys, numbers and entries of indexes in one item."""
WRITER_ITEMS_MAX = 16
"""Items beside a writer's row with its further receipts; who closes the row writes them all."""
SMALL_ROWS_MAX = ACTIONS_MAX - 2
"""Rows of a commit without a large row, beside its receipt and a fence."""
PORTION_ROWS_MAX = 40
"""Rows of any size of one commit that is one of several."""
PORTION_BYTES = COMMIT_BYTES_MAX // 4
"""A portion ends before the row that would exceed this, but has at least one row."""
LOG_ENTRIES_BESIDE_MAX = 10
"""Log entries in the commit of a move; further ones land before it."""
SLOTS_CHECKED_MAX = 28
"""Slot rows that the commit of a queued run expects unchanged (S-6)."""
APPROVALS_BESIDE_MAX = 10
"""Approvals that the commit of an end withdraws; further ones are withdrawn before it."""
UNCERTAIN_BESIDE_MAX = 38
"""Effects that the commit of an alert marks uncertain."""
MODELS_PER_ATTEMPT_MAX = 20
"""Rows of usage of one call that land together; the usage of further models is added up in the last."""

# --- runs within runs (S-30) -------------------------------------------------------------------
DEPTH_MAX = 8
"""Runs above a child run."""
CHILDREN_MAX = 1_000
"""Child runs that one run has started and that have not ended."""
MAP_MAX = 10_000
"""Child runs of one `ctx.map`, of which CHILDREN_MAX live at a time."""
DESCENDANTS_MAX = 100_000
"""Runs below a root that are stored: those that have not ended, and ended ones until they are purged."""

# --- one worker ------------------------------------------------------------------------------
UNSENT_MAX = 128
"""Durable intents whose calls are not sent yet; a crash leaves these uncertain (decision 0041)."""

# --- one process of the service ------------------------------------------------------------
CONNECTIONS_MAX = 10_000
DESCRIPTORS_KEPT = 512
"""Descriptors reserved for the store, the worker and its calls; half of a system limit below 1,024."""
STREAMS_MAX = 5_000
"""Also at most half of the connections."""


def connections_within(descriptors: int) -> int:
    """Return the maximum number of connections for a process with this limit of descriptors."""
    return max(1, min(CONNECTIONS_MAX, descriptors - min(descriptors // 2, DESCRIPTORS_KEPT)))


# --- shape ---------------------------------------------------------------------------------
JSON_DEPTH_MAX = 64
ATTRIBUTES_MAX = 8  # of a workflow
ATTRIBUTE_CHARS_MAX = 200  # of a value; longer ones are cut
TEXT_CHARS_MAX = 2_000
"""Summaries, reasons and other texts of people."""
QUERY_CHARS_MAX = 1_000
"""Text of words and terms that finds runs."""
VIEWS_MAX = 100
"""Saved views of a tenant. They are in one row."""
VIEW_NAME_CHARS_MAX = 60
"""Name of a view, which the list of runs shows on one line."""
DETAIL_CHARS_MAX = 8_000
"""Text that the engine makes of other texts: a reason to ask a person with a traceback, the decision on a call."""
DETAILS_BYTES_MAX = 192 * KIB
"""Details of all reasons, or texts of all waits, of one run row: many of them share it."""
EVENT_BYTES_MAX = 512 * KIB
"""Data of an event: an outcome fits. Above this, texts in it are cut."""
PLANS_BYTES_MAX = 640 * KIB
"""Plans that one approval offers, as its row holds them; an approver's change of one has room beside them."""
OBJECTIVE_CHARS_MAX = 200
"""Text that lists show beside a run. It is in the run row, so it stays short."""
PLANS_PER_APPROVAL_MAX = 100
QUORUM_MAX = 20
CALLS_PER_VISIT_MAX = 500
"""A loop of steps should be a node that returns itself, not 500 calls in one visit (S-13)."""
RESULTS_PER_VISIT_MAX = 10_000
"""A re-run after a crash emits all results of the visit again; larger sets need a loop of visits."""
NODES_MAX = 200
PARAMETERS_MAX = 50
ROLES_PER_RULE_MAX = 50
PERSON_CHARS_MAX = 200
"""Characters of the name of a caller."""
ATTEMPTS_MAX = 100
VISITS_MAX = 10_000
FORKS_NOTED_MAX = 100  # forks of one run that are started before it has ended: a claim reads each note
COUNT_MAX = 1_000  # rows of one kind that a page counts: a count of so many means so many or more
MODEL_TEXT_CHARS_MAX = 50_000  # stored of the instructions or the tools of requests to a model
MODEL_TEXTS_PER_DAY_MAX = 200  # rows of such texts that a worker writes for a tenant in a day
TOOL_CALLS_MAX = 10_000  # newest requests to models, or calls, that a page of models or of tools counts
MEMO_RUNS_MAX = 200  # newest runs whose lookups and verdicts of policies such a page counts
BUDGETED_RUNS_MAX = 1_000  # unfinished runs with a budget that a list compares, those that began first
MEMOS_MAX = 10_000  # of these lookups and verdicts
USAGE_ROWS_MAX = 50_000  # reports of usage that one table adds up, the latest days first
USAGE_DAYS_MAX = 90  # business days of such a table
FLAGGED_MAX = 10_000  # flagged runs that are counted by reason, because a reason must not hide another one

assert INPUT_BYTES_MAX <= STATE_BYTES_MAX, "an input becomes the first state"
assert INPUT_BYTES_MAX + PORTION_BYTES <= COMMIT_BYTES_MAX, "a start is one commit"
assert MESSAGE_BYTES_MAX <= ARGUMENTS_BYTES_MAX, "what a signal brought can be an activity's argument"
assert ARGUMENTS_BYTES_MAX + RESPONSE_BYTES_MAX < ROW_BYTES_MAX, "an effect's row holds both"
assert NAME_CHARS_MAX < KEY_BYTES_MAX
assert 2 * ARGUMENTS_BYTES_MAX < PLANS_BYTES_MAX < ROW_BYTES_MAX - ARGUMENTS_BYTES_MAX, "any one plan can be offered"
assert OUTCOME_BYTES_MAX < EVENT_BYTES_MAX < ROW_BYTES_MAX
_MOVE = 4  # receipt, run, event and its mark as unpublished
_FREED = 2 * 4  # slots of a run, and the runs that get them
assert _MOVE + 3 * (LOG_ENTRIES_BESIDE_MAX + 1) + _FREED + SLOTS_CHECKED_MAX + APPROVALS_BESIDE_MAX <= (
    ACTIONS_MAX - LARGE_ITEMS_MAX
), "the end of a run is one commit, after those that its bounds move before it"
assert _MOVE + 3 * LOG_ENTRIES_BESIDE_MAX + _FREED + UNCERTAIN_BESIDE_MAX <= ACTIONS_MAX - LARGE_ITEMS_MAX
assert 2 + 3 * LOG_ENTRIES_MAX + LARGE_ITEMS_MAX // 4 <= ACTIONS_MAX, "the log entries of a visit are one commit"
assert _MOVE + 2 + PORTION_ROWS_MAX + LARGE_ITEMS_MAX <= ACTIONS_MAX, "a portion may land with a move"
assert COMMIT_BYTES_MAX + ACTIONS_MAX * ITEM_OVERHEAD + ITEM_BYTES < TRANSACTION_BYTES, (
    "a transaction holds a commit of the maximum size, and the item of a run that it only fences"
)
CONCURRENCY_MAX = 1_000_000  # runs or slices that one worker executes at once
SLOTS_MAX = 10_000  # of one limit of admitted runs
RUNS_PER_READ = 500  # runs that a page of attention shows, unless another number is asked

# --- rows of authors in a SQLite store ------------------------------------------------------
AUTHOR_PREFIX = "app_"
"""First characters of the tables of authors in a store's SQLite file. No table of Outlast begins so."""
AUTHOR_STATEMENTS_MAX = 100
AUTHOR_STATEMENTS_MS = 1_000
AUTHOR_STATEMENT_BYTES_MAX = 1_000_000
"""Statements of one call with `transaction=True` on SQLite, their time and their size: they hold the write lock."""
