"""`outlast token new`: create an access token, and the line by which a service recognizes it."""

import os
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from outlast.cli.exit_codes import OK
from outlast.cli.global_options import Command, Group, settings_now
from outlast.cli.screen import Screen
from outlast.cli.text import inert
from outlast.clocks import SystemClock
from outlast.core.durations import SECOND
from outlast.errors import InvalidInput, to_install


@click.group("token", cls=Group)
def token() -> None:
    """Create access tokens for the service.

    For people and programs without an identity provider.
    """


@token.command("new", cls=Command)
@click.argument("name")
@click.argument("roles", nargs=-1, required=True)
@click.option("--program", is_flag=True, help="Token of an agent, a worker or a script, which never decides.")
@click.option("--days", type=click.IntRange(1, 3_650), help="Days until it expires [never].")
@click.option("--to", type=click.Path(dir_okay=False, path_type=Path), help="File to append the line to.")
@click.pass_context
def new(
    ctx: click.Context, name: str, roles: tuple[str, ...], program: bool, days: int | None, to: Path | None
) -> None:
    """Create a token for NAME with ROLES.

    Its tenant is that of --tenant. Roles are viewer, starter, operator, admin, approver, agent, worker, monitor,
    maintainer, and those of your approval rules. The token is shown once and not stored. Its line holds only a hash; it
    belongs in OUTLAST_AUTH__TOKENS, or in the file that OUTLAST_AUTH__TOKENS_FILE names.
    """
    settings = settings_now()
    today = datetime.fromtimestamp(SystemClock().wall() / SECOND, UTC)
    until = today + timedelta(days=days + 1) if days else None  # the first day on which it is not valid
    made, line = _of_service("outlast.service.identity.static_tokens").new_token(
        name, tenant=settings.tenant, roles=roles, person=not program, until=until
    )
    if to is not None:
        _add(to, line)
    screen = Screen(settings)
    permitting: set[str] = set().union(
        *_of_service("outlast.service.identity.permissions").permissions().roles.values()
    )
    if not permitting & set(roles):
        screen.advice(f"{inert(', '.join(roles))} alone permits nothing: add one of {', '.join(sorted(permitting))}")
    if not screen.data({"token": made, "line": line}):
        screen.line(f"token  {made}")
        screen.line(f"line   {line}")
        where = f"OUTLAST_AUTH__TOKENS_FILE={to}" if to else "the line to OUTLAST_AUTH__TOKENS"
        screen.advice(f"→ the token to its owner, {inert(where)}; then: outlast serve")
    ctx.exit(OK)


def _add(file: Path, line: str) -> None:
    """Append a line to a file that only its owner can read. Raises InvalidInput."""
    try:
        with open(os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "r+", encoding="utf-8") as lines:
            before = lines.read()
            lines.write(f"{'' if not before or before.endswith(chr(10)) else chr(10)}{line}\n")
    except OSError as error:
        raise InvalidInput(f"{file} cannot be written", error.strerror or str(error), "name another file") from None


def _of_service(name: str) -> Any:
    """Import a module of the service. Raises InvalidInput if its extra is not installed."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("outlast"):
            raise
        raise InvalidInput(
            "tokens need the extra `service`", f"{error.name} is not installed", to_install("service")
        ) from None
