"""Upkeep of a store: fsck, export, deploy check, policy replay, backup and removal of old runs."""
