"""Whether the rows of a store keep every invariant they can show: pure checks from rows to findings."""

from outlast.runtime.fsck.checks import OF_A_RUN, OF_HISTORY, OF_THE_STORE, violations
from outlast.runtime.fsck.finding import Finding

__all__ = ["OF_A_RUN", "OF_HISTORY", "OF_THE_STORE", "Finding", "violations"]
