"""For people who test with Outlast: a store that fails on schedule, and the exam every store must pass."""

from outlast.store.faulty import Fault, FaultyStore

__all__ = ["Fault", "FaultyStore"]
