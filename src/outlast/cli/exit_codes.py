"""Exit codes, and errors as a terminal shows them."""

import errno
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO, cast

import click

from outlast import errors
from outlast.cli.text import inert

OK, RUN_FAILED, USAGE, NOT_FOUND, CONFLICT, WAITING, NOT_ALLOWED, NO_STORE, OUR_FAULT = 0, 1, 2, 3, 4, 5, 6, 7, 70
UNCERTAIN = 8
UNWRITTEN = 74  # EX_IOERR of sysexits.h
INTERRUPTED = 130
PIPE_CLOSED = 141  # as a shell shows a program that SIGPIPE ended

ENDING = "outlast.ending"
"""Key of the end of a command that serves, in `click.Context.meta`."""

# The first match decides.
CODES: tuple[tuple[type[errors.OutlastError], int], ...] = (
    (errors.WillNotContinue, RUN_FAILED),
    (errors.RunFailed, RUN_FAILED),
    (errors.WaitTimeout, WAITING),
    (errors.StoreReplaced, CONFLICT),
    (errors.NotFound, NOT_FOUND),
    (errors.Forbidden, NOT_ALLOWED),
    (errors.Unauthenticated, NOT_ALLOWED),
    (errors.TooManyFailures, NOT_ALLOWED),
    (errors.Unverifiable, NO_STORE),
    (errors.Busy, NO_STORE),
    (errors.Conflict, CONFLICT),
    (errors.Stale, CONFLICT),
    (errors.Rejected, USAGE),
    (errors.Uncertain, UNCERTAIN),
    (errors.StoreError, NO_STORE),
    (errors.StoreUnusable, NO_STORE),
    (errors.Corrupt, NO_STORE),
    (errors.Precondition, CONFLICT),
    (errors.KeyRefused, CONFLICT),
    (errors.Fault, OUR_FAULT),
    (errors.IllegalMove, OUR_FAULT),
    (errors.OutlastError, USAGE),
)
PACKAGE = Path(errors.__file__).parent
KEYED = ("run", "signal")
# Command → the command that shows whether it was done.
LOOK = {
    "run": "outlast runs ls",
    "signal": "outlast runs show RUN",
    "approvals": "outlast approvals ls",
    "effects": "outlast effects ls",
    "webhooks": "outlast webhooks ls",
    "budgets": "outlast budgets ls",
    "pause": "outlast pauses",
    "resume": "outlast pauses",
}


def report(error: Exception, words: Sequence[str]) -> int:
    """Print an error of the command `words` and return its exit code."""
    if isinstance(error, errors.StoreError) and error.landed is None:
        error.fix = _if_uncertain(words)
    if isinstance(error, errors.OutlastError):
        click.echo(_harmless(str(error)), err=True)
        if os.environ.get("OUTLAST_TRACEBACK") == "full":
            _print_whole(error)
        return next(code for kind, code in CODES if isinstance(error, kind))
    _print_whole(error)
    click.echo("\nThis is a bug in Outlast. Acknowledged changes are safe in the store.", err=True)
    return OUR_FAULT


def _if_uncertain(words: Sequence[str]) -> str:
    """Return advice for a command that may have been done: a key of the user makes a repetition safe."""
    command = next((word for word in words if word in LOOK), "")
    for option in ("--key", "--id"):
        if command in KEYED and any(word.partition("=")[0] == option for word in words):
            return f"repeat the command with the same {option}: it is done once"
    look = LOOK.get(command, "outlast runs show RUN")
    keyed = "; do not repeat it without the same key" if command in KEYED else ""
    return f"check first whether it was done: {look}; repeat the command only if it was not{keyed}"


def _print_whole(error: Exception) -> None:
    click.echo(_harmless("".join(traceback.format_exception(error))), err=True)


def _harmless(text: str) -> str:
    """Escape control characters and redact secrets (S13, S29)."""
    from outlast.telemetry.redact import redact

    return inert(redact(text), lines=True)


def interrupted() -> int:
    """Print that Ctrl-C stopped a command, and return the exit code."""
    click.echo("\nStopped. Acknowledged changes are safe in the store: outlast runs ls", err=True)
    return INTERRUPTED


def user_frames(error: BaseException) -> str:
    """Return the traceback with the frames of the user's files only; all frames with OUTLAST_TRACEBACK=full."""
    if os.environ.get("OUTLAST_TRACEBACK") == "full":
        return "".join(traceback.format_exception(error)).rstrip()
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not _is_foreign(f.filename)]
    lines = [*traceback.format_list(frames), *traceback.format_exception_only(error)]
    return "".join(lines).rstrip()


def _is_foreign(filename: str) -> bool:
    machinery = filename == importlib.__file__ or filename.startswith("<frozen ")
    return machinery or Path(filename).is_relative_to(PACKAGE)


def shown_traceback(text: str) -> list[str]:
    """Return the lines of a stored traceback without Outlast's frames; all lines with OUTLAST_TRACEBACK=full."""
    lines = text.splitlines()
    if os.environ.get("OUTLAST_TRACEBACK") == "full":
        return lines
    shown: list[str] = []
    hidden = False
    for line in lines:
        if line.startswith("  File "):
            hidden = f'"{PACKAGE}{os.sep}' in line
        elif not line.startswith("    "):
            hidden = False
        if not hidden:
            shown.append(line)
    return shown


class Unwritten(OSError):
    """A failed write to stdout or stderr. It is no BrokenPipeError, because libraries catch that one."""

    def __init__(self, stream: TextIO, why: OSError) -> None:
        super().__init__(str(why))
        self.stream = stream
        self.why = why

    @property
    def code(self) -> int:
        """Exit code of the command that could not print its answer."""
        return PIPE_CLOSED if self.why.errno == errno.EPIPE else UNWRITTEN


class _Stream:
    """A text stream that raises Unwritten if a write fails."""

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
    """Replace stdout and stderr by streams that raise Unwritten. A closed one (`>&-`) discards its output."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name) or open(os.devnull, "w")  # noqa: SIM115 - it replaces the closed stream for the rest of the process
        setattr(sys, name, cast("TextIO", _Stream(stream)))


def lost(error: Unwritten) -> int:
    """Print why the answer could not be written, unless the reader closed the pipe. Return the exit code."""
    _give_up(error)
    if error.code != PIPE_CLOSED:
        why = error.why.strerror or error.why
        try:
            click.echo(f"The answer could not be written: {why}. The changes that the command made remain.", err=True)
        except Unwritten as second:
            _give_up(second)
    return error.code


def _give_up(error: Unwritten) -> None:
    """Discard further output of the stream, also at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, error.stream.fileno())
    os.close(nowhere)
