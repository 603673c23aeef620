"""The interpreter on a real server, over slices that answer as a script says."""

import asyncio
from pathlib import Path

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

from outlast.temporal import run_workflow as interpreter
from outlast.temporal.run_workflow import ATTENTION, LANE, NODE, STATUS, RunWorkflow
from tests.temporal.scripted import NEXT, Script, answer, serving, start
from tests.temporal.server import TemporalServer

HISTORIES = sorted(Path(__file__).with_name("histories").glob("*.json"))


def test_a_run_waits_for_signals_and_for_its_time(temporal: TemporalServer) -> None:
    async def main() -> None:
        client = await temporal.client()
        script = Script(
            answer("due", 3),
            answer("waits", 4, attention=("denied",)),
            answer("waits", 6, after_ms=50),
            answer("held", 8, after_ms=50),
            answer("ended", 9, status="completed"),
        )
        async with serving(client, script):
            handle = await start(client, script)
            await script.until(2)
            await start(client, script, version=3)  # an earlier version than the slice has left
            assert script.count == 2
            await start(client, script, version=4)
            assert await handle.result() == "ended"
        assert script.count == 5
        found = (await handle.describe()).typed_search_attributes
        assert (found[LANE], found[STATUS], found[NODE]) == ("temporal:scripted@1", "completed", "desk")
        assert not found.get(ATTENTION)
        events = [event.event_type for event in (await handle.fetch_history()).events]
        assert events.count(EventType.EVENT_TYPE_TIMER_STARTED) == 2  # none for a wait without a time
        assert events.count(EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES) == 4  # only changes

    asyncio.run(main())


def test_a_slice_without_a_worker_of_its_version_goes_to_another(temporal: TemporalServer) -> None:
    async def main() -> None:
        client = await temporal.client()
        script = Script(answer("unserved", 2, after_ms=50), answer("ended", 5, lane=NEXT), lanes=(NEXT,))
        async with serving(client, script):
            handle = await start(client, script)
            assert await handle.result() == "ended"
        assert script.count == 2

    asyncio.run(main())


def test_a_long_run_continues_in_a_new_history(temporal: TemporalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "SLICES_MAX", 3)

    async def main() -> None:
        client = await temporal.client()
        script = Script(*(answer("due", n) for n in range(1, 8)), answer("elsewhere", 9))
        async with serving(client, script):
            handle = await start(client, script)
            assert await handle.result() == "elsewhere"
        assert script.count == 8
        first = client.get_workflow_handle(handle.id, run_id=handle.first_execution_run_id)
        assert (await first.describe()).raw_description.workflow_execution_info.first_run_id != (
            await first.describe()
        ).run_id

    asyncio.run(main())


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_the_interpreter_replays_stored_histories(path: Path) -> None:
    """Histories of `python -m tests.temporal.histories`. One that fails needs `workflow.patched`."""
    replayer = Replayer(workflows=[RunWorkflow], workflow_runner=UnsandboxedWorkflowRunner(), build_id="test")
    asyncio.run(replayer.replay_workflow(WorkflowHistory.from_json(path.stem, path.read_text(encoding="utf-8"))))
