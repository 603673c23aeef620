"""Clients of a real service behind a proxy that breaks answers, and the check of the store afterwards."""
