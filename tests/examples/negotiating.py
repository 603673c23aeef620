"""A negotiation with agents in virtual time, and its comparison with the truth of its world.

`python -m tests.examples.negotiating --seeds 20` plays each seed with each stand-in: script, reading, careless, lying.
"""

import argparse
import itertools
import sys
from typing import Any, Final, Literal, NamedTuple

import click
import pytest

from examples.negotiation import limits
from examples.negotiation.judging import by_strategy
from examples.negotiation.letters import Bid, Invitation, Terms
from examples.negotiation.purchase import Purchase
from examples.negotiation.state import Negotiation
from examples.negotiation.workflow import negotiation
from outlast.agent.model import WAYS
from outlast.testing import App, ModelServer
from outlast.testing.model_server import PATH
from tests.examples.bidders import Bidders
from tests.examples.tenders import ROUNDS, World, world
from tests.measured import unmeasured
from tests.reading_model import VARIANTS, Variant, reader
from tests.reading_model.negotiation import INVENTED, QUESTIONS, question_of
from tests.reading_model.reading import Reading, encoded

Model = Literal["script"] | Variant
MODELS: Final[tuple[Model, ...]] = ("script", *VARIANTS)


class Played(NamedTuple):
    """The end of a run: its state, the letters and bids, the requests to the model, and those paid twice."""

    shown: str
    outcome: dict[str, Any]
    s: Negotiation
    bidders: Bidders
    bids: list[Bid]
    requests: int
    paid_twice: list[str]


def script(body: dict[str, Any]) -> Any:
    """Answer each question alike: the best position that is allowed, no last word, and every open supplier."""
    reading = Reading(body)
    facts = reading.facts
    match question_of(reading):
        case "target":
            return encoded(reading, {"is_final": False, "quote": "", "cents": facts["allowed"][0]})
        case "counter":
            return encoded(reading, {"is_final": False, "quote": "", "terms": facts["ours"]})
        case _:
            return encoded(reading, {"ask": facts["open"], "end": False, "why": "as always"})


