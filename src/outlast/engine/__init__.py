"""Engine: workers, the runs they execute, and the effects, waits and approvals of those runs."""
