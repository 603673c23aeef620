"""What the tests share is imported from here, as `tests.name`."""
