"""The rows of docs/requirements.md: the test that carries each, and the removal that turns it red."""
