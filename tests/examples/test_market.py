"""The market in a separate process: suppliers behave as declared, and the record matches the requests."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from examples.negotiation.record import Answered, Arrived, Entry, Executed, Offered, count, in_flight, read
from tests.examples.helpers import ROOT, Market, feedback, inbox, invitation, market


def rule(does: str, **more: Any) -> dict[str, Any]:
    return {"rules": [{"does": does, **more}]}


HAGGLER: dict[str, Any] = {"any_cents": 200, "step_percent": 5, "floor_percent": 85}
SUPPLIERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "haggler": HAGGLER,
    "full": rule("declines", reason="we are full"),
    "elsewhere": {"list_cents": {"other": 1}},
    "unavailable": rule("unavailable", times=2),
    "busy": rule("busy", times=2, retry_after=7),
    "breaks-before": rule("resets", times=1),
    "breaks-after": rule("resets", times=1, acts_first=True),
    "silent": rule("times_out", seconds=600),
    "slow": rule("slow", rounds=[3], seconds=1),
    "forgetful": {"dedupes": False},
    "closed": {"can_be_queried": False},
    "late": rule("late", rounds=[1]),
}


@pytest.fixture(scope="module")
def m(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Market]:
    with market(tmp_path_factory.mktemp("market"), SUPPLIERS) as running:
        yield running


@pytest.fixture
def run_id(request: pytest.FixtureRequest) -> str:
    """Return a run id for each test. It is also the prefix of the keys in the test."""
    return str(request.node.name)


def offers(entries: list[Entry]) -> list[Offered]:
    return [e for e in entries if isinstance(e, Offered)]


def test_a_supplier_bids_and_goes_lower_after_feedback_down_to_its_floor(m: Market, run_id: str) -> None:
    async def check() -> None:
        async with inbox() as box:
            to = f"{box.url}/runs/{run_id}/bids"
            for n, heard in enumerate([0, 19_000, 1], start=1):
                if heard:
                    await m.post(
                        "haggler", "feedback", feedback(heard, round_number=n - 1, run_id=run_id), f"{run_id}/f{n}"
                    )
                asked = invitation(answer_to=to, round_number=n, run_id=run_id)
                said = await m.post("haggler", "invitations", asked, f"{run_id}/i{n}")
                assert said.json() == {"message_id": f"invitations-haggler-{n}"}
                seen = await m.until(run_id, lambda seen, n=n: len(offers(seen)) == n)  # type: ignore[misc]
            assert [e.cents for e in offers(seen)] == [20_000, 18_050, 17_000]
            assert [(run, name, signal_id) for run, name, _, signal_id in box.signals] == [
                (run_id, "bid.1.1", "haggler-1-1"),
                (run_id, "bid.1.2", "haggler-1-2"),
                (run_id, "bid.1.3", "haggler-1-3"),
            ]

    asyncio.run(check())


def test_a_request_is_recorded_before_it_is_handled_and_answered(m: Market, run_id: str) -> None:
    form = {"run_id": run_id, "reference": "R", "bid_id": "b", "cents": 5}
    asyncio.run(m.post("plain", "orders", form, f"{run_id}/k"))
    arrived, executed, answered = m.entries(run_id)
    assert isinstance(arrived, Arrived)
    assert (arrived.supplier, arrived.kind, arrived.key) == ("plain", "orders", f"{run_id}/k")
    assert isinstance(executed, Executed)
    assert executed.id == "PO-plain-1001"
    assert isinstance(answered, Answered)
    assert answered.status == 200


@pytest.mark.parametrize(("supplier", "why"), [("full", "we are full"), ("elsewhere", "we do not make sheet-1208")])
def test_a_refusal_has_a_reason_and_no_effect(m: Market, run_id: str, supplier: str, why: str) -> None:
    said = asyncio.run(m.post(supplier, "invitations", invitation(run_id=run_id), run_id))
    assert (said.status_code, said.json()["detail"]) == (422, why)
    assert not [e for e in m.entries(run_id) if isinstance(e, Executed)]


@pytest.mark.parametrize(("supplier", "status", "retry_after"), [("unavailable", 503, None), ("busy", 429, "7")])
def test_a_request_that_is_not_accepted_does_not_count_as_an_invitation(
    m: Market, run_id: str, supplier: str, status: int, retry_after: str | None
) -> None:
    async def check() -> None:
        asked = invitation(run_id=run_id)
        said = [await m.post(supplier, "invitations", asked, run_id) for _ in range(3)]
        assert [answer.status_code for answer in said] == [status, status, 200]
        assert said[0].headers.get("Retry-After") == retry_after

    asyncio.run(check())
    counted = count(m.entries(run_id), "invitations")
    assert (counted.arrived, counted.turned_away) == (3, 2)
    assert (counted.sent, counted.distinct, counted.repeated) == (1, 1, 0)


@pytest.mark.parametrize("acted", [False, True])
def test_a_connection_breaks_before_or_after_the_supplier_acted(m: Market, run_id: str, acted: bool) -> None:
    async def check() -> None:
        supplier = "breaks-after" if acted else "breaks-before"
        with pytest.raises(httpx2.TransportError):
            await m.post(supplier, "invitations", invitation(run_id=run_id), run_id)
        assert (await m.get(f"/suppliers/{supplier}/requests/{run_id}")).json()["known"] is acted
        await m.post(supplier, "invitations", invitation(run_id=run_id), run_id)

    asyncio.run(check())
    counted = count(m.entries(run_id), "invitations")
    assert (counted.executed, counted.repeated) == (1, int(acted))


def test_a_supplier_that_times_out_has_acted_and_can_be_asked(m: Market, run_id: str) -> None:
    async def check() -> None:
        with pytest.raises(httpx2.ReadTimeout):
            await m.post("silent", "invitations", invitation(run_id=run_id), "r1/invite/a%20b/1", timeout_s=0.3)
        found = await m.get("/suppliers/silent/requests/r1%2Finvite%2Fa%2520b%2F1")
        assert found.json() == {"known": True, "response": {"message_id": "invitations-silent-1"}}

    asyncio.run(check())


def test_a_slow_supplier_is_in_flight_and_acts_after_the_client_has_left(m: Market, run_id: str) -> None:
    async def check() -> None:
        asked = invitation(round_number=3, run_id=run_id)
        sending = asyncio.create_task(m.post("slow", "invitations", asked, run_id))
        seen = await m.until(run_id, lambda seen: bool(in_flight(seen, "invitations", 3)))
        assert in_flight(seen, "invitations", 2) == []
        assert (await m.get(f"/suppliers/slow/requests/{run_id}")).status_code == 202
        sending.cancel()  # the connection of the buyer breaks during the request
        await m.until(run_id, lambda seen: any(isinstance(e, Executed) for e in seen))
        assert (await m.get(f"/suppliers/slow/requests/{run_id}")).json()["known"] is True

    asyncio.run(check())


@pytest.mark.parametrize("dedupes", [True, False])
def test_a_supplier_that_dedupes_recognizes_a_repeated_key(m: Market, run_id: str, dedupes: bool) -> None:
    async def check() -> None:
        supplier = "plain" if dedupes else "forgetful"
        async with inbox() as box:
            asked = invitation(answer_to=f"{box.url}/runs/{run_id}/bids", run_id=run_id)
            first, second = [await m.post(supplier, "invitations", asked, run_id) for _ in range(2)]
            assert (first.json() == second.json()) is dedupes
            counted = count(m.entries(run_id), "invitations")
            assert (counted.sent, counted.distinct, counted.repeated) == (2, 1, 1)
            assert counted.executed_twice == int(not dedupes)
            bids = {f"{supplier}-1-1"} if dedupes else {f"{supplier}-1-1", f"{supplier}-1-1-2"}
            await m.until(run_id, lambda seen: {e.bid_id for e in offers(seen)} == bids)
            assert box.ids() == bids
            other = await m.post(supplier, "invitations", invitation(run_id=run_id, round_number=2), run_id)
            assert other.status_code == (422 if dedupes else 200)

    asyncio.run(check())


def test_a_supplier_answers_unknown_keys_only_if_it_can_be_queried(m: Market) -> None:
    async def check() -> None:
        assert (await m.get("/suppliers/plain/requests/never-sent")).json() == {"known": False}
        assert (await m.get("/suppliers/closed/requests/never-sent")).status_code == 405
        assert (await m.get("/suppliers/nobody/requests/never-sent")).status_code == 404

    asyncio.run(check())


def test_a_late_supplier_bids_after_the_round_is_over(m: Market, run_id: str) -> None:
    async def check() -> None:
        async with inbox() as box:
            asked = invitation(answer_to=f"{box.url}/runs/{run_id}/bids", run_id=run_id)
            await m.post("late", "invitations", asked, f"{run_id}/1")
            await m.post("plain", "invitations", asked, f"{run_id}/2")
            await m.until(run_id, lambda seen: [e.bid_id for e in offers(seen)] == ["plain-1-1"])
            await m.post("late", "feedback", feedback(10, run_id=run_id), f"{run_id}/3")
            await m.until(run_id, lambda seen: [e.bid_id for e in offers(seen)] == ["plain-1-1", "late-1-1"])

    asyncio.run(check())


def test_a_bid_is_sent_again_with_its_id_until_it_is_accepted(m: Market, run_id: str) -> None:
    async def check() -> None:
        async with inbox(refusals=2) as box:
            asked = invitation(answer_to=f"{box.url}/runs/{run_id}/bids", run_id=run_id)
            await m.post("plain", "invitations", asked, run_id)
            seen = await m.until(run_id, lambda seen: [e.status for e in offers(seen)] == [503, 503, 202])
            assert {e.bid_id for e in offers(seen)} == box.ids() == {"plain-1-1"}

    asyncio.run(check())


def test_a_request_without_a_key_or_a_readable_letter_is_refused_and_recorded(m: Market, run_id: str) -> None:
    async def check() -> None:
        before = len(read(m.record))
        said = [
            await m.post("plain", "invitations", invitation(run_id=run_id), ""),
            await m.post("plain", "invitations", {"round": 0}, f"{run_id}/1"),
            await m.post("nobody", "invitations", invitation(run_id=run_id), f"{run_id}/2"),
            await m.post("plain", "greetings", {}, f"{run_id}/3"),
        ]
        assert [answer.status_code for answer in said] == [400, 422, 404, 404]
        assert len([e for e in read(m.record)[before:] if isinstance(e, Arrived)]) == 3
        assert (await m.get(f"/record?run={run_id}")).json()["invitations"]["arrived"] == 2

    asyncio.run(check())


def test_a_restarted_market_remembers_its_actions_from_the_record(tmp_path: Path) -> None:
    said = []
    for _ in range(2):
        with market(tmp_path, {"a": {}}) as again:
            said.append(asyncio.run(again.post("a", "feedback", feedback(1), "k")).json())
    assert [e.n for e in read(again.record) if isinstance(e, Arrived)] == [1, 2]
    assert said[0] == said[1]
    assert count(read(again.record), "feedback").model_dump(include={"executed", "repeated"}) == {
        "executed": 1,
        "repeated": 1,
    }


def test_a_restarted_market_restores_feedback_and_unsent_bids_from_the_record(tmp_path: Path) -> None:
    async def until_offered(m: Market, n: int) -> list[int]:
        return [e.cents for e in offers(await m.until("r1", lambda seen: len(offers(seen)) == n))]

    async def first(m: Market, to: str) -> None:
        await m.post("a", "invitations", invitation(answer_to=to), "i1")
        assert await until_offered(m, 1) == [20_000]
        await m.post("a", "feedback", feedback(19_000), "f1")
        await m.post(
            "b", "invitations", invitation(answer_to=to), "i1"
        )  # its bid is sent later, by the restarted market

    async def second(m: Market, to: str) -> None:
        assert await until_offered(m, 2) == [20_000, 20_000]
        await m.post("a", "invitations", invitation(answer_to=to, round_number=2), "i2")
        assert await until_offered(m, 3) == [20_000, 20_000, 18_050]

    async def check() -> None:
        async with inbox() as box:
            to = f"{box.url}/runs/r1/bids"
            for part, wait in ((first, 3600), (second, 0)):
                suppliers = {"a": HAGGLER, "b": {**HAGGLER, "bids_after": wait}}
                with market(tmp_path, suppliers) as again:
                    await part(again, to)
            assert [signal_id for _, _, _, signal_id in box.signals] == ["a-1-1", "b-1-1", "a-1-2"]

    asyncio.run(check())


def test_an_incomplete_last_line_is_ignored(tmp_path: Path) -> None:
    record = tmp_path / "r.jsonl"
    assert read(record) == []
    record.write_text('{"what":"executed","n":1,"at":0.5,"id":"x"}\n{"what":"exec', encoding="utf-8")
    assert read(record) == [Executed(n=1, at=0.5, id="x")]


def test_an_unknown_scenario_is_reported_with_the_known_ones(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.negotiation.market", "--record", str(tmp_path / "r"), "--scenario", "x"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    known = ", ".join(sorted(path.stem for path in (ROOT / "examples" / "negotiation" / "scenarios").glob("*.json")))
    assert ended.stderr == f"market: there is no scenario 'x'; give the path of one, or one of: {known}\n"
