"""The nodes in order, with a context that calls activities at once and has no ledger."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from examples.negotiation import suppliers
from examples.negotiation.letters import Bid
from examples.negotiation.record import Executed, summary
from examples.negotiation.samples import sample
from examples.negotiation.state import Negotiation
from examples.negotiation.summary import description
from examples.negotiation.workflow import negotiation
from outlast import Cancel, Context, Decision, Fail, Plan, Refusal, Refused
from outlast.flow.calls import Call, current_call
from tests.examples.helpers import Inbox, Market, inbox, market, when


class NodeRunner(Context[Negotiation]):
    """A context that runs node after node. A wait ends when `limit` signals have arrived."""

    def __init__(self, state: Negotiation, box: Inbox, choose: int | None = 0, run_id: str = "neg_1") -> None:
        self.state, self.tenant, self.run_id, self.visit = state, "t", run_id, 1
        self.entered_at = datetime(2026, 3, 2, tzinfo=UTC)
        self.asked: list[str] = []
        self.keys: list[str] = []
        self._box, self._choose = box, choose

    async def do(self, plan: Any, /, *args: Any, **kwargs: Any) -> Any:
        assert isinstance(plan, Plan)
        if plan.key not in self.keys:
            self.keys.append(plan.key)
        deadline = datetime.now(UTC) + timedelta(seconds=30)
        current_call.set(
            Call(plan.key, f"{self.run_id}/{self.visit}/{plan.key}", self.tenant, self.run_id, 1, deadline)
        )
        activity = negotiation.activity(plan.activity)
        args, kwargs = activity.load_args(plan.arguments)
        return await activity(*args, **kwargs)

    async def do_all(self, plans: Any, /, *, at_most: int = 0, refused: str = "raise") -> Any:
        async def one(plan: Plan[Any]) -> Any:
            try:
                return await self.do(plan)
            except Refused as no:
                return Refusal(no.code, no.detail)

        tasks = [asyncio.create_task(one(plan)) for plan in plans.values()]
        return dict(zip(plans, await asyncio.gather(*tasks), strict=True))

    async def collect(
        self, name: str, model: type[Any], /, *, timeout: Any = None, until: Any = None, limit: int | None = None
    ) -> list[Any]:
        def come() -> list[Any]:
            return [model.model_validate(payload) for _, key, payload, _ in self._box.signals if key == name]

        await when(lambda: len(come()) >= (limit or 0), lambda: (name, limit, self._box.signals))
        return come()

    async def approval(self, plan: Plan[Any], /, **said: Any) -> Decision[Any]:
        self.asked.append(said["summary"])
        if self._choose is None:
            return Decision("rejected", "too dear", "ana", None)
        return Decision("approved", "quality", "ana", [plan, *said["alternatives"]][self._choose])

    async def to_the_end(self) -> Negotiation:
        """Run all nodes and return the state. It is encoded and decoded between nodes, as in the engine."""
        node: str | None = negotiation.start.name
        while node is not None:
            node = await negotiation.nodes[node].fn(self)
            self.state = negotiation.state_codec.load(negotiation.state_codec.dump(self.state))
        return self.state


Negotiated = tuple[NodeRunner, dict[str, Any]]
Negotiate = Callable[..., Negotiated]


@pytest.fixture(scope="module")
def m(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Market]:
    with market(tmp_path_factory.mktemp("market"), "calm") as running:
        yield running


@pytest.fixture
def negotiate(m: Market, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Negotiate:
    """Return a function that runs the leverage sample with changes, with the test's name as run id."""

    async def negotiate(choose: int | None, changes: dict[str, Any]) -> Negotiated:
        async with inbox() as box:
            monkeypatch.setenv(suppliers.INBOX, box.url)
            state = negotiation.first_state(sample("leverage", market=m.url) | changes)
            runner = NodeRunner(state, box, choose, request.node.name)
            await runner.to_the_end()
        record = m.entries(runner.run_id)
        counts = {kind: counted.model_dump() for kind, counted in summary(record).items()}
        return runner, counts | {"made": [e.id for e in record if isinstance(e, Executed)]}

    return lambda choose=0, **changes: asyncio.run(negotiate(choose, changes))


