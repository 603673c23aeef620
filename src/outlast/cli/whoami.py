"""`outlast whoami`: as whom the command line acts, and what that caller holds."""

import click

from outlast.cli.desk.port import Desk
from outlast.cli.failure import OK
from outlast.cli.screen import Screen
from outlast.cli.session import reads_desk
from outlast.cli.settings import Command


@click.command("whoami", cls=Command)
@reads_desk
async def whoami(desk: Desk, screen: Screen) -> int:
    """Show as whom you act: on a store the user of this machine, at a service whoever the token proves."""
    view = await desk.whoami()
    if screen.data(view):
        return OK
    screen.line(f"{view['name']}  of tenant {view['tenant']}" + ("" if view["person"] else "  (a program)"))
    roles = ["every role"] if view["every_role"] else [", ".join(view["roles"]) or "none"]
    until = [f"{screen.left(view['until_real'])} left"] if view["until_real"] else []
    screen.pairs((("roles", roles), ("credential", until)))
    return OK
