"""Pages refresh themselves by signals, and say so if they cannot."""

import asyncio
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from playwright.sync_api import Page, expect

from outlast.errors import NotFound, Unavailable
from outlast.service.event_stream import BUFFER, EventListener
from outlast.ui.live import HEARTBEAT, signals
from outlast.ui.rendering import REPEATED_MS
from tests.postgres.server import Server
from tests.ui.conftest import OUTAGE, Running, Service, Site

FLOWS = Path(__file__).parents[1] / "service" / "flows.py"
REFUND = Path(__file__).parents[2] / "examples" / "refund.py"
EVENT = b"id: 1\nevent: dev.outlast.workflow.started\ndata: {}\n\n"


def test_a_new_run_appears_without_reload(service: Service, page: Page) -> None:
    page.goto(f"{service.url}/ui/runs")
    expect(page.locator("#live-state")).to_have_text("live")
    run = service.start()
    expect(page.locator(f"#run-{run}")).to_be_visible()


def test_an_unchanged_region_is_answered_304(service: Service) -> None:
    service.asked()
    first = service.get("/ui/runs?region=runs")
    again = service.get("/ui/runs?region=runs", headers={"If-None-Match": first.headers["etag"]})
    while again.status_code == 200 and again.text != first.text:  # the run has moved in between
        first, again = again, service.get("/ui/runs?region=runs", headers={"If-None-Match": again.headers["etag"]})
    assert (first.status_code, again.status_code, again.text) == (200, 304, "")
    # The stored region carries the nonce of the policy it came with, and a 304 replaces the stored headers.
    assert again.headers["content-security-policy"] == first.headers["content-security-policy"]
    service.asked()
    changed = service.get("/ui/runs?region=runs", headers={"If-None-Match": first.headers["etag"]})
    assert changed.status_code == 200


def test_a_stored_region_of_an_open_run_is_not_repeated_later(service: Service) -> None:
    """A browser put the times of its first visit into a page that was opened minutes later."""
    approval, _ = service.asked()
    run = service.get(f"/v1/approvals/{approval}").json()["run"]
    address = f"/ui/runs/{run}/timeline?region=tab"
    first = service.get(address)
    tag, _, made = first.headers["etag"].strip('"').rpartition(".")
    assert service.get(address, headers={"If-None-Match": f'"{tag}.{int(made) - REPEATED_MS}"'}).status_code == 200
    later = service.get(address, headers={"If-None-Match": f'"{tag}.{int(made) + 60_000}"'})
    assert later.status_code == 200, "from a process whose clock is ahead"
    assert 'id="read-at"' in first.text, "a drawing with a line of now says when it was read"


def test_a_page_says_that_the_service_is_gone_and_is_back(tmp_path: Path, open_page: Callable[..., Page]) -> None:
    with Site(tmp_path, REFUND) as site:
        page = open_page(expects=OUTAGE)
        page.goto(f"{site.url}/ui/runs")
        state = page.locator("#live-state")
        expect(state).to_have_text("live")
        site.kill()
        expect(state).to_have_text(re.compile("behind since"))
        site.start()
        expect(state).to_have_text("live", timeout=60_000)


def test_a_page_connects_again_after_a_clean_stop(tmp_path: Path, open_page: Callable[..., Page]) -> None:
    """It took the end of its stream for the end of its run, and stayed "ended"."""
    with Site(tmp_path, REFUND) as site:
        page = open_page(expects=OUTAGE)
        page.goto(f"{site.url}/ui/runs")
        state = page.locator("#live-state")
        expect(state).to_have_text("live")
        site.stop()
        expect(state).to_have_text(re.compile("behind since"))
        site.start()
        expect(state).to_have_text("live", timeout=60_000)


