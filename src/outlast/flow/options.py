"""What a declaration says of an activity besides its function: doubt, retries, and why there is no undo."""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from outlast.core.limits import ATTEMPTS_MAX
from outlast.errors import DefinitionError

Span = TypeVar("Span", timedelta, timedelta | None)
Transaction: TypeAlias = Literal[False, True, "serializable"]
"""Does a body write through the store's own database, and how are its transactions isolated (True: read committed)?"""


def positive(what: str, value: Span, *, where: str = "") -> Span:
    """`value` if it is a duration above zero (or None). Raises DefinitionError."""
    given: object = value  # whoever runs no type checker is told as well
    if given is not None and (not isinstance(given, timedelta) or given <= timedelta()):
        raise DefinitionError(
            f"{what} is {value!r}",
            "it has to be a duration above zero",
            "write e.g. timedelta(seconds=30)",
            where=where,
        )
    return value


@dataclass(frozen=True)
class Resend:
    """On doubt, call again with the same key while the receiver still remembers it; after `window`, ask a person."""

    remembered_for: timedelta

    def __post_init__(self) -> None:
        positive("the remembered_for of resend()", self.remembered_for)


def resend(*, remembered_for: timedelta) -> Resend:
    """The receiver dedupes by key and remembers keys for `window`, counted from the first intent."""
    return Resend(remembered_for)


IfUncertain: TypeAlias = Literal["ask_person", "reconcile"] | Resend
"""What to do about a call that may have happened: ask a person, ask the receiver, or make it again."""


@dataclass(frozen=True)
class Retry:
    """How often a call that certainly did nothing is tried again: at most `attempts` calls in all.

    The n-th wait is `first` × `factor`^(n−1), jittered by the engine; the sum of waits is at most `total_wait`.
    """

    attempts: int = 3
    total_wait: timedelta = timedelta(seconds=60)
    first: timedelta = timedelta(seconds=1)
    factor: float = 2.0

    def __post_init__(self) -> None:
        if not 1 <= self.attempts <= ATTEMPTS_MAX:
            raise DefinitionError(
                f"Retry(attempts={self.attempts})",
                f"a call has 1 to {ATTEMPTS_MAX} attempts",
                "Retry(attempts=1) never retries",
            )
        if not 1 <= self.factor <= 100:
            raise DefinitionError(f"Retry(factor={self.factor})", "waits grow by 1 to 100 times", "leave it at 2")
        positive("Retry(total_wait=…)", self.total_wait)
        positive("Retry(first=…)", self.first)


@dataclass(frozen=True)
class RateLimit:
    """What a receiver bears, of all workers of a store together: so many calls at once, so many begun in a second.

    0 is no bound. Calls of activities that name the same `provider` are counted together, over all tenants. A call
    that finds no room waits, its run visibly so; it uses up no attempt. Raises DefinitionError.
    """

    concurrent: int = 0
    per_second: float = 0.0

    def __post_init__(self) -> None:
        if self.concurrent < 0 or self.per_second < 0 or not (self.concurrent or self.per_second):
            raise DefinitionError(
                f"RateLimit(concurrent={self.concurrent}, per_second={self.per_second:g})",
                "at least one of the two bounds has to be above zero, and neither below",
                "write e.g. RateLimit(concurrent=5, per_second=10)",
            )

    @property
    def words(self) -> str:
        """As people read it."""
        bounds = [f"{self.concurrent} at once"] if self.concurrent else []
        bounds += [f"{self.per_second:g} a second"] if self.per_second else []
        return ", ".join(bounds)


def check_if_uncertain(title: str, given: object, *, where: str) -> None:
    """Raise DefinitionError unless `given` is one of the three values of `if_uncertain`."""
    if given not in ("ask_person", "reconcile") and not isinstance(given, Resend):
        raise DefinitionError(
            f"{title} has if_uncertain={given!r}",
            "a person is asked, the receiver is asked, or the call is made again under the same key",
            'use "ask_person", "reconcile" or resend(remembered_for=timedelta(hours=24))',
            where=where,
        )


def no_reconcile(title: str, fix: str, *, where: str) -> DefinitionError:
    """Return the error for `if_uncertain="reconcile"` without a reconcile function."""
    why = "there is no function that asks the receiver whether the call happened"
    return DefinitionError(f'{title} has if_uncertain="reconcile"', why, fix, where=where)


def transaction_of(
    title: str, fn: Callable[..., Any], said: Transaction, if_uncertain: IfUncertain, *, where: str
) -> Transaction:
    """`said`, if a call of this function can be made in a transaction. Raises DefinitionError."""
    given: object = said  # whoever runs no type checker is told as well
    if given not in (False, True, "serializable"):
        why, reason, fix = f"transaction={given!r}", "there are True and serializable", "say transaction=True"
    elif said and not inspect.iscoroutinefunction(fn):
        why, reason, fix = "transaction= and is def", "its connection is awaited", "write it as async def"
    elif said and if_uncertain != "ask_person":
        why, reason, fix = (
            "transaction= and if_uncertain=",
            "what became of it is never in doubt",
            "leave if_uncertain out",
        )
    else:
        return said
    raise DefinitionError(f"{title} has {why}", reason, fix, where=where)


class Callee(Protocol):
    """The terms of a call. An activity has them for its function, and others for its undo."""

    @property
    def name(self) -> str:
        """The activity's name: what the ledger says and what an operator can hold."""
        ...

    @property
    def provider(self) -> str:
        """Whose outage stops it."""
        ...

    @property
    def limit(self) -> RateLimit | None:
        """What its provider bears, of all workers together."""
        ...

    @property
    def fn(self) -> Callable[..., Any]:
        """What is called."""
        ...

    @property
    def is_async(self) -> bool:
        """Whether it is awaited; else it runs in a thread."""
        ...

    @property
    def timeout(self) -> timedelta | None:
        """Of one attempt; None: the deployment's."""
        ...

    @property
    def retry(self) -> Retry:
        """How often a call that certainly did nothing is tried again."""
        ...

    @property
    def if_uncertain(self) -> IfUncertain:
        """What follows a call that perhaps happened."""
        ...

    @property
    def mode(self) -> Literal["reconcile", "resend", "ask_person"]:
        """What settles a doubt first."""
        ...

    @property
    def reconcile_fn(self) -> Callable[..., Awaitable[Any]] | None:
        """Asks the receiver whether it happened."""
        ...

    @property
    def settle_time(self) -> timedelta | None:
        """How long a call can be under way, where that is longer than the deployment says."""
        ...

    @property
    def transaction(self) -> Transaction:
        """Whether it writes in a transaction of the store's database, which lands its effect as well."""
        ...

    @property
    def response_codec(self) -> Any:
        """The Codec of its answer."""
        ...

    @property
    def undone_by(self) -> str:
        """How its effect is undone, as the ledger keeps it."""
        ...
