"""Listeners get each event once, whether announced by this process or found by polling."""

import json
import socket
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from outlast.service import event_poller
from outlast.service.connections import listen
from outlast.service.event_broadcaster import EventBroadcaster
from outlast.service.event_poller import RECENT, EventPoller
from tests.service.conftest import Running, Service
from tests.service.test_streams import stream

OLD = RECENT + 40


@contextmanager
def all_from_now(service: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[Iterator[dict[str, Any]]]:
    """Open the stream of all runs after earlier events are old enough not to be sent."""
    late = event_poller.LATE_MS
    monkeypatch.setattr(event_poller, "LATE_MS", 0)
    with stream(service, "/v1/events") as everything:
        monkeypatch.setattr(event_poller, "LATE_MS", late)
        yield everything


def heard_until_over(events: Any, runs: set[str]) -> dict[str, list[int]]:
    """Return the event numbers of each run until all have ended."""
    found: dict[str, list[int]] = defaultdict(list)
    left = set(runs)
    while left:
        each = next(events)
        if "data" in each:
            event = json.loads(each["data"])
            found[event["subject"]].append(int(event["sequence"]))
            if each["event"].endswith("completed"):
                left.discard(event["subject"])
    return found


@pytest.mark.req("RUN-7")
def test_each_event_arrives_once_at_listeners_to_one_run_and_to_all(service: Service) -> None:
    waiting = [service.start("wish", text="?") for _ in range(8)]
    with stream(service, "/v1/events") as everything:
        begun = {
            run: service.until(f"/v1/runs/{run}", lambda v: v["status"] == "waiting")["version"] for run in waiting
        }
        with stream(service, f"/v1/runs/{waiting[0]}/events") as one:
            next(one)
            for run in waiting:
                service.post(f"/v1/runs/{run}/signals/said", {"payload": {"text": "hi"}})
            found = heard_until_over(everything, set(waiting))
            own = [int(each["id"]) for each in one if "id" in each]
    for run in waiting:
        numbers = found[run]
        assert numbers == list(range(numbers[0], numbers[-1] + 1)), "in order, each once"
        assert numbers[0] <= begun[run] + 1, "all since it was listened to"
    assert own == list(range(2, own[-1] + 1))


def test_a_note_of_presence_is_no_event_of_a_tenant(service: Service) -> None:
    async def announced() -> None:
        service.state.presence.open("default", "appr_1", "bo")()

    with stream(service, "/v1/events") as everything:
        service.call(announced())
        run = service.start("wish", text="?")
        for each in everything:
            assert each.get("event") != "delta"
            if "data" in each and json.loads(each["data"]).get("subject") == run:
                break


@pytest.mark.req("RUN-7")
@pytest.mark.parametrize("way", ["told", "swept"])
def test_events_of_an_old_run_are_sent(folder_url: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Announced if this process changes it, polled if another one does."""

    async def blind(self: EventPoller) -> list[Any]:
        return []

    if way == "told":
        monkeypatch.setattr(EventPoller, "moved", blind)
    else:
        monkeypatch.setattr(EventBroadcaster, "_on_moved", lambda *args: None)
    with Running(folder_url) as service:
        oldest = service.start("wish", text="?")
        for _ in range(OLD):
            service.start("wish", text="?")
        service.until("/v1/runs?status=waiting&limit=500", lambda body: len(body["runs"]) == OLD + 1)
        with all_from_now(service, monkeypatch) as everything:
            service.post(f"/v1/runs/{oldest}/signals/said", {"payload": {"text": "hi"}})
            found = heard_until_over(everything, {oldest})
    assert set(found) == {oldest}, "nothing of what was there before"
    assert found[oldest] == list(range(found[oldest][0], found[oldest][-1] + 1))


def test_an_answer_does_not_wait_for_an_acknowledgement() -> None:
    """asyncio only disables Nagle's algorithm if the socket names its protocol; otherwise each answer takes 40 ms."""
    with listen("127.0.0.1", 0) as listening:
        assert listening.proto == socket.IPPROTO_TCP
