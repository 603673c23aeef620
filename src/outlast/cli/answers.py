"""The streams that a command answers on: one that takes no more is told from every other error of the system."""

import errno
import os
import sys
from typing import Any, TextIO, cast

import click

from outlast.cli.failure import NOBODY_READS, UNWRITTEN


class Unwritten(OSError):
    """A stream of ours took no more; `why` is what the system said. No BrokenPipeError, which libraries act on."""

    def __init__(self, stream: TextIO, why: OSError) -> None:
        super().__init__(str(why))
        self.stream = stream
        self.why = why

    @property
    def code(self) -> int:
        """The exit code of a command whose answer it was."""
        return NOBODY_READS if self.why.errno == errno.EPIPE else UNWRITTEN


class _Stream:
    """A text stream whose failures say that they are its own."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as error:
            raise Unwritten(self._stream, error) from error

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            raise Unwritten(self._stream, error) from error


def watch_streams() -> None:
    """From here on a failed write to stdout or stderr is Unwritten. One that was closed (`>&-`) leads nowhere."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name) or open(os.devnull, "w")  # noqa: SIM115 - it takes the closed one's place, for good
        setattr(sys, name, cast("TextIO", _Stream(stream)))


def lost(error: Unwritten) -> int:
    """Say why an answer does not stand where it should, unless nobody wants it; answers the exit code."""
    _give_up(error)
    if error.code != NOBODY_READS:
        why = error.why.strerror or error.why
        try:
            click.echo(f"The answer could not be written: {why}. What the command did until then stands.", err=True)
        except Unwritten as second:
            _give_up(second)
    return error.code


def _give_up(error: Unwritten) -> None:
    """Nothing more is said on this stream, also at the exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, error.stream.fileno())
    os.close(nowhere)
