"""`outlast token new`: a credential of ours, and the line by which a service knows it."""

import os
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from outlast.cli.exit_codes import OK
from outlast.cli.screen import Screen
from outlast.cli.session import settings_now
from outlast.cli.settings import Command, Group
from outlast.cli.text import inert
from outlast.core.durations import SECOND
from outlast.errors import InvalidInput, to_install
from outlast.runtime.clocks import SystemClock


@click.group("token", cls=Group)
def token() -> None:
    """Make tokens for people and programs, where there is no issuer of your own."""


@token.command("new", cls=Command)
@click.argument("name")
@click.argument("roles", nargs=-1, required=True)
@click.option("--program", is_flag=True, help="An agent's, a worker's or a script's: it never decides.")
@click.option("--days", type=click.IntRange(1, 3_650), help="Good for so long [for ever].")
@click.option("--to", type=click.Path(dir_okay=False, path_type=Path), help="Add the line to this file.")
@click.pass_context
def new(
    ctx: click.Context, name: str, roles: tuple[str, ...], program: bool, days: int | None, to: Path | None
) -> None:
    """A new token of NAME, of the tenant of --tenant, with these ROLES: viewer, starter, operator, admin, approver,
    agent, worker, monitor, and those that your approvals ask for.

    The token is shown once and stands nowhere. Its line, which holds only a hash, goes to OUTLAST_AUTH__TOKENS, or to
    the file that OUTLAST_AUTH__TOKENS_FILE names.
    """
    settings = settings_now()
    today = datetime.fromtimestamp(SystemClock().wall() / SECOND, UTC)
    until = today + timedelta(days=days + 1) if days else None  # the day that it no longer is
    made, line = _of_service("static_tokens").new_token(
        name, tenant=settings.tenant, roles=roles, person=not program, until=until
    )
    if to is not None:
        _add(to, line)
    screen = Screen(settings)
    doors: set[str] = set().union(*_of_service("permissions").permissions().roles.values())
    if not doors & set(roles):
        screen.advice(f"{inert(', '.join(roles))} alone opens no door: add one of {', '.join(sorted(doors))}")
    if not screen.data({"token": made, "line": line}):
        screen.line(f"token  {made}")
        screen.line(f"line   {line}")
        where = f"OUTLAST_AUTH__TOKENS_FILE={to}" if to else "the line to OUTLAST_AUTH__TOKENS"
        screen.advice(f"→ the token to its owner, {inert(where)}; then: outlast serve")
    ctx.exit(OK)


def _add(file: Path, line: str) -> None:
    """A line more, in a file that only its owner reads. Raises InvalidInput."""
    try:
        with open(os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "r+", encoding="utf-8") as lines:
            before = lines.read()
            lines.write(f"{'' if not before or before.endswith(chr(10)) else chr(10)}{line}\n")
    except OSError as error:
        raise InvalidInput(f"{file} cannot be written", error.strerror or str(error), "name another file") from None


def _of_service(name: str) -> Any:
    """A module of the service, which is an extra. Raises InvalidInput."""
    try:
        return import_module(f"outlast.service.identity.{name}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("outlast"):
            raise
        raise InvalidInput(
            "tokens belong to the service, an extra", f"{error.name} is not installed", to_install("service")
        ) from None
