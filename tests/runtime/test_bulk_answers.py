"""Jobs that answer runs: each run once on every store, whatever dies, and only runs that still fit."""

import asyncio
import logging
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import cast

import pytest

from outlast import Workflow
from outlast.core.approvals import Actor
from outlast.core.bulk_answers import BULK, CONFIRM_ABOVE, PAGE
from outlast.core.causes import flagged as with_flags
from outlast.core.commit import Commit, Put, in_portions
from outlast.core.machine import ENDED, Choice, Reason, RunStatus
from outlast.core.rows.run_columns import ATTENTION, WAITING_FOR, Attention, WaitingFor
from outlast.core.rows.run_rows import MESSAGE, RUN, Message, Run
from outlast.engine import commands
from outlast.engine.admission import set_slots
from outlast.errors import Conflict, DefinitionError, Forbidden, InvalidInput, NotFound
from outlast.flow.context import Context
from outlast.insight.tenant_rows import TenantRows
from outlast.models import milliseconds
from outlast.models.attention import RunAttention
from outlast.models.bulk import BulkAnswer
from outlast.runtime import bulk_answers
from outlast.runtime.bulk_answers import BulkState, answer_page
from outlast.runtime.local_worker import worker_of
from outlast.runtime.operations import Operations
from outlast.runtime.stores import open_store
from outlast.service.identity.permissions import permissions
from outlast.store.port import Store
from tests.dynamodb import server as dynamodb
from tests.insight.situations import RUN as ROW
from tests.postgres import server as postgres

TENANT = "default"
STORES = ("memory", "sqlite", "postgresql", "dynamodb")


@contextmanager
def url_of(kind: str, folder: Path) -> Iterator[str]:
    """Provide the URL of a new store of this kind."""
    name = f"bulk-{token_hex(6)}"
    if kind == "memory":
        yield "memory:"
    elif kind == "sqlite":
        yield f"sqlite:{folder / 'outlast.db'}"
    elif kind == "postgresql":
        schema = name.replace("-", "_")
        yield f"{postgres.url()}?schema={schema}"
        asyncio.run(postgres.drop(schema))
    else:
        yield dynamodb.url(name)
        asyncio.run(dynamodb.discard(name))


def flagged(n: int, reason: Reason = Reason.EXCEPTION, *, key: str = "", since: int = 1_000) -> Run:
    """Return a run that no worker serves, flagged for one reason."""
    row = ROW._replace(
        tenant=TENANT, run=f"r{n:05}", version=1, epoch=1, seq=1, status=RunStatus.WAITING, workflow="refund",
        created_at=1_000 + n,
        waiting_for_text=WAITING_FOR.encode([WaitingFor("attention", f"a person: {reason.value}")]),
        attention_text=ATTENTION.encode([Attention(reason, since, f"broken {n}", key)]),
    )  # fmt: skip
    return with_flags(row)


def waits(n: int, *, created_at: int = 0) -> Run:
    """Return a run at a node that waits for a signal and needs no person."""
    row = flagged(n)._replace(
        attention_text="",
        waiting_for_text=WAITING_FOR.encode([WaitingFor("signal", "paid")]),
        node="pay",
        created_at=created_at or 1_000 + n,
    )
    return with_flags(row)


async def put(store: Store, *rows: Run) -> None:
    for portion in in_portions(Put(RUN, row, 0) for row in rows):
        await store.commit(Commit(portion))


def operations(store: Store, actor: Actor | None = None, tenant: str = TENANT) -> Operations:
    return Operations(store, tenant=tenant, actor=actor or Actor("local:ana"), workflows={})


@asynccontextmanager
async def serving(store: Store) -> AsyncIterator[None]:
    """Serve built-in workflows while the block runs."""
    worker = worker_of(store, ())
    await worker.open()
    task = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.drain()
        await task


async def ended(ops: Operations, job: BulkAnswer) -> BulkAnswer:
    """Return the job once it has ended."""
    assert await ops.ended(job.run, within_s=60)
    return await ops.bulk_answer(job.run)


async def answered_by(ops: Operations, job: BulkAnswer, n: int) -> BulkAnswer | None:
    """Return the job if it has answered at least so many."""
    found = await ops.bulk_answer(job.run)
    return found if found.answered >= n else None


async def flags(ops: Operations, job: BulkAnswer) -> Sequence[RunAttention] | None:
    """Return why the job itself needs a person, if it does."""
    return await ops.attention_of(job.run) or None


