"""The proxy does to requests what tests ask for, and its record says so."""

import asyncio
from collections.abc import Awaitable, Callable
from email.utils import parsedate_to_datetime
from random import Random
from typing import Any

import pytest
from botocore.exceptions import ClientError, HTTPClientError

from tests.dynamodb import server
from tests.dynamodb.proxy import Fate, Wire, wire
from tests.dynamodb.test_emulator import Table, key, number, opened, refused, sort_keys, text

WRITE = "TransactWriteItems"


def through_the_proxy(test: Callable[[Wire, Table, Table], Awaitable[None]]) -> Callable[[str], None]:
    """Run a test with a proxy, a table by way of it, and the same table without it."""

    def run(env: str) -> None:
        async def inside(through: Wire) -> None:
            async with opened(env, server.emulator()) as table, server.client(through.endpoint) as client:
                await test(through, Table(client, table.name), table)

        with wire(server.emulator()) as through:
            asyncio.run(inside(through))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


def fates(through: Wire) -> list[Fate]:
    return [request.fate for request in through.record]


@through_the_proxy
async def test_requests_pass_and_are_recorded(through: Wire, table: Table, direct: Table) -> None:
    await table.transact(table.put("p"))
    assert await table.get("p") == await direct.get("p") == key("p")
    assert [(r.operation, r.status) for r in through.record] == [(WRITE, 200), ("GetItem", 200)]
    assert through.record[0].body["TransactItems"] == [table.put("p")]


@pytest.mark.parametrize(
    ("fate", "landed"),
    [(Fate.DROP, False), (Fate.FAIL, False), (Fate.LOSE, True), (Fate.FAIL_AFTER, True), (Fate.HALF, True)],
)
def test_an_answer_is_lost(fate: Fate, landed: bool, env: str) -> None:
    async def lost(through: Wire, table: Table, direct: Table) -> None:
        through.rule(WRITE, fate, skip=1, where=lambda body: body["TransactItems"][0]["Put"]["Item"]["pk"]["S"] == "p")
        await table.transact(table.put("p", "0"))
        await table.transact(table.put("other"))
        with pytest.raises((HTTPClientError, ClientError)):
            await table.transact(table.put("p"))
        assert fates(through) == [Fate.FORWARD, Fate.FORWARD, fate]
        assert (await direct.get("p") is not None) is landed
        await table.transact(table.put("p"))

    through_the_proxy(lost)(env)


@through_the_proxy
async def test_a_request_arrives_after_its_client_gave_up(through: Wire, table: Table, direct: Table) -> None:
    through.rule(WRITE, Fate.HOLD)
    writing = asyncio.create_task(table.transact(table.put("p")))
    await through.until(lambda: bool(through.seen(WRITE, Fate.HOLD)))
    writing.cancel()
    await asyncio.wait([writing])
    assert await direct.get("p") is None
    assert [request.status for request in through.release()] == [200]
    assert await direct.get("p") is not None


@through_the_proxy
async def test_requests_are_refused(through: Wire, table: Table, direct: Table) -> None:
    through.rule(WRITE, Fate.THROTTLE, 4)
    answers = [await refused(table.transact(table.put("p"), table.put("q"))) for _ in range(4)]
    assert answers[0] == ("TransactionCanceledException", ["ThrottlingError", "None"])
    assert answers[2] == ("TransactionCanceledException", ["ProvisionedThroughputExceeded", "None"])
    assert {answers[1][0], answers[3][0]} == {"ProvisionedThroughputExceededException", "ThrottlingException"}
    through.rule(WRITE, Fate.CONFLICT)
    conflict = await refused(table.transact(table.put("p"), table.put("q")))
    assert conflict == ("TransactionCanceledException", ["TransactionConflict", "None"])
    assert await direct.get("p") is None


