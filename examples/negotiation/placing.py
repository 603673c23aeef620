"""The lookup of node 2: the classification of a purchase, from the cache that the installation configures.

The run records the result of a lookup. If the node runs again, it gets the same classification, even if the cache has
changed or another one is configured.
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
"""The environment variable with the folder of the cache. If it is unset, the cache is in memory."""
BY = "NEGOTIATION_CLASSIFICATIONS_BY"
"""The environment variable that selects the comparison: `key` (exact, default) or `meaning` (similar texts)."""


@lookup(key="classification")
async def classification(purchase: Purchase) -> Classification:
    """Return the classification of a purchase. It runs in a thread because loading a model blocks."""
    return await asyncio.to_thread(lambda: cache.placed(purchase, installed()))


def installed() -> Classifications:
    """Return the configured cache. Raises RetryLater if the configuration is invalid."""
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
