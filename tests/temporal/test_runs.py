"""Runs on a real Temporal server, with real workers. The receiver of the sales records each call."""

import asyncio
import signal
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from pydantic import BaseModel
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode
from typing_extensions import override

from outlast import Context, Workflow
from outlast.core.approvals import Actor
from outlast.core.rows.run_rows import Run
from outlast.runtime.local_worker import worker_of
from outlast.runtime.operations import Operations
from outlast.runtime.stores import open_store
from outlast.temporal import TemporalGuest, TemporalRuntime
from outlast.temporal.cluster import wake
from outlast.temporal.run_workflow import times_of, workflow_id
from tests.e2e.helpers import GIVE_UP_S, Receiver, when
from tests.temporal.office import Office
from tests.temporal.scripted import LIVE
from tests.temporal.server import TemporalServer


class Nap(BaseModel):
    """State without fields."""


@pytest.fixture
def office(tmp_path: Path, temporal: TemporalServer) -> Iterator[Office]:
    receiver = Receiver()
    opened = Office(tmp_path, receiver, temporal)
    try:
        yield opened
    finally:
        opened.close()
        receiver.close()


@pytest.mark.req("RT-1", "RT-3", "RT-4")
def test_sales_end_and_a_lost_one_is_undone_from_the_latest_effect_on(office: Office) -> None:
    office.serve()
    office.sell("won-1")
    office.sell("lost-1", ends="lost")
    office.until_over("won-1", "lost-1")
    assert office.calls("won-1") == ["deal", "proposal", "follow-up"]
    assert office.calls("lost-1") == ["deal", "proposal", "undo/proposal", "undo/deal"]
    assert (office.run("won-1").status, office.run("lost-1").status) == ("completed", "failed")


@pytest.mark.req("RT-4", "REC-1")
def test_a_worker_killed_in_a_node_repeats_no_call(office: Office) -> None:
    office.receiver.may_answer.clear()
    first = office.serve()
    office.sell("killed-1")
    when(lambda: office.calls("killed-1"), office.said)
    office.serve()
    when(lambda: len(office.alive()) == 2, office.said)
    first.send_signal(signal.SIGKILL)
    assert first.wait(GIVE_UP_S) == -signal.SIGKILL
    office.receiver.may_answer.set()
    office.until_over("killed-1")
    assert office.calls("killed-1") == ["deal", "proposal", "follow-up"]


@pytest.mark.req("RT-4")
def test_a_server_that_was_killed_finds_its_runs_again(office: Office) -> None:
    """The decision is made while the server is away, and a worker that is stopped then does not wait for it."""
    first = office.serve()
    office.serve()
    office.sell("away-1", asks=True)
    # a worker that still held it would read the decision without the server
    when(lambda: office.pending("away-1") and not office.run("away-1").owner, office.said)
    office.temporal.kill()
    office.approve("away-1")
    when(lambda: "temporal away for" in office.explain("away-1"), lambda: office.explain("away-1"))
    first.terminate()
    assert first.wait(GIVE_UP_S) == 0, office.said()
    office.temporal.start()
    office.until_over("away-1")
    assert office.calls("away-1") == ["deal", "proposal", "follow-up"]


@pytest.mark.req("RT-4")
def test_a_new_version_of_the_graph_continues_a_run_in_flight(office: Office) -> None:
    first = office.serve()
    office.sell("deploy-1", asks=True)
    when(lambda: office.pending("deploy-1"), office.said)
    first.terminate()
    assert first.wait(GIVE_UP_S) == 0, office.said()
    office.serve(version=2)
    office.approve("deploy-1")
    office.until_over("deploy-1")
    assert office.run("deploy-1").lane == "temporal:sale@2"
    assert office.calls("deploy-1") == ["deal", "proposal", "follow-up"]


@pytest.mark.req("RT-4")
def test_a_run_whose_history_was_deleted_starts_a_new_one(office: Office) -> None:
    office.serve()
    office.sell("deleted-1", asks=True)
    when(lambda: office.pending("deleted-1"), office.said)
    office.on_temporal(delete, "deleted-1")
    office.approve("deleted-1")
    office.until_over("deleted-1")
    assert office.calls("deleted-1") == ["deal", "proposal", "follow-up"]


