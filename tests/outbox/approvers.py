"""A workflow that asks approvers, servers that receive their messages, and time that passes at once."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

from pydantic import BaseModel

from outlast.clocks import SystemClock
from outlast.core.addresses import AddressPolicy
from outlast.core.approvals import Actor
from outlast.core.rows.effect_rows import APPROVAL, Approval
from outlast.core.rows.outbox_rows import CURSOR, DELIVERY, Delivery
from outlast.core.webhooks.approval_notices import NoticeText
from outlast.core.webhooks.deliveries import Attempt
from outlast.flow import Context, Workflow, activity, role
from outlast.outbox.address import SystemResolver
from outlast.outbox.channel_client import ChannelClient
from outlast.runtime.operations import Operations
from outlast.store.port import Store
from outlast.testing.virtual_runtime import skip
from tests.outbox.helpers import DEVELOPMENT, TENANT, Got, Receiver, a_store, until

PAGE = "https://outlast.example.com"


class Award(BaseModel):
    """Text and approvers of a request."""

    summary: str = "Award to Acme GmbH, €184,200"
    who: str = "finance"
    hours: int = 96


@activity(key="award/{to}", no_undo="a mail cannot be unsent")
async def award(to: str) -> str:
    """Award."""
    return to


def asking() -> Workflow[Award]:
    """Return a workflow that asks once."""
    flow = Workflow("asking", state=Award, version=1)

    @flow.node(start=True)
    async def ask(ctx: Context[Award]) -> None:
        said = ctx.state
        rule = role(said.who)
        await ctx.approval(award.plan("acme"), summary=said.summary, by=rule, within=f"{said.hours}h")

    return flow


ASKING = asking()


@asynccontextmanager
async def approvers(url: str) -> AsyncIterator[Operations]:
    """Open a store with operations of an admin who holds every role of these tests."""
    async with a_store(url) as ops:
        who = Actor("local:ann", frozenset({"admin", "finance", "ops", "boss"}))
        bound = Operations(ops.store, tenant=TENANT, actor=who, workflows={"asking": ASKING})
        bound.webhooks.reach = DEVELOPMENT
        yield bound


@asynccontextmanager
async def channel(reach: AddressPolicy = DEVELOPMENT, **given: Any) -> AsyncIterator[ChannelClient]:
    """Open a client of messages to approvers."""
    own = SystemResolver()
    client = ChannelClient(reach, own, SystemClock(), ended=own.close, **given)
    try:
        yield client
    finally:
        await client.close()


async def post(address: str, text: NoticeText, reach: AddressPolicy = DEVELOPMENT, **given: Any) -> Attempt:
    """Send one message."""
    async with channel(reach, **given) as client:
        return await client.post(address, text)


def ntfy(receiver: Receiver, topic: str = "secret-topic-4711") -> str:
    """Return the address of a topic at a receiver in the role of ntfy."""
    return f"ntfy://user:hidden-password@127.0.0.1:{receiver.port}/{topic}"


def message(got: Got) -> dict[str, Any]:
    """Return the message of a request to ntfy."""
    found: dict[str, Any] = json.loads(got.body)
    return found


async def pending(store: Store, run: str = "r") -> Approval:
    """Return the approval that a run waits for, once it waits."""

    async def waits() -> bool:
        return any(row.status == "pending" for row in await store.rows(APPROVAL, (TENANT, run)))

    await until(waits)
    return next(row for row in await store.rows(APPROVAL, (TENANT, run)) if row.status == "pending")


async def rows_of(store: Store, subscription: str) -> list[Delivery]:
    """Return the deliveries of a subscription."""
    return [row for row in await store.rows(DELIVERY, (TENANT,)) if row.subscription == subscription]


async def until_told(store: Store, subscription: str, *keys: str) -> None:
    """Return once deliveries with exactly these statuses and keys exist: `delivered asked:ap_1`."""

    async def told() -> bool:
        return sorted(f"{row.status} {row.event}" for row in await rows_of(store, subscription)) == sorted(keys)

    try:
        await until(told)
    except TimeoutError:
        raise AssertionError(await rows_of(store, subscription)) from None


async def pass_time(store: Store, hours: float) -> None:
    """Let business time pass at once. Real time does not, so what is scheduled by it becomes due now."""
    from outlast.core.commit import Commit, Put

    await skip(store, hours=hours)
    now = await store.now()
    for row in await store.rows(DELIVERY, (TENANT,)):
        if row.status == "scheduled":
            cursor = await store.load(CURSOR, (TENANT, row.run, row.subscription))
            assert cursor is not None and not cursor.owner
            due = row._replace(version=row.version + 1, due_at=now.real)
            put = cursor._replace(version=cursor.version + 1, due_at=now.real)
            await store.commit(Commit((Put(DELIVERY, due, row.version), Put(CURSOR, put, cursor.version))))


@dataclass
class MailServer:
    """An SMTP server that records what it accepts, and misbehaves as the test tells it."""

    replies: dict[str, list[str]] = field(default_factory=dict)
    """Replies to the first commands of a name (`RCPT`; `` for the greeting, `.` for the end of a mail), then the usual
    one. `CLOSE` ends the connection, `HANG` says nothing.
    """
    refuse: str = ""
    """Reply to every RCPT in place of 250."""
    login: bool = False
    """Accept and offer logins."""
    tls: ssl.SSLContext | None = None
    """Offer STARTTLS."""
    mails: list[EmailMessage] = field(default_factory=list)
    recipients: list[str] = field(default_factory=list)
    logins: list[str] = field(default_factory=list)
    encrypted: list[bool] = field(default_factory=list)
    """Of each mail, whether its connection was encrypted."""
    sessions: int = 0
    at: list[float] = field(default_factory=list)
    """When each session began."""
    open: set[asyncio.Task[None]] = field(default_factory=set)
    greeting: str = ""
    port: int = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.sessions += 1
        self.at.append(asyncio.get_running_loop().time())
        task = asyncio.current_task()
        assert task is not None
        self.open.add(task)
        try:
            await self._say("", writer, "220 here")
            while line := (await reader.readline()).decode().strip():
                if await self._command(line, reader, writer):
                    break
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            pass
        finally:
            writer.close()
            self.open.discard(task)

    async def _say(self, name: str, writer: asyncio.StreamWriter, usual: str) -> bool:
        """Reply; return True if it was the usual reply."""
        waiting = self.replies.get(name)
        said = waiting.pop(0) if waiting else usual
        if said == "CLOSE":
            raise ConnectionError
        if said == "HANG":
            await asyncio.Event().wait()
        writer.write(f"{said}\r\n".encode())
        await writer.drain()
        return said == usual

    async def _command(self, line: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Carry out a command. Return True at the end of the session."""
        name = line.split()[0].upper()
        match name:
            case "EHLO" | "HELO":
                self.greeting = line
                encrypted = writer.get_extra_info("sslcontext") is not None
                also = ["AUTH PLAIN"] if self.login else []
                also += ["STARTTLS"] if self.tls and not encrypted else []
                await self._say(
                    name, writer, "\r\n".join(["250-here", *(f"250-{each}" for each in also), "250 8BITMIME"])
                )
            case "STARTTLS":
                if await self._say(name, writer, "220 go on") and self.tls:
                    await writer.start_tls(self.tls)
            case "AUTH":
                self.logins.append(line)
                await self._say(name, writer, "235 welcome")
            case "RCPT":
                self.recipients.append(line.partition("<")[2].partition(">")[0])
                await self._say(name, writer, self.refuse or "250 ok")
            case "DATA":
                if not await self._say(name, writer, "354 go on"):
                    return False
                data = await reader.readuntil(b"\r\n.\r\n")
                if await self._say(".", writer, "250 ok"):
                    mail = message_from_bytes(data[:-3], policy=policy.default)
                    assert isinstance(mail, EmailMessage)
                    self.mails.append(mail)
                    self.encrypted.append(writer.get_extra_info("sslcontext") is not None)
            case "QUIT":
                await self._say(name, writer, "221 bye")
                return True
            case _:
                await self._say(name, writer, "250 ok")
        return False

    @asynccontextmanager
    async def listening(self, tls: ssl.SSLContext | None = None) -> "AsyncIterator[MailServer]":
        """Listen on a free port while the block runs. `tls`: encrypted from the beginning."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in self.open:
                task.cancel()
            await asyncio.gather(*self.open, return_exceptions=True)

    @property
    def address(self) -> str:
        """Return the address of messages to two people."""
        return f"mailto://127.0.0.1:{self.port}?from=outlast@example.com&to=ana@example.com"
