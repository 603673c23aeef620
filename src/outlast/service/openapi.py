"""The OpenAPI document: what FastAPI draws from the routes, with our one form of problems and its status codes."""

import json
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from outlast.service.admin_responses import Problem

# Which problems an operation can answer beyond those that every one can.
EVERYWHERE: Final = {
    400: "The head is ambiguous, or is no HTTP.",
    401: "Who are you?",
    403: "Not allowed.",
    414: "The address is too long.",
    422: "The request does not fit.",
    429: "Too many failures, or too many requests at once: `Retry-After`.",
    431: "The headers are too large.",
    503: "The store cannot be reached, or the issuer's keys: `Retry-After`, and nothing was done. With OUT-505 perhaps "
    "it was done: `hint` says what to do, and without `Retry-After` it must not be sent again as it is.",
}
OF_ONE: Final = {404: "There is none."}
OF_POSTS: Final = {
    408: "The body came too slowly.",
    409: "It contradicts what is recorded.",
    410: "The run has ended.",
    412: "What was seen has changed; `current` has the present state.",
    413: "The body is too large.",
    415: "The body is not JSON.",
}
MAY_MISS: Final = frozenset({"resume"})
"""Operations that name in their body what may not be there."""
OF_DECISIONS: Final = {428: "If-Match is missing."}
OF_STREAMS: Final = {406: "It is a stream only."}
PROBLEM: Final = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
EXAMPLES: Final = Path(__file__).with_name("examples.json")  # drawn by python -m tests.service.examples
OPEN: Final = frozenset({"healthz", "readyz"})


def draw(app: FastAPI, *, secured: bool) -> dict[str, Any]:
    """The document of an application."""
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
    if "{" in path or operation["operationId"] in MAY_MISS:
        can |= OF_ONE
    if method != "get":
        can |= OF_POSTS
    if operation["operationId"] == "decide_approval":
        can |= OF_DECISIONS
        (tag,) = [each for each in operation["parameters"] if each["name"] == "If-Match"]
        (text,) = [each for each in tag["schema"].pop("anyOf") if each["type"] != "null"]
        tag["required"] = True
        tag["schema"] |= text
    if operation["operationId"] == "stream_events":
        can |= OF_STREAMS
    for status, text in can.items():
        responses[str(status)] = {"description": text, "content": PROBLEM}
