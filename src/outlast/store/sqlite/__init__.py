"""The SQLite store, for workers on one machine."""
