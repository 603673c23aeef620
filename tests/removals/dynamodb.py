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


def jumps_not_noticed(patch: Patch) -> None:
    from outlast.store.dynamodb.clock import CheckedClock

    replace(patch, CheckedClock.refusal, lambda self: None)


def recovered_without_lock(patch: Patch) -> None:
    from outlast.store.dynamodb.transact import _Transaction

    replace(patch, _Transaction._lock, lambda self, run, until: None)


def claim_not_compared(patch: Patch) -> None:
    from outlast.store.dynamodb import transact

    def there(*row: Any) -> Any:
        return [transact.Comparison(transact.PK, transact.PRESENT)]

    replace(patch, transact._is_same, there)
    replace(patch, transact._in_force, there)
