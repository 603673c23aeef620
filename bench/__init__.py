"""Benchmarks: commands that print figures, never timed tests (scripts/bench --help, docs/performance.md)."""
