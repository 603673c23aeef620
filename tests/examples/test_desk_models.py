"""The desk with models without a script: one that reads, a careless one, and one that lies.

Each run has another incident, drawn by its seed. The calls are compared with the truth of that incident.
"""

import asyncio
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest

from examples.desk import incident, office
from examples.desk.workflow import desk_of
from outlast.agent import provided
from outlast.core.events import EventType
from outlast.testing import App, ModelServer
from outlast.testing.model_server import URL
from tests.examples.desk_killed import play as killed_and_calm
from tests.examples.desk_killed import wrong
from tests.examples.incidents import KINDS, Case, case
from tests.examples.test_desk import acted
from tests.reading_model import Variant, reader
from tests.reading_model.desk import LIES

pytestmark = pytest.mark.req("APP-5", "GATE-6", "GATE-7")
SEEDS = range(20)
SLICE = 8
"""Seeds of the default run. `scripts/crash desk` plays all of them."""
ALL_SEEDS = [
    pytest.param(
        seed, marks=pytest.mark.skipif("not config.getoption('--crash-all')", reason="scripts/crash desk runs it")
    )
    if seed >= SLICE
    else seed
    for seed in SEEDS
]


class Played(NamedTuple):
    """The end of a run: its status, what the office executed and paid back, the proposed calls, and the refusals."""

    shown: str
    acted: set[str]
    paid: dict[str, int]
    calls: dict[str, dict[str, Any]]
    denied: dict[str, set[str]]
    outcome: str


def play(here: Case, variant: Variant, seed: int, monkeypatch: pytest.MonkeyPatch) -> Played:
    """Play one incident to its end with a model behind HTTP. People approve everything that policy puts to them."""
    monkeypatch.setenv("OUTLAST_MODEL", f"local:{variant}")
    with office.office(world=here.world) as systems, ModelServer(reader(variant, seed), env=URL) as models:
        desk = desk_of(provided())
        app = App((desk,))
        try:
            office.freeze(systems.url, *here.frozen)
            run = app.start(desk, {"objective": incident.objective(here.number)})
            while run.waiting_for:
                assert run.attention == []
                run.approve(by="bo")
            assert not systems.executed(route=office.MODEL), "the stand-in of the office answers nothing"
            assert not systems.record.repeated() and not models.record.repeated()
            asked = [call for m in run.state.messages for call in m.calls]
            calls = {_key(call.tool, call.arguments): dict(call.arguments) for call in asked}
            events = [event.data() for event in app.events(run.id) if event.type == EventType.DENIED]
            denied: dict[str, set[str]] = {}
            for each in events:
                denied.setdefault(_plain(each["effect_key"]), set()).add(each["rule"])
            done = [entry.answer for entry in systems.record.of("executed") if entry.route.endswith(office.REFUNDS)]
            paid = {each["order"]: each["cents"] for each in done}
            return Played(
                run.now.shown, {_plain(key) for key in acted(systems.record)}, paid, calls, denied, str(run.outcome)
            )
        finally:
            app.close()


def _plain(key: str) -> str:
    """Return a key without the topic of a mail, which its writer chooses."""
    return key.rpartition("/")[0] if key.startswith("mail/") else key


def _key(tool: str, arguments: Any) -> str:
    match tool:
        case "open_ticket":
            return f"ticket/{arguments['about']}/{arguments['topic']}"
        case "comment":
            return f"comment/{arguments['number']}/{arguments['topic']}"
        case "restart_service":
            return f"restart/{arguments['service']}"
        case "refund":
            return f"refund/{arguments['order']}"
        case "send_mail":
            return f"mail/{quote(arguments['to'])}"
        case _:
            return tool


def paid_back(here: Case) -> dict[str, int]:
    """Return the refunds that are right."""
    return {args["order"]: args["cents"] for key, args in here.truth.calls.items() if key.startswith("refund/")}


def is_true(here: Case, end: Played) -> None:
    """Compare an end with the truth of its incident: the calls with their arguments, and the refused ones."""
    assert end.shown == "COMPLETED"
    assert (end.acted, end.paid) == (here.truth.done, paid_back(here)), here
    assert end.denied.keys() == here.truth.refused
    for key, arguments in here.truth.calls.items():
        assert arguments.items() <= end.calls[key].items(), (here, end.calls[key])


def test_the_incidents_are_of_every_kind() -> None:
    truths = [case(seed).truth for seed in SEEDS]
    assert {truth.kind for truth in truths} == set(KINDS)
    assert len({frozenset(key.partition("/")[0] for key in truth.done) for truth in truths}) >= 5, "other paths"
    kinds = [[key.partition("/")[0] for key in truth.calls] for truth in truths if truth.kind == "pool"]
    assert {each.count("restart") for each in kinds} == {1, 2} and {each.count("refund") for each in kinds} == {0, 1}
    assert any(truth.refused for truth in truths)


@pytest.mark.parametrize("seed", ALL_SEEDS)
@pytest.mark.parametrize("variant", ["reading", "careless"])
def test_a_model_that_reads_does_what_the_incident_needs(
    variant: Variant, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_true(case(seed), play(case(seed), variant, seed, monkeypatch))


@pytest.mark.parametrize("seed", ALL_SEEDS)
def test_no_lie_becomes_an_effect(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """People approve everything, so only policy refuses what nothing gives a reason for."""
    here, lie = case(seed), LIES[seed % len(LIES)]
    end = play(here, "lying", seed, monkeypatch)
    assert end.shown == "COMPLETED"
    if lie == "claim":
        assert "was restarted" in end.outcome and end.acted == set(), "the ledger says that nothing was done"
        return
    assert (end.acted, end.paid) == (here.truth.done, paid_back(here)), here
    expected = {
        "refund": {"not-in-ticket", "refund-limit", "no-such-ticket"},
        "restart": {"healthy", "no-such-ticket"},
        "mail": {"not-the-customer"},
    }[lie]
    assert expected <= set().union(*end.denied.values()), "the lies were told, and are in the history"


# --- killed processes --------------------------------------------------------------------------------------
@pytest.mark.req("RUN-1", "EFF-2")
def test_kills_change_no_incident_and_no_answer_of_the_model_is_paid_twice(tmp_path: Path) -> None:
    """A slice. `python -m tests.examples.desk_killed` plays as many rounds as wanted."""
    calm, killed = asyncio.run(killed_and_calm(tmp_path, "careless", incidents=2, kills=2, seed=0))
    assert killed.kills == 2 and wrong(killed, calm) == []
