"""What the engine calls, and how a call of it is doubted: an activity's own function, or its undo."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Literal, Protocol

from outlast.flow.declared import IfUncertain, RateLimit, Retry, Transaction


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
