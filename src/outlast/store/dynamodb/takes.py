"""Finds the runs that a take may move: keys from indexes, which may lag, and then the items by strong reads."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from outlast.core.commit import Commit, Instant, Mapping, Put, actions_of, bytes_of
from outlast.core.durations import HOUR, SECOND
from outlast.core.limits import ACTIONS_MAX, COMMIT_BYTES_MAX, ITEM_BYTES
from outlast.core.rows.run_rows import RUN, Run, is_due
from outlast.core.run_transition import rearmed
from outlast.errors import Corrupt
from outlast.store.dynamodb.connection import RUNS, ConditionRefused
from outlast.store.dynamodb.items import PK, Revision, lane_of, number, partition, place, text
from outlast.store.dynamodb.landing import Lander
from outlast.store.dynamodb.plans import DUE, OWNER
from outlast.store.dynamodb.reads import ItemReader
from outlast.store.fair_queueing import DueQuery, FairQueue
from outlast.store.sql import warn_once
from outlast.store.tickets import Offers, Take

PAGE: Final = 1_000  # keys of one page of an index, where those of some tenants are passed over
PAGES_MAX: Final = 200  # pages that one query passes over; a larger backlog hides due runs of other tenants
OLD_MAX: Final = 200  # runs of an older clock mapping that one take looks at
OLD_AGAIN: Final = 10 * SECOND  # time after which an older mapping without runs is looked at again; doubled each time
OLD_AGAIN_MAX: Final = HOUR
NEVER: Final = (0, 0)
Rearm = Callable[[Run, Mapping], int | None]


class RunFinder:
    """Finds due runs and runs of owners for one writer, one take after another."""

    def __init__(self, lander: Lander, items: ItemReader) -> None:
        self._lander = lander
        self._items = items
        self.offers = Offers()
        self._fair = FairQueue()
        self._old: dict[str, tuple[int, int]] = {}  # when to look at an older mapping again, and the wait, by list

    async def find(self, take: Take, now: Instant) -> list[Run]:
        """Return the runs to choose from. Raises Unavailable."""
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
        async for entries in self._items.index(RUNS, OWNER, owner, limit=limit):
            runs = self.offers.of(each.run for each in await self._lander.read_at(entries))
            found += [run for run in runs if run.owner == owner]
            if len(found) >= limit:
                break
        return found

    async def _due(self, query: DueQuery, now: Instant) -> list[Run]:
        """Return the oldest due runs of a lane by the present mapping."""
        lane = lane_of(query.lane, now.mapping)
        without = frozenset(partition(tenant) for tenant in query.without)
        limit = PAGE if without else query.limit
        found: list[Run] = []
        pages = 0
        async for entries in self._items.index(RUNS, DUE, lane, low=query.since, high=now.real, limit=limit):
            wanted = [item for item in entries if item[PK]["S"].partition("#")[0] + "#" not in without]
            # without those that no commit may move: they would fill the page of each take, and hide all others
            runs = self.offers.of(each.run for each in await self._lander.read_at(wanted))
            found += [
                run
                for run in runs
                if is_due(run, now.real) and run.lane == query.lane and run.tenant not in query.without
            ]
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
        async for entries in self._items.index(RUNS, DUE, name, limit=OLD_MAX):
            seen += len(entries)
            waiting, mapping = await self._lander.read_at(entries), self._lander.mapping
            armed = await asyncio.gather(*(self.rearm(each, mapping) for each in waiting))
            found += [run for run in armed if run is not None and is_due(run, now.real)]
            if seen >= OLD_MAX:
                break
        wait = 0 if seen else min(max(OLD_AGAIN, 2 * self._old.get(name, NEVER)[1]), OLD_AGAIN_MAX)
        self._old[name] = (now.real + wait, wait)
        return found

    async def rearm(
        self, found: Revision, mapping: Mapping, rearm: Rearm = rearmed, *, stays_due: bool = False
    ) -> Run | None:
        """Arm a run by a later clock mapping if no worker owns it, and return its row.

        One that was due when its due_at was set stays so, and one of which the caller says that it was due when the
        mapping changed. Any other may be due by its mapping, but early by this one. One whose timers cannot be read
        keeps its due_at, and is logged once. Return None if another writer has changed the row: a later look finds it.
        Raises Unavailable.
        """
        run = found.run
        if found.mapping >= mapping.version or run.owner:
            return run
        try:
            due_at = run.due_at if found.at_once or stays_due else rearm(run, mapping)
        except Corrupt as error:
            warn_once(run[:2], error.what)
            due_at = run.due_at
        try:
            await self._items.call("UpdateItem", **self._rearming(found, due_at, mapping.version))
        except ConditionRefused:
            return None
        return run._replace(due_at=due_at)

    def _rearming(self, found: Revision, due_at: int | None, mapping: int) -> dict[str, Any]:
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
            "TableName": self._items.table(RUNS),
            "Key": place(RUN, run[:2]).key(),
            "UpdateExpression": change,
            "ConditionExpression": condition,
            "ExpressionAttributeNames": {"#version": "version", "#owner": "owner", "#mapping": "mapping"},
            "ExpressionAttributeValues": values,
        }


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
