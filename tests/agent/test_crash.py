"""An agent that is killed at every place where it matters: each answer paid once, each tool called once."""

import pytest

from outlast import DidNotHappen, Happened, activity, lookup, this_call
from outlast.agent import ChatCompletions, agent_workflow
from outlast.http import AsyncClient
from outlast.testing import FakeReceivers, RunEnd, completions, every_crash
from tests.agent.agents import asks

world = FakeReceivers(env="AGENT_WORLD").start()
completions(
    world,
    [
        asks(("look", {"at": "disk"}), ("clean", {"host": "a"}), ("nothing", {})),
        "done",
    ],
)


async def post(path: str, **body: str) -> str:
    async with AsyncClient(base_url=world.url, timeout=5) as http:
        answer = await http.post(path, json=body)
        return str(answer.json()["id"])


@lookup
async def look(at: str) -> str:
    """Look at something."""
    return f"{at}: 100 %"


@activity(key="clean/{host}", no_undo="files are gone")
async def clean(host: str) -> str:
    """Remove old files of a host."""
    return await post("/cleanings", host=host)


@clean.reconcile
async def find_cleaning(host: str) -> Happened[str] | DidNotHappen:
    async with AsyncClient(base_url=world.url, timeout=5) as http:
        answer = await http.get("/", headers={"Idempotency-Key": this_call().idempotency_key})
    return Happened(str(answer.json()["id"])) if answer.is_success else DidNotHappen()


keeper = agent_workflow(
    "keeper",
    tools=[look, clean],
    model=ChatCompletions("scripted", url=world.url),
)


@pytest.mark.req("GATE-7", "RUN-1")
@every_crash(keeper, {"objective": "free some space"}, receivers=world, cases=12, seed=1)
def test_an_agent_ends_the_same_after_any_crash(end: RunEnd) -> None:
    """Half of these cases are about calls. `scripts/crash drawn` plays all of them."""
    assert end.outcome == "done"
    assert end.receivers.executed(route="/chat/completions") == 2
    assert end.receivers.executed(route="/cleanings") == 1
    end.receivers.assert_effects_once()
