"""A simulated supplier: its memory of requests, its answers and its bids."""

import asyncio
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from ..letters import Bid, Cancellation, Feedback, Inquiry, Invitation, Message, OrderForm, Proposal
from ..record import APPROACHES, Arrived, Entry, Executed, Kind, Offered
from .behaviour import Rule, Supplier
from .bid_sender import BidSender, settled
from .journal import Journal
from .pricing import Stance, hear, offer, unable

Letter: TypeAlias = Invitation | Feedback | OrderForm | Message | Cancellation
When: TypeAlias = Literal["soon", "late", "never"]
"""Time of the bid of a supplier that has accepted an invitation."""
BROKEN_OFF = 0
LETTERS: dict[Kind, type[Letter]] = {
    "invitations": Invitation,
    "quotes": Invitation,
    "inquiries": Inquiry,
    "proposals": Proposal,
    "feedback": Feedback,
    "orders": OrderForm,
    "messages": Message,
    "cancellations": Cancellation,
}


@dataclass(frozen=True)
class Reply:
    """An answer to a request. Status 0 breaks the connection."""

    status: int
    body: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    deduped: bool = False


@dataclass(frozen=True)
class _Deed:
    sha256: str
    body: dict[str, Any]


@dataclass(frozen=True)
class _Held:
    """A late bid and its destination, kept until the round is over."""

    bid: Bid
    run_id: str
    answer_to: str


