"""Recorded runs of the examples, which `test_recorded_examples.py` plays again."""
