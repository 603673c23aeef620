"""Output of the demo: live on a terminal, one dated line per event in a pipe, or only a JSON object."""

import shlex
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Protocol, Self

from outlast.clocks import SystemClock
from outlast.core.events import iso

STYLES: Final = {"✓": "green", "✗": "bold red", "⏸": "bold yellow", "▸": "bold"}
INDENT: Final = 6  # columns before a line of a command


class Output(Protocol):
    """Destination of the demo's lines."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    def line(self, text: str = "") -> None:
        """Print a line that stays."""

    def status(self, text: str, detail: str = "", *, works: bool = True) -> None:
        """Replace the status line. `works`: show that a process is busy.

        `detail` changes often. Where lines cannot be replaced, only a change of `text` is printed.
        """

    def prompt(self, text: str) -> None:
        """Print a request to the user, also if nothing else is printed."""

    def fold(self, words: Sequence[str]) -> str:
        """Return a command that can be copied: no word is broken at the end of a line."""


class PlainOutput:
    """Output for pipes and CI: one dated line per event."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._last = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def line(self, text: str = "") -> None:
        for line in text.splitlines():
            if line.strip():
                print(f"{iso(self._clock.wall())}  {line}", flush=True)

    def status(self, text: str, detail: str = "", *, works: bool = True) -> None:
        if text != self._last:
            self._last = text
            self.line(text + detail)

    prompt = line
    fold = staticmethod(shlex.join)


class SilentOutput:
    """Output for `--json`: prompts on stderr, nothing else."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def line(self, text: str = "") -> None:
        pass

    def status(self, text: str, detail: str = "", *, works: bool = True) -> None:
        pass

    def prompt(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    fold = staticmethod(shlex.join)


class LiveOutput:
    """Output for terminals: permanent lines and one status line below them."""

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

    def line(self, text: str = "") -> None:
        for line in text.splitlines() or [""]:
            self._console.print(self._styled(line), soft_wrap=True)

    def status(self, text: str, detail: str = "", *, works: bool = True) -> None:
        if text + detail == self._text:
            return
        self._text = text = text + detail
        from rich.spinner import Spinner

        shown = self._styled(text)
        self._live.update(Spinner("dots", text=shown) if works and text else shown)

    def fold(self, words: Sequence[str]) -> str:
        return folded(words, self._console.width)

    def _styled(self, line: str) -> Any:
        from rich.text import Text

        text = Text(line)
        for mark, style in STYLES.items():
            text.highlight_words([mark], style)
        return text

    prompt = line


def folded(words: Sequence[str], width: int) -> str:
    """Return a command wrapped with backslashes between words to fit into `width` columns."""
    lines = [""]
    for word in map(shlex.quote, words):
        if lines[-1] and INDENT + len(lines[-1]) + len(word) + len("  \\") > width:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return f" \\\n{' ' * INDENT}".join(lines)


def output_for(*, json: bool) -> Output:
    """Return the output for this process: silent for JSON, live on a terminal, else plain."""
    if json:
        return SilentOutput()
    return LiveOutput() if sys.stdout.isatty() else PlainOutput()
