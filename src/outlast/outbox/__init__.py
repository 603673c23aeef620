"""Outgoing webhooks and operator notifications."""
