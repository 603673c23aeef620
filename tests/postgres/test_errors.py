"""A failing server raises Unavailable and never Rejected, because the same commit may land later."""

import asyncio
import contextlib
from secrets import token_hex
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from outlast.errors import Rejected, StoreError, StoreUnusable, Unavailable
from outlast.store.postgres.connection import Address, limit_of, remedy, unusable
from outlast.store.postgres.store import open_postgres
from tests.conformance import subject as make
from tests.postgres import server

SICK = {
    "25006": "read only: a standby",
    "25P03": "idle for too long",
    "25P04": "the transaction took too long",
    "40001": "serialization",
    "40P01": "deadlock",
    "53000": "out of resources",
    "53100": "disk full",
    "53200": "out of memory",
    "53300": "too many connections",
    "55P03": "lock timeout",
    "57014": "cancelled",
    "57P01": "shut down by an administrator",
    "57P02": "crashed",
    "57P03": "starting up",
    "58030": "input or output",
}


async def _say(schema: str, code: str) -> None:
    db = await asyncpg.connect(server.url())
    await db.execute(f"SET search_path = {schema}")
    await db.execute("DROP TRIGGER IF EXISTS sick ON message")
    if code:
        body = f"BEGIN RAISE EXCEPTION 'sick' USING ERRCODE = '{code}'; END"
        await db.execute(f"CREATE OR REPLACE FUNCTION sick() RETURNS trigger LANGUAGE plpgsql AS $${body}$$")
        await db.execute("CREATE TRIGGER sick BEFORE INSERT ON message EXECUTE FUNCTION sick()")
    await db.close()


@pytest.mark.req("RT-5")
def test_a_server_error_refuses_no_commit_for_good(url: str, schema: str) -> None:
    """The server raises each code in the middle of a batch. Once it is well, the same commit lands."""

    async def live() -> None:
        store = await open_postgres(url, writer="w")
        await store.commit(make.start(make.run_row()))
        for n, code in enumerate(SICK, 1):
            await _say(schema, code)
            with pytest.raises(Unavailable):
                await store.commit(make.append_message(make.message_row(payload=code.encode())))
            await _say(schema, "")
            await store.commit(make.append_message(make.message_row(payload=code.encode())))
            assert [message.payload for message in await make.messages(store)] == [c.encode() for c in list(SICK)[:n]]
        await _say(schema, "23514")
        with pytest.raises(Rejected):
            await store.commit(make.append_message(make.message_row()))
        await store.close()

    asyncio.run(live())


@pytest.mark.req("RT-5")
def test_a_server_that_refuses_connections_is_away_and_comes_back(schema: str) -> None:
    """All sessions end and none may connect: commits and reads raise Unavailable, then continue."""
    role = f"app_{schema}"
    url = f"{server.url().replace('postgres@', f'{role}@')}?schema={schema}"

    async def command(*statements: str) -> None:
        db = await asyncpg.connect(server.url())
        for statement in statements:
            await db.execute(statement)
        await db.close()

    end = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'"

    async def refused(work: Any) -> StoreError:
        with pytest.raises(Unavailable) as told:
            await work
        return told.value

    async def live() -> None:
        await command(f"CREATE ROLE {role} LOGIN", f"CREATE SCHEMA {schema} AUTHORIZATION {role}")
        store = await open_postgres(url, writer="w")
        await store.commit(make.start(make.run_row()))
        for away, back in (
            (f"ALTER ROLE {role} CONNECTION LIMIT 0", f"ALTER ROLE {role} CONNECTION LIMIT -1"),
            (f"ALTER ROLE {role} NOLOGIN", f"ALTER ROLE {role} LOGIN"),
        ):
            await command(away, end)
            await refused(store.commit(make.append_message(make.message_row())))
            await refused(store.commit(make.append_message(make.message_row())))
            await refused(store.now())
            await command(back)
            await store.now()
            await store.commit(make.append_message(make.message_row()))
        assert len(await make.messages(store)) == 2
        await store.close()
        await command(f"DROP SCHEMA {schema} CASCADE", f"DROP ROLE {role}")

    asyncio.run(live())


def test_a_pooler_that_mixes_sessions_is_named() -> None:
    told = unusable(Address.parse("postgresql://app@h/d"), asyncpg.DuplicatePreparedStatementError("it exists"))
    assert "behind a pooler" in told.what and "directly" in told.fix


