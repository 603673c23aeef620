"""Two writers: another process changes a row between the read and the commit of a request.

A barrier in the store delays the commit of the request until the other commit has landed.
"""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx2
import pytest

from outlast.core.commit import Commit, Put
from outlast.core.machine import EffectStatus, LeaseStatus, Reason
from outlast.core.rows.effect_rows import APPROVAL, EFFECT, Approval, Effect
from outlast.core.rows.run_columns import ATTENTION, Attention
from outlast.core.rows.run_rows import MESSAGE, RUN, TOKEN, Run, Token
from outlast.core.rows.store_rows import STORE, WORKER, Worker
from outlast.runtime.stores import open_store
from outlast.store.port import Store
from tests.conformance.subject import put_run
from tests.service.conftest import Running, Service

TENANT = "default"
Other = Callable[[Store], Awaitable[None]]


class Scene(NamedTuple):
    """Service without a worker over waiting runs, and the URL of its store."""

    service: Service
    url: str
    runs: dict[str, str]
    approvals: list[str]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Wait until no run changes by itself."""
    url = f"sqlite:{tmp_path_factory.mktemp('races') / 'outlast.db'}"
    runs: dict[str, str] = {}
    with Running(url) as busy:
        for name in ("cancel", "signal", "same signal", "extend", "move"):
            runs[name] = busy.start("wish", text=name)
            busy.waits(runs[name])
        for name in ("continue", "fail", "cancel flagged"):
            runs[name] = busy.start("call", order="broken")
            busy.flagged(runs[name])
        for name in ("give up", "happened"):
            runs[name] = busy.start("call", order=name.replace(" ", "-"))
            busy.flagged(runs[name])
        approvals = [busy.asked()[0] for _ in range(2)]
    with Running(url, worker=False) as service:
        yield Scene(service, url, runs, approvals)


def raced(scene: Scene, other: Other, ask: Callable[[], httpx2.Response]) -> httpx2.Response:
    """Return the answer to a request while another process writes between its read and its commit."""
    store, met = scene.service.state.store, []
    commit = store.commit

    async def later(given: Commit, **more: Any) -> Any:
        if not met and not any(isinstance(w, Put) and w.kind.name == "request" for w in given.writes):
            met.append(given.label)
            elsewhere = await open_store(scene.url)
            await other(elsewhere)
            await elsewhere.close()
        return await commit(given, **more)

    store.commit = later  # type: ignore[method-assign]  # the store's own, a moment later
    try:
        return ask()
    finally:
        store.commit = commit  # type: ignore[method-assign]
        assert met, "the request came as far as its commit"


def moves(run: str) -> Other:
    async def move(store: Store) -> None:
        row = await store.load(RUN, (TENANT, run))
        assert isinstance(row, Run)
        await store.commit(put_run(row))

    return move


def rows(scene: Scene, run: str) -> Any:
    """Return the messages, effects and approvals that requests write."""
    store = scene.service.state.store

    async def read() -> list[Any]:
        return [await store.rows(kind, (TENANT, run)) for kind in (MESSAGE, EFFECT, APPROVAL)]

    return scene.service.call(read())


def refused_as_moved(scene: Scene, run: str, path: str, ask: Any, other: Other | None = None) -> None:
    """412 with the current run and no change; a request with that version succeeds."""
    tag = scene.service.get(f"/v1/runs/{run}").headers["etag"]
    before = rows(scene, run)
    answer = raced(scene, other or moves(run), lambda: scene.service.post(path, ask, if_match=tag))
    assert (answer.status_code, answer.json()["refusal"]) == (412, "stale"), answer.text
    now = scene.service.get(f"/v1/runs/{run}")
    assert answer.headers["etag"] == now.headers["etag"] != tag
    assert answer.json()["current"]["version"] == now.json()["version"]
    assert rows(scene, run) == before
    again = scene.service.post(path, ask, if_match=answer.headers["etag"])
    assert again.status_code in (200, 202), again.text
    assert rows(scene, run) != before


@pytest.mark.req("RT-2")
@pytest.mark.parametrize(
    ("name", "path", "ask"),
    [
        ("cancel", "/v1/runs/{run}/cancel", {"reason": "no longer"}),
        ("signal", "/v1/runs/{run}/signals/said", {"payload": {"text": "hello"}}),
        ("same signal", "/v1/runs/{run}/signals/said", {"payload": {"text": "hello"}, "signal_id": "s-1"}),
        ("continue", "/v1/runs/{run}/continue", {"reason": "mended"}),
        ("fail", "/v1/attention/{run}/resolve", {"choice": "fail", "reason": "no use"}),
        ("cancel flagged", "/v1/attention/{run}/resolve", {"choice": "cancel", "reason": "no use"}),
        ("give up", "/v1/attention/{run}/resolve", {"choice": "give_up", "reason": "nobody knows"}),
    ],
)
def test_a_run_that_changes_meanwhile_is_not_changed(scene: Scene, name: str, path: str, ask: Any) -> None:
    run = scene.runs[name]
    refused_as_moved(scene, run, path.format(run=run), ask)


@pytest.mark.req("RT-2")
def test_a_run_is_extended_for_the_version_seen(scene: Scene) -> None:
    run = scene.runs["extend"]
    store = scene.service.state.store
    row = scene.service.call(store.load(RUN, (TENANT, run)))
    old = ATTENTION.encode([Attention(Reason.TOTAL_TIMEOUT, 1, "it is old")])
    scene.service.call(store.commit(put_run(row, attention_text=old)))
    refused_as_moved(scene, run, f"/v1/runs/{run}/extend", {"by": "P7D", "reason": "it is on its way"})


@pytest.mark.req("RUN-8")
def test_a_run_is_moved_for_the_version_seen(scene: Scene) -> None:
    run = scene.runs["move"]
    store = scene.service.state.store
    now = scene.service.call(store.now())
    serves = Worker(STORE, "w-2", 1, LeaseStatus.ALIVE, now.real + 60_000, "wish@2", "", now.real, now.real, "")
    scene.service.call(store.commit(Commit((Put(WORKER, serves, 0),))))
    refused_as_moved(scene, run, f"/v1/runs/{run}/move", {"workflow": "wish", "version": 2, "reason": "1 is gone"})


@pytest.mark.req("RUN-4")
def test_a_repeated_signal_is_neither_new_nor_a_conflict(scene: Scene) -> None:
    """The same signal arrived by another way, then the run changed: the signal is recorded once."""
    run = scene.runs["same signal"]
    tag = scene.service.get(f"/v1/runs/{run}").headers["etag"]

    async def came(store: Store) -> None:
        now = await store.now()
        await store.commit(Commit((Put(TOKEN, Token(TENANT, run, "signal/s-2", "", "said", now.business), 0),)))
        await moves(run)(store)

    ask = {"payload": {"text": "hello"}, "signal_id": "s-2"}
    path = f"/v1/runs/{run}/signals/said"
    answer = raced(scene, came, lambda: scene.service.post(path, ask, if_match=tag))
    assert (answer.status_code, answer.json()["new"]) == (202, False)


@pytest.mark.req("EFF-2")
def test_an_effect_that_changes_meanwhile_is_not_settled(scene: Scene) -> None:
    """It is still uncertain, but differs from the version shown, for example in its error."""
    run = scene.runs["happened"]
    (effect,) = scene.service.get(f"/v1/runs/{run}/effects").json()["effects"]
    (row,) = [each for each in rows(scene, run)[1] if isinstance(each, Effect)]

    async def other(store: Store) -> None:
        await store.commit(Commit((Put(EFFECT, row._replace(version=row.version + 1), row.version),)))

    ask = {"outcome": "happened", "external_id": "R-1", "response": "rang", "reason": "seen"}
    path, tag = f"/v1/effects/{quote(effect['id'], safe='')}/resolve", f'"v{effect["version"]}"'
    answer = raced(scene, other, lambda: scene.service.post(path, ask, if_match=tag))
    assert (answer.status_code, answer.json()["refusal"]) == (412, "stale"), answer.text
    assert answer.json()["current"]["status"] == EffectStatus.UNCERTAIN
    settled = scene.service.post(path, ask, if_match=answer.headers["etag"])
    assert (settled.status_code, settled.json()["status"]) == (200, EffectStatus.DONE)


@pytest.mark.req("GATE-8")
@pytest.mark.parametrize("verb", ["claim", "reassign"])
def test_an_approval_that_changes_meanwhile_is_neither_claimed_nor_reassigned(scene: Scene, verb: str) -> None:
    approval = scene.approvals[["claim", "reassign"].index(verb)]
    tag = scene.service.get(f"/v1/approvals/{approval}").headers["etag"]

    async def other(store: Store) -> None:
        (row,) = (await store.page(APPROVAL, TENANT, {"id": approval})).rows
        assert isinstance(row, Approval)
        await store.commit(Commit((Put(APPROVAL, row._replace(version=row.version + 1), row.version),)))

    body = {"to": "legal", "reason": "theirs"} if verb == "reassign" else None
    path = f"/v1/approvals/{approval}/{verb}"
    answer = raced(scene, other, lambda: scene.service.post(path, body, if_match=tag))
    assert (answer.status_code, answer.json()["refusal"]) == (412, "stale"), answer.text
    current = answer.json()["current"]
    assert (current["who"], current["claimed_by"]) == ("finance", "")
    assert scene.service.post(path, body, if_match=answer.headers["etag"]).status_code == 200


def test_a_request_without_a_version_is_never_stale(scene: Scene) -> None:
    """Without If-Match the request applies to the current run, and a concurrent change causes a retry."""
    run = scene.runs["signal"]
    path, ask = f"/v1/runs/{run}/cancel", {"reason": "no longer"}
    answer = raced(scene, moves(run), lambda: scene.service.post(path, ask))
    assert answer.status_code == 200, answer.text
