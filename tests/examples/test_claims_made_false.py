"""Each claim of a demo, made false once: a fact of the store or of a record is changed, and its line turns red.

The rows and records below are those of a good run, as small as they can be. Every claim holds of them. Each case
changes one fact and names the lines that must turn red, and every line of a demo turns red in a case.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from standardwebhooks import Webhook

from examples.acquisition import demo as acquisition
from examples.desk import demo as desk
from examples.negotiation import record as market
from examples.negotiation.demo import proof as auction
from examples.negotiation.demo.office_demo import Plot, judged
from examples.negotiation.demo.proof import Claim, proven
from examples.negotiation.demo.state import DemoState, Kill
from examples.researcher import proof as research
from examples.researcher.fetching import AGENT
from examples.researcher.robots import Robots
from examples.researcher.world.record import Hit
from outlast.core.codec import digest
from outlast.core.durations import SECOND
from outlast.core.events import EventType
from outlast.core.machine import ENDED, ApprovalStatus, EffectStatus, RunStatus
from outlast.core.rows.effect_rows import Approval, Effect
from outlast.core.rows.limit_rows import Slot
from outlast.core.rows.run_rows import Event, Run
from outlast.core.run_transition import event
from outlast.testing.record import Record
from tests.insight.situations import APPROVAL, EFFECT, RUN, T

DEAD, ALIVE = "w-7-dead", "w-8-alive"
KEPT = RUN._replace(
    run="run", status=RunStatus.COMPLETED, status_label="AWARDED", owner=ENDED, ended_at=T + 90 * SECOND
)
DONE = EFFECT._replace(run="run", visit=2, status=EffectStatus.DONE, error_text="", settled_by="call")


def recorded(type_: EventType, at_s: float, visit: int = 2, /, **data: object) -> Event:
    """Return an event of the run, so many seconds after its start."""
    return event(KEPT._replace(visit=visit), type_, T + round(at_s * SECOND), data)


def reds(claims: Sequence[Claim]) -> set[int]:
    """Return the numbers of the claims that are printed with a cross."""
    return {number for number, each in enumerate(claims) if each.holds is False}


# --- the auction -----------------------------------------------------------------------------------------------------
class Auction(NamedTuple):
    """The rows of an auction and the record of its suppliers."""

    run: Run
    history: tuple[Event, ...]
    effects: tuple[Effect, ...]
    slots: tuple[Slot, ...]
    approvals: tuple[Approval, ...]
    entries: tuple[market.Entry, ...]
    state: DemoState

    async def claims(self) -> tuple[Claim, ...]:
        """Return the claims of the demo about these rows."""

        async def rows_of(found: Any) -> Any:
            return found

        rows = SimpleNamespace(
            run=lambda run: rows_of(self.run),
            history=lambda run: rows_of(self.history),
            effects=lambda run: rows_of(self.effects),
            slots=lambda: rows_of(self.slots),
            approvals=lambda: rows_of((self.approvals, "")),
        )
        operations: Any = SimpleNamespace(rows=rows, store=SimpleNamespace(url="memory:"))
        return (await auction.prove(operations, self.state, list(self.entries), kills=True)).claims


def request(n: int, kind: market.Kind, key: str) -> tuple[market.Entry, ...]:
    """Return the entries of a request that its supplier took."""
    arrived = market.Arrived(n=n, at=n, supplier=key, kind=kind, key=key, sha256="", bytes=1, run_id="run")
    return (arrived, market.Executed(n=n, at=n, id=f"m-{n}"), market.Answered(n=n, at=n, status=200))


INVITED = DONE._replace(activity="invite", key="invite/acme", settled_at=T + 9 * SECOND)
ORDERED = DONE._replace(activity="place_order", key="order/acme", visit=3, settled_at=T + 80 * SECOND)
AUCTION = Auction(
    KEPT,
    (
        recorded(EventType.CLAIMED, 1, worker=DEAD),
        recorded(EventType.TAKEN_OVER, 15, **{"from": DEAD}, worker=ALIVE),
        recorded(EventType.CLAIMED, 63, 3, worker=ALIVE),
        recorded(EventType.FINISHED_WELL, 90, 3, outcome={"order_id": "PO-1"}),
    ),
    (INVITED, ORDERED),
    (Slot("*", 1, 1, "", ""),),
    (APPROVAL._replace(run="run", status=ApprovalStatus.APPROVED, decided_at=T + 60 * SECOND),),
    (*request(1, "invitations", "t:run:2:invite/acme"), *request(2, "orders", "t:run:3:order/acme")),
    DemoState(
        run="run", begun_at=T, alive_at_decision=True, kills=[Kill(at=T + 10_000, worker=DEAD, name="w", sent=1)]
    ),
)


def _late(history: tuple[Event, ...], number: int, at_s: float) -> tuple[Event, ...]:
    """Return a history in which one event happens later."""
    changed = history[number]._replace(at=T + round(at_s * SECOND))
    return (*history[:number], changed, *history[number + 1 :])


OF_THE_AUCTION: dict[str, tuple[Auction, set[str]]] = {
    "an invitation was sent twice under its key": (
        AUCTION._replace(entries=(*AUCTION.entries, *request(3, "invitations", "t:run:2:invite/acme"))),
        {"invitations sent", "agree on every request"},
    ),
    "an order was sent twice under its key": (
        AUCTION._replace(entries=(*AUCTION.entries, *request(3, "orders", "t:run:3:order/acme"))),
        {"agree on every request"},
    ),
    "the suppliers got a request that the store does not have": (
        AUCTION._replace(entries=(*AUCTION.entries, *request(3, "feedback", "t:run:2:feedback/acme"))),
        {"agree on every request"},
    ),
    "the store has an effect that no supplier got": (
        AUCTION._replace(entries=AUCTION.entries[:3]),
        {"agree on every request"},
    ),
    "the suppliers got as many requests as the store has, for another supplier": (
        AUCTION._replace(entries=(*request(1, "invitations", "t:run:2:invite/bolt"), *AUCTION.entries[3:])),
        {"agree on every request"},
    ),
    "no supplier was invited": (
        AUCTION._replace(entries=AUCTION.entries[3:], effects=(ORDERED._replace(settled_at=T + 9 * SECOND, visit=2),)),
        {"invitations sent", "agree on every request"},
    ),
    "an effect has no outcome": (
        AUCTION._replace(effects=(INVITED, ORDERED._replace(settled_at=0, status=EffectStatus.UNCERTAIN))),
        {"effects executed"},
    ),
    "nothing was answered from the ledger after the crash": (
        AUCTION._replace(effects=(INVITED._replace(settled_at=T + 16 * SECOND), ORDERED)),
        {"effects executed"},
    ),
    "the dead worker's run was taken over from another worker": (
        AUCTION._replace(
            history=(
                AUCTION.history[0],
                recorded(EventType.TAKEN_OVER, 15, **{"from": "w-9"}, worker=ALIVE),
                *AUCTION.history[2:],
            )
        ),
        {"effects executed", "taken over by another worker"},
    ),
    "no worker took the run over": (
        AUCTION._replace(history=(AUCTION.history[0], *AUCTION.history[2:])),
        {"effects executed", "taken over by another worker", "at most 30s are asked"},
    ),
    "the takeover came too late": (
        AUCTION._replace(history=_late(AUCTION.history, 1, 40.1)),
        {"at most 30s are asked"},
    ),
    "the node after the decision came too late": (
        AUCTION._replace(history=_late(AUCTION.history, 2, 65.1)),
        {"at most 5s are asked"},
    ),
    "a slot is still held": (AUCTION._replace(slots=(Slot("*", 1, 1, "t", "run"),)), {"slots in use"}),
    "there were no slots": (AUCTION._replace(slots=()), {"slots in use"}),
    "the run ended otherwise": (
        AUCTION._replace(run=KEPT._replace(status=RunStatus.FAILED, status_label="")),
        {"the run is"},
    ),
}


# --- an agent or models over an office: the desk, and the acquisition of a customer ---------------------------------
class Office(NamedTuple):
    """The rows of a run over an office, and the requests that the office got: route, key, and how often it acted."""

    run: Run
    history: tuple[Event, ...]
    effects: tuple[Effect, ...]
    requests: tuple[tuple[str, str, int], ...]
    state: DemoState

    def claims(self, plot: Plot, folder: Path) -> tuple[Claim, ...]:
        """Return the claims of the demo about these rows."""
        record = Record(folder / "office.jsonl")
        for route, key, times in self.requests:
            record.add("attempt", route, key, key, T)
            for _ in range(times):
                record.add("executed", route, key, key, T, 200)
        return judged(plot, self.state, self.run, self.effects, self.history, record)[1]


def office_of(plot: Plot) -> Office:
    """Return a good run of a plot."""
    cut = DONE._replace(activity=plot.killed_in, key="cut/1", settled_at=T + 20 * SECOND, settled_by="reconcile")
    more = DONE._replace(activity="comment", key="comment/1", settled_at=T + 30 * SECOND)
    refused = {"effect_key": "restart/1", "rule": "freeze", "arguments_digest": digest(b'{"service":"search"}')}
    return Office(
        KEPT._replace(status_label="" if plot.ends == "COMPLETED" else plot.ends),
        (
            recorded(EventType.CLAIMED, 1, worker=DEAD),
            recorded(EventType.TAKEN_OVER, 15, **{"from": DEAD}, worker=ALIVE),
            recorded(EventType.DENIED, 40, **refused),
        ),
        (cut, more),
        (
            (f"POST {plot.model}", "", 1),
            ("POST /cut", "t:run:2:cut/1", 1),
            ("POST /comments", "t:run:2:comment/1", 1),
        ),
        DemoState(run="run", begun_at=T, kills=[Kill(at=T + 10_000, worker=DEAD, name="w", sent=1)]),
    )


Doubt = Callable[[Office], Office]
OF_AN_OFFICE: dict[str, tuple[Doubt, set[str]]] = {
    "the office acted twice under one key": (
        lambda good: good._replace(requests=(*good.requests[:2], ("POST /comments", "t:run:2:comment/1", 2))),
        {"the office's own record", "agree on each"},
    ),
    "the office acted without an effect": (
        lambda good: good._replace(requests=(*good.requests, ("POST /mails", "t:run:2:mail/1", 1))),
        {"agree on each"},
    ),
    "the store has an effect that the office did not execute": (
        lambda good: good._replace(requests=good.requests[:2]),
        {"agree on each"},
    ),
    "the office executed as many requests as the store has, one under another key": (
        lambda good: good._replace(requests=(*good.requests[:2], ("POST /comments", "t:run:2:comment/2", 1))),
        {"agree on each"},
    ),
    "an answer of the model was paid twice": (
        lambda good: good._replace(requests=(good.requests[0], *good.requests)),
        {"requests to the model"},
    ),
    "no worker took the run over": (
        lambda good: good._replace(history=(good.history[0], good.history[2])),
        {"taken over by another worker"},
    ),
    "the run was taken over from another worker": (
        lambda good: good._replace(
            history=(
                good.history[0],
                recorded(EventType.TAKEN_OVER, 15, **{"from": "w-9"}, worker=ALIVE),
                good.history[2],
            )
        ),
        {"taken over by another worker"},
    ),
    "the cut call was not settled by asking, but another one was": (
        lambda good: good._replace(
            effects=(
                good.effects[0]._replace(settled_by="call"),
                good.effects[1]._replace(settled_by="reconcile"),
            )
        ),
        {"taken over by another worker"},
    ),
    "the takeover came too late": (
        lambda good: good._replace(history=_late(good.history, 1, 40.1)),
        {"at most 30s are asked"},
    ),
    "a denied call was made under another key": (
        lambda good: good._replace(effects=(good.effects[0], good.effects[1]._replace(args=b'{"service":"search"}'))),
        {"refused by policy"},
    ),
    "the run ended otherwise": (
        lambda good: good._replace(run=good.run._replace(status=RunStatus.FAILED)),
        {"the run is"},
    ),
}


# --- the researcher --------------------------------------------------------------------------------------------------
SECRET, OTHER_SECRET = "whsec_" + "A" * 32, "whsec_" + "B" * 32
SITE = "http://127.0.0.1:81"
ROBOTS = Robots((("/private", False),), delay=1.0)


class Research(NamedTuple):
    """A killed run and a whole one, the requests that the world got, and the counts of the demo."""

    killed: research.Outcome
    whole: research.Outcome
    hits: tuple[Hit, ...]
    kills: int = 1
    held: tuple[str, ...] = (DEAD,)
    polls: tuple[int, int] = (3, 0)

    def claims(self) -> list[Claim]:
        """Return the claims of the demo about these outcomes."""
        return [
            *research.claims(
                self.killed,
                self.whole,
                hits=self.hits,
                secrets=(SECRET, SECRET),
                kills=self.kills,
                held=self.held,
                site=SITE,
            ),
            *research.manners(self.hits, SITE, ROBOTS),
            research.counted(*self.polls),
        ]


def happened(run: str, number: int, type_: str, **data: Any) -> dict[str, Any]:
    """Return an event as a service returns it."""
    return {"id": f"{run}/{number}", "type": type_, "subject": run, "data": data}


def sent(number: int, event_: dict[str, Any], previous: int, secret: str = SECRET) -> Hit:
    """Return the delivery of an event, an hour ago. Once a demo that took more than five minutes proved nothing."""
    body = json.dumps(event_)
    now = datetime.now(UTC) - timedelta(hours=1)
    signed = {
        "webhook-id": f"msg-{event_['id']}",
        "webhook-timestamp": f"{int(now.timestamp())}",
        "outlast-previous": f"{previous}",
    }
    signed["webhook-signature"] = Webhook(secret).sign(signed["webhook-id"], now, body)
    return Hit("receiver", number, number, "POST", "/", 200, body=(signed, body))


def page(at: float, path: str, agent: str = AGENT) -> Hit:
    """Return a request to the site."""
    return Hit("site:81", at, at, "GET", path, 200, agent)


def asked_model(at: float, key: str) -> Hit:
    """Return a request to the model."""
    return Hit("model", at, at, "POST", "/v1", 200, key=key, body=SITE)


def outcome_of(run: str, events: list[dict[str, Any]]) -> research.Outcome:
    return research.Outcome(run, "COMPLETED", "", 2, [("/a", 1), ("/b", 2)], events, [5.0])


READ = [happened("r1", 1, "read", node="read"), happened("r1", 2, EventType.TAKEN_OVER.value, **{"from": DEAD})]
WHOLE = [happened("r2", 1, "read", node="read")]
DELIVERED = (sent(1, READ[0], 0), sent(2, READ[1], 1), sent(3, WHOLE[0], 0))
SEEN = (asked_model(4.0, "k1"), page(1, "/robots.txt"), page(2, "/a"))
RESEARCH = Research(outcome_of("r1", READ), outcome_of("r2", WHOLE), (*DELIVERED, *SEEN))

OF_THE_RESEARCHER: dict[str, tuple[Research, set[str]]] = {
    "a row differs": (
        RESEARCH._replace(whole=RESEARCH.whole._replace(rows=[("/a", 1), ("/b", 3)])),
        {"equal to those of a run"},
    ),
    "the status counts a row too few": (
        RESEARCH._replace(killed=RESEARCH.killed._replace(said=1)),
        {"the status says"},
    ),
    "a page has two rows": (
        RESEARCH._replace(
            killed=RESEARCH.killed._replace(rows=[("/a", 1), ("/a", 1)]),
            whole=RESEARCH.whole._replace(rows=[("/a", 1), ("/a", 1)]),
        ),
        {"the status says"},
    ),
    "an event was not delivered": (
        RESEARCH._replace(hits=(*DELIVERED[:1], *DELIVERED[2:], *SEEN)),
        {"delivered in order"},
    ),
    "two events were delivered in another order": (
        RESEARCH._replace(hits=(DELIVERED[1], DELIVERED[0], DELIVERED[2], *SEEN)),
        {"delivered in order"},
    ),
    "an event was signed with another secret": (
        RESEARCH._replace(hits=(sent(1, READ[0], 0, OTHER_SECRET), *DELIVERED[1:], *SEEN)),
        {"delivered in order"},
    ),
    "an event of the whole run was signed with another secret": (
        RESEARCH._replace(hits=(*DELIVERED[:2], sent(3, WHOLE[0], 0, OTHER_SECRET), *SEEN)),
        {"delivered in order"},
    ),
    "an event names another one before it": (
        RESEARCH._replace(hits=(DELIVERED[0], sent(2, READ[1], 0), DELIVERED[2], *SEEN)),
        {"delivered in order"},
    ),
    "an event says something else than that of the whole run": (
        RESEARCH._replace(whole=RESEARCH.whole._replace(events=[happened("r2", 1, "read", node="conclude")])),
        {"delivered in order"},
    ),
    "an answer was asked for again after it was stored": (
        RESEARCH._replace(hits=(*RESEARCH.hits, asked_model(6.0, "k1"))),
        {"answers of the model"},
    ),
    "an answer was stored that nobody asked for": (
        RESEARCH._replace(killed=RESEARCH.killed._replace(answered=[5.0, 6.0])),
        {"answers of the model"},
    ),
    "no kill was followed by a takeover": (
        RESEARCH._replace(
            killed=outcome_of("r1", READ[:1]),
            hits=(DELIVERED[0], DELIVERED[2], *SEEN),
        ),
        {"takeovers"},
    ),
    "the run was taken over from a worker that was not killed": (RESEARCH._replace(held=(ALIVE,)), {"takeovers"}),
    "a takeover followed on no kill": (RESEARCH._replace(kills=0), {"takeovers"}),
    "a forbidden page was read": (
        RESEARCH._replace(hits=(*RESEARCH.hits, page(3, "/private/members"))),
        {"requests to the site"},
    ),
    "the rules were not read first": (
        RESEARCH._replace(hits=(*RESEARCH.hits, page(0.5, "/a"))),
        {"requests to the site"},
    ),
    "another agent was named": (
        RESEARCH._replace(hits=(*RESEARCH.hits, page(3, "/b", "someone"))),
        {"requests to the site"},
    ),
    "the site was asked too often": (
        RESEARCH._replace(hits=(*RESEARCH.hits, *(page(2 + n / 10, "/a") for n in range(6)))),
        {"crawl delay"},
    ),
    "the count of the status differed once": (RESEARCH._replace(polls=(3, 1)), {"the count of the status"}),
    "the count of the status was never compared": (RESEARCH._replace(polls=(0, 0)), {"the count of the status"}),
}


# --- the tests -------------------------------------------------------------------------------------------------------
def red_alone(good: Sequence[Claim], changed: Sequence[Claim], red: set[str]) -> set[int]:
    """Assert that exactly the claims with these words turned red, and return their numbers."""
    assert reds(good) == set() and proven(good), [each.text for each in good if each.holds is not True]
    turned = [each.text for each in changed if each.holds is False]
    assert all(any(words in text for text in turned) for words in red), (red, turned)
    assert all(any(words in text for words in red) for text in turned), (red, turned)
    numbers = {n for n, each in enumerate(good) if any(words in each.text for words in red)}
    assert numbers, red
    return numbers


def every_line_turned_red(good: Sequence[Claim], turned: set[int]) -> None:
    assert [each.text for n, each in enumerate(good) if n not in turned] == [], "no case makes these lines false"


@pytest.mark.req("APP-1", "APP-2")
def test_each_claim_of_the_auction_turns_red_when_it_is_false() -> None:
    good, turned = asyncio.run(AUCTION.claims()), set[int]()
    for case, (changed, red) in OF_THE_AUCTION.items():
        try:
            turned |= red_alone(good, asyncio.run(changed.claims()), red)
        except AssertionError as wrong:
            raise AssertionError(case) from wrong
    every_line_turned_red(good, turned)


def test_a_negotiation_that_each_supplier_declines_is_proven() -> None:
    """No effect was executed, and all that were asked for have an outcome: the sample bottleneck-declined."""
    refused = tuple(each._replace(status=EffectStatus.REFUSED) for each in AUCTION.effects)
    found = asyncio.run(AUCTION._replace(effects=refused).claims())
    assert reds(found) == set() and "0 effects executed, 1 answered" in found[2].text


@pytest.mark.req("APP-3", "APP-5")
@pytest.mark.parametrize("plot", [desk.PLOT, acquisition.PLOT], ids=["desk", "acquisition"])
def test_each_claim_over_an_office_turns_red_when_it_is_false(plot: Plot, tmp_path: Path) -> None:
    whole, turned = office_of(plot), set[int]()
    (tmp_path / "good").mkdir()
    good = whole.claims(plot, tmp_path / "good")
    for number, (case, (change, red)) in enumerate(OF_AN_OFFICE.items()):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        try:
            turned |= red_alone(good, change(whole).claims(plot, folder), red)
        except AssertionError as wrong:
            raise AssertionError(case) from wrong
    every_line_turned_red(good, turned)


@pytest.mark.req("APP-4")
def test_each_claim_of_the_researcher_turns_red_when_it_is_false() -> None:
    good, turned = RESEARCH.claims(), set[int]()
    for case, (changed, red) in OF_THE_RESEARCHER.items():
        try:
            turned |= red_alone(good, changed.claims(), red)
        except AssertionError as wrong:
            raise AssertionError(case) from wrong
    every_line_turned_red(good, turned)


@pytest.mark.req("APP-4")
def test_a_run_that_parked_on_a_slow_machine_says_the_same() -> None:
    """Once two events of a run without a kill, parked and claimed again, made the proof of the other run red."""
    parked = [
        happened("r2", 1, EventType.PARKED.value, node="read"),
        happened("r2", 2, EventType.CLAIMED.value, node="read"),
        happened("r2", 3, "read", node="read"),
    ]
    hits = (*DELIVERED[:2], *(sent(n + 2, each, n) for n, each in enumerate(parked)), *SEEN)
    slow = RESEARCH._replace(whole=outcome_of("r2", parked), hits=hits)
    assert reds(slow.claims()) == set()


def test_the_claims_of_the_other_samples_turn_red_when_they_are_false() -> None:
    """A purchase that was asked for twice, and one that was refused."""
    assert auction.started_once(2, 1) == Claim("asked for 2 times, started once", True)
    assert auction.started_once(2, 2) == Claim("asked for 2 times, started 2 times", False)
    assert reds(auction.refused(3, 0, ends="REFUSED")) == set()
    assert reds(auction.refused(3, 1, ends="REFUSED")) == {0} == reds(auction.refused(0, 0, ends="REFUSED"))
    assert reds(auction.refused(3, 0, ends="AWARDED")) == {1}
