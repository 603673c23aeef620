"""The whole purchase over HTTP: started, followed, decided and awarded by clients that hold a token and no store."""

import re
from collections import Counter
from collections.abc import Iterator

import pytest

from examples.negotiation.demo.proof import proven
from examples.negotiation.record import Arrived, Executed, read
from examples.trace_collector import Span, tree
from outlast.telemetry.traces import parent_of
from tests.docs.pages import ROOT, blocks
from tests.docs.terminal import agrees, difference
from tests.e2e.over_http import DemoResult, HttpDemo, Stage, claims_of, stage

SERVICES = {"service", "worker-a", "worker-b"}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stage, DemoResult]]:
    with stage(tmp_path_factory.mktemp("over-http")) as made:
        yield made, HttpDemo(made, lambda _: None).play()


@pytest.fixture
def result(played: tuple[Stage, DemoResult]) -> DemoResult:
    return played[1]


@pytest.fixture
def spans(played: tuple[Stage, DemoResult]) -> list[Span]:
    """Return the spans of the caller's trace."""
    return [span for span in played[0].collector.spans if span.trace == ours(played[1])[0]]


def ours(result: DemoResult) -> tuple[str, str]:
    """Return the trace and span id of the caller."""
    parent = parent_of(result.traceparent)
    assert parent is not None
    return f"{parent.trace:032x}", f"{parent.span:016x}"


@pytest.mark.req("APP-2", "RUN-1", "REC-1", "REC-3", "EFF-1")
def test_the_auction_survives_a_kill_in_round_3_without_a_repeated_invitation(played: tuple[Stage, DemoResult]) -> None:
    stage, result = played
    assert (result.run["status"], result.run["shown"]) == ("completed", "AWARDED")
    assert result.run["outcome"]["order_id"].startswith("PO-acme-")
    (over,) = result.run["takeovers"]
    assert over["node"] == "auction" and over["from"] != over["to"]
    assert (result.invitations.sent, result.invitations.distinct, result.invitations.repeated) == (21, 21, 0)
    assert (result.orders.sent, result.orders.executed_twice) == (1, 0)
    entries = read(stage.record)  # counted here once more, by who was asked in which round
    asked = [e for e in entries if isinstance(e, Arrived) and e.kind == "invitations"]
    assert set(Counter((e.run_id, e.supplier, e.round) for e in asked).values()) == {1}
    assert set(Counter(e.n for e in entries if isinstance(e, Executed)).values()) == {1}
    outcomes = [e["outcome"] for e in result.effects]  # with what a slow machine adds: «asked again»
    assert sum(words.startswith("refused declined") for words in outcomes) == 1
    assert any(words.startswith("executed (the receiver was asked)") for words in outcomes)
    assert sum(words.startswith("executed") for words in outcomes) == len(outcomes) - 1
    assert result.results["count"] == len(result.results["results"]) == 0, "this workflow produces no rows"


def test_the_demo_judges_what_it_prints(result: DemoResult, played: tuple[Stage, DemoResult]) -> None:
    """Once it printed counts and ended with 0, whatever they were."""
    delivered = len(played[0].receiver.of(result.run["run"]))
    assert proven(claims := claims_of(result, delivered=delivered)), claims
    twice = result.invitations.model_copy(update={"repeated": 1})
    assert not proven(claims_of(result._replace(invitations=twice), delivered=delivered))
    assert not proven(claims_of(result, delivered=0)) and not proven(
        claims_of(result._replace(refused={}), delivered=delivered)
    )


@pytest.mark.req("RUN-1")
def test_a_start_that_is_sent_twice_is_one_run(result: DemoResult) -> None:
    first, again = result.started
    assert first.status_code == 201 and "Idempotent-Replayed" not in first.headers
    assert again.headers["Idempotent-Replayed"] == "true" and again.content == first.content
    assert result.run["trace_id"] == ours(result)[0]


@pytest.mark.req("GATE-1", "GATE-2")
def test_only_a_person_with_the_role_decides_the_shown_version_once(result: DemoResult) -> None:
    said = {name: (answer.status_code, answer.json()["refusal"]) for name, answer in result.refused.items()}
    assert said == {
        "watcher": (403, "not_a_person"),
        "buyer": (403, "not_a_person"),
        "agent": (403, "not_a_person"),  # although it claims every role that could decide
        "ops": (403, "role"),
        "root": (403, "role"),
        "eve": (403, "role"),  # an approver, but of sales
        "unseen": (428, "if_match_missing"),
        "stale": (412, "stale"),
        "second": (409, "decided"),
    }
    assert all(answer.json()["hint"] for answer in result.refused.values())
    assert result.refused["stale"].json()["current"]["claimed_by"] == "ben"
    second = result.refused["second"].json()
    assert (second["current"]["decided_by"], second["current"]["reason"]) == ("ana", "under budget")
    first, again = result.decided
    assert (first.status_code, again.status_code) == (200, 200)
    assert again.headers["Idempotent-Replayed"] == "true" and again.content == first.content
    assert result.run["outcome"]["approved_by"] == "ana"


