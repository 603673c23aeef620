"""Pages behind a cursor are read one after another, to the end or until the reader has enough."""

import asyncio
from functools import partial
from typing import NamedTuple

from outlast.core.paging import pages


class Page(NamedTuple):
    """Page of a list in this test."""

    rows: tuple[int, ...]
    next_cursor: str


LIST = {"": Page((1, 2), "a"), "a": Page((), "b"), "b": Page((3,), "")}


class Reader:
    """List of three pages, the second empty, that notes the cursors it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def page(self, name: str, *, cursor: str) -> Page:
        assert name == "list"
        self.asked.append(cursor)
        return LIST[cursor]


async def rows_of(found: pages[Page]) -> list[int]:
    return [row async for page in found for row in page.rows]


def test_every_page_is_read_once_and_an_empty_one_is_not_the_last() -> None:
    reader = Reader()
    assert asyncio.run(rows_of(pages(partial(reader.page, "list")))) == [1, 2, 3]
    assert reader.asked == ["", "a", "b"]


def test_a_list_is_read_from_a_cursor_on() -> None:
    assert asyncio.run(rows_of(pages(partial(Reader().page, "list"), "b"))) == [3]


def test_no_page_is_read_that_the_caller_does_not_ask_for() -> None:
    reader = Reader()
    found = pages(partial(reader.page, "list"))

    async def first() -> Page:
        async for page in found:
            return page
        raise AssertionError("there is a page")

    assert reader.asked == []
    assert asyncio.run(first()).rows == (1, 2)
    assert reader.asked == [""]


def test_an_end_stays_an_end() -> None:
    reader = Reader()
    found = pages(partial(reader.page, "list"))
    assert asyncio.run(rows_of(found)) == [1, 2, 3]
    assert asyncio.run(rows_of(found)) == []
    assert reader.asked == ["", "a", "b"]
