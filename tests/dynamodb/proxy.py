"""A proxy between a store and the emulator that loses, holds back and refuses requests, and records each of them."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from random import Random
from typing import Any, TypeVar
from urllib.parse import urlsplit

from tests.dynamodb import strict

Body = dict[str, Any]
T = TypeVar("T")
ALWAYS = 1_000_000_000
WAIT_S = 20.0


class Fate(StrEnum):
    """How a request ended. Those from LOSE to HALF reached the server."""

    FORWARD = "forwarded and answered"
    DROP = "cut before it was sent"
    HOLD = "held back until released, also if the client has given up"
    LATE = "cut, and held back until released"
    THROTTLE = "refused by a limit of the rate"
    CONFLICT = "refused beside another transaction"
    FAIL = "answered with status 500 and not sent"
    REFUSE = "refused as AWS does and the emulator does not"
    AWAY = "sent to a server that did not answer"
    LOSE = "forwarded, and its answer cut"
    SILENT = "forwarded and never answered"
    FAIL_AFTER = "forwarded and answered with status 500"
    HALF = "forwarded, and half of its answer cut"


@dataclass
class Request:
    """One request in the record."""

    number: int
    operation: str
    body: Body
    fate: Fate = Fate.FORWARD
    status: int = 0
    """Status of the server's answer, or 0 until it is known."""


async def _nothing(request: Request) -> None: ...


@dataclass
class Rule:
    """Fate of the next requests of an operation."""

    operation: str
    fate: Fate
    times: int = 1
    skip: int = 0
    where: Callable[[Body], bool] = lambda body: True
    then: Callable[[Request], Awaitable[None]] = _nothing
    """Awaited in the proxy when the fate of the request is settled, before its client learns of it."""

    def meets(self, request: Request) -> bool:
        """Return True if this request is chosen, and count it."""
        if self.times <= 0 or self.operation not in ("", request.operation) or not self.where(request.body):
            return False
        self.skip -= 1
        if self.skip >= 0:
            return False
        self.times -= 1
        return True


