"""One file for each measurement: its goals, its maximum of repeats, and `measure`, which returns the figures."""
