"""The service under load: requests, listeners, and their results."""
