"""Global options of every command: store, tenant, roles, and the form of answers."""

import importlib
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import click
from pydantic import SecretStr
from typing_extensions import override

TABLE, JSON, NDJSON = "table", "json", "ndjson"
SENTENCE = 1_000  # characters of a help line: none is cut
ELSEWHERE = (
    "store",
    "url",
    "tenant",
    "output",
    "utc",
    "scheduler",
)  # options that the environment and files can set too


@dataclass
class CliSettings:
    """Values of the global options; an option after the command wins over one before it."""

    store: str = ""
    url: str = ""
    tenant: str = ""
    role: tuple[str, ...] = ()
    output: str = TABLE
    quiet: bool = False
    no_color: bool = False
    utc: bool = False
    scheduler: str = ""
    given: set[str] = field(default_factory=set)
    token: SecretStr = field(default_factory=lambda: SecretStr(""))

    def where(self) -> str:
        """Return ` --store URL` for suggested commands; '' for the default store and for URLs with a password."""
        from outlast.runtime.settings import DEFAULT_STORE
        from outlast.telemetry.redact import redact

        if self.store == DEFAULT_STORE or redact(self.store) != self.store:
            return ""
        return f" --store {shlex.quote(self.store)}"  # a shell expands the ? of a URL


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    settings = ctx.ensure_object(CliSettings)
    if value and param.name:
        setattr(settings, param.name, value)
        settings.given.add(param.name)


def complete(ctx: click.Context) -> None:
    """Set the options that the command line does not name from the settings. Raises InvalidInput for bad settings."""
    from outlast.runtime.settings import load

    loaded = load()
    settings = ctx.ensure_object(CliSettings)
    for name in ELSEWHERE:
        if name not in settings.given:
            setattr(settings, name, getattr(loaded, name))
    settings.token = loaded.token
    if loaded.audit:
        from outlast.telemetry.audit import write_to_file

        write_to_file(loaded.audit)
    module = {"module": loaded.module} if loaded.module else {}
    live = loaded.liveness.model_dump(exclude_none=True)
    port = {"metrics_port": loaded.metrics.port}
    ctx.default_map = {
        "worker": {**module, **loaded.worker.model_dump(), **live, **port},
        "dispatcher": port,
        "dev": {**module, "port": loaded.serve.port},
        "serve": {**module, **loaded.worker.model_dump(), **live, **loaded.serve.model_dump()},
        "explain": {"lease": {**module, **live}},
        "run": module,
        "check": module,
        "runs": {"fork": module, "test": module},
        "effects": {"resolve": module},
        "approvals": {"approve": module},
    }


def one_place(settings: CliSettings) -> None:
    """Prefer the store if the command line names it. Raises click.UsageError if it names a service, too."""
    if "store" in settings.given:
        if "url" in settings.given:
            raise click.UsageError("--store names a store and --url a service: use one of them")
        settings.url = ""
    if settings.url and (named := settings.given & {"tenant", "role"}):
        raise click.UsageError(f"--{min(named)} needs --store: a service identifies you by your token")


def settings_now() -> CliSettings:
    """Return the global options of the running command. Raises click.UsageError if they exclude each other."""
    settings = click.get_current_context().ensure_object(CliSettings)
    one_place(settings)
    return settings


def words_of(settings: CliSettings) -> list[str]:
    """Return the global options for a child process; `env_of` has the store."""
    words = [f"--{name}={getattr(settings, name)}" for name in ("tenant", "output") if name in settings.given]
    words += [f"--role={role}" for role in settings.role]
    words += [f"--{name.replace('_', '-')}" for name in ("quiet", "no_color", "utc") if getattr(settings, name)]
    return words


def env_of(settings: CliSettings) -> dict[str, str]:
    """Return the environment of a child process. It has the store, whose password a process list would show (S29)."""
    return {**os.environ, "OUTLAST_STORE": settings.store}


def _options(*, first: bool) -> list[click.Option]:
    """Return the global options; only those of the root command (`first`) are in its help."""

    def option(*names: str, env: str = "", **more: Any) -> click.Option:
        shown: dict[str, Any] = {"envvar": env or None} if first else {"hidden": True}
        return click.Option(list(names), expose_value=False, callback=_keep, **shown, **more)

    return [
        option("--store", metavar="URL", help="URL of the store [OUTLAST_STORE; sqlite:outlast.db]."),
        option("--url", metavar="URL", help="URL of a service instead; its token: OUTLAST_TOKEN [OUTLAST_URL]."),
        option("--tenant", metavar="NAME", help="Name of the tenant [OUTLAST_TENANT; default]."),
        option("--role", multiple=True, metavar="NAME", help="Role that you use; repeatable [every role]."),
        option("-o", "--output", type=click.Choice([TABLE, JSON, NDJSON]), help="Format of answers [table]."),
        option("-q", "--quiet", is_flag=True, help="Print answers without advice."),
        option("--no-color", is_flag=True, env="NO_COLOR", help="Print without colors [NO_COLOR]."),
        option("--utc", is_flag=True, help="Print exact times instead of 3m ago."),
    ]


AFTERWARDS = "The global options (--store, -o, …; see outlast --help) are accepted here too."


class Command(click.Command):
    """A command that accepts the global options, too."""

    @override
    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return [*super().get_params(ctx), *_options(first=False)]

    @override
    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        formatter.write_paragraph()
        formatter.write_text(AFTERWARDS)


class Group(click.Group):
    """A group whose commands accept the global options. `lazy`: command → where it is, imported when it is called."""

    command_class = Command

    def __init__(self, *args: Any, lazy: Mapping[str, str] | None = None, **more: Any) -> None:
        super().__init__(*args, **more)
        self._lazy = lazy or {}

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*self.commands, *self._lazy])

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._lazy:
            return super().get_command(ctx, cmd_name)
        module, _, name = self._lazy[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    @override
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        listed = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, each.get_short_help_str(SENTENCE)) for name, each in listed if each])

    @override
    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return [*super().get_params(ctx), *_options(first=ctx.parent is None)]
