"""Crash scenarios on DynamoDB: an environment of the emulator for each state, behind a proxy that loses transactions.

Points of the proxy, at each `TransactWriteItems` of a process:

| point | the request | the process |
|---|---|---|
| request:lost | never arrives | goes on |
| request:unanswered | lands, and its answer is lost | goes on |
| request:fenced | arrives after the process has fenced it | goes on |
| request:resent | arrives after the same commit was sent again | goes on |
| request:before | never arrives | is killed |
| request:after | lands | is killed |
| request:late | arrives after the next process has written a run | is killed |
"""

import hashlib
import http.client
import json
import os
import signal
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from typing_extensions import override

from outlast.core.rows.all_kinds import KINDS
from outlast.errors import StoreUnusable
from outlast.store.dynamodb.connection import DynamoAddress
from outlast.store.dynamodb.items import RECEIPT, decode, kind_of
from outlast.store.dynamodb.store import DynamoStore, open_dynamodb
from outlast.store.dynamodb.tables import creation
from outlast.store.sqlite.database import Rows
from outlast.testing.child_process import ChildClock
from outlast.testing.crash_runs import CrashCase, Judge, Reference
from outlast.testing.crash_values import CheckFailed, CrashHook, CrashPoint, ScenarioState
from outlast.testing.driver import CallMonitor, Driver
from outlast.testing.loading import CodeUnderTest
from outlast.testing.run_snapshot import TABLES as ROWS_OF
from outlast.testing.run_snapshot import RunSnapshot, ScenarioFile, ScenarioStore, snapshot_of
from tests.crash.scenarios import CODE
from tests.dynamodb import server
from tests.dynamodb.proxy import Body, Fate, Request, Wire, wire
from tests.dynamodb.strict import actions

ITEMS: Final = "items.json"
WRITE_MAX: Final = 25  # items of one BatchWriteItem
WAIT_S: Final = 20.0
TRANSACTION: Final = "TransactWriteItems"
LOSE, KILL = "lose", "kill"
FATES: Final = {
    "request:lost": (Fate.DROP, LOSE),
    "request:unanswered": (Fate.LOSE, LOSE),
    "request:fenced": (Fate.LATE, LOSE),
    "request:resent": (Fate.LATE, LOSE),
    "request:before": (Fate.DROP, KILL),
    "request:after": (Fate.LOSE, KILL),
    "request:late": (Fate.LATE, KILL),
}
Json = dict[str, Any]


async def open_child(ask: Json, writer: str, clock: ChildClock, trace: CrashHook) -> DynamoStore:
    """Open the store of a process. If a lost answer prevents that, open it again, as a supervisor would."""
    try:
        return await open_dynamodb(ask["url"], writer=writer, clock=clock)
    except StoreUnusable:
        return await open_dynamodb(ask["url"], writer=f"{writer}-again", clock=clock)


