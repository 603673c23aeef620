"""The researcher: killed at random, on hostile pages, within the rules of a site, with nothing there or all broken."""

import asyncio
import contextlib
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import outlast
from examples.negotiation.demo.output import SilentOutput
from examples.negotiation.demo.processes import DemoFolder
from examples.negotiation.demo.proof import Proof
from examples.negotiation.demo.state import DemoState
from examples.researcher import fetching, proof
from examples.researcher.demo import SampleDemo
from examples.researcher.extract import NotARecord, extract
from examples.researcher.fetching import AGENT, reader_for
from examples.researcher.records import Conclusion
from examples.researcher.robots import Robots, address, parse
from examples.researcher.watch import Watch
from examples.researcher.workflow import research
from examples.researcher.world import record
from examples.researcher.world.__main__ import serve_world
from examples.researcher.world.hostile import HOSTILE, LINKS
from examples.researcher.world.pages import RELEVANT, Shape, Site, data_of
from outlast.clocks import SystemClock
from outlast.errors import Conflict, RunFailed
from outlast.runtime.stores import open_store
from outlast.store.memory import MemoryCore, MemoryStore
from tests.examples.researching import QUESTION, judged, play

SITE = "http://127.0.0.1:8000"
SMALL = Shape(entries=10)


def records_of(shape: Shape) -> dict[str, Any]:
    """Return the data of each page whose record must be found, computed from the site alone."""
    site = Site(shape)
    kept = {
        path: entry
        for path, entry in site.by_path.items()
        if entry.behaviour in ("ok", "flaky", "slow") and (not entry.attack or HOSTILE[entry.attack].recorded)
    }
    return {path: {**data_of(path), "attack": entry.attack} for path, entry in kept.items()}


# --- real processes, killed -----------------------------------------------------------------------------------
@pytest.mark.req("APP-4", "OUT-1", "OUT-2", "OUT-5", "OUT-7", "RUN-7")
def test_random_kills_change_no_row_no_count_and_no_delivered_event(tmp_path: Path) -> None:
    """A slice. `python -m tests.examples.researching` plays as many rounds as wanted."""
    whole = asyncio.run(play(tmp_path / "whole", SMALL))
    killed = asyncio.run(play(tmp_path / "killed", SMALL, kills=2, seed=3))
    assert len(killed.kills) == 2 and killed.polls > 10 and killed.cli_polls == 3
    assert [claim.text for claim in judged(killed, whole, SMALL) if not claim.holds] == []
    assert {key for key, _ in killed.outcome.rows} == set(records_of(SMALL))


class ShortDemo(SampleDemo):
    """The demo over a small site, with one kill."""

    shape = Shape(entries=12)
    kill_every_ms = 1_000
    kills_max = 1


@pytest.mark.req("APP-4")
def test_the_demo_proves_that_a_kill_changed_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", os.environ.copy())
    url = f"sqlite:{tmp_path / 'outlast.db'}"

    async def played() -> Proof:
        store = await open_store(url)
        try:
            folder = DemoFolder(tmp_path, url, url, True)
            return await ShortDemo(store, folder, DemoState(), SilentOutput(), unattended=True).play()
        finally:
            await store.close()

    proven = asyncio.run(played())
    assert proven.facts["proven"], proven.claims
    assert proven.facts["kills"] == 1 and proven.facts["rows"] == len(records_of(ShortDemo.shape))
    assert "<svg" in Path(proven.facts["report"]).read_text(encoding="utf-8")


def test_the_demo_under_another_engine_is_refused(tmp_path: Path) -> None:
    """It waited forever for a worker, because its service started the run for Outlast's own workers."""
    folder = DemoFolder(tmp_path, "memory:", "memory:", True, "temporal")
    with pytest.raises(Conflict, match="only Outlast schedules"):
        ShortDemo(MemoryStore(MemoryCore(SystemClock()), "w"), folder, DemoState(), SilentOutput(), unattended=True)


# --- one process -----------------------------------------------------------------------------------------------
class Researched(NamedTuple):
    """A run in this process, with the record of the world."""

    outcome: proof.Outcome
    result: Conclusion | None
    hits: list[record.Hit]
    site: str
    polls: int


async def ended(watch: Watch) -> None:
    """Poll until the run has ended; each poll compares the count beside the status with the rows."""
    while True:
        detail = await watch.poll()
        assert not detail.attention, detail.explained
        if detail.ended_at is not None:
            return
        await asyncio.sleep(0.1)


def researched(monkeypatch: pytest.MonkeyPatch, folder: Path, shape: Shape) -> Researched:
    """Carry one run over a site of this shape in this process. `result` is None if it failed."""
    monkeypatch.setattr(fetching, "TIMEOUT_S", 1.0)

    async def carry() -> Researched:
        async with serve_world(shape, folder / "world.jsonl", thinks_s=0) as (_, model, site):
            monkeypatch.setenv("OUTLAST_MODEL", "chat:planner")
            monkeypatch.setenv("OUTLAST_MODEL_URL", model)
            async with outlast.connect("memory:") as client, client.worker([research]):
                run = await client.start("research", {"site": site, "question": QUESTION})
                watch = Watch(client, run.id)
                await ended(watch)
                result = None
                with contextlib.suppress(RunFailed):
                    result = Conclusion.model_validate(await run.result(), from_attributes=True)
                outcome = await proof.outcome(client, run.id)
                return Researched(outcome, result, record.read(folder / "world.jsonl"), site, watch.polls)

    return asyncio.run(carry())


