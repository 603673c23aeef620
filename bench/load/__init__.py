"""The service under load: what is asked of it, who listens meanwhile, and what they saw."""
