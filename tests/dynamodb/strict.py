"""Requests that AWS refuses and the emulator accepts. The proxy refuses them, too."""

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from email.utils import format_datetime, parsedate_to_datetime
from typing import Any, Protocol

Body = dict[str, Any]
TRANSACTION_BYTES_MAX = 4 * 1024 * 1024
PARTITION_KEY_BYTES_MAX, SORT_KEY_BYTES_MAX = 2048, 1024
EXPRESSION_BYTES_MAX = 4096
EXPRESSIONS = ("ConditionExpression", "UpdateExpression", "FilterExpression", "KeyConditionExpression")
WRITES = {"PutItem": "Put", "UpdateItem": "Update", "DeleteItem": "Delete"}
SET = re.compile(r"([#\w]+)\s*=\s*(:\w+)")


class Asks(Protocol):
    """Who can ask the server by itself."""

    async def ask(self, operation: str, **body: object) -> Body:
        """Send a request and return its answer."""


class Limits:
    """The limits that need the names of the index keys, which are read once per table."""

    def __init__(self) -> None:
        self._index_keys: dict[str, set[str]] = {}

    async def refused(self, server: Asks, operation: str, body: Body) -> str:
        """Return why AWS refuses this request, or an empty text."""
        writes = list(actions(operation, body))
        if sum(map(_size, writes)) > TRANSACTION_BYTES_MAX:
            return "Transaction request size exceeded the maximum of 4 MB"
        for part in [body, *writes]:
            if any(len(part.get(name, "").encode()) > EXPRESSION_BYTES_MAX for name in EXPRESSIONS):
                return "Invalid expression: Expression size has exceeded the maximum allowed size"
            key = {**part.get("Item", {}), **part.get("Key", {})}
            for name, most in (("pk", PARTITION_KEY_BYTES_MAX), ("sk", SORT_KEY_BYTES_MAX)):
                if len(key.get(name, {}).get("S", "").encode()) > most:
                    return f"One or more parameter values were invalid: Size of {name} has exceeded {most} bytes"
        for write in writes:
            names = await self._keys(server, write["TableName"])
            empty = [name for name in names if {"S": ""} in _values(write, name)]
            if empty:
                return f"One or more parameter values are not valid: empty string value for index key {empty[0]}"
        return ""

    async def _keys(self, server: Asks, table: str) -> set[str]:
        if not self._index_keys.get(table):
            described = (await server.ask("DescribeTable", TableName=table)).get("Table", {})
            indexes = described.get("GlobalSecondaryIndexes", [])
            self._index_keys[table] = {part["AttributeName"] for index in indexes for part in index["KeySchema"]}
        return self._index_keys[table]


def actions(operation: str, body: Body) -> Iterator[Body]:
    """Yield the actions of a request that writes."""
    if operation in WRITES:
        yield body
    for action in body.get("TransactItems", ()) if operation == "TransactWriteItems" else ():
        yield from action.values()


def written(operation: str, body: Body) -> set[tuple[str, ...]]:
    """Return the table and key of each item that a request writes or checks."""
    found: set[tuple[str, ...]] = set()
    for action in actions(operation, body):
        key = action.get("Key") or action["Item"]
        found.add((action["TableName"], key["pk"]["S"], key.get("sk", {}).get("S", "")))
    return found


def _values(action: Body, name: str) -> list[Body]:
    """Return the values that an action gives to an attribute."""
    given = [action["Item"][name]] if name in action.get("Item", {}) else []
    names, values = action.get("ExpressionAttributeNames", {}), action.get("ExpressionAttributeValues", {})
    for left, right in SET.findall(action.get("UpdateExpression", "")):
        if names.get(left, left) == name:
            given.append(values[right])
    return given


def _size(action: Body) -> int:
    """Return about how many bytes an action has for the limit of a transaction."""
    values = action.get("Item") or {**action.get("Key", {}), **action.get("ExpressionAttributeValues", {})}
    return sum(len(name) + _length(value) for name, value in values.items())


def _length(value: Body) -> int:
    ((kind, content),) = value.items()
    if kind == "B":
        return len(content) * 3 // 4
    return len(content.encode()) if isinstance(content, str) else len(json.dumps(content))


def later(head: bytes, seconds: int) -> bytes:
    """Return the head of an answer with a later date."""
    lines = head.split(b"\r\n")
    for i, line in enumerate(lines):
        if line.lower().startswith(b"date:"):
            at = parsedate_to_datetime(line[5:].strip().decode()) + timedelta(seconds=seconds)
            lines[i] = b"date: " + format_datetime(at, usegmt=True).encode()
    return b"\r\n".join(lines)
