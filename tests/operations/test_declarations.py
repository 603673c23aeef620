"""Each operation is declared once: routes, permissions, examples and the methods of clients agree with it."""

import inspect
import json
import re
from collections.abc import Iterator
from dataclasses import MISSING, fields
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints
from urllib.parse import unquote

import pytest
from fastapi.routing import APIRoute

from outlast.client.service_client import COMPOSED as OF_SERVICE
from outlast.client.service_client import ServiceClient
from outlast.client.service_webhooks import ServiceWebhooks
from outlast.models.runs import RequestRecorded
from outlast.operations import BY_REQUEST, OPERATIONS
from outlast.operations import run_operations as runs
from outlast.operations.bodies import body_of as body_of_operation
from outlast.operations.declaration import Operation, OperationRequest, ResponsePart, sent, sent_fields
from outlast.operations.handlers import handlers_of, handles
from outlast.runtime import operations as operations_module
from outlast.runtime import webhooks as webhooks_module
from outlast.runtime.client import Client
from outlast.runtime.operations import Operations
from outlast.runtime.webhooks import Webhooks
from outlast.service.declared_routes import DECLARED, DeclaredRouter, ServedCall, asked_of
from outlast.service.openapi import EXAMPLES
from outlast.service.service_app import ROUTERS
from tests.operations.methods import COMPOSED, METHODS, parts_of, public_methods, requests_of

BY_HAND = {"stream_events": "a stream has no answer that a request could carry"}
"""Operations of `/v1` without a declaration."""
ROUTES_BY_HAND = {
    "list_events": "it is a stream, too, by the headers Accept and Last-Event-ID",
    "get_summary": "it answers 304 by the header If-None-Match",
    **BY_HAND,
}
"""Routes of `/v1` that are not made of a declaration."""
VARIANTS = {runs.GET_RUN_SUMMARY: "clients read the part of get_run that lists have"}
"""Second declarations of an operation."""
WITHOUT_A_METHOD = {
    "list_workflows": "programs name their workflows",
    "list_checkpoints": "`steps` shows them",
    "get_workflow": "each client reads parts of it",
    "start_run": "each client writes `start_run`, because one has the workflow",
    "list_webhooks": "each client writes `webhooks.list`, of which this process reads less",
}
"""Operations that no method of `Client` or `WebhookClient` sends."""


def routes() -> dict[str, APIRoute]:
    """Return the routes of `/v1` by operation id."""
    found = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    return {str(route.operation_id): route for route in found if route.path.startswith("/v1/")}


ROUTES = routes()
ids = [f"{each.id}-{each.request.__name__}" for each in OPERATIONS]
each_operation = pytest.mark.parametrize("operation", OPERATIONS, ids=ids)


def test_every_operation_is_declared_and_no_other() -> None:
    declared = [each.id for each in OPERATIONS if each not in VARIANTS]
    assert sorted([*declared, *BY_HAND]) == sorted(ROUTES)
    assert len(BY_REQUEST) == len(OPERATIONS), "one request, one operation"


def test_every_other_route_is_made_of_its_declaration() -> None:
    by_hand = {name for name, route in ROUTES.items() if not hasattr(route.endpoint, DECLARED)}
    assert by_hand == {*ROUTES_BY_HAND}
    wrong = {name for name, route in ROUTES.items() if getattr(route.endpoint, DECLARED, None) in VARIANTS}
    assert not wrong


def test_a_function_that_answers_another_operation_or_one_that_is_served_is_refused() -> None:
    router = DeclaredRouter()

    async def extend_run(call: ServedCall[Any]) -> None: ...

    with pytest.raises(TypeError, match=r"extend_run answers cancel_run: give it the same name"):
        router.answers(runs.CANCEL_RUN)(extend_run)
    with pytest.raises(TypeError, match="extend_run is answered twice"):
        router.answers(runs.EXTEND_RUN)(extend_run)
    assert not router.routes


READ_AFTERWARDS = {"decide_approval", "set_budget", "resolve_effect"}
"""Operations whose route reads a row afterwards, as do those with the response `RequestRecorded`."""
PARTS = [
    each
    for each in OPERATIONS
    if isinstance(each.answer, ResponsePart) and each.response is not RequestRecorded and each.id not in READ_AFTERWARDS
]


@pytest.mark.parametrize("operation", PARTS, ids=[each.id for each in PARTS])
def test_the_response_of_a_part_has_the_answer_and_fields_of_the_request(operation: Operation[Any, Any]) -> None:
    (kind,) = get_args(operation.request.__orig_bases__[0])
    answer: Any = "why" if kind is str else True if kind is bool else []
    response = operation.response_with(operation.example, answer)
    assert operation.answer_in(response) == answer
    assert getattr(response, "run", "") == getattr(operation.example, "run", "") or "run" not in dict(response)


