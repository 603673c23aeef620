"""Remove each safeguard of the service once, and see the failure that it prevents."""

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from pydantic import SecretStr

from outlast.clocks import SystemClock
from outlast.core.machine import ApprovalStatus
from outlast.core.rows.run_rows import MESSAGE
from outlast.errors import TooManyFailures, Unauthenticated, Uncertain
from outlast.insight.tenant_rows import TenantRows
from outlast.operations.service_operations import PauseCalls
from outlast.runtime.operations import Operations
from outlast.service import event_poller, idempotency
from outlast.service.identity import AuthSettings, Principal, authenticator, new_token
from outlast.service.identity.lockout import MOST
from outlast.service.request_limits import Bounds
from tests.mutants import remove
from tests.service.conftest import ALL, Running, Service

Patch = pytest.MonkeyPatch
both = pytest.mark.parametrize("guarded", [True, False])
ROLES = ("admin", "approver", "finance", "viewer")
STARTED = 201
HOLDS = "/v1/pauses"
START = "/v1/workflows/job/runs"


class Office:
    """Authenticator that trusts `Bearer TENANT/NAME`. The default is ana of acme."""

    async def authenticate(self, authorization: str, client: str) -> Principal:
        tenant, _, name = (authorization.removeprefix("Bearer ") or "acme/ana").partition("/")
        return Principal(tenant, name, frozenset(ROLES), ROLES, person=not name.startswith("bot"))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Service for this module, whose callers name themselves."""
    url = f"sqlite:{tmp_path_factory.mktemp('safeguards') / 'outlast.db'}"
    with Running(url, ALL, authenticator=Office()) as running:
        yield running


def as_(caller: str) -> dict[str, str]:
    return {"authorization": f"Bearer {caller}"}


def hold(service: Service, name: str, key: str, caller: str = "acme/ana") -> Any:
    ask = {"what": "activity", "name": name, "reason": "x"}
    return service.post(HOLDS, ask, idempotency_key=key, **as_(caller))


# --- decisions ------------------------------------------------------------------------------------------
@both
@pytest.mark.req("GATE-2")
def test_without_if_match_an_unseen_version_is_approved(service: Service, monkeypatch: Patch, guarded: bool) -> None:
    """It was reassigned in between, and is still approved."""
    if not guarded:
        remove("no_if_match", monkeypatch)
    approval, tag = service.asked()
    service.post(f"/v1/approvals/{approval}/claim")
    assert (service.decide(approval, tag).status_code == 412) is guarded
    status = service.get(f"/v1/approvals/{approval}").json()["status"]
    assert (status == ApprovalStatus.PENDING) is guarded


@both
@pytest.mark.req("GATE-2")
def test_without_people_only_a_program_decides(service: Service, monkeypatch: Patch, guarded: bool) -> None:
    """With any role. The second check behind the table of permissions is removed, too."""
    if not guarded:
        remove("programs_decide", monkeypatch)
    approval, tag = service.asked()
    answer = service.decide(approval, tag, **as_("acme/bot"))
    assert (answer.status_code == 403) is guarded, answer.text


@both
@pytest.mark.req("GATE-2")
def test_without_the_comparison_of_names_another_person_decides(
    service: Service, monkeypatch: Patch, guarded: bool
) -> None:
    """The request waits for bo, and ana holds every role."""
    if not guarded:
        remove("anyone_for_a_person", monkeypatch)
    approval, tag = service.asked()
    moved = service.post(f"/v1/approvals/{approval}/reassign", {"to": "person:bo", "reason": "hers"}, if_match=tag)
    assert moved.status_code == 200
    assert (service.decide(approval, moved.headers["etag"]).status_code == 403) is guarded


@both
@pytest.mark.req("GATE-2")
def test_without_the_current_state_the_second_approver_does_not_see_the_decision(
    service: Service, monkeypatch: Patch, guarded: bool
) -> None:
    """The refusal lacks the current state."""
    if not guarded:
        remove("no_current_state", monkeypatch)
    approval, tag = service.asked()
    service.decide(approval, tag)
    second = service.decide(approval, tag, "reject").json()
    assert ("current" in second) is guarded


# --- keys -----------------------------------------------------------------------------------------------
@both
@pytest.mark.req("RUN-4")
def test_without_the_digest_another_request_is_answered_with_the_first(
    service: Service, monkeypatch: Patch, guarded: bool
) -> None:
    """The second request was not executed, and its caller gets a success."""
    if not guarded:
        remove("no_request_digest", monkeypatch)
    assert hold(service, f"first.{guarded}", f"d-{guarded}").status_code == STARTED
    second = hold(service, f"second.{guarded}", f"d-{guarded}")
    assert (second.status_code == 422) is guarded


@both
@pytest.mark.req("RUN-4")
def test_without_the_identity_of_an_act_its_repetition_after_a_death_is_another(
    service: Service, monkeypatch: Patch, guarded: bool
) -> None:
    """The answer was never stored, as if the process had died, and the minute after that is over."""
    if not guarded:
        remove("acts_without_identity", monkeypatch)

    async def died(*args: Any) -> None:
        """Store no answer."""

    monkeypatch.setattr(idempotency, "_leave", died)
    monkeypatch.setattr(idempotency, "IN_FLIGHT", 0)
    _, tag = service.asked(run := service.start())
    assert tag
    for _ in range(2):
        answer = service.post(
            f"/v1/runs/{run}/raise", {"calls": 1, "reason": "one more"}, idempotency_key=f"i-{guarded}"
        )
        assert answer.status_code == 200, answer.text
    kinds = [row.kind for row in service.call(service.state.store.rows(MESSAGE, ("acme", run)))]
    assert (kinds.count("raise") == 1) is guarded


@both
@pytest.mark.req("GATE-2")
def test_without_the_seal_open_pages_of_a_revoked_token_lock_an_address_out(monkeypatch: Patch, guarded: bool) -> None:
    if not guarded:
        remove("sessions_count_as_guesses", monkeypatch)
    who = authenticator(
        AuthSettings(tokens=SecretStr(new_token("ana", tenant="t", roles=[], person=True)[1])), SystemClock()
    )

    async def pages() -> bool:
        for _ in range(MOST):
            with pytest.raises((Unauthenticated, TooManyFailures)):
                await who.resume("olt_revoked")
        with pytest.raises((Unauthenticated, TooManyFailures)) as refused:
            await who.authenticate("Bearer olt_guess", "127.0.0.1")
        return isinstance(refused.value, TooManyFailures)

    assert asyncio.run(pages()) is not guarded


@both
@pytest.mark.req("RUN-4")
def test_without_the_caller_in_the_key_one_caller_gets_the_answer_of_another(
    service: Service, monkeypatch: Patch, guarded: bool
) -> None:
    """Ben sends the same request and gets the answer to Ana."""
    if not guarded:
        remove("callers_share_keys", monkeypatch)
    assert hold(service, f"mine.{guarded}", f"c-{guarded}").status_code == STARTED
    other = hold(service, f"mine.{guarded}", f"c-{guarded}", "acme/ben")
    assert ("Idempotent-Replayed" not in other.headers) is guarded
    assert (other.status_code == 409) is guarded, "his own request was done, and refused: it is paused already"


@both
@pytest.mark.req("RUN-4")
def test_without_the_tenant_in_the_key_one_tenant_gets_the_answer_of_another(
    service: Service, monkeypatch: Patch, guarded: bool
) -> None:
    """The same name and key in two tenants."""
    if not guarded:
        remove("tenants_share_keys", monkeypatch)
    assert hold(service, f"tenant.{guarded}", f"t-{guarded}").status_code == STARTED
    theirs = hold(service, f"tenant.{guarded}", f"t-{guarded}", "globex/ana")
    assert ("Idempotent-Replayed" not in theirs.headers) is guarded


@both
@pytest.mark.req("RUN-4")
def test_without_the_in_flight_mark_a_request_is_executed_twice(
    service: Service, monkeypatch: Patch, guarded: bool
) -> None:
    """Two concurrent requests with one key: the first has not been answered yet."""
    if not guarded:
        remove("no_mark_in_flight", monkeypatch)
    done = []
    plain = Operations.perform

    async def slow(self: Operations, asked: PauseCalls) -> Any:
        done.append(asked.name)
        if len(done) == 1:
            gate_.set()
            await asyncio.sleep(0.3 if guarded else 0)
            async with asyncio.timeout(10):
                while not guarded and len(done) < 2:  # noqa: ASYNC110 - the other request is another task
                    await asyncio.sleep(0.01)
        return await plain(self, asked)

    monkeypatch.setattr(Operations, "perform", slow)
    gate_ = asyncio.Event()

    async def two() -> list[int]:
        ask = {"what": "activity", "name": f"twice.{guarded}", "reason": "x"}
        async with httpx2.AsyncClient(base_url=service.url, timeout=30) as client:
            first = asyncio.create_task(client.post(HOLDS, json=ask, headers={"Idempotency-Key": f"w-{guarded}"}))
            await gate_.wait()
            second = await client.post(HOLDS, json=ask, headers={"Idempotency-Key": f"w-{guarded}"})
            return [(await first).status_code, second.status_code]

    service.call(two())
    assert (len(done) == 1) is guarded


@both
@pytest.mark.req("RUN-4")
def test_without_the_key_of_an_unknown_outcome_a_request_is_executed_twice(
    service: Service, monkeypatch: Patch, guarded: bool
) -> None:
    """The store's answer was lost. The key becomes free, and the retry is executed again."""
    plain, done = Operations.perform, []

    async def lost(self: Operations, asked: PauseCalls) -> Any:
        done.append(asked.name)
        if len(done) == 1:
            raise Uncertain("the store's answer was lost")
        return await plain(self, asked)

    monkeypatch.setattr(Operations, "perform", lost)
    if not guarded:
        remove("uncertain_frees_the_key", monkeypatch)
    first = hold(service, f"lost.{guarded}", f"l-{guarded}")
    again = hold(service, f"lost.{guarded}", f"l-{guarded}")
    assert first.status_code == 503
    assert (again.json().get("refusal") == "in_flight") is guarded
    assert (len(done) == 1) is guarded


