"""Answers if the store's answer was lost: an unknown outcome, and a safe next step."""

from typing import Any

import pytest

from outlast.errors import Uncertain
from outlast.runtime.operations import Operations
from tests.service.conftest import Service

WRITES = {
    "start": (
        Operations,
        "perform",
        "/v1/workflows/refund/runs",
        {"input": {"order_id": "A", "cents": 1}},
        "GET /v1/runs",
    ),
    "cancel": (Operations, "perform", "/v1/runs/r1/cancel", {"reason": "no"}, "GET /v1/runs/r1"),
    "signal": (Operations, "perform", "/v1/runs/r1/signals/go", {"payload": {}}, "GET /v1/runs/r1"),
    "pause": (Operations, "perform", "/v1/pauses", {"what": "tenant", "reason": "fire"}, "GET /v1/pauses"),
}


async def lost(*args: Any, **more: Any) -> Any:
    raise Uncertain("the store's answer was lost", "disk I/O error at /var/lib/secret.db")


@pytest.mark.parametrize("write", WRITES)
def test_without_a_key_the_hint_is_to_check_first(
    service: Service, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    of, method, path, body, look = WRITES[write]
    monkeypatch.setattr(of, method, lost)
    answer = service.post(path, body)
    problem = answer.json()
    assert (answer.status_code, problem["code"], "retry-after" in answer.headers) == (503, "OUT-505", False)
    assert problem["detail"] == "the request may or may not have been executed"
    assert problem["hint"] == f"check first whether it was executed: {look}; send it again only if it was not"
    assert "secret" not in answer.text


@pytest.mark.parametrize("write", WRITES)
def test_with_a_key_the_hint_is_to_repeat_the_request(
    service: Service, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    of, method, path, body, _ = WRITES[write]
    monkeypatch.setattr(of, method, lost)
    answer = service.post(path, body, Idempotency_Key=f"uncertain-{write}")
    hint = "send the same request again with the same Idempotency-Key; it is executed once"
    assert (answer.json()["hint"], answer.headers["retry-after"]) == (hint, "1")


def test_the_hint_for_a_webhook_is_to_check_without_a_key(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a key, its commit holds the identity of the request, so a repetition adds no second one."""
    monkeypatch.setattr(Operations, "perform", lost)
    ask = {"url": "https://example.com/hook"}
    answer = service.post("/v1/webhooks", ask)
    assert "GET /v1/webhooks" in answer.json()["hint"] and "retry-after" not in answer.headers
    keyed = service.post("/v1/webhooks", ask, Idempotency_Key="uncertain-webhook")
    assert "same Idempotency-Key" in keyed.json()["hint"] and keyed.headers["retry-after"] == "1"
