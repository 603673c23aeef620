"""Preparation of each child process: the crash points of its receivers, the watched client, and a removed safeguard."""

from typing import Any

from outlast.testing.crash_values import CrashHook
from tests import mutants
from tests.crash import receiver
from tests.crash.agency import open_agency
from tests.crash.auction_client import watch_mail


def prepare(trace: CrashHook, ask: dict[str, Any]) -> None:
    """Prepare the child process for its scenario."""
    receiver.places.reached = trace.reached
    watch_mail(trace)
    open_agency()
    if ask.get("mutant"):
        mutants.remove(ask["mutant"])
