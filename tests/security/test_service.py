"""Authentication, origins, lock-out and errors of the service (S1, S12, S15, S31, S34, S38)."""

import json
import socket
import threading
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any

import httpx2
import pytest

from outlast.core.rows.store_rows import REQUEST
from outlast.service.identity import AuthSettings
from outlast.service.identity.lockout import MOST
from tests.security import issuer as issuers
from tests.security import server as servers
from tests.security.issuer import RSA_KEYS, token
from tests.security.server import Service


@pytest.mark.req("GATE-2")
def test_a_person_of_an_issuer_decides_over_http(tmp_path: Path) -> None:
    with issuers.serving() as issuer, servers.serving(tmp_path, issuer.settings()) as service:
        _, approval, tag = service.approval("jwt")
        path = f"/v1/approvals/{approval}/decision"
        body = {"decision": "approve", "reason": "fine"}
        for forged in (token(RSA_KEYS[1]), token(aud="another"), token(exp=1), token(tenant=None), "x" * 9_000):
            with service.client(token=forged, **{"If-Match": tag}) as client:
                answer = client.post(path, json=body)
            assert answer.status_code == 401 and answer.headers["WWW-Authenticate"] == "Bearer"
        with service.client(token=token(person=None), **{"If-Match": tag}) as client:
            assert client.post(path, json=body).json()["refusal"] == "not_a_person"
        with service.client(token=token(tenant="globex"), **{"If-Match": tag}) as client:
            assert client.post(path, json=body).status_code == 404
        with service.client(token=token(), **{"If-Match": tag}) as client:
            answer = client.post(path, json=body)
        assert answer.status_code == 200, answer.text
        row = service.do(service.operations().rows.approval(approval))
        assert (row.decided_by, row.claims) == ("ana", ("approver", "finance"))


@pytest.mark.req("GATE-2")
def test_a_token_of_64_kb_is_refused(service: Service) -> None:
    """Refused by the server, before it is a request."""
    with service.client(token="x" * 64_000) as client:
        assert client.get("/v1/runs").status_code in (400, 401, 431)


@pytest.mark.req("GATE-2")
def test_the_body_is_read_after_authentication(service: Service) -> None:
    """Without a credential the answer is sent before the body is read."""
    host, port = service.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as line:
        line.sendall(
            b"POST /v1/workflows/listener/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"Content-Length: 1000000\r\n\r\n{"
        )
        assert line.recv(4096).startswith(b"HTTP/1.1 401")


def test_unauthenticated_requests_write_nothing(service: Service) -> None:
    before = service.do(service.operations().rows.runs())
    with service.client(**{"Idempotency-Key": "nobody"}) as client:
        answer = client.post("/v1/workflows/listener/runs", json={"input": {}})
    assert answer.status_code == 401
    assert service.do(service.operations().rows.runs()) == before
    for tenant in ("acme", "default", ""):
        assert not service.do(service.app.state.service.store.rows(REQUEST, (tenant,)))


@pytest.mark.req("GATE-2")
def test_guessing_over_http_locks_an_address_out_with_a_retry_time(tmp_path: Path) -> None:
    with servers.serving(tmp_path, AuthSettings()) as service:
        with service.client("viewer") as known:
            assert known.get("/v1/runs").status_code == 200
            with service.client(token="olt_guess") as guess:
                seen = [guess.get("/v1/runs").status_code for _ in range(MOST + 3)]
            assert seen == [401] * MOST + [429] * 3
            with service.client("operator") as late:
                answer = late.get("/v1/runs")
            assert answer.status_code == 429 and 0 < int(answer.headers["Retry-After"]) <= 60
            assert answer.json()["code"] == "OUT-412"
            assert known.get("/v1/runs").status_code == 200, "a known caller continues"
            assert late.is_closed and httpx2.get(f"{service.url}/healthz").status_code == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1"])
@pytest.mark.parametrize("kind", ["application/json", "text/plain", "application/x-www-form-urlencoded",
                                  "multipart/form-data; boundary=x"])  # fmt: skip
def test_a_page_of_another_site_changes_nothing_over_http(service: Service, origin: str, kind: str) -> None:
    with service.client("admin", Origin=origin, **{"Content-Type": kind}) as client:
        answer = client.post("/v1/workflows/listener/runs", content=b'{"input": {}}')
    assert (answer.status_code, answer.json()["refusal"]) == (403, "cross_origin")
    assert not any(name.startswith("access-control") for name in answer.headers)


def test_a_body_is_json_or_refused(service: Service) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "", "application/jsonp", "application/xml"):
        with service.client("starter") as client:
            answer = client.post(
                "/v1/workflows/listener/runs", content=b'{"input": {}}', headers={"Content-Type": kind}
            )
        assert answer.status_code == 415, kind


def test_no_other_site_may_read(service: Service) -> None:
    asked = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    with service.client("viewer") as client:
        for answer in (client.options("/v1/runs", headers=asked), client.get("/v1/runs", headers=asked)):
            assert not any(name.startswith("access-control") for name in answer.headers)


