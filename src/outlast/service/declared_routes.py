"""Routes of `/v1` that come from the declarations in `outlast.operations`.

An operation with a description has a route without further code: `served` makes it, and the handler in `Operations`
answers. `answers` marks a function that answers otherwise, for instance with another header. Both take path, method,
parameters, body and response from the declaration. Routes whose parameters no request has are written by hand, and a
test lists them.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import MISSING, dataclass
from typing import Annotated, Any, Final, Generic, TypeVar

from fastapi import APIRouter, Query
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from starlette.requests import Request
from starlette.responses import Response

from outlast.insight.shown_rows import after_commit
from outlast.models import PagedList
from outlast.models.approvals import ApprovalSummary
from outlast.models.runs import RequestRecorded, RunSummary
from outlast.operations.bodies import body_of
from outlast.operations.declaration import Operation, OperationRequest, SentField, sent_fields
from outlast.runtime.operations import Operations
from outlast.service.conditional import (
    IfMatch,
    etag,
    expected_version,
    on_approval,
    on_run,
    required_version,
)
from outlast.service.cursors import link_to_next
from outlast.service.request_parts import (
    ApprovalId,
    CauseId,
    DeliveryId,
    EffectId,
    IdempotencyKey,
    PathName,
    PromptId,
    RunId,
    WebhookId,
    WorkerId,
    parse_effect_id,
)
from outlast.service.secured_route import SecuredRoute
from outlast.service.service_state import ServiceState

Q = TypeVar("Q", bound=OperationRequest[Any])
PATH: Final = {
    "run": RunId, "approval": ApprovalId, "name": PathName, "webhook": WebhookId, "delivery": DeliveryId,
    "worker": WorkerId, "effect": EffectId, "other": RunId, "cause": CauseId,
    "prompt": PromptId,
}  # fmt: skip
"""Types of the names in paths."""
HTTP, RESPONSE, BODY, IF_MATCH, KEY = "http", "to", "ask", "if_match", "key"
DECLARED: Final = "__declared__"
"""Attribute of an endpoint that comes from a declaration: its operation."""


@dataclass(frozen=True)
class ServedCall(Generic[Q]):
    """One valid request of a declared operation, and the response that is being made."""

    operation: Operation[Q, Any]
    asked: Q
    ops: Operations
    state: ServiceState
    http: Request
    response: Response
    key: str
    """The Idempotency-Key, or ''."""

    async def perform(self) -> Any:
        """Return what the handler of the operation answers. Adds the present state to a conflict about a version."""

        def act() -> Awaitable[Any]:
            return self.ops.perform(self.asked)

        match self.operation.conditional:
            case "run":
                return await on_run(self.ops, self.http.path_params["run"], act)
            case "approval":
                return await on_approval(self.ops, self.http.path_params["approval"], act)
            case _:
                return await act()

    async def whole(self) -> Any:
        """Perform the operation and return its whole response."""
        answer = await self.perform()
        if self.operation.response is RequestRecorded:
            run = await after_commit(self.ops.run_summary(self.http.path_params["run"]))
            self.response.headers["ETag"] = etag(run.version)
            return RequestRecorded(run=run)
        return self.operation.response_with(self.asked, answer)


Answer = Callable[[ServedCall[Q]], Awaitable[Any]]


class DeclaredRouter(APIRouter):
    """Router below `/v1` whose routes are secured, and which makes routes of declared operations."""

    def __init__(self) -> None:
        super().__init__(prefix="/v1", route_class=SecuredRoute)

    def serve(self, operation: Operation[Any, Any]) -> None:
        """Add the route of an operation, which its handler in `Operations` answers."""
        self._add(operation, operation.description, ServedCall.whole, None)

    def answers(
        self, operation: Operation[Q, Any], *, responses: dict[int | str, dict[str, Any]] | None = None
    ) -> Callable[[Answer[Q]], Answer[Q]]:
        """Add the route of an operation that the marked function answers. Its docstring is the description.

        Raises TypeError if the function has another name than the operation, or the operation another description.
        """

        def add(answer: Answer[Q]) -> Answer[Q]:
            name = getattr(answer, "__name__", "")
            if name != operation.id:
                raise TypeError(f"{name} answers {operation.id}: give it the same name")
            if operation.description:
                raise TypeError(f"{name} is answered twice: leave its description to the docstring of the function")
            self._add(operation, inspect.getdoc(answer) or "", answer, responses)
            return answer

        return add

    def _add(
        self,
        operation: Operation[Any, Any],
        description: str,
        answer: Answer[Any],
        responses: dict[int | str, dict[str, Any]] | None,
    ) -> None:
        self.add_api_route(
            operation.path,
            endpoint_of(operation, answer),
            methods=[operation.method],
            operation_id=operation.id,
            response_model=operation.response,
            status_code=operation.status_code,
            summary=operation.summary,
            description=description,
            tags=[operation.tag],
            responses=responses,
        )


def served(operations: Iterable[Operation[Any, Any]]) -> DeclaredRouter:
    """Return the routes of the operations that need no written function."""
    router = DeclaredRouter()
    for each in operations:
        if each.description:
            router.serve(each)
    return router


def endpoint_of(operation: Operation[Any, Any], answer: Answer[Any]) -> Callable[..., Awaitable[Any]]:
    """Return the endpoint of an operation: it makes the request of its parameters, and completes the response."""
    fields = sent_fields(operation)
    pages = any(each.field == "cursor" for each in fields)
    numbered = not pages and any(each.field == "after" for each in fields)

    async def endpoint(**given: Any) -> Any:
        http, response, key = given[HTTP], given[RESPONSE], given.get(KEY) or ""
        state: ServiceState = http.app.state.service
        ops: Operations = http.state.operations
        if pages:
            given["cursor"] = await state.cursors.open(http, ops.tenant, given["cursor"])
        asked = asked_of(operation, given)
        found = await answer(ServedCall(operation, asked, ops, state, http, response, key))
        if isinstance(found, RunSummary | ApprovalSummary):
            response.headers["ETag"] = etag(found.version)
        if pages:
            further = await state.cursors.seal(http, response, ops.tenant, found.next_cursor)
            return found.model_copy(update={"next_cursor": further})
        if numbered and isinstance(found, PagedList) and found.next_cursor:
            link_to_next(http, response, after=found.next_cursor)
        return found

    endpoint.__name__ = operation.id
    endpoint.__signature__ = inspect.Signature(parameters_of(operation))  # type: ignore[attr-defined]  # FastAPI reads it
    setattr(endpoint, DECLARED, operation)
    return endpoint


def asked_of(operation: Operation[Q, Any], given: dict[str, Any]) -> Q:
    """Return the request that has the values of these parameters. None leaves the default of the request, if any."""
    values: dict[str, Any] = {}
    for each in sent_fields(operation):
        if each.field == "effect":  # one id in the path for three fields of the request
            values["run"], values["visit"], values["key"] = parse_effect_id(given[each.field])
            continue
        value = None
        if each.kind in ("path", "query"):
            value = given[each.field]
        elif each.kind == "body":
            value = getattr(given[BODY], each.name)
        elif each.kind == "version":
            kind = str(operation.conditional)
            what = "the effect" if kind == "effect" else f"{kind} {given[kind]}"
            read = required_version if operation.if_match_required else expected_version
            value = read(given[IF_MATCH], what=what)
        if value is None and each.default is not MISSING:
            continue
        if each.whole:  # the default of the request, with the fields that the body has
            whole = values.get(each.whole, getattr(operation.request, each.whole))
            values[each.whole] = whole._replace(**{each.field: value})
        else:
            values[each.field] = value
    return operation.request(**values)


def parameters_of(operation: Operation[Any, Any]) -> list[inspect.Parameter]:
    """Return the parameters of the endpoint of an operation, as FastAPI reads them."""
    fields = sent_fields(operation)
    found = [_parameter(HTTP, Request), _parameter(RESPONSE, Response)]
    found += [_parameter(each.field, PATH[each.name]) for each in fields if each.kind == "path"]
    if any(each.kind == "body" for each in fields):
        found.append(_parameter(BODY, body_of(operation)))
    found += [_query(each) for each in fields if each.kind == "query"]
    if operation.conditional:
        found.append(_parameter(IF_MATCH, IfMatch, None))
    if operation.changes:
        found.append(_parameter(KEY, IdempotencyKey, None))
    return found


def _parameter(name: str, of: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=of, default=default)


def _query(field: SentField) -> inspect.Parameter:
    info = FieldInfo.from_annotation(field.type)
    query = Query(alias=field.name, description=info.description, examples=info.examples)
    default = field.default if info.default is PydanticUndefined else info.default
    default = inspect.Parameter.empty if default is MISSING else default
    return _parameter(field.field, Annotated[info.annotation, *info.metadata, query], default)
