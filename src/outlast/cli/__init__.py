"""The command line: `outlast`. Commands are loaded when they are called; they act and read through Operations alone."""

from outlast.cli.root import cli

__all__ = ["cli", "main"]


def main() -> None:
    """The console script."""
    cli(prog_name="outlast")
