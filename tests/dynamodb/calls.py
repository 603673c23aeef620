"""CPU of one request to the stand-in, by the connection of the store and by the client of the SDK.

Usage: python -m tests.dynamodb.calls [--rounds N]
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from secrets import token_hex
from statistics import median
from typing import Any

import click

from outlast.store.dynamodb.tables import creation
from tests.dynamodb import server

Call = Callable[..., Awaitable[Any]]
BATCH = 100
TABLE = "runs"


def item(n: int) -> dict[str, Any]:
    """Return an item of about 700 bytes."""
    texts = {f"column_{k}": {"S": "some text of a row"} for k in range(12)}
    key = {"pk": {"S": "acme#run"}, "sk": {"S": f"event#{n:019d}"}}
    return {**key, "version": {"N": "7"}, "details": {"B": bytes(300)}, **texts}


def requests(name: str) -> dict[str, Callable[[int], dict[str, Any]]]:
    """Return the measured requests, by operation."""

    def put(n: int) -> dict[str, Any]:
        return {"TableName": name, "Item": item(n)}

    def action(n: int) -> dict[str, Any]:
        values = {":v": {"N": "6"}}
        condition = "attribute_not_exists(pk) OR version > :v"
        return {"Put": {**put(n), "ConditionExpression": condition, "ExpressionAttributeValues": values}}

    return {
        "PutItem": put,
        "TransactWriteItems": lambda n: {"TransactItems": [action(6 * n + k) for k in range(6)]},
        "GetItem": lambda n: {
            "TableName": name, "Key": {key: item(0)[key] for key in ("pk", "sk")}, "ConsistentRead": True
        },
    }  # fmt: skip


async def measured(call: Call, request: Callable[[int], dict[str, Any]]) -> float:
    """Return the CPU in microseconds of one request, sent one after the other."""
    began = time.process_time()
    for n in range(BATCH):
        await call(**request(n))
    return (time.process_time() - began) / BATCH * 1e6


async def compare(rounds: int) -> None:
    """Measure both clients in turn and print the medians."""
    environment = f"calls-{token_hex(4)}"
    async with server.connected(server.url(environment)) as connection, server.client() as sdk:
        await connection.call("CreateTable", **creation(connection.address, TABLE))
        methods = {"PutItem": sdk.put_item, "TransactWriteItems": sdk.transact_write_items, "GetItem": sdk.get_item}
        click.echo(
            f"{'operation':20} {'store':>8} {'SDK':>8}   microseconds of CPU, median of {rounds} rounds of {BATCH}"
        )
        for operation, request in requests(connection.address.table(TABLE)).items():

            async def ours(operation: str = operation, **given: Any) -> None:
                await connection.call(operation, **given)

            both = [(await measured(ours, request), await measured(methods[operation], request)) for _ in range(rounds)]
            store, other = (median(each[k] for each in both) for k in (0, 1))
            click.echo(f"{operation:20} {store:8.0f} {other:8.0f}")
    await server.drop(environment)


@click.command(help=__doc__)
@click.option("--rounds", default=7, show_default=True, help="Rounds of each measurement.")
def main(rounds: int) -> None:
    """Measure on a stand-in that is started for this."""
    asyncio.run(compare(rounds))


if __name__ == "__main__":
    main()
