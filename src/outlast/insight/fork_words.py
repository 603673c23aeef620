"""Words for what a fork does with the calls of its ancestor, on pages and in the command line."""

from collections.abc import Mapping
from typing import Final

OUTCOMES: Final[Mapping[str, str]] = {
    "answered": "answered from the recording, not made",
    "waits": "waits until the run that made it has settled it",
    "shared": "shared with all runs of the tenant",
    "asked": "waits for a person",
    "policy": "made if the policy allows it",
    "made": "made again",
    "started": "started as its own child",
}
"""Words for each outcome of a call that the fork asks for again."""
