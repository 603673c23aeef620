"""Handlers of operations: the method that answers each request in this process, or that asks a service more than once.

`@handles(LIST_RUNS)` marks a method of a client. Type checkers compare its request and its answer with the declaration.
"""

from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final, TypeAlias, TypeVar

from outlast.operations.declaration import Operation, OperationRequest

C = TypeVar("C")
Q = TypeVar("Q", bound=OperationRequest[Any])
R = TypeVar("R")
Handler: TypeAlias = Callable[[C, Q], Coroutine[Any, Any, R]]
Handlers: TypeAlias = Mapping[type[OperationRequest[Any]], Handler[Any, Any, Any]]
HANDLED: Final = "__operation__"
"""Attribute of a function: the operation that it answers."""


def handles(operation: Operation[Q, R]) -> Callable[[Handler[C, Q, R]], Handler[C, Q, R]]:
    """Mark a method as the handler of an operation."""

    def mark(handler: Handler[C, Q, R]) -> Handler[C, Q, R]:
        setattr(handler, HANDLED, operation)
        return handler

    return mark


def handlers_of(client: type[Any], operations: Iterable[Operation[Any, Any]]) -> Handlers:
    """Return the handlers of a class by request. Raises TypeError unless it has one for each of these operations."""
    found: dict[type[OperationRequest[Any]], Handler[Any, Any, Any]] = {}
    for name, each in vars(client).items():
        operation = getattr(each, HANDLED, None)
        if operation is None:
            continue
        if operation.request in found:
            raise TypeError(f"{client.__name__}.{name} is a second handler of {operation.request.__name__}")
        found[operation.request] = each
    if missing := {each.request.__name__ for each in operations} - {each.__name__ for each in found}:
        raise TypeError(f"{client.__name__} has no handler of {', '.join(sorted(missing))}")
    return found
