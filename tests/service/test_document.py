"""The OpenAPI document lists every operation, and answers have the fields of their models."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs

from outlast.models.effects import effect_id
from outlast.operations import OPERATIONS
from outlast.operations.bodies import body_of
from outlast.service.identity import permissions
from outlast.service.openapi import EXAMPLES
from tests.service.conftest import Running, Service
from tests.service.examples import declared_bodies, kept, tidied

AGAIN = "draw the examples again: python -m tests.service.examples"
OPEN = {"healthz", "readyz"}


UNKNOWN = {
    "run": "run_0", "approval": "ap_0", "name": "nothing", "effect": effect_id("run_0", 1, "a"), "webhook": "wh_0",
    "delivery": "wh_0:run_0:1", "worker": "w-0", "other": "run_1", "cause": "0", "prompt": "0",
}  # fmt: skip


def operations(service: Service) -> dict[str, tuple[str, str, dict[str, Any]]]:
    return operations_of(service.get("/openapi.json").json())


def operations_of(document: dict[str, Any]) -> dict[str, tuple[str, str, dict[str, Any]]]:
    return {
        operation["operationId"]: (method, path, operation)
        for path, item in document["paths"].items()
        for method, operation in item.items()
    }


def test_the_table_of_permissions_has_every_operation(service: Service) -> None:
    found = operations(service)
    assert len(found) >= 35
    assert set(found) - OPEN <= set(permissions().roles)


def test_every_operation_documents_its_errors(service: Service) -> None:
    document = service.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    for name, (method, path, operation) in operations(service).items():
        if name in OPEN:
            continue
        assert operation["summary"] and operation["description"], name
        assert all(each.get("description") for each in operation.get("parameters", ())), name
        assert "application/problem+json" in operation["responses"]["422"]["content"], name
        if method == "post":
            assert any(p["name"] == "Idempotency-Key" for p in operation.get("parameters", ())), name
        assert path.startswith("/v1/") or name == "get_metrics", path
        assert {"400", "414", "431"} <= set(operation["responses"]), name
    decide, release = (operations(service)[name][2] for name in ("decide_approval", "resume"))
    assert "428" in decide["responses"] and "404" in release["responses"]
    assert service.post("/v1/pauses/resume", {"what": "workflow", "name": "nothing"}).status_code == 404
    (tag,) = [each for each in decide["parameters"] if each["name"] == "If-Match"]
    assert tag["required"] and tag["schema"]["type"] == "string"


def test_answers_to_names_of_nothing_are_documented(tmp_path: Path) -> None:
    """Each example of a body is sent, and each path with ids of nothing: `Running` compares all answers."""
    with Running(f"sqlite:{tmp_path / 'outlast.db'}", worker=False) as service:
        document = service.get("/openapi.json").json()
        found = {}
        for name, (method, path, operation) in operations(service).items():
            if name in (*OPEN, "stream_events"):
                continue
            body = None
            if "requestBody" in operation:
                schema = operation["requestBody"]["content"]["application/json"]["schema"]
                (body, *_) = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]["examples"]
            address = re.sub(r"{(\w+)}", lambda match: UNKNOWN[match[1]], path)
            tag = {"If-Match": '"v1"'} if name == "decide_approval" else {}
            found[name] = service.client.request(method, address, json=body, headers=tag)
            assert str(found[name].status_code) in operation["responses"], (name, found[name].text)
    assert {name for name, (_, path, _) in operations_of(document).items() if "{" in path} <= {
        name for name, answer in found.items() if answer.status_code == 404
    }, "each path that names nothing is 404"
    assert found["assign_attention"].status_code == 404, "and a body"


def test_schema_names_are_unique(service: Service) -> None:
    """Two models of one name would become `X-Input` and `X-Output`, for which client generators make no type."""
    schemas = service.get("/openapi.json").json()["components"]["schemas"]
    titles = [schema["title"] for schema in schemas.values() if "title" in schema]
    assert not [name for name in schemas if "-" in name] and len(set(titles)) == len(titles)


def test_answers_match_the_document(service: Service) -> None:
    """Of every model that has many fields."""
    run = service.start()
    approval, tag = service.asked(run)
    whole = {
        "get_approval": service.get(f"/v1/approvals/{approval}").json(),
        "decide_approval": service.decide(approval, tag).json(),
        "get_run": service.ended(run),
        "list_runs": service.get("/v1/runs").json(),
        "list_effects": service.get(f"/v1/runs/{run}/effects").json(),
        "list_workers": service.get("/v1/workers").json(),
        "list_versions": service.get("/v1/versions").json(),
        "get_timeline": service.get(f"/v1/runs/{run}/timeline").json(),
    }
    document = service.get("/openapi.json").json()
    for name, body in whole.items():
        operation = operations(service)[name][2]
        schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
        _same(document, schema, body, name)


def test_every_body_has_an_example_and_every_example_is_valid(service: Service) -> None:
    document = service.get("/openapi.json").json()
    schemas = document["components"]["schemas"]
    named = {"Problem"}
    for _, _, operation in operations(service).values():
        for part in (operation.get("requestBody", {}), *operation["responses"].values()):
            for kind, content in part.get("content", {}).items():
                if kind == "application/json":
                    named.add(content["schema"]["$ref"].rpartition("/")[2])
    assert {name for name in named if not schemas[name].get("examples")} == set(), AGAIN
    for name, schema in schemas.items():
        for example in schema.get("examples", ()):
            whole = {**schema, "components": document["components"]}
            wrong = [str(error) for error in jsonschema_rs.validator_for(whole).iter_errors(example)]
            assert wrong == [], f"{name}: {AGAIN}"
            if not name.endswith("Input") and name in named:
                _known(document, schema, example, name)


def _known(document: Any, schema: dict[str, Any], value: Any, where: str) -> None:
    """Check that every field of an example is in the document."""
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if isinstance(value, dict) and "properties" in schema and not schema.get("additionalProperties"):
        assert set(value) <= set(schema["properties"]), f"{where}: {AGAIN}"
        for name, each in value.items():
            _known(document, schema["properties"][name], each, f"{where}.{name}")
    elif isinstance(value, list) and "items" in schema:
        for each in value:
            _known(document, schema["items"], each, where)


def _same(document: Any, schema: dict[str, Any], value: Any, where: str) -> None:
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if isinstance(value, dict) and "properties" in schema:
        assert set(value) == set(schema["properties"]), where
        for name, each in value.items():
            _same(document, schema["properties"][name], each, f"{where}.{name}")
    elif isinstance(value, list) and "items" in schema:
        for each in value:
            _same(document, schema["items"], each, where)


def test_an_example_stays_until_its_fields_change() -> None:
    """So a new operation adds lines to examples.json and changes none."""
    shown = {"run": "r-1", "waits": [{"at": "09:00"}], "ended": None, "left": []}
    again = {"run": "r-2", "waits": [], "ended": "10:00", "left": [{"kind": "x"}]}
    renamed = {**again, "waits": [{"since": "09:00"}]}
    old = {"RunDetail": shown, "CancelRun": {"reason": "late"}, "Gone": {}}
    assert kept(old, {"RunDetail": again, "CancelRun": {"reason": "x"}}) == {
        "RunDetail": shown,
        "CancelRun": {"reason": "late"},
    }
    assert kept(old, {"RunDetail": renamed, "New": {"n": 1}}) == {"RunDetail": renamed, "New": {"n": 1}}
    assert kept({"CancelRun": {"why": "late"}}, {"CancelRun": {"reason": "x"}}) == {"CancelRun": {"reason": "x"}}


def test_every_body_has_a_declared_example() -> None:
    """Which is valid, so the examples lack no body of a new operation."""
    bodies = {body_of(each).__name__: body_of(each) for each in OPERATIONS}
    for name, body in declared_bodies().items():
        bodies[name].model_validate_json(json.dumps(body))
    assert {name for name, body in bodies.items() if any(f.is_required() for f in body.model_fields.values())} <= {
        *declared_bodies()
    }


def test_no_example_has_an_address_of_this_machine() -> None:
    assert not re.findall(r"127\.0\.0\.1|localhost", EXAMPLES.read_text(encoding="utf-8"))


def test_two_recordings_of_examples_are_equal() -> None:
    """Ids are replaced by their order, instants by their ten minutes, and measurements by fixed values."""

    def text(run: str, at: str, later: str, ms: int) -> str:
        body = {
            "run": run, "again": run, "effect": effect_id(run, 1, "service-ring/A-1"),
            "at": f"2026-11-28T22:{at}Z",
            "later": f"2026-11-28T22:{later}Z", "until": f"2026-11-29T22:{later}Z",
            "lease_left_ms": ms, "settles_in_ms": 0, "took_ms": ms,
            "digest": f"{ms:064x}", "since": f"{ms / 1_000}s ago",
            "secret": f"whsec_{run}-+/=",
        }  # fmt: skip
        return json.dumps(body)

    one = tidied(text("call_0123456789ab", "10:00.500", "10:01.700", 41))
    assert tidied(text("call_ba9876543210", "19:59.001", "21:40.000", 932)) == one
    found = json.loads(one)
    assert (found["later"], found["until"]) == ("2026-03-02T09:00:00.000Z", "2026-03-03T09:00:00.000Z")
    assert found["run"] == found["again"] and found["effect"] == effect_id(found["run"], 1, "service-ring/A-1")
    assert found["settles_in_ms"] == 0 and found["since"] == "2m ago"
    assert found["secret"] == "whsec_…"
    assert "call_0123456789ab" not in one
