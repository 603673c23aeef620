"""Attributes of runs: declared by a workflow, written with the start and a checkpoint, found by lists."""

from datetime import UTC, datetime
from enum import Enum
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from outlast import Context, Workflow
from outlast.core.durations import DAY
from outlast.core.rows.run_rows import ATTRIBUTE
from outlast.core.run_filters import interval_of
from outlast.errors import DefinitionError, InvalidInput
from outlast.insight.run_reads import run_page
from outlast.insight.tenant_rows import TenantRows
from outlast.operations.run_operations import ListRuns
from outlast.operations.run_query import parse_query, query_terms, query_text
from tests.engine.world import World


class Size(Enum):
    LARGE = "large"


class Customer(BaseModel):
    name: str = ""


class Order(BaseModel):
    customer: Customer = Customer()
    cents: int = 0
    urgent: bool = False
    note: str | None = None
    size: Size = Size.LARGE
    due: datetime = datetime(2026, 5, 4, tzinfo=UTC)
    share: float = 0.5
    kind: Literal["a", "b"] = "a"


class Wanted(BaseModel):
    customer: Customer
    source: str = ""


def ordering(**options: Any) -> Workflow[Any, Any, Any]:
    flow = Workflow("attributed", state=Order, **options)

    @flow.node(start=True)
    async def charge(ctx: Context[Order]) -> Literal["ship"]:
        ctx.state.cents += 1
        return "ship"

    @flow.node
    async def ship(ctx: Context[Order]) -> None:
        await ctx.receive("word", Customer)
        ctx.state.note = "sent"

    return flow


def rows_of(world: World) -> TenantRows:
    return TenantRows(world.store, "t")


async def listed(world: World, *where: str, **of: Any) -> list[str]:
    page = await run_page(rows_of(world), ListRuns(where=where, **of))
    return [each.run for each in page.runs]


@pytest.mark.every_store
async def test_lists_find_runs_by_attributes_that_follow_the_checkpoints(world: World) -> None:
    flow = ordering(attributes={"customer": "customer.name", "cents": "cents", "note": "note", "urgent": "urgent"})
    world.worker(flow)
    for run, name in (("r1", "acme"), ("r2", "hooli"), ("r3", "acme")):
        await world.start(flow, run, customer={"name": name})
    await world.settle()
    assert await listed(world, "customer=acme") == ["r3", "r1"]
    assert await listed(world, "customer=acme", limit=1) == ["r3"]
    first = await run_page(rows_of(world), ListRuns(where=["customer=acme"], limit=1))
    assert await listed(world, "customer=acme", cursor=first.next_cursor) == ["r1"]
    assert await listed(world, "customer=acme", "cents=1", "urgent=false") == ["r3", "r1"], "as of the checkpoint"
    assert await listed(world, "cents=0") == [], "the value before it finds nothing"
    assert await listed(world, "customer=acme", status="completed") == []
    assert await listed(world, q="HOOL") == ["r2"]
    await world.signal("word", "r1")
    assert await listed(world, "note=sent") == ["r1"], "the end is a checkpoint"
    (item,) = (await run_page(rows_of(world), ListRuns(where=["note=sent"]))).runs
    assert item.attributes == {"customer": "acme", "cents": 1, "note": "sent", "urgent": False}
    rows = await world.store.rows(ATTRIBUTE, ("t", "r1"))
    assert {(row.name, row.value, row.version) for row in rows} == {
        ("customer", "acme", 1), ("cents", "1", 2), ("note", "sent", 2), ("urgent", "false", 1),
    }  # fmt: skip


async def test_a_workflow_without_attributes_writes_nothing_about_them(world: World) -> None:
    flow = ordering()
    world.worker(flow)
    await world.start(flow, customer={"name": "acme"})
    assert (await rows_of(world).run("r1")).attributes_text == ""
    assert not await world.store.rows(ATTRIBUTE, ("t", "r1"))


