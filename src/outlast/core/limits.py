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
"""State of a run; parts that do not change between checkpoints are stored once (core/snapshot_codec.py)."""
INPUT_BYTES_MAX = 2 * KIB * KIB
"""Initial state; it lands in the commit that starts the run."""
ARGUMENTS_BYTES_MAX = 256 * KIB
RESPONSE_BYTES_MAX = 256 * KIB
OUTCOME_BYTES_MAX = 256 * KIB
MESSAGE_BYTES_MAX = 64 * KIB
RESULT_BYTES_MAX = 256 * KIB
LOG_ENTRY_BYTES_MAX = 16 * KIB
ROW_BYTES_MAX = 1024 * KIB
"""Text and bytes of one stored row."""
COMMIT_BYTES_MAX = 4 * ROW_BYTES_MAX
"""Size of all rows of one commit; the limit of a DynamoDB transaction, enforced by every store."""
ANSWER_BYTES_MAX = 16 * KIB
"""Bytes read of a receiver's answer before its connection is closed."""
ANSWER_CHARS_MAX = 1_000
"""Characters stored of it."""
URL_CHARS_MAX = 2_000
HEADERS_MAX = 10
HEADER_CHARS_MAX = 1_000
SUBSCRIPTIONS_MAX = 1_000
"""Per tenant, without removed ones."""

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
TEXT_CHARS_MAX = 2_000
"""Summaries, reasons and other texts of people."""
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

assert INPUT_BYTES_MAX <= STATE_BYTES_MAX, "an input becomes the first state"
assert INPUT_BYTES_MAX < COMMIT_BYTES_MAX, "a start is one commit"
assert MESSAGE_BYTES_MAX <= ARGUMENTS_BYTES_MAX, "what a signal brought can be an activity's argument"
assert ARGUMENTS_BYTES_MAX + RESPONSE_BYTES_MAX < ROW_BYTES_MAX, "an effect's row holds both"
assert NAME_CHARS_MAX < KEY_BYTES_MAX
