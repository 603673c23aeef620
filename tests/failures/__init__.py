"""The failures that Outlast must survive, each with its test and its safeguard."""