async def answers(store: Store, rows: Sequence[Run]) -> dict[str, list[Message]]:
    """Return the answers in the inbox of each run."""
    return {row.run: list(await store.rows(MESSAGE, (TENANT, row.run))) for row in rows}


def play(test: Callable[[Store], Awaitable[None]], url: str = "memory:") -> None:
    """Run a test over a store."""

    async def go() -> None:
        store = await open_store(url, make=True)
        try:
            await test(store)
        finally:
            await store.close()

    asyncio.run(go())


@pytest.mark.req("GATE-5")
@pytest.mark.parametrize("kind", STORES)
def test_each_run_is_answered_once_on_every_store(kind: str, tmp_path: Path) -> None:
    rows = [flagged(n) for n in range(2 * PAGE + 5)]
    others = [flagged(900, Reason.POISONED), flagged(901)._replace(workflow="loan")]

    async def test(store: Store) -> None:
        await put(store, *rows, *others)
        ops = operations(store)
        async with serving(store):
            job = await ops.start_bulk_answer(Reason.EXCEPTION, Choice.CONTINUE, text="mended", workflow="refund")
            assert (job.total, job.answered, job.by) == (len(rows), 0, "local:ana")
            job = await ended(ops, job)
        assert (job.status, job.answered, job.refused, job.failures) == ("completed", len(rows), 0, [])
        result = job.result
        assert (result.runs, result.unfinished, result.again, result.at_least) == (len(rows), len(rows), 0, False)
        given = await answers(store, [*rows, *others])
        assert {run: len(each) for run, each in given.items()} == {row.run: row in rows for row in [*rows, *others]}
        assert {message.actor for each in given.values() for message in each} == {"local:ana"}

    with url_of(kind, tmp_path) as url:
        play(test, url)


def _killed_in_the_middle(url: str, runs: int, after: int) -> None:
    """Kill the worker of a job with SIGKILL, and let another one go on."""
    rows = [flagged(n) for n in range(runs)]

    async def test(store: Store) -> None:
        await put(store, *rows)
        ops = operations(store)
        job = await ops.start_bulk_answer(Reason.EXCEPTION, Choice.CONTINUE, text="mended")
        for then in (after, runs):
            worker = await asyncio.create_subprocess_exec(sys.executable, "-m", "tests.runtime.bulk_worker", url)
            try:
                assert await ops.until(partial(answered_by, ops, job, then), within_s=120)
            finally:
                worker.kill()
                await worker.wait()
        found = await ops.bulk_answer(job.run)
        assert (found.answered, found.refused) == (runs, 0)
        given = Counter({run: len(each) for run, each in (await answers(store, rows)).items()})
        assert given == Counter(row.run for row in rows)

    play(test, url)


@pytest.mark.req("GATE-5", "REC-1")
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_worker_killed_in_the_middle_of_a_job_gives_no_answer_twice(kind: str, tmp_path: Path) -> None:
    with url_of(kind, tmp_path) as url:
        _killed_in_the_middle(url, 500, 120)


class _Page:
    """Context of one execution of the node."""

    def __init__(self, store: Store, state: BulkState, run: str) -> None:
        self.store, self.state, self.tenant, self.run_id = store, state, TENANT, run


def test_a_page_that_was_answered_is_counted_and_not_answered_again() -> None:
    """The worker died after the answers of a page and before the checkpoint, and the runs have gone on."""
    rows = [flagged(n) for n in range(3)]

    async def test(store: Store) -> None:
        await put(store, *rows)
        ops = operations(store)
        job = await ops.start_bulk_answer(Reason.EXCEPTION, Choice.CONTINUE, text="mended")
        _, plain = await TenantRows(store, TENANT).last_state(job.run)
        first = _Page(store, BulkState.model_validate(plain), job.run)
        assert await answer_page(cast(Context[BulkState], first)) == "answer_page"
        page = first.state.model_copy(deep=True)
        await answer_page(cast(Context[BulkState], first))
        for row in rows[:2]:  # their holder has taken the answer
            now = await commands.find_run(store, TENANT, row.run)
            changed = with_flags(now._replace(version=now.version + 1, attention_text="", waiting_for_text=""))
            await store.commit(Commit((Put(RUN, changed, now.version),)))
        again = _Page(store, page, job.run)
        await answer_page(cast(Context[BulkState], again))
        assert (again.state.answered, again.state.refused) == (3, 0)
        assert all(len(each) == 1 for each in (await answers(store, rows)).values())

    play(test)


