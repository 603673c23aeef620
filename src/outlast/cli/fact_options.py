"""Options for the declared facts that a caller states about a run or a webhook."""

from collections.abc import Callable, Mapping
from typing import Any

import click

from outlast.core.detail_fields import DetailField


def fact_options(fields: Mapping[str, DetailField]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add an option for each fact to a command."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for name, each in reversed([*fields.items()]):
            option, metavar = f"--{name.replace('_', '-')}", each.noun.upper().replace(" ", "_")
            command = click.option(option, default="", metavar=metavar, help=each.meaning)(command)
        return command

    return add
