"""HTTP shop that misbehaves on demand: its first answer, whether it acted, and its later answers."""

import asyncio
import json
from collections import Counter
from typing import NamedTuple, Self
from urllib.parse import parse_qs, urlsplit


class Manner(NamedTuple):
    """How the first request under a key is met; later ones are met well. status 0: the connection is reset; -1: it is
    left without an answer."""

    status: int
    acts: bool = False
    headers: str = ""
    body: str = ""


class Shop:
    """Receiver that deduplicates by Idempotency-Key, keeps every request, and answers GET with its record of a key."""

    def __init__(self) -> None:
        self.manners: dict[str, Manner] = {}
        self.calls: Counter[str] = Counter()  # by path
        self.keys: dict[str, set[str]] = {}
        self.heads: list[tuple[str, str, dict[str, str]]] = []
        self.did: Counter[str] = Counter()  # by key: never above 1, unless it was asked to under two keys
        self._closing = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._handle, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing.set()
        self._server.close()
        await asyncio.sleep(0.05)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin1").split("\r\n")
            method, path, _ = head[0].split(" ")
            headers = {k.lower(): v.strip() for k, v in (line.split(":", 1) for line in head[1:] if ":" in line)}
            await reader.readexactly(int(headers.get("content-length", 0)))
            self.heads.append((method, path, headers))
            if method == "GET":
                (key,) = parse_qs(urlsplit(path).query)["key"]
                self._say(writer, 200 if self.did[key] else 404, "", json.dumps("found"))
            else:
                await self._order(writer, path, headers.get("idempotency-key", ""))
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _order(self, writer: asyncio.StreamWriter, path: str, key: str) -> None:
        self.calls[path] += 1
        self.keys.setdefault(path, set()).add(key)
        manner = self.manners.get(path, Manner(200)) if self.calls[path] == 1 else Manner(200)
        if manner.acts or 200 <= manner.status < 300:
            self.did[key] = 1 if key else self.did[key] + 1
        if manner.status == 0:
            writer.transport.abort()
        elif manner.status == -1:
            await self._closing.wait()
        else:
            self._say(writer, manner.status, manner.headers, manner.body or json.dumps(f"made {path}"))

    def _say(self, writer: asyncio.StreamWriter, status: int, headers: str, body: str) -> None:
        kind = "Content-Type: application/json\r\nConnection: close\r\n"
        writer.write(f"HTTP/1.1 {status} so\r\nContent-Length: {len(body)}\r\n{kind}{headers}\r\n{body}".encode())
