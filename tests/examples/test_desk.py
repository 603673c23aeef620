"""The desk: its story, every crash of it, facts that change while an approval waits, and tools that lose an answer."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from examples.desk import incident, office
from examples.desk.policy import judged
from examples.desk.workflow import desk
from outlast import Allow, Deny, NeedsApproval
from outlast.core.events import EventType
from outlast.flow.policy import Approved, PolicyRequest, Verdict
from outlast.testing import AppFactory, FakeReceivers, RunEnd, approve_all, every_crash, resets
from outlast.testing.record import Record
from outlast.testing.virtual_runtime import AppRun
from tests import forked
from tests.docs.pages import blocks
from tests.e2e.helpers import looking
from tests.examples.helpers import GIVE_UP_S, ROOT, plain

TASK = {"objective": incident.OBJECTIVE}
ANSWERS = 13
"""Number of answers of the model in INC-42: twelve calls, each decided from the results before it, and the end."""
OUTCOME = (
    "INC-42: connection-leak has a ticket, checkout was restarted, search was restarted, A-17 was refunded, "
    "ada@customer.example has an answer."
)
EFFECTS = {
    "ticket/INC-42/connection-leak",
    "comment/INC-42/cause",
    "restart/checkout",
    "restart/search",
    "refund/A-17",
    "mail/ada%40customer.example/your%20order%20A-17",
    "comment/INC-42/result",
}


def acted(record: Record) -> set[str]:
    """Return the keys of the calls that the office executed."""
    return {e.key.split(":", 3)[3] for e in record.of("executed") if e.key.startswith("default:")}


# --- the story ----------------------------------------------------------------------------------------
@pytest.mark.req("APP-5", "GATE-6", "EFF-2", "FAIL-4")
def test_the_incident_is_worked_with_a_kill_approvals_and_a_freeze(tmp_path: Path) -> None:
    command = ["outlast", "demo", "--sample", "desk", "--approve", "--folder", f"{tmp_path}"]
    done = forked.run(*command, cwd=ROOT, capture_output=True, text=True, timeout=2 * GIVE_UP_S)
    assert (
        done.returncode == 0 and "refused by policy, and not executed: restart/search (deploy-freeze)" in done.stdout
    ), done.stdout + done.stderr
    (shown,) = [block.body for block in blocks(ROOT / "docs" / "desk.md") if block.language == "text"]
    said = [line.partition("  ")[2] for line in done.stdout.splitlines()]
    assert [line for line in map(plain, shown.splitlines()) if line not in ("…", *map(plain, said))] == []
    record = Record(tmp_path / "office.jsonl")
    record.assert_effects_once()
    with looking(f"sqlite:{tmp_path / 'outlast.db'}") as look:
        ((run,), _) = look.do(lambda ops: ops.rows.runs())
        steps = look.do(lambda ops: ops.steps(run.run)).steps
    kinds = [step.kind for step in steps]
    assert Counter(kinds)["model_decision"] == ANSWERS and Counter(kinds)["approval_response"] == 4
    ticket = next(n for n, step in enumerate(steps) if step.key == "ticket/INC-42/connection-leak")
    assert ticket < kinds.index("approval_request"), "a clock that moved does not change the order"
    assert acted(record) == EFFECTS - {"restart/search"}
    asked = [e.key for e in record.of("attempt", route=office.MODEL)]
    assert len(asked) == len(set(asked)) == ANSWERS, "no answer of the model was paid twice"


REVOKED = (
    "INC-42: connection-leak has a ticket, checkout was not restarted (right-revoked), search was not restarted "
    "(right-revoked), A-17 was not refunded (right-revoked), ada@customer.example has no answer (right-revoked)."
)
UNSTORED = re.compile(r"POST /model call:|outlast\.model/\w+ (?:call:after|store\.batch:(?:before|inside))")
"""Crashes between a request to the model and the commit of its answer."""


# --- every crash --------------------------------------------------------------------------------------
@every_crash(desk, TASK, receivers=office.office(), decide=approve_all, cases=4)
@pytest.mark.req("APP-5", "EFF-2")
def test_the_desk_survives_every_crash(end: RunEnd, pytestconfig: pytest.Config) -> None:
    """`scripts/crash desk` runs all cases. An answer of the model that was stored is never requested again."""
    assert end.status == "completed" and end.outcome == OUTCOME
    assert {key for key, status in end.effects.items() if status == "done"} == EFFECTS
    asked = Counter(e.key for e in end.receivers.of("attempt", route=office.MODEL))
    assert len(asked) == ANSWERS
    again, lost = sum(asked.values()) - len(asked), len(UNSTORED.findall(end.case))
    second = 1 if pytestconfig.getoption("crash_pairs") else 0  # `end.case` names the first crash of a pair only
    assert lost <= again <= lost + second, asked


@every_crash(desk, TASK, receivers=office.office(leads=False), decide=approve_all)
@pytest.mark.skipif("not config.getoption('--crash-all')", reason="scripts/crash desk runs it")
@pytest.mark.req("APP-5", "GATE-6")
def test_an_approved_action_that_policy_refuses_stays_refused_after_every_crash_of_the_desk(end: RunEnd) -> None:
    """Policy learns on consumption that the approver has lost the right."""
    assert end.status == "completed" and end.outcome == REVOKED
    assert set(end.effects) == {key for key in EFFECTS if key.startswith(("ticket/", "comment/"))}
    refused = [m for m in end.state["messages"] if m["role"] == "tool" and "right-revoked" in m["text"]]
    assert len(refused) == 4


# --- other incidents, other paths ---------------------------------------------------------------------
PATHS = {
    incident.NUMBER: (EFFECTS, OUTCOME),
    incident.DISK_FULL: (
        {"ticket/INC-43/clean-up", "comment/INC-43/cause", "comment/INC-43/result"},
        "INC-43: clean-up has a ticket.",
    ),
    incident.OVER: ({"comment/INC-44/result"}, "INC-44: nothing was changed."),
    "INC-99": (set[str](), "INC-99 could not be read."),
}


@pytest.mark.req("APP-5")
@pytest.mark.parametrize("number", PATHS)
def test_each_incident_takes_its_own_path(outlast_app: AppFactory, systems: FakeReceivers, number: str) -> None:
    """The stand-in decides from what it read. By the position in the transcript, each would end as INC-42."""
    run = outlast_app(desk).start(desk, {"objective": incident.objective(number)})
    finished(run, by="bo")
    effects, outcome = PATHS[number]
    assert acted(systems.record) == effects
    assert run.outcome == outcome
    systems.assert_effects_once()


@pytest.mark.req("APP-5")
def test_a_service_that_recovers_is_not_restarted_and_a_single_charge_is_not_refunded(outlast_app: AppFactory) -> None:
    """The same incident with other results: the calls that these gave a reason for are missing."""
    services = {**incident.WORLD.services, "search": ["09:52:00 queries fast again"]}
    other = incident.WORLD.model_copy(update={"services": services, "orders": {"A-17": [8900]}})
    with office.office(world=other) as systems:
        app = outlast_app(desk)
        run = app.start(desk, TASK)
        finished(run, by="bo")
        assert acted(systems.record) == EFFECTS - {"restart/search", "refund/A-17"}
        assert "search" not in str(run.outcome) and "A-17" not in str(run.outcome)
        (mail,) = [json.loads(row.args) for row in app.rows(run.id).effects if row.activity == "send_mail"]
        assert "refund" not in mail["text"]
        systems.assert_effects_once()


# --- facts that change while an approval waits --------------------------------------------------------
@pytest.fixture
def systems() -> Iterator[FakeReceivers]:
    with office.office() as here:
        yield here


def finished(run: AppRun[Any], by: str = "") -> None:
    """Approve until the run is over."""
    while run.waiting_for:
        assert run.attention == []
        run.approve(by=by)
    assert run.status == "completed"


def told(run: AppRun[Any]) -> list[str]:
    """Return the errors that the model got as results."""
    results = [json.loads(m.text) for m in run.state.messages if m.role == "tool" and m.text.startswith('{"error"')]
    return [f"{each['error']['code']}: {each['error']['reason']}" for each in results]


def waits_for(run: AppRun[Any], text: str) -> bool:
    """Return True if the run waits for an approval with this text."""
    return len(run.waiting_for) == 1 and text in run.waiting_for[0]


@pytest.mark.req("APP-5", "GATE-6", "GATE-7")
@pytest.mark.parametrize("rule", ["deploy-freeze", "ticket-closed", "right-revoked"])
def test_an_approved_action_is_refused_when_a_fact_has_changed(
    outlast_app: AppFactory, systems: FakeReceivers, rule: str
) -> None:
    """The lead approves the restart, and policy is asked again when it is about to be made."""
    app = outlast_app(desk)
    run = app.start(desk, TASK)
    assert waits_for(run, "service checkout")
    match rule:
        case "deploy-freeze":
            office.freeze(systems.url, "checkout")
        case "ticket-closed":
            office.close_ticket(systems.url, incident.NUMBER)
        case _:
            office.revoke(systems.url, "ana")
    run.approve(by="ana")
    assert systems.executed("restart/checkout") == 0
    assert told(run)[0].startswith(f"policy_denied: {rule}")
    denied = [e.data() for e in app.events(run.id) if e.type == EventType.DENIED]
    assert [(d["effect_key"], d["occasion"], d["rule"]) for d in denied][:1] == [("restart/checkout", "consume", rule)]
    finished(run, by="bo")
    systems.assert_effects_once()
    later = {"ticket-closed": {"restart/search", "refund/A-17"}}.get(rule, set())
    assert not any(systems.executed(key) for key in later), "nothing more is proposed to people for a closed ticket"
    assert f"checkout was not restarted ({rule})" in str(run.outcome), "the end is told from the results"


@pytest.mark.req("APP-5", "GATE-6")
def test_a_frozen_service_is_refused_before_a_person_is_asked(outlast_app: AppFactory, systems: FakeReceivers) -> None:
    office.freeze(systems.url, "checkout", "search")
    run = outlast_app(desk).start(desk, TASK)
    assert waits_for(run, "order A-17")
    assert told(run) == ["denied: deploy-freeze: checkout is frozen", "denied: deploy-freeze: search is frozen"]


@pytest.mark.req("APP-5", "GATE-6")
def test_without_an_answer_about_a_fact_nothing_is_allowed(outlast_app: AppFactory, systems: FakeReceivers) -> None:
    run = outlast_app(desk).start(desk, TASK)
    systems.route("/people", askable=False)
    run.approve(by="ana")
    assert run.attention and systems.executed("restart/checkout") == 0


# --- tools that lose an answer -------------------------------------------------------------------------
def losing(*paths: str) -> FakeReceivers:
    """Return an office that executes the first request at these paths and cuts the connection."""
    return office.office({path: (resets(),) for path in paths})


@pytest.mark.req("APP-5", "EFF-2")
def test_a_lost_answer_is_asked_for_or_the_request_is_sent_again_under_its_key(outlast_app: AppFactory) -> None:
    with losing(office.TICKETS, office.COMMENTS, office.REFUNDS, "/services") as systems:
        app = outlast_app(desk)
        run = app.start(desk, TASK)
        while run.status != "completed":
            assert run.attention == []
            if any(each.startswith("approval") for each in run.waiting_for):
                run.approve()
            else:
                app.clock.advance("5s")
        systems.assert_effects_once()
        rows = {effect.key: effect for effect in app.rows(run.id).effects}
        assert {key for key, effect in rows.items() if effect.settled_by == "reconcile"} == {
            "ticket/INC-42/connection-leak", "restart/checkout", "restart/search",
        }  # fmt: skip
        assert systems.attempts("refund/A-17") == 2 and systems.attempts("restart/checkout") == 1


@pytest.mark.req("APP-5", "EFF-2", "GATE-7")
def test_a_mail_without_an_answer_is_put_to_a_person(outlast_app: AppFactory) -> None:
    with losing(office.MAIL) as systems:
        run = outlast_app(desk).start(desk, TASK)
        while not run.attention:
            run.approve()
        assert run.attention == ["effect_uncertain"]
        (key,) = [key for key in EFFECTS if key.startswith("mail/")]
        run.resolve(key, "happened", {"id": "seen in the outbox"})
        assert run.status == "completed" and systems.attempts(key) == 1


# --- the rules -----------------------------------------------------------------------------------------
FACTS: dict[str, Any] = {
    "/tickets/INC-42": {**incident.WORLD.tickets["INC-42"], "status": "open"},
    "/tickets/INC-99": None,
    "/calendar": {"frozen": ["search"]},
    "/people/ana": {"leads": False},
    "/health/checkout": {"ailing": True},
    "/health/payments": {"ailing": False},
    "/orders/A-17": {"charges": [8900, 8900]},
}


def verdict(activity: str, *, by: str = "", occasion: Any = "commit", **arguments: Any) -> Verdict:
    now = datetime.now(UTC)
    arguments = {"number": "INC-42", **arguments}
    asked = PolicyRequest(
        activity, "key", arguments, "default", "desk", 1, "r", "step", 1, "me", now, occasion,
        Approved("ap_1", (by,), (), now) if by else None,
    )  # fmt: skip
    return judged(asked, FACTS.__getitem__)


@pytest.mark.req("APP-5", "GATE-6")
def test_policy_asks_a_lead_about_every_call_with_a_high_impact() -> None:
    for asked in (
        verdict("restart_service", service="checkout"),
        verdict("refund", order="A-17", cents=8_900),
        verdict("send_mail", to="ada@customer.example"),
    ):
        assert isinstance(asked, NeedsApproval) and f"{asked.by}" == "lead"
    for allowed in ("comment", "open_ticket", "read_logs"):
        assert isinstance(verdict(allowed), Allow)
    assert isinstance(verdict("send_mail", to="team@shop.example"), Allow)
    assert isinstance(verdict("restart_service", occasion="offer"), Allow)


@pytest.mark.req("APP-5", "GATE-6")
def test_policy_refuses_by_rule_and_by_fact() -> None:
    rules = [
        verdict("refund", order="A-17", cents=10_001),
        verdict("refund", order="A-17", cents=-1),
        verdict("refund", order="A-17", cents="1"),
        verdict("restart_service", service="search"),
        verdict("restart_service", service="checkout", by="ana"),
        verdict("restart_service", service="payments"),
        verdict("restart_service", service="checkout", number="INC-99"),
        verdict("refund", order="B-20", cents=4_200),
        verdict("refund", order="A-1", cents=8_900),
        verdict("refund", order="A-17", cents=8_901),
        verdict("send_mail", to="x@shop.example.evil.example"),
    ]
    assert [each.rule for each in rules if isinstance(each, Deny)] == [
        "refund-limit", "refund-limit", "refund-limit", "deploy-freeze", "right-revoked", "healthy",
        "no-such-ticket", "not-in-ticket", "not-in-ticket", "not-charged-twice", "not-the-customer",
    ]  # fmt: skip
