"""`--metrics-port`: the metrics of a worker process and of a dispatcher process."""

import asyncio
import hmac
import json
import subprocess
import urllib.error
import urllib.request

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from outlast.runtime.metrics_text import Metrics
from outlast.runtime.stores import open_store
from outlast.service.connections import listen, url_of
from outlast.service.metrics_endpoint import BACKLOG, MetricsEndpoint
from tests.cli.conftest import MODULE, SHORT_OPTIONS, Terminal, eventually
from tests.cli.hooks import ALLOWED, listening

pytestmark = pytest.mark.req("OBS-2")


def announced(process: "subprocess.Popen[str]") -> str:
    """Where it says that its metrics are."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate()
    said = json.loads(line)
    return str(said["metrics"] if "metrics" in said else said["url"] + "/metrics")


def scraped(url: str, token: str = "") -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    asked = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asked, timeout=10) as answer:
        text = answer.read().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def outcome(url: str, name: str) -> float:
    return scraped(url)["outlast_webhook_deliveries_total", (("outcome", name),)]


def test_a_dispatcher_counts_deliveries_and_failures(outlast: Terminal) -> None:
    outlast.start()
    with listening() as hooks:
        added = outlast("webhooks", "add", hooks.url, "--from-start", env=ALLOWED)
        assert added.code == 0, added
        url = announced(outlast.spawn("-o", "ndjson", "dispatcher", "--metrics-port", "0", **ALLOWED))
        hooks.next()
        eventually(lambda: outcome(url, "accepted") == 1)
        assert [outcome(url, name) for name in ("retried", "gone", "dead")] == [0, 0, 0], "0 before they are raised"
        hooks.status = 422
        outlast.start(run="r2")
        eventually(lambda: outcome(url, "dead") == 1)
        hooks.status = 503
        outlast.start(run="r3")
        eventually(lambda: outcome(url, "retried") >= 1)
        hooks.status = 410
        outlast.start(run="r4")
        eventually(lambda: outcome(url, "gone") == 1)


def test_a_worker_shows_the_events_that_wait_for_a_dispatcher(outlast: Terminal) -> None:
    """The age of the oldest unsent event grows without a dispatcher and is 0 once it was sent."""
    outlast.start()
    with listening() as hooks:
        url = announced(
            outlast.spawn("-o", "ndjson", "worker", MODULE, *SHORT_OPTIONS, "--metrics-port", "0")
        )  # fmt: skip
        assert scraped(url)["outlast_outbox_lag_seconds", (("state", "due"),)] == 0
        assert outlast("webhooks", "add", hooks.url, env=ALLOWED).code == 0
        outlast.start(run="r2")
        eventually(lambda: scraped(url)["outlast_outbox_lag_seconds", (("state", "due"),)] > 1)
        assert scraped(url)["outlast_workers", (("state", "serving"),)] == 1
        outlast.spawn("dispatcher", **ALLOWED)
        hooks.next()
        eventually(lambda: scraped(url)["outlast_outbox_lag_seconds", (("state", "due"),)] == 0)
        eventually(lambda: scraped(url)["outlast_outbox_lag_seconds", (("state", "owed"),)] == 0)


@pytest.mark.req("GATE-5")
@pytest.mark.parametrize("words", [("worker", MODULE, "--metrics-port", "0"), ("serve", MODULE, "--port", "0")])
def test_a_notice_that_failed_is_counted_once(outlast: Terminal, words: tuple[str, ...]) -> None:
    with listening(500) as nobody:
        process = outlast.spawn("-o", "ndjson", *words, *SHORT_OPTIONS, "--notify", nobody.url, REFUND_FAULT="1")
        url = announced(process)
        assert scraped(url)["outlast_dlq_publish_failed_total", ()] == 0
        outlast.start()
        (asked,) = eventually(lambda: outlast("approvals", "ls", "-o", "json").json["approvals"])
        outlast("approvals", "approve", asked["approval"], "--reason", "fine")
        eventually(lambda: scraped(url)["outlast_dlq_publish_failed_total", ()] == 1)
        assert scraped(url)["outlast_effects_total", (("activity", "issue_refund"), ("outcome", "done"))] == 1
        attention = (("reason", "exception"), ("workflow", "refund"))
        eventually(lambda: scraped(url).get(("outlast_runs_attention", attention)) == 1)


def test_a_token_is_asked_for(outlast: Terminal) -> None:
    process = outlast.spawn("-o", "ndjson", "dispatcher", OUTLAST_METRICS__PORT="0", OUTLAST_METRICS__TOKEN="s3cret")
    url = announced(process)
    for token in ("", "wrong", "s3cre", "s3crett"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            scraped(url, token)
        refused.value.close()
        assert refused.value.code == 401
    assert scraped(url, "s3cret")["outlast_store_up", ()] == 1


def test_the_whole_token_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """How much of it is right does not show in the time that an answer takes."""
    compared: list[tuple[bytes, bytes]] = []
    plain = hmac.compare_digest

    def counting(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return plain(one, other)

    async def ask() -> list[int]:
        store = await open_store("memory:")
        listening = listen("127.0.0.1", 0)
        scrape = MetricsEndpoint(Metrics(store, []), listening, "s3cret")
        serving = asyncio.create_task(scrape.run())
        async with httpx2.AsyncClient(base_url=url_of(listening), trust_env=False, timeout=30) as client:
            tokens = ("s3creT", "x", "s3cret-and-more", "s3cret")
            answers = [await client.get("/metrics", headers={"Authorization": f"Bearer {token}"})
                       for token in tokens]  # fmt: skip
        scrape.drain()
        await serving
        await store.close()
        return [each.status_code for each in answers]

    monkeypatch.setattr("outlast.service.metrics_endpoint.hmac.compare_digest", counting)
    assert asyncio.run(ask()) == [401, 401, 401, 200]
    assert len(compared) == 4


def test_silent_strangers_hold_no_more_than_the_backlog_and_prometheus_is_answered() -> None:
    """They held descriptors of the worker for as long as they liked: h11 waits for a head without a limit."""

    async def ask() -> int:
        store = await open_store("memory:")
        listening = listen("127.0.0.1", 0)
        scrape = MetricsEndpoint(Metrics(store, []), listening)
        serving = asyncio.create_task(scrape.run())
        host, port = listening.getsockname()[:2]
        strangers = [await asyncio.open_connection(host, port) for _ in range(3 * BACKLOG)]
        gone = await asyncio.wait_for(strangers[0][0].read(), 30)
        async with httpx2.AsyncClient(base_url=url_of(listening), trust_env=False, timeout=30) as client:
            answer = await client.get("/metrics")
        for _, writer in strangers:
            writer.close()
        scrape.drain()
        await serving
        await store.close()
        assert gone == b""
        return answer.status_code

    assert asyncio.run(ask()) == 200


def test_it_is_off_unless_asked_for_and_not_for_everybody(outlast: Terminal) -> None:
    assert announced(outlast.spawn("-o", "ndjson", "dispatcher")) == ""
    answer = outlast("dispatcher", "--metrics-port", "0", env={"OUTLAST_METRICS__HOST": "0.0.0.0"})
    assert answer.code == 2 and "OUTLAST_METRICS__TOKEN_FILE" in answer.err
