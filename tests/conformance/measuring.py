"""Promises about the rows from which durations are measured and calls of tools are counted."""

from outlast.core.commit import Commit, Put
from outlast.core.keys import ADMISSION, MODEL
from outlast.core.machine import ApprovalStatus, EffectStatus, RunStatus
from outlast.core.rows.effect_rows import EFFECT, MEMO, Memo
from outlast.core.rows.run_rows import EVENT, RUN
from outlast.store.agent_calls import CountedCall, CountedMemo, NewestCalls, NewestMemos
from outlast.store.bars import OfRuns
from outlast.store.measured_rows import (
    LastEnds,
    Measured,
    MeasuredApproval,
    MeasuredApprovals,
    MeasuredCall,
    MeasuredRun,
    MeasuredRuns,
    RunCourses,
)
from tests.conformance.subject import (
    LANE,
    T0,
    Subject,
    approval_row,
    done,
    effect_row,
    ended,
    event_row,
    puts,
    run_row,
    start,
    the_run,
    two,
)

CLAIMED = "run.claimed"


async def runs_are_measured_from_the_last_end(s: Subject) -> None:
    """`MeasuredRuns` reads ended runs of a time, newest end first, with the claim among their first events."""
    a, b = await two(s)
    ends = {"run-1": ("completed", 0), "run-2": ("failed", 3), "run-3": ("cancelled", 5), "run-4": ("completed", 9)}
    claims = {
        "run-1": ((2, CLAIMED, 7),),
        "run-2": ((2, "run.queued", 1), (3, CLAIMED, 8)),
        "run-4": ((4, CLAIMED, 9),),
    }
    for name, (status, after) in ends.items():
        await a.commit(start(run_row(name, workflow=name[-1], lane=f"{name[-1]}@1")))
        row = await the_run(a, name)
        over = ended(row)._replace(status=RunStatus(status), ended_at=T0 + after)
        of_run = [event_row(name, seq)._replace(kind=kind, at=T0 + at) for seq, kind, at in claims.get(name, ())]
        await a.commit(Commit((*puts(*of_run), Put(RUN, over, row.version))))
    await a.commit(start(run_row("run-5")))
    found = [
        MeasuredRun(name, name[-1], T0, T0 + ends[name][1], 1, at)
        for name, at in (("run-3", 0), ("run-2", T0 + 8), ("run-1", T0 + 7))
    ]
    assert await b.query(MeasuredRuns("acme", T0, T0 + 9)) == LastEnds((5, 3, 0), tuple(found), more=False)
    assert await b.query(MeasuredRuns("acme", T0 + 1, T0 + 5)) == LastEnds((3,), (found[1],), more=False)
    cut = await b.query(MeasuredRuns("acme", T0, T0 + 9, most=2, last=1))
    assert cut == LastEnds((5, 3), (found[0],), more=True)
    of_second = await b.query(MeasuredRuns("acme", T0, T0 + 9, OfRuns("2", "2@1")))
    assert of_second == LastEnds((3,), (found[1],), more=False)
    assert await b.query(MeasuredRuns("globex", T0, T0 + 9)) == LastEnds((), (), more=False)
    late = await b.query(MeasuredRuns("acme", T0 + 9, T0 + 10))
    assert [(row.run, row.claimed_at) for row in late.last] == [("run-4", 0)]


async def approvals_are_measured_from_the_last_request(s: Subject) -> None:
    """`MeasuredApprovals` reads those that a person decided by their request, or the pending ones by their deadline."""
    a, b = await two(s)
    for name in ("run-1", "run-2"):
        await a.commit(start(run_row(name, workflow=name[-1])))
    await a.commit(start(run_row("run-1", "globex")))
    statuses = [ApprovalStatus.APPROVED, ApprovalStatus.REJECTED, ApprovalStatus.AGAIN, ApprovalStatus.WITHDRAWN,
                ApprovalStatus.WITHDRAWN, ApprovalStatus.PENDING, ApprovalStatus.PENDING]  # fmt: skip
    for n, status in enumerate(statuses):
        run = "run-2" if n % 2 else "run-1"
        at, by = (0, "") if status is ApprovalStatus.PENDING else (T0 + 10 * n, "bob")
        asked = approval_row(f"ap-{n}", run, asked_at=T0 + n)
        chosen = "d" if status is ApprovalStatus.APPROVED else ""
        row = asked._replace(status=status, decided_at=at, decided_by=by, chosen=chosen)
        await a.commit(Commit(puts(row)))
    await a.commit(Commit(puts(approval_row("ap-9", tenant="globex"))))
    found = [MeasuredApproval(flow, "finance", T0 + n, T0 + 10 * n) for n, flow in ((2, "1"), (1, "2"), (0, "1"))]
    assert await b.query(MeasuredApprovals("acme", T0, T0 + 9)) == Measured(tuple(found), more=False)
    assert await b.query(MeasuredApprovals("acme", T0, T0 + 2)) == Measured(tuple(found[1:]), more=False)
    assert await b.query(MeasuredApprovals("acme", T0, T0 + 9, most=1)) == Measured((found[0],), more=True)
    of_second = await b.query(MeasuredApprovals("acme", T0, T0 + 9, OfRuns("2")))
    assert of_second == Measured((found[1],), more=False)
    pending = [MeasuredApproval("2", "finance", T0 + 5, 0), MeasuredApproval("1", "finance", T0 + 6, 0)]
    assert await b.query(MeasuredApprovals("acme", 0, 1, pending=True)) == Measured(tuple(pending), more=False)
    cut = await b.query(MeasuredApprovals("acme", 0, 1, OfRuns("1"), 1, pending=True))
    assert cut == Measured((pending[1],), more=False)


