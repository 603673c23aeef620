"""The audit line of a command: who typed what, on which store, and how it ended (S32)."""

import logging
import os

import click

from outlast.cli.settings import Settings


def tell(ctx: click.Context, words: list[str], code: int) -> None:
    """Say it, where a file for such lines is named (OUTLAST_AUDIT)."""
    if not logging.getLogger("outlast.audit").handlers:
        return
    from outlast.cli.session import local_actor
    from outlast.telemetry.audit import audit

    settings = ctx.ensure_object(Settings)
    audit(
        "command",
        tenant=settings.tenant,
        by=local_actor(()).name,
        at=os.environ.get("SSH_CONNECTION", "").partition(" ")[0] or "local",
        outcome=code,
        roles=list(settings.role),
        on=settings.url or settings.store,
        asked=" ".join(words),
    )
