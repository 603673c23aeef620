"""Opening: required settings, a schema that is created once, and plans that scan no table."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from outlast.core.rows.all_kinds import KINDS
from outlast.core.rows.run_rows import RUN
from outlast.errors import StoreUnusable
from outlast.runtime.stores import open_store
from outlast.store import sql
from outlast.store.migrations import MIGRATIONS, NEWEST, SCHEMA
from outlast.store.postgres import maintenance, reads, statements
from outlast.store.postgres.connection import Address, connect
from outlast.store.postgres.statements import WriteForm, numbered
from outlast.store.postgres.store import open_postgres
from outlast.store.queries import OWNED
from tests.conformance import subject as make
from tests.postgres import server


@asynccontextmanager
async def administrator() -> AsyncIterator[Any]:
    db = await asyncpg.connect(server.url())
    try:
        yield db
    finally:
        await db.close()


# --- durability ----------------------------------------------------------------------------
@pytest.mark.req("RT-5")
def test_a_role_with_weaker_settings_gets_full_durability(schema: str) -> None:
    async def live() -> None:
        async with administrator() as db:
            await db.execute(f"CREATE ROLE {schema} LOGIN; GRANT CREATE ON DATABASE postgres TO {schema}")
            await db.execute(
                f"ALTER ROLE {schema} SET synchronous_commit = off; ALTER ROLE {schema} SET search_path = x"
            )
        try:
            url = server.url().replace("postgres@", f"{schema}@") + f"?schema={schema}"
            store = await open_postgres(url, writer="w")
            facts = store.facts()
            assert facts["synchronous_commit"] == "on"
            assert facts["fsync"] == "on"
            assert facts["schema"] == SCHEMA
            await store.commit(make.start(make.run_row()))
            await store.close()
            async with administrator() as db:  # no superuser made it, and nothing of it lies elsewhere
                assert await db.fetchval(f"SELECT count(*) FROM {schema}.run") == 1
        finally:
            async with administrator() as db:
                await db.execute(f"DROP OWNED BY {schema} CASCADE; DROP ROLE {schema}")

    asyncio.run(live())


def test_a_server_that_does_not_sync_is_refused(schema: str) -> None:
    own = server.Server(fsync="off")
    try:
        with pytest.raises(StoreUnusable, match="does not make commits durable"):
            asyncio.run(open_postgres(f"{own.url}?schema={schema}", writer="w"))
    finally:
        own.close()


# --- addresses -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("postgresql://postgres@127.0.0.1:1/postgres", "cannot be reached"),
        ("postgresql://postgres@127.0.0.1:1/postgres?schema=Bad-Name", "names no PostgreSQL store"),
        ("{server}?database=nobody_made_it", "no such database"),
    ],
)
def test_a_store_that_cannot_be_opened_is_reported_in_one_sentence(url: str, says: str) -> None:
    given = url.replace("{server}?database=", server.url().rpartition("/")[0] + "/")
    with pytest.raises(StoreUnusable, match=says):
        asyncio.run(open_store(given))


def test_a_password_is_never_shown() -> None:
    shown = Address.parse("postgresql://ann:s3cret@db.example:5432/shop?schema=orders").shown
    assert "s3cret" not in shown
    assert shown == "postgresql://ann:***@db.example:5432/shop?schema=orders"


def test_the_error_of_a_user_without_rights_names_the_grant(schema: str) -> None:
    async def live() -> None:
        async with administrator() as db:
            await db.execute(f"CREATE ROLE {schema} LOGIN")
        try:
            url = server.url().replace("postgres@", f"{schema}@") + f"?schema={schema}"
            with pytest.raises(StoreUnusable, match="GRANT CREATE ON DATABASE"):
                await open_postgres(url, writer="w")
        finally:
            async with administrator() as db:
                await db.execute(f"DROP ROLE {schema}")

    asyncio.run(live())


# --- migrations ----------------------------------------------------------------------------
def test_concurrent_processes_create_the_schema_once(url: str) -> None:
    async def live() -> None:
        stores = await asyncio.gather(*(open_postgres(url, writer=f"w{n}") for n in range(8)))
        await stores[0].commit(make.start(make.run_row()))
        assert (await make.the_run(stores[7])).run == "run-1"
        for store in stores:
            await store.close()

    asyncio.run(live())


def test_a_store_of_before_the_first_release_is_refused(url: str) -> None:
    async def live() -> None:
        await (await open_postgres(url, writer="w")).close()
        async with administrator() as db:
            await db.execute(f"ALTER TABLE {url.rpartition('=')[2]}.{NEWEST[0]} RENAME COLUMN {NEWEST[1]} TO old")
            with pytest.raises(StoreUnusable, match="release: its version is not recorded"):
                await open_postgres(url, writer="w2")
            await db.execute(
                f"INSERT INTO {url.rpartition('=')[2]}.worker "
                """VALUES ('*', 'w', 1, 'closed', 0, '[]', '', 5, 0, '{"version": "0.0.9"}', 0)"""
            )
        with pytest.raises(StoreUnusable, match=r"before the first release: Outlast 0\.0\.9, as of 1970"):
            await open_postgres(url, writer="w2")

    asyncio.run(live())


def test_a_newer_schema_is_refused_and_not_touched(url: str) -> None:
    async def live() -> None:
        await (await open_postgres(url, writer="w")).close()
        async with administrator() as db:
            await db.execute(f"INSERT INTO {url.rpartition('=')[2]}.outlast_schema VALUES ({SCHEMA + 1})")
        with pytest.raises(StoreUnusable, match="newer version"):
            await open_postgres(url, writer="w2")

    asyncio.run(live())


NEXT = (
    "ALTER TABLE run ADD COLUMN synthetic {integer} NOT NULL DEFAULT 7",
    "CREATE TABLE synthetic (tenant TEXT NOT NULL, body {blob} NOT NULL, PRIMARY KEY (tenant)){clustered}",
)


@pytest.mark.req("RUN-8")
def test_a_worker_of_the_version_before_goes_on_writing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names its columns, and migrations only add, so it writes before and after the migration."""

    async def live() -> None:
        address = Address.parse(url)
        db = await connect(address, writes=True)
        await maintenance.migrate(db, address)
        row = make.run_row()
        names = RUN.columns
        marks = ", ".join(f"${n}" for n in range(1, len(names) + 1))
        insert = f"INSERT INTO run ({', '.join(names)}) VALUES ({marks})"
        await db.execute(insert, *row)
        monkeypatch.setattr(maintenance, "MIGRATIONS", (*MIGRATIONS, NEXT))
        monkeypatch.setattr(maintenance, "SCHEMA", SCHEMA + 1)
        store = await open_postgres(url, writer="w")
        assert store.facts()["schema"] == SCHEMA + 1
        await db.execute(insert, *row._replace(run="run-2"))
        for run in ("run-1", "run-2"):
            found = await make.the_run(store, run)
            await store.commit(make.put_run(found))
        assert [r[0] for r in await db.fetch("SELECT DISTINCT synthetic FROM run")] == [7]
        await store.close()
        await db.close()

    asyncio.run(live())


