"""What holds for every command: which store, whose tenant and roles, and how answers are printed."""

import os
import shlex
from dataclasses import dataclass, field
from typing import Any

import click
from pydantic import SecretStr

TABLE, JSON, NDJSON = "table", "json", "ndjson"
SENTENCE = 1_000  # characters: none is cut
ELSEWHERE = ("store", "url", "tenant", "output", "utc")  # options that the environment and files may say too


@dataclass
class Settings:
    """The global options: as given before or after the command, the later one counting; else as said elsewhere."""

    store: str = ""
    url: str = ""
    tenant: str = ""
    role: tuple[str, ...] = ()
    output: str = TABLE
    quiet: bool = False
    no_color: bool = False
    utc: bool = False
    given: set[str] = field(default_factory=set)
    token: SecretStr = field(default_factory=lambda: SecretStr(""))

    def where(self) -> str:
        """« --store URL» for a command that is advised; '' where that is the usual store, or its URL has a password."""
        from outlast.runtime.settings import DEFAULT_STORE
        from outlast.telemetry.redact import redact

        if self.store == DEFAULT_STORE or redact(self.store) != self.store:
            return ""
        return f" --store {shlex.quote(self.store)}"  # the ? of a URL is a pattern to a shell


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    settings = ctx.ensure_object(Settings)
    if value and param.name:
        setattr(settings, param.name, value)
        settings.given.add(param.name)


def complete(ctx: click.Context) -> None:
    """Fill in what the command line does not say, for the global options and those of every command.

    Raises InvalidInput for settings that cannot be used.
    """
    from outlast.runtime.settings import load

    said = load()
    settings = ctx.ensure_object(Settings)
    for name in ELSEWHERE:
        if name not in settings.given:
            setattr(settings, name, getattr(said, name))
    settings.token = said.token
    if said.audit:
        from outlast.telemetry.audit import write_to_file

        write_to_file(said.audit)
    module = {"module": said.module} if said.module else {}
    live = said.liveness.model_dump(exclude_none=True)
    port = {"metrics_port": said.metrics.port}
    ctx.default_map = {
        "worker": {**module, **said.worker.model_dump(), **live, **port},
        "dispatcher": port,
        "dev": {**module, "port": said.serve.port},
        "serve": {**module, **said.worker.model_dump(), **live, **said.serve.model_dump()},
        "explain": {"lease": {**module, **live}},
        "run": module,
        "check": module,
        "effects": {"resolve": module},
        "approvals": {"approve": module},
    }


def one_place(settings: Settings) -> None:
    """The store or a service: what the command line names counts. Raises click.UsageError for both."""
    if "store" in settings.given:
        if "url" in settings.given:
            raise click.UsageError("--store is the store itself, --url a service in front of it: say one of them")
        settings.url = ""
    if settings.url and (told := settings.given & {"tenant", "role"}):
        raise click.UsageError(f"--{min(told)} goes with --store: a service knows who you are by your token")


def words_of(settings: Settings) -> list[str]:
    """The global options as the line has them, for a process that this one begins; the store is in `env_of`."""
    words = [f"--{name}={getattr(settings, name)}" for name in ("tenant", "output") if name in settings.given]
    words += [f"--role={role}" for role in settings.role]
    words += [f"--{name.replace('_', '-')}" for name in ("quiet", "no_color", "utc") if getattr(settings, name)]
    return words


def env_of(settings: Settings) -> dict[str, str]:
    """The environment of such a process. The store may have a password, which every process list would show (S29)."""
    return {**os.environ, "OUTLAST_STORE": settings.store}


def _options(*, first: bool) -> list[click.Option]:
    """The global options: shown only where `first` on the line."""

    def option(*names: str, env: str = "", **more: Any) -> click.Option:
        shown: dict[str, Any] = {"envvar": env or None} if first else {"hidden": True}
        return click.Option(list(names), expose_value=False, callback=_keep, **shown, **more)

    return [
        option("--store", metavar="URL", help="The store [OUTLAST_STORE; sqlite:outlast.db]."),
        option("--url", metavar="URL", help="A service instead of a store; its token: OUTLAST_TOKEN [OUTLAST_URL]."),
        option("--tenant", metavar="NAME", help="The tenant [OUTLAST_TENANT; default]."),
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

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Each command with its first sentence, whole."""
        listed = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, each.get_short_help_str(SENTENCE)) for name, each in listed if each])

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Its own parameters, then the global ones."""
        return [*super().get_params(ctx), *_options(first=ctx.parent is None)]