def play(seed: int, model: Model, patch: pytest.MonkeyPatch) -> Played:
    """Play the world of a seed to its end. The seed also chooses how a request has the type, and what a liar tells."""
    here, bids = world(seed), list[Bid]()
    patch.setenv("OUTLAST_MODEL", f"local:{model}")
    patch.setenv("OUTLAST_MODEL_RESULT_BY", WAYS[seed % len(WAYS)])

    def kept(bid: Bid, asked: Invitation) -> Bid:
        bids.append(bid)
        return bid

    app = App((negotiation,))
    try:
        with ModelServer(script if model == "script" else reader(model, seed // 2)) as models:
            bidders = Bidders(app, patch, here.suppliers, changed=kept)
            run = app.start(negotiation, here.purchase)
            assert run.node == "approve" and run.attention == [], run.now.explained
            run.approve()
            found = models.record
            return Played(
                run.status,
                run.outcome or {},
                run.state,
                bidders,
                bids,
                len(found.of("executed", route=PATH)),
                found.repeated(),
            )
    finally:
        app.close()


def wrong(seed: int, model: Model, end: Played) -> list[str]:
    """Return what contradicts the world of a seed, the limits, or the promises of the workflow."""
    here = world(seed)
    found = [] if end.shown == "completed" else [f"the run is {end.shown}"]
    found += [f"{key} was sent twice" for key in end.bidders.repeated()]
    found += [f"{key} was paid twice" for key in end.paid_twice]
    found += unmeasured(requests=end.requests, letters=len(end.bidders.sent))
    found += _asked(here, model, end) + _positions(here, end) + _winner(here, end)
    if model in ("reading", "careless"):
        agreed = end.s.strategic.agreed if end.s.strategic else {}
        last = min(end.s.rounds_held, ROUNDS - 1)  # no position is taken after the last round, or after an agreement
        known = {who: n for who, n in here.final_from.items() if n <= last and n < agreed.get(who, 99)}
        found += [] if end.s.final == known else [f"final is {end.s.final} instead of {known}"]
        found += [f"overruled: {each}" for each in end.s.overruled]
    elif model == "lying":
        found += [] if end.s.overruled else ["no lie was told"]
        lies = {who: n for who, n in end.s.final.items() if here.final_from.get(who, 99) > n}
        found += [f"a last word that is none: {lies}"] if lies else []
    return found


def _asked(here: World, model: Model, end: Played) -> list[str]:
    """Compare the letters with the truth: each supplier once in a round, all in the first, none after its last word."""
    kind = "invitations" if here.is_auction else "proposals"
    asked = [(each.supplier, each.letter.round) for each in end.bidders.of(kind)]
    found = [] if len(set(asked)) == len(asked) else ["a supplier was asked twice in a round"]
    found += [f"{INVENTED} was asked"] if INVENTED in dict(asked) else []
    names = set(here.suppliers)
    found += [] if {who for who, n in asked if n == 1} == names else ["not everyone was asked in round 1"]
    agreed = end.s.strategic.agreed if end.s.strategic else {}
    for who in names:
        rounds = [n for name, n in asked if name == who]
        last = min(end.s.rounds_held, end.s.final.get(who, 99), agreed.get(who, 99))
        if rounds != list(range(1, last + 1)):
            found.append(f"{who} was asked in rounds {rounds} of {last}")
    return found


def _positions(here: World, end: Played) -> list[str]:
    """Compare each position that was sent with the limits: the opening, one step, the walk-away."""
    purchase, found = Purchase.model_validate(here.purchase), list[str]()
    rules = purchase.governance
    for who in here.suppliers:
        candidate = purchase.candidate(who)
        worst = limits.walk_away(purchase, candidate)
        sent = [each.letter.terms for each in end.bidders.of("proposals") if each.supplier == who]
        if sent and sent[0] != limits.opening(purchase, candidate, rules.wishes):
            found.append(f"{who}: the first position is not the opening")
        answers = [bid for bid in end.bids if bid.supplier_id == who]
        for (before, after), bid in zip(itertools.pairwise(sent), answers, strict=False):
            found += [f"{who}: {each}" for each in _beyond(before, after, bid, rules.step_percent, worst)]
        targets = [each.letter.target_cents for each in end.bidders.of("feedback") if each.supplier == who]
        found += [f"{who}: the target {each} is above the walk-away" for each in targets if each > worst.cents]
    return found


def _beyond(before: Terms, after: Terms, bid: Bid, step_percent: int, worst: Terms) -> list[str]:
    """Return the terms that moved away, by more than a step, or beyond the walk-away. Computed apart from `limits`."""
    found = []
    for name in limits.FIELDS:
        theirs = getattr(bid, name)
        ours, then, worse = getattr(before, name), getattr(after, name), getattr(worst, name)
        distance = abs((ours if theirs is None else theirs) - ours)
        if abs(then - ours) * 100 > distance * step_percent + 100:
            found.append(f"{name} moved from {ours} to {then} at a distance of {distance}")
        if (then > max(worse, ours)) if name in limits.LESS else (then < min(worse, ours)):
            found.append(f"{name} is {then}, beyond the walk-away of {worse}")
    return found


def _winner(here: World, end: Played) -> list[str]:
    """Judge the last bid of each supplier again: the formula decides who wins, not an agent."""
    purchase = Purchase.model_validate(here.purchase)
    last = {bid.supplier_id: bid for bid in end.bids}
    best = by_strategy(end.s.quadrant, [(bid, purchase.candidate(who)) for who, bid in last.items()], purchase)[0]
    orders = [each.letter.bid_id for each in end.bidders.of("orders")]
    return [] if orders == [best.bid_id] == [end.outcome["bid_id"]] else [f"ordered {orders}, best {best.bid_id}"]


def main() -> int:
    """Play the seeds with each model, print a line each, and return 1 if any went wrong."""
    cli = argparse.ArgumentParser(prog="tests.examples.negotiating", description=__doc__)
    cli.add_argument("--seeds", type=int, default=20, help="number of worlds [20]")
    cli.add_argument("--model", choices=MODELS, action="append", help="model that decides [all]")
    given = cli.parse_args()
    bad, played = 0, 0
    for model, seed in itertools.product(given.model or MODELS, range(given.seeds)):
        with pytest.MonkeyPatch.context() as patch:
            end = play(seed, model, patch)
        problems = wrong(seed, model, end)
        bad, played = bad + bool(problems), played + 1
        lie = f" about the {QUESTIONS[seed // 2 % len(QUESTIONS)]}" if model == "lying" else ""
        click.echo(
            f"{model}{lie}, seed {seed}: {len(end.s.suppliers)} suppliers, {end.s.rounds_held} rounds, "
            f"{len(end.s.final)} last words, {len(end.s.overruled)} overruled, {end.requests} answers paid: "
            f"{'; '.join(problems) or 'true'}"
        )
    click.echo(f"{bad} of {played} negotiations wrong")
    return 1 if bad or unmeasured(played=played) else 0


if __name__ == "__main__":
    sys.exit(main())