def test_a_page_is_not_live_without_a_frame_for_20_s(tmp_path: Path, open_page: Callable[..., Page]) -> None:
    """A frozen service closes no connection, so silence is the only sign."""
    with Site(tmp_path, REFUND) as site:
        page = open_page(expects=OUTAGE)
        page.clock.install()
        page.goto(f"{site.url}/ui/runs")
        state = page.locator("#live-state")
        expect(state).to_have_text("live")
        page.clock.fast_forward(5_000)
        expect(state).to_have_text("live")
        site.signal(signal.SIGSTOP)
        try:
            page.clock.fast_forward(21_000)
            expect(state).to_have_text(re.compile("behind since"))
        finally:
            site.signal(signal.SIGCONT)
        expect(state).to_have_text("live", timeout=60_000)


def test_a_stop_ends_no_page_for_good(service: Service) -> None:
    """The last frame is `ended` after the end of a run only."""

    async def frames(*, reopens: bool) -> list[bytes]:
        listener = EventListener("default", "run-1")
        found = signals(listener, "run", lambda: asyncio.sleep(0, "same"), lambda: 1)
        await anext(found)
        listener.end(reopens=reopens)
        return [each async for each in found]

    assert service.call(frames(reopens=True)) == []
    assert b"event: ended" in service.call(frames(reopens=False))[-1]


def test_a_stream_that_is_refused_takes_no_place(tmp_path: Path) -> None:
    """Places were lost at each stream of an unknown run, until every page of every tenant was refused."""
    with Running(f"sqlite:{tmp_path / 'outlast.db'}", worker=False) as service:
        broadcaster = service.state.broadcaster
        broadcaster.most = 8
        for n in range(20):
            assert service.get(f"/ui/live?of=run:nobody-{n}").status_code == 404
            assert (
                service.get(f"/v1/runs/nobody-{n}/events", headers={"Accept": "text/event-stream"}).status_code == 404
            )
        assert len(broadcaster) == 0
        with service.client.stream("GET", "/ui/live?of=runs") as answer:
            assert answer.status_code == 200


def test_the_head_of_a_stream_is_answered_at_once(service: Service) -> None:
    """It held the stream open, and its place."""
    run = service.start("wish", text="a")
    for of in ("runs", "attention", f"run:{run}"):
        head = service.client.head(f"/ui/live?of={of}", headers={"Accept": "text/event-stream"})
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-type"].startswith("text/event-stream")

    async def places() -> int:
        return len(service.state.broadcaster)

    assert service.call(places()) == 0
    assert service.client.head("/ui/live?of=run:nobody").status_code == 404


@pytest.mark.parametrize("error", [Unavailable("gone"), NotFound("purged"), asyncio.CancelledError()])
def test_a_listener_is_removed_if_its_stream_cannot_begin(service: Service, error: BaseException) -> None:
    """The run may be purged, the store may fail and the caller may leave after the place is taken."""

    async def go() -> int:
        broadcaster = service.state.broadcaster
        before = len(broadcaster)
        listener = await broadcaster.listen("default", "run-1", "ana", "192.0.2.1")
        assert len(broadcaster) == before + 1
        with pytest.raises(type(error)), broadcaster.kept(listener):
            raise error
        return len(broadcaster) - before

    assert service.call(go()) == 0


def test_a_killed_worker_is_seen_without_reload(tmp_path: Path, open_page: Callable[..., Page]) -> None:
    url = f"sqlite:{tmp_path / 'outlast.db'}"
    command = [sys.executable, "-m", "outlast", "--store", url, "worker", str(FLOWS), "--heartbeat-window", "2s"]
    with Running(url, worker=False, heartbeat_s=0.2) as service:
        worker = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            service.asked()
            page = open_page()
            page.goto(f"{service.url}/ui/")
            expect(page.locator("main")).to_contain_text("1 pending approval")
            expect(page.locator("#unserved")).to_have_count(0)
        finally:
            worker.kill()
            worker.wait()
        expect(page.locator("#unserved")).to_contain_text("refund", timeout=30_000)
        page.close()  # before its service ends