@pytest.mark.req("OUT-1", "OBS-3")
def test_the_stream_continues_after_its_last_event_with_a_restarted_service(result: DemoResult) -> None:
    assert [event.seq for event in result.followed] == list(range(1, len(result.followed) + 1))
    names = [event.name for event in result.followed]
    assert (names[0], names[-1]) == ("started", "completed")
    assert names.count("taken_over") == 1 and names.count("checkpoint") == 6
    assert {event.body["traceid"] for event in result.followed} == {ours(result)[0]}


@pytest.mark.req("OUT-1", "OUT-2", "OUT-3")
def test_the_webhook_gets_each_event_once_in_order_with_a_valid_signature(
    played: tuple[Stage, DemoResult],
) -> None:
    receiver, followed = played[0].receiver, played[1].followed
    assert receiver.forged == 0
    last = 0
    seen: dict[str, bytes] = {}
    for got in receiver.of(played[1].run["run"]):
        if got.id in seen:
            assert seen[got.id] == got.body, "a repeated request gets the same bytes"
            continue
        seen[got.id] = got.body
        assert (got.previous, got.sequence) == (last, last + 1)
        last = got.sequence
    assert last == len(followed)
    receiver.secret = "whsec_" + "A" * 43 + "="
    assert receiver.take(receiver.got[0].body, {"webhook-id": receiver.got[0].id}) == 400, "the signature is verified"


@pytest.mark.req("OBS-1", "OBS-2")
def test_one_trace_from_the_callers_span_to_the_award_over_both_workers_and_the_wait(
    result: DemoResult, spans: list[Span]
) -> None:
    ids = {span.id for span in spans}
    assert len(ids) == len(spans), "each span id is unique"
    assert {span.parent for span in spans} - ids == {ours(result)[1]}, "the only missing parent is the caller's span"
    assert {span.service for span in spans} == SERVICES
    names = Counter(span.name for span in spans)
    assert (names["workflow.start"], names["workflow.checkpoint"], names["workflow.end"]) == (1, 7, 1)
    waits = {span.about["outlast.wait"]: span for span in spans if span.name == "interrupt.waiting"}
    assert set(waits) == {*(f"bid.1.{n}" for n in range(1, 6)), "place_order"}
    assert waits["place_order"].about["decision"] == "approved"
    assert waits["place_order"].ended - waits["place_order"].began > 0.1, "the span is no instant"
    (auction,) = [span for span in spans if span.about.get("outlast.node") == "auction" and "checkpoint" in span.name]
    assert auction.service != result.killed
    below = {span.service for span in spans if span.parent == auction.id}
    assert below == {"worker-a", "worker-b"}, (
        "spans of the killed worker are children of a span that the other worker ended"
    )
    (start,) = [span for span in spans if span.name == "workflow.start"]
    (asked,) = [span for span in spans if span.id == start.parent]
    assert (asked.name, asked.parent) == ("POST /v1/workflows/{name}/runs", ours(result)[1])


@pytest.mark.req("OBS-1")
def test_the_page_shows_this_tree(spans: list[Span]) -> None:
    (shown,) = [block.body for block in blocks(ROOT / "docs/observability.md") if "workflow.start" in block.body]
    came = plain("\n".join(tree(spans)))
    assert agrees(plain(shown), came, {}), difference(shown, came)


def plain(text: str) -> str:
    """Replace worker names and the caller's span, which differ in each run."""
    text = re.sub(r"worker-[ab]", "worker", text)
    return re.sub(r"^[0-9a-f]{16} ", "CALLER ", re.sub(r"[├└│]", " ", text), flags=re.MULTILINE)


def test_a_missing_parent_is_shown_in_the_tree() -> None:
    one = Span("t", "a", "lost", "workflow.end", 1, 2, "w", {"outlast.status": "completed"})
    assert tree([one])[0] == "lost (sent elsewhere)" and "workflow.end completed" in tree([one])[1]


@pytest.mark.req("APP-2", "OUT-1")
def test_the_client_of_the_examples_uses_only_http(result: DemoResult) -> None:
    assert result.bought[0].startswith("run nego_") and result.bought[-1].startswith("AWARDED: {")
    assert any(line.endswith("approved by ana") for line in result.bought)
    assert sum("checkpoint" in line for line in result.bought) == 6
    assert (result.late.status_code, result.late.json()["refusal"]) == (410, "ended")
