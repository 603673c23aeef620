"""The one transaction of a judged commit: its actions, and the conditions that verify all that was assumed.

DynamoDB only compares. Each item has one action, so what a commit writes to an item and what it expects of it become
one condition. A run is compared in all that a judgement depends on, which is the fence: version, epoch, owner, visit,
number of the last message, due_at.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

from outlast.core.commit import AppendMessage, Commit, Erase, Fence, Put, Wake
from outlast.core.durations import LOCK_KEPT, SECOND
from outlast.core.machine import ENDED, NO_HOLDER, LeaseStatus
from outlast.core.rows.all_kinds import KINDS
from outlast.core.rows.outbox_rows import UNPUBLISHED
from outlast.core.rows.row_kind import AnyKind, Key
from outlast.core.rows.run_rows import RUN, Run
from outlast.core.rows.store_rows import WRITER, Writer
from outlast.store.batch import Batch, RowChange
from outlast.store.dynamodb.items import (
    PK,
    Item,
    ItemPlace,
    Revision,
    Stamp,
    Value,
    encode,
    lane_of,
    lock_place,
    number,
    place,
    places_of_size,
    receipt_place,
    text,
)

Action: TypeAlias = dict[str, dict[str, Any]]
"""One member of `TransactItems`: a Put, Update, Delete or ConditionCheck."""
LOCK_CONDITION: Final = "attribute_not_exists(pk) OR expires_at < :now_epoch"
ABSENT: Final = "absent"
PRESENT: Final = "present"
TURN_MS: Final = 1_000  # time for which other writers wait for the turn of one at an inbox


class Receipt(NamedTuple):
    """The receipt that a transaction leaves: item `shard` of a writer goes from batch - 1 to `batch`.

    `settings`: the clock mapping and the subscribed tenants by which the commit was judged.
    """

    writer: str
    shard: int
    batch: int
    settings: str

    @property
    def stamp(self) -> Stamp:
        """Return the identity that each item of the transaction carries."""
        return Stamp(self.writer, self.shard, self.batch)


class Comparison(NamedTuple):
    """A test of an attribute: = or <> a value, or whether it is there."""

    attribute: str
    how: str
    value: Value | None = None


_MISSING: Final = Comparison(PK, ABSENT)
_ALIVE: Final = Comparison("status", "=", text(LeaseStatus.ALIVE))


def actions(
    env: str,
    batch: Batch,
    commits: Sequence[Commit],
    receipt: Receipt,
    known: Mapping[Key, Revision],
    *,
    lease_end: Callable[[str], int],
    shards: Mapping[str, int],
) -> list[Action]:
    """Return the actions that land what `batch` judged; the receipt is the first.

    `commits`: those judged, in order. `known`: the runs by which they were judged. `lease_end`: real end of the lease
    of a worker. `shards`: number of receipts of each writer whose row is written.
    """
    transaction = _Transaction(env, batch, receipt, known)
    transaction.expect(commits)
    for write in (write for commit in commits for write in commit.writes if type(write) is Erase):
        for where in places_of_size(write.kind, write.key, write.size):
            transaction.delete(where)
    for kind in KINDS:
        for left in batch.changes[kind.name].values():
            if kind is RUN:
                transaction.write_run(left, lease_end)
            elif kind is WRITER and left.replaces:
                transaction.write_writer(left, shards[left.row.id])
            else:
                transaction.put(left)
    for mark in batch.published:
        transaction.delete(place(UNPUBLISHED, mark[: UNPUBLISHED.key]))
    return transaction.actions()


def changed_runs(batch: Batch, known: Mapping[Key, Revision]) -> dict[Key, Revision]:
    """Return the runs that the batch changes, as they are once it has landed."""
    changes = batch.changes[RUN.name].items()
    return {
        key: Revision(left.row, _mapping_of(left.row, old, batch), _is_at_once(left.row, old, batch))
        for key, left in changes
        for old in (known.get(key),)
    }


def receipt_action(env: str, receipt: Receipt) -> Action:
    """Return the update that leaves a receipt if the writer is open and its settings are still in force."""
    return {"Update": _request(env, receipt_place(receipt.writer, receipt.shard), _leave(receipt), _due(receipt))}


def refuse_late(env: str, receipt: Receipt) -> dict[str, Any]:
    """Return the UpdateItem after which a transaction with this receipt can never land. It leaves the next receipt.

    If its condition fails, the transaction has landed, or another one with the next receipt.
    """
    later = {"batch": number(receipt.batch + 1)}
    return _request(env, receipt_place(receipt.writer, receipt.shard), later, _due(receipt)[1:2])


# --- turns at an inbox -------------------------------------------------------------------------
def keep_turns(update: dict[str, Any], writer: str, real: int) -> None:
    """Let the update of an inbox wait for the turn of another writer, and end its own turn."""
    update["UpdateExpression"] += " REMOVE turn_of, turn_until, turn_rank"
    update["ConditionExpression"] += (
        " AND (attribute_not_exists(turn_of) OR turn_of = :turn_of OR turn_until < :turn_now)"
    )
    update["ExpressionAttributeValues"] |= {":turn_of": text(writer), ":turn_now": number(real)}


def turn_request(table: str, key: Item, writer: str, refusals: int, real: int) -> dict[str, Any]:
    """Return the UpdateItem that gives a writer the next turn at an inbox.

    A writer far from the store would lose every race against near ones, which append again before its request arrives.
    So the writer that was refused more often goes first, and the others wait until its message is there or its turn
    is over.
    """
    return {
        "TableName": table,
        "Key": key,
        "UpdateExpression": "SET turn_of = :turn_of, turn_until = :turn_until, turn_rank = :rank",
        "ConditionExpression": "attribute_exists(pk) AND (attribute_not_exists(turn_of) OR turn_of = :turn_of"
        " OR turn_until < :turn_now OR turn_rank < :rank)",
        "ExpressionAttributeValues": {
            ":turn_of": text(writer), ":turn_until": number(real + TURN_MS), ":turn_now": number(real),
            ":rank": number(refusals),
        },
    }  # fmt: skip


# --- conditions --------------------------------------------------------------------------------
def _leave(receipt: Receipt) -> Item:
    return {"batch": number(receipt.batch)}


def _due(receipt: Receipt) -> list[Comparison]:
    """Return the conditions of a receipt, that on the previous one in the second place."""
    previous, settings = number(receipt.batch - 1), text(receipt.settings)
    return [_ALIVE, Comparison("batch", "=", previous), Comparison("settings", "=", settings)]


def _version_is(version: int, kind: AnyKind) -> Comparison:
    if not version:
        return _MISSING
    return Comparison("version", "=", number(version)) if kind.versioned else Comparison(PK, PRESENT)


def _is_same(run: Run) -> list[Comparison]:
    """Return the conditions that the run has not changed in anything that a judgement depends on."""
    return [
        Comparison("version", "=", number(run.version)),
        Comparison("epoch", "=", number(run.epoch)),
        Comparison("owner", "=", text(run.owner)),
        Comparison("visit", "=", number(run.visit)),
        Comparison("inbox_seq", "=", number(run.inbox_seq)),
        _is_due_at(run.due_at),
    ]


def _is_due_at(due_at: int | None) -> Comparison:
    return Comparison("due_at", ABSENT) if due_at is None else Comparison("due_at", "=", number(due_at))


def _will_look(run: Run) -> list[Comparison]:
    """Return the conditions that a worker will read the run's inbox anyway: it is owned still, or due still."""
    owner = Comparison("owner", "=", text(run.owner))
    return [owner] if run.owner else [owner, _is_due_at(run.due_at)]


