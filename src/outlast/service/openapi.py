"""The OpenAPI document: FastAPI's description of the routes, plus the problems that each can answer."""

import json
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from outlast.operations import OPERATIONS
from outlast.service.responses import Problem

# Which errors an operation raises is decided far below its route. So each operation lists every status of
# `problems.STATUS` that its kind can have: any request, one that names a resource in its path, one that writes.
EVERYWHERE: Final = {
    400: "The head is ambiguous, or is not HTTP.",
    401: "The credential is missing or invalid.",
    403: "The caller may not do this.",
    409: "The request conflicts with the recorded state, or a stored row cannot be read.",
    414: "The URL is too long.",
    422: "A parameter or the body is invalid.",
    429: "Too many failed credentials, or too many requests at a time. See `Retry-After`.",
    431: "The headers are too large.",
    500: "A fault of Outlast, or a store that cannot be used. The log has the details under `request_id`.",
    503: "The store or the issuer's keys cannot be reached. With `Retry-After` the request may be sent again. With "
    "OUT-505 it may have been executed: follow `hint`, and do not repeat it without `Retry-After`.",
}
OF_ONE: Final = {404: "Not found."}
OF_WRITES: Final = {
    **OF_ONE,  # a body names resources, too
    408: "The body arrived too slowly.",
    410: "The run has ended.",
    412: "The resource has changed since it was shown. `current` has its present state.",
    413: "The body is too large.",
    415: "The body is not JSON.",
}
OF_DECISIONS: Final = {428: "If-Match is missing."}
OF_STREAMS: Final = {406: "This operation only answers with a stream."}
PROBLEM: Final = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
EXAMPLES: Final = Path(__file__).with_name("examples.json")  # written by python -m tests.service.examples
OPEN: Final = frozenset({"healthz", "readyz"})
DECISIONS: Final = frozenset(each.id for each in OPERATIONS if each.if_match_required)


def draw(app: FastAPI, *, secured: bool) -> dict[str, Any]:
    """Return the OpenAPI document of the application."""
    document: dict[str, Any] = get_openapi(
        title=app.title, version=app.version, summary=app.summary, description=app.description, routes=app.routes
    )
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas.update(problem.pop("$defs", {}))
    schemas["Problem"] = problem
    for name, example in json.loads(EXAMPLES.read_text(encoding="utf-8")).items():
        schemas[name]["examples"] = [example]
    if secured:
        document["components"]["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"bearer": []}]
    for path, item in document["paths"].items():
        for method, operation in item.items():
            _add_problems(path, method, operation)
    return document


def _add_problems(path: str, method: str, operation: dict[str, Any]) -> None:
    responses = operation["responses"]
    if operation["operationId"] in OPEN:
        responses.pop("422", None)
        operation["security"] = []
        return
    can = dict(EVERYWHERE)
    if "{" in path:
        can |= OF_ONE
    if method != "get":
        can |= OF_WRITES
    if operation["operationId"] in DECISIONS:
        can |= OF_DECISIONS
        (tag,) = [each for each in operation["parameters"] if each["name"] == "If-Match"]
        (text,) = [each for each in tag["schema"].pop("anyOf") if each["type"] != "null"]
        tag["required"] = True
        tag["schema"] |= text
    if operation["operationId"] == "stream_events":
        can |= OF_STREAMS
    for status, text in can.items():
        responses[str(status)] = {"description": text, "content": PROBLEM}
