"""Rows beside the columns that encode them: the one place for a new field."""