# --- tenants --------------------------------------------------------------------------------------------
@both
@pytest.mark.req("RUN-5")
def test_without_the_tenant_every_caller_sees_all_runs(service: Service, monkeypatch: Patch, guarded: bool) -> None:
    """A run, its events, its stream, and the lists."""
    run = service.start("wish", text="secret")
    if not guarded:
        remove("one_tenant_for_all", monkeypatch)
    for path in ("", "/events", "/effects", "/results", "/input", "/timeline", "/checkpoints", "/explain"):
        answer = service.get(f"/v1/runs/{run}{path}", headers=as_("globex/eve"))
        assert (answer.status_code == 404) is guarded, path
    assert (run not in service.get("/v1/runs", headers=as_("globex/eve")).text) is guarded


@both
@pytest.mark.req("RUN-5")
def test_without_the_signature_a_cursor_of_another_list_is_accepted(
    service: Service, monkeypatch: Patch, guarded: bool
) -> None:
    """A cursor of another tenant, list or filter, or an invented one."""
    for n in range(3):
        service.start("wish", text=str(n))
    cursor = service.get("/v1/runs?limit=1").json()["next_cursor"]
    if not guarded:
        remove("unsealed_cursors", monkeypatch)
        cursor = service.get("/v1/runs?limit=1").json()["next_cursor"]
    for path, caller in (("/v1/runs?limit=1", "globex/eve"), ("/v1/runs?workflow=wish", "acme/ana")):
        answer = service.get(f"{path}&cursor={cursor}", headers=as_(caller))
        assert (answer.status_code == 422) is guarded, path
    plain = service.get(f"/v1/effects?cursor={cursor}")
    assert plain.status_code == 422 or not guarded