async def test_an_unknown_attribute_is_refused_with_those_that_exist(world: World) -> None:
    flow = ordering(attributes=["cents"])
    world.worker(flow)
    await world.settle()
    with pytest.raises(InvalidInput, match="no workflow declares the attribute 'customer'") as refused:
        await listed(world, "customer=acme")
    assert "cents" in refused.value.why and "status" in refused.value.why
    assert await listed(world, "cents=7") == []
    for wrong in ("customer", "=acme", "a b=c", "customer="):
        with pytest.raises(InvalidInput):
            await listed(world, wrong)


async def test_attributes_of_the_input_alone_stay_as_they_began(world: World) -> None:
    flow: Any = Workflow("sourced", state=Order, input=Wanted, attributes=["source", "cents", "size", "due"])

    @flow.node(start=True)
    async def only(ctx: Context[Order]) -> None:
        ctx.state.cents = 5

    world.worker(flow)
    await world.start(flow, customer={"name": "acme"}, source="shop")
    assert {each.name: each.value for each in (await rows_of(world).run("r1")).attributes} == {
        "source": "shop", "cents": 5, "size": "large", "due": "2026-05-04T00:00:00Z",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("customer", "is 'customer'"),
        (["nothing"], "'nothing', which is no field"),
        (["share"], "'share', which is float"),
        (["customer"], "'customer', which is Customer"),
        ({"status": "note"}, "a term of every list"),
        ({"a b": "note"}, "has the name 'a b'"),
        ({f"n{n}": "note" for n in range(9)}, "names 9 fields"),
        ({"note": 1}, "has 1 for 'note'"),
    ],
)
def test_a_wrong_declaration_is_refused_where_it_is_made(given: Any, why: str) -> None:
    with pytest.raises(DefinitionError, match=why):
        ordering(attributes=given)


@pytest.mark.parametrize(
    "text",
    [
        'status:failed customer:"Acme Inc" hello "two words" since:2h version:7 is:flagged',
        "started:2026-05-04T22:00Z/2026-05-04T22:30Z https://x.y/z",
        "reason:exception waiting:approval node:charge cause:8f2 is:top",
        'note:"a \\"b\\" \\\\" plain',
        "",
    ],
)
def test_a_query_survives_its_own_text(text: str) -> None:
    found = parse_query(text)
    again = query_text(query_terms(found))
    assert parse_query(again) == found
    assert bool(again) == bool(text)


def test_a_date_is_a_day_in_utc_or_the_beginning_of_an_interval() -> None:
    day = int(datetime(2026, 5, 4, tzinfo=UTC).timestamp()) * 1_000
    assert interval_of("ended", "2026-05-04") == (day, day + DAY)
    assert interval_of("ended", "2026-05-04/2026-05-06") == (day, day + 2 * DAY)
    since = interval_of("started", parse_query("since:2026-05-04").started)
    assert since is not None and since.low == day and since.has(day + 400_000 * DAY)
    assert parse_query("since:2026-05-04T22:00Z") == parse_query("started:2026-05-04T22:00Z/")


def test_a_query_names_version_with_the_workflow() -> None:
    assert parse_query("workflow:order@7") == ListRuns(workflow="order", version=7)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("status:none", "status is one of queued"),
        ("since:soon", "neither a duration nor a date"),
        ("is:late", "flagged or top"),
        ("version:x", "a number from 1"),
        ("started:today", "a date, or two instants"),
        ("since:2026-13-01", "a date, or two instants"),
        ("ended:2026-05-04T22:00/", "two instants with a time zone"),
        ("node:", "a term is NAME:VALUE"),
        ("status:failed status:completed", "a term has one value"),
        ("customer:a customer:b", "an attribute has one value"),
        ("x" * 101, "at most 100 characters"),
        ("x " * 600, "at most 1,000 characters"),
        (" ".join(f"a{n}:1" for n in range(9)), "at most 8"),
    ],
)
def test_a_query_that_cannot_be_read_says_what_exists(text: str, why: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_query(text)
    assert why in f"{refused.value.what} {refused.value.why}"
