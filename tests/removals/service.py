"""Safeguards of the HTTP service.

Modules are imported in the functions, so that a process that removes another safeguard does not load HTTP.
"""

from dataclasses import replace as changed
from typing import Any

from tests.removals import Patch, replace


def unanswered_writes_called_undone(patch: Patch) -> None:
    from outlast.client.service_connection import Attempts

    def failed(self: Attempts, error: Exception) -> bool:
        return False

    replace(patch, Attempts.failed, failed)


def answers_of_proxies_believed(patch: Patch) -> None:
    from outlast.client.service_connection import Attempts

    replace(patch, Attempts.settled_by, lambda self, response, error: True)


def long_texts_redacted_whole(patch: Patch) -> None:
    from outlast.telemetry import redact

    replace(patch, redact.shortened, lambda text: text)


def acts_without_identity(patch: Patch) -> None:
    from outlast.core import acts

    replace(patch, acts.with_token, lambda commit, act, target, now: commit)


def sessions_count_as_guesses(patch: Patch) -> None:
    from outlast.service.identity import Credentials

    async def resume(self: Credentials, credential: str) -> Any:
        return await self.authenticate(f"Bearer {credential}", "127.0.0.1")

    replace(patch, Credentials.resume, resume)


def no_if_match(patch: Patch) -> None:
    from outlast.service import conditional, declared_routes

    assert declared_routes.required_version is conditional.required_version
    replace(patch, conditional.required_version, lambda if_match, what: 0)


def programs_decide(patch: Patch) -> None:
    from outlast.core.approvals import Actor
    from outlast.service.identity.permissions import permissions

    replace(patch, type(permissions()).permit, lambda self, principal, operation: None)
    replace(patch, Actor.check_person, lambda self: None)


def anyone_for_a_person(patch: Patch) -> None:
    from outlast.core import approver_rule

    patch.setattr(approver_rule, "_matches", lambda term, roles, name: not isinstance(term, str) or term in roles)


def no_current_state(patch: Patch) -> None:
    from outlast.service import conditional, problems

    def bare(error: Any, current: Any) -> problems.ProblemError:
        return problems.ProblemError(error, more={}, headers={})

    replace(patch, conditional.conflict_with, bare)


def no_request_digest(patch: Patch) -> None:
    from outlast.service import idempotency

    kept = idempotency._stored
    replace(patch, kept, lambda before, stamp, now: kept(before._replace(digest=stamp), stamp, now))


def callers_share_keys(patch: Patch) -> None:
    from outlast.service import idempotency

    kept = idempotency.digest
    patch.setattr(idempotency, "digest", lambda *parts: kept(*(parts if len(parts) > 2 else parts[1:])))


def tenants_share_keys(patch: Patch) -> None:
    from outlast.service import idempotency
    from outlast.store.sqlite.store import SqliteStore

    load = SqliteStore.load

    async def of_acme(self: Any, kind: Any, key: Any) -> Any:
        return await load(self, kind, ("acme", *key[1:]) if kind.name == "request" else key)

    patch.setattr(idempotency, "Row", _RowOfAcme(idempotency.Row))
    replace(patch, load, of_acme)


class _RowOfAcme:
    """The row class of a request; every row it makes belongs to tenant acme."""

    def __init__(self, kept: Any) -> None:
        self._kept = kept

    def __call__(self, tenant: str, *rest: Any) -> Any:
        return self._kept("acme", *rest)

    def __instancecheck__(self, each: object) -> bool:
        return isinstance(each, self._kept)


def no_mark_in_flight(patch: Patch) -> None:
    from outlast.service import idempotency

    patch.setattr(idempotency, "IN_FLIGHT", -1_000)


def uncertain_frees_the_key(patch: Patch) -> None:
    from outlast.errors import Uncertain

    patch.setattr(Uncertain, "landed", False)


def one_tenant_for_all(patch: Patch) -> None:
    from outlast.service.identity import Principal
    from outlast.service.service_state import ServiceState

    kept = ServiceState.operations

    def of_acme(self: Any, who: Any) -> Any:
        return kept(self, Principal("acme", who.name, who.roles, (), person=True))

    replace(patch, kept, of_acme)


def unsealed_cursors(patch: Patch) -> None:
    from outlast.service.cursors import Cursors

    replace(patch, Cursors._signature, lambda self, request, tenant, place: bytes(16))


def any_origin(patch: Patch) -> None:
    from outlast.service.identity import listen

    replace(patch, listen.check_origin, lambda scope, *, local_only: None)


def any_media_type(patch: Patch) -> None:
    from outlast.service import request_limits

    replace(patch, request_limits._check_media_type, lambda value, wanted: None)


def any_depth(patch: Patch) -> None:
    from outlast.service import strict_json

    replace(patch, strict_json.check_shape, lambda given: None)


def any_body_size(patch: Patch) -> None:
    from outlast.service import request_limits

    kept = request_limits.read_body
    replace(patch, kept, lambda request, bounds: kept(request, changed(bounds, body_bytes=10**9)))


def no_security_headers(patch: Patch) -> None:
    from outlast.service import request_limits

    patch.setattr(request_limits, "SAFE", ())


def errors_in_full(patch: Patch) -> None:
    from outlast.service import problems

    replace(patch, problems.for_callers, lambda error, scope: error)


def unbounded_stream(patch: Patch) -> None:
    from outlast.service import event_stream

    patch.setattr(event_stream, "BUFFER", 10**9)


def no_first_poll(patch: Patch) -> None:
    from outlast.service.event_poller import EventPoller

    async def nothing(self: EventPoller) -> None:
        return None

    replace(patch, EventPoller.begin, nothing)


def moves_not_indexed(patch: Patch) -> None:
    from outlast.store.queries import Moving

    replace(patch, Moving.answer, lambda self, found: ())


def answers_of_other_requests_believed(patch: Patch) -> None:
    from outlast.client import service_connection as connection

    patch.setattr(connection, "is_of", lambda answer, path: True)
    patch.setattr(connection, "is_answer_to", lambda said, asked: True)


def opened_streams_are_signs(patch: Patch) -> None:
    from outlast.client.service_client import StreamOutage

    def received(self: StreamOutage, *, opened: bool) -> None:
        self._opened, self._since, self._failures, self._reported = True, None, 0, False

    replace(patch, StreamOutage.received, received)
