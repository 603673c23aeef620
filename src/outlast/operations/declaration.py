"""The declaration of an operation: its request, its answer, its path and method, and the roles that may use it.

A request is a frozen dataclass. Its fields are the parameters of the client's method: name, type, default, and whether
a name is required. Where a field goes in HTTP follows from the path and the method, or from its `Sent`; its limits and
its text in the OpenAPI document are its `Field`. So a name, a type, a default or a limit is written once: `sent` turns
every request into the parts of an HTTP request, and `service/declared_routes.py` makes the route from the same fields.
"""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, MISSING, Field, dataclass, fields
from functools import cache
from typing import Annotated, Any, Final, Generic, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import quote

from outlast.core.durations import Duration, timedelta_of
from outlast.models import RequestBody

R_co = TypeVar("R_co", covariant=True)


class OperationRequest(Generic[R_co]):
    """Values of one call of an operation. `R_co` is the type of its answer, which the method of a client returns."""


Q = TypeVar("Q", bound=OperationRequest[Any])
R = TypeVar("R")
M = TypeVar("M")
Method = Literal["GET", "POST", "DELETE"]
Shown = Literal["run", "approval", "effect"]
"""Kind of row whose version a request may name, as the caller was shown it."""
Kind = Literal["path", "query", "body", "version", "key"]
"""Place of a field in HTTP."""
VERSION: Final = "version"
"""Field of a request that is sent as `If-Match`, if its operation is conditional."""
IDEMPOTENCY_KEY: Final = "idempotency_key"
"""Field of a request that is sent as `Idempotency-Key`."""


class Sent(NamedTuple):
    """Form of a field over HTTP, if it is not sent under its own name and as it is."""

    name: str = ""
    write: Callable[[Any], Any] | None = None
    """Function that turns a value other than None into JSON or the text of a parameter."""
    of: str = ""
    """Property of the request in which the field is sent, with others; the path names this property."""
    read: Any = None
    """Type in HTTP, if it is narrower than that of the request."""
    parts: Mapping[str, Any] | None = None
    """Types in HTTP of the fields of the value, a named tuple, if they are sent beside the other fields of a body."""


class ResponsePart(NamedTuple, Generic[R]):
    """An answer that is less than the response of HTTP. In this process, nothing more is read than the answer."""

    response: type[Any]
    read: Callable[[Any], R] | None
    """Function that returns the answer in a response. None: the client over HTTP finds it by further requests."""


def part(response: type[M], read: Callable[[M], R]) -> ResponsePart[R]:
    """Return an answer that is a part of a response."""
    return ResponsePart(response, read)


def recorded(response: type[Any]) -> ResponsePart[None]:
    """Return the answer None, as a method of a client returns that only records. HTTP shows the row afterwards."""
    return ResponsePart(response, _nothing)


def composed(response: type[Any], answer: type[R]) -> ResponsePart[R]:
    """Return an answer that the response does not have."""
    return ResponsePart(response, None)


def _nothing(_: object) -> None:
    return None


@dataclass(frozen=True, eq=False)  # each is one value, compared by identity
class Operation(Generic[Q, R]):
    """One operation of `/v1`. `id` is its operation id: the name in routes, permissions, audit and documents."""

    id: str
    request: type[Q]
    answer: type[R] | ResponsePart[R]
    """Type of the answer, which is the response of HTTP or a part of it."""
    method: Method
    path: str
    """Path below `/v1`. A name in braces is a field or a property of the request."""
    roles: tuple[str, ...]
    """Least roles that may use it. Roles that include them may, too."""
    example: Q
    """Request as a reader would send it. A test sends it to the route."""
    _: KW_ONLY
    summary: str
    """Title of its route, in the OpenAPI document and in docs/http.md."""
    tag: str
    """Group of its route in the OpenAPI document."""
    description: str = ""
    """Text of its route, which its handler answers. Empty: a function in `service/routes` answers and describes it."""
    people_only: bool = False
    """True if the credential of a program is refused, whatever roles it has."""
    conditional: Shown | None = None
    """Kind of row whose version `If-Match` may name."""
    if_match_required: bool = False
    """True if a request without a version is refused."""
    body_name: str = ""
    """Name of the body in the OpenAPI document, if not that of the request."""
    body: type[RequestBody] | None = None
    """Model of the body, if answers show it, too. All others come from the fields of the request."""
    status_code: int = 200
    """Status of the response of HTTP."""

    @property
    def response(self) -> type[Any]:
        """Model of the response of HTTP."""
        return self.answer.response if isinstance(self.answer, ResponsePart) else self.answer

    @property
    def is_composed(self) -> bool:
        """True if the client over HTTP finds the answer by further requests."""
        return isinstance(self.answer, ResponsePart) and self.answer.read is None

    def answer_in(self, response: Any) -> R:
        """Return the answer in a response of HTTP, which must not be `composed`."""
        if not isinstance(self.answer, ResponsePart):
            whole: R = response
            return whole
        assert self.answer.read is not None, f"the answer of {self.id} is composed"
        part: R = self.answer.read(response)
        return part

    def response_with(self, request: Q, answer: R) -> Any:
        """Return the response of HTTP with an answer. What else a part of it requires is a field of the request."""
        if not isinstance(self.answer, ResponsePart):
            return answer
        required = [name for name, field in self.response.model_fields.items() if field.is_required()]
        given = {name: getattr(request, name) for name in required if hasattr(request, name)}
        (part,) = (name for name in required if name not in given)
        return self.response(**given, **{part: answer})

    @property
    def changes(self) -> bool:
        """True if it may change something, or reads with a body. It takes an Idempotency-Key, and is audited."""
        return self.method != "GET"


