"""Safeguards removed in every process of a round, by name: the round has to turn red.

Those of the engine are the simulation's; here are those that only a real database shows.
"""

from collections.abc import Callable
from typing import Any, Final

from outlast.errors import Unavailable
from outlast.store.postgres import session
from outlast.store.postgres.session import PostgresSession
from tests.simulation.mutants import MUTANTS as OF_THE_ENGINE


def receipts() -> None:
    """A COMMIT whose answer was lost is asked after; without that it is taken for not done, and done again."""

    async def forget(self: PostgresSession, error: BaseException) -> None:
        raise Unavailable("the store does not answer", str(error))

    PostgresSession._resolve = forget  # type: ignore[method-assign]


def durability() -> None:
    """What is acknowledged is on the disk."""
    kept = session.reconnect

    async def careless(*args: Any, **kwargs: Any) -> Any:
        db = await kept(*args, **kwargs)
        await db.execute("SET synchronous_commit = off")
        return db

    session.reconnect = careless


OF_THE_STORE: Final[dict[str, Callable[[], None]]] = {each.__name__: each for each in (receipts, durability)}
BY: Final[dict[str, tuple[tuple[str, ...], float]]] = {
    "blind_retry": (("kill",), 3.0),
    "receipts": (("cut_after",), 0.3),
}
"""Who misses it soonest, and how long a call may take then: most kills hit one that is carried out nevertheless."""
NAMES: Final = (*OF_THE_STORE, *OF_THE_ENGINE)


def remove(name: str) -> None:
    """Remove one; '' removes none."""
    if name:
        (OF_THE_STORE.get(name) or OF_THE_ENGINE[name])()
