"""Result of a set of calls or child runs: which completed, failed, were cancelled or never started (S-31)."""

from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping
from typing import Generic, NamedTuple, TypeVar

from outlast.core.enough import SetState
from outlast.core.limits import STATE_BYTES_MAX
from outlast.core.machine import MemberStatus
from outlast.errors import InvalidInput, LimitExceeded

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


class Loaded(NamedTuple, Generic[R]):
    """Value of a completed member, as it was loaded."""

    value: R
    size: int = 0
    """Bytes of it in the store; 0 if it was in memory anyway."""


class FanOut(Generic[K, R]):
    """Result of `ctx.do_all` with bounds, and of `ctx.map`. Each re-run gets the same one.

    Values are loaded when they are read.
    """

    __slots__ = ("_load", "enough", "statuses")

    enough: bool
    """True if `min_successful` have completed, or, without it, all have ended and no more failed than tolerated."""
    statuses: Mapping[K, MemberStatus]
    """Status of each call or child by its key (for a list: its position), in the order of the input."""

    def __init__(
        self, statuses: Mapping[K, MemberStatus], state: SetState, load: Callable[[K], Awaitable[Loaded[R]]]
    ) -> None:
        """`state` is that of the set. `load` returns the value of a completed member, else raises its error."""
        self.statuses = statuses
        self.enough = state is SetState.ENOUGH
        self._load = load

    def _with(self, status: MemberStatus) -> list[K]:
        return [key for key, each in self.statuses.items() if each == status]

    @property
    def completed(self) -> list[K]:
        """Keys of those that completed."""
        return self._with(MemberStatus.COMPLETED)

    @property
    def failed(self) -> list[K]:
        """Keys of those that failed: calls that were refused, or whose answer cannot be stored, and failed children."""
        return self._with(MemberStatus.FAILED)

    @property
    def cancelled(self) -> list[K]:
        """Keys of children that were cancelled, for instance because there was enough without them."""
        return self._with(MemberStatus.CANCELLED)

    @property
    def not_started(self) -> list[K]:
        """Keys of those that never started, because the set had ended before."""
        return self._with(MemberStatus.NOT_STARTED)

    async def value(self, key: K, /) -> R:
        """Return the value of the completed member with this `key`.

        Raises its error if it failed or was cancelled (Refused, AnswerNotStored, ChildFailed), InvalidInput if it never
        started or is none of the set.
        """
        status = self.statuses.get(key)
        if status is None or status is MemberStatus.NOT_STARTED:
            why = "it never started" if status else "the set has no such key"
            raise InvalidInput(f"value({key!r})", why, "read the keys of `completed`")
        return (await self._load(key)).value

    async def values(self) -> dict[K, R]:
        """Return the values of those that completed, by key.

        Raises LimitExceeded if they are larger than a state may be; read them one by one then:
        `async for key, value in done`.
        """
        found: dict[K, R] = {}
        size = 0
        for key in self.completed:
            loaded = await self._load(key)
            found[key] = loaded.value
            size += loaded.size
            if size > STATE_BYTES_MAX:
                raise LimitExceeded(
                    f"values() of {len(self.completed):,} results has more than {STATE_BYTES_MAX:,} bytes",
                    "so much does not fit into a state, and is best not held in memory at once",
                    "async for key, value in done: …",
                )
        return found

    async def __aiter__(self) -> AsyncIterator[tuple[K, R]]:
        """Yield the key and the value of each that completed, loading one at a time."""
        for key in self.completed:
            yield key, (await self._load(key)).value

    async def errors(self) -> dict[K, Exception]:
        """Return the errors of those that failed, by key: Refused, AnswerNotStored, ChildFailed."""
        return {key: await self._error(key) for key in self.failed}

    async def raise_failed(self) -> None:
        """Raise the error of the first that failed, in the order of the input, unless there was enough.

        Raises InvalidInput if an empty set cannot have enough.
        """
        if self.enough:
            return
        first = [*self.failed, *self.cancelled][:1]
        if not first:
            raise InvalidInput("a set without members has not enough", "min_successful is above 0", "leave it out then")
        raise await self._error(first[0])

    async def _error(self, key: K) -> Exception:
        try:
            await self._load(key)
        except Exception as error:  # the error that was recorded for it is the answer
            return error
        raise AssertionError(f"{key!r} has {self.statuses[key]}, and its error is recorded")
