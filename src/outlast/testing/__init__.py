"""For people who test with Outlast: time that is skipped, a store that fails on schedule, the exam of every store."""

from outlast.store.faulty import Fault, FaultyStore
from outlast.testing.clock import skip

__all__ = ["Fault", "FaultyStore", "skip"]
