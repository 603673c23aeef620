"""Each behaviour of a fake receiver over real HTTP, and its entries in the record."""

import hashlib
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from urllib.parse import quote

import httpx2
import pytest

from outlast.errors import InvalidInput
from outlast.testing import FakeReceivers, garbage, huge, ok, resets, slow, status, times_out, too_many


@pytest.fixture
def http(receivers: FakeReceivers) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=receivers.url, timeout=20) as one:
        yield one


def post(http: httpx2.Client, path: str, key: str = "k-1", body: bytes = b"{}") -> httpx2.Response:
    return http.post(path, content=body, headers={"Idempotency-Key": key} if key else {})


def test_it_deduplicates_answers_questions_and_writes_the_record_first(
    receivers: FakeReceivers, http: httpx2.Client
) -> None:
    first, again = post(http, "/charges"), post(http, "/charges")
    assert first.json() == again.json() and (receivers.executed("k-1"), receivers.attempts("k-1")) == (1, 2)
    assert http.get("/charges/k-1").json() == first.json() == http.get("/charges", params={"key": "k-1"}).json()
    assert http.get("/charges/k-2").status_code == 404
    slashed = post(http, "/charges", key="t:r:1:charge/o-1")
    assert http.get(f"/charges/{quote('t:r:1:charge/o-1', safe='')}").json() == slashed.json()
    attempt, executed = receivers.entries[:2]
    assert (attempt.kind, executed.kind, executed.answer) == ("attempt", "executed", first.json())
    assert executed.sha256 == hashlib.sha256(b"{}").hexdigest() and executed.at >= attempt.at > 0
    assert len(receivers.record.path.read_text().splitlines()) == len(receivers.entries)
    receivers.assert_effects_once()


def test_a_receiver_can_be_asked_by_its_own_ids(receivers: FakeReceivers, http: httpx2.Client) -> None:
    receivers.route(
        "/charges",
        reply=lambda request: {"id": f"ch_{request.key}"},
        asked=lambda request, answers: next((a for a in answers if request.path.endswith(a["id"])), None),
    )
    assert post(http, "/charges").json() == {"id": "ch_k-1"}
    post(http, "/other", key="k-9")
    assert http.get("/charges/ch_k-1").json() == {"id": "ch_k-1"}
    assert http.get("/charges/k-1").status_code == 404, "this receiver does not keep keys"
    assert [e.status for e in receivers.record.of("asked")] == [200, 404]


def test_a_reconcile_that_contradicts_the_record_is_reported(receivers: FakeReceivers, http: httpx2.Client) -> None:
    """An earlier version suggested to correct resend(), which the activity does not declare."""
    receivers.route("/", duplicates="act")
    for path, key in (("/charges", "t:r:1:charge/o-1"), ("/mails", "t:r:1:mail/o-1"), ("/slips", "t:r:1:slip/o-1")):
        post(http, path, key)
        if path == "/charges":
            http.get("/charges/ch-1")
        http.get(path, params={"key": key})
        post(http, path, key)
    by_id, unasked, mute = receivers.record.repeated(asks={"mail/o-1": "send", "charge/o-1": "charge"})
    assert "GET /charges/ch-1 asked for the call and got 404" in by_id and 'route("/charges", asked=…)' in by_id
    assert "send.reconcile returned DidNotHappen, although the receiver" in unasked
    assert "so resend() is wrong for it" in mute, "no reconcile is declared"