# --- other sites, bodies, errors ------------------------------------------------------------------------
@both
def test_without_the_origin_check_a_page_of_another_site_starts_runs(
    service: Service, monkeypatch: Patch, guarded: bool
) -> None:
    """A page of another site uses the browser of a permitted user (S15)."""
    if not guarded:
        remove("any_origin", monkeypatch)
    answer = service.client.post(START, json={"input": {"rounds": 1}}, headers={"Origin": "https://evil.example"})
    assert (answer.status_code == 403) is guarded


@both
@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_without_the_media_type_check_a_form_starts_runs(
    service: Service, monkeypatch: Patch, guarded: bool, kind: str
) -> None:
    """A request that any page may send without a preflight (S15)."""
    if not guarded:
        remove("any_media_type", monkeypatch)
    answer = service.client.post(START, content=b'{"input": {"rounds": 1}}', headers={"Content-Type": kind})
    assert (answer.status_code == 415) is guarded


@both
def test_without_the_shape_check_a_deep_body_is_parsed(service: Service, monkeypatch: Patch, guarded: bool) -> None:
    """The depth would only be found by the next reader (S17)."""
    if not guarded:
        remove("any_depth", monkeypatch)
    answer = service.client.post(START, content=b"[" * 500 + b"]" * 500, headers={"Content-Type": "application/json"})
    assert (answer.json()["refusal"] == "too_deep") is guarded