def _in_force(fence: Fence, run: Run) -> list[Comparison]:
    """Return the conditions of a fence. The number of the last message is among them, because Done answers it."""
    return [
        Comparison("epoch", "=", number(fence.epoch)),
        Comparison("visit", "=", number(fence.visit)),
        Comparison("owner", "<>", text(ENDED)),
        Comparison("inbox_seq", "=", number(run.inbox_seq)),
        *([_version_is(fence.version, RUN)] if fence.version is not None else ()),
    ]


def _mapping_of(run: Run, old: Revision | None, batch: Batch) -> int:
    """Return the version of the clock mapping by which the due_at of a run is set.

    A commit that leaves the due_at of a run without an owner has not converted it again.
    """
    unchanged = old is not None and not run.owner and run.due_at == old.run.due_at
    return old.mapping if old is not None and unchanged else batch.now.mapping


def _is_at_once(run: Run, old: Revision | None, batch: Batch) -> bool:
    """Return True if the run was due already when its due_at was set, so that it stays due by every mapping."""
    if old is not None and not run.owner and run.due_at == old.run.due_at:
        return old.at_once
    return run.due_at is not None and run.due_at <= batch.now.real


# --- requests ----------------------------------------------------------------------------------
@lru_cache(1_000)
def _texts(sets: tuple[str, ...], tests: tuple[tuple[str, str], ...]) -> tuple[str, str, dict[str, str]]:
    """Return the update expression, the condition and the names of a request. Most words of ours are reserved."""
    update = "SET " + ", ".join([f"#{name} = :s{i}" for i, name in enumerate(sets)]) if sets else ""
    spelled = {PK: PK}
    conditions: list[str] = []
    for i, (attribute, how) in enumerate(tests):
        name = spelled.get(attribute, f"#{attribute}")
        if how == ABSENT:
            conditions.append(f"attribute_not_exists({name})")
        elif how == PRESENT:
            conditions.append(f"attribute_exists({name})")
        else:
            conditions.append(f"{name} {how} :c{i}")
    names = {f"#{name}": name for name in (*sets, *(name for name, _ in tests)) if name != PK}
    return update, " AND ".join(conditions), names