# --- plans ---------------------------------------------------------------------------------
def statements_of_the_hot_path() -> list[tuple[str, str]]:
    """Return every statement that a running system repeats, but the queries (tests/store/test_query_plans.py)."""
    found = [(f"find {kind.name}", statements.find(kind, lock=kind.versioned)) for kind in KINDS]
    found += [(f"exist {kind.name}", statements.exist(kind)) for kind in KINDS]
    forms = [WriteForm(kind, insert) for kind in KINDS for insert in (True, False) if insert or kind.versioned]
    found += [(f"write {f.kind.name} {f.insert}", statements.write((f,), notify=False)) for f in forms]
    found += [(f"alone {f.kind.name} {f.insert}", statements.write_alone((f,))) for f in forms]
    found += [("confirm", statements.CONFIRM)]
    found += [(f"of runs {kind.name}", reads._of_runs(kind)) for kind in reads.HOLDER_KINDS]
    found += [("last", reads._LAST), ("shared", reads._SHARED), ("now", statements.NOW)]
    found += [("due", statements.locked(sql.DUE)), ("owned", statements.locked(OWNED)), ("over", numbered(sql.OVER))]
    found += [("over after", numbered(sql.OVER_AFTER))]
    return found


@pytest.mark.req("RT-5")
def test_no_statement_of_the_hot_path_scans_a_table(url: str) -> None:
    """Our connections disable sequential scans, so a scan in a plan means that no index serves the query."""

    async def live() -> None:
        store = await open_postgres(url, writer="w")
        db = await connect(Address.parse(url), writes=True)
        scanning = []
        for name, statement in statements_of_the_hot_path():
            await db.execute(f"PREPARE probe AS {statement}")
            count = await db.fetchval(
                "SELECT cardinality(parameter_types) FROM pg_prepared_statements WHERE name = 'probe'"
            )
            nulls = ", ".join(["NULL"] * count)
            call = f"probe({nulls})" if count else "probe"
            plan = "\n".join(r[0] for r in await db.fetch(f"EXPLAIN EXECUTE {call}"))
            await db.execute("DEALLOCATE probe")
            if "Seq Scan" in plan:
                scanning.append(f"{name}\n{plan}")
        assert not scanning, "\n\n".join(scanning)
        await db.close()
        await store.close()

    asyncio.run(live())


