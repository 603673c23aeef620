"""Safeguards of the DynamoDB store.

Modules are imported in the functions, so that a process that removes another safeguard does not load the client.
"""

from typing import Any

from tests.removals import Patch, replace


def lost_requests_repeated(patch: Patch) -> None:
    from outlast.store.dynamodb import connection

    patch.setattr(connection, "ATTEMPTS", 3)  # of the SDK


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


# --- the writing path ---------------------------------------------------------------------------
def receipts_not_compared(patch: Patch) -> None:
    from outlast.store.dynamodb import transact

    there = transact.Comparison(transact.PK, transact.PRESENT)
    replace(patch, transact._due, lambda receipt: [there, there])


def settings_not_compared(patch: Patch) -> None:
    from outlast.store.dynamodb import transact

    kept = transact._due
    replace(patch, kept, lambda receipt: kept(receipt)[:2])


def lost_answers_count_as_refused(patch: Patch) -> None:
    from outlast.errors import Unavailable
    from outlast.store.dynamodb.receipts import Receipts, Shard

    async def not_asked(self: Receipts, shard: Shard, within_s: float) -> bool:
        shard.lost = False
        raise Unavailable("the store does not answer")

    replace(patch, Receipts.settle, not_asked)


def refusals_by_old_rows(patch: Patch) -> None:
    from outlast.store.dynamodb import landing

    replace(patch, landing.Lander._read, lambda self, commit: self._read_runs(landing._assumed(commit)))


def inboxes_without_turns(patch: Patch) -> None:
    from outlast.store.dynamodb import landing

    patch.setattr(landing, "TURN_AFTER", 1_000)


def commits_of_a_run_at_once(patch: Patch) -> None:
    from outlast.store.dynamodb import writer

    replace(patch, writer._groups, lambda commit: set())


def renewals_wait_for_reads(patch: Patch) -> None:
    from outlast.store.dynamodb import connection

    patch.setattr(connection, "URGENT_CONNECTIONS", 0)


def older_mappings_not_searched(patch: Patch) -> None:
    from outlast.store.dynamodb.takes import RunFinder

    async def none(self: RunFinder, *given: Any) -> list[Any]:
        return []

    replace(patch, RunFinder.of_older_mappings, none)


def run_read_once(patch: Patch) -> None:
    from outlast.store.dynamodb.items import place
    from outlast.store.dynamodb.reads import RUN, DynamoReads

    async def once(self: DynamoReads, key: tuple[str, str], now: Any) -> Any:
        item = await self.items.get(place(RUN, key))
        return None if item is None else await self._parts_of_run(key, now, item)

    replace(patch, DynamoReads._rows_of_run, once)


# --- items ---------------------------------------------------------------------------------------
def numbers_not_padded(patch: Patch) -> None:
    from outlast.store.dynamodb import items

    kept = items._part
    replace(patch, kept, lambda value: kept(value) if isinstance(value, str) else str(value))


def bodies_of_any_write(patch: Patch) -> None:
    from outlast.store.dynamodb import items

    kept = items.whole

    def trusting(kind: Any, item: Any, bodies: Any) -> Any:
        stamp = {"S": item["bodies"]["S"].split(" ", 2)[2]}
        return kept(kind, item, [body | {"receipt": stamp} for body in bodies])

    replace(patch, kept, trusting)


def live_runs_expire(patch: Patch) -> None:
    from outlast.store.dynamodb import maintenance

    patch.setattr(maintenance, "has_ended", lambda item, ended_at: True)


def marks_without_receipt(patch: Patch) -> None:
    from outlast.store.dynamodb import reads

    kept = reads.ItemReader.call

    async def trusting(self: Any, operation: str, **request: Any) -> Any:
        if request.get("ExpressionAttributeValues", {}).pop(":receipt", None):
            request["ConditionExpression"] = request["ConditionExpression"].replace(
                "receipt = :receipt", "attribute_exists(pk)"
            )
        return await kept(self, operation, **request)

    replace(patch, kept, trusting)
