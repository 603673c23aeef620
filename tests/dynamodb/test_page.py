"""docs/dynamodb.md shows the tables of the code and the items of a real negotiation."""

import re
from pathlib import Path

import pytest

from outlast.store.port import Maintenance, Store
from tests.docs.pages import ROOT
from tests.dynamodb import page

CODE = ROOT / "src" / "outlast" / "store" / "dynamodb"
OPERATION = re.compile(r'"((?:Describe|Create|Update|Get|Put|Delete|Batch)[A-Z]\w+|Query|Scan)"')
NOT_SENT = {"UpdateExpression", "DeleteRequest", "TransactGetItems"}
TEXT = page.PAGE.read_text(encoding="utf-8")


def test_the_table_of_kinds_is_that_of_the_code() -> None:
    again = "write it again: python -m tests.dynamodb.page"
    assert page.section("kinds", TEXT).strip() == page.kinds(), again


def masked(table: str) -> list[str]:
    """Return the rows of a table without ids, instants and numbers."""
    table = re.sub(r"nego_\w+|(worker|writer)#\*#[\w-]+|\*#writer-[\w-]+|[0-9a-f]{64}|\d{4}-\d\d-\d\d", "ID", table)
    return [re.sub(r"\d{2,}", "N", line) for line in table.strip().splitlines()]


@pytest.mark.req("CKP-1", "CKP-6", "RT-5")
def test_the_items_of_a_negotiation_are_those_of_the_page(tmp_path: Path) -> None:
    items = page.played(tmp_path)
    shown = page.section("checkpoints", TEXT)
    assert [re.sub(r"`N`|`\d`", "`#`", line) for line in masked(page.checkpoints(items))] == [
        re.sub(r"`N`|`\d`", "`#`", line) for line in masked(shown)
    ]
    assert {*masked(page.others(items))} == {*masked(page.section("others", TEXT))}


def test_the_permissions_are_those_of_the_requests() -> None:
    sent = {name for file in CODE.glob("*.py") for name in OPERATION.findall(file.read_text(encoding="utf-8"))}
    (named,) = re.findall(r"## Set it up\n(.*?)\n## ", TEXT, re.DOTALL)
    shown = {*re.findall(r"`([A-Z][a-z]+[A-Z][A-Za-z]+|Query|Scan)`", named)}
    assert shown == (sent - NOT_SENT) | {"ConditionCheckItem"}


def test_each_method_of_the_port_is_in_the_table() -> None:
    (table,) = re.findall(r"## Each method of the store\n(.*?)\n## ", TEXT, re.DOTALL)
    derived = {"load", "load_many", "rows", "page"}  # written in the port, in terms of `query`
    methods = {name for of in (Store, Maintenance) for name in vars(of) if not name.startswith("_")}
    assert methods - derived <= {*re.findall(r"`(\w+)`", table)}
