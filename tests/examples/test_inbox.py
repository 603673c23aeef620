"""The inbox turns each bid into one signal and answers with its result."""

import asyncio
from typing import Any

import httpx2
import pytest

from examples.negotiation.inbox import BODY_BYTES_MAX, answer_to, posting
from outlast.errors import Conflict, NotFound, Unavailable
from tests.examples.helpers import client, inbox

BID: dict[str, Any] = {
    "bid_id": "acme-1-3", "supplier_id": "acme", "cycle": 1, "round": 3,
    "cents": 100, "freight_cents": 0, "lead_days": 3, "payment_days": 30,
}  # fmt: skip


def post(body: Any, **given: Any) -> tuple[httpx2.Response, list[Any]]:
    async def check() -> tuple[httpx2.Response, list[Any]]:
        async with inbox(**given) as box, client() as http:
            content = {"content": body} if isinstance(body, bytes) else {"json": body}
            return await http.post(answer_to(box.url, "neg_1"), **content), box.signals

    return asyncio.run(check())


def test_a_bid_becomes_a_signal_under_its_own_id() -> None:
    answer, signals = post(BID)
    assert answer.status_code == 202
    assert signals == [("neg_1", "bid.1.3", BID, "acme-1-3")]


@pytest.mark.parametrize(
    ("posted", "status"), [("ended", 410), ("unknown", 404), ("conflict", 409), ("unavailable", 503)]
)
def test_the_status_code_follows_the_result_of_the_signal(posted: str, status: int) -> None:
    answer, _ = post(BID, answer=posted)
    assert answer.status_code == status
    assert ("Retry-After" in answer.headers) is (status == 503)


@pytest.mark.parametrize(
    ("raised", "posted"),
    [(None, "accepted"), (NotFound, "unknown"), (Conflict, "ended"), (Unavailable, "unavailable")],
)
def test_errors_of_the_runtime_are_translated_to_results(raised: Any, posted: str) -> None:
    async def leave(run: str, name: str, payload: dict[str, Any], *, signal_id: str) -> bool:
        assert (run, name, payload, signal_id) == ("neg_1", "bid.1.3", BID, "acme-1-3")
        if raised:
            raise raised("no", "because", "so")
        return True

    assert asyncio.run(posting(leave)("neg_1", "bid.1.3", BID, "acme-1-3")) == posted


def test_an_unreachable_store_is_answered_with_503() -> None:
    answer, signals = post(BID, refusals=1)
    assert (answer.status_code, signals) == (503, [])


@pytest.mark.parametrize(
    "body",
    [
        {},
        BID | {"cents": 0},
        BID | {"cents": -1},
        BID | {"round": 0},
        BID | {"bid_id": "../x"},
        BID | {"discount": 3},
        b"not json",
        b"",
        b"[]",
        b'{"cents": NaN}',
    ],
)
def test_an_invalid_bid_is_refused_with_its_problems(body: Any) -> None:
    answer, signals = post(body)
    assert (answer.status_code, signals) == (422, [])
    assert answer.json()["problems"]


def test_every_problem_of_a_bid_is_named() -> None:
    answer, _ = post(BID | {"cents": 0, "lead_days": -1, "round": 500})
    assert [problem.split(":")[0] for problem in answer.json()["problems"]] == ["round", "cents", "lead_days"]


def test_an_endless_body_is_not_held_in_memory() -> None:
    answer, signals = post(b"x" * (BODY_BYTES_MAX + 1))
    assert (answer.status_code, signals) == (413, [])
