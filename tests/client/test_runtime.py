"""The interface of a runtime (RT-1): the same promises in this process and over HTTP."""

import asyncio

import pytest

from outlast import Client
from outlast.errors import Conflict, InvalidInput, NotFound
from outlast.runtime.execution_runtime import ClientRuntime, ExecutionRuntime
from tests.client.conftest import PATIENCE, Place


async def begin(runtime: ExecutionRuntime, supplier: str = "acme", key: str = "", correlation_id: str = "c-1") -> str:
    """Start an order through the interface alone and return its id."""
    run = await runtime.start(
        workflow_name="order", input={"supplier": supplier}, idempotency_key=key, correlation_id=correlation_id
    )
    return run.id


@pytest.mark.req("RT-1", "RUN-4")
def test_one_key_is_one_run(place: Place) -> None:
    async def test(client: Client) -> None:
        runtime: ExecutionRuntime = ClientRuntime(client)
        same = await asyncio.gather(*(begin(runtime, key="rt-1") for _ in range(4)))
        assert len(set(same)) == 1
        assert await begin(runtime, key="rt-1", correlation_id="other") == same[0]
        with pytest.raises(Conflict, match="another input"):
            await begin(runtime, "blix", key="rt-1")
        assert await begin(runtime, key="rt-2") != same[0]

    place.play(test)


@pytest.mark.req("RT-1", "RUN-1", "RUN-2")
def test_a_run_from_its_start_to_its_end(place: Place) -> None:
    async def test(client: Client) -> None:
        runtime: ExecutionRuntime = ClientRuntime(client)
        run = await begin(runtime, key="rt-3")

        async def waits() -> bool | None:
            return any(wait.kind == "signal" for wait in (await runtime.get(run)).waiting_for) or None

        assert await client.until(waits, within_s=20)
        before = await runtime.get(run)
        assert (before.status, before.node, before.workflow) == ("waiting", "wait_for_offer", "order")
        for _ in range(2):
            await runtime.signal(run, "offer", {"cents": 7}, signal_id="o-1")
        await runtime.cancel(run, "a mistake")
        assert await client.ended(run, within_s=20), await runtime.get(run)
        ended = await runtime.get(run)
        assert (ended.status, ended.outcome) == ("cancelled", None) and "a mistake" in ended.reason
        assert ended.version > before.version
        for act in (runtime.cancel(run, "again"), runtime.signal(run, "offer", {"cents": 1})):
            with pytest.raises(Conflict, match="has ended"):
                await act

    place.play(test)


@pytest.mark.req("RT-1")
def test_an_outcome_is_read_back(place: Place) -> None:
    async def test(client: Client) -> None:
        runtime: ExecutionRuntime = ClientRuntime(client)
        run = await runtime.start(
            workflow_name="greet", input={"name": "ana"}, idempotency_key="rt-4", correlation_id="", trace_id=None
        )
        assert (
            await run.result(PATIENCE) == (await runtime.get(run.id)).outcome == {"text": "hello ana ", "letters": 10}
        )

    place.play(test)


@pytest.mark.req("RT-1")
def test_what_is_unknown_or_invalid_is_refused(place: Place) -> None:
    async def test(client: Client) -> None:
        runtime: ExecutionRuntime = ClientRuntime(client)
        for act in (runtime.get("r9"), runtime.cancel("r9", "x"), runtime.signal("r9", "offer", {})):
            with pytest.raises(NotFound):
                await act
        with pytest.raises(NotFound, match="no workflow loan"):
            await runtime.start(workflow_name="loan", input={}, idempotency_key="k", correlation_id="")
        with pytest.raises(InvalidInput) as refused:
            await runtime.start(workflow_name="order", input={"cents": "x"}, idempotency_key="k", correlation_id="")
        assert [path for path, _ in refused.value.problems] == ["supplier", "cents"]

    place.play(test)
