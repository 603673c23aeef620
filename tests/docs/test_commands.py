"""Every command of a `bash` block is typed as it is printed, and ends well."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from tests.docs import desk
from tests.docs.commands import NOT_RUN, OTHERWISE, at_the_desk, play, typed
from tests.docs.pages import ROOT, blocks, pages
from tests.postgres import server

WITH_COMMANDS = [page for page in pages() if any(command not in NOT_RUN for _, command in typed(page))]
POSTGRES = ROOT / "docs/postgres.md"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    folder = tmp_path_factory.mktemp("desk")
    return folder, desk.make(folder)


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """A server on which the page's own statements were run; its address."""

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
def test_the_commands_of_a_page_end_well(
    page: Path, store: tuple[Path, dict[str, str]], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    words = OTHERWISE.get(page.name, at_the_desk)(page, tmp_path, *store)
    if any("postgresql://" in command for _, command in typed(page)):
        words.append((r"db\.internal(:5432)?", request.getfixturevalue("database")))
    assert play(page, tmp_path, words)


def test_no_more_is_left_out_than_has_to_be() -> None:
    every = {command for page in pages() for _, command in typed(page)}
    assert set(NOT_RUN) <= every, "one that no page has any more"
    assert len(NOT_RUN) <= 9 and all(NOT_RUN.values())