@pytest.mark.req("RT-5")
def test_a_lookup_in_a_new_store_uses_the_primary_key(url: str) -> None:
    """Without statistics another index seemed as cheap, and took half of the server's time (docs/performance.md)."""

    async def live() -> None:
        store = await open_postgres(url, writer="w")
        db = await connect(Address.parse(url), writes=True)
        other = []
        for kind in KINDS:
            asked = [statements.find(kind, lock=kind.versioned)]
            if kind.versioned:
                asked.append(statements.write((WriteForm(kind, insert=False),), notify=False))
            for statement in asked:
                await db.execute(f"PREPARE probe AS {statement}")
                count = await db.fetchval(
                    "SELECT cardinality(parameter_types) FROM pg_prepared_statements WHERE name = 'probe'"
                )
                plan = "\n".join(r[0] for r in await db.fetch(f"EXPLAIN EXECUTE probe({', '.join(['NULL'] * count)})"))
                await db.execute("DEALLOCATE probe")
                if f"using {kind.name}_pkey on {kind.name} t" not in plan:
                    other.append(f"{kind.name}\n{plan}")
        assert not other, "\n\n".join(other)
        await db.close()
        await store.close()

    asyncio.run(live())


def test_a_missing_index_would_be_seen(url: str) -> None:
    async def live() -> None:
        store = await open_postgres(url, writer="w")
        db = await connect(Address.parse(url), writes=True)
        await db.execute("DROP INDEX run_due")
        asked = numbered(sql.DUE).replace("$1", "'x'").replace("$2", "1").replace("$3", "1")
        plan = "\n".join(r[0] for r in await db.fetch(f"EXPLAIN {asked}"))
        assert "Seq Scan" in plan or "run_due" not in plan
        await db.close()
        await store.close()

    asyncio.run(live())


def test_a_shown_url_keeps_the_socket_that_leads_to_the_server() -> None:
    shown = Address.parse("postgresql:///shop?host=/run/pg&port=5433&password=s3cret&schema=orders").shown
    assert shown == "postgresql:///shop?host=/run/pg&port=5433&schema=orders"
    again = Address.parse(shown)
    assert again.shown == shown and again.schema == "orders"
