"""The safeguards that a round removes in every process (`--without ID`): the round must then fail."""

from typing import Final

from tests.mutants import CHAOS, SIMULATION, of

IDS: Final = tuple(dict.fromkeys(mutant.id for suite in (CHAOS, SIMULATION) for mutant in of(suite)))
FAULTS_OF: Final[dict[str, tuple[tuple[str, ...], float]]] = {
    "blind_retry": (("kill",), 3.0),
    "unanswered_commit_repeated": (("cut_after",), 0.3),
}
"""The faults that show a missing safeguard soonest, and how long a call may take then. Most kills hit a call that
completes all the same."""