def test_a_run_that_moved_on_is_refused_and_the_rest_is_answered() -> None:
    rows = [flagged(n) for n in range(4)]

    async def test(store: Store) -> None:
        await put(store, *rows)
        ops = operations(store)
        job = await ops.start_bulk_answer(Reason.EXCEPTION, Choice.CONTINUE, text="mended")
        _, plain = await TenantRows(store, TENANT).last_state(job.run)
        at = _Page(store, BulkState.model_validate(plain), job.run)
        await answer_page(cast(Context[BulkState], at))
        newer = flagged(1, since=at.state.before + 1)  # flagged again after the job began
        await store.commit(Commit((Put(RUN, newer._replace(version=2), 1),)))
        other = flagged(2, Reason.POISONED)
        await store.commit(Commit((Put(RUN, other._replace(version=2), 1),)))
        await answer_page(cast(Context[BulkState], at))
        assert (at.state.answered, at.state.refused) == (2, 2)
        assert [each.run for each in at.state.failures] == ["r00002", "r00001"]
        assert all("no longer fits" in each.error and each.code == "OUT-402" for each in at.state.failures)
        assert {run: len(each) for run, each in (await answers(store, rows)).items()} == {
            "r00000": 1, "r00001": 0, "r00002": 0, "r00003": 1,
        }  # fmt: skip

    play(test)


def test_a_run_that_is_flagged_again_between_its_read_and_its_answer_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = commands.find_run

    async def test(store: Store) -> None:
        await put(store, flagged(0))
        job = await operations(store).start_bulk_answer(Reason.EXCEPTION, Choice.CONTINUE, text="mended")
        _, plain = await TenantRows(store, TENANT).last_state(job.run)
        at = _Page(store, BulkState.model_validate(plain), job.run)
        await answer_page(cast(Context[BulkState], at))

        async def changed_after(store: Store, tenant: str, run: str) -> Run:
            found = await read(store, tenant, run)
            if found.version == 1:
                newer = flagged(0, since=at.state.before + 1)
                await store.commit(Commit((Put(RUN, newer._replace(version=2), 1),)))
            return found

        monkeypatch.setattr(commands, "find_run", changed_after)
        await answer_page(cast(Context[BulkState], at))
        assert (at.state.answered, at.state.refused) == (0, 1)
        assert await store.rows(MESSAGE, (TENANT, "r00000")) == ()

    play(test)


def test_runs_that_are_flagged_after_the_start_are_left_alone() -> None:
    async def test(store: Store) -> None:
        await put(store, flagged(1))
        ops = operations(store)
        job = await ops.start_bulk_answer(Reason.EXCEPTION, Choice.CONTINUE, text="mended")
        await put(store, flagged(2, since=(await store.now()).business + 1))
        async with serving(store):
            job = await ended(ops, job)
        assert (job.total, job.answered) == (1, 1)
        assert not await store.rows(MESSAGE, (TENANT, "r00002"))

    play(test)


def test_a_job_is_cancelled_and_paused_as_a_run() -> None:
    rows = [flagged(n) for n in range(PAGE + 1)]

    async def test(store: Store) -> None:
        await put(store, *rows)
        ops = operations(store)
        await ops.pause("workflow", BULK, reason="wait for the deploy")
        job = await ops.start_bulk_answer(Reason.EXCEPTION, Choice.CONTINUE, text="mended")
        async with serving(store):
            await asyncio.sleep(0.3)
            assert (await ops.bulk_answer(job.run)).answered == 0
            assert (await ops.resume("workflow", BULK)).runs == 1
            await ended(ops, job)
        other = await ops.start_bulk_answer(Reason.EXCEPTION, Choice.CANCEL, text="mended")
        await ops.cancel(other.run, reason="the wrong ones")
        async with serving(store):
            assert (await ended(ops, other)).status == "cancelled"
        assert all(len(each) == 1 for each in (await answers(store, rows)).values())

    play(test)