def test_started_receivers_keep_their_address_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that creates its client at import reads the variable before any test begins."""
    monkeypatch.delenv("SHOP_AT", raising=False)
    ended = list[Callable[[], None]]()
    monkeypatch.setattr("atexit.register", ended.append)
    shop = FakeReceivers(env="SHOP_AT")
    with pytest.raises(InvalidInput, match=r'FakeReceivers\(env="SHOP_AT"\)\.start\(\) before the import'):
        _ = shop.url
    assert shop.start() is shop and os.environ["SHOP_AT"] == shop.url == shop.start().url
    with shop, httpx2.Client(base_url=os.environ["SHOP_AT"]) as http:
        post(http, "/charges")
    assert os.environ["SHOP_AT"] == shop.url and shop.executed("k-1") == 1, "the end of a block does not stop them"
    (end,) = ended
    end()
    assert "SHOP_AT" not in os.environ and not shop.record.path.exists()


def test_a_process_under_test_uses_the_receivers_of_its_test(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeReceivers(env="SHOP_AT") as judge:
        for name, value in judge.environment().items():
            monkeypatch.setenv(name, value)
        assert FakeReceivers(env="SHOP_AT").start().url == judge.url
        other = FakeReceivers(env="OTHER_AT")
        with other.start():
            assert other.url != judge.url, "receivers with another variable are separate"


def test_a_key_with_another_body_is_refused(receivers: FakeReceivers, http: httpx2.Client) -> None:
    post(http, "/charges")
    assert post(http, "/charges", body=b"[]").status_code == 422 and receivers.executed() == 1


@pytest.mark.parametrize(
    ("behaviour", "error", "acted"),
    [
        (times_out(), httpx2.ReadTimeout, 1),
        (times_out(acts=False), httpx2.ReadTimeout, 0),
        (resets(), httpx2.ReadError, 1),
        (slow(2), httpx2.ReadTimeout, 1),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_call_is_executed_and_the_caller_gets_no_answer(
    receivers: FakeReceivers, http: httpx2.Client, behaviour: object, error: type[Exception], acted: int
) -> None:
    receivers.route("/charges", behaviour, ok)  # type: ignore[arg-type]
    http.timeout = httpx2.Timeout(20, read=1)
    with pytest.raises((error, httpx2.RemoteProtocolError)):
        post(http, "/charges")
    http.timeout = httpx2.Timeout(20)
    assert receivers.executed("k-1") == acted
    assert post(http, "/charges").status_code == 200 and receivers.executed("k-1") == 1


def test_statuses(receivers: FakeReceivers, http: httpx2.Client) -> None:
    receivers.route("/busy", too_many(timedelta(seconds=7)), status(503), status(500, acts=True))
    first, second, third, fourth = (post(http, "/busy") for _ in range(4))
    assert (first.status_code, first.headers["Retry-After"], second.status_code) == (429, "7", 503)
    assert (third.status_code, fourth.status_code, receivers.executed("k-1")) == (500, 200, 1)


def test_answers_that_are_huge_or_not_json(receivers: FakeReceivers, http: httpx2.Client) -> None:
    receivers.route("/garbage", garbage()).route("/huge", huge(2))
    with pytest.raises(ValueError, match=r"decode|Expecting"):
        post(http, "/garbage", "a").json()
    assert len(post(http, "/huge", "b").content) > 2_000_000
    assert receivers.executed() == 2


def test_receivers_that_execute_again_forget_or_conflict(receivers: FakeReceivers, http: httpx2.Client) -> None:
    receivers.route("/act", duplicates="act").route("/conflict", duplicates="conflict", askable=False)
    receivers.route("/forgets", remembers=timedelta(0))
    for path in ("/act", "/act", "/forgets", "/forgets", "/conflict"):
        assert post(http, path).status_code == 200
    assert post(http, "/conflict").status_code == 409 and http.get("/conflict/k-1").status_code == 405
    assert [receivers.executed(route=r) for r in ("/act", "/conflict", "/forgets")] == [2, 1, 2]
    with pytest.raises(AssertionError, match="POST /act k-1 was executed 2 times"):
        receivers.assert_effects_once()


def test_calls_without_a_key_are_distinguished_by_their_body(receivers: FakeReceivers, http: httpx2.Client) -> None:
    post(http, "/mail", "", b"a"), post(http, "/mail", "", b"b")
    receivers.assert_effects_once()
    post(http, "/mail", "", b"a")
    with pytest.raises(AssertionError, match="no Idempotency-Key"):
        receivers.assert_effects_once()


def test_a_route_defines_the_answer_and_a_script_may_apply_to_one_key(
    receivers: FakeReceivers, http: httpx2.Client
) -> None:
    receivers.route("/n", reply=lambda request: {"said": request.body.decode()}).route("/n", status(400), key="bad")
    assert post(http, "/n", body=b"7").json() == {"said": "7"}
    assert post(http, "/n", "is-bad").status_code == 400


def test_receivers_that_are_not_running_raise() -> None:
    with pytest.raises(InvalidInput, match="not running"):
        _ = FakeReceivers(env="NOBODY_SET_THIS").url