class Environments(ScenarioStore):
    """An environment for each scenario. A copy has its items in a file, until its first process starts."""

    def __init__(self, endpoint: str, through: str) -> None:
        """`through`: endpoint of the proxy, for the processes. This one asks the emulator itself."""
        self._through = through
        self._http = http.client.HTTPConnection(urlsplit(endpoint).netloc, timeout=WAIT_S)
        self._live: set[Path] = set()

    def close(self) -> None:
        """End the connection."""
        self._http.close()

    @override
    def request(self, state: ScenarioState) -> Json:
        self._restore(state.folder)
        url = server.url(_environment(state.folder), self._through)
        return {"url": url, "opener": f"{__name__}:{open_child.__name__}"}

    @override
    def read(self, state: ScenarioState) -> RunSnapshot:
        self._restore(state.folder, unless_empty=True)
        found = self._items(state.folder) if state.folder in self._live else {}
        return snapshot_of(_rows(found)) if found else snapshot_of(None)

    @override
    def copy(self, state: ScenarioState, to: Path) -> ScenarioState:
        if state.folder in self._live:
            (state.folder / ITEMS).write_text(json.dumps(self._items(state.folder)))
        return state.copy(to)

    @override
    def discard(self, folder: Path) -> None:
        for live in [each for each in self._live if each.is_relative_to(folder)]:
            self._live.discard(live)
            for table in server.TABLES:
                self._ask("DeleteTable", TableName=f"{_environment(live)}-{table}")
        ScenarioFile().discard(folder)

    def _restore(self, folder: Path, *, unless_empty: bool = False) -> None:
        """Create the environment of a copy from its file."""
        if folder in self._live or (unless_empty and not (folder / ITEMS).exists()):
            return
        self._live.add(folder)
        if not (folder / ITEMS).exists():
            return  # its first process creates it
        address = DynamoAddress.parse(server.url(_environment(folder)))
        for table, items in json.loads((folder / ITEMS).read_text()).items():
            self._ask("CreateTable", **creation(address, table))
            for at in range(0, len(items), WRITE_MAX):
                puts = [{"PutRequest": {"Item": item}} for item in items[at : at + WRITE_MAX]]
                answer = self._ask("BatchWriteItem", RequestItems={address.table(table): puts})
                assert not answer.get("UnprocessedItems"), answer

    def _items(self, folder: Path) -> dict[str, list[Json]]:
        """Return the items of each table that exists."""
        found: dict[str, list[Json]] = {}
        for table in server.TABLES:
            start: Json = {}
            while True:
                name = f"{_environment(folder)}-{table}"
                answer = self._ask("Scan", TableName=name, ConsistentRead=True, **start)
                if "Items" not in answer:
                    assert "ResourceNotFound" in answer["__type"], answer
                    break
                found.setdefault(table, []).extend(answer["Items"])
                if "LastEvaluatedKey" not in answer:
                    break
                start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}
        return found

    def _ask(self, operation: str, **body: Any) -> Json:
        signed = "AWS4-HMAC-SHA256 Credential=crash/20260101/us-east-1/dynamodb/aws4_request, SignedHeaders=host"
        headers = {
            "x-amz-target": f"DynamoDB_20120810.{operation}", "content-type": "application/x-amz-json-1.0",
            "authorization": f"{signed}, Signature=0",
        }  # fmt: skip
        self._http.request("POST", "/", json.dumps(body), headers)
        answer: Json = json.loads(self._http.getresponse().read())
        return answer


def _environment(folder: Path) -> str:
    return f"crash-{hashlib.sha256(str(folder).encode()).hexdigest()[:24]}"


def _rows(items: dict[str, list[Json]]) -> dict[str, Rows]:
    """Return the rows by table as a SQLite store has them."""
    kinds = {kind.name: kind for kind in KINDS}
    found: dict[str, Rows] = {name: [] for name in ROWS_OF}
    for item in (each for table in items.values() for each in table if "sk" in each):
        kind = kind_of(item["sk"]["S"])
        if kind is not None and kind.name in found:
            assert "bodies" not in item, "the rows of a crash scenario are small"
            row = decode(kind, {name: _value(value) for name, value in item.items()})
            found[kind.name].append(dict(zip(kinds[kind.name].columns, row, strict=True)))
    return {name: sorted(rows, key=itemgetter(*ROWS_OF[name].split(", "))) for name, rows in found.items()}


def _value(value: Json) -> Json:
    return {"B": b64decode(value["B"])} if "B" in value else value


