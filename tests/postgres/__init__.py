"""Tests with a real PostgreSQL: the server of OUTLAST_TEST_POSTGRES, or one from the wheel."""
