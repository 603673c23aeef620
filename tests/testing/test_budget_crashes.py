"""A run whose budget runs out twice, killed at every place where it matters: no paid call beyond those it needs."""

import pytest

from outlast import Budget, Context, Workflow, activity, lookup, this_call
from outlast.http import AsyncClient
from outlast.testing import FakeReceivers, PendingQuestion, RunEnd, choose, every_crash
from outlast.testing.answers import ScriptedAnswer
from tests.engine.world import State

pytestmark = pytest.mark.req("RUN-10")
world = FakeReceivers(env="BUDGET_WORLD").start()
WORDS = ("a", "b", "c")


async def post(path: str, **body: str) -> str:
    async with AsyncClient(base_url=world.url, timeout=5) as http:
        return str((await http.post(path, json=body)).json()["id"])


@lookup(name="priced-model", durable=True)
async def ask(word: str) -> str:
    answer = await post("/answers", word=word)
    this_call().used(tokens=100, money="0.1")
    return answer


@activity(key="priced-print/{word}", no_undo="paper is paper", if_uncertain="reconcile")
async def print_word(word: str) -> str:
    this_call().used(tokens=10)
    return await post("/prints", word=word)


@print_word.reconcile
async def find_print(word: str) -> object:
    from outlast import DidNotHappen, Happened

    async with AsyncClient(base_url=world.url, timeout=5) as http:
        answer = await http.get("/", headers={"Idempotency-Key": this_call().idempotency_key})
    return Happened(str(answer.json()["id"])) if answer.is_success else DidNotHappen()


def flow(name: str, budget: Budget | None) -> Workflow[State]:
    made = Workflow(name, state=State, budget=budget)

    @made.node(start=True)
    async def only(ctx: Context[State]) -> None:
        for word in WORDS:
            await ctx.do(ask, word)
            await ctx.do(print_word, word)
            ctx.state.said.append(word)

    return made


bounded, unbounded = flow("bounded", Budget(tokens=100)), flow("unbounded", None)


def decide(asked: PendingQuestion) -> ScriptedAnswer | None:
    return choose("raise", tokens=110) if asked.name == "budget_exhausted" else None


@every_crash(bounded, {}, receivers=world, decide=decide, cases=8)
def test_a_budget_that_runs_out_in_a_step_pays_for_nothing_twice(end: RunEnd) -> None:
    assert end.state["said"] == list(WORDS)
    assert end.receivers.executed(route="/answers") == len(WORDS)
    assert end.receivers.executed(route="/prints") == len(WORDS)
    end.receivers.assert_effects_once()
    if not end.case:
        assert len(end.receivers.of("attempt", route="/answers")) == len(WORDS)


@every_crash(unbounded, {}, receivers=world, cases=1)
def test_an_unbounded_run_makes_as_many_calls(end: RunEnd) -> None:
    if not end.case:
        assert len(end.receivers.of("attempt", route="/answers")) == len(WORDS)
