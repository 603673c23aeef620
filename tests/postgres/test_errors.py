"""What the server says when it cannot is "not now", never "no": a commit refused by a sick server may come again."""

import asyncio
from typing import Any

import asyncpg
import pytest

from outlast.errors import Rejected, StoreError, Unavailable
from outlast.store.postgres.connect import Address, unusable
from outlast.store.postgres.store import open_postgres
from outlast.testing.conformance import subject as make
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
    await db.execute("DROP TRIGGER IF EXISTS sick ON note")
    if code:
        body = f"BEGIN RAISE EXCEPTION 'sick' USING ERRCODE = '{code}'; END"
        await db.execute(f"CREATE OR REPLACE FUNCTION sick() RETURNS trigger LANGUAGE plpgsql AS $${body}$$")
        await db.execute("CREATE TRIGGER sick BEFORE INSERT ON note EXECUTE FUNCTION sick()")
    await db.close()


@pytest.mark.req("RT-5")
def test_a_sick_server_refuses_nothing_for_good(url: str, schema: str) -> None:
    """The server itself raises each code in the middle of a batch; once it is well, the same commit lands."""

    async def live() -> None:
        store = await open_postgres(url, writer="w")
        await store.commit(make.start(make.run_row()))
        for n, code in enumerate(SICK, 1):
            await _say(schema, code)
            with pytest.raises(Unavailable):
                await store.commit(make.post(make.note_row(payload=code.encode())))
            await _say(schema, "")
            await store.commit(make.post(make.note_row(payload=code.encode())))
            assert [note.payload for note in await make.notes(store)] == [c.encode() for c in list(SICK)[:n]]
        await _say(schema, "23514")
        with pytest.raises(Rejected):
            await store.commit(make.post(make.note_row()))
        await store.close()

    asyncio.run(live())


@pytest.mark.req("RT-5")
def test_a_server_without_a_place_left_or_with_another_password_is_away_and_comes_back(schema: str) -> None:
    """Every session is ended, and none is let in: commits and reads say "not now"; then all goes on."""
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
            await refused(store.commit(make.post(make.note_row())))
            await refused(store.commit(make.post(make.note_row())))
            await refused(store.now())
            await command(back)
            await store.now()
            await store.commit(make.post(make.note_row()))
        assert len(await make.notes(store)) == 2
        await store.close()
        await command(f"DROP SCHEMA {schema} CASCADE", f"DROP ROLE {role}")

    asyncio.run(live())


def test_a_pooler_that_mixes_sessions_is_named() -> None:
    told = unusable(Address.parse("postgresql://app@h/d"), asyncpg.DuplicatePreparedStatementError("it exists"))
    assert "session mode" in told.fix
