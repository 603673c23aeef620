"""What moves a run: the worker that takes it, the walk of its node, the effects and waits of that walk."""
