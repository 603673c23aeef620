"""The failures that operators fear, through the agent layer: a model proposes, and the tools act on real receivers."""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import outlast
from outlast import Allow, Deny
from outlast.agent import AgentTask, agent_workflow
from outlast.core.events import EventType
from outlast.core.keys import idempotency_key
from outlast.errors import Conflict
from outlast.flow.policy import PolicyRequest
from outlast.store.sqlite.database import read_tables
from outlast.testing import App, FakeReceivers, approve_all, times_out
from outlast.testing.crash_runs import Reference, crash_at, recover, run_reference
from outlast.testing.crash_values import RUN_ID, TENANT, CheckFailed, ScenarioState
from outlast.testing.driver import CrashScenario, Driver
from outlast.testing.fork_server import fork_server
from outlast.testing.loading import CodeUnderTest
from outlast.testing.record import Record
from outlast.testing.run_snapshot import read_run
from tests import forked
from tests.agent import incident as agents
from tests.agent.incident import LEAD, MODEL, OBJECTIVE, OPEN_TICKET, REFUND, TOOLS, both, incident, proposes
from tests.e2e.helpers import GIVE_UP_S, ROOT, SHORT, when

TICKET_KEY, REFUND_KEY = "ticket/INC-42", "refund/A-1"


# --- a worker that is killed -----------------------------------------------------------------------------
class Crashes(NamedTuple):
    """A scenario, its end without a crash, and a folder for the runs that are killed."""

    driver: Driver
    reference: Reference
    folder: Path

    def crash(self, where: str) -> ScenarioState:
        """Run until the crash at a named place, and return the state that the dead worker left."""
        (case,) = [case for case in self.reference.cases if case.name == where]
        return crash_at(self.driver, case, self.folder / f"{len(list(self.folder.iterdir()))}")

    def resume(self, run: ScenarioState) -> None:
        """Let new workers end the run. The end equals that without a crash, at the receivers, too."""
        recover(self.driver, run, self.reference)


@pytest.fixture(scope="module")
def receivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeReceivers]:
    with_record = agents.MINE.clone()
    with_record.listen(tmp_path_factory.mktemp("receivers") / "record")
    yield with_record
    with_record.stop()


@pytest.fixture(scope="module")
def crashes(receivers: FakeReceivers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Crashes]]:
    """The agent of one call, and that whose second call waits for an approval in the same step."""
    modules = tuple((module.__name__, module.__file__ or "") for module in (agents, outlast.agent.agent_loop))
    flows = tuple((flow.name, flow.version) for flow in (incident, both))
    code = CodeUnderTest(modules, flows, f"{agents.__name__}:{agents.prepare.__name__}")
    with fork_server(code, receivers.environment()) as forking:
        found: dict[str, Crashes] = {}
        for flow in (incident, both):
            scenario = CrashScenario(
                name=flow.name,
                input={"objective": OBJECTIVE},
                executed=lambda state: Record(state.receivers).counts(),
                answer=lambda state, effect: None,
                may_be_uncertain=lambda key: False,
                decide=approve_all,
                env=lambda state: {receivers.env: receivers.url},
                enter=lambda state: receivers.enter(state.receivers),
                monitor=receivers,
            )
            folder = tmp_path_factory.mktemp(flow.name)
            driver = Driver(forking, scenario)
            found[flow.name] = Crashes(driver, run_reference(driver, folder / "reference"), folder)
        yield found


def effects(run: ScenarioState) -> dict[str, str]:
    return {effect["key"]: effect["status"] for effect in read_run(run.db).effects}


def created(run: ScenarioState, route: str = "/tickets") -> list[Any]:
    return Record(run.receivers).of("executed", route=route)


@pytest.mark.req("FAIL-4", "FAIL-8")
@pytest.mark.parametrize("crash_before_checkpoint", ["store.batch:before", "store.batch:inside"])
def test_it_does_not_repeat_a_completed_write_tool_after_worker_restart(
    crashes: dict[str, Crashes], crash_before_checkpoint: str
) -> None:
    agent = crashes["incident"]
    run = agent.crash(f"r1 advance step#1 {crash_before_checkpoint}")
    assert len(created(run)) == 1, "the tool has responded"
    agent.resume(run)
    [ticket] = created(run)
    [completed] = [effect for effect in read_run(run.db).effects if effect["status"] == "done"]
    assert json.loads(completed["response"])["id"] == ticket.answer["id"]
    assert ticket.key == idempotency_key(TENANT, RUN_ID, 0, completed["key"])
    assert json.loads(read_run(run.db).end()["outcome"]) == [ticket.answer]


@pytest.mark.req("FAIL-3")
def test_fail_3_a_crash_after_the_intent_before_the_call(crashes: dict[str, Crashes]) -> None:
    agent = crashes["incident"]
    run = agent.crash(f"r1 call {TICKET_KEY} call:before")
    assert effects(run) == {TICKET_KEY: "intended"} and created(run) == []
    agent.resume(run)
    assert effects(run) == {TICKET_KEY: "done"} and len(created(run)) == 1


