"""Stores keep rows. A store knows keys, versions and order, but no status and no verb."""