# --- poolers -------------------------------------------------------------------------------
class Pooler:
    """A pooler that treats startup messages as PgBouncer does.

    It refuses the settings that it does not track. If `ignore_startup_parameters` names them, it drops them. It passes
    on everything after that.
    """

    TRACKED = ("user", "database", "client_encoding", "application_name")

    def __init__(self, *, drops: bool) -> None:
        self._drops = drops

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        length = int.from_bytes(await reader.readexactly(4), "big")
        words = (await reader.readexactly(length - 4))[4:].split(b"\0")
        given = dict(zip([w.decode() for w in words[::2]], words[1::2], strict=False))
        unknown = [name for name in given if name and name not in self.TRACKED]
        if unknown and not self._drops:
            said = f"unsupported startup parameter: {unknown[0]}".encode()
            body = b"SFATAL\0VFATAL\0C08P01\0M" + said + b"\0\0"
            writer.write(b"E" + (len(body) + 4).to_bytes(4, "big") + body)
            await writer.drain()
            writer.close()
            return
        parts = urlsplit(server.url())
        there, back = await asyncio.open_connection(parts.hostname, parts.port)
        kept = b"".join(n.encode() + b"\0" + v + b"\0" for n, v in given.items() if n in self.TRACKED) + b"\0"
        back.write((len(kept) + 8).to_bytes(4, "big") + (196_608).to_bytes(4, "big") + kept)
        await asyncio.gather(_pass(reader, back), _pass(there, writer))


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
        writer.close()


@pytest.mark.parametrize("drops", [False, True])
def test_a_pooler_that_drops_settings_is_named(url: str, drops: bool) -> None:
    async def live() -> None:
        pooler = await asyncio.start_server(Pooler(drops=drops).serve, "127.0.0.1", 0)
        parts = urlsplit(url)
        port = pooler.sockets[0].getsockname()[1]
        through = parts._replace(netloc=f"{parts.username}@127.0.0.1:{port}").geturl()
        with pytest.raises(StoreUnusable, match="behind a pooler") as refused:
            await open_postgres(f"{through}&sslmode=disable", writer="w")
        assert ("search_path is" if drops else "unsupported startup parameter") in refused.value.why
        pooler.close()

    asyncio.run(live())


@pytest.mark.parametrize(
    ("said", "setting"),
    [
        ("terminating connection due to idle-session timeout", "idle_session_timeout"),
        ("terminating connection due to transaction timeout", "transaction_timeout"),
    ],
)
def test_a_limit_that_ends_a_session_is_named(said: str, setting: str) -> None:
    """A live server may close the connection at any moment, so that asyncpg sees another error first."""
    error = asyncpg.PostgresConnectionError(said)
    assert limit_of(error) == setting and f"ALTER ROLE … SET {setting} = 0" in remedy(error)


def test_a_limit_of_the_role_is_named(url: str) -> None:
    """It said that the store cannot be reached, and to check that the server runs."""
    role, setting = f"hasty_{token_hex(4)}", "statement_timeout"

    async def say(*statements: str) -> None:
        db = await asyncpg.connect(server.url())
        try:
            for statement in statements:
                await db.execute(statement)
        finally:
            await db.close()

    async def open_as_role() -> None:
        parts = urlsplit(url)
        await open_postgres(parts._replace(netloc=f"{role}@{parts.hostname}:{parts.port}").geturl(), writer="w")

    asyncio.run(say(f"CREATE ROLE {role} LOGIN SUPERUSER"))
    try:
        asyncio.run(say(f"ALTER ROLE {role} SET {setting} = '1ms'"))
        with pytest.raises(StoreUnusable) as error:
            asyncio.run(open_as_role())
        assert f"its {setting} is too short" in error.value.what and error.value.why
        assert f"ALTER ROLE … SET {setting} = 0" in error.value.fix
    finally:
        asyncio.run(say(f"DROP ROLE {role}"))


def test_a_read_that_the_server_stops_names_the_limit(url: str) -> None:
    """The store is open, and a role's limit is shorter than one of its reads."""

    async def live() -> None:
        store = await open_postgres(url, writer="w")
        try:

            async def slow(db: Any) -> None:
                await db.execute("SET statement_timeout = '1ms'")
                await db.execute("SELECT pg_sleep(5)")

            with pytest.raises(Unavailable, match="statement timeout") as error:
                await store._reads.do(slow)
            assert "ALTER ROLE … SET statement_timeout = 0" in error.value.fix
        finally:
            await store.close()

    asyncio.run(live())
