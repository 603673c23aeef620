"""Table of the methods of a checkpointer in docs/langgraph.md: `python -m tests.langgraph.methods` writes it.

`test_saver.py` plays each method in its sync and its async form on each store, and asserts that it played these.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from tests.docs.pages import ROOT

PAGE: Final = ROOT / "docs/langgraph.md"
PLACE: Final = re.compile(r"(<!-- methods of a checkpointer -->\n).*?(<!-- end of methods -->\n)", re.DOTALL)
STORES: Final = ("memory", "SQLite", "PostgreSQL", "DynamoDB")
FORMS: Final = ("sync", "async")
CAPABILITIES: Final = frozenset(
    {"put", "put_writes", "get_tuple", "list", "delete_thread", "delete_for_runs", "copy_thread", "prune"}
)
"""Methods that the published suite tests, in their async form."""
BESIDE_THEIRS: Final = frozenset(
    {"put", "put_writes", "get_tuple", "get", "list", "get_delta_channel_history", "delete_thread"}
)
"""Methods of one story, which must be answered as LangGraph's SQLite saver answers it."""
OURS_ALONE: Final = frozenset({"delete_for_runs", "copy_thread", "prune"})
"""Methods of another story, because LangGraph's SQLite saver raises NotImplementedError."""
NO_STORE: Final = frozenset({"get_next_version", "with_allowlist"})
"""Methods that reach no store. They have no async form."""


def methods() -> set[str]:
    """Return the public methods of a checkpointer in their sync form."""
    found = {name for name in vars(BaseCheckpointSaver) if not name.startswith("_")}
    callables = {name for name in found if callable(getattr(BaseCheckpointSaver, name))}
    return {name for name in callables if not (name.startswith("a") and name[1:] in callables)}


def has(saver: type[Any], name: str) -> bool:
    """Return True if a saver has more than the method of the base class, which raises NotImplementedError."""
    return getattr(saver, name) is not getattr(BaseCheckpointSaver, name)


def lines() -> Iterator[str]:
    """Yield the lines of the table."""
    yield f"| method | {' | '.join(STORES)} | published suite | LangGraph's SQLite saver |"
    yield "|---" * (len(STORES) + 3) + "|"
    for name in sorted(BESIDE_THEIRS) + sorted(OURS_ALONE):
        forms = ", ".join(FORMS)
        suite = "async" if name in CAPABILITIES else "–"
        theirs = "the same answers" if name in BESIDE_THEIRS else "does not have it"
        yield f"| `{name}` | {' | '.join([forms] * len(STORES))} | {suite} | {theirs} |"


def written(page: str) -> str:
    """Return the text of the page with the table as it is now."""
    return PLACE.sub(lambda found: found[1] + "\n".join(lines()) + "\n" + found[2], page)


def theirs_has(name: str) -> bool:
    """Return True if both of LangGraph's SQLite savers have a method, `get` of the base class included."""
    return name == "get" or (has(SqliteSaver, name) and has(AsyncSqliteSaver, f"a{name}"))


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
