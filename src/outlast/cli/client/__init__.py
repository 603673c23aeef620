"""The clients of commands: over a store opened here, and over HTTP."""
