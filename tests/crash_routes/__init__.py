"""The four routes of the negotiation, their worker killed at random: `scripts/crash routes --seeds N`."""
