"""Seeded schedules of faults over the engine and the memory store, on virtual time."""
