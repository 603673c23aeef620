"""The limits of what an agent may propose: opening, step and walk-away of a position; who is asked; when rounds end.

Pure functions. Each objection is a sentence for the model; '' means that the workflow does what was proposed. The
formulas keep the same walk-away.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from .governance import Wishes
from .letters import Bid, Terms
from .purchase import Candidate, Purchase
from .rounds import moved_at_most
from .state import HeldBid, Negotiation

QUOTE_WORDS_MIN: Final = 3
LESS: Final = ("cents", "lead_days", "defect_ppm")
"""Terms of which the buyer wants less; of the others it wants more."""
FIELDS: Final = tuple(Terms.model_fields)
_FINAL: Final = re.compile(r"\b(final|last offer|best and last|no lower|cannot go|will not move|our limit)\b")
_NOT_FINAL: Final = re.compile(
    r"\b(not|never|far from|last year|their|competitor\w*)\b.{0,30}\b(final|limit|last offer)"
)


def opening(purchase: Purchase, candidate: Candidate, wishes: Wishes) -> Terms:
    """Return the buyer's opening position. No agent chooses it."""
    return Terms(
        cents=target(purchase),
        payment_days=wishes.payment_days,
        lead_days=candidate.lead_days * wishes.lead_percent // 100,
        defect_ppm=candidate.defect_ppm * wishes.defect_percent // 100,
        term_months=wishes.term_months,
    )


def target(purchase: Purchase) -> int:
    """Return the sum of the target prices."""
    return sum(item.quantity * item.target_cents for item in purchase.items)


def walk_away(purchase: Purchase, candidate: Candidate) -> Terms:
    """Return the worst terms that a position towards a supplier may have."""
    rules = purchase.governance.walk_away
    return Terms(
        cents=target(purchase) * rules.price_percent // 100,
        payment_days=rules.payment_days,
        lead_days=candidate.lead_days * rules.lead_percent // 100,
        defect_ppm=min(1_000_000, candidate.defect_ppm * rules.defect_percent // 100),
        term_months=rules.term_months,
    )


def answered(bid: Bid, before: Terms) -> Terms:
    """Return the supplier's position. A bid without a defect rate keeps that of the buyer."""
    given = bid.model_dump(include=set(FIELDS))
    return Terms.model_validate(given | {"defect_ppm": before.defect_ppm if bid.defect_ppm is None else bid.defect_ppm})


def stepped(before: Terms, theirs: Terms, percent: int, worst: Terms) -> Terms:
    """Return the position after a step towards the supplier's, by this part of the distance, within the walk-away."""
    moved = {}
    for name in FIELDS:
        ours, answer, limit = (int(getattr(each, name)) for each in (before, theirs, worst))
        wanted = ours + (answer - ours) * percent // 100
        moved[name] = max(ours, min(wanted, limit)) if wanted > ours and name in LESS else wanted
        if wanted < ours and name not in LESS:
            moved[name] = min(ours, max(wanted, limit))
    return Terms.model_validate(moved)


def ranges(before: Terms, theirs: Terms, percent: int, worst: Terms) -> dict[str, tuple[int, int]]:
    """Return the least and the greatest value of each term that one step allows."""
    far = stepped(before, theirs, percent, worst)
    pairs = {name: (int(getattr(before, name)), int(getattr(far, name))) for name in FIELDS}
    return {name: (min(pair), max(pair)) for name, pair in pairs.items()}


def objection_to_position(wanted: dict[str, int], allowed: dict[str, tuple[int, int]]) -> str:
    """Return which terms are outside of what one step allows."""
    wrong = [name for name, value in wanted.items() if not allowed[name][0] <= value <= allowed[name][1]]
    return "; ".join(
        f"{name} is {wanted[name]} and may be from {allowed[name][0]} to {allowed[name][1]}" for name in wrong
    )


def objection_to_final(*, is_final: bool, quote: str, note: str) -> str:
    """Return why a supplier's position is not shown to be final by this quote of its note."""
    if not is_final:
        return ""
    words = _plain(quote)
    if len(words.split()) < QUOTE_WORDS_MIN or words not in _plain(note):
        return "is_final needs a quote of at least three words from the note"
    if not _FINAL.search(words) or _NOT_FINAL.search(words):
        return "the quote does not say that this position is final"
    return ""


def objection_to_move(s: Negotiation, ask: Sequence[str], open_: Iterable[str], *, end: bool) -> str:
    """Return why these suppliers are not asked next, or why the rounds do not end."""
    open_, asked = list(open_), set(ask)
    wrong = [f"{name[:60]} is not open" for name in sorted(asked - set(open_))]
    wrong += [f"{name[:60]} is named twice" for name in sorted(asked) if list(ask).count(name) > 1]
    if end:
        if not moved_at_most(s, s.rounds_held, s.purchase.governance.end_within_bp):
            wrong.append("the prices still move, so the rounds do not end")
        return "; ".join(wrong)
    best = min((bid.cents for bid in s.open_bids()), default=0)
    most = best * (100 + s.purchase.governance.leave_out_percent) // 100
    for name in open_:
        bid = open_bid(s, name)
        if name not in asked and (bid is None or bid.cents <= most):
            wrong.append(f"{name} is open and still competes, so it is asked")
    return "; ".join(wrong)


def open_bid(s: Negotiation, supplier_id: str) -> HeldBid | None:
    """Return the open bid of a supplier."""
    return next((bid for bid in s.open_bids() if bid.supplier_id == supplier_id), None)


def _plain(text: str) -> str:
    return " ".join(text.lower().split()).strip(" .,;:!?\"'«»“”")
