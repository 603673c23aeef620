"""A store that fails on schedule around any other: before the commit, after it, late, or with a stale list."""

from outlast.store.faulty import Fault, FaultyStore

__all__ = ["Fault", "FaultyStore"]
