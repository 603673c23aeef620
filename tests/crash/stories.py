"""The workflows under test, as stories: what they are given, what the world answers, what may be doubted."""

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
from outlast.testing.crash_points import ScenarioState
from outlast.testing.driver import CrashScenario
from outlast.testing.loading import CodeUnderTest
from outlast.testing.run_snapshot import RunSnapshot
from tests.crash import refund, world
from tests.crash.bazaar import Bazaar

CODE = CodeUnderTest(
    modules=(
        ("tests.crash.refund", refund.__file__),
        ("examples.trip", trip.__file__),
        ("examples.negotiation.workflow", negotiation.__file__),
    ),
    workflows=(("refund", 1), ("trip", 1), ("negotiation", negotiation.negotiation.version)),
    prepare="tests.crash.prepare:prepare",
)
MUTE = ("refund/", "book/")  # the keys of receivers that neither dedupe nor can be asked


def refund_story() -> CrashScenario:
    """The refund: every mode of doubt, a timer, a signal without an end, an approval."""
    return CrashScenario(
        name="refund",
        input={"order_id": "o-7"},
        slots=1,
        decide=approve_all,
        signals=_comment,
        env=lambda state: {world.FILE: str(state.receivers)},
        executed=lambda state: dict(world.executed(state.receivers)),
        answer=_refund_answer,
        may_be_uncertain=lambda key: key.startswith(MUTE),
    )


def _comment(seen: RunSnapshot, state: ScenarioState) -> list[tuple[str, dict[str, Any], str]]:
    waits = any(w["what"] == "comment" for w in seen.waiting)
    return [("comment", {"text": "it was broken"}, "c-1")] if waits else []


def _refund_answer(state: ScenarioState, effect: dict[str, Any]) -> Any:
    visit = effect["visit"]
    said = world.answer_of(state.receivers, f"{effect['tenant']}:{effect['run']}:{visit}:{effect['key']}")
    return (said,) if said else None


def trip_story(ends: str = "failed") -> CrashScenario:
    """The trip. One that is called off is undone, the latest first; undo calls are acts of their own."""
    here: list[ScenarioState] = []

    def decide(asked: PendingQuestion) -> ScriptedAnswer | None:
        """An undo in doubt: what the hotel's record says of it."""
        if (asked.kind, asked.name) != ("attention", "undo_failed"):
            return None
        done = any(key.endswith("undo/hotel/ana") for key in world.executed(here[-1].receivers))
        return choose("done_by_hand" if done else "retry")

    return CrashScenario(
        name="trip",
        input={"traveller": "ana", "ends": ends},
        decide=decide,
        enter=here.append,
        env=lambda state: {world.FILE: str(state.receivers)},
        executed=lambda state: dict(world.executed(state.receivers)),
        answer=_refund_answer,
        may_be_uncertain=lambda key: "hotel/" in key or "mail/" in key,
    )


# --- the auction -------------------------------------------------------------------------------
MUTE_SUPPLIER = "cordoba"
BIDS_WAIT_S = 20


def calm() -> Scenario:
    """Four suppliers that bid at once, and one that declines; all dedupe and can be asked."""
    return load("calm")


def mute() -> Scenario:
    """As calm, but one supplier neither dedupes nor can be asked."""
    scenario = calm()
    quiet = scenario.suppliers[MUTE_SUPPLIER].model_copy(update={"can_be_queried": False, "dedupes": False})
    return scenario.model_copy(update={"suppliers": {**scenario.suppliers, MUTE_SUPPLIER: quiet}})


def auction_story(bazaar: Bazaar, rounds: int = 5, doubtful: str = "/nobody/") -> CrashScenario:
    """The auction against a market: `doubtful` is part of the keys that may be uncertain."""
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
    """What the suppliers have bid, once each that took an invitation has; it comes over real HTTP."""
    if not any(w["kind"] == "signal" for w in seen.waiting):
        return []
    asked = {(a.supplier, a.round) for a, _ in _acts(_record(state)) if a.kind == "invitations"}
    give_up = time.monotonic() + BIDS_WAIT_S
    while True:
        offered = {(e.supplier, e.round) for e in _record(state) if isinstance(e, Offered)}
        if offered >= asked:  # written once the inbox has answered: what the market knows is in its record now
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