class SentRequest(NamedTuple):
    """Parts of an HTTP request."""

    path: str
    """Path below `/v1`, with quoted values."""
    query: Mapping[str, Any]
    body: Mapping[str, Any]
    version: int
    """Version for `If-Match`; 0 sends none."""
    key: str
    """The Idempotency-Key that the caller chose, or ''."""


def sent(operation: Operation[Any, Any], request: OperationRequest[Any]) -> SentRequest:
    """Return the parts of a request. None is left out of a body, and None, False and '' are left out of a query."""
    path, version, key = operation.path, 0, ""
    query, body = dict[str, Any](), dict[str, Any]()
    for field, kind, name, write, _, _, whole in sent_fields(operation):
        value = getattr(getattr(request, whole) if whole else request, field)
        if kind == "path":
            path = path.replace(f"{{{name}}}", quote(value, safe=""))
        elif kind == "version":
            version = value
        elif kind == "key":
            key = value
        else:
            written = write(value) if write is not None and value is not None else value
            if kind == "body" and written is not None:
                body[name] = written
            elif kind == "query" and written not in ("", None, False):
                query[name] = written
    return SentRequest(path, query, body, version, key)


class SentField(NamedTuple):
    """Place of a field of a request in HTTP, and its name there."""

    field: str
    kind: Kind
    name: str
    write: Callable[[Any], Any] | None
    type: Any
    """Type in HTTP, with its limits and its text."""
    default: Any
    """Default of the request, or `MISSING`."""
    whole: str = ""
    """Field of the request whose value has this one. '': the request has it itself."""


@cache
def sent_fields(operation: Operation[Any, Any]) -> tuple[SentField, ...]:
    """Return the places of the fields of an operation's requests."""
    hints = get_type_hints(operation.request, include_extras=True)
    found: list[SentField] = []
    joint = dict[str, None]()
    for field in fields(operation.request):
        how, of_http = _how(hints[field.name])
        if how.of:
            joint[how.of] = None
        elif how.parts is not None:
            found += [
                SentField(name, "body", name, None, of_part, getattr(field.default, name), field.name)
                for name, of_part in how.parts.items()
            ]
        else:
            found.append(_sent_field(operation, field, how, of_http))
    return (*found, *(SentField(name, "path", name, None, str, MISSING) for name in joint))


def _how(hint: Any) -> tuple[Sent, Any]:
    """Return how a field of this type is sent, and its type in HTTP."""
    if get_origin(hint) is not Annotated:
        return Sent(), hint
    base, *given = get_args(hint)
    how = next((each for each in given if isinstance(each, Sent)), Sent())
    rest = [each for each in given if not isinstance(each, Sent)]
    of_http = base if how.read is None else how.read
    return how, Annotated[of_http, *rest] if rest else of_http


def _sent_field(operation: Operation[Any, Any], field: Field[Any], how: Sent, of_http: Any) -> SentField:
    name, kind, write = how.name or field.name, _kind_of(operation, how.name or field.name, field.name), how.write
    return SentField(field.name, kind, name, write if kind in ("body", "query") else None, of_http, field.default)


def _kind_of(operation: Operation[Any, Any], name: str, field: str) -> Kind:
    if f"{{{name}}}" in operation.path:
        return "path"
    if field == VERSION and operation.conditional:
        return "version"
    if field == IDEMPOTENCY_KEY:
        return "key"
    return "body" if operation.changes else "query"


def iso_duration(span: Duration) -> str:
    """Return a duration in ISO 8601."""
    return f"PT{timedelta_of('the duration', span).total_seconds():.3f}S"


def seconds(span: Duration) -> float:
    """Return a duration in seconds."""
    return timedelta_of("by", span).total_seconds()


def copied(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return any mapping as a dict, which JSON can have."""
    return dict(values)
