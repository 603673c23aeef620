"""Checks of the rows of a store against its invariants."""