def _request(env: str, where: ItemPlace, sets: Item, tests: Sequence[Comparison]) -> dict[str, Any]:
    """Return an Update or, if nothing is set, a ConditionCheck or a Delete."""
    return {"TableName": f"{env}-{where.table}", "Key": where.key(), **_expressions(sets, tests)}


def _expressions(sets: Item, tests: Sequence[Comparison]) -> dict[str, Any]:
    update, condition, names = _texts(tuple(sets), tuple([(test.attribute, test.how) for test in tests]))
    values = {f":s{i}": value for i, value in enumerate(sets.values())}
    values |= {f":c{i}": test.value for i, test in enumerate(tests) if test.value is not None}
    found: dict[str, Any] = {}
    if update:
        found["UpdateExpression"] = update
    if condition:
        found["ConditionExpression"] = condition
    if names:
        found["ExpressionAttributeNames"] = names
    if values:
        found["ExpressionAttributeValues"] = values
    return found


class _Transaction:
    """The actions of one transaction, at most one for each item."""

    def __init__(self, env: str, batch: Batch, receipt: Receipt, known: Mapping[Key, Revision]) -> None:
        self._env = env
        self._batch = batch
        self._receipt = receipt
        self._stamp = receipt.stamp
        self._known = known
        self._runs = batch.changes[RUN.name]
        self._fenced: set[Key] = set()  # runs that are written and that a commit expects unchanged
        self._expected: dict[ItemPlace, list[Comparison]] = {}  # of items that are not written
        self._updates: dict[ItemPlace, tuple[Item, list[Comparison]]] = {
            receipt_place(receipt.writer, receipt.shard): (_leave(receipt), _due(receipt))
        }
        self._others: dict[ItemPlace, Action] = {}

    def expect(self, commits: Sequence[Commit]) -> None:
        """Note what the commits expect of rows that no earlier one of them writes."""
        written: set[ItemPlace] = set()
        for commit in commits:
            fence = commit.fence
            if fence is not None:
                run = (fence.tenant, fence.run)
                if run in self._runs:
                    self._fenced.add(run)
                else:
                    self._expect(place(RUN, run), _in_force(fence, self._known[run].run))
            for kind, key, version in commit.expects:
                if kind is RUN and key in self._runs:
                    self._fenced.add(key)
                elif (where := place(kind, key)) not in written:
                    self._expect(where, [_version_is(version, kind)])
            for write in commit.writes:
                if type(write) is Wake and write not in self._runs:
                    self._expect(place(RUN, write), _will_look(self._known[write].run))
            if len(commits) > 1:
                written.update(_written(commit))

    def _expect(self, where: ItemPlace, tests: Iterable[Comparison]) -> None:
        found = self._expected.setdefault(where, [])
        found += [test for test in tests if test not in found]

    def _with_expected(self, where: ItemPlace, tests: list[Comparison]) -> list[Comparison]:
        """Return the conditions of a write along with those that a commit expects of the same item."""
        return tests + [test for test in self._expected.pop(where, ()) if test not in tests]

    def write_run(self, left: RowChange, lease_end: Callable[[str], int]) -> None:
        """Write a run whole, or only the columns that a message or a wake-up changes."""
        run: Run = left.row
        key = (run.tenant, run.run)
        old = self._known.get(key)
        if old is None:
            self._put(left, [_MISSING], _mapping_of(run, old, self._batch))
        elif run.version != old.run.version:
            self._put(left, _is_same(old.run), _mapping_of(run, old, self._batch))
            if run.owner != old.run.owner and not NO_HOLDER & {run.owner, old.run.owner}:
                self._lock(run, lease_end(run.owner))
        else:
            self._update_run(run, old)

    def _update_run(self, run: Run, old: Revision) -> None:
        sets: Item = {
            "inbox_seq": number(run.inbox_seq), "receipt": text(self._stamp.text),
            "writer": text(self._stamp.writer), "batch": number(self._stamp.batch),
        }  # fmt: skip
        tests = [Comparison("inbox_seq", "=", number(old.run.inbox_seq)), *_will_look(old.run)]
        if run.due_at != old.run.due_at:
            assert run.due_at is not None, "a wake-up sets it"
            mapping = self._batch.now.mapping
            sets |= {
                "due_at": number(run.due_at), "mapping": number(mapping),
                "due_lane": text(lane_of(run.lane, mapping)), "at_once": number(1),
            }  # fmt: skip
            tests = _is_same(old.run)  # its lane, too
        elif (run.tenant, run.run) in self._fenced:
            tests = _is_same(old.run)
        self._updates[place(RUN, (run.tenant, run.run))] = (sets, tests)

    def _lock(self, run: Run, until: int) -> None:
        """Make it visible who recovers a run. The fence is the safeguard; the lock makes the second one wait."""
        where = lock_place(run.tenant, run.run)
        expires_at = -(-until // SECOND)
        item = {
            **where.key(), "owner": text(run.owner), "expires_at": number(expires_at),
            "ttl": number(expires_at + LOCK_KEPT // SECOND), "receipt": text(self._stamp.text),
        }  # fmt: skip
        self._others[where] = {
            "Put": {
                "TableName": f"{self._env}-{where.table}", "Item": item, "ConditionExpression": LOCK_CONDITION,
                "ExpressionAttributeValues": {":now_epoch": number(self._batch.now.real // SECOND)},
            }
        }  # fmt: skip

    def write_writer(self, left: RowChange, shards: int) -> None:
        """Write the row of a writer, and its status on its other receipts. Its batch is that of one receipt."""
        writer: Writer = left.row
        sets = {
            "version": number(writer.version), "status": text(writer.status),
            "started_at": number(writer.started_at), "receipt": text(self._stamp.text),
        }  # fmt: skip
        where = place(WRITER, writer[:2])
        tests = [_version_is(left.replaces, WRITER), Comparison("shards", "=", number(shards))]
        self._update(where, sets, self._with_expected(where, tests))
        for shard in range(1, shards):
            self._update(receipt_place(writer.id, shard), {"status": text(writer.status)}, [])

    def _update(self, where: ItemPlace, sets: Item, tests: list[Comparison]) -> None:
        found = self._updates.setdefault(where, ({}, []))
        found[0].update(sets)
        found[1].extend(tests)

    def put(self, left: RowChange) -> None:
        """Write a row of any other kind."""
        self._put(left, [_version_is(left.replaces, left.kind)])

    def _put(self, left: RowChange, tests: list[Comparison], mapping: int = 0) -> None:
        kind, row, _ = left
        item, *bodies = encode(kind, row, self._stamp, mapping=mapping)
        if kind is RUN and _is_at_once(row, self._known.get((row.tenant, row.run)), self._batch):
            item["at_once"] = number(1)
        if kind is WRITER:
            item |= {"shards": number(1), "settings": text(self._receipt.settings)}
        where = place(kind, row[: kind.key])
        table = f"{self._env}-{where.table}"
        if where in self._expected:
            tests = self._with_expected(where, tests)
        self._others[where] = {"Put": {"TableName": table, "Item": item, **_expressions({}, tests)}}
        for body in bodies:
            self._others[where._replace(sk=body["sk"]["S"])] = {"Put": {"TableName": table, "Item": body}}

    def delete(self, where: ItemPlace) -> None:
        """Delete an item, also one that the transaction would write."""
        self._others[where] = {"Delete": _request(self._env, where, {}, self._expected.pop(where, ()))}

    def actions(self) -> list[Action]:
        """Return the actions, and a ConditionCheck for each expectation of an item that is not written."""
        for where in self._expected.keys() & self._updates.keys():
            self._updates[where][1].extend(self._expected.pop(where))
        updates = [{"Update": _request(self._env, where, *of_item)} for where, of_item in self._updates.items()]
        checks = [{"ConditionCheck": _request(self._env, where, {}, of)} for where, of in self._expected.items()]
        return [*updates, *self._others.values(), *checks]


def _written(commit: Commit) -> Iterable[ItemPlace]:
    """Return where the rows are that a commit writes, without those that the store adds."""
    for write in commit.writes:
        if type(write) is Put:
            yield place(write.kind, write.row[: write.kind.key])  # type: ignore[arg-type]
        elif type(write) is AppendMessage:
            yield place(RUN, write.message[:2])
