"""The liveness durations as options, shared by the worker and by what explains them."""

from collections.abc import Callable, Mapping
from typing import Any

import click

from outlast.cli.text import duration
from outlast.core.budget import DAY, HEARTBEAT_EVERY, SECOND, Liveness
from outlast.runtime.spans import span

OPTIONS: tuple[tuple[str, str], ...] = (
    ("heartbeat_window", "A worker that is silent for so long is replaced."),
    ("heartbeat_every", "How often it renews its lease; at most a third of the window."),
    ("attempt_timeout", "How long one attempt of a call may take, where the activity does not say."),
    ("start_budget", "From the intent of a call to the last moment it may be sent."),
    ("quiet_margin", "Beyond that and the timeout: how long a call may still be in the air."),
    ("backoff_ceiling", "The longest wait between two attempts."),
    ("checkpoint_write", "How long writing a checkpoint may take."),
    ("drain_grace", "How long a worker that stops waits for calls under way."),
    ("runs_kept", "How long a run is kept after its end, until the daily purge; 0s: for ever."),
)


def liveness_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add one option for each liveness duration."""
    defaults = Liveness()._asdict()
    for name, text in reversed(OPTIONS):
        shown = f"{text} [{_shown(defaults[name])}]"
        command = click.option("--" + name.replace("_", "-"), type=duration, metavar="DURATION", help=shown)(command)
    return command


def _shown(ms: int) -> str:
    return span(ms) if ms >= DAY else f"{ms / SECOND:g}s"


def liveness_of(given: Mapping[str, int | None]) -> Liveness:
    """The durations given, the defaults for the rest; a short window brings its own rhythm along.

    Raises click.UsageError for durations that contradict each other.
    """
    said = {name: value for name, value in given.items() if value is not None}
    window = said.get("heartbeat_window")
    if window is not None and "heartbeat_every" not in said:
        said["heartbeat_every"] = min(HEARTBEAT_EVERY, window // 3)
    try:
        return Liveness(**said).checked()
    except ValueError as error:
        raise click.UsageError(str(error)) from error
