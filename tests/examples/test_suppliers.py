"""The activities translate a supplier's answers, and reconcile accepts only explicit ones."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest

from examples.negotiation import suppliers
from examples.negotiation.letters import Ask, Line, Message, Order, Receipt
from examples.negotiation.record import Arrived
from outlast import DidNotHappen, Happened, Refused, RetryLater, Unknown
from outlast.flow.calls import Call, current_call
from tests.examples.helpers import GIVE_UP_S, Market, market

SUPPLIERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "closed": {"can_be_queried": False},
    "full": {"rules": [{"does": "declines", "reason": "we are full"}]},
    "unavailable": {"rules": [{"does": "unavailable"}]},
    "silent": {"rules": [{"does": "times_out", "seconds": 600}]},
    "slow": {"rules": [{"does": "slow", "seconds": 600}]},
}

ASK = Ask(
    reference="RFQ-1",
    category="packaging",
    currency="EUR",
    lines=[Line(sku="box-m", quantity=2, unit="pieces")],
    need_by=datetime(2026, 4, 20, tzinfo=UTC).date(),
    cycle=1,
    round=1,
    rounds=5,
    closes_at=datetime(2026, 3, 3, tzinfo=UTC),
)


@pytest.fixture(scope="module")
def m(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Market]:
    with market(tmp_path_factory.mktemp("market"), SUPPLIERS) as running:
        yield running


@pytest.fixture(autouse=True)
def _inbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(suppliers.INBOX, "http://127.0.0.1:9")


@contextmanager
def calling(run_id: str, key: str = "k", seconds: float = GIVE_UP_S) -> Iterator[None]:
    """Call an activity as the engine does."""
    deadline = datetime.now(UTC) + timedelta(seconds=seconds)
    token = current_call.set(Call(key, f"{run_id}/1/{key}", "t", run_id, 1, deadline))
    try:
        yield
    finally:
        current_call.reset(token)


def invited(m: Market, supplier: str, run_id: str, seconds: float = GIVE_UP_S) -> Receipt:
    with calling(run_id, seconds=seconds):
        receipt: Receipt = asyncio.run(_await(suppliers.invite, supplier, 1, f"{m.url}/suppliers/{supplier}", ASK))
        return receipt


def found(m: Market, supplier: str, run_id: str) -> Any:
    with calling(run_id):
        return asyncio.run(_await(suppliers.find_invitation, supplier, 1, f"{m.url}/suppliers/{supplier}", ASK))


async def _await(call: Callable[..., Awaitable[Any]], *args: Any) -> Any:
    return await call(*args)


@pytest.mark.req("EFF-5")
def test_a_call_carries_the_key_of_the_ledger_and_the_address_for_bids(m: Market) -> None:
    assert invited(m, "plain", "n1").message_id.startswith("invitations-plain-")
    arrived = m.entries("n1")[0]
    assert isinstance(arrived, Arrived)
    assert arrived.key == "n1/1/k"
    assert found(m, "plain", "n1").response == invited(m, "plain", "n1")


def test_a_decline_is_a_refusal_with_the_suppliers_reason(m: Market) -> None:
    with pytest.raises(Refused, match="declined: we are full"):
        invited(m, "full", "n2")


def test_any_other_error_status_is_raised_to_the_engine(m: Market) -> None:
    with pytest.raises(httpx2.HTTPStatusError):
        invited(m, "unavailable", "n3")
    with pytest.raises(httpx2.TimeoutException):
        invited(m, "silent", "n3", seconds=0.3)
    with pytest.raises(httpx2.ConnectError), calling("n3"):
        asyncio.run(_await(suppliers.invite, "nobody", 1, "http://127.0.0.1:9", ASK))


def test_only_an_explicit_answer_settles_a_call(m: Market) -> None:
    assert found(m, "plain", "never") == DidNotHappen()
    assert isinstance(found(m, "closed", "never"), Unknown)
    with pytest.raises(httpx2.TimeoutException):
        invited(m, "silent", "n4", seconds=0.3)
    known = found(m, "silent", "n4")
    assert isinstance(known, Happened)
    assert known.external_id == known.response.message_id
    with pytest.raises(httpx2.TimeoutException):
        invited(m, "slow", "n4", seconds=0.3)
    assert found(m, "slow", "n4") == Unknown("the supplier answered 202: being worked on")
    with calling("n4"):
        assert isinstance(asyncio.run(_await(suppliers.find_invitation, "x", 1, "http://127.0.0.1:9", ASK)), Unknown)


def test_without_an_inbox_nothing_is_sent(m: Market, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(suppliers.INBOX)
    with pytest.raises(RetryLater, match=suppliers.INBOX):
        invited(m, "plain", "n5")
    assert m.entries("n5") == []


def test_an_order_is_placed_found_and_cancelled(m: Market) -> None:
    order = ("plain", "plain-1-1", 500, f"{m.url}/suppliers/plain", "RFQ-1")
    with calling("n6"):
        placed = asyncio.run(_await(suppliers.place_order, *order))
        assert isinstance(placed, Order)
        assert asyncio.run(_await(suppliers.find_order, *order)) == Happened(placed, external_id=placed.order_id)
    with calling("n6", "k/undo"):
        asyncio.run(_await(suppliers.cancel_order, placed, *order))
    assert [e.kind for e in m.entries("n6") if isinstance(e, Arrived)] == ["orders", "cancellations"]


def test_a_letter_reaches_its_supplier(m: Market) -> None:
    letter = Message(run_id="n7", subject="regret", text="Thank you for taking part.")
    with calling("n7"):
        args = ("plain", letter.subject, f"{m.url}/suppliers/plain", letter)
        assert asyncio.run(_await(suppliers.find_message, *args)) == DidNotHappen()
        sent = asyncio.run(_await(suppliers.send_message, *args))
        assert asyncio.run(_await(suppliers.find_message, *args)).response == sent
