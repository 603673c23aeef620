"""The audit line of a command: who typed what, on which store, and how it ended (S32)."""

import logging
import os
import re

import click

from outlast.cli.settings import Settings

HEADER = re.compile(r"(?s)((?:--header=)?[^=]*=).*")
"""What `webhooks add --header` is given: its value is a secret, whatever its name is (S24)."""


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
        asked=" ".join(_told(words)),
    )


def _told(words: list[str]) -> list[str]:
    from outlast.telemetry.redact import GONE

    return [
        HEADER.sub(rf"\1{GONE}", word) if before == "--header" or word.startswith("--header=") else word
        for before, word in zip(["", *words], words, strict=False)
    ]
