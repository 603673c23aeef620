"""All letters of a run to one supplier, from the ledger: `python -m examples.negotiation.correspondence RUN SUPPLIER`.

The store is that of `--store` or OUTLAST_STORE, or a service at `--store https://…`. A refused letter, or one whose
outcome is open, is shown with its status.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from outlast import connect
from outlast.errors import OutlastError
from outlast.models.effects import EffectRecord

from .money import money

LETTERS: Final = {
    "invite": "invitation",
    "request_quote": "request for a quote",
    "inquire": "inquiry",
    "propose": "proposal",
    "send_feedback": "feedback",
    "place_order": "order",
    "send_message": "letter",
    "cancel_order": "cancellation",
}
"""Activity → name of its letter."""
STORE: Final = "sqlite:outlast.db"


class Sent(NamedTuple):
    """A letter to a supplier: what it is, what became of it, and its content in one line."""

    kind: str
    key: str
    visit: int
    status: str
    content: str


def letters_to(supplier_id: str, effects: Iterable[EffectRecord]) -> list[Sent]:
    """Return the letters to a supplier, in the order in which the run requested them."""
    return [
        Sent(LETTERS[each.effect], each.key, each.visit, each.status, _content(each.effect, each.arguments))
        for each in effects
        if each.effect in LETTERS and each.arguments.get("supplier_id") == supplier_id
    ]


def text(letters: Iterable[Sent]) -> str:
    """Format letters, one a line."""
    return "\n".join(f"{each.visit:>3}  {each.kind:<20} {each.status:<10} {each.content}" for each in letters)


def _content(activity: str, given: dict[str, Any]) -> str:
    match activity:
        case "invite" | "request_quote" | "inquire":
            ask = given["ask"]
            wanted = f", {given['wanted']}" if "wanted" in given else ""
            return f"cycle {ask['cycle']} round {ask['round']} of {ask['rounds']}{wanted}, closes {ask['closes_at']}"
        case "propose":
            ask, terms = given["ask"], given["terms"]
            return (
                f"cycle {ask['cycle']} round {ask['round']} of {ask['rounds']}: {money(terms['cents'])}, "
                f"{terms['payment_days']} days of credit, {terms['lead_days']} days, {terms['defect_ppm']} ppm, "
                f"{terms['term_months']} months"
            )
        case "send_feedback":
            letter = given["feedback"]
            target = f", asks for {money(letter['target_cents'])}" if letter.get("target_cents") else ""
            return (
                f"cycle {letter['cycle']} round {letter['round']}: rank {letter['rank']} of {letter['bidders']}, "
                f"best {money(letter['best_cents'])}{target}"
            )
        case "place_order" | "cancel_order":
            return f"bid {given['bid_id']} for {money(given['cents'])}"
        case _:
            return f"{given['subject']}: {given['message']['text']}"


async def _show(store: str, run: str, supplier: str) -> int:
    async with connect(store) as client:
        found = letters_to(supplier, await client.effects(run))
    print(text(found) or f"run {run} wrote no letter to {supplier}")
    return 0 if found else 1


def main() -> int:
    """Print the letters. Exit with 1 if there is none, with 2 if the run cannot be read."""
    cli = argparse.ArgumentParser(prog="negotiation.correspondence", description=__doc__)
    cli.add_argument("run", help="id of the run")
    cli.add_argument("supplier", help="id of the supplier, for example acme")
    cli.add_argument("--store", default=os.environ.get("OUTLAST_STORE", STORE), help=f"URL of the store [{STORE}]")
    given = cli.parse_args()
    try:
        return asyncio.run(_show(given.store, given.run, given.supplier))
    except OutlastError as error:
        print(f"correspondence: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
