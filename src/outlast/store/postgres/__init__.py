"""The store for teams: many processes over one PostgreSQL, set-based batches, LISTEN/NOTIFY (extra `postgres`)."""