def test_uncertain_effects_are_given_up_one_by_one_and_never_settled() -> None:
    async def test(store: Store) -> None:
        await put(store, flagged(1, Reason.EFFECT_UNCERTAIN, key="pay/1"))
        ops = operations(store)
        for choice in (Choice.HAPPENED, Choice.DID_NOT_HAPPEN):
            with pytest.raises(Conflict):
                await ops.preview_bulk_answer(Reason.EFFECT_UNCERTAIN, choice)
            with pytest.raises(Conflict):
                await ops.start_bulk_answer(Reason.EFFECT_UNCERTAIN, choice, text="all of them")
        assert (await ops.preview_bulk_answer(Reason.EFFECT_UNCERTAIN, Choice.GIVE_UP)).runs == 1

    play(test)


def test_more_than_a_hundred_runs_are_ended_only_with_their_number() -> None:
    rows = [flagged(n) for n in range(CONFIRM_ABOVE + 1)]

    async def test(store: Store) -> None:
        await put(store, *rows)
        ops = operations(store)
        preview = await ops.preview_bulk_answer(Reason.EXCEPTION, Choice.CANCEL)
        assert (preview.runs, preview.confirm) == (len(rows), True)
        for confirm in (0, len(rows) - 1):
            with pytest.raises(Conflict):
                await ops.start_bulk_answer(Reason.EXCEPTION, Choice.CANCEL, text="gone", confirm=confirm)
        job = await ops.start_bulk_answer(Reason.EXCEPTION, Choice.CANCEL, text="gone", confirm=preview.runs)
        assert job.total == len(rows)

    play(test)


@pytest.mark.parametrize("kind", STORES)
def test_a_job_without_a_reason_cancels_the_unfinished_runs_that_a_query_finds(kind: str, tmp_path: Path) -> None:
    waiting = [waits(n) for n in range(PAGE + 3)]
    others = [waits(900)._replace(node="look"), waits(901)._replace(workflow="loan"), waits(902, created_at=10**15)]
    over = waits(903)._replace(status=RunStatus.COMPLETED, ended_at=5_000, owner=ENDED, waiting_for_text="")
    query = "status:waiting workflow:refund node:pay"

    async def test(store: Store) -> None:
        await put(store, *waiting, *others, over)
        ops = operations(store)
        with pytest.raises(Conflict):
            await ops.preview_bulk_answer(None, Choice.CONTINUE, query=query)
        with pytest.raises(InvalidInput):
            await ops.preview_bulk_answer(None, Choice.CANCEL)
        with pytest.raises(InvalidInput):
            await ops.preview_bulk_answer(None, Choice.CANCEL, query=query, contains="no line")
        assert (await ops.preview_bulk_answer(None, Choice.CANCEL, query="workflow:refund is:flagged")).runs == 0
        preview = await ops.preview_bulk_answer(None, Choice.CANCEL, query=query)
        job = await ops.start_bulk_answer(None, Choice.CANCEL, text="the shop is closed", query=query)
        assert (preview.runs, job.total, job.reason, job.query) == (len(waiting) + 1, len(waiting) + 1, "", query)
        async with serving(store):
            job = await ended(ops, job)
        assert (job.answered, job.refused, job.moved_on) == (len(waiting), 0, 1), "the last one started after the job"
        found = await answers(store, [*waiting, *others, over])
        assert {run for run, given in found.items() if given} == {row.run for row in waiting}
        assert {each.reason for given in found.values() for each in given} == {"the shop is closed"}

    with url_of(kind, tmp_path) as url:
        play(test, url)


