"""Large and growing states as bytes, and texts of a run that are shown but never stored."""