async def courses_have_events_and_calls_without_their_values(s: Subject) -> None:
    """`RunCourses` reads events and calls of several runs, in the order that was asked."""
    a, b = await two(s)
    for name in ("run-1", "run-2"):
        await a.commit(start(run_row(name)))
        await a.commit(Commit(puts(*(event_row(name, seq) for seq in (2, 3)))))
    await a.commit(Commit((Put(EFFECT, effect_row(), 0),)))
    call = effect_row("run-1", "invite/2")._replace(first_at=T0 + 2)
    await a.commit(Commit((Put(EFFECT, call, 0),)))
    settled = done(call)
    await a.commit(Commit((Put(EFFECT, settled, 1),)))
    two_, one, none = await b.query(RunCourses("acme", ("run-2", "run-1", "run-3")))
    assert [each.run for each in (two_, one, none)] == ["run-2", "run-1", "run-3"]
    assert (two_.calls, none.events, none.calls) == ((), (), ())
    assert one.calls == (MeasuredCall(T0, 0), MeasuredCall(T0 + 2, settled.settled_at))
    stored = await b.rows(EVENT, ("acme", "run-1"))
    assert [each[1:7] for each in one.events] == [each[1:7] for each in stored]
    assert {each.snapshot for each in one.events} == {None}
    assert [each.details for each in one.events] == [each.details for each in stored]


async def the_newest_calls_are_read(s: Subject) -> None:
    """`NewestCalls` reads rows of the ledger by their first intent, newest first, with the lane of their runs."""
    a, b = await two(s)
    await a.commit(start(run_row("run-1")))
    first = effect_row()
    child = effect_row(key="invite/2")._replace(first_at=T0 + 2, child_text="{}", attempts=2)
    shared = effect_row("", "invite/3", visit=0)._replace(first_at=T0 + 1, by_run="run-9")
    undo = effect_row(key="undo")._replace(first_at=T0 + 3, undoes="1:invite/1")
    for row in (first, child, shared, undo, effect_row("run-1", tenant="globex")):
        await a.commit(Commit((Put(EFFECT, row, 0),)))
    settled = done(first)
    await a.commit(Commit((Put(EFFECT, settled, 1),)))
    status = EffectStatus.INTENDED
    found = (
        CountedCall("invite", status, T0 + 2, 0, "run-1", 1, "invite/2", 2, "", is_child=True, lane=LANE),
        CountedCall("invite", status, T0 + 1, 0, "run-9", 0, "invite/3", 1, "", is_child=False, lane=""),
        CountedCall("invite", settled.status, T0, T0, "run-1", 1, "invite/1", 1, "call", is_child=False, lane=LANE),
    )
    assert await b.query(NewestCalls("acme")) == found
    assert await b.query(NewestCalls("acme", most=2)) == found[:2]
    assert await b.query(NewestCalls("initech")) == ()


async def memos_of_the_newest_runs_are_read(s: Subject) -> None:
    """`NewestMemos` reads lookups without answers, and verdicts, of the runs that were created last."""
    a, b = await two(s)
    for n in range(3):
        await a.commit(start(run_row(f"run-{n}", created_at=T0 + n)))
    lookup = Memo("acme", "run-1", 1, "read/a", "read_log", "d", b'"a"', "", T0 + 5)
    verdict = lookup._replace(key="policy/pay/1", activity="outlast.policy", digest="", response=b'{"verdict":"deny"}')
    rows = [
        lookup,
        lookup._replace(run="run-2", error_text='["no","gone","",0]', response=None, visit=2),
        verdict,
        verdict._replace(key="policies", visit=2),
        lookup._replace(key="model/1", activity=MODEL),
        lookup._replace(key="admission/1", activity=ADMISSION),
        lookup._replace(run="run-0"),
    ]
    for row in rows:
        await a.commit(Commit((Put(MEMO, row, 0),)))
    found = (
        CountedMemo("read_log", "run-2", 2, "read/a", T0 + 5, failed=True, body=b"", lane=LANE),
        CountedMemo("outlast.policy", "run-1", 1, verdict.key, T0 + 5, False, b'{"verdict":"deny"}', LANE),
        CountedMemo("read_log", "run-1", 1, "read/a", T0 + 5, failed=False, body=b"", lane=LANE),
    )
    assert await b.query(NewestMemos("acme", runs=2)) == found
    assert await b.query(NewestMemos("acme", most=2)) == found[:2]
    assert len(await b.query(NewestMemos("acme"))) == 4
    assert await b.query(NewestMemos("globex")) == ()
