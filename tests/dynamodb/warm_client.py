"""Opens a client once. Imported before processes are forked, so that each need not read the SDK's description again."""

import asyncio

from outlast.store.dynamodb.connection import Connection, DynamoAddress


async def _open_once() -> None:
    connection = Connection(DynamoAddress.parse("dynamodb://local/warm?endpoint=http://127.0.0.1:9"))
    await connection.open()  # sends nothing
    await connection.close()


asyncio.run(_open_once())
