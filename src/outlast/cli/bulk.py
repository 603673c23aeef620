"""One answer for every run flagged for a reason: counted, asked about, given page by page, failures listed."""

from datetime import timedelta

from outlast.cli.acting import says, unsure
from outlast.cli.desk.port import Desk
from outlast.cli.failure import CONFLICT, OK
from outlast.cli.screen import Screen
from outlast.core.machine import Choice, Reason
from outlast.runtime.board import check_for_all

FAILURES_SHOWN = 50


async def answer_many(
    desk: Desk,
    screen: Screen,
    reason: Reason,
    choice: Choice,
    *,
    text: str,
    workflow: str,
    by: timedelta | None,
    yes: bool,
) -> int:
    """Ask, unless `yes`; answer each run once; say how many, and which could not be answered (exit code 4)."""
    check_for_all(reason, choice)
    n = await _count(desk, reason, workflow)
    of = f" of {workflow}" if workflow else ""
    if not n:
        if not screen.data({"answered": 0, "not_answered": []}):
            screen.line(f"no run{of} is flagged {reason.value}")
        return OK
    runs = "1 run" if n == 1 else f"{n} runs"
    question = f"{choice.value} for {runs}{of} flagged {reason.value}?"
    if not yes and (code := await unsure(screen, question)) is not None:
        return code
    done, failed = await _answer(desk, reason, choice, text, workflow, by)
    listed = [{"run": run, "why": why} for run, why in failed]
    if not screen.data({"answered": done, "not_answered": listed}):
        many = "1 run is answered" if done == 1 else f"{done} runs are answered"
        screen.line(f"{many}: {choice.value.replace('_', ' ')}{await says(desk)}")
        for run, why in failed[:FAILURES_SHOWN]:
            screen.line(f"  not {run}: {why}")
        if len(failed) > FAILURES_SHOWN:
            screen.line(f"  and {len(failed) - FAILURES_SHOWN} more → -o json")
    return CONFLICT if failed else OK


async def _count(desk: Desk, reason: Reason, workflow: str) -> int:
    runs, cursor = set[str](), ""
    while True:
        items, cursor = await desk.attention(reason=reason, workflow=workflow, cursor=cursor, first=False)
        runs |= {item["run"] for item in items if item["run"]}
        if not cursor:
            return len(runs)


async def _answer(
    desk: Desk, reason: Reason, choice: Choice, text: str, workflow: str, by: timedelta | None
) -> tuple[int, list[tuple[str, str]]]:
    done, failed, cursor = 0, list[tuple[str, str]](), ""
    while True:
        page = await desk.answer_all(reason, choice, text=text, workflow=workflow, by=by, cursor=cursor)
        done += len(page.done)
        failed += page.failed
        cursor = page.cursor
        if not cursor:
            return done, failed
