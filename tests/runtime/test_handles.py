"""Handles of runs: `client.get` takes what `client.start` takes."""

import asyncio

import pytest

import outlast
from outlast import Context, workflow
from outlast.errors import InvalidInput


@workflow
async def order(ctx: Context) -> int:
    return 1


def test_a_run_is_found_by_the_name_of_its_workflow_and_its_id() -> None:
    async def main() -> None:
        async with outlast.connect("memory:") as client:
            handles = (client.get("order", "r1"), client.get(order, "r1"), client.get("r1"))
            assert [(each.workflow, each.id) for each in handles] == [("order", "r1"), ("order", "r1"), ("", "r1")]
            with pytest.raises(InvalidInput, match="no run"):
                client.get(order, "")

    asyncio.run(main())


def test_a_client_without_asyncio_finds_a_run_by_name_and_id() -> None:
    with outlast.connect_sync("memory:") as client:
        handles = (client.get("order", "r1"), client.get(order, "r1"), client.get("r1"))
        assert [(each.workflow, each.id) for each in handles] == [("order", "r1"), ("order", "r1"), ("", "r1")]
        with pytest.raises(InvalidInput, match="no run"):
            client.get(order, "")
