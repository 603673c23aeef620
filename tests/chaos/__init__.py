"""Rounds of faults: real processes are killed, frozen, cut off and skewed, then the receivers' record is checked."""
