"""The four routes of the negotiation with a worker that is killed at random: `scripts/crash routes --seeds N`."""
