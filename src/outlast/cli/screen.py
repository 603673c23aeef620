"""Output of answers: tables and sentences for people, JSON or NDJSON for programs."""

import json
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

import click
from pydantic import BaseModel

from outlast.cli.settings import JSON, NDJSON, TABLE, CliSettings
from outlast.cli.text import inert, json_escaped
from outlast.core.durations import span
from outlast.core.events import iso
from outlast.models import milliseconds

WIDE = 10_000  # columns of a pipe: no cell is folded in it


def json_of_model(value: Any, without: Collection[str] = ()) -> Any:
    """Return a model as JSON data, except these fields; any other value as it is."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True, exclude=set(without))
    return value


EFFECT_ID: Final = frozenset({"id"})
"""Field of an effect that only HTTP needs."""
DECISION_SCHEMA: Final = frozenset({"schema_"})
"""Field of an approval that only HTTP needs."""


def iso_of(at: datetime | None) -> str:
    """Return an instant as RFC 3339 text; '' for None."""
    return iso(milliseconds(at)) if at is not None else ""


class Screen:
    """Output in the requested format. `now_ms`: business time of the store."""

    def __init__(self, settings: CliSettings, now_ms: int = 0) -> None:
        self._settings = settings
        self.now_ms = now_ms
        self.for_people = settings.output == TABLE
        self.quiet = settings.quiet
        self.no_color = settings.no_color

    # --- for programs ----------------------------------------------------------------------------
    def for_programs(self) -> "Screen":
        """Return the same screen with JSON output."""
        return Screen(replace(self._settings, output=JSON), self.now_ms)

    def data(self, value: Any, *, without: Collection[str] = ()) -> bool:
        """Print a model, except the fields `without`, or JSON data, and return True. Return False if people read."""
        if self.for_people:
            return False
        indent = 2 if self._settings.output == JSON else None
        click.echo(json_escaped(json.dumps(json_of_model(value, without), ensure_ascii=False, indent=indent)))
        return True

    def listing(self, name: str, items: Sequence[Any], *, without: Collection[str] = (), **more: Any) -> bool:
        """Print a list as one JSON object, or one item per line with ndjson. Return False if people read."""
        if self._settings.output == NDJSON:
            for item in items:
                self.data(item, without=without)
            return True
        return not self.for_people and self.data({name: [json_of_model(item, without) for item in items], **more})

    # --- for people --------------------------------------------------------------------------------
    def line(self, text: str = "") -> None:
        """Print one line of an answer with control characters and line ends escaped."""
        click.echo(inert(text))

    def advice(self, text: str) -> None:
        """Print a line of advice to stderr, unless -q is set."""
        if not self.quiet:
            click.echo(inert(text), err=True)

    def further(self, what: str, cursor: str) -> None:
        """Print how to get the next page, if there is one. The filters have to be repeated."""
        if cursor:
            self.advice(f"further {what} → the same with --cursor {cursor}")

    def pairs(self, pairs: Iterable[tuple[str, Sequence[str]]]) -> None:
        """Print each name with its lines below each other; skip names without lines."""
        for name, (first, *rest) in ((name, lines) for name, lines in pairs if lines):
            self.line(f"  {name:<12} {first}")
            for line in rest:
                self.line(f"  {'':<12} {line}")

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a table; long cells are folded, never cut."""
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        tty = sys.stdout.isatty()
        console = Console(
            no_color=self._settings.no_color or None, width=None if tty else WIDE, highlight=False, emoji=False
        )
        table = Table(box=None, pad_edge=True, header_style="bold", padding=(0, 1))
        whole = [max((len(row[n]) for row in rows), default=0) for n in range(len(columns))]
        for n, name in enumerate(columns):
            table.add_column(name, overflow="fold", min_width=whole[n] if n == 0 else None)
        for row in rows:
            table.add_row(*(Text(inert(cell), style=_style(cell)) for cell in row))
        with console.capture() as shown:  # rich handles a closed pipe in its own way
            console.print(table)
        click.echo(shown.get(), nl=False, color=True)

    # --- instants ------------------------------------------------------------------------------------
    def ago(self, instant: datetime | None) -> str:
        """Return the time since an instant, or with --utc the instant."""
        if instant is None:
            return ""
        at = milliseconds(instant)
        return iso(at) if self._settings.utc else span(max(0, self.now_ms - at))

    def left(self, instant: datetime | None) -> str:
        """Return the time until an instant, or with --utc the instant."""
        if instant is None:
            return ""
        at = milliseconds(instant)
        return iso(at) if self._settings.utc else span(max(0, at - self.now_ms))

    def ahead(self, instant: datetime | None) -> str:
        """Return `in 12s`, or with --utc the instant."""
        text = self.left(instant)
        return f"in {text}" if text and not self._settings.utc else text

    def clock(self, instant: datetime) -> str:
        """Return the local time of day, or with --utc the instant."""
        return iso_of(instant) if self._settings.utc else instant.astimezone().strftime("%H:%M:%S")

    def since(self, instant: datetime | None) -> str:
        """Return `40h ago`, or with --utc the instant."""
        text = self.ago(instant)
        return f"{text} ago" if text and not self._settings.utc else text


def _style(cell: str) -> str:
    if cell.startswith(("REQUIRES_ATTENTION", "UNCERTAIN", "no worker serves")):
        return "bold red"
    return "yellow" if cell == "PENDING_APPROVAL" else ""
