"""What holds for every command: which store, whose tenant and roles, and how answers are printed."""

from dataclasses import dataclass
from typing import Any

import click

DEFAULT_STORE = "sqlite:outlast.db"
TABLE, JSON, NDJSON = "table", "json", "ndjson"


@dataclass
class Settings:
    """The global options as given, before or after the command; the later one counts."""

    store: str = DEFAULT_STORE
    tenant: str = "default"
    role: tuple[str, ...] = ()
    output: str = TABLE
    quiet: bool = False
    no_color: bool = False
    utc: bool = False


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    settings = ctx.ensure_object(Settings)
    if value and param.name:
        setattr(settings, param.name, value)


def _options(*, first: bool) -> list[click.Option]:
    """The global options: shown, and read from the environment, only where `first` on the line."""

    def option(*names: str, env: str = "", **more: Any) -> click.Option:
        shown: dict[str, Any] = {"envvar": env or None} if first else {"hidden": True}
        return click.Option(list(names), expose_value=False, callback=_keep, **shown, **more)

    return [
        option("--store", env="OUTLAST_STORE", metavar="URL", help=f"The store [OUTLAST_STORE; {DEFAULT_STORE}]."),
        option("--tenant", env="OUTLAST_TENANT", metavar="NAME", help="The tenant [default]."),
        option("--role", multiple=True, metavar="NAME", help="A role you hold (repeatable) [all of them]."),
        option("-o", "--output", type=click.Choice([TABLE, JSON, NDJSON]), help="How answers are printed [table]."),
        option("-q", "--quiet", is_flag=True, help="Print answers only, no advice."),
        option("--no-color", is_flag=True, env="NO_COLOR", help="Print without colours [NO_COLOR]."),
        option("--utc", is_flag=True, help="Exact instants instead of «3m ago»."),
    ]


AFTERWARDS = "The global options (--store, -o, …; see outlast --help) may stand here too."


class Command(click.Command):
    """A command that takes the global options too."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Its own parameters, then the global ones."""
        return [*super().get_params(ctx), *_options(first=False)]

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Say that the global options may stand here."""
        super().format_epilog(ctx, formatter)
        formatter.write_paragraph()
        formatter.write_text(AFTERWARDS)


class Group(click.Group):
    """A command of commands, which all take the global options."""

    command_class = Command

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Its own parameters, then the global ones."""
        return [*super().get_params(ctx), *_options(first=ctx.parent is None)]
