"""Rows, verbs and decisions: pure functions without I/O or clocks."""
