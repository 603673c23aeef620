"""Writes matrix.csv, the right of each role to each operation over HTTP: python -m tests.security.matrix.

The rows come from the routes, the declarations of operations and permissions.toml. The file is kept, so that a changed
right is a changed line. `test_matrix.py` compares it, and sends a request for each of its cells.
"""

import csv
import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from outlast.service.identity import permissions
from outlast.service.service_app import ROUTERS
from tests.security.server import PROGRAMS as PROGRAM_ROLES
from tests.security.server import ROLES

FILE: Final = Path(__file__).with_name("matrix.csv")
OPEN: Final = frozenset({"healthz", "readyz"})
"""Operations that need no credential."""
PROGRAMS: Final = frozenset({"worker", "agent"})
"""Roles whose credentials belong to programs in these tests."""
BOT: Final = frozenset(PROGRAM_ROLES["bot"])
"""Roles of a program that may do all that any program may."""
CALLERS: Final = ("none", *ROLES, "bot")


def routes(given: Iterable[Any]) -> Iterator[Any]:
    """Return every route of the application, including those of its routers."""
    for route in given:
        router = getattr(route, "original_router", None)
        yield from [route] if router is None else routes(router.routes)


def cells(operation: str) -> list[str]:
    """Return how each of `CALLERS` is answered."""
    if operation in OPEN:
        return ["ok"] * len(CALLERS)
    allowed, people_only = permissions().roles.get(operation, frozenset()), operation in permissions().people_only
    of_roles = [role in allowed and not (people_only and role in PROGRAMS) for role in ROLES]
    return ["401", *("ok" if each else "403" for each in (*of_roles, bool(allowed & BOT) and not people_only))]


def drawn() -> str:
    """Return the matrix as text, in the order of paths."""
    found = {
        (route.path, method, str(route.operation_id))
        for router in ROUTERS
        for route in routes(router.routes)
        for method in route.methods
    }
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(("operation", "method", "path", *CALLERS))
    rows.writerows([operation, method, path, *cells(operation)] for path, method, operation in sorted(found))
    return text.getvalue()


if __name__ == "__main__":
    FILE.write_text(drawn(), encoding="utf-8")
