"""Does each supplier behave as declared, over real HTTP from a process of its own, and is its record the truth?"""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from examples.negotiation.record import Answered, Arrived, Entry, Executed, Offered, count, in_flight
from tests.examples.helpers import ROOT, feedback, inbox, invitation, market


def offers(entries: list[Entry]) -> list[Offered]:
    return [e for e in entries if isinstance(e, Offered)]


def rule(does: str, **more: Any) -> dict[str, Any]:
    return {"rules": [{"does": does, **more}]}


def test_a_supplier_takes_an_invitation_bids_and_goes_lower_after_feedback(tmp_path: Path) -> None:
    async def story() -> None:
        with market(tmp_path, {"a": {"any_cents": 200, "step_percent": 5, "floor_percent": 85}}) as m:
            async with inbox() as box:
                to = f"{box.url}/runs/r1/bids"
                said = await m.post("a", "invitations", invitation(answer_to=to), "k1")
                assert (said.status_code, said.json()) == (200, {"message_id": "invitations-a-1"})
                await m.until(lambda seen: len(offers(seen)) == 1)
                await m.post("a", "feedback", feedback(19_000), "k2")
                await m.post("a", "invitations", invitation(answer_to=to, round_number=2), "k3")
                await m.until(lambda seen: len(offers(seen)) == 2)
                await m.post("a", "feedback", feedback(1, round_number=2), "k4")
                await m.post("a", "invitations", invitation(answer_to=to, round_number=3), "k5")
                seen = await m.until(lambda seen: len(offers(seen)) == 3)
                assert [e.cents for e in offers(seen)] == [20_000, 18_050, 17_000]  # the last one is its floor
                assert [(name, signal_id) for _, name, _, signal_id in box.signals] == [
                    ("bid.1.1", "a-1-1"),
                    ("bid.1.2", "a-1-2"),
                    ("bid.1.3", "a-1-3"),
                ]

    asyncio.run(story())


def test_what_arrives_is_recorded_before_it_is_acted_on_and_answered(tmp_path: Path) -> None:
    async def story() -> None:
        with market(tmp_path, {"a": {}}) as m:
            await m.post("a", "orders", {"run_id": "r1", "reference": "R", "bid_id": "b", "cents": 5}, "k1")
            arrived, executed, answered = m.entries()
            assert isinstance(arrived, Arrived)
            assert (arrived.supplier, arrived.kind, arrived.key, arrived.run_id) == ("a", "orders", "k1", "r1")
            assert isinstance(executed, Executed)
            assert executed.id == "PO-a-1001"
            assert isinstance(answered, Answered)
            assert answered.status == 200

    asyncio.run(story())


def test_a_refusal_says_why_and_nothing_is_done(tmp_path: Path) -> None:
    async def story() -> None:
        suppliers = {"a": rule("declines", reason="we are full"), "b": {"list_cents": {"other": 1}}}
        with market(tmp_path, suppliers) as m:
            said = await m.post("a", "invitations", invitation(), "k")
            assert (said.status_code, said.json()["detail"]) == (422, "we are full")
            said = await m.post("b", "invitations", invitation(), "k")
            assert (said.status_code, said.json()["detail"]) == (422, "we do not make sheet-1208")
            assert not [e for e in m.entries() if isinstance(e, Executed)]

    asyncio.run(story())


@pytest.mark.parametrize(("does", "status"), [("unavailable", 503), ("busy", 429)])
def test_what_is_turned_away_is_no_invitation(tmp_path: Path, does: str, status: int) -> None:
    async def story() -> None:
        with market(tmp_path, {"a": rule(does, times=2, retry_after=7)}) as m:
            said = [await m.post("a", "invitations", invitation(), "k") for _ in range(3)]
            assert [answer.status_code for answer in said] == [status, status, 200]
            assert said[0].headers.get("Retry-After") == ("7" if does == "busy" else None)
            counted = count(m.entries(), "invitations")
            assert (counted.arrived, counted.turned_away) == (3, 2)
            assert (counted.sent, counted.distinct, counted.repeated) == (1, 1, 0)

    asyncio.run(story())


@pytest.mark.parametrize("acts_first", [False, True])
def test_a_connection_breaks_before_or_after_the_supplier_acted(tmp_path: Path, acts_first: bool) -> None:
    async def story() -> None:
        with market(tmp_path, {"a": rule("resets", times=1, acts_first=acts_first)}) as m:
            with pytest.raises(httpx.TransportError):
                await m.post("a", "invitations", invitation(), "k")
            assert (await m.get("/suppliers/a/requests/k")).json()["known"] is acts_first
            await m.post("a", "invitations", invitation(), "k")
            counted = count(m.entries(), "invitations")
            assert (counted.executed, counted.repeated) == (1, int(acts_first))

    asyncio.run(story())


def test_a_supplier_that_times_out_has_acted_and_can_be_asked(tmp_path: Path) -> None:
    async def story() -> None:
        with market(tmp_path, {"a": rule("times_out", seconds=600)}) as m:
            with pytest.raises(httpx.ReadTimeout):
                await m.post("a", "invitations", invitation(), "r1/invite/a/1", timeout_s=0.3)
            found = await m.get("/suppliers/a/requests/r1%2Finvite%2Fa%2F1")
            assert found.json() == {"known": True, "response": {"message_id": "invitations-a-1"}}

    asyncio.run(story())