class SimulatedSupplier:
    """One supplier. It records an action in the journal and performs it without an await between them."""

    def __init__(self, supplier_id: str, behaviour: Supplier, journal: Journal, sender: BidSender) -> None:
        self._id = supplier_id
        self._is = behaviour
        self._journal = journal
        self._sender = sender
        self._deeds: dict[str, _Deed] = {}
        self._at_work: Counter[str] = Counter()
        self._seen: Counter[tuple[int, str]] = Counter()
        self._made: Counter[Kind] = Counter()
        self._stances: defaultdict[tuple[str, int], Stance] = defaultdict(Stance)
        self._held: list[_Held] = []
        self._delivered: set[tuple[str, str]] = set()  # bids that an earlier market on this record has delivered

    def restore(self, entries: list[Entry]) -> None:
        """Restore the state in which an earlier market on the same record stopped."""
        arrivals = {e.n: e for e in entries if isinstance(e, Arrived) and e.supplier == self._id}
        offers = (e for e in entries if isinstance(e, Offered) and e.supplier == self._id and settled(e.status))
        self._delivered.update((e.run_id, e.bid_id) for e in offers)
        for entry in entries:
            if isinstance(entry, Executed) and entry.n in arrivals:
                arrival = arrivals[entry.n]
                self._made[arrival.kind] += 1
                self._deeds[arrival.key] = _Deed(arrival.sha256, _body(arrival.kind, entry.id))
                if entry.letter:
                    self._carry_out(LETTERS[arrival.kind].model_validate(entry.letter), entry.bids)

    async def handle(self, arrival: Arrived, letter: Letter) -> Reply:
        """Answer a request as the declared behaviour says."""
        rule = self._rule(arrival, letter)
        self._at_work[arrival.key] += 1
        try:
            return await self._follow(rule, arrival, letter)
        finally:
            self._at_work[arrival.key] -= 1

    def recall(self, key: str) -> Reply:
        """Answer whether a request was accepted: 200 with known or not known, 202 in progress, 405 no queries."""
        if not self._is.can_be_queried:
            return Reply(405, {"detail": f"{self._id} answers no queries"})
        if deed := self._deeds.get(key):
            return Reply(200, {"known": True, "response": deed.body})
        if self._at_work[key]:
            return Reply(202, {"detail": "being worked on"})
        return Reply(200, {"known": False})

    def _rule(self, arrival: Arrived, letter: Letter) -> Rule | None:
        for i, rule in enumerate(self._is.rules):
            if not _applies(rule, arrival, letter):
                continue
            if rule.times and self._seen[i, arrival.key] >= rule.times:
                continue
            self._seen[i, arrival.key] += 1
            return rule
        return None

    async def _follow(self, rule: Rule | None, arrival: Arrived, letter: Letter) -> Reply:
        match rule.does if rule else None:
            case "declines":
                assert rule is not None
                return Reply(422, {"detail": rule.reason})
            case "busy":
                assert rule is not None
                return Reply(429, {"detail": "too many requests"}, {"Retry-After": f"{rule.retry_after:g}"})
            case "unavailable" | "resets":
                assert rule is not None
                if rule.acts_first:
                    self._act(arrival, letter)
                return Reply(503, {"detail": "back soon"}) if rule.does == "unavailable" else Reply(BROKEN_OFF)
            case "times_out":
                assert rule is not None
                reply = self._act(arrival, letter)
                await asyncio.sleep(rule.seconds)
                return reply
            case "slow":
                assert rule is not None
                await asyncio.sleep(rule.seconds)
                return self._act(arrival, letter)
            case "late":
                return self._act(arrival, letter, when="late")
            case "silent":
                return self._act(arrival, letter, when="never")
            case None:
                return self._act(arrival, letter)

    def _act(self, arrival: Arrived, letter: Letter, *, when: When = "soon") -> Reply:
        known = self._deeds.get(arrival.key)
        if known and self._is.dedupes:
            if known.sha256 != arrival.sha256:
                return Reply(422, {"detail": "this Idempotency-Key came with another body before"})
            return Reply(200, known.body, deduped=True)
        if isinstance(letter, Invitation) and (why := unable(self._is, letter)):
            return Reply(422, {"detail": why})
        self._made[arrival.kind] += 1
        made, body = self._word(arrival.kind)
        self._journal.executed(arrival, made, letter, when)
        self._deeds[arrival.key] = _Deed(arrival.sha256, body)
        self._carry_out(letter, when)
        return Reply(200, body)

    def _word(self, kind: Kind) -> tuple[str, dict[str, Any]]:
        number = self._made[kind]
        made = f"PO-{self._id}-{1000 + number}" if kind == "orders" else f"{kind}-{self._id}-{number}"
        return made, _body(kind, made)

    def _carry_out(self, letter: Letter, when: When) -> None:
        if isinstance(letter, Invitation):
            self._bid(letter, when)
        elif isinstance(letter, Feedback):
            hear(self._stances[letter.run_id, letter.cycle], letter)
            self._release(letter.run_id)
        elif isinstance(letter, Message):
            self._release(letter.run_id)

    def _bid(self, asked: Invitation, when: When) -> None:
        self._release(asked.run_id)
        if when == "never":
            return
        bid = offer(self._id, self._is, self._stances[asked.run_id, asked.cycle], asked)
        if when == "late":
            self._held.append(_Held(bid, asked.run_id, asked.answer_to))
        else:
            self._send(bid, asked.run_id, asked.answer_to, self._is.bids_after)

    def _release(self, run_id: str) -> None:
        """Send the late bids of a run, because the round is over."""
        for held in [h for h in self._held if h.run_id == run_id]:
            self._held.remove(held)
            self._send(held.bid, held.run_id, held.answer_to, 0)

    def _send(self, bid: Bid, run_id: str, answer_to: str, after_s: float) -> None:
        if (run_id, bid.bid_id) not in self._delivered:
            self._sender.send(bid, run_id, answer_to, after_s)


def _applies(rule: Rule, arrival: Arrived, letter: Letter) -> bool:
    kinds = APPROACHES if rule.kind == "approaches" else (rule.kind,)
    cycle = letter.cycle if isinstance(letter, Invitation | Feedback) else 0
    return (
        arrival.kind in kinds
        and (not rule.rounds or arrival.round in rule.rounds)
        and (not rule.cycles or cycle in rule.cycles)
    )


def _body(kind: Kind, made: str) -> dict[str, Any]:
    return {"order_id" if kind == "orders" else "message_id": made}
