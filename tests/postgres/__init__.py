"""A real PostgreSQL for the tests: the one of OUTLAST_TEST_POSTGRES, or one of our own from the wheel."""