@each_operation
def test_the_request_of_a_client_arrives_as_it_was_sent(operation: Operation[Any, Any]) -> None:
    """What `sent` writes, the route reads: the same request, but for types that HTTP writes otherwise."""
    request, example = sent(operation, operation.example), operation.example
    given: dict[str, Any] = {"if_match": f'"v{request.version}"' if request.version else None}
    found = re.fullmatch(ROUTES[operation.id].path_regex, f"/v1{request.path}")
    assert found is not None
    given |= {name: unquote(value) for name, value in found.groupdict().items()}
    parameters = {each.alias: each for each in parameters_of(ROUTES[operation.id], "query_params")}
    for each in sent_fields(operation):
        if each.kind == "query":
            value, errors = parameters[each.name].validate(request.query.get(each.name), {}, loc=("query", each.name))
            given[each.field] = value if each.name in request.query and not errors else None
    if request.body:
        given["ask"] = body_of_operation(operation).model_validate_json(json.dumps(request.body))
    arrived = asked_of(operation, given)
    assert sent(operation, arrived) == request
    assert type(arrived) is type(example)


@each_operation
def test_a_route_is_as_its_declaration(operation: Operation[Any, Any]) -> None:
    route = ROUTES[operation.id]
    assert (route.methods, route.path) == ({operation.method}, f"/v1{operation.path}")
    if operation not in VARIANTS:
        assert route.response_model is operation.response
    given = {kind: {each.name for each in sent_fields(operation) if each.kind == kind} for kind in ("path", "query")}
    assert {each.alias for each in parameters_of(route, "path_params")} == given["path"]
    body = {each.name for each in sent_fields(operation) if each.kind == "body"}
    assert body == (set(body_of(route).model_fields) if route.body_field else set())
    assert {each.alias for each in parameters_of(route, "query_params")} == given["query"]
    headers = {each.alias for each in parameters_of(route, "header_params")}
    assert ("If-Match" in headers) == (operation.conditional is not None)
    assert ("Idempotency-Key" in headers) == operation.changes
    assert bool(operation.conditional) == any(each.kind == "version" for each in sent_fields(operation))


def body_of(route: APIRoute) -> Any:
    """Return the model of a route's body."""
    assert route.body_field is not None
    return route.body_field.field_info.annotation


def parameters_of(route: APIRoute, kind: str) -> Iterator[Any]:
    """Return the parameters of a route and of what it depends on."""
    waiting = [route.dependant]
    while waiting:
        one = waiting.pop()
        yield from getattr(one, kind)
        waiting += one.dependencies


@each_operation
def test_the_example_of_a_request_is_valid_for_its_route(operation: Operation[Any, Any]) -> None:
    """So the names, the units and the forms that the client writes are those that the service reads."""
    route, request = ROUTES[operation.id], sent(operation, operation.example)
    found = re.fullmatch(route.path_regex, f"/v1{request.path}")
    assert found is not None
    if route.body_field is not None:
        body_of(route).model_validate_json(json.dumps(request.body))
    else:
        assert request.body == {}
    fields = {each.alias: each for each in parameters_of(route, "query_params")}
    for name, value in request.query.items():
        text = json.dumps(value) if isinstance(value, bool) else str(value)
        _, errors = fields[name].validate(text, {}, loc=("query", name))
        assert not errors, errors


@each_operation
def test_every_body_and_every_answer_has_an_example(operation: Operation[Any, Any]) -> None:
    examples = json.loads(EXAMPLES.read_text(encoding="utf-8"))
    route = ROUTES[operation.id]
    assert operation.response.__name__ in examples or operation in VARIANTS
    if route.body_field is not None:
        assert body_of(route).__name__ in examples or "examples" in body_of(route).model_json_schema(), operation.id


@each_operation
def test_a_request_carries_the_type_of_its_answer(operation: Operation[Any, Any]) -> None:
    (base,) = operation.request.__orig_bases__
    answer: Any = operation.answer
    if isinstance(answer, ResponsePart):
        assert operation.is_composed == (operation.request in OF_SERVICE and answer.read is None)
        hints = {"return": get_args(base)[0]} if answer.read is None else get_type_hints(answer.read)
        answer = hints.pop("return")
        assert set(hints.values()) <= {operation.response, object}, "it reads the response of its operation"
    assert get_args(base) == (answer,)
    assert type(operation.example) is operation.request


# --- methods of clients --------------------------------------------------------------------------
class Parameter(NamedTuple):
    """A parameter of a method, or a field of a request."""

    type: Any
    default: Any
    keyword_only: bool


