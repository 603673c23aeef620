"""Tests of Outlast. Shared helpers are imported as `tests.name`."""
