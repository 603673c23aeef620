"""Tables of docs/dynamodb.md from the code and from a real negotiation: `python -m tests.dynamodb.page` writes them."""

import asyncio
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from secrets import token_hex
from typing import Any, get_type_hints

import pytest

from outlast.core.rows.all_kinds import KINDS
from outlast.store.dynamodb.items import DIGITS, kind_of, lock_place, place, receipt_place
from tests.docs.pages import ROOT
from tests.dynamodb import server
from tests.examples.play import negotiate

PAGE = ROOT / "docs" / "dynamodb.md"
SCENARIO = "spot"
FIGURE = {
    "ingest": "1 Ingest", "classify": "2 Classify", "route": "3 Route", SCENARIO: "4x Negotiate",
    "evaluate": "5 Evaluate", "approve": "6 Approve", "award": "7 Award",
}  # fmt: skip
"""Nodes of the published figure by the nodes of the example."""
HOLDS = {
    "effect": "the effect: arguments, answer, attempts", "memo": "the answer of a lookup",
    "token": "the mark of something that happens once", "run": "the run's row", "message": "a message of its inbox",
    "wait": "a wait and what it was bound to", "approval": "an approval", "meta": "a fact about the store",
    "slot": "a slot of a limit", "topology": "the structure of a workflow version", "worker": "a worker and its lease",
    "writer": "a writer and its first receipt", "state_chunk": "a part of a large state",
}  # fmt: skip


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = ["| " + " | ".join(line) + " |" for line in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]]).replace("|  |", "| |")


# --- from the code -----------------------------------------------------------------------------------
def kinds() -> str:
    """Return the table of where each kind of row is."""
    rows = []
    for kind in KINDS:
        hints = get_type_hints(kind.row)
        columns = kind.row._fields[: kind.key]
        numbers = {f"{10 ** (DIGITS - 1) + i}": name.upper() for i, name in enumerate(columns)}
        key = tuple(10 ** (DIGITS - 1) + i if hints[name] is int else name.upper() for i, name in enumerate(columns))
        at = place(kind, key)
        pk, sk = at.pk, at.sk
        for digits, name in numbers.items():
            sk = sk.replace(digits, name)
        rows.append([kind.row.__name__, f"`{at.table}`", f"`{pk}`", f"`{sk}`"])
    lock, further = lock_place("TENANT", "RUN"), receipt_place("ID", 1)
    rows.append(["recovery lock", f"`{lock.table}`", f"`{lock.pk}`", lock.sk])
    rows.append(["further receipts of a writer", f"`{further.table}`", f"`{further.pk}`", f"`{further.sk}` …"])
    rows.append(["rest of a large row", "that of the row", "that of the row", "that of the row and `#body#00` …"])
    return table(["row", "table `ENV-…`", "`pk`", "`sk`"], rows)


# --- from a real run -----------------------------------------------------------------------------------
async def _items(env: str) -> dict[str, list[dict[str, Any]]]:
    found = {}
    async with server.client() as client:
        for name in server.TABLES:
            page = await client.scan(TableName=f"{env}-{name}")
            found[name] = sorted(page["Items"], key=lambda item: (item["pk"]["S"], item.get("sk", {}).get("S", "")))
    return found


def played(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Play a negotiation to its award on the emulator, and return the items of each table."""
    env = f"page-{token_hex(4)}"
    with pytest.MonkeyPatch.context() as patch:
        end = negotiate(folder, patch, SCENARIO, store=server.url(env))
    assert end.state.shown == "AWARDED"
    try:
        return asyncio.run(_items(env))
    finally:
        asyncio.run(server.drop(env))


def _value(item: dict[str, Any], name: str) -> str:
    return str(next(iter(item[name].values()))) if name in item else ""


def checkpoints(items: dict[str, list[dict[str, Any]]]) -> str:
    """Return the table of a run's checkpoints beside the figure."""
    rows = []
    for item in items["checkpoints"]:
        if "step_name" in item:
            name = _value(item, "step_name")
            step = [f"`{_value(item, each)}`" for each in ("step_name", "step_status", "completed_at", "version")]
            size = f"{len(item['sfn_state']['B'])} bytes"
            node = FIGURE[name] if _value(item, "step_status") == "completed" else ""
            rows.append([node, f"`{_value(item, 'sk')}`", *step, size])
    head = ["node of the figure", "`sk`", "`step_name`", "`step_status`", "`completed_at`", "`version`", "`sfn_state`"]
    return table(head, rows)


def others(items: dict[str, list[dict[str, Any]]]) -> str:
    """Return the table of all other items of the run and the store."""
    rows = []
    for name in ("idempotency", "recovery-locks", "runs"):
        for item in items[name]:
            sk = _value(item, "sk")
            if sk.endswith("#purged"):  # written by a worker that lives long enough
                continue
            kind = kind_of(sk)
            holds = HOLDS.get(kind.name, kind.name) if kind else "a further receipt"
            if sk == "schema":
                holds = "the version of the layout"
            rows.append([f"`{name}`", f"`{_value(item, 'pk')}`", f"`{sk}`", holds])
    return table(["table", "`pk`", "`sk`", "holds"], rows)


# --- the page ------------------------------------------------------------------------------------------
def section(name: str, page: str) -> str:
    """Return a generated part of the page."""
    found = re.search(rf"<!-- {name} -->\n(.*?)<!-- end -->", page, re.DOTALL)
    assert found, f"docs/dynamodb.md has no part {name}"
    return found[1]


def main() -> None:
    """Write every part of the page."""
    with tempfile.TemporaryDirectory() as folder:
        items = played(Path(folder))
    page = PAGE.read_text(encoding="utf-8")
    for name, text in (
        ("kinds", kinds()), ("checkpoints", checkpoints(items)), ("others", others(items)),
    ):  # fmt: skip
        begin = f"<!-- {name} -->\n"
        page = page.replace(f"{begin}{section(name, page)}<!-- end -->", f"{begin}{text}\n<!-- end -->")
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
