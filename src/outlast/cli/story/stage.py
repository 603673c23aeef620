"""Three ways of showing the story: live on a terminal, one dated line each when piped, and nothing but what must be."""

import shlex
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Protocol, Self

import click

from outlast.core.events import iso
from outlast.runtime.clocks import SystemClock

STYLES = {"✓": "green", "✗": "bold red", "⏸": "bold yellow", "▸": "bold"}

INDENT = 6  # columns before a line of a command


class Stage(Protocol):
    """What the teller says it to."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    def say(self, text: str = "") -> None:
        """A line that stays."""

    def now(self, text: str, detail: str = "", *, works: bool = True) -> None:
        """What is the case at this moment; `works`: a process is busy with it. Replaces the last one.

        `detail` changes from moment to moment; where lines stay, it is said as it was at first.
        """

    def must_say(self, text: str) -> None:
        """A line without which nobody would know what the story waits for."""

    def fit(self, words: Sequence[str]) -> str:
        """Return a command as text that can be copied from here: no word of it is broken at the end of a line."""


class Plain:
    """For pipes and CI: a line an event, with its time, never redrawn."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._last = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def say(self, text: str = "") -> None:
        """See Stage."""
        for line in text.splitlines():
            if line.strip():
                click.echo(f"{iso(self._clock.wall())}  {line}")

    def now(self, text: str, detail: str = "", *, works: bool = True) -> None:
        """See Stage. Said once."""
        if text != self._last:
            self._last = text
            self.say(text + detail)

    must_say = say
    fit = staticmethod(shlex.join)


class Silent:
    """For `--json`: one object at the end on stdout, and on stderr what a person is waited for."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def say(self, text: str = "") -> None:
        """See Stage."""

    def now(self, text: str, detail: str = "", *, works: bool = True) -> None:
        """See Stage."""

    def must_say(self, text: str) -> None:
        """See Stage."""
        click.echo(text, err=True)

    fit = staticmethod(shlex.join)


class Lively:
    """For terminals: lines that stay, and below them one that moves."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(highlight=False)
        self._live = Live(console=self._console, refresh_per_second=8, transient=True)
        self._text = ""

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._live.stop()

    def say(self, text: str = "") -> None:
        """See Stage."""
        for line in text.splitlines() or [""]:
            self._console.print(self._styled(line), soft_wrap=True)

    def now(self, text: str, detail: str = "", *, works: bool = True) -> None:
        """See Stage."""
        if text + detail == self._text:
            return
        self._text = text = text + detail
        from rich.spinner import Spinner

        shown = self._styled(text)
        self._live.update(Spinner("dots", text=shown) if works and text else shown)

    def fit(self, words: Sequence[str]) -> str:
        """See Stage."""
        return folded(words, self._console.width)

    def _styled(self, line: str) -> Any:
        from rich.text import Text

        text = Text(line)
        for mark, style in STYLES.items():
            text.highlight_words([mark], style)
        return text

    must_say = say


def folded(words: Sequence[str], width: int) -> str:
    """Return a command that goes on in a further line, behind a backslash, where the next word does not fit."""
    lines = [""]
    for word in map(shlex.quote, words):
        if lines[-1] and INDENT + len(lines[-1]) + len(word) + len("  \\") > width:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return f" \\\n{' ' * INDENT}".join(lines)


def stage(*, json: bool) -> Stage:
    """The stage for this process's output."""
    if json:
        return Silent()
    return Lively() if sys.stdout.isatty() else Plain()
