"""Cursors are only valid for their list, filters and tenant (S3)."""

import asyncio
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from outlast.core.approvals import Actor
from outlast.core.generation import GENERATION
from outlast.core.rows.store_rows import META, Meta
from outlast.errors import InvalidInput
from outlast.models.runs import ResultList
from outlast.operations.run_operations import LIST_RESULTS, ListResults
from outlast.runtime.operations import Operations
from outlast.runtime.stores import open_store
from outlast.service import cursors as module
from outlast.service.cursors import Cursors
from outlast.service.declared_routes import ServedCall, endpoint_of
from outlast.service.store_secret import StoreSecret
from outlast.upkeep.export import export
from tests.service.flows import wishes

PLACE = '["2026-01-01","run_1"]'


def asked(path: str = "/v1/runs", query: str = "limit=1&workflow=wish") -> Request:
    return Request({"type": "http", "method": "GET", "scheme": "http", "server": ("h", 80), "path": path,
                    "query_string": query.encode(), "headers": []})  # fmt: skip


async def opened(cursors: Cursors, cursor: str, request: Request, tenant: str = "acme") -> str:
    """Return the position in a cursor, or 'refused'."""
    try:
        return await cursors.open(request, tenant, cursor)
    except InvalidInput:
        return "refused"


@pytest.mark.req("RUN-5")
def test_a_cursor_is_bound_to_tenant_list_and_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []
    whole = module.hmac.compare_digest
    monkeypatch.setattr(module.hmac, "compare_digest", lambda a, b: compared.append((a, b)) or whole(a, b))

    async def story() -> None:
        store, other = await open_store("memory:"), await open_store("memory:")
        cursors = Cursors(StoreSecret(store))
        cursor = await cursors.seal(asked(), Response(), "acme", PLACE)
        assert await opened(cursors, cursor, asked()) == PLACE
        assert await opened(Cursors(StoreSecret(store)), cursor, asked(query="workflow=wish&limit=9&cursor=x")) == PLACE
        assert compared and all(len(a) == len(b) >= 16 for a, b in compared), "in constant time, and not guessed"
        for request, tenant in [
            (asked(), "globex"), (asked("/v1/approvals"), "acme"), (asked("/v1/runs/"), "acme"),
            (asked(query="limit=1"), "acme"), (asked(query="workflow=job"), "acme"),
            (asked(query="workflow=wish&status=done"), "acme"), (asked(query="workflow=wish&workflow=job"), "acme"),
        ]:  # fmt: skip
            assert await opened(cursors, cursor, request, tenant) == "refused", (request.url, tenant)
        assert await opened(Cursors(StoreSecret(other)), cursor, asked()) == "refused", "of another store"
        await store.close()
        await other.close()

    asyncio.run(story())


@pytest.mark.req("RUN-5")
def test_exports_do_not_contain_the_cursor_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it was derived from the generation, which exports contain."""
    keys: list[bytes] = []
    digest = module.hmac.digest
    monkeypatch.setattr(module.hmac, "digest", lambda key, *more: keys.append(key) or digest(key, *more))

    async def story() -> None:
        store = await open_store("memory:")
        ops = Operations(store, tenant="acme", actor=Actor("ana"), workflows={"wish": wishes})
        await ops.start_run("wish", {"text": "?"}, run_id="r1")
        services = [Cursors(StoreSecret(store)) for _ in range(3)]  # that make their first cursor at the same moment
        made = await asyncio.gather(*(each.seal(asked(), Response(), "acme", PLACE) for each in services))
        assert len({*made}) == 1 and len({*keys}) == 2 and min(map(len, keys)) >= 32
        document = await export(ops, "r1", whole=True)
        generation = await store.load(META, GENERATION)
        assert isinstance(generation, Meta)
        shown = [json.dumps(document).encode(), generation.value.encode()]
        assert not any(key in text for text in shown for key in keys)
        guesses = [sha256(b"cursor" + text).digest() for text in (*shown, b"")]
        assert not {*keys} & {*guesses}
        await store.close()

    asyncio.run(story())


@pytest.mark.req("RUN-5")
def test_a_changed_or_invented_cursor_is_refused() -> None:
    async def story() -> None:
        store = await open_store("memory:")
        cursors = Cursors(StoreSecret(store))
        cursor = await cursors.seal(asked(), Response(), "acme", PLACE)
        raw = urlsafe_b64decode(cursor)
        changed = [raw[:n] + bytes([raw[n] ^ 1]) + raw[n + 1 :] for n in range(len(raw))]
        made_up = [raw[:n] for n in range(1, len(raw))] + [raw + b"0", PLACE.encode(), bytes(16) + PLACE.encode()]
        for each in [*changed, *made_up]:
            assert await opened(cursors, urlsafe_b64encode(each).decode(), asked()) == "refused"
        for text in ("ä", "*", "a", "====", cursor[:-1], "x'; DROP TABLE run; --", "\0"):
            assert await opened(cursors, text, asked()) == "refused", text
        assert await opened(cursors, "", asked()) == "", "the first page"
        await store.close()

    asyncio.run(story())


@pytest.mark.parametrize(("next_cursor", "link"), [("7", "/v1/runs/r1/results?limit=2&after=7"), ("", "")])
def test_a_page_whose_cursor_is_a_number_links_to_the_next(next_cursor: str, link: str) -> None:
    async def page(call: ServedCall[ListResults]) -> ResultList:
        assert call.asked == ListResults("r1", after=3, limit=2)
        return ResultList(results=[], count=9, next_cursor=next_cursor)

    http, response = asked("/v1/runs/r1/results", "limit=2&after=3"), Response()
    http.scope["app"] = SimpleNamespace(state=SimpleNamespace(service=None))
    http.state.operations = None
    answer: Any = endpoint_of(LIST_RESULTS, page)(http=http, to=response, run="r1", after=3, limit=2)
    assert asyncio.run(answer).count == 9
    assert response.headers.get("link", "") == (f'<{link}>; rel="next"' if link else "")
