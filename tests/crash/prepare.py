"""What each process of our own stories gets before its life: the places of its world, its mailer watched, a mutant."""

from typing import Any

from outlast.testing.crash_points import CrashHook
from tests import mutants
from tests.crash import world
from tests.crash.agency import open_agency
from tests.crash.auction_client import watch_mail


def prepare(trace: CrashHook, ask: dict[str, Any]) -> None:
    """Called in the child."""
    world.places.reached = trace.reached
    watch_mail(trace)
    open_agency()
    if ask.get("mutant"):
        mutants.remove(ask["mutant"])
