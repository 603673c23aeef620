"""`outlast db`: care of the store under the names that operators of databases look for."""

import click

from outlast.cli.exit_codes import OK
from outlast.cli.export import export_command
from outlast.cli.maintenance import fsck
from outlast.cli.screen import Screen
from outlast.cli.session import on_store
from outlast.cli.settings import Group
from outlast.runtime.operations import Operations


@click.group("db", cls=Group)
def db() -> None:
    """Bring the store to this version's schema, check it, export a run."""


@db.command("migrate")
@on_store
async def migrate(ops: Operations, screen: Screen) -> int:
    """Bring the store to the schema of this version. Every command and worker does it when it opens the store."""
    facts = ops.store.facts()
    if not screen.data({"store": ops.store.url, "schema": facts["schema"]}):
        screen.line(f"{ops.store.url} has schema {facts['schema']}")
    return OK


db.add_command(fsck, "check")
db.add_command(export_command, "export")
