"""Output of answers: tables and sentences for people, JSON or NDJSON for programs."""

import json
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click
from pydantic import BaseModel

from outlast.cli.global_options import JSON, NDJSON, TABLE, CliSettings
from outlast.cli.text import inert, json_escaped
from outlast.core.durations import span
from outlast.core.events import FAR_FROM, FAR_TEXT, iso
from outlast.models import milliseconds

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

WIDE = 10_000  # columns of a pipe: no cell is folded in it
ID_WIDTH_MAX: Final = 200  # columns: a longer stored id would leave no room for the other cells


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
    return _iso(milliseconds(at)) if at is not None else ""


def _iso(at_ms: int) -> str:
    return iso(at_ms) if at_ms < FAR_FROM else FAR_TEXT


class Screen:
    """Output in the requested format. `now_ms`: business time of the store."""

    def __init__(self, settings: CliSettings, now_ms: int = 0) -> None:
        self._settings = settings
        self.now_ms = now_ms
        self.for_people = settings.output == TABLE
        self.in_lines = settings.output == NDJSON
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
        if self.in_lines:
            self.json_line(json_of_model(value, without))
        else:
            click.echo(json_escaped(json.dumps(json_of_model(value, without), ensure_ascii=False, indent=2)))
        return True

    def json_line(self, value: Any) -> None:
        """Print JSON data on one line."""
        click.echo(json_escaped(json.dumps(value, ensure_ascii=False)))

    def listing(self, name: str, items: Sequence[Any], *, without: Collection[str] = (), **more: Any) -> bool:
        """Print a list as one JSON object, or one item per line with ndjson. Return False if people read."""
        if self.in_lines:
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
        console = self.console()
        with console.capture() as shown:  # rich handles a closed pipe in its own way
            console.print(self.rich_table(columns, rows))
        click.echo(shown.get(), nl=False, color=True)

    def console(self) -> "Console":
        """Return a console as wide as the terminal, or as wide as needed in a pipe."""
        from rich.console import Console

        width = None if sys.stdout.isatty() else WIDE
        return Console(no_color=self.no_color or None, width=width, highlight=False, emoji=False)

    def rich_table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> "Table":
        """Return a table for a console."""
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=True, header_style="bold", padding=(0, 1))
        whole = [max((len(row[n]) for row in rows), default=0) for n in range(len(columns))]
        for n, name in enumerate(columns):
            table.add_column(name, overflow="fold", min_width=min(whole[n], ID_WIDTH_MAX) if n == 0 else None)
        for row in rows:
            table.add_row(*(Text(inert(cell), style=_style(cell)) for cell in row))
        return table

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
        return _iso(at) if self._settings.utc or at >= FAR_FROM else span(max(0, at - self.now_ms))

    def ahead(self, instant: datetime | None) -> str:
        """Return `in 12s`, or with --utc the instant."""
        text = self.left(instant)
        return f"in {text}" if text and text != FAR_TEXT and not self._settings.utc else text

    def clock(self, instant: datetime) -> str:
        """Return the local time of day, or with --utc the instant."""
        return (
            iso_of(instant)
            if self._settings.utc or milliseconds(instant) >= FAR_FROM
            else instant.astimezone().strftime("%H:%M:%S")
        )

    def since(self, instant: datetime | None) -> str:
        """Return `40h ago`, or with --utc the instant."""
        text = self.ago(instant)
        return f"{text} ago" if text and not self._settings.utc else text


def _style(cell: str) -> str:
    if cell.startswith(("REQUIRES_ATTENTION", "UNCERTAIN", "no worker serves")):
        return "bold red"
    return "yellow" if cell in ("PENDING_APPROVAL", "WAITING_FOR_APPROVAL") else ""