@both
def test_without_the_limit_a_body_is_read_to_its_end(folder_url: str, monkeypatch: Patch, guarded: bool) -> None:
    """With or without Content-Length (S17)."""
    if not guarded:
        remove("any_body_size", monkeypatch)
    bounds = Bounds(body_bytes=1_000)
    with Running(folder_url, ALL, worker=False, bounds=bounds) as small:
        for content in (b" " * 2_000 + b"{}", iter([b" " * 2_000, b"{}"])):
            answer = small.client.post(START, content=content, headers={"Content-Type": "application/json"})
            assert (answer.status_code == 413) is guarded, answer.text


@both
def test_without_security_headers_an_answer_may_be_framed(service: Service, monkeypatch: Patch, guarded: bool) -> None:
    """Or sniffed, or cached by a proxy (S13, S15)."""
    if not guarded:
        remove("no_security_headers", monkeypatch)
    headers = service.get("/v1/runs").headers
    for name in ("x-content-type-options", "content-security-policy", "referrer-policy", "cache-control"):
        assert (name in headers) is guarded, name


@both
def test_without_the_filter_of_errors_a_caller_reads_paths_of_the_store(
    service: Service, monkeypatch: Patch, guarded: bool
) -> None:
    """The path of the database, in the body of a 503 (S31)."""
    if not guarded:
        remove("errors_in_full", monkeypatch)

    async def away(self: Any, run: str) -> Any:
        raise Uncertain("disk I/O error at /var/lib/secret.db")

    monkeypatch.setattr(TenantRows, "run", away)
    answer = service.get("/v1/runs/r1/results")
    assert (answer.status_code, "secret" not in answer.text) == (503, guarded)


# --- streams --------------------------------------------------------------------------------------------
@both
@pytest.mark.req("RUN-7")
def test_without_the_limit_a_slow_listener_fills_the_memory(
    service: Service, monkeypatch: Patch, guarded: bool
) -> None:
    """A listener that does not read is not cut off, and all frames are kept."""
    if not guarded:
        remove("unbounded_stream", monkeypatch)

    async def flood() -> int:
        slow = await service.state.broadcaster.listen("acme", "nobody")
        for n in range(3_000):
            slow.push(n + 1, b"x")
        service.state.broadcaster.leave(slow)
        return len(slow)

    assert (service.call(flood()) <= 1_024) is guarded


@both
@pytest.mark.req("RUN-7")
def test_without_the_first_poll_old_events_are_sent_as_new(folder_url: str, monkeypatch: Patch, guarded: bool) -> None:
    """A new listener to all runs gets events of runs that ended long ago."""
    if not guarded:
        remove("no_first_poll", monkeypatch)
    with Running(folder_url, ALL) as own:
        own.ended(own.start("job", rounds=2))

        async def heard() -> list[str]:
            all_runs = event_poller.EventPoller(own.state.store, "default")
            await all_runs.begin()
            return [row.run for row in await all_runs.moved()]

        assert (own.call(heard()) == []) is guarded
