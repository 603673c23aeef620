"""Pages of a list behind a cursor, read one after another."""

from collections.abc import AsyncIterator, Awaitable
from typing import Generic, Protocol, TypeVar


class HasNext(Protocol):
    """Page of a list with the cursor of the next page; '' at the end."""

    @property
    def next_cursor(self) -> str: ...


P_co = TypeVar("P_co", bound=HasNext, covariant=True)


class Fetch(Protocol[P_co]):
    """Function that reads the page behind a cursor; '' is the first page."""

    def __call__(self, *, cursor: str) -> Awaitable[P_co]: ...


class pages(AsyncIterator[P_co], Generic[P_co]):  # noqa: N801 - called as a function
    """Iterate over the pages of a list: `async for page in pages(partial(client.runs, status="failed"))`.

    `fetch` is called with `cursor`, from the given one on. A page is read when it is asked for, so that
    `break` reads no more.
    It is a class and no generator, because an abandoned generator is left to the event loop to close.
    """

    def __init__(self, fetch: Fetch[P_co], cursor: str = "") -> None:
        self._fetch = fetch
        self._cursor: str | None = cursor

    async def __anext__(self) -> P_co:
        if self._cursor is None:
            raise StopAsyncIteration
        page = await self._fetch(cursor=self._cursor)
        self._cursor = page.next_cursor or None
        return page
