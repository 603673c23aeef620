"""The plugin as authors use it, in a separate pytest session: it passes sound workflows and fails planted bugs."""

import re
import shlex
import subprocess
from textwrap import dedent

import pytest

from tests import forked

pytest_plugins = ["pytester"]

ORDER = """
import time
from datetime import timedelta
from typing import Literal

import httpx2
from pydantic import BaseModel

from outlast import Context, DidNotHappen, Happened, Unknown, Workflow, activity, resend, role, this_call
from outlast.testing import FakeReceivers, approve_all, every_crash

bank = FakeReceivers(env="BANK_URL")
DAY = timedelta(hours=24)


class Order(BaseModel):
    order: str
    charge: str = ""


orders = Workflow("order", state=Order)


async def post(path: str, key: str = "", **body: str) -> str:
    async with httpx2.AsyncClient(base_url=bank.url, timeout=5) as http:
        answer = await http.post(path, json=body, headers={"Idempotency-Key": key} if key else {})
        answer.raise_for_status()
        return answer.json()["id"]


@activity(key="charge/{order}", if_uncertain=resend(remembered_for=DAY), no_undo="a refund is another workflow")
async def charge(order: str) -> str:
    return await post("/charges", this_call().idempotency_key, order=order)


@orders.node(start=True)
async def pay(ctx: Context[Order]) -> None:
    ctx.state.charge = await ctx.do(charge, ctx.state.order)


@every_crash(orders, {"order": "o-1"}, receivers=bank)
def test_order(end):
    assert end.outcome["charge"]
    end.receivers.assert_effects_once()
"""
KEYED = "this_call().idempotency_key, order=order"


# Plugins of other packages are disabled, because each session would load them again. One job is enough for most
# tests, because each job imports everything again.
PLAIN = ("-p", "no:cacheprovider", "-p", "no:schemathesis", "-p", "no:hypothesispytest", "-p", "no:anyio")


