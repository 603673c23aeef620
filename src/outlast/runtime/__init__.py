"""The handle: what callers hold to start runs, act on them and read them, whatever the store and the runtime."""
