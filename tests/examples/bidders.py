"""Suppliers inside of a test in virtual time: letters come to `Bidders` instead of an HTTP mailbox, bids are signals.

Prices are those of the market (`examples.negotiation.market.pricing`). A note may go with a bid.
"""

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel

from examples.negotiation import suppliers
from examples.negotiation.letters import Bid, Feedback, Invitation, Order, Receipt, bid_signal
from examples.negotiation.market.behaviour import Supplier
from examples.negotiation.market.pricing import Stance, hear, offer, unable
from outlast import Refused, this_call
from outlast.testing import App


class Sent(NamedTuple):
    """A letter of the buyer, as a supplier received it."""

    supplier: str
    kind: str
    key: str
    letter: Any


def as_made(bid: Bid, asked: Invitation) -> Bid:
    """Return a bid as the prices of the market make it."""
    return bid


class Bidders:
    """The suppliers of one app. Each answers at once; those in `silent` accept a letter and never bid."""

    def __init__(
        self,
        app: App,
        patch: pytest.MonkeyPatch,
        behaviours: dict[str, Supplier],
        *,
        silent: set[str] | None = None,
        changed: Callable[[Bid, Invitation], Bid] = as_made,
    ) -> None:
        self._app, self._behaviours, self._silent, self._changed = app, behaviours, silent or set(), changed
        self._stances: defaultdict[tuple[str, int], Stance] = defaultdict(Stance)
        self.sent: list[Sent] = []
        patch.setenv(suppliers.INBOX, "http://127.0.0.1:9")
        patch.setattr(suppliers, "_post", self._post)

    async def _post(self, mailbox: str, kind: str, letter: BaseModel, word: type[Any]) -> Any:
        supplier, key = mailbox.rpartition("/")[2], this_call().idempotency_key
        self.sent.append(Sent(supplier, kind, key, letter))
        stance = self._stances[supplier, getattr(letter, "cycle", 1)]
        if isinstance(letter, Feedback):
            hear(stance, letter)
        if isinstance(letter, Invitation):
            if why := unable(self._behaviours[supplier], letter):
                raise Refused("declined", why)
            if supplier not in self._silent:
                bid = self._changed(offer(supplier, self._behaviours[supplier], stance, letter), letter)
                await self._app.runtime.operations.signal(
                    letter.run_id, bid_signal(bid.cycle, bid.round), bid.model_dump(mode="json"), signal_id=bid.bid_id
                )
        made = f"{kind}-{supplier}-{len(self.sent)}"
        return Order(order_id=made) if word is Order else Receipt(message_id=made)

    def of(self, kind: str) -> list[Sent]:
        """Return the letters of one kind, in order."""
        return [each for each in self.sent if each.kind == kind]

    def repeated(self) -> list[str]:
        """Return the keys under which more than one letter was sent."""
        return [key for key, times in Counter((each.key, each.supplier) for each in self.sent).items() if times > 1]
