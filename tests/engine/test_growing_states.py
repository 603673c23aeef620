"""States that end with a list that grows: stored and loaded as if each step read and wrote the whole state."""

from collections.abc import Callable
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, field_serializer

from outlast.core.state import growing_list
from outlast.core.state.snapshot_codec import PLAIN, decode, unpack
from outlast.engine import snapshots
from outlast.flow import Context, Workflow
from outlast.upkeep.fsck import violations
from tests.engine.test_state import sound, text, values, wrote
from tests.engine.world import MINUTE, QUIET, Go, Receiver, World, write
from tests.mutants import remove

pytestmark = pytest.mark.req("CKP-3")


class Said(BaseModel):
    model_config = ConfigDict(frozen=True)

    n: int
    text: str = ""


class Talk(BaseModel):
    n: int = 0
    said: list[Said] = []


LEFT: list[list[Said]] = []


def talking(most: int, act: Any, size: int = 2_000) -> Workflow[Any]:
    """A node that adds one item in each visit, sometimes changes others, and keeps the list that it was given."""
    flow = Workflow("talk", state=Talk, outcome=lambda s: [s.n, len(s.said)])

    @flow.node(start=True, max_visits=1_000)
    async def talk(ctx: Context[Talk]) -> Literal["talk"] | None:
        for list_ in LEFT:
            list_.append(Said(n=-1, text="too late"))
        LEFT[:] = [ctx.state.said]
        ctx.state.n += 1
        await ctx.do(act, str(ctx.state.n))
        ctx.state.said.append(Said.model_construct(n=ctx.state.n, text=text(ctx.state.n, size)))
        if ctx.state.n % 10 == 0:
            ctx.state.said[3] = ctx.state.said[3].model_copy(update={"text": f"changed in {ctx.state.n}"})
        if ctx.state.n % 25 == 0:
            ctx.state = Talk(n=ctx.state.n, said=ctx.state.said[:5] + ctx.state.said[6:])
        return "talk" if ctx.state.n < most else None

    return flow.validate()


async def states_of(world: World, run: str = "r1") -> list[bytes]:
    found = {v.hash: unpack(v.packed, v.body, v.hash) for v in values(world, run)}
    return [decode(e.snapshot, found).state for e in world.events(run) if e.snapshot is not None]


@pytest.mark.req("CKP-2")
async def test_states_are_the_same_as_if_each_step_read_all_of_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """r1: only new items are dumped and loaded. r2: all at each step. r3: holders die. Late changes are lost."""
    flow = talking(52, write(Receiver(dedupes=True), mode="reconcile"))
    assert flow.growing is not None
    LEFT.clear()
    world.worker(flow)
    await world.start(flow)
    with monkeypatch.context() as patch:
        patch.setattr(flow, "growing", None)
        LEFT.clear()
        await world.start(flow, "r2")
    await world.off_duty()
    LEFT.clear()
    for n in (12, 25, 31):
        process = world.worker(flow)
        process.wire.before(f"advance talk#{n}", process.kill)
        await (world.start(flow, "r3") if n == 12 else world.pass_(QUIET))
    world.worker(flow)
    await world.pass_(QUIET + MINUTE)
    assert [world.outcome(run) for run in ("r1", "r2", "r3")] == [[52, 50]] * 3
    one, two, three = [await states_of(world, run) for run in ("r1", "r2", "r3")]
    assert one == two == three and len(one) == 53
    assert b"too late" not in one[-1]


async def test_an_appended_item_is_stored_once(world: World) -> None:
    """200 steps of 2 KB, in bytes of rows: the list once, and at most 0.3 of it for snapshots, lists and keys."""
    LEFT.clear()
    flow = talking(200, write(Receiver()))
    world.worker(flow)
    await world.start(flow)
    stored = (await states_of(world))[-1]
    snapshots = sum(len(e.snapshot or b"") for e in world.events())
    chunks = sum(len(v.body) if v.packed == PLAIN else len(unpack(*v[3:5], v.hash)) for v in values(world))
    assert len(stored) > 380_000
    assert snapshots + chunks < 1.5 * len(stored), "before packing"
    assert wrote(world) < 1.0 * len(stored), "hexadecimal digits take half"
    assert await sound(world) == []


# --- the safeguards -------------------------------------------------------------------------------
class Draft(BaseModel):
    """An item that a node may change in place."""

    n: int
    text: str = ""


class Drafts(BaseModel):
    n: int = 0
    said: list[Draft] = []


class Signed(BaseModel):
    """Its list is written with the text before the number."""

    n: int = 0
    said: list[Said] = []

    @field_serializer("said")
    def _sign(self, said: list[Said]) -> list[dict[str, Any]]:
        return [{"text": each.text, "n": each.n} for each in said]