def test_every_answer_has_the_security_headers(service: Service) -> None:
    with service.client("viewer") as client:
        answers = [client.get(path) for path in ("/v1/runs", "/healthz", "/nothing", "/v1/runs/x", "/openapi.json")]
        answers.append(client.post("/v1/workflows/listener/runs", json={}))
    for answer in answers:
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert "no-store" in answer.headers["Cache-Control"]


@pytest.mark.parametrize(
    "path", ["/docs", "/redoc", "/openapi.json", "/docs/oauth2-redirect", "/metrics", "/debug", "/v1", "/debug/pprof"]
)
def test_the_document_and_metrics_need_a_credential(service: Service, path: str) -> None:
    with service.client() as client:
        answer = client.get(path)
    assert answer.status_code in (401, 404), "off, or behind the door"
    assert "paths" not in answer.text and "outlast_" not in answer.text


def test_a_request_id_of_a_proxy_must_be_a_plain_word(service: Service) -> None:
    for said, kept in [("req-1.A_b", True), ("x" * 64, True), ("x" * 65, False), ("a b", False), ("<script>", False),
                       ("a\tb", False), ("", False), ("é", False), ('"', False)]:  # fmt: skip
        with service.client("viewer") as client:
            answer = client.get("/v1/runs", headers={"X-Request-Id": said.encode("latin-1")})
        assert (answer.headers["X-Request-Id"] == said) is kept, said


def test_an_unknown_id_is_not_found(service: Service) -> None:
    """Effect ids are opaque, and an invented one reaches no SQL statement."""
    run, key = "run_000000000000", "pay"
    made_up: list[Any] = [
        [run, 2**70, key], [run, 2**63, key], [run, -1, key], [run, True, key], [run, 1.0, key], [run, "1", key],
        [run, None, key], ["../x", 1, key], ["", 1, key], [7, 1, key], [run, 1, "a b"], [run, 1, ""], [run, 1, 7],
        [run, 1, "x" * 600], [run, 1, "a\nb"], [run, 1], [run, 1, key, 1], {"a": 1, "b": 2, "c": 3}, "abc", 7, None,
    ]  # fmt: skip
    with service.client("admin") as client:
        for each in made_up:
            word = urlsafe_b64encode(json.dumps(each).encode()).decode()
            answer = client.post(f"/v1/effects/{word}/resolve", json={"reason": "x", "outcome": "give_up"})
            assert answer.status_code == 404, (each, answer.text)
            assert "shows the ids" in answer.json()["detail"], (each, answer.text)


def test_errors_reveal_no_internals(service: Service) -> None:
    with service.client("admin") as client:
        texts = [
            client.get("/v1/runs", params={"cursor": "x'; DROP TABLE run; --"}).text,
            client.post("/v1/runs/x/cancel", content=b"{", headers={"Content-Type": "application/json"}).text,
            client.get("/v1/runs/%00").text,
            client.get("/v1/runs/" + "x" * 500).text,
        ]
    for text in texts:
        assert not any(word in text for word in ("Traceback", "SELECT", "sqlite", ".py", "/tmp/")), text


# --- without authentication ----------------------------------------------------------------------
@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with servers.serving(tmp_path_factory.mktemp("alone")) as found:
        yield found


def test_loopback_callers_need_no_credential(alone: Service) -> None:
    with alone.client() as client:
        assert client.get("/v1/runs").status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "outlast.corp:80", "127.0.0.1.nip.io", "[::2]"])
def test_without_authentication_other_host_names_are_refused(alone: Service, host: str) -> None:
    """A page whose name resolves to this machine (DNS rebinding) sends its own Host."""
    with alone.client(Host=host) as client:
        for answer in (client.get("/v1/runs"), client.post("/v1/workflows/listener/runs", json={})):
            assert (answer.status_code, answer.json()["refusal"]) == (403, "host")


def test_a_forwarded_address_is_trusted_from_a_listed_proxy_only(tmp_path: Path) -> None:
    """A caller that could claim any address would never be locked out, or pass as this machine."""
    forwarded = {"X-Forwarded-For": "198.51.100.7", "X-Forwarded-Proto": "https"}
    with servers.serving(tmp_path) as service, service.client(**forwarded) as client:
        assert client.get("/v1/runs").status_code == 200, "it is 127.0.0.1 that speaks, whatever it says"
    (tmp_path / "other").mkdir()
    with servers.serving(tmp_path / "other", proxies=("127.0.0.1",)) as service, service.client(**forwarded) as client:
        answer = client.get("/v1/runs")
        assert (answer.status_code, answer.json()["refusal"]) == (401, "not_local")


def test_silent_connections_do_not_block_health(service: Service) -> None:
    """Part of S17: five hundred connections that send no request."""
    host, port = service.url.removeprefix("http://").split(":")
    lines = [socket.create_connection((host, int(port)), timeout=10) for _ in range(500)]
    try:
        assert httpx2.get(f"{service.url}/healthz", timeout=10).status_code == 200
    finally:
        for line in lines:
            line.close()
    assert threading.active_count() < 100