@pytest.mark.parametrize("kind", STORES)
def test_a_query_narrows_the_runs_of_a_reason(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [flagged(1), flagged(2)._replace(objective="Refund for acme")]

    async def test(store: Store) -> None:
        await put(store, *rows)
        ops = operations(store)
        assert (await ops.preview_bulk_answer(Reason.EXCEPTION, Choice.CONTINUE, query="acme")).runs == 1
        job = await ops.start_bulk_answer(Reason.EXCEPTION, Choice.CONTINUE, text="mended", query="acme")
        async with serving(store):
            job = await ended(ops, job)
        assert (job.total, job.answered) == (1, 1)
        assert {run for run, given in (await answers(store, rows)).items() if given} == {"r00002"}
        row = await store.load(RUN, (TENANT, "r00002"))
        assert row is not None
        after = {job.before + timedelta(minutes=1): (1, 1, False), job.before: (0, 0, False)}
        for at, expected in after.items():
            again = flagged(2, since=milliseconds(at))._replace(version=row.version + 1)
            await store.commit(Commit((Put(RUN, again, row.version),)))
            found = (await ops.bulk_answer(job.run)).result
            assert (found.again, found.same, found.at_least) == expected
            row = again
        monkeypatch.setattr(bulk_answers, "RESULT_MAX", 1)
        assert (await ops.bulk_answer(job.run)).result.at_least, "there may be more answers than were read"

    with url_of(kind, tmp_path) as url:
        play(test, url)


def test_programs_and_people_without_the_role_give_no_answer() -> None:
    async def test(store: Store) -> None:
        await put(store, flagged(1))
        with pytest.raises(Forbidden):
            await operations(store, Actor("bot", person=False)).start_bulk_answer(
                Reason.EXCEPTION, Choice.CONTINUE, text="x"
            )
        viewer = operations(store, Actor("vera", frozenset({"viewer"}), ("viewer",)))
        job = await viewer.start_bulk_answer(Reason.EXCEPTION, Choice.CONTINUE, text="x")  # as HTTP would not
        async with serving(store):
            found = await viewer.until(lambda: flags(viewer, job), within_s=20)
        assert found is not None and "vera may not answer attention" in found[0].detail
        assert not await store.rows(MESSAGE, (TENANT, "r00001"))

    play(test)


def test_the_roles_of_a_job_are_those_of_the_table() -> None:
    assert permissions().roles["start_bulk_answer"] == bulk_answers.MAY_ANSWER


def test_each_answer_leaves_an_audit_line_with_the_person(caplog: pytest.LogCaptureFixture) -> None:
    async def test(store: Store) -> None:
        await put(store, flagged(1), flagged(2))
        ops = operations(store, Actor("olga", frozenset({"operator"}), ("operator",)))
        async with serving(store):
            job = await ended(ops, await ops.start_bulk_answer(Reason.EXCEPTION, Choice.CONTINUE, text="mended"))
        lines = [vars(each)["outlast"] for each in caplog.records if each.name == "outlast.audit"]
        assert sorted(line["run"] for line in lines) == ["r00001", "r00002"]
        for line in lines:
            assert (line["by"], line["outcome"], line["at"]) == ("olga", "answered", f"job {job.run}")
            assert line["asked"] == {"choice": "continue", "attention": "exception", "key": "", "reason": "mended"}

    with caplog.at_level(logging.INFO, logger="outlast.audit"):
        play(test)


def test_a_job_needs_no_slot() -> None:
    async def test(store: Store) -> None:
        await put(store, flagged(1))
        (slot,) = await set_slots(store, TENANT, 1)
        await set_slots(store, "*", 1)
        ops = operations(store)
        job = await ops.start_bulk_answer(Reason.EXCEPTION, Choice.CONTINUE, text="mended")
        row = await commands.find_run(store, TENANT, job.run)
        assert row.queue == "" and not slot.holder
        async with serving(store):
            assert (await ended(ops, job)).answered == 1

    play(test)


def test_a_repeated_request_is_the_same_job() -> None:
    async def test(store: Store) -> None:
        await put(store, flagged(1))
        jobs = []
        for _ in range(2):
            ops = operations(store)
            ops.use_key("once")
            jobs.append((await ops.start_bulk_answer(Reason.EXCEPTION, Choice.CONTINUE, text="mended")).run)
        assert jobs[0] == jobs[1]

    play(test)


def test_what_is_not_a_job() -> None:
    async def test(store: Store) -> None:
        ops = operations(store)
        with pytest.raises(NotFound, match="no run that fits"):
            await ops.start_bulk_answer(Reason.EXCEPTION, Choice.CONTINUE, text="x")
        await put(store, flagged(1))
        for run in ("r00001", "r9"):
            with pytest.raises(NotFound):
                await ops.bulk_answer(run)
        other = operations(store, tenant="other")
        assert (await other.preview_bulk_answer(Reason.EXCEPTION, Choice.CONTINUE)).runs == 0

    play(test)


def test_built_in_workflows_are_not_listed_and_their_names_are_reserved() -> None:
    async def test(store: Store) -> None:
        async with serving(store):
            ops = operations(store)
            assert [each.serves for each in await ops.workers()] == [[]]
            assert await ops.versions() == []

    play(test)
    with pytest.raises(DefinitionError, match="reserved name"):
        Workflow("outlast.mine", state=BulkState)