def test_a_change_without_an_event_is_signalled_at_the_first_heartbeat(service: Service) -> None:
    """A version that is first read at that heartbeat would be compared with nothing."""

    beats, versions = [[(0, HEARTBEAT)], [(0, HEARTBEAT)], []], ["before", "after", "after"]

    class Listener:
        reopens = False

        async def received(self) -> list[tuple[int, bytes]]:
            return beats.pop(0)

    async def go() -> list[bytes]:

        async def news() -> str:
            return versions.pop(0)

        return [each async for each in signals(cast("EventListener", Listener()), "attention", news, lambda: 1)]

    start, first, second, *_ = service.call(go())
    assert b"changed" in start and b"changed" in first and second == HEARTBEAT


def test_events_between_two_signals_make_one_and_cut_no_page_off(service: Service) -> None:
    """3,000 open pages wait 300 s for a second signal. A listener is cut off if it holds 1,024 frames."""

    async def go() -> None:
        listener = EventListener("default", "")
        found = signals(listener, "runs", lambda: asyncio.sleep(0, "same"), lambda: 3_000)
        assert b"changed" in await anext(found)
        listener.push(0, EVENT)
        assert b"changed" in await anext(found), "the first event after a rest is signalled at once"
        waiting = asyncio.ensure_future(anext(found))
        for _ in range(BUFFER + 1):
            listener.push(0, EVENT)
            await asyncio.sleep(0)
        assert not listener.cut.is_set() and not waiting.done()
        listener.push(0, HEARTBEAT)
        assert await waiting == HEARTBEAT
        listener.end()
        assert [b"changed" in each for each in [await anext(found), await anext(found)]] == [True, False]

    service.call(go())


def test_an_assignment_is_seen_on_other_open_pages(tmp_path: Path, open_page: Callable[..., Page]) -> None:
    """It has no event. A page learns of it at a heartbeat, also if it opened before the first one."""
    with Running(f"sqlite:{tmp_path / 'outlast.db'}", heartbeat_s=0.5) as service:
        run = service.start("call", order="broken")
        service.flagged(run)
        pages = [open_page(), open_page()]
        for page, where in zip(pages, ("", f"runs/{run}"), strict=True):
            page.goto(f"{service.url}/ui/{where}")
            expect(page.locator("#live-state")).to_have_text("live")
        for name in ("ben", "cleo"):
            assert service.post("/v1/attention/assign", {"run": run, "to": name}).status_code == 200
            for page in pages:
                expect(page.locator("main")).to_contain_text(f"assigned to {name}", timeout=30_000)
        pages[0].locator("summary", has_text="Assign to …").click()
        pages[0].get_by_label("Name").fill("dan")
        pages[0].keyboard.press("Enter")
        expect(pages[0].locator("main")).to_contain_text("assigned to dan")
        for page in pages:
            page.close()  # before its service ends


def test_a_stopped_postgresql_is_shown_and_its_return_too(open_page: Callable[..., Page]) -> None:
    server = Server()
    try:
        with Running(f"{server.url}?schema=pages", heartbeat_s=0.2) as service:
            approval, _ = service.asked()
            runs, page = open_page(expects=OUTAGE), open_page(expects=OUTAGE)
            runs.goto(f"{service.url}/ui/runs")
            page.goto(f"{service.url}/ui/approvals/{approval}")
            states = [each.locator("#live-state") for each in (runs, page)]
            for state in states:
                expect(state).to_have_text("live")
            page.fill("#reason", "agreed with finance")
            server.stop()
            for state in states:
                expect(state).to_have_text(re.compile("store unavailable since"), timeout=30_000)
            page.click("#approve")
            expect(page.locator("main")).to_contain_text("agreed with finance")  # kept on the page of the error
            server.start()
            expect(states[0]).to_have_text("live", timeout=30_000)
            service.start()
            expect(runs.locator("#news")).to_be_visible(timeout=30_000)  # without reload
            page.go_back()
            expect(page.locator("#reason")).to_have_value("agreed with finance")
            page.click("#approve")
            page.locator("#done a").click()
            expect(page.locator("#decided")).to_contain_text("agreed with finance")
    finally:
        server.close()
