"""Business time that passes at once, so that a test of a workflow that waits for days takes no time."""

import re
from datetime import timedelta
from typing import Final

from outlast.core.budget import SECOND
from outlast.core.commit import Mapping
from outlast.core.overlay import rearmed
from outlast.errors import InvalidInput
from outlast.store.port import Store

UNITS: Final = {"w": "weeks", "d": "days", "h": "hours", "m": "minutes", "s": "seconds", "ms": "milliseconds"}


def span(text: str | timedelta) -> timedelta:
    """A duration as people write it: "96h", "7d", "1d12h", "90s". Raises InvalidInput."""
    if isinstance(text, timedelta):
        return text
    parts = re.findall(r"(\d+)(ms|[wdhms])", text)
    if not parts or "".join(n + unit for n, unit in parts) != text:
        raise InvalidInput(f"{text!r} is no duration", "a duration is numbers with units", 'e.g. "96h", "7d", "1d12h"')
    return sum((timedelta(**{UNITS[unit]: int(n)}) for n, unit in parts), timedelta())


async def skip(
    store: Store,
    *,
    weeks: float = 0,
    days: float = 0,
    hours: float = 0,
    minutes: float = 0,
    seconds: float = 0,
    milliseconds: float = 0,
) -> None:
    """Let this much business time pass at once, for every run of the store; runs whose time has come fall due.

    Real time does not move: no lease lapses and no call times out. A worker takes what fell due as soon as it looks.
    Raises ValueError unless time passes forward.
    """
    span = timedelta(
        weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds
    ) / timedelta(milliseconds=1)
    if span <= 0:
        raise ValueError(f"business time only passes forward, not by {span / SECOND} s")
    now = await store.now()
    skipped = Mapping(0, now.real, now.business + round(span), store.mapping().rate)  # the store gives the version
    await store.set_mapping(skipped, rearmed)
