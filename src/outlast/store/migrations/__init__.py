"""Numbered migrations from an empty store to the present schema."""

import json
from datetime import UTC, datetime
from typing import Any, Final

from outlast.core.durations import SECOND
from outlast.errors import StoreUnusable
from outlast.store.migrations.first_schema import STATEMENTS
from outlast.store.migrations.later_schemas import LATER

MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (STATEMENTS, *LATER)
SCHEMA: Final = len(MIGRATIONS)  # the schema that this version reads and writes
NEWEST: Final = ("wait", "schema")
"""A table and its column that stores of versions before the first release lack. They are refused."""


WRITTEN_BY: Final = "SELECT started_at, health FROM worker ORDER BY started_at DESC LIMIT 1"
"""The newest worker of a store, which names its version of Outlast."""


def unreleased(store: object, worker: tuple[Any, Any] | None = None) -> StoreUnusable:
    """Return the error for a store that lacks NEWEST. `worker`: the row of WRITTEN_BY, if it can be read."""
    started, version = _writer(worker)
    by = f"Outlast {version}, as of {started}" if version else "its version is not recorded"
    find = f" (its commit: git rev-list -1 --before={started} main)" if started else ""
    return StoreUnusable(
        f"the store {store} was written by a version before the first release: {by}",
        f"its table {NEWEST[0]} has no column {NEWEST[1]}",
        f"finish or export its runs with that version{find}, and start with an empty store",
    )


def newer(store: object, found: int, worker: tuple[Any, Any] | None = None) -> StoreUnusable:
    """Return the error for a store of a later schema. `worker`: the row of WRITTEN_BY, if it can be read."""
    started, version = _writer(worker)
    by = f"; a worker of version {version} started on it at {started}" if version else ""
    return StoreUnusable(
        f"the store {store} was written by a newer version of Outlast",
        f"its schema is {found}, this version knows {SCHEMA}{by}",
        f"update Outlast to {version} or later" if version else "update Outlast",
    )


def _writer(worker: tuple[Any, Any] | None) -> tuple[str, str]:
    """Return start and version of a worker in a store of any version; '' for what it does not record."""
    if worker is None:
        return "", ""
    try:
        started = datetime.fromtimestamp(int(worker[0]) / SECOND, UTC)
        version = json.loads(worker[1] or "{}").get("version")
    except (AttributeError, OSError, OverflowError, TypeError, ValueError):
        return "", ""
    return f"{started:%Y-%m-%dT%H:%M:%SZ}", version if isinstance(version, str) else ""
