"""What the world is told: so far, that a run needs a person."""