class LostTransactions(CallMonitor):
    """Chooses the fate of one transaction of a process, by the proxy that all its requests pass."""

    def __init__(self, wire: Wire) -> None:
        self.late: Counter[str] = Counter()
        """How requests ended that arrived late."""
        self._wire = wire
        self._pid: Future[int] = Future()
        self._acted: tuple[str, str, int] | None = None
        self._held: Request | None = None
        self._fenced = False  # the held request belongs to a process that goes on
        self._killed = False

    @override
    def sees(self, point: CrashPoint) -> bool:
        return point.name in FATES

    @override
    def begin(self, point: CrashPoint | None, at: int) -> None:
        wire = self._wire
        wire.record.clear()
        wire.rules.clear()
        self._pid, self._acted, self._killed = Future(), None, False
        if self._held is not None:
            wire.rule(TRANSACTION, Fate.FORWARD, where=_writes_a_run, then=self._release)
        if point is not None:
            self._choose(point)

    def _choose(self, point: CrashPoint) -> None:
        fate, act = FATES[point.name]

        async def then(request: Request) -> None:
            self._acted = point.where
            if fate is Fate.LATE:
                self._held, self._fenced = request, act == LOSE
            if act == KILL:
                self._killed = True
                os.kill(self._pid.result(WAIT_S), signal.SIGKILL)
            elif fate is Fate.LATE:
                if point.name == "request:fenced":
                    receipt = _receipt(request.body)
                    self._wire.rule(
                        "UpdateItem", Fate.FORWARD, where=lambda body: body["Key"] == receipt, then=self._release
                    )
                else:
                    self._wire.rule(
                        TRANSACTION, Fate.FORWARD, where=lambda body: _label(body) == point.label, then=self._release
                    )

        self._wire.rule(
            TRANSACTION, fate, skip=point.nth - 1, where=lambda body: _label(body) == point.label, then=then
        )

    async def _release(self, request: Request) -> None:
        await self._wire.let_go()

    @override
    def process_started(self, pid: int) -> None:
        self._pid.set_result(pid)

    @override
    def end(self) -> tuple[list[CrashPoint], tuple[str, str, int] | None]:
        wire = self._wire
        wire.drain()
        if self._held is not None and not self._killed:
            wire.release()
            held, self._held = self._held, None
            landed = held.status == 200
            self.late[f"late: {'they landed' if landed else 'they were refused'}"] += 1
            if landed and self._fenced and _receipt(held.body):
                raise CheckFailed(f"a transaction landed after its fence: {_label(held.body)}")
        return list(self._seen()), self._acted

    def _seen(self) -> Iterator[CrashPoint]:
        counts: Counter[str] = Counter()
        for request in self._wire.seen(TRANSACTION):
            label = _label(request.body)
            if label == RECEIPT:
                continue  # a writer makes a further receipt only if two commits happen to meet
            counts[label] += 1
            for name, (_, act) in FATES.items():
                yield CrashPoint(name, label, counts[label], act)


def _label(body: Body) -> str:
    """Return the kinds of the items that a transaction writes or checks, without the receipt that it updates."""
    found: Counter[str] = Counter()
    for action in actions(TRANSACTION, body):
        key = action.get("Key") or action["Item"]
        sk = key.get("sk", {"S": "lock"})["S"]
        kind = kind_of(sk)
        if sk.startswith(("writer#", "receipt#")) and "UpdateExpression" in action:
            continue  # which of its receipts a writer uses depends on what else it does
        found[sk.partition("#")[0] if kind is None else kind.name] += 1
    return " ".join(f"{name}*{n}" if n > 1 else name for name, n in sorted(found.items())) or "resign"


def _receipt(body: Body) -> Json | None:
    """Return the key of the receipt that a commit updates, or None if the transaction is no commit."""
    updates = (action for action in actions(TRANSACTION, body) if "UpdateExpression" in action)
    return next((each["Key"] for each in updates if "batch" in json.dumps(each)), None)


def _writes_a_run(body: Body) -> bool:
    return any(action.get("Item", {}).get("sk") == {"S": "run"} for action in actions(TRANSACTION, body))


def unnoticed(driver: Driver, case: CrashCase, reference: Reference) -> Judge:
    """Return a check that a process that survives a lost request also keeps its run, and asks no one."""
    at_best = driver.store.read(reference.last).run["epoch"]

    def judge(state: ScenarioState, left: RunSnapshot) -> None:
        if case.point.act == LOSE:
            assert left.run["epoch"] == at_best, f"{case.name}: the run was claimed again after a lost request"
            assert driver.resolved == reference.uncertain, f"{case.name}: a lost request made an effect uncertain"

    return judge


@contextmanager
def on_emulator() -> Iterator[tuple[Environments, LostTransactions, CodeUnderTest]]:
    """Run a proxy before this process's emulator. Yield the store, the monitor and the code for the fork server."""
    endpoint = server.emulator()
    with wire(endpoint) as through:
        before_the_fork = (__name__, __file__), ("tests.dynamodb.warm_client", "")
        code = replace(CODE, modules=(*CODE.modules, *before_the_fork))
        with closing(Environments(endpoint, through.endpoint)) as store:
            yield store, LostTransactions(through), code
