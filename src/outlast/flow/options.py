"""Options of calls: uncertainty, retries, rate limits and transactions."""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal, Protocol, TypeAlias

from outlast.core.argument_checks import Arguments, positive
from outlast.core.durations import Duration
from outlast.core.limits import ATTEMPTS_MAX
from outlast.errors import DefinitionError

FACTOR_MAX: Final = 100
LIMIT_MAX: Final = 1_000_000
Transaction: TypeAlias = Literal[False, True, "serializable"]
"""Isolation with which the body writes through the store's database (True: read committed), or False."""


@dataclass(frozen=True, init=False)
class Resend:
    """The option to repeat an uncertain call under the same key while the receiver remembers that key.

    `remembered_for` counts from the first intent. After it, a person is asked.
    """

    remembered_for: timedelta

    def __init__(self, remembered_for: Duration) -> None:
        """Raises DefinitionError."""
        Arguments("resend").duration("remembered_for", remembered_for, optional=False)
        self.__dict__.update(remembered_for=positive("remembered_for of resend()", remembered_for))


def resend(*, remembered_for: Duration) -> Resend:
    """Return the option for a receiver that deduplicates by key, and remembers a key for `remembered_for`.

    Raises DefinitionError.
    """
    return Resend(remembered_for)


IfUncertain: TypeAlias = Literal["ask_person", "reconcile"] | Resend
"""Ways to settle a call that may have happened: ask a person, ask the receiver, or make it again."""


@dataclass(frozen=True, init=False)
class Retry:
    """Limits of the retries of a call that certainly had no effect: at most `attempts` calls in all.

    The n-th wait is `first` × `factor`^(n−1), with jitter. The waits add up to at most `total_wait`.
    """

    attempts: int
    total_wait: timedelta
    first: timedelta
    factor: float

    def __init__(
        self, attempts: int = 3, total_wait: Duration = "60s", first: Duration = "1s", factor: float = 2.0
    ) -> None:
        """Raises DefinitionError."""
        check = Arguments("Retry")
        if type(attempts) is not int or not 1 <= attempts <= ATTEMPTS_MAX:
            raise check.wrong(
                "attempts", attempts, f"a call has 1 to {ATTEMPTS_MAX} attempts", "Retry(attempts=1) never retries"
            )
        check.amount("factor", factor, 1, FACTOR_MAX)
        for name, value in (("total_wait", total_wait), ("first", first)):
            check.duration(name, value, optional=False)
        self.__dict__.update(
            attempts=attempts,
            total_wait=positive("total_wait of Retry()", total_wait),
            first=positive("first of Retry()", first),
            factor=factor,
        )


@dataclass(frozen=True)
class RateLimit:
    """Limits of a receiver over all workers of a store.

    `concurrent`: calls at the same time; `per_second`: calls started per second; 0 means no limit. Activities with the
    same `provider` share one limit across all tenants. A run whose call has to wait shows it; the wait uses up no
    attempt. Raises DefinitionError.
    """

    concurrent: int = 0
    per_second: float = 0.0

    def __post_init__(self) -> None:
        check = Arguments("RateLimit")
        check.number("concurrent", self.concurrent, 0, LIMIT_MAX)
        check.amount("per_second", self.per_second, 0, LIMIT_MAX)
        if not (self.concurrent or self.per_second):
            raise DefinitionError(
                f"RateLimit(concurrent={self.concurrent}, per_second={self.per_second:g})",
                "at least one limit must be above zero",
                "for example RateLimit(concurrent=5, per_second=10)",
            )

    @property
    def words(self) -> str:
        """The limits as text, for people."""
        bounds = [f"{self.concurrent} at once"] if self.concurrent else []
        bounds += [f"{self.per_second:g} a second"] if self.per_second else []
        return ", ".join(bounds)


def check_if_uncertain(title: str, given: object, *, where: str) -> None:
    """Raise DefinitionError unless `given` is one of the three values of `if_uncertain`."""
    if not isinstance(given, Resend) and (not isinstance(given, str) or given not in ("ask_person", "reconcile")):
        raise DefinitionError(
            f"{title} has if_uncertain={given!r}",
            "a person is asked, the receiver is asked, or the call is made again under the same key",
            'use "ask_person", "reconcile" or resend(remembered_for="24h")',
            where=where,
        )


def no_reconcile(title: str, fix: str, *, where: str) -> DefinitionError:
    """Return the error for `if_uncertain="reconcile"` without a reconcile function."""
    why = "there is no function that asks the receiver whether the call happened"
    return DefinitionError(f'{title} has if_uncertain="reconcile"', why, fix, where=where)


def transaction_of(
    title: str, fn: Callable[..., Any], transaction: Transaction, if_uncertain: IfUncertain, *, where: str
) -> Transaction:
    """Return the option if calls of this function can be made in a transaction. Raises DefinitionError."""
    given: object = transaction  # a caller without a type checker may pass anything
    if not isinstance(given, bool) and given != "serializable":
        why, reason, fix = f"transaction={given!r}", 'it is True or "serializable"', "write transaction=True"
    elif transaction and not inspect.iscoroutinefunction(fn):
        why, reason, fix = "transaction= and is not async", "its connection is asynchronous", "write async def"
    elif transaction and if_uncertain != "ask_person":
        why, reason, fix = (
            "transaction= and if_uncertain=",
            "a call in a transaction is never uncertain",
            "remove if_uncertain",
        )
    else:
        return transaction
    raise DefinitionError(f"{title} has {why}", reason, fix, where=where)


class Callee(Protocol):
    """The options of a call. An activity has one set for its function and another for its undo."""

    @property
    def name(self) -> str:
        """Name of the activity, as stored in the ledger and used by operators who pause it."""
        ...

    @property
    def provider(self) -> str:
        """Name of the receiver. Activities of one provider share a circuit breaker and a rate limit."""
        ...

    @property
    def limit(self) -> RateLimit | None:
        """Rate limit of the provider, over all workers."""
        ...

    @property
    def fn(self) -> Callable[..., Any]:
        """The author's function that makes the call."""
        ...

    @property
    def is_async(self) -> bool:
        """True if the function is awaited; otherwise it runs in a thread."""
        ...

    @property
    def timeout(self) -> timedelta | None:
        """Timeout of one attempt; None for the default of the deployment."""
        ...

    @property
    def retry(self) -> Retry:
        """Limits of the retries of a call that had no effect."""
        ...

    @property
    def if_uncertain(self) -> IfUncertain:
        """The declared option for a call that may have happened."""
        ...

    @property
    def mode(self) -> Literal["reconcile", "resend", "ask_person"]:
        """The first step for a call that may have happened."""
        ...

    @property
    def reconcile_fn(self) -> Callable[..., Awaitable[Any]] | None:
        """The author's function that asks the receiver whether the call happened."""
        ...

    @property
    def settle_time(self) -> timedelta | None:
        """Time for which a sent call may still arrive, if longer than the default of the deployment."""
        ...

    @property
    def transaction(self) -> Transaction:
        """True if the function writes in a transaction of the store, together with its effect."""
        ...

    @property
    def response_codec(self) -> Any:
        """Codec that dumps and loads the response."""
        ...

    @property
    def undone_by(self) -> str:
        """Name of the undo, or the reason for having none, as stored in the ledger."""
        ...
