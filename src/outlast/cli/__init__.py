"""The command line: `outlast`. Each command is imported when it is called."""

import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outlast.cli.root import cli

__all__ = ["cli", "main"]


def main() -> None:
    """Run the console script. Ctrl-C during the imports ends it silently."""
    handler = signal.signal(signal.SIGINT, signal.SIG_DFL)
    from outlast.cli.exit_codes import watch_streams
    from outlast.cli.root import cli

    signal.signal(signal.SIGINT, handler)
    watch_streams()
    cli(prog_name="outlast")


def __getattr__(name: str) -> Any:
    if name != "cli":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from outlast.cli.root import cli

    return cli