@through_the_proxy
async def test_transactions_on_one_item_conflict_as_on_aws(through: Wire, table: Table, direct: Table) -> None:
    through.overlaps = True
    through.rule(WRITE, Fate.SILENT)
    first = asyncio.create_task(table.transact(table.put("p"), table.put("q")))
    await through.until(lambda: any(request.status for request in through.seen(WRITE, Fate.SILENT)))
    await table.transact(table.put("q"))  # the first has ended on the server
    first.cancel()

    async def write(i: int) -> str:
        try:
            await table.transact(table.put("one"), table.put(str(i)))
        except ClientError as error:
            return str(error.response["CancellationReasons"][0]["Code"])  # type: ignore[typeddict-item]
        return "landed"

    ended = await asyncio.gather(*map(write, range(20)))
    assert set(ended) == {"landed", "TransactionConflict"}
    assert ended.count("TransactionConflict") == len(through.seen(WRITE, Fate.CONFLICT))


@through_the_proxy
async def test_pages_and_batches_are_small(through: Wire, table: Table, direct: Table) -> None:
    await table.transact(*(table.put("p", str(i)) for i in range(5)))
    through.page_limit = through.batch_limit = 2
    first = await table.query("p")
    assert sort_keys(first) == ["0", "1"] and first["LastEvaluatedKey"] == key("p", "1")
    keys = [key("p", str(i)) for i in range(5)]
    batch = await table.client.batch_get_item(RequestItems={table.name: {"Keys": keys, "ConsistentRead": True}})
    assert len(batch["Responses"][table.name]) == 2
    assert batch["UnprocessedKeys"] == {table.name: {"Keys": keys[2:], "ConsistentRead": True}}


@through_the_proxy
async def test_an_index_lags(through: Wire, table: Table, direct: Table) -> None:
    """An entry is missing, an old one is still there, and they come in any order until the index is up to date."""

    async def due() -> dict[str, int]:
        items: list[dict[str, Any]] = (await table.due("lane", 100))["Items"]
        return {item["pk"]["S"]: int(item["due_at"]["N"]) for item in items}

    await table.transact(table.put("a", due_lane=text("lane"), due_at=number(1), body=text("long")))
    through.lag(0.0, Random(1))
    assert await due() == {"a": 1}
    await table.transact(table.put("b", due_lane=text("lane"), due_at=number(2)))
    await table.transact(table.update("a", "SET due_at = :d", d=number(50)))
    assert await due() == {"a": 1} and through.index is not None and through.index.stale > 0
    through.catch_up()
    assert await due() == {"a": 50, "b": 2}
    await table.transact({"Delete": {"TableName": table.name, "Key": key("b")}})
    assert await due() == {"a": 50, "b": 2}
    through.lag(0.5, Random(1))
    for i in range(10):
        await table.transact(table.put(f"c{i}", due_lane=text("lane"), due_at=number(i)))
    sizes = [len(await due()) for _ in range(10)]
    assert sizes[0] < sizes[-1] == 11


@through_the_proxy
async def test_the_clock_of_the_server_is_ahead(through: Wire, table: Table, direct: Table) -> None:
    async def date(of: Table) -> float:
        answer = await of.client.get_item(TableName=of.name, Key=key("p"))
        return parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"]).timestamp()

    through.date_ahead_s = 3600
    assert 3600 <= await date(table) - await date(direct) + 1 <= 3602


@through_the_proxy
async def test_a_server_that_is_away_is_recorded(through: Wire, table: Table, direct: Table) -> None:
    through.rule("GetItem", Fate.SILENT)
    reading = asyncio.create_task(table.get("p"))
    await through.until(lambda: bool(through.seen("GetItem", Fate.SILENT)))
    through.cut_all()
    with pytest.raises(HTTPClientError):
        await reading


def test_a_server_is_killed_and_starts_again_with_its_data(env: str) -> None:
    async def write(made: server.Server, through: Wire) -> None:
        async with opened(env, through.endpoint) as table:
            await table.transact(table.put("p"))
            made.kill()
            with pytest.raises(HTTPClientError):
                await table.get("p")
            assert through.record[-1].fate is Fate.AWAY
            made.start()
            assert await table.get("p") == key("p")

    made = server.Server(durable=True)
    try:
        with wire(made.endpoint) as through:
            asyncio.run(write(made, through))
    finally:
        made.close()
