"""Webhooks and messages to approvers: which event is due for which receiver, and what a message says."""
