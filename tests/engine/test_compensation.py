"""What a run did is undone before it ends failed or cancelled: in reverse, each once, whatever dies meanwhile (S-19)."""

import json
from typing import Any

import pytest

from outlast.flow import Context, Failed, Perhaps, Refused, Stopped, Workflow, repeat
from outlast.telemetry import WORKFLOW_COMPENSATIONS
from tests.engine.world import (
    QUIET,
    SECOND,
    Acts,
    Receiver,
    Slow,
    State,
    World,
    after,
    one_node,
    write,
)


def trip(*acts: Any, end: BaseException | None = None, waits: bool = False) -> Workflow[State]:
    """One node that does each of `acts` in turn, and then ends, or waits for a signal."""

    async def body(ctx: Context[State]) -> None:
        for n, act in enumerate(acts):
            ctx.state.said.append(await ctx.do(act, "abcdef"[n]))
        if waits:
            await ctx.receive("go", State)
        if end is not None:
            raise end

    return one_node(body)


def keys(receiver: Receiver) -> list[str]:
    """What the receiver did, by the keys without tenant, run and visit."""
    return [key.split(":", 3)[3] for key in receiver.did]


@pytest.mark.req("EFF-6", "OBS-3")
@pytest.mark.parametrize(("error", "status"), [(Failed("enough"), "failed"), (Stopped("enough"), "cancelled")])
async def test_what_was_done_is_undone_in_reverse(world: World, error: Exception, status: str) -> None:
    shop = Receiver()
    mail = write(shop, name="mail")
    flow = trip(
        write(shop, name="hotel", undo=True),
        mail,
        write(shop, name="card", undo=True),
        write(shop, name="flight", undo=True),
        end=error,
    )
    process = world.worker(flow)
    await world.start(flow)
    assert keys(shop) == [
        "hotel/a", "mail/b", "card/c", "flight/d", "undo/flight/d", "undo/card/c", "undo/hotel/a",
    ]  # fmt: skip
    assert (world.status(), world.run().owner, world.run().due_at) == (status, "ended", None)
    assert {e.key: e.status.value for e in world.effects()} == {
        "hotel/a": "undone", "mail/b": "done", "card/c": "undone", "flight/d": "undone",
        "undo/flight/d": "done", "undo/card/c": "done", "undo/hotel/a": "done",
    }  # fmt: skip
    assert shop.given == ["did flight/d", "did card/c", "did hotel/a"]
    assert world.verbs()[-3:] == ["compensating", "compensated", status]
    told = json.loads(world.events()[-2].body)
    assert told["type"] == "dev.outlast.workflow.compensated"
    assert told["data"]["undone"] == ["flight flight/d", "card card/c", "hotel hotel/a"]
    assert told["data"]["stands"] == ["mail mail/b: a test undoes nothing"] == world.last_event()["standing"]
    assert (told["data"]["by_hand"], world.last_event()["reason"]) == ([], "enough")
    assert process.worker.counters[WORKFLOW_COMPENSATIONS] == 3
    assert [e.ordinal for e in world.effects()] == [1, 2, 3, 4, 5, 6, 7]
    assert all(e.undoes == f"1:{e.key.removeprefix('undo/')}" for e in world.effects()[4:])
