"""Routes of operators: attention, uncertain effects, pauses; for the version shown, once."""

import asyncio
import json
from typing import Any

import pytest

from outlast.core.commit import Commit, Put
from outlast.core.durations import TOO_FAR, timedelta_of
from outlast.core.machine import EffectStatus, Reason, RunStatus
from outlast.core.rows.store_rows import STORE, TOPOLOGY
from outlast.errors import InvalidInput
from outlast.runtime.stores import open_store
from tests.service.conftest import Running, Service


def flagged(service: Service, order: str) -> str:
    """Return a run that requires attention."""
    run = service.start("call", order=order)
    service.flagged(run)
    return run


def doubt(service: Service, order: str) -> tuple[str, Any]:
    """Return a run with an uncertain effect, and the effect."""
    run = flagged(service, order)
    (effect,) = service.get(f"/v1/runs/{run}/effects").json()["effects"]
    assert effect["status"] == EffectStatus.UNCERTAIN
    return run, effect


@pytest.mark.req("GATE-5")
def test_attention_is_answered_for_the_version_seen(service: Service) -> None:
    run = flagged(service, "broken")
    (item,) = [each for each in service.get("/v1/attention").json()["attention"] if each["run"] == run]
    assert (item["reason"], item["node"]) == (Reason.EXCEPTION, "dial")
    path, ask = f"/v1/attention/{run}/resolve", {"choice": "fail", "reason": "no use"}
    stale = service.post(path, ask, if_match='"v1"')
    assert (stale.status_code, stale.json()["refusal"]) == (412, "stale")
    assert service.get(f"/v1/runs/{run}").json()["asked"] == [], "nothing was done"
    wrong = service.post(path, {**ask, "choice": "continue", "by": "PT1H"})
    assert wrong.status_code == 422
    tag = service.get(f"/v1/runs/{run}").headers["etag"]
    assert service.post(path, ask, if_match=tag).status_code == 200
    assert service.ended(run)["status"] == RunStatus.FAILED


@pytest.mark.req("EFF-2")
def test_an_uncertain_effect_is_settled_once_for_the_version_seen(service: Service) -> None:
    run, effect = doubt(service, "A-1")
    path = f"/v1/effects/{effect['id']}/resolve"
    happened = {"outcome": "happened", "external_id": "R-1", "response": "rang", "reason": "seen"}
    stale = service.post(path, happened, if_match='"v99"')
    assert (stale.status_code, stale.json()["refusal"]) == (412, "stale")
    assert service.post(path, happened, if_match="").json()["refusal"] == "bad_header", "a condition that says nothing"
    assert service.post(path, {**happened, "external_id": ""}).status_code == 422
    assert service.post(path, {**happened, "outcome": "give_up"}).status_code == 422, "an id of what did not happen"
    settled = service.post(path, happened)
    assert (settled.status_code, settled.json()["external_id"]) == (200, "R-1")
    assert settled.headers["etag"] == f'"v{settled.json()["version"]}"' != f'"v{effect["version"]}"'
    assert service.post(path, happened).status_code == 409
    assert service.ended(run)["outcome"]["said"] == "rang"
    listed = service.get(f"/v1/effects?run={run}").json()["effects"]
    assert [each["id"] for each in listed] == [effect["id"]]


def test_a_signal_is_sent_for_the_version_seen(service: Service) -> None:
    run = service.start("wish", text="?")
    stale = service.post(f"/v1/runs/{run}/signals/said", {"payload": {"text": "hi"}}, if_match='"v99"')
    assert (stale.status_code, stale.json()["refusal"]) == (412, "stale")


def test_a_pause_stops_calls_until_it_is_removed(folder_url: str) -> None:
    """A worker reads the pauses at its start and at each heartbeat."""
    ask = {"what": "activity", "name": "ring"}
    with Running(folder_url, worker=False) as quiet:
        assert quiet.post("/v1/pauses", {**ask, "reason": "strike"}).status_code == 201
        run = quiet.start("call", order="held")
    with Running(folder_url) as service:
        service.until(f"/v1/runs/{run}", lambda body: any(w["kind"] == "pause" for w in body["waiting_for"]))
        (found,) = service.get("/v1/pauses").json()["pauses"]
        assert (found["paused"], found["runs"], found["reason"]) == ("activity ring", 1, "strike")
        assert service.post("/v1/pauses/resume", ask).json()["runs"] == 1
        assert service.get("/v1/pauses").json()["pauses"] == []
        service.flagged(run)


def test_a_run_that_is_served_is_not_moved(service: Service) -> None:
    run = service.start("wish", text="?")
    refused = service.post(f"/v1/runs/{run}/move", {"workflow": "wish", "version": 1})
    assert refused.status_code == 409
    nobody = service.post(f"/v1/runs/{run}/move", {"workflow": "wish", "version": 9})
    assert (nobody.status_code, nobody.json()["refusal"]) == (404, "unserved")
    stale = service.post(f"/v1/runs/{run}/move", {"workflow": "wish", "version": 9}, if_match='"v99"')
    assert stale.status_code == 412


def test_the_input_of_a_run_is_shown(service: Service) -> None:
    run = service.start("job", rounds=3)
    service.ended(run)
    assert service.get(f"/v1/runs/{run}/input").json() == {"run": run, "input": {"rounds": 3, "done": 0}}


def test_the_caller_is_shown(service: Service) -> None:
    me = service.get("/v1/me").json()
    assert (me["name"], me["tenant"], me["every_role"], me["person"]) == ("local:ana", "default", True, True)


