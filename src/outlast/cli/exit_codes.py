"""Errors as people read them on a terminal, and the exit code of each kind."""

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
UNWRITTEN = 74  # what sysexits.h says of a failed write
INTERRUPTED = 130
NOBODY_READS = 141  # what a shell shows for a program that ended because nobody read its pipe any more

# The first that matches counts.
CODES: tuple[tuple[type[errors.OutlastError], int], ...] = (
    (errors.WillNotContinue, RUN_FAILED),
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
# Command → the one that shows whether it was done.
LOOK = {
    "run": "outlast runs ls",
    "signal": "outlast runs show RUN",
    "approvals": "outlast approvals ls",
    "effects": "outlast effects ls",
    "webhooks": "outlast webhooks ls",
    "pause": "outlast pauses",
    "resume": "outlast pauses",
}


def report(error: Exception, words: Sequence[str]) -> int:
    """Show an error of the command that `words` are; return its exit code."""
    if isinstance(error, errors.StoreError) and error.landed is None:
        error.fix = _if_uncertain(words)
    if isinstance(error, errors.OutlastError):
        click.echo(_harmless(str(error)), err=True)
        if os.environ.get("OUTLAST_TRACEBACK") == "full":
            _print_whole(error)
        return next(code for kind, code in CODES if isinstance(error, kind))
    _print_whole(error)
    click.echo("\nThis is a fault of Outlast, not of yours. What was acknowledged is safe in the store.", err=True)
    return OUR_FAULT


def _if_uncertain(words: Sequence[str]) -> str:
    """Return what to do after a command that perhaps was done: a key of the user's makes a repetition safe."""
    command = next((word for word in words if word in LOOK), "")
    for option in ("--key", "--id"):
        if command in KEYED and any(word.partition("=")[0] == option for word in words):
            return f"repeat the command with the same {option}: it is done once"
    look = LOOK.get(command, "outlast runs show RUN")
    return f"look first whether it was done: {look}; repeat the command only if it was not"


def _print_whole(error: Exception) -> None:
    click.echo(_harmless("".join(traceback.format_exception(error))), err=True)


def _harmless(text: str) -> str:
    """Nothing that a terminal acts on, and nothing that looks like a secret (S13, S29)."""
    from outlast.telemetry.redact import redact

    return inert(redact(text), lines=True)


def interrupted() -> int:
    """Ctrl-C in a command that is no worker; answers the exit code."""
    click.echo("\nStopped. What was acknowledged is safe in the store: outlast runs ls", err=True)
    return INTERRUPTED


def user_frames(error: BaseException) -> str:
    """The error as Python prints it, with the frames of the user's own files only; all with OUTLAST_TRACEBACK=full."""
    if os.environ.get("OUTLAST_TRACEBACK") == "full":
        return "".join(traceback.format_exception(error)).rstrip()
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not _is_foreign(f.filename)]
    lines = [*traceback.format_list(frames), *traceback.format_exception_only(error)]
    return "".join(lines).rstrip()


def _is_foreign(filename: str) -> bool:
    machinery = filename == importlib.__file__ or filename.startswith("<frozen ")
    return machinery or Path(filename).is_relative_to(PACKAGE)


def shown_traceback(text: str) -> list[str]:
    """A stored traceback, without the frames of Outlast's own files; whole with OUTLAST_TRACEBACK=full."""
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