@pytest.mark.req("FAIL-4")
@pytest.mark.parametrize("place", ["call:flight", "call:inside", "call:after"])
def test_fail_4_a_crash_after_the_tool_acted_before_the_run_advances(crashes: dict[str, Crashes], place: str) -> None:
    agent = crashes["incident"]
    run = agent.crash(f"r1 call {TICKET_KEY} {place}")
    assert effects(run) == {TICKET_KEY: "intended"} and len(created(run)) == (place != "call:flight")
    agent.resume(run)
    assert len(created(run)) == 1
    assert Record(run.receivers).of("asked"), "the receiver was asked before anything was sent again"


@pytest.mark.req("FAIL-8")
def test_fail_8_a_crash_before_the_checkpoint_after_a_completed_write(crashes: dict[str, Crashes]) -> None:
    """The ticket is recorded, and the step waits for an approval of its other call: the ledger answers the ticket."""
    agent = crashes["both"]
    run = agent.crash(f"r1 call {REFUND_KEY} call:before")
    assert effects(run) == {TICKET_KEY: "done", REFUND_KEY: "intended"}
    assert not any(event.type == EventType.CHECKPOINT for event in read_run(run.db).events)
    agent.resume(run)
    record = Record(run.receivers)
    assert [len(record.of(kind, TICKET_KEY)) for kind in ("attempt", "executed", "asked")] == [1, 1, 0]
    assert len(created(run, "/refunds")) == 1


@pytest.mark.parametrize(
    ("agent", "where", "removed"),
    [
        ("incident", f"r1 call {TICKET_KEY} call:inside", "blind_retry"),
        ("incident", f"r1 call {TICKET_KEY} call:inside", "call_first"),
        ("both", f"r1 call {REFUND_KEY} call:before", "no_ledger_hit"),
    ],
)
def test_without_its_safeguard_the_ticket_is_opened_twice(
    crashes: dict[str, Crashes], agent: str, where: str, removed: str
) -> None:
    crashed = crashes[agent]
    crashed.driver.more["mutant"] = removed
    try:
        with pytest.raises(CheckFailed):
            crashed.resume(crashed.crash(where))
    finally:
        del crashed.driver.more["mutant"]


# --- a worker in virtual time, with real receivers -----------------------------------------------------------
@pytest.fixture
def desk() -> Iterator[FakeReceivers]:
    with agents.MINE as running:
        routes = list(running._routes)
        yield running
        running._routes[:] = routes


@pytest.fixture
def apps() -> Iterator[Any]:
    opened: list[App] = []

    def start(flow: Any) -> tuple[App, Any]:
        opened.append(App((flow,)))
        return opened[-1], opened[-1].start(flow, {"objective": OBJECTIVE})

    yield start
    for app in opened:
        app.close()


def admissions(app: App, run: Any) -> list[dict[str, Any]]:
    """Return the recorded decisions about the calls that the model proposed."""
    memos = [memo for memo in app.rows(run.id).memos if memo.activity == "outlast.admission"]
    return [json.loads(memo.response or b"") for memo in memos]


def told(run: Any) -> list[Any]:
    """Return the results of its calls that the model has read."""
    return [json.loads(message.text) for message in run.state.messages if message.role == "tool"]


@pytest.mark.req("FAIL-1", "GATE-7")
@pytest.mark.parametrize("when", ["offer", "proposal", "unknown"])
def test_fail_1_a_model_proposes_a_disallowed_tool(desk: FakeReceivers, apps: Any, when: str) -> None:
    """The refusal is a row that names the model, and data for the model; the run goes on."""

    def freeze(asked: PolicyRequest) -> Allow | Deny:
        frozen = asked.activity == "restart" and (when == "offer" or asked.occasion != "offer")
        return Deny("freeze", "no restart today") if frozen else Allow("open")

    wanted = "format_disk" if when == "unknown" else "restart"
    model = proposes((wanted, {"service": "db"}), OPEN_TICKET)
    app, run = apps(agent_workflow("disallowed", model=model, tools=TOOLS, policy=freeze))
    code = {"offer": "not_offered", "proposal": "denied", "unknown": "unknown_tool"}[when]
    assert run.status == "completed"
    refused, admitted = admissions(app, run)
    assert (refused["code"], refused["tool"], refused["proposed_by"]) == (code, wanted, MODEL)
    assert (admitted["outcome"], told(run)[0]["error"]["code"]) == ("admitted", code)
    assert [entry.route for entry in desk.record.of("attempt")] == ["POST /tickets"]
    history = [json.loads(event.body) for event in app.events(run.id)]
    assert any(event["data"].get("proposed_by") == MODEL for event in history)


@pytest.mark.req("FAIL-2")
def test_fail_2_a_tool_times_out_after_performing_the_effect(desk: FakeReceivers, apps: Any) -> None:
    """The receiver is asked, and the model gets the answer that its call never got."""
    desk.route("/tickets", times_out(), duplicates="act")
    _, run = apps(incident)
    assert run.status == "completed"
    assert [len(desk.record.of(kind)) for kind in ("attempt", "executed", "asked")] == [1, 1, 1]
    assert told(run) == [desk.record.of("executed")[0].answer]


