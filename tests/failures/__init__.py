"""The failures that must be survived, each with its test, and the safeguards, each with what turns red without it."""