def run(pytester: pytest.Pytester, text: str, *args: str, jobs: int = 1) -> str:
    """Return the output of a session in a process that need not import pytest and Outlast again."""
    pytester.makepyfile(test_order=dedent(text))
    command = ("pytest", *PLAIN, f"--crash-jobs={jobs}", *args)
    done = forked.run(*command, cwd=pytester.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return str(done.stdout)


def summary(said: str) -> dict[str, int]:
    found = re.search(r"(\d+) crash points, (\d+) cases, (\d+) killed .*?, (\d+) ended .*?, (\d+) uncertain", said)
    assert found, said
    return dict(zip(("points", "cases", "killed", "equal", "uncertain"), map(int, found.groups()), strict=True))


@pytest.mark.req("TEST-1")
def test_a_sound_workflow_survives_every_crash(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_order=ORDER)
    result = pytester.runpytest_subprocess(*PLAIN, "--crash-jobs=2", "-v", "--crash-report=cases.txt")
    said = result.stdout.str() + result.stderr.str()
    assert "1 passed" in said, said
    told = summary(said)
    assert told["points"] == told["cases"] == told["killed"] == told["equal"] > 20
    for point in ("call:before", "call:flight", "call:inside", "call:after"):
        assert f"equal     r1 call charge/o-1 {point}" in said
    for side in ("before", "inside", "after"):
        assert f"equal     r1 record charge/o-1 store.batch:{side}" in said
    lines = (pytester.path / "cases.txt").read_text().splitlines()
    assert [line.split("\t")[1] for line in lines] == [f"{n}/{told['cases']}" for n in range(1, told["cases"] + 1)]


UNKEYED = (KEYED, "order=order"), "The request has no Idempotency-Key, so the receiver cannot recognise it"


@pytest.mark.req("TEST-1", "EFF-2")
def test_a_planted_bug_is_named_and_its_case_can_be_replayed(pytester: pytest.Pytester) -> None:
    planted, sentence = UNKEYED
    text = ORDER.replace(*planted)
    assert text != ORDER
    said = run(pytester, text)
    assert "1 failed" in said and sentence in said, said
    assert "✗ r1 call POST /charges call:inside" in said
    told = summary(said)
    assert told["killed"] == told["cases"] and 0 < told["cases"] - told["equal"] < told["cases"] // 2
    commands = [shlex.split(each)[1:] for each in re.findall(r"→ (pytest .*)", said)]
    name, argument = next(each for each in commands if "call POST /charges" in each[1])  # not of a background task
    again = run(pytester, text, name, argument)
    assert summary(again)["cases"] == 1 and "1 failed" in again and sentence in again, again


@pytest.mark.req("TEST-1", "EFF-2")
@pytest.mark.parametrize(
    ("planted", "call", "sentence"),
    [
        (
            (KEYED, 'f"charge-{time.time_ns()}", order=order'),
            "POST /charges",
            "A key that contains a time or a random value changes with each attempt",
        ),
        (
            ("DAY = ", 'bank.route("/charges", duplicates="act")\nDAY = '),
            "charge/o-1",
            "does not deduplicate by key, so resend() is wrong",
        ),
    ],
    ids=["a key that contains the time", "resend to a receiver that does not deduplicate"],
)
def test_a_planted_bug_is_named(pytester: pytest.Pytester, planted: tuple[str, str], call: str, sentence: str) -> None:
    """Only the case that shows the bug is run; the test above runs them all."""
    text = ORDER.replace(*planted)
    assert text != ORDER
    said = run(pytester, text, f"--crash-case=r1 call {call} call:inside")
    assert "1 failed" in said and sentence in said and summary(said)["killed"] == 1, said


OWN_IDS = (
    ORDER.replace(
        'if_uncertain=resend(remembered_for=DAY), no_undo="a refund is another workflow")',
        'no_undo="a refund is another workflow")',
    )
    .replace(
        """@orders.node""",
        """bank.route("/charges", duplicates="act", reply=lambda r: {"id": "ch-" + json.loads(r.body)["order"]}ASKED)


@charge.reconcile
async def find_charge(order: str):
    async with httpx2.AsyncClient(base_url=bank.url, timeout=5) as http:
        answer = await http.get(f"/charges/ch-{order}")
        return Happened(answer.json()["id"]) if answer.status_code == 200 else DidNotHappen()


@orders.node""",
    )
    .replace("\nimport time\n", "\nimport json\nimport time\n")
)
BY_ID = ", asked=lambda r, answers: next((a for a in answers if r.path.endswith(a['id'])), None)"


CLIENT = """
import os

import httpx2

client = httpx2.Client(base_url=os.environ["BANK_URL"])
"""
STARTED = 'FakeReceivers(env="BANK_URL").start()\nfrom bank_client import client\n'


@pytest.mark.req("TEST-1", "EFF-3")
def test_a_client_created_at_import_reaches_receivers_that_are_asked_by_their_own_ids(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(bank_client=CLIENT)
    text = OWN_IDS.replace("ASKED", BY_ID).replace('FakeReceivers(env="BANK_URL")\n', STARTED)
    text = text.replace("await http.post(", "client.post(")
    said = run(pytester, text, "--crash-case=r1 call charge/o-1 call:inside")
    told = summary(said)
    assert "1 passed" in said and (told["killed"], told["equal"], told["uncertain"]) == (1, 1, 0), said


@pytest.mark.req("TEST-1")
def test_a_client_of_another_address_is_named(pytester: pytest.Pytester) -> None:
    said = run(pytester, ORDER.replace("base_url=bank.url", 'base_url="http://127.0.0.1:9"'))
    assert "no request has reached the fake receivers at http://127.0.0.1:" in said, said
    assert "the address in BANK_URL from their first import on" in said


@pytest.mark.req("TEST-1", "EFF-3")
def test_a_failing_reconcile_is_reported_as_the_cause(pytester: pytest.Pytester) -> None:
    text = OWN_IDS.replace("ASKED", BY_ID).replace('Happened(answer.json()["id"])', 'Happened(answer.json()["number"])')
    said = run(pytester, text, "--crash-case=r1 call charge/o-1 call:inside")
    assert (
        "1 failed" in said and "charge/o-1 is uncertain, although its receiver can be asked and the receivers'" in said
    )
    assert "correct charge.reconcile (reconcile of charge failed: KeyError: 'number'" in said, said


@pytest.mark.req("TEST-1")
def test_an_unknown_case_is_reported(pytester: pytest.Pytester) -> None:
    said = run(pytester, ORDER, "--crash-case=r1 record charge/o-2 store.batch:inside")
    assert "no crash case r1 record charge/o-2 store.batch:inside" in said and "Traceback" not in said


@pytest.mark.req("TEST-1")
def test_the_authors_assertions_are_checked_for_every_end(pytester: pytest.Pytester) -> None:
    text = ORDER.replace(
        '    assert end.outcome["charge"]', '    assert end.case != "r1 record charge/o-1 store.batch:inside"'
    )
    said = run(pytester, text, "--crash-case=r1 record charge/o-1 store.batch:inside")
    assert "1 of " in said and "✗ r1 record charge/o-1 store.batch:inside" in said, said
    said = run(pytester, text, "--crash-case=r1 record charge/o-1 store.batch:after")
    assert "1 passed" in said and summary(said)["equal"] == 1, said


@pytest.mark.req("TEST-1", "FAIL-11")
def test_a_second_crash_during_the_recovery(pytester: pytest.Pytester) -> None:
    first = "--crash-case=r1 call charge/o-1 call:inside then r1 call charge/o-1 call:inside"
    said = run(pytester, ORDER, first)
    assert "1 passed" in said and summary(said)["killed"] == 1, said


WAITING = ORDER.replace(
    """    ctx.state.charge = await""",
    """    await ctx.sleep(timedelta(hours=96), name="cool")
    told = await ctx.receive("go", Go)
    plan = charge.plan(ctx.state.order)
    await ctx.approval(plan, summary=told.text, by=role("boss"), within=timedelta(hours=96))
    ctx.state.charge = await""",
).replace("orders = Workflow", "class Go(BaseModel):\n    text: str\n\n\norders = Workflow")
SCRIPT = """
from outlast.testing import approve

def answers(asked):
    if asked.kind == "signal":
        return Go(text="now")
    if asked.kind == "approval" and asked.summary == "now":
        return approve("in order")

@every_crash"""


@pytest.mark.req("TEST-1", "TEST-2")
def test_days_pass_at_once_and_decide_answers_signals_and_approvals(pytester: pytest.Pytester) -> None:
    text = WAITING.replace("\n@every_crash", SCRIPT)
    said = run(pytester, text.replace("receivers=bank", "receivers=bank, decide=answers, cases=16"))
    assert "1 passed" in said, said
    assert summary(said)["equal"] == 16 and summary(said)["points"] > 50


@pytest.mark.req("TEST-1")
def test_a_run_without_an_answer_is_reported(pytester: pytest.Pytester) -> None:
    said = run(pytester, WAITING)
    assert "it is at node pay and waits for signal go; let decide answer that" in said, said


@pytest.mark.req("TEST-1")
def test_a_few_cases_are_drawn_half_of_them_about_calls(pytester: pytest.Pytester) -> None:
    few = ORDER.replace("receivers=bank)", "receivers=bank, cases=2)")
    said = run(pytester, few, "-v", "--crash-all", "--crash-cases=4")
    told = summary(said)
    assert (told["cases"], told["equal"]) == (4, 4) and told["points"] > 4
    assert sum(" call:" in line for line in said.splitlines() if line.strip().startswith("equal")) >= 2