def test_the_summary_answers_304_until_a_count_changes(service: Service) -> None:
    first = service.get("/v1/summary")
    tag = first.headers["etag"]
    again = service.client.get("/v1/summary", headers={"If-None-Match": f'"other", W/{tag}'})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    run = flagged(service, "broken")
    later = service.client.get("/v1/summary", headers={"If-None-Match": tag})
    assert later.status_code == 200 and later.headers["etag"] != tag
    assert later.json()["attention_runs"] == first.json()["attention_runs"] + 1
    many = {"attention": "exception", "choice": "fail", "reason": "no use", "runs": [{"run": run}, {"run": "r9"}]}
    refused = service.post("/v1/attention/resolve", {**many, "by": "PT1H"})
    assert refused.status_code == 422
    answers = service.post("/v1/attention/resolve", many).json()["answers"]
    assert [(each["run"], each["answered"]) for each in answers] == [(run, True), ("r9", False)]
    assert service.ended(run)["status"] == RunStatus.FAILED
    assert service.post("/v1/attention/resolve", {**many, "runs": []}).status_code == 422


@pytest.mark.req("EFF-2")
def test_an_answer_is_checked_and_corrected_without_the_code(folder_url: str) -> None:
    """A service without a module and a worker: the schema in the store checks, and nothing uses the answer yet."""
    with Running(folder_url) as serving:
        run, effect = doubt(serving, "A-9")
    path = f"/v1/effects/{effect['id']}/resolve"
    assert effect["takes_response"] and not effect["correctable"]
    happened = {"outcome": "happened", "external_id": "R-1", "reason": "seen"}
    with Running(folder_url, (), worker=False) as service:
        for wrong in (None, 7, {"text": "rang"}):
            refused = service.post(path, {**happened, "response": wrong})
            assert refused.status_code == 422 and "the answer of activity ring is not valid" in refused.text, wrong
        first = service.post(path, {**happened, "response": "rang"})
        assert first.status_code == 200 and first.json()["correctable"]
        assert service.post(path, {"outcome": "give_up", "reason": "x"}).status_code == 409
        stale = service.post(path, {**happened, "response": "late"}, if_match=f'"v{effect["version"]}"')
        assert (stale.status_code, stale.json()["refusal"]) == (412, "stale")
        given_up = service.post(path, {"outcome": "give_up", "reason": "x", "correct": True})
        assert (given_up.status_code, given_up.json()["status"], given_up.json()["response"]) == (200, "refused", None)
        again = service.post(path, {**happened, "response": "rang twice", "correct": True})
        assert (again.status_code, again.json()["status"]) == (200, "done")
    with Running(folder_url) as serving:
        assert serving.ended(run)["outcome"]["said"] == "rang twice"
        events = serving.get(f"/v1/runs/{run}/events").json()["events"]
        said = [each["data"]["answers"] for each in events if each["type"].endswith(".answered")]
        assert [each["choice"] for one in said for each in one] == ["happened", "give_up", "happened"]
        assert serving.post(path, {**happened, "response": "later", "correct": True}).status_code == 409


@pytest.mark.req("EFF-2")
@pytest.mark.parametrize("kept", ["nothing", "no schema of the activity"])
def test_a_store_without_the_schema_asks_for_the_code(folder_url: str, kept: str) -> None:
    """As a store of an earlier version, whose topologies have no answers."""
    with Running(folder_url) as serving:
        _, effect = doubt(serving, "A-10")
    asyncio.run(forget_schemas(folder_url, whole=kept == "nothing"))
    happened = {"outcome": "happened", "external_id": "R-1", "response": "rang", "reason": "seen"}
    path = f"/v1/effects/{effect['id']}/resolve"
    with Running(folder_url, (), worker=False) as service:
        refused = service.post(path, happened)
        assert refused.status_code == 422 and "--module MODULE" in refused.text and "call@1" in refused.text
        (found,) = service.get(f"/v1/effects?run={effect['run']}").json()["effects"]
        assert found["takes_response"], "it may be needed"
    with Running(folder_url, worker=False) as service:
        assert service.post(path, {**happened, "response": 7}).status_code == 422
        assert service.post(path, happened).status_code == 200


async def forget_schemas(url: str, *, whole: bool) -> None:
    store = await open_store(url)
    row = await store.load(TOPOLOGY, (STORE, "call@1"))
    assert row is not None
    plain = {} if whole else row.structure()
    for each in plain.get("activities", {}).values():
        del each["answer"]
    changed = row._replace(version=row.version + 1, body=json.dumps(plain))
    await store.commit(Commit((Put(TOPOLOGY, changed, row.version),)))
    await store.close()


@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("/v1/runs/none/extend", {}),
        ("/v1/attention/none/resolve", {"choice": "extend"}),
        ("/v1/attention/resolve", {"choice": "extend", "attention": "total_timeout", "runs": [{"run": "none"}]}),
    ],
)
def test_an_extension_is_at_most_100_years_as_everywhere(service: Service, path: str, more: dict[str, Any]) -> None:
    """HTTP said 3650 days, and a client in the process of the store 100 years."""
    far = service.post(path, {"by": "P36526D", "reason": "x", **more})
    assert far.status_code == 422 and TOO_FAR in far.text
    assert service.post(path, {"by": "P36525D", "reason": "x", **more}).status_code != 422
    with pytest.raises(InvalidInput, match=TOO_FAR):
        timedelta_of("by", "36526d")


def test_a_list_goes_back_100_years_at_most(service: Service) -> None:
    assert service.get("/v1/runs?since=P36525D").status_code == 200
    assert TOO_FAR in service.get("/v1/runs?since=P36526D").text
