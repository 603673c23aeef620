"""`worker --notify URL`: where people are told that a run needs them, and what the worker counted."""

import click

from outlast.engine.alerts import Notifier
from outlast.telemetry import Counters


def notifier_of(url: str) -> Notifier | None:
    """The notifier for a URL; None for ''. Raises click.UsageError for what is no address of HTTP."""
    if not url:
        return None
    if not url.startswith(("http://", "https://")):
        raise click.UsageError("--notify takes an http:// or https:// address")
    from outlast.outbox.notify import HttpNotifier

    return HttpNotifier(url)


def counted_text(counters: Counters) -> str:
    """What the worker counted, by name; '' where there was nothing to count."""
    raised = sorted((name, n) for name, n in counters.all().items() if n)
    return "counted: " + ", ".join(f"{name} {n}" for name, n in raised) if raised else ""
