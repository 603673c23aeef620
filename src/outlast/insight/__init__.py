"""Typed answers about runs: rows of a tenant turned into summaries, explanations, timelines and lists."""