class Wire:
    """One listening port that passes each request on to the emulator."""

    def __init__(self, endpoint: str) -> None:
        parts = urlsplit(endpoint)
        assert parts.scheme == "http" and parts.hostname and parts.port, "a signed request cannot be passed on to AWS"
        self._target = (parts.hostname, parts.port)
        self.record: list[Request] = []
        self.rules: list[Rule] = []
        self.page_limit = 0
        """Most items on a page of Query and Scan; 0 for no limit."""
        self.batch_limit = 0
        """Most keys that BatchGetItem answers at once; 0 for no limit."""
        self.overlaps = False
        """True if transactions on the same item at the same time conflict, as on AWS."""
        self.delay_s = 0.0
        """Time that each request takes longer."""
        self.date_ahead_s = 0
        """By how much the server's clock appears to be ahead."""
        self.index: LaggingIndexes | None = None
        self._strict = strict.Limits()
        self._in_flight: set[tuple[str, ...]] = set()
        self._numbers, self._throttled = count(1), count()
        self._held: list[tuple[Request, asyncio.Event]] = []
        self._later: set[asyncio.Task[None]] = set()
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._writers: set[asyncio.StreamWriter] = set()
        self._changed = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = self._submit(asyncio.start_server(self._connection, "127.0.0.1", 0)).result(WAIT_S)
        self.port = self._server.sockets[0].getsockname()[1]

    @property
    def endpoint(self) -> str:
        """The address for a client."""
        return f"http://127.0.0.1:{self.port}"

    def _submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    # --- for tests ---------------------------------------------------------------------------
    def rule(
        self,
        operation: str,
        fate: Fate,
        times: int = 1,
        *,
        skip: int = 0,
        where: Callable[[Body], bool] = lambda body: True,
        then: Callable[[Request], Awaitable[None]] = _nothing,
    ) -> Rule:
        """Choose the fate of the next requests of an operation, after `skip` others. An empty name means every one."""
        made = Rule(operation, fate, times, skip, where, then)
        self.rules.append(made)
        return made

    def seen(self, operation: str = "", fate: Fate | None = None) -> list[Request]:
        """Return the recorded requests of an operation, with a fate."""
        return [r for r in list(self.record) if operation in ("", r.operation) and fate in (None, r.fate)]

    async def until(self, happened: Callable[[], bool]) -> None:
        """Wait until something is in the record."""

        def wait() -> bool:
            with self._changed:
                return self._changed.wait_for(happened, WAIT_S)

        assert await asyncio.to_thread(wait), [(r.operation, r.fate, r.status) for r in self.record[-20:]]

    def release(self) -> list[Request]:
        """Send all requests that are held back, wait for the server's answers and return them."""

        released = self._submit(self.let_go()).result(WAIT_S)
        with self._changed:
            assert self._changed.wait_for(lambda: all(request.status for request in released), WAIT_S), released
        return released

    async def let_go(self) -> list[Request]:
        """Send all requests that are held back and return them. Late ones are answered when this returns.

        Called in the proxy's own event loop.
        """
        held, self._held = self._held, []
        for _, event in held:
            event.set()
        await asyncio.gather(*self._later)
        self._later.clear()
        return [request for request, _ in held]

    def drain(self) -> None:
        """Wait until every connection has ended. The client must have ended before."""

        async def accepted() -> None:
            for _ in range(3):
                await asyncio.sleep(0)

        self._submit(accepted()).result(WAIT_S)
        with self._changed:
            assert self._changed.wait_for(lambda: not self._writers, WAIT_S), "a connection is open"

    def cut_all(self) -> None:
        """Reset every open connection now."""

        async def cut() -> None:
            for writer in self._writers:
                writer.transport.abort()

        self._submit(cut()).result(WAIT_S)

    def lag(self, share: float, dice: Random) -> None:
        """Answer queries of indexes from a copy, which a share of the differences reaches after each query.

        The copy is made at the first query.
        """
        if self.index is None:
            self.index = LaggingIndexes(self)
        self.index.share, self.index.dice = share, dice

    def catch_up(self) -> None:
        """Bring the lagging indexes up to date, once."""
        if self.index is not None:
            self._submit(self.index.refresh(1.0)).result(WAIT_S)

    def close(self) -> None:
        """Cut every connection and stop listening."""

        async def end() -> None:
            self._server.close()
            for writer in self._writers | {writer for _, writer in self._idle}:
                writer.transport.abort()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            await asyncio.sleep(0)

        self._submit(end()).result(WAIT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # --- serving -----------------------------------------------------------------------------
    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while True:
                head, raw = await _message(reader)
                request = Request(
                    next(self._numbers), _header(head, "x-amz-target").rpartition(".")[2], json.loads(raw)
                )
                self.record.append(request)
                answer = await self._answer(request, head)
                self._note(request)
                if answer is None:
                    return
                writer.write(answer)
                await writer.drain()
                if request.fate is Fate.HALF:
                    return
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client has gone, or the proxy is closed
        finally:
            writer.transport.abort()
            with self._changed:
                self._writers.discard(writer)
                self._changed.notify_all()

    def _note(self, request: Request, status: int | None = None) -> None:
        if status is not None:
            request.status = status
        with self._changed:
            self._changed.notify_all()

    async def _answer(self, request: Request, head: bytes) -> bytes | None:
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        rule = next((rule for rule in self.rules if rule.meets(request)), None)
        if rule is None:
            return await self._fulfilled(request, head)
        request.fate = rule.fate
        answer = await self._fulfilled(request, head)
        await rule.then(request)
        return answer

    async def _fulfilled(self, request: Request, head: bytes) -> bytes | None:
        if request.fate is Fate.DROP:
            return None
        if request.fate in (Fate.HOLD, Fate.LATE):
            event = asyncio.Event()
            self._held.append((request, event))
            self._note(request)
            if request.fate is Fate.LATE:
                self._later.add(asyncio.create_task(self._send_later(request, head, event)))
                return None
            await event.wait()
        keys = strict.written(request.operation, request.body) if self.overlaps else set()
        if keys & self._in_flight:
            request.fate = Fate.CONFLICT
        if (refusal := self._refusal(request) or await self._limits(request)) is not None:
            self._note(request, refusal.status)
            return refusal.answer()
        self._in_flight |= keys
        try:
            status, passed_on, answer = await self._passed(request, head)
        except (OSError, asyncio.IncompleteReadError):
            request.fate = Fate.AWAY
            self._note(request, 599)
            return None
        finally:
            self._in_flight -= keys
        self._note(request, status)
        return await self._returned(request.fate, passed_on, answer)

    async def _send_later(self, request: Request, head: bytes, event: asyncio.Event) -> None:
        await event.wait()
        status, _, _ = await self._passed(request, head)
        self._note(request, status)

    def _refusal(self, request: Request) -> "Refusal | None":
        match request.fate:
            case Fate.FAIL:
                return Refusal(500, "InternalServerError", "by the proxy")
            case Fate.CONFLICT:
                return _conflict(request)
            case Fate.THROTTLE:
                return _throttled(request, next(self._throttled))
            case _:
                return None

    async def _limits(self, request: Request) -> "Refusal | None":
        why = await self._strict.refused(self, request.operation, request.body)
        if not why:
            return None
        request.fate = Fate.REFUSE
        return Refusal(400, "ValidationException", why)

    async def _returned(self, fate: Fate, head: bytes, answer: bytes) -> bytes | None:
        match fate:
            case Fate.LOSE:
                return None
            case Fate.SILENT:
                await asyncio.Event().wait()
                return None
            case Fate.FAIL_AFTER:
                return Refusal(500, "InternalServerError", "by the proxy").answer()
            case Fate.HALF:
                return head + answer[: len(answer) // 2]
            case _:
                return head + answer

    async def _passed(self, request: Request, head: bytes) -> tuple[int, bytes, bytes]:
        """Forward a request, perhaps smaller than it is, and return the status, the head and the body of the answer."""
        body, rest = self._smaller(request.operation, request.body)
        if self.index is not None and "IndexName" in body:
            body = await self.index.instead(body)
        head, raw = await self._forward(head, json.dumps(body).encode())
        if rest and head.startswith(b"HTTP/1.1 200"):
            raw = json.dumps({**json.loads(raw), "UnprocessedKeys": rest}).encode()
            head = _with_length(head, len(raw))
        if self.date_ahead_s:
            head = strict.later(head, self.date_ahead_s)
        return int(head.split(b" ", 2)[1]), head, raw

    def _smaller(self, operation: str, body: Body) -> tuple[Body, Body]:
        if self.page_limit and operation in ("Query", "Scan"):
            return {**body, "Limit": min(self.page_limit, body.get("Limit", self.page_limit))}, {}
        if not self.batch_limit or operation != "BatchGetItem":
            return body, {}
        now: Body = {}
        later: Body = {}
        room = self.batch_limit
        for table, asked in body["RequestItems"].items():
            keys = asked["Keys"]
            for part, chosen in ((now, keys[:room]), (later, keys[room:])):
                if chosen:
                    part[table] = {**asked, "Keys": chosen}
            room = max(0, room - len(keys))
        return {**body, "RequestItems": now}, later

    async def _forward(self, head: bytes, raw: bytes) -> tuple[bytes, bytes]:
        reader, writer = await self._upstream()
        try:
            writer.write(_with_length(head, len(raw)) + raw)
            await writer.drain()
            answer = await _message(reader)
        except BaseException:
            writer.transport.abort()
            raise
        self._idle.append((reader, writer))
        return answer

    async def _upstream(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while self._idle:
            reader, writer = self._idle.pop()
            if not reader.at_eof():
                return reader, writer
            writer.transport.abort()
        return await asyncio.open_connection(*self._target)

    async def ask(self, operation: str, **body: object) -> Body:
        """Send a request from the proxy, which is not recorded, and return the answer."""
        head = (
            f"POST / HTTP/1.1\r\nhost: 127.0.0.1\r\nx-amz-target: DynamoDB_20120810.{operation}\r\n"
            "content-type: application/x-amz-json-1.0\r\ncontent-length: 0\r\n"
            "authorization: AWS4-HMAC-SHA256 Credential=proxy/20260101/us-east-1/dynamodb/aws4_request, "
            "SignedHeaders=host, Signature=0\r\n\r\n"
        )
        _, raw = await self._forward(head.encode(), json.dumps(body).encode())
        answer: Body = json.loads(raw)
        return answer


class LaggingIndexes:
    """Copies of tables whose indexes are queried. Entries reach a copy late and in any order, as on AWS."""

    def __init__(self, wire: Wire) -> None:
        self.share, self.dice = 1.0, Random(0)
        self._wire = wire
        self._copies: dict[str, str] = {}
        self._lock = asyncio.Lock()
        self.stale = 0
        """Number of queries that an index answered while it lagged."""

    async def instead(self, body: Body) -> Body:
        """Return the query for the copy. Then the copy gets a share of the differences, for the next query."""
        async with self._lock:
            table = body["TableName"]
            if table not in self._copies:
                await self._copy(table)
            self.stale += await self._refresh(table, self.share)
            return {**body, "TableName": self._copies[table]}

    async def refresh(self, share: float) -> None:
        """Bring a share of the differences to all copies."""
        async with self._lock:
            for table in self._copies:
                await self._refresh(table, share)

    async def _copy(self, table: str) -> None:
        described = (await self._wire.ask("DescribeTable", TableName=table))["Table"]
        self._copies[table] = name = f"{table}.lagging"
        indexes = [
            {key: index[key] for key in ("IndexName", "KeySchema", "Projection")}
            for index in described["GlobalSecondaryIndexes"]
        ]
        await self._wire.ask(
            "CreateTable", TableName=name, KeySchema=described["KeySchema"], BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=described["AttributeDefinitions"], GlobalSecondaryIndexes=indexes,
        )  # fmt: skip
        await self._refresh(table, 1.0)

    async def _refresh(self, table: str, share: float) -> bool:
        """Apply a share of the differences and return True if others are left."""
        described = (await self._wire.ask("DescribeTable", TableName=table))["Table"]
        names = {definition["AttributeName"] for definition in described["AttributeDefinitions"]}
        present, copied = await self._entries(table, names), await self._entries(self._copies[table], names)
        differences = [key for key in present | copied if present.get(key) != copied.get(key)]
        chosen = [key for key in differences if self.dice.random() < share]
        for key in chosen:
            name = self._copies[table]
            if (item := present.get(key)) is not None:
                await self._wire.ask("PutItem", TableName=name, Item=item)
            else:
                old = copied[key]
                await self._wire.ask("DeleteItem", TableName=name, Key={part: old[part] for part in ("pk", "sk")})
        return len(chosen) < len(differences)

    async def _entries(self, table: str, names: set[str]) -> dict[tuple[str, str], Body]:
        """Return the items that have an attribute of an index, without their other attributes."""
        found: dict[tuple[str, str], Body] = {}
        start: Mapping[str, Any] = {}
        while True:
            answer = await self._wire.ask("Scan", TableName=table, ConsistentRead=True, **start)
            for item in answer["Items"]:
                entry = {name: item[name] for name in names & item.keys()}
                if len(entry) > 2:
                    found[item["pk"]["S"], item["sk"]["S"]] = entry
            if "LastEvaluatedKey" not in answer:
                return found
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}


@dataclass(frozen=True)
class Refusal:
    """A refusal by the proxy."""

    status: int
    name: str
    message: str
    reasons: tuple[str, ...] = ()

    def answer(self) -> bytes:
        """Return it as the server would send it."""
        body: Body = {"__type": f"com.amazonaws.dynamodb.v20120810#{self.name}", "message": self.message}
        if self.reasons:
            body["CancellationReasons"] = [{"Code": code, "Message": self.message} for code in self.reasons]
        raw = json.dumps(body).encode()
        return _with_length(f"HTTP/1.1 {self.status} By-The-Proxy\r\n\r\n".encode(), len(raw)) + raw


def _conflict(request: Request) -> Refusal:
    if request.operation != "TransactWriteItems":
        return Refusal(400, "TransactionConflictException", "Transaction is ongoing for the item")
    return _cancelled(request, "TransactionConflict")


def _throttled(request: Request, number: int) -> Refusal:
    if request.operation == "TransactWriteItems" and number % 2 == 0:
        return _cancelled(request, ("ThrottlingError", "ProvisionedThroughputExceeded")[number // 2 % 2])
    name = ("ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded")[number // 2 % 3]
    return Refusal(400, name, "Throughput exceeds the current capacity of your table or index")


def _cancelled(request: Request, code: str) -> Refusal:
    codes = (code, *["None"] * (len(request.body["TransactItems"]) - 1))
    text = f"Transaction cancelled, please refer cancellation reasons for specific reasons [{', '.join(codes)}]"
    return Refusal(400, "TransactionCanceledException", text, codes)


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    return head, await reader.readexactly(int(_header(head, "content-length") or 0))


def _header(head: bytes, name: str) -> str:
    start = f"{name}:"
    for line in head.decode("latin-1").split("\r\n")[1:]:
        if line.lower().startswith(start):
            return line[len(start) :].strip()
    return ""


def _with_length(head: bytes, length: int) -> bytes:
    lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    kept = [line for line in lines if not line.lower().startswith((b"content-length:", b"x-amz-crc32:"))]
    return b"\r\n".join([*kept, f"content-length: {length}".encode(), b"", b""])


@contextlib.contextmanager
def wire(endpoint: str) -> Iterator[Wire]:
    """Open a proxy for the time of a test."""
    made = Wire(endpoint)
    try:
        yield made
    finally:
        made.close()
