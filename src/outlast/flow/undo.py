"""The undo of an activity: the author's function and the options of its call."""

from collections.abc import Awaitable, Callable
from typing import Any, Concatenate, Final, Literal, ParamSpec, Protocol, TypeVar

from outlast.core.argument_checks import Arguments, positive
from outlast.core.durations import Duration
from outlast.errors import DefinitionError
from outlast.flow.options import (
    IfUncertain,
    RateLimit,
    Resend,
    Retry,
    Transaction,
    check_if_uncertain,
    no_reconcile,
    transaction_of,
)

P = ParamSpec("P")
R = TypeVar("R")


class DecoratesUndo(Protocol[P, R]):
    """The decorator that `@activity.undo(…)` returns."""

    def __call__(
        self, fn: Callable[Concatenate[R, P], Awaitable[object]], /
    ) -> Callable[Concatenate[R, P], Awaitable[object]]: ...


class UndoTerms:
    """The undo of one activity, with its own options. Made by `@activity.undo`."""

    is_async: Final = True
    undone_by: Final = ""

    def __init__(
        self,
        name: str,
        title: str,
        where: str,
        fn: Callable[..., Awaitable[Any]],
        *,
        if_uncertain: IfUncertain,
        timeout: Duration | None,
        retry: Retry | None,
        reconcile: Callable[..., Awaitable[Any]] | None,
        settle_time: Duration | None,
        provider: str,
        limit: RateLimit | None = None,
        transaction: Transaction = False,
    ) -> None:
        """Take `name`, `provider`, `limit`, `title` and `where` from the activity. Raises DefinitionError."""
        check_if_uncertain(f"undo of {title}", if_uncertain, where=where)
        Arguments(f"undo of {title}", where).instance("retry", retry, Retry, "retry=Retry(attempts=2)")
        if if_uncertain == "reconcile" and reconcile is None:
            raise no_reconcile(f"undo of {title}", "name the function that asks the receiver: reconcile=…", where=where)
        if settle_time is not None and reconcile is None:
            raise DefinitionError(
                f"undo of {title} has settle_time= and no reconcile=",
                "settle_time delays the proof that DidNotHappen gives",
                "name the function that asks the receiver: reconcile=…",
                where=where,
            )
        if transaction and reconcile is not None:
            raise DefinitionError(
                f"undo of {title} has transaction= and reconcile=",
                "a call in a transaction is never uncertain",
                "remove reconcile=",
                where=where,
            )
        self.transaction: Final = transaction_of(f"undo of {title}", fn, transaction, if_uncertain, where=where)
        self.name: Final = name
        self.provider: Final = provider
        self.limit: Final = limit
        self.fn: Final = fn
        self.if_uncertain: Final = if_uncertain
        self.timeout: Final = positive(f"timeout of the undo of {title}", timeout, where=where)
        self.retry: Final = retry or Retry()
        self.reconcile_fn: Final = reconcile
        self.settle_time: Final = positive(f"settle_time of the undo of {title}", settle_time, where=where)

    @property
    def mode(self) -> Literal["reconcile", "resend", "ask_person"]:
        """The first step if the undo may have happened; a reconcile function comes first."""
        if self.reconcile_fn is not None:
            return "reconcile"
        return "resend" if isinstance(self.if_uncertain, Resend) else "ask_person"

    @property
    def response_codec(self) -> "NoAnswer":
        """A codec that discards the response, because nothing reads it."""
        return NO_ANSWER


class NoAnswer:
    """A codec that discards the value."""

    def dump(self, value: object) -> bytes:
        """Return the JSON null for any value."""
        return b"null"

    def store(self, value: object) -> tuple[bytes, None]:
        """Return the JSON null and None for any value."""
        return b"null", None

    def load(self, data: bytes | str) -> None:
        """Return None for any bytes."""


NO_ANSWER: Final = NoAnswer()
