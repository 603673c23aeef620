"""What a run is: rows, moves and the pure functions between them; no input, no output, no clock of its own."""
