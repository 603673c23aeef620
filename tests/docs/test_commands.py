"""Every command of a `bash` block runs as printed and succeeds."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from tests.docs import sample_store
from tests.docs.commands import NOT_RUN, PREPARED_BY, run_page, typed, with_sample_store
from tests.docs.pages import ROOT, blocks, pages
from tests.dynamodb import server as dynamodb
from tests.postgres import server

WITH_COMMANDS = [page for page in pages() if any(command not in NOT_RUN for _, command in typed(page))]
POSTGRES = ROOT / "docs/postgres.md"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    folder = tmp_path_factory.mktemp("store")
    return folder, sample_store.make(folder)


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """Run the page's SQL on a server; yield its address."""

    async def run(database: str, *statements: str) -> None:
        connection = await asyncpg.connect(server.url(), database=database)
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()

    (roles, schema) = [block.body for block in blocks(POSTGRES) if block.language == "sql"]
    asyncio.run(run("postgres", *filter(str.strip, roles.split(";"))))
    try:
        asyncio.run(run("app", schema))
        yield server.url().rpartition("@")[2].partition("/")[0]
    finally:
        asyncio.run(run("postgres", "DROP DATABASE app WITH (FORCE)", "DROP ROLE app"))


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: page.name)
def test_the_commands_of_a_page_succeed(
    page: Path, store: tuple[Path, dict[str, str]], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    words = PREPARED_BY.get(page.name, with_sample_store)(page, tmp_path, *store)
    if any("postgresql://" in command for _, command in typed(page)):
        words.append((r"db\.internal(:5432)?", request.getfixturevalue("database")))
    if any("dynamodb://" in command for _, command in typed(page)):
        words += [
            ("http://127.0.0.1:8000", dynamodb.endpoint()),
            (r"(-1/prod)'", rf"\1?endpoint={dynamodb.endpoint()}'"),
        ]
    assert run_page(page, tmp_path, words)


def test_the_list_of_commands_that_are_not_run_stays_short() -> None:
    every = {command for page in pages() for _, command in typed(page)}
    assert set(NOT_RUN) <= every, "a command that no page has any more"
    assert len(NOT_RUN) <= 9 and all(NOT_RUN.values())