def bare(hint: Any) -> Any:
    """Return a type without the annotations that say how it is sent."""
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def parameters_of_method(method: Any) -> dict[str, Parameter]:
    """Return the parameters of a method but `self`."""
    hints, (_, *given) = get_type_hints(method), inspect.signature(method).parameters.values()
    return {each.name: Parameter(hints[each.name], each.default, each.kind is each.KEYWORD_ONLY) for each in given}


def parameters_of_request(request: type[OperationRequest[Any]]) -> dict[str, Parameter]:
    """Return the fields of a request as parameters."""
    hints, empty = get_type_hints(request, include_extras=True), inspect.Parameter.empty
    found = dict[str, Parameter]()
    for each in fields(request):  # type: ignore[arg-type]  # every request is a dataclass
        default, only = empty if each.default is MISSING else each.default, bool(each.kw_only)
        if (parts := parts_of(hints[each.name])) is not None:
            found |= {name: Parameter(str, getattr(default, name), only) for name in parts}
        else:
            found[each.name] = Parameter(bare(hints[each.name]), default, only)
    return found


IN_EACH_CLIENT = {
    "attention_of", "effect", "ended", "follow", "input_schema", "move_runs", "not_undone", "now",
    "run_end", "to_undo", "topology", "unfinished", "until", "updates", "worker",
}  # fmt: skip
"""Methods of `Client` that its two clients write by hand, because no single request describes them."""


@pytest.mark.parametrize("kind", [Operations, ServiceClient, Webhooks, ServiceWebhooks])
def test_an_operation_has_one_signature(kind: type) -> None:
    """A client answers or sends requests, so it writes no method of the contract that is one request."""
    again = {name for name in vars(kind) if f"{kind.__mro__[1].__name__}.{name}" in METHODS}
    assert not again
    by_hand = {each for each, method in vars(Client).items() if getattr(method, "__isabstractmethod__", False)}
    assert {each for each in by_hand if not each.startswith("_")} <= {*IN_EACH_CLIENT, "webhooks"}


@pytest.mark.parametrize("name", sorted(IN_EACH_CLIENT))
@pytest.mark.parametrize("kind", [Operations, ServiceClient])
def test_a_method_that_each_client_writes_has_the_parameters_of_the_contract(kind: type[Client], name: str) -> None:
    own, declared = (parameters_of_method(getattr(each, name)) for each in (kind, Client))
    assert str(own) == str(declared), "as text, because each module has its own type variables"


# --- handlers ------------------------------------------------------------------------------------
def test_every_operation_has_a_handler_or_is_by_hand() -> None:
    handled = [*operations_module.HANDLERS, *webhooks_module.HANDLERS]
    assert len({*handled}) == len(handled)
    assert {BY_REQUEST[each] for each in handled} == {*OPERATIONS} - operations_module.BY_HAND


class _Half:
    @handles(runs.CANCEL_RUN)
    async def _cancel_run(self, request: runs.CancelRun) -> None: ...


class _Twice(_Half):
    @handles(runs.EXTEND_RUN)
    async def _one(self, request: runs.ExtendRun) -> None: ...
    @handles(runs.EXTEND_RUN)
    async def _other(self, request: runs.ExtendRun) -> None: ...


def test_an_operation_without_a_handler_or_with_two_is_refused_at_import() -> None:
    with pytest.raises(TypeError, match=r"_Half has no handler of ContinueRun, ExtendRun"):
        handlers_of(_Half, [runs.CANCEL_RUN, runs.CONTINUE_RUN, runs.EXTEND_RUN])
    with pytest.raises(TypeError, match=r"_Twice\._other is a second handler of ExtendRun"):
        handlers_of(_Twice, [])
    assert [*handlers_of(_Half, [runs.CANCEL_RUN])] == [runs.CancelRun]


def test_every_method_is_one_request_or_has_a_reason() -> None:
    assert sorted([*METHODS, *COMPOSED]) == sorted(public_methods())
    assert len({*METHODS.values()}) == len(METHODS), "no request has two methods"


def test_every_operation_has_a_method_or_a_reason() -> None:
    sent_by_one = {request for method in public_methods().values() for request in requests_of(method)}
    assert {each.id for each in OPERATIONS if each.request not in sent_by_one} == {*WITHOUT_A_METHOD}


@pytest.mark.parametrize("name", METHODS)
def test_the_parameters_of_a_method_are_the_fields_of_its_request(name: str) -> None:
    method, request = parameters_of_method(public_methods()[name]), parameters_of_request(METHODS[name])
    assert method == request
    assert [*method] == [*request], "the order is that of positional arguments"