def test_a_slow_supplier_is_seen_in_flight_and_acts_although_nobody_waits(tmp_path: Path) -> None:
    async def story() -> None:
        with market(tmp_path, {"a": rule("slow", rounds=[3], seconds=1)}) as m:
            sending = asyncio.create_task(m.post("a", "invitations", invitation(round_number=3), "k"))
            seen = await m.until(lambda seen: bool(in_flight(seen, "invitations", 3)))
            assert in_flight(seen, "invitations", 2) == []
            assert (await m.get("/suppliers/a/requests/k")).status_code == 202
            sending.cancel()  # the buyer dies: its connection breaks with the request half done
            await m.until(lambda seen: any(isinstance(e, Executed) for e in seen))
            assert (await m.get("/suppliers/a/requests/k")).json()["known"] is True
            said = await m.post("a", "invitations", invitation(round_number=1), "other")
            assert said.status_code == 200

    asyncio.run(story())


@pytest.mark.parametrize("dedupes", [True, False])
def test_a_repeated_key_is_noticed_by_a_supplier_that_dedupes(tmp_path: Path, dedupes: bool) -> None:
    async def story() -> None:
        with market(tmp_path, {"a": {"dedupes": dedupes}}) as m:
            async with inbox() as box:
                asked = invitation(answer_to=f"{box.url}/runs/r1/bids")
                first, second = [await m.post("a", "invitations", asked, "k") for _ in range(2)]
                assert (first.json() == second.json()) is dedupes
                counted = count(m.entries(), "invitations")
                assert (counted.sent, counted.distinct, counted.repeated) == (2, 1, 1)
                assert counted.executed_twice == int(not dedupes)
                await m.until(lambda seen: len(offers(seen)) == (1 if dedupes else 2))
                assert box.ids() == ({"a-1-1"} if dedupes else {"a-1-1", "a-1-1-2"})
                other = await m.post("a", "invitations", invitation(run_id="r2"), "k")
                assert other.status_code == (422 if dedupes else 200)

    asyncio.run(story())


def test_a_supplier_says_no_only_when_it_can_be_asked(tmp_path: Path) -> None:
    async def story() -> None:
        with market(tmp_path, {"open": {}, "closed": {"can_be_queried": False}}) as m:
            assert (await m.get("/suppliers/open/requests/k")).json() == {"known": False}
            assert (await m.get("/suppliers/closed/requests/k")).status_code == 405
            assert (await m.get("/suppliers/nobody/requests/k")).status_code == 404

    asyncio.run(story())


def test_a_late_supplier_bids_when_it_hears_that_the_round_is_over(tmp_path: Path) -> None:
    async def story() -> None:
        with market(tmp_path, {"late": rule("late", rounds=[1]), "prompt": {}}) as m:
            async with inbox() as box:
                asked = invitation(answer_to=f"{box.url}/runs/r1/bids")
                await m.post("late", "invitations", asked, "k1")
                await m.post("prompt", "invitations", asked, "k2")
                await m.until(lambda seen: [e.bid_id for e in offers(seen)] == ["prompt-1-1"])
                await m.post("late", "feedback", feedback(10), "k3")
                await m.until(lambda seen: [e.bid_id for e in offers(seen)] == ["prompt-1-1", "late-1-1"])

    asyncio.run(story())


def test_a_bid_is_brought_again_under_its_id_until_it_is_taken(tmp_path: Path) -> None:
    async def story() -> None:
        with market(tmp_path, {"a": {}}) as m:
            async with inbox(refusals=2) as box:
                await m.post("a", "invitations", invitation(answer_to=f"{box.url}/runs/r1/bids"), "k")
                seen = await m.until(lambda seen: [e.status for e in offers(seen)] == [503, 503, 202])
                assert {e.bid_id for e in offers(seen)} == box.ids() == {"a-1-1"}

    asyncio.run(story())


def test_a_request_without_a_key_or_a_readable_letter_is_refused_and_recorded(tmp_path: Path) -> None:
    async def story() -> None:
        with market(tmp_path, {"a": {}}) as m:
            said = [
                await m.post("a", "invitations", invitation(), ""),
                await m.post("a", "invitations", {"round": 0}, "k"),
                await m.post("nobody", "invitations", invitation(), "k"),
                await m.post("a", "greetings", {}, "k"),
            ]
            assert [answer.status_code for answer in said] == [400, 422, 404, 404]
            assert len([e for e in m.entries() if isinstance(e, Arrived)]) == 3
            assert (await m.get("/record?run=r1")).json()["invitations"]["arrived"] == 2

    asyncio.run(story())


def test_a_market_goes_on_in_the_record_it_left(tmp_path: Path) -> None:
    async def visit() -> None:
        with market(tmp_path, {"a": {}}) as m:
            await m.post("a", "feedback", feedback(1), "k")

    asyncio.run(visit())
    asyncio.run(visit())
    with market(tmp_path, {"a": {}}) as m:
        assert [e.n for e in m.entries() if isinstance(e, Arrived)] == [1, 2]
        assert count(m.entries(), "feedback").executed_twice == 1


def test_an_unknown_scenario_is_named_with_those_there_are(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.negotiation.market", "--record", str(tmp_path / "r"), "--scenario", "x"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "market: there is no scenario 'x'; give the path of one, or one of: calm, demo, trouble\n"
