"""`outlast config show` and `outlast whoami`: the settings in force, and the caller."""

from typing import Any

import click
from pydantic import SecretStr

from outlast.cli.command_session import reads_client
from outlast.cli.exit_codes import OK
from outlast.cli.global_options import ELSEWHERE, Command, Group, settings_now
from outlast.cli.screen import Screen
from outlast.cli.serving import liveness_of
from outlast.core.durations import Liveness, milliseconds, span
from outlast.runtime.client import Client
from outlast.runtime.settings import UNKNOWN_SETTING, SettingValue, effective_settings, unknown_variables
from outlast.telemetry.redact import redacted

LIVENESS = "liveness."
HIDDEN = "••••••"


@click.group(cls=Group)
def config() -> None:
    """Show every setting with its value and source.

    The first source wins: command line, OUTLAST_… variables, .env, outlast.toml, defaults.
    """


@config.command("show")
def show() -> None:
    """Show every setting with its value and source.

    Secrets are hidden.
    """
    settings = settings_now()
    screen = Screen(settings)
    given = {name: getattr(settings, name) for name in ELSEWHERE if name in settings.given}
    every = list(effective_settings(given))
    unsaid = _liveness(every)
    values = [{**each._asdict(), "value": unsaid.get(each.name, _shown(each.value))} for each in every]
    astray = unknown_variables()
    if not screen.listing("settings", values, unknown=astray):
        rows = [(v["name"], _text(v["value"]), v["source"]) for v in values]
        screen.table(("SETTING", "VALUE", "SOURCE"), rows)
        for name in astray:
            screen.advice(UNKNOWN_SETTING % name)
    click.get_current_context().exit(OK)


def _liveness(every: list[SettingValue]) -> dict[str, str]:
    """Return the unset durations with the values that a worker uses."""
    durations = {each.name: each.value for each in every if each.name.startswith(LIVENESS)}
    given = {name.removeprefix(LIVENESS): milliseconds(value) for name, value in durations.items() if value}
    try:
        counts = liveness_of(given)
    except click.UsageError:  # the durations contradict each other, which a worker reports at its start
        counts = Liveness()
    unsaid = [name for name, value in durations.items() if not value]
    return {name: span(getattr(counts, name.removeprefix(LIVENESS))) for name in unsaid}


def _shown(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return HIDDEN if value.get_secret_value() else ""
    return redacted(list(value) if isinstance(value, tuple) else value)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(value)
    return "" if value is None else str(value)


@click.command("whoami", cls=Command)
@reads_client
async def whoami(client: Client, screen: Screen) -> int:
    """Show your name, tenant and roles.

    On a store you are the user of this machine, at a service the owner of the token.
    """
    view = await client.whoami()
    if screen.data(view):
        return OK
    screen.line(f"{view.name}  of tenant {view.tenant}" + ("" if view.person else "  (a program)"))
    roles = ["every role"] if view.every_role else [", ".join(view.roles) or "none"]
    until = [f"{screen.left(view.until_real)} left"] if view.until_real else []
    screen.pairs((("roles", roles), ("credential", until)))
    return OK
