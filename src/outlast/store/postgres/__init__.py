"""The PostgreSQL store, for workers on many machines."""
