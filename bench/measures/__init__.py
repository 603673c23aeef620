"""One file for each measurement: its goals, its repeats at most, and `measure`, which gives the figures."""