async def delete(client: Client, run: str) -> None:
    """Delete the history of a run, and wait until it is gone."""
    execution = WorkflowExecution(workflow_id=workflow_id("default", run))
    request = DeleteWorkflowExecutionRequest(namespace="default", workflow_execution=execution)
    await client.workflow_service.delete_workflow_execution(request)
    while True:
        try:
            await client.get_workflow_handle(execution.workflow_id).describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return
            raise
        await asyncio.sleep(0.05)


@pytest.mark.req("RT-4", "GATE-6")
@pytest.mark.parametrize(("first", "then"), [("outlast", "temporal"), ("temporal", "outlast")])
def test_a_run_that_moves_while_it_waits_for_approval_sends_one_proposal(office: Office, first: str, then: str) -> None:
    office.serve()
    office.serve(runtime="outlast")
    when(lambda: len(office.alive()) == 2, office.said)  # a run moves only to an engine that a live worker serves
    run = f"moves-to-{then}"
    office.sell(run, scheduler=first, asks=True)
    when(lambda: office.pending(run), office.said)
    when(lambda: not office.run(run).owner, office.said)
    office.do(lambda ops: ops.move_to(run, then, reason="a test"))
    if first == "temporal":
        assert office.on_temporal(interpret, run) == "elsewhere"  # its timer would have asked after 96 hours
    office.approve(run)
    office.until_over(run)
    assert office.run(run).scheduler == then
    assert office.calls(run) == ["deal", "proposal", "follow-up"]


@pytest.mark.req("RT-4")
def test_a_run_that_two_engines_were_given_is_executed_by_its_own(office: Office) -> None:
    """Temporal's workflow ends without an effect, because the lane of the run names another scheduler."""
    office.serve()
    office.sell("both-1", scheduler="outlast", asks=True)
    assert office.on_temporal(interpret, "both-1") == "elsewhere"
    assert office.calls("both-1") == []
    office.serve(runtime="outlast")
    office.approve("both-1")
    office.until_over("both-1")
    assert office.calls("both-1") == ["deal", "proposal", "follow-up"]


async def interpret(client: Client, run: str) -> str:
    """Give a run to Temporal, and return how its workflow ended."""
    await wake(client, "default", run, "temporal:sale@1", 1_000, times_of(LIVE))
    ended: str = await client.get_workflow_handle(workflow_id("default", run)).result()
    return ended


class DeadBridge(TemporalGuest):
    """A guest that wakes nothing."""

    @override
    async def wake(self, runs: Sequence[Run]) -> None:
        pass


@pytest.mark.req("RT-4")
def test_the_timer_of_temporal_finds_a_run_if_every_bridge_is_dead(temporal: TemporalServer) -> None:
    nap = Workflow("nap", state=Nap)

    @nap.node(start=True)
    async def sleep(ctx: Context[Nap]) -> None:
        await ctx.sleep("200ms")

    async def main() -> None:
        client, store = await temporal.client(), await open_store("memory:")
        worker = worker_of(store, [nap], guest=DeadBridge(client=client))
        serving = asyncio.create_task(worker.run())
        runtime = TemporalRuntime(
            Operations(store, tenant="default", actor=Actor("ana"), workflows={"nap": nap}), client
        )
        handle = await runtime.start(workflow_name="nap", input={}, idempotency_key="nap-1", correlation_id="")
        await handle.result(timeout=GIVE_UP_S)
        worker.drain()
        await serving
        await store.close()

    asyncio.run(main())


@pytest.mark.req("RT-1", "RT-4")
def test_the_runtime_for_programs_starts_signals_and_cancels(office: Office) -> None:
    office.serve()
    runtime = TemporalRuntime(office.operations, office.client)

    async def main() -> str:
        given: dict[str, object] = {"asks": True}
        start = partial(runtime.start, workflow_name="sale", input=given, correlation_id="c-1")
        handle = await start(idempotency_key="cancel-1")
        assert (await start(idempotency_key="cancel-1")).id == handle.id
        detail = await runtime.get(handle.id)
        assert (detail.scheduler, detail.correlation_id) == ("temporal", "c-1")
        await runtime.cancel(handle.id, "no longer wanted")
        return handle.id

    run = office.wait_for(main())
    office.until_over(run)
    assert office.run(run).status == "cancelled"