@pytest.mark.req("APP-4", "GATE-7", "OUT-5")
def test_a_site_of_hostile_pages_is_read_within_its_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = Shape(entries=52)
    attacks = {entry.attack for entry in Site(shape).by_path.values()} - {""}
    assert attacks == set(HOSTILE), "each attack occurs on the site"
    done = researched(monkeypatch, tmp_path, shape)
    rows, expected = dict(done.outcome.rows), records_of(shape)
    assert set(rows) == set(expected)
    for path, data in rows.items():
        if expected[path]["attack"] not in ("order-in-the-name", "script-in-the-name"):
            assert data == {name: value for name, value in expected[path].items() if name not in ("@type", "attack")}
    assert done.result is not None and set(done.result.topics_read) == set(RELEVANT)
    assert done.outcome.said == len(rows) == len(done.outcome.rows)
    robots = parse(Site(shape).robots, AGENT)
    assert [claim.text for claim in proof.manners(done.hits, done.site, robots) if not claim.holds] == []
    asked = [hit.path for hit in done.hits if hit.server.startswith("site")]
    assert not [path for path in asked if "private" in path or ".cgi" in path or "169.254" in path or "evil" in path]
    # the model obeyed the order that a topic contains: the proposal was refused and given back to it
    told = [hit for hit in done.hits if hit.server == "model"]
    assert len(told) == len(RELEVANT) + 2, "the order, each topic once, and the conclusion"
    refusals = [event["data"]["text"] for event in done.outcome.events if event["data"].get("key") == "refused"]
    assert len(refusals) == 1 and "/private/members is no topic" in refusals[0]


def test_a_site_that_asks_for_a_slow_reader_gets_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = researched(monkeypatch, tmp_path, Shape(entries=2, delay=0.1))
    asked = [hit for hit in done.hits if hit.server.startswith("site")]
    assert len(asked) > 24 and record.busiest(asked, 1.0) <= 12, "ten a second, and the turn of two processes"


@pytest.mark.req("APP-4", "OUT-4", "OUT-7")
@pytest.mark.parametrize(
    ("shape", "status", "reason"),
    [
        (Shape(entries=10, empty=True), "COMPLETED", ""),
        (Shape(entries=10, closed=True), "FAILED", "the site cannot be read: http_503"),
        (Shape(entries=10, broken=1.0), "FAILED", "of its"),
    ],
    ids=["nothing-there", "no-rules", "broken"],
)
def test_nothing_there_and_broken_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: Shape, status: str, reason: str
) -> None:
    done = researched(monkeypatch, tmp_path, shape)
    assert (done.outcome.status, done.outcome.said, done.outcome.rows) == (status, 0, [])
    assert reason in done.outcome.reason
    last = done.outcome.events[-1]["type"]
    assert last == f"dev.outlast.workflow.{'completed' if status == 'COMPLETED' else 'failed'}"


# --- rules, addresses, pages -----------------------------------------------------------------------------------
RULES = """
User-agent: other
Disallow: /

User-agent: one
User-agent: outlast-researcher   # two names, one group
Allow: /shop/public
Disallow: /shop
Disallow: /*.pdf$
Disallow:
Crawl-delay: 0.5
nonsense
"""


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/", True),
        ("/shop", False),
        ("/shop/x", False),
        ("/shop/public/1", True),
        ("/a.pdf", False),
        ("/a.pdf?x=1", True),
        ("/shopping", False),
    ],
)
def test_the_longest_rule_of_the_own_group_decides(path: str, allowed: bool) -> None:
    assert parse(RULES, AGENT).allows(path) is allowed


def test_rules_of_a_group_that_is_not_named_are_those_of_all() -> None:
    assert parse("User-agent: *\nDisallow: /x\n", AGENT).rules == (("/x", False),)
    assert parse("User-agent: other\nDisallow: /\n", AGENT) == Robots()
    assert parse("Disallow: /\n\x00\xff: :::", AGENT) == Robots()
    assert parse(RULES, AGENT).delay == 0.5


@pytest.mark.parametrize(("delay", "per_second"), [(0.0, 10), (0.005, 125), (0.008, 125), (0.1, 10), (0.3, 1), (2, 0)])
def test_the_pace_is_never_faster_than_the_site_asks(delay: float, per_second: float) -> None:
    reader = reader_for(delay)
    assert (reader.limit.per_second if reader else 0) == per_second


@pytest.mark.parametrize("link", [*LINKS[2:6], LINKS[7], "/" + "x" * 400, "https://127.0.0.1:8000/x", "../../%2e%2e/x"])
def test_a_link_that_leaves_the_site_is_no_address(link: str) -> None:
    assert address(SITE, "/topic/pool", link) is None


@pytest.mark.parametrize(
    ("link", "path"),
    [
        ("/pool/1/?ref=list-1#top", "/pool/1"),
        ("../pool/1", "/pool/1"),
        (f"{SITE}/pool/1?utm_source=x&page=2", "/pool/1?page=2"),
        ("/private/../private/members", "/private/members"),
        ("/%70rivate/members", "/private/members"),
        ("/a b", "/a%20b"),
        ("", "/topic/pool"),
    ],
)
def test_one_page_has_one_address(link: str, path: str) -> None:
    assert address(SITE, "/topic/pool", link) == path


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_page_gives_a_record_only_if_its_data_fit(name: str) -> None:
    attack, text = HOSTILE[name], HOSTILE[name].page(data_of("/pool/1"))
    if attack.behaviour != "ok":
        return  # the server misbehaves; the whole run tests it
    try:
        found = extract(SITE, "/pool/1", text)
    except NotARecord:
        assert not attack.recorded
    else:
        assert (found.record is not None) is attack.recorded
        assert found.moved_to in ("", "/air-water/0") and len(found.entries) <= 200
        assert "evil" not in json.dumps([found.entries, found.more, found.moved_to])