def test_a_leverage_purchase_goes_through_all_seven_nodes(negotiate: Negotiate) -> None:
    runner, seen = negotiate()
    s = runner.state
    assert (s.quadrant, s.rounds_held, list(s.declined)) == ("LEVERAGE", 5, ["dunlin"])
    assert [d.supplier_id for d in s.discarded] == ["farrow"]
    assert seen["invitations"]["sent"] == seen["invitations"]["distinct"] == 5 + 4 * 4
    assert seen["feedback"]["executed"] == 4 * 5
    assert seen["orders"]["executed"] == 1
    assert seen["messages"]["executed"] == 4
    assert len(s.bids) == 20
    assert {bid.supplier_id for bid in s.open_bids()} == {"acme", "baltica", "cordoba", "elmtree"}
    assert {bid.round for bid in s.open_bids()} == {5}
    assert s.bid(s.winner).supplier_id == "acme"
    assert s.order_id in seen["made"]
    assert s.approved_by == "ana"
    assert len(runner.asked) == 1
    assert "180,708.86 is above the threshold of 50,000.00" in runner.asked[0]
    assert len(negotiation.state_codec.dump(s)) < 12_000
    outcome = negotiation.outcome_of(s)
    assert b'"supplier_id":"acme"' in outcome


def test_prices_fall_and_total_cost_decides_over_the_price_of_the_goods(negotiate: Negotiate) -> None:
    s = negotiate()[0].state
    for supplier in ("acme", "baltica", "cordoba", "elmtree"):
        prices = [bid.cents for bid in s.bids if bid.supplier_id == supplier]
        assert prices == sorted(prices, reverse=True)
    assert min(s.open_bids(), key=lambda bid: bid.cents).supplier_id == "baltica"
    assert s.why_winner.startswith("acme costs ")
    text = description(s)
    for part in ("not asked: farrow", "declined: dunlin", "bids of acme by round: 1: ", "1. acme with bid", s.order_id):
        assert part in text


def test_an_approver_may_choose_another_open_bid(negotiate: Negotiate) -> None:
    s = negotiate(choose=1)[0].state
    assert s.winner == s.scores[1].bid_id
    assert s.order_id.startswith(f"PO-{s.scores[1].supplier_id}-")
    assert s.why_winner == f"{s.scores[1].supplier_id} was chosen by ana: quality"


def test_a_rejection_stops_the_run_and_orders_nothing(
    m: Market, negotiate: Negotiate, request: pytest.FixtureRequest
) -> None:
    with pytest.raises(Cancel, match="rejected by ana: too dear"):
        negotiate(choose=None)
    assert summary(m.entries(request.node.name))["orders"].arrived == 0


def test_an_order_below_the_threshold_needs_no_approval(negotiate: Negotiate) -> None:
    rules = {"approval_threshold_cents": 10**10, "rounds": 1}
    runner, seen = negotiate(governance=rules)
    assert (runner.asked, runner.state.approved_by) == ([], "")
    assert runner.state.order_id
    assert (seen["invitations"]["sent"], seen["feedback"]["sent"]) == (5, 4)


@pytest.mark.parametrize(
    ("name", "node"),
    [("spot", "spot"), ("leverage", "auction"), ("bottleneck", "bottleneck"), ("strategic", "strategic")],
)
def test_the_router_leads_to_the_node_of_each_quadrant(name: str, node: str) -> None:
    async def routed() -> str | None:
        runner = NodeRunner(negotiation.first_state(sample(name)), Inbox())
        for before in ("ingest", "classify"):
            await negotiation.nodes[before].fn(runner)
        return await negotiation.nodes["route"].fn(runner)

    assert asyncio.run(routed()) == node


def test_a_purchase_that_no_candidate_can_deliver_fails_with_all_reasons() -> None:
    runner = NodeRunner(negotiation.first_state(sample("leverage") | {"need_by": "2026-03-10"}), Inbox())
    with pytest.raises(Fail, match=r"no candidate can deliver: acme delivers on 2026-03-27"):
        asyncio.run(runner.to_the_end())


def test_bids_of_unknown_suppliers_other_rounds_and_older_cycles_do_not_count() -> None:
    s = negotiation.first_state(sample("leverage"))
    s.suppliers, s.declined = ["acme", "cordoba"], {"cordoba": "full"}

    def bid(supplier: str, bid_id: str, cents: int, round_number: int = 2) -> Bid:
        return Bid(
            bid_id=bid_id, supplier_id=supplier, cycle=1, round=round_number, cents=cents,
            freight_cents=0, lead_days=1, payment_days=0,
        )  # fmt: skip

    s.take_in([bid("acme", "a1", 9, 1)], 1)
    given = [
        bid("acme", "a3", 7),
        bid("acme", "a2", 8),
        bid("cordoba", "c", 1),
        bid("x", "x", 1),
        bid("acme", "old", 1, 1),
    ]
    for order in (given, given[::-1]):
        again = s.model_copy(deep=True)
        again.take_in(order, 2)
        assert [(b.bid_id, b.status) for b in again.bids] == [
            ("a1", "SUPERSEDED"),
            ("a2", "SUPERSEDED"),
            ("a3", "OPEN"),
        ]
