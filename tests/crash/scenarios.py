"""The workflows under test as scenarios: their input, their receivers, and the keys that may become uncertain."""

import json
import time
from collections import Counter
from typing import Any

from examples import trip
from examples.negotiation import workflow as negotiation
from examples.negotiation.letters import bid_signal
from examples.negotiation.market.behaviour import Scenario, load
from examples.negotiation.record import Arrived, Entry, Executed, Offered, read
from examples.negotiation.samples import sample
from examples.negotiation.suppliers import INBOX
from outlast.testing.answers import PendingQuestion, ScriptedAnswer, approve_all, choose
from outlast.testing.crash_values import ScenarioState
from outlast.testing.driver import CrashScenario
from outlast.testing.loading import CodeUnderTest
from outlast.testing.run_snapshot import RunSnapshot
from tests.crash import receiver, refund
from tests.crash.market_server import MarketServer

CODE = CodeUnderTest(
    modules=(
        ("tests.crash.refund", refund.__file__),
        ("examples.trip", trip.__file__),
        ("examples.negotiation.workflow", negotiation.__file__),
    ),
    workflows=(("refund", 1), ("trip", 1), ("negotiation", negotiation.negotiation.version)),
    prepare="tests.crash.prepare:prepare",
)
MUTE = ("refund/", "book/")  # keys of receivers that neither deduplicate nor can be asked


def refund_scenario() -> CrashScenario:
    """Return the refund: every mode of an uncertain effect, a timer, a signal without deadline, an approval."""
    return CrashScenario(
        name="refund",
        input={"order_id": "o-7"},
        slots=1,
        decide=approve_all,
        signals=_comment,
        env=lambda state: {receiver.FILE: str(state.receivers)},
        executed=lambda state: dict(receiver.executed(state.receivers)),
        answer=_refund_answer,
        may_be_uncertain=lambda key: key.startswith(MUTE),
    )


def _comment(seen: RunSnapshot, state: ScenarioState) -> list[tuple[str, dict[str, Any], str]]:
    waits = any(w["what"] == "comment" for w in seen.waiting)
    return [("comment", {"text": "it was broken"}, "c-1")] if waits else []


def _refund_answer(state: ScenarioState, effect: dict[str, Any]) -> Any:
    visit = effect["visit"]
    said = receiver.answer_of(state.receivers, f"{effect['tenant']}:{effect['run']}:{visit}:{effect['key']}")
    return (said,) if said else None


def trip_scenario(ends: str = "failed") -> CrashScenario:
    """Return the trip. A cancelled trip is undone in reverse order, and each undo is a separate call."""
    here: list[ScenarioState] = []

    def decide(asked: PendingQuestion) -> ScriptedAnswer | None:
        """Answer an uncertain undo from the hotel's record."""
        if (asked.kind, asked.name) != ("attention", "undo_failed"):
            return None
        done = any(key.endswith("undo/hotel/ana") for key in receiver.executed(here[-1].receivers))
        return choose("done_by_hand" if done else "retry")

    return CrashScenario(
        name="trip",
        input={"traveller": "ana", "ends": ends},
        decide=decide,
        enter=here.append,
        env=lambda state: {receiver.FILE: str(state.receivers)},
        executed=lambda state: dict(receiver.executed(state.receivers)),
        answer=_refund_answer,
        may_be_uncertain=lambda key: "hotel/" in key or "mail/" in key,
    )


# --- the auction -------------------------------------------------------------------------------
MUTE_SUPPLIER = "cordoba"
BIDS_WAIT_S = 20


def calm() -> Scenario:
    """Return four suppliers that bid at once and one that declines. All deduplicate and can be asked."""
    return load("calm")


def mute() -> Scenario:
    """Return the calm suppliers, one of which neither deduplicates nor can be asked."""
    scenario = calm()
    quiet = scenario.suppliers[MUTE_SUPPLIER].model_copy(update={"can_be_queried": False, "dedupes": False})
    return scenario.model_copy(update={"suppliers": {**scenario.suppliers, MUTE_SUPPLIER: quiet}})


def auction_scenario(bazaar: MarketServer, rounds: int = 5, doubtful: str = "/nobody/") -> CrashScenario:
    """Return the auction. `doubtful` is part of the keys that may become uncertain."""
    purchase = sample("leverage", market=bazaar.url)
    purchase["governance"] = {**purchase.get("governance", {}), "rounds": rounds}
    return CrashScenario(
        name="negotiation",
        input={"purchase": purchase},
        slots=1,
        decide=approve_all,
        signals=_bids,
        env=lambda state: {INBOX: bazaar.url},
        executed=lambda state: dict(Counter(_key(a) for a, _ in _acts(_record(state)))),
        answer=_supplier_answer,
        may_be_uncertain=lambda key: doubtful in f"/{key}/",
        enter=lambda state: bazaar.enter(state.folder),
    )


def _record(state: ScenarioState) -> list[Entry]:
    return read(state.folder / "market.jsonl")


def _acts(entries: list[Entry]) -> list[tuple[Arrived, str]]:
    arrived = {e.n: e for e in entries if isinstance(e, Arrived)}
    return [(arrived[e.n], e.id) for e in entries if isinstance(e, Executed)]


def _key(arrived: Arrived) -> str:
    return f"{arrived.supplier} {arrived.key}"


def _bids(seen: RunSnapshot, state: ScenarioState) -> list[tuple[str, dict[str, Any], str]]:
    """Return the suppliers' bids once each invited supplier has bid. They arrive over HTTP."""
    if not any(w["kind"] == "signal" for w in seen.waiting):
        return []
    asked = {(a.supplier, a.round) for a, _ in _acts(_record(state)) if a.kind == "invitations"}
    give_up = time.monotonic() + BIDS_WAIT_S
    while True:
        offered = {(e.supplier, e.round) for e in _record(state) if isinstance(e, Offered)}
        if offered >= asked:  # written after the inbox has answered, so the record is complete
            break
        assert time.monotonic() < give_up, (asked, offered)
        time.sleep(0.002)
    bids = [json.loads(line) for line in _lines(state)]
    assert all(name == bid_signal(bid["cycle"], bid["round"]) for name, bid, _ in bids)
    return sorted(((name, bid, signal_id) for name, bid, signal_id in bids), key=lambda each: each[2])


def _lines(state: ScenarioState) -> list[str]:
    path = state.folder / "bids.jsonl"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return text[: text.rfind("\n") + 1].splitlines()


def _supplier_answer(state: ScenarioState, effect: dict[str, Any]) -> Any:
    key = f"{effect['tenant']}:{effect['run']}:{effect['visit']}:{effect['key']}"
    for arrived, made in _acts(_record(state)):
        if arrived.key == key:
            return ({"order_id" if arrived.kind == "orders" else "message_id": made},)
    return None
