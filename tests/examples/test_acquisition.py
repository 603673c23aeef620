"""The acquisition: its planes, its saga, isolated failures, policy at four moments, and crashes."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.acquisition import office
from examples.acquisition.decisions import outreach_for
from examples.acquisition.inquiry import Acquisition, Result
from examples.acquisition.policy import judged
from examples.acquisition.workflow import acquisition, reach_out
from outlast import Allow, Context, Deny, NeedsApproval, Workflow
from outlast.core.events import EventType
from outlast.core.machine import EffectStatus
from outlast.errors import DefinitionError
from outlast.flow.policy import PolicyRequest, Verdict
from outlast.flow.topology import topology_of
from outlast.testing import AppFactory, FakeReceivers, PendingQuestion, RunEnd, approve, every_crash
from outlast.testing.model_server import completions
from outlast.testing.record import Record
from outlast.testing.virtual_runtime import App, AppRun
from tests.docs.pages import blocks
from tests.examples.helpers import GIVE_UP_S, ROOT, plain

LEAD: dict[str, Any] = {
    "company": " Bolt  Works ",
    "domain": "www.bolt.example",
    "contact": "Ada",
    "email": "Ada@bolt.example",
    "country": "de",
    "industry": "manufacturing",
    "employees": 120,
    "message": "We lose stock.",
}
TOO_CHEAP = {"subject": "s", "text": "Dear Ada", "cents": 120_000, "discount_percent": 90}
ADA = "ada%40bolt.example"
STEPS = ["contact", "deal", "meeting", "proposal", "chat", "task"]
DECISIONS = ["draft_outreach", "draft_proposal", "extract_pains", "intake", "match_customer", "qualify"]


@pytest.fixture
def systems() -> Iterator[FakeReceivers]:
    with office.office() as here:
        yield here


def to_the_end(app: App, run: AppRun[Any]) -> None:
    """Approve, and let the time for a reply pass."""
    while run.waiting_for:
        assert run.attention == []
        if run.waiting_for[0].startswith("approval"):
            run.approve(by="bo")
        elif "reply" in run.waiting_for[0]:
            app.clock.skip("3d")
        else:
            app.clock.advance("5s")


def denied(app: App, run: AppRun[Any]) -> list[tuple[str, str]]:
    """Return occasion and rule of each denial in the history."""
    found = [json.loads(e.body)["data"] for e in app.events(run.id) if e.type == EventType.DENIED]
    return [(each["occasion"], each["rule"]) for each in found]


# --- two planes ------------------------------------------------------------------------------------------
@pytest.mark.req("APP-3")
def test_the_eleven_steps_are_in_two_planes() -> None:
    nodes = topology_of(acquisition.validate())["nodes"]
    assert sorted(name for name, node in nodes.items() if node["plane"] == "decision") == DECISIONS
    assert {node["plane"] for node in nodes.values()} == {"decision", "execution"}
    writes = {name: node["activities"] for name, node in nodes.items() if node["plane"] == "execution"}
    assert writes == {
        "record_deal": ["open_deal", "upsert_contact"],
        "book": ["book_meeting"],
        "approve": ["send_proposal"],
        "send": ["send_proposal"],
        "reach_out": ["send_outreach"],
        "follow_up": ["schedule_follow_up"],
    }
    assert all(each.undoing is not None for each in acquisition.activities.values() if each.kind == "write")


@pytest.mark.req("APP-3")
def test_a_decision_that_sends_does_not_load() -> None:
    other = Workflow("acquisition-that-sends", state=Acquisition)

    @other.node(start=True, plane="decision")
    async def draft(ctx: Context[Acquisition]) -> None:
        await outreach_for(ctx)
        await reach_out(ctx)

    with pytest.raises(DefinitionError, match="can reach the write send_outreach"):
        other.validate()


# --- the whole ---------------------------------------------------------------------------------------------
@pytest.mark.req("APP-3", "GATE-6", "GATE-7")
def test_an_inquiry_becomes_a_customer(outlast_app: AppFactory, systems: FakeReceivers) -> None:
    app = outlast_app(acquisition)
    run = app.start(acquisition, LEAD)
    assert run.now.shown == "PENDING_APPROVAL" and not systems.executed(f"proposal/{ADA}")
    to_the_end(app, run)
    assert run.now.shown == "IN_CONTACT"
    result = Result.model_validate(run.outcome)
    assert (result.grade, result.approved_by, result.errors) == ("A", "bo", {}) and result.task_id
    assert [systems.executed(f"{step}/{ADA}") for step in STEPS] == [1] * len(STEPS)
    assert denied(app, run) == [] and run.state.company == "Bolt Works"


@pytest.mark.req("APP-3")
def test_a_reply_needs_no_follow_up(outlast_app: AppFactory, systems: FakeReceivers) -> None:
    app = outlast_app(acquisition)
    run = app.start(acquisition, LEAD)
    run.approve(by="bo")
    run.signal("reply", {"text": "call me"})
    assert run.outcome["reply"] == "call me" and not systems.executed(f"task/{ADA}")


@pytest.mark.req("APP-3")
def test_an_inquiry_that_does_not_fit_has_no_effect(outlast_app: AppFactory, systems: FakeReceivers) -> None:
    run = outlast_app(acquisition).start(acquisition, LEAD | {"industry": "gambling", "employees": 3})
    assert run.now.shown == "NOT_A_FIT" and not systems.executed(route=office.CONTACTS)


# --- errors: isolated, or of the saga --------------------------------------------------------------------
@pytest.mark.req("APP-3")
def test_a_failed_booking_and_a_failed_outreach_do_not_fail_the_run(outlast_app: AppFactory) -> None:
    with office.office(office.MISBEHAVIOURS["refused-extras"]) as systems:
        app = outlast_app(acquisition)
        run = app.start(acquisition, LEAD)
        to_the_end(app, run)
        assert run.now.shown == "IN_CONTACT"
        assert {step: why.partition(":")[0] for step, why in run.outcome["errors"].items()} == {
            "book": "http_422", "reach_out": "http_422",
        }  # fmt: skip
        assert [systems.executed(f"{step}/{ADA}") for step in STEPS] == [1, 1, 0, 1, 0, 1]


@pytest.mark.req("APP-3", "EFF-8")
def test_a_failure_after_step_two_undoes_two_and_then_one(outlast_app: AppFactory) -> None:
    with office.office(office.MISBEHAVIOURS["refused-follow-up"]) as systems:
        app = outlast_app(acquisition)
        run = app.start(acquisition, LEAD)
        to_the_end(app, run)
        assert run.status == "failed" and "the follow-up: http_422" in run.now.reason
        undos = ("retracted", "withdrawn", "cancelled", "closed", "archived")
        undone = [e.route.partition(" ")[2] for e in systems.record.of("executed") if e.route.endswith(undos)]
        assert undone == [
            f"{office.CHAT}/retracted", f"{office.MAIL}/withdrawn", f"{office.MEETINGS}/cancelled",
            f"{office.DEALS}/closed", f"{office.CONTACTS}/archived",
        ]  # fmt: skip
        effects = {e.key: e.status for e in app.rows(run.id).effects if not e.undoes}
        assert effects.pop(f"task/{ADA}") is EffectStatus.REFUSED
        assert set(effects.values()) == {EffectStatus.UNDONE}
        systems.assert_effects_once()


@pytest.mark.req("APP-3")
def test_a_rejected_proposal_undoes_the_deal(outlast_app: AppFactory, systems: FakeReceivers) -> None:
    run = outlast_app(acquisition).start(acquisition, LEAD)
    run.reject("not this one", by="bo")
    assert run.status == "cancelled" and systems.executed(route=f"{office.DEALS}/closed") == 1
    assert not systems.executed(f"proposal/{ADA}")


@pytest.mark.req("APP-3", "GATE-7")
def test_answers_that_fit_no_schema_fail_the_run_before_any_write(
    outlast_app: AppFactory, systems: FakeReceivers
) -> None:
    """Naming the problems is isolated; without a grade, the run cannot go on."""
    completions(systems, lambda body: "I cannot say")
    run = outlast_app(acquisition).start(acquisition, LEAD)
    assert run.status == "failed" and (run.now.reason or "").startswith("the inquiry could not be graded")
    assert run.state.errors["extract_pains"].startswith("Undecided")
    assert not systems.executed(route=office.CONTACTS)


@pytest.mark.req("APP-3", "GATE-6")
def test_after_the_last_draft_that_policy_refuses_the_run_fails(
    outlast_app: AppFactory, systems: FakeReceivers
) -> None:
    script = office.answer
    completions(systems, lambda body: script(body) if _question(body) != "PROPOSE" else json.dumps(TOO_CHEAP))
    app = outlast_app(acquisition)
    run = app.start(acquisition, LEAD)
    assert run.attention == [] and run.now.reason == "policy refuses the proposal: a discount is at most 20 %"
    assert denied(app, run) == [("proposal", "discount")] * 3
    assert systems.executed(route=f"{office.DEALS}/closed") == 1


def _question(body: dict[str, Any]) -> str:
    return str(body["messages"][0]["content"].partition("\n")[0])


# --- policy at its four moments --------------------------------------------------------------------------
@pytest.mark.req("GATE-6", "APP-3")
def test_before_the_model_decides_policy_withholds_profiles(outlast_app: AppFactory, systems: FakeReceivers) -> None:
    run = outlast_app(acquisition).start(acquisition, LEAD)
    assert systems.record.of("asked", route=f"{office.SITES}/bolt.example")
    assert not [e for e in systems.record.of("asked") if office.PROFILES in e.route]
    with office.office(profiles=True) as other:
        outlast_app(acquisition).start(acquisition, LEAD)
        assert [e for e in other.record.of("asked") if office.PROFILES in e.route]
    assert run.now.shown == "PENDING_APPROVAL"


@pytest.mark.req("GATE-6", "APP-3")
def test_after_the_model_policy_refuses_an_address_and_a_discount(
    outlast_app: AppFactory, systems: FakeReceivers
) -> None:
    app = outlast_app(acquisition)
    run = app.start(acquisition, LEAD | {"employees": 900, "message": "see wiki.internal for our orders"})
    assert denied(app, run) == [("proposal", "foreign-site"), ("proposal", "discount")]
    assert not systems.record.of("asked", route=f"{office.SITES}/wiki.internal")
    assert run.state.drafted.discount_percent == 15, "the second draft meets the objection"
    to_the_end(app, run)
    assert run.now.shown == "IN_CONTACT"


@pytest.mark.req("GATE-6", "APP-3")
def test_before_each_write_policy_reads_the_facts(outlast_app: AppFactory, systems: FakeReceivers) -> None:
    """A contact who wants no messages gets no meeting; that step is isolated."""
    office.opt_out(systems.url, "ada@bolt.example")
    app = outlast_app(acquisition)
    run = app.start(acquisition, LEAD)
    assert denied(app, run) == [("commit", "opted-out")]
    assert run.state.errors["book"].startswith("policy_denied: opted-out")
    assert not systems.executed(f"meeting/{ADA}")


@pytest.mark.req("GATE-6", "APP-3", "GATE-9")
def test_after_a_pause_an_approved_proposal_is_refused_when_facts_have_changed(
    outlast_app: AppFactory, systems: FakeReceivers
) -> None:
    app = outlast_app(acquisition)
    run = app.start(acquisition, LEAD)
    office.opt_out(systems.url, "ada@bolt.example")
    run.approve(by="bo")
    assert denied(app, run) == [("consume", "opted-out")]
    assert run.status == "failed" and not systems.executed(f"proposal/{ADA}")
    assert systems.executed(route=f"{office.DEALS}/closed") == 1


def verdict(activity: str, occasion: Any, **arguments: Any) -> Verdict:
    """Return the verdict of the rules where a contact has opted out and profiles are not read."""
    asked = PolicyRequest(
        activity=activity, key="k", arguments=arguments, tenant="t", workflow="acquisition", version=1, run_id="r",
        node="n", visit=1, requested_by="me", moment=None, occasion=occasion,  # type: ignore[arg-type] # no rule reads it
    )  # fmt: skip
    return judged(asked, lambda path: {"profiles": False, "opted_out": path.endswith("eve%40bolt.example")})


@pytest.mark.req("GATE-6")
def test_the_rules() -> None:
    sent = {"email": "ada@bolt.example", "discount_percent": 20}
    assert verdict("read_profile", "offer") == Deny("personal-data", "profiles of people are not read")
    assert verdict("read_site", "offer") == Allow("offered")
    assert isinstance(verdict("send_proposal", "proposal", **sent), NeedsApproval)
    assert isinstance(verdict("send_proposal", "proposal", **sent | {"discount_percent": 21}), Deny)
    assert isinstance(verdict("send_proposal", "consume", **sent | {"email": "eve@bolt.example"}), Deny)
    assert verdict("open_deal", "resume", email="eve@bolt.example") == Allow("everyday")


# --- the demo ----------------------------------------------------------------------------------------------
@pytest.mark.skipif("not config.getoption('--crash-all')", reason="scripts/crash acquisition runs it")
@pytest.mark.req("APP-3", "EFF-2", "FAIL-4")
def test_the_demo_shows_what_the_page_says(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "outlast",
        "demo",
        "--sample",
        "acquisition",
        "--approve",
        "--folder",
        f"{tmp_path}",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=2 * GIVE_UP_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (shown,) = [block.body for block in blocks(ROOT / "docs" / "acquisition.md") if block.language == "text"]
    said = [line.partition("  ")[2] for line in done.stdout.splitlines()]
    assert [line for line in map(plain, shown.splitlines()) if line not in map(plain, said)] == []
    Record(tmp_path / "office.jsonl").assert_effects_once()


# --- crashes -----------------------------------------------------------------------------------------------
def people(asked: PendingQuestion) -> Any:
    """Approve the proposal; no reply comes, so the follow-up is scheduled."""
    return approve() if asked.kind == "approval" else None


@every_crash(acquisition, LEAD, receivers=office.office(), decide=people, cases=2)
@pytest.mark.req("APP-3", "EFF-2")
def test_the_acquisition_survives_every_crash(end: RunEnd) -> None:
    """`scripts/crash acquisition` runs all cases."""
    assert end.status == "completed" and end.outcome["errors"] == {}
    assert {key for key, status in end.effects.items() if status == "done"} == {f"{step}/{ADA}" for step in STEPS}


@every_crash(acquisition, LEAD, receivers=office.office(office.MISBEHAVIOURS["refused-follow-up"]), decide=people)
@pytest.mark.skipif("not config.getoption('--crash-all')", reason="scripts/crash acquisition runs it")
@pytest.mark.req("APP-3", "EFF-8")
def test_the_saga_is_undone_in_reverse_after_every_crash(end: RunEnd) -> None:
    assert end.status == "failed" and end.reason == "the follow-up: http_422"
    undone = [
        e.route.rpartition("/")[2] for e in end.receivers.of("executed") if e.route.endswith(("withdrawn", "closed"))
    ]
    assert undone == ["withdrawn", "closed"]
