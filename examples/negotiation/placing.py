"""Node 2's lookup: where a purchase is placed, from the cache that this installation has chosen.

The answer of a lookup is kept with the run. So a cache may know more, or another one may be chosen, by the time a visit
runs again: it gets the recorded answer.
"""

import asyncio
import functools
import os
from pathlib import Path

from outlast import RetryLater, lookup

from . import cache
from .cache import Classifications, InFolder, InMemory
from .kraljic import Classification
from .purchase import Purchase
from .similar import Semantic, bundled

FOLDER = "NEGOTIATION_CLASSIFICATIONS"
"""The environment variable that names the folder of the installation's cache; without it, the process keeps its own."""
BY = "NEGOTIATION_CLASSIFICATIONS_BY"
"""The environment variable that says how it is looked up in: by `key`, which is the default, or by `meaning`."""


@lookup(key="classification")
async def classification(purchase: Purchase) -> Classification:
    """Where it is placed. Aside, since a model takes a moment to load."""
    return await asyncio.to_thread(lambda: cache.placed(purchase, installed()))


def installed() -> Classifications:
    """The cache of this installation."""
    folder = os.environ.get(FOLDER, "")
    match os.environ.get(BY, "key"):
        case "key":
            return _exact(folder)
        case "meaning":
            return _semantic(folder)
        case other:
            raise RetryLater(f"{BY} is {other!r}; it may be key or meaning")


@functools.cache
def _exact(folder: str) -> Classifications:
    return InFolder(Path(folder)) if folder else InMemory()


@functools.cache
def _semantic(folder: str) -> Semantic:
    return Semantic(_exact(folder), bundled())