def editing(state: Any, item: Callable[[int], Any], edit: Callable[[Any], None]) -> Workflow[Any]:
    """A node that adds a large item in each of six visits, and changes the list after that."""
    flow = Workflow("edits", state=state)

    async def turn(ctx: Any) -> Literal["turn"] | None:
        ctx.state.n += 1
        ctx.state.said.append(item(ctx.state.n))
        edit(ctx.state.said)
        return "turn" if ctx.state.n < 6 else None

    turn.__annotations__["ctx"] = Context[state]
    flow.node(start=True, max_visits=10)(turn)
    return flow.validate()


async def states_by_steps_and_whole(world: World, flow: Workflow[Any], patch: pytest.MonkeyPatch) -> list[list[bytes]]:
    """Return the states of a run that reuses items if it may, and of one that reads and writes each state whole."""
    LEFT.clear()
    world.worker(flow)
    await world.start(flow)
    LEFT.clear()
    with patch.context() as within:
        within.setattr(flow, "growing", None)
        await world.start(flow, "r2")
    assert [world.status(run) for run in ("r1", "r2")] == ["completed", "completed"]
    return [await states_of(world, run) for run in ("r1", "r2")]


GUARDED = pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "removed"])


@GUARDED
async def test_an_item_that_is_changed_in_place(world: World, monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    if not guarded:
        remove("mutable_items_reused", monkeypatch)

    def edit(said: list[Draft]) -> None:
        said[0].text = text(len(said), 5_000)

    flow = editing(Drafts, lambda n: Draft(n=n, text=text(n, 5_000)), edit)
    one, two = await states_by_steps_and_whole(world, flow, monkeypatch)
    assert (one == two) is guarded


@GUARDED
async def test_an_item_that_is_written_otherwise_in_its_state(
    world: World, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """Its type is refused. Without that, the comparison with the whole dump is left."""

    def ignoring_serializers(schema: dict[str, Any]) -> dict[str, Any]:
        schema = schema["schema"] if schema["type"] == "default" else schema
        return {name: each for name, each in schema.items() if name != "serialization"}

    monkeypatch.setattr(growing_list, "_without_default", ignoring_serializers)
    if not guarded:
        remove("first_dump_not_compared", monkeypatch)
    flow = editing(Signed, lambda n: Said(n=n, text=text(n, 5_000)), lambda said: None)
    assert flow.growing is not None
    one, two = await states_by_steps_and_whole(world, flow, monkeypatch)
    assert (one == two) is guarded


@GUARDED
async def test_a_list_that_an_earlier_node_kept(world: World, monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    """What it adds after its node has returned is in no state."""
    if not guarded:
        remove("list_shared_between_steps", monkeypatch)
    one, two = await states_by_steps_and_whole(world, talking(6, write(Receiver()), 5_000), monkeypatch)
    assert (one == two and b"too late" not in one[-1]) is guarded


@GUARDED
async def test_a_copy_of_a_run_has_all_its_chunks(world: World, monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    """Its lists of records are in chunks, too."""
    LEFT.clear()
    flow = talking(150, write(Receiver()))
    world.worker(flow)
    await world.start(flow)
    if not guarded:
        remove("chunks_of_the_list_not_kept", monkeypatch)
    (rows,) = await world.store.run_rows([("t", "r1")])
    assert rows is not None
    copied = await snapshots.values_of(world.store, rows, world.events())
    found = [f.check for f in violations(rows, world.events(), values=copied)]
    assert found == [] if guarded else "state_whole" in found


async def test_a_node_that_raises_or_waits_after_it_changed_the_list(world: World) -> None:
    """Its next execution gets the list of the last state."""
    flow = Workflow("raises", state=Talk, outcome=lambda s: [each.n for each in s.said])
    act = write(Receiver(), mode="reconcile")
    seen: list[list[int]] = []

    @flow.node(start=True, max_visits=10)
    async def turn(ctx: Context[Talk]) -> Literal["turn"] | None:
        seen.append([each.n for each in ctx.state.said])
        if ctx.state.n == 3:
            ctx.state.said.clear()
            ctx.state.said.append(Said(n=-1))
            if len(seen) == 4:
                raise ValueError("after a change")
            await ctx.receive("go", Go)
            ctx.state.said = [Said(n=n, text=text(n, 5_000)) for n in (0, 1, 2)]
        ctx.state.n += 1
        await ctx.do(act, str(ctx.state.n))
        ctx.state.said.append(Said(n=ctx.state.n, text=text(ctx.state.n, 5_000)))
        return "turn" if ctx.state.n < 5 else None

    world.worker(flow.validate())
    await world.start(flow)
    await world.go_on()
    await world.signal("go", word="now")
    assert seen[:4] == [[], [1], [1, 2], [1, 2, 3]] and all(each == [1, 2, 3] for each in seen[3:-1])
    assert world.outcome() == [0, 1, 2, 4, 5]