@pytest.mark.req("FAIL-2")
def test_fail_2_a_tool_that_cannot_be_asked_is_put_to_a_person(desk: FakeReceivers, apps: Any) -> None:
    desk.route("/refunds", times_out(), duplicates="act")
    _, run = apps(agent_workflow("unasked", model=proposes(REFUND), tools=TOOLS))
    assert (run.attention, len(desk.record.of("attempt"))) == (["effect_uncertain"], 1)
    run.resolve(REFUND_KEY, "happened", response={"id": "found in the bank's list"})
    assert run.status == "completed" and told(run) == [{"id": "found in the bank's list"}]
    assert len(desk.record.of("attempt")) == 1, "nothing was sent again"


@pytest.mark.req("FAIL-5")
def test_fail_5_an_approval_arrives_after_it_has_expired(desk: FakeReceivers, apps: Any) -> None:
    app, run = apps(agent_workflow("late", model=proposes(REFUND), tools=TOOLS, approve=LEAD, within="4h"))
    person, approval = run._person("")
    assert [each.partition(" ")[0] for each in run.waiting_for] == ["approval"]
    app.clock.skip("5h")
    assert run.attention == ["approval_timeout"]
    with pytest.raises(Conflict):
        app.do(person.approve(approval, reason="at last"))
    app.settle()
    assert desk.record.of("attempt") == [] and run.status == "waiting"


# --- several real workers ------------------------------------------------------------------------------------
class Fleet:
    """A store, real receivers whose answers can be held back, and worker processes."""

    def __init__(self, folder: Path, receivers: FakeReceivers) -> None:
        self.file = folder / "outlast.db"
        self.url = f"sqlite:{self.file}"
        self.receivers = receivers
        self.may_answer = threading.Event()
        self.workers: list[subprocess.Popen[bytes]] = []
        self._log = folder / "workers.log"
        receivers.route("/tickets", duplicates="act", reply=self._reply)

    def _reply(self, request: Any) -> dict[str, str]:
        self.may_answer.wait(GIVE_UP_S)
        return {"id": f"T-{len(self.receivers.record.of('executed')) + 1}"}

    def hire(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            command = ["outlast", "--store", self.url, "worker", agents.__name__, *SHORT]
            env = {**os.environ, "PYTHONPATH": f"{ROOT}"}
            self.workers.append(forked.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, env=env))
        return self.workers[-1]

    def said(self) -> str:
        return self._log.read_text()

    def close(self) -> None:
        self.may_answer.set()
        for worker in self.workers:
            worker.kill()
            worker.wait(GIVE_UP_S)


@pytest.fixture
def fleet(tmp_path: Path, desk: FakeReceivers) -> Iterator[Fleet]:
    one = Fleet(tmp_path, desk)
    yield one
    one.close()


@pytest.mark.req("FAIL-6")
def test_fail_6_two_workers_resume_one_run(fleet: Fleet) -> None:
    """The first dies with its call under way. Of three workers one takes the run, and asks before it would send."""
    with outlast.connect_sync(fleet.url, workflows=[incident]) as client:
        run = client.start(incident, AgentTask(objective=OBJECTIVE))
        first = fleet.hire()
        when(lambda: fleet.receivers.record.of("attempt"), fleet.said)
        for _ in range(3):
            fleet.hire()
        first.kill()
        assert first.wait(GIVE_UP_S) == -signal.SIGKILL
        fleet.may_answer.set()
        outcome = run.result(GIVE_UP_S)
        taken = [event for event in client.events(run.id).events if event.type == EventType.TAKEN_OVER]
    record = fleet.receivers.record
    assert len(taken) == 1 and [len(record.of(kind)) for kind in ("attempt", "executed")] == [1, 1]
    assert json.loads(str(outcome)) == [record.of("executed")[0].answer]


@pytest.mark.req("FAIL-7")
def test_fail_7_a_cancellation_arrives_while_a_tool_call_is_in_progress(fleet: Fleet) -> None:
    """The call ends and is recorded; the model is not asked again, and the run ends cancelled."""
    with outlast.connect_sync(fleet.url, workflows=[incident]) as client:
        run = client.start(incident, AgentTask(objective=OBJECTIVE))
        fleet.hire()
        when(lambda: fleet.receivers.record.of("attempt"), fleet.said)
        run.cancel("the incident is over")
        fleet.may_answer.set()
        with pytest.raises(outlast.errors.RunCancelled):
            run.result(GIVE_UP_S)
        [ticket] = client.effects(run.id)
        assert (ticket.key, ticket.status) == (TICKET_KEY, "done")
    memos = read_tables(fleet.file, {"memo": "key"})
    assert memos is not None and [memo["activity"] for memo in memos["memo"]].count("outlast.model") == 1
    assert [len(fleet.receivers.record.of(kind)) for kind in ("attempt", "executed")] == [1, 1]
