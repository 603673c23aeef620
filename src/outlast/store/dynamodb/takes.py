"""Finds the runs that a take may move: keys from indexes, which may lag, and then the items by strong reads."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from outlast.core.commit import Commit, Instant, Put, actions_of, bytes_of
from outlast.core.durations import HOUR, SECOND
from outlast.core.limits import ACTIONS_MAX, COMMIT_BYTES_MAX, ITEM_BYTES
from outlast.core.rows import RUN, Run, is_due
from outlast.core.run_transition import rearmed
from outlast.store.dynamodb.connection import ConditionRefused
from outlast.store.dynamodb.items import PK, Revision, lane_of, number, partition, place, text
from outlast.store.dynamodb.landing import Lander
from outlast.store.dynamodb.receipts import READ_S, Receipts
from outlast.store.fair_queueing import DueQuery, FairQueue
from outlast.store.tickets import Take

PAGE: Final = 1_000  # keys of one page of an index, where those of some tenants are passed over
PAGES_MAX: Final = 200  # pages that one query passes over; a larger backlog hides due runs of other tenants
OLD_MAX: Final = 200  # runs of an older clock mapping that one take looks at
OLD_AGAIN: Final = 10 * SECOND  # time after which an older mapping without runs is looked at again; doubled each time
OLD_AGAIN_MAX: Final = HOUR
NEVER: Final = (0, 0)


class RunFinder:
    """Finds due runs and runs of owners for one writer, one take after another."""

    def __init__(self, lander: Lander, receipts: Receipts, table: str) -> None:
        self._lander = lander
        self._receipts = receipts
        self._table = table
        self._fair = FairQueue()
        self._old: dict[str, tuple[int, int]] = {}  # when to look at an older mapping again, and the wait, by list

    async def find(self, take: Take, now: Instant) -> list[Run]:
        """Return the runs to choose from. Raises the errors of a connection."""
        if take.owners:
            return [run for owner in take.owners for run in await self._owned(owner, take.n)]
        queries = self._fair.queries(take.lanes, take.n, now.real, take.held)
        while query := queries.query:
            queries.answer(await self._due(query, now))
        found = {run[:2]: run for run in queries.found}
        for run in await self.of_older_mappings(take.lanes, now):
            found.setdefault(run[:2], run)
        return list(found.values())

    async def _owned(self, owner: str, limit: int) -> list[Run]:
        found: list[Run] = []
        async for page in self._keys("owner", "held_by = :value", {":value": {"S": owner}}, limit):
            found += [each.run for each in await self._lander.read_at(page) if each.run.owner == owner]
            if len(found) >= limit:
                break
        return found

    async def _due(self, query: DueQuery, now: Instant) -> list[Run]:
        """Return the oldest due runs of a lane by the present mapping."""
        values = {
            ":value": {"S": lane_of(query.lane, now.mapping)},
            ":since": {"N": str(query.since)},
            ":now": {"N": str(now.real)},
        }
        without = frozenset(partition(tenant) for tenant in query.without)
        limit = PAGE if without else query.limit
        found: list[Run] = []
        pages = 0
        async for page in self._keys("due", "due_lane = :value AND due_at BETWEEN :since AND :now", values, limit):
            keys = [pk for pk in page if pk[: pk.index("#") + 1] not in without] if without else page
            for each in await self._lander.read_at(keys):
                run = each.run
                if is_due(run, now.real) and run.lane == query.lane and run.tenant not in query.without:
                    found.append(run)
            pages += 1
            if len(found) >= query.limit or pages >= PAGES_MAX:
                break
        return found[: query.limit]

    async def of_older_mappings(self, lanes: Sequence[str], now: Instant) -> list[Run]:
        """Arm runs that wait by an older clock mapping again, and return those that are due (S-4)."""
        lists = [lane_of(lane, version) for lane in lanes for version in range(now.mapping)]
        lists = [name for name in lists if self._old.get(name, NEVER)[0] <= now.real]
        found = await asyncio.gather(*(self._of_older(name, now) for name in lists))
        return [run for runs in found for run in runs]

    async def _of_older(self, name: str, now: Instant) -> list[Run]:
        found: list[Run] = []
        seen = 0
        async for page in self._keys("due", "due_lane = :value", {":value": {"S": name}}, OLD_MAX):
            seen += len(page)
            armed = await asyncio.gather(*(self.rearm(each, now) for each in await self._lander.read_at(page)))
            found += [run for run in armed if run is not None and is_due(run, now.real)]
            if seen >= OLD_MAX:
                break
        wait = 0 if seen else min(max(OLD_AGAIN, 2 * self._old.get(name, NEVER)[1]), OLD_AGAIN_MAX)
        self._old[name] = (now.real + wait, wait)
        return found

    async def rearm(self, found: Revision, now: Instant) -> Run | None:
        """Arm a run by the present clock mapping if no worker owns it, and return its row.

        One that was due when its due_at was set stays so. Any other may be due by its mapping, but early by this one.
        Return None if the row has changed meanwhile: then a later look finds it. Raises the errors of a connection.
        """
        run = found.run
        if found.mapping >= now.mapping or run.owner or found.at_once:
            return run
        due_at = rearmed(run, self._lander.mapping)
        try:
            await self._receipts.insist("UpdateItem", within_s=READ_S, **self.rearming(found, due_at, now.mapping))
        except ConditionRefused:
            return None
        return run._replace(due_at=due_at)

    def rearming(self, found: Revision, due_at: int | None, mapping: int) -> dict[str, Any]:
        """Return the UpdateItem that arms a run by another clock mapping if it has not changed."""
        run = found.run
        values = {
            ":mapping": number(mapping), ":old": number(found.mapping), ":version": number(run.version),
            ":epoch": number(run.epoch), ":none": text(""), ":seq": number(run.inbox_seq),
        }  # fmt: skip
        condition = "#version = :version AND epoch = :epoch AND #owner = :none AND inbox_seq = :seq AND #mapping = :old"
        if run.due_at is None:
            condition += " AND attribute_not_exists(due_at)"
        else:
            condition += " AND due_at = :before"
            values[":before"] = number(run.due_at)
        if due_at is None:
            change = "SET #mapping = :mapping REMOVE due_at, due_lane, at_once"
        else:
            change = "SET #mapping = :mapping, due_at = :due_at, due_lane = :lane"
            change += " REMOVE at_once" if due_at != run.due_at else ""
            values |= {":due_at": number(due_at), ":lane": text(lane_of(run.lane, mapping))}
        return {
            "TableName": self._table,
            "Key": place(RUN, run[:2]).key(),
            "UpdateExpression": change,
            "ConditionExpression": condition,
            "ExpressionAttributeNames": {"#version": "version", "#owner": "owner", "#mapping": "mapping"},
            "ExpressionAttributeValues": values,
        }

    async def _keys(self, index: str, condition: str, values: dict[str, Any], limit: int) -> AsyncIterator[list[str]]:
        """Yield the partition keys of runs in the order of an index, page by page."""
        async for items in self._receipts.pages(
            TableName=self._table,
            IndexName=index,
            KeyConditionExpression=condition,
            ExpressionAttributeValues=values,
            Limit=limit,
        ):
            yield [item[PK]["S"] for item in items]


def in_transactions(commits: Sequence[Commit]) -> list[list[Commit]]:
    """Split the commits of a take into transactions with room for them. One with large rows has its own."""
    portions: list[list[Commit]] = []
    actions = size = 0
    for commit in commits:
        more = actions_of(commit) - 1  # without the receipt
        bytes_ = sum(bytes_of(write.row) for write in commit.writes if type(write) is Put)
        if not portions or bytes_ > ITEM_BYTES or actions + more > ACTIONS_MAX or size + bytes_ > COMMIT_BYTES_MAX:
            portions.append([])
            actions, size = 1, 0
        portions[-1].append(commit)
        actions += more
        size += bytes_ if bytes_ <= ITEM_BYTES else COMMIT_BYTES_MAX
    return portions
