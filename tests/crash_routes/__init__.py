"""The four routes of the negotiation, their worker killed at random until they end: `scripts/crash-routes --seeds N`."""
