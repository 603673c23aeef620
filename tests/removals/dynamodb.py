"""Safeguards of the DynamoDB store.

Modules are imported in the functions, so that a process that removes another safeguard does not load the client.
"""

from typing import Any

from tests.removals import Patch, replace


def lost_requests_repeated(patch: Patch) -> None:
    from outlast.store.dynamodb.connection import Away, Connection

    kept = Connection.call

    async def again(self: Connection, operation: str, **request: Any) -> dict[str, Any]:
        try:
            return await kept(self, operation, **request)
        except Away:  # as the SDK does unless its retries are off
            return await kept(self, operation, **request)

    replace(patch, kept, again)
