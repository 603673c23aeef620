"""Each count in a link equals the list behind it: all pages of the review's store are walked and each link followed."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from html import unescape
from typing import Final, NamedTuple

import pytest

from tests.ui.conftest import Running, Service
from tests.ui.review.flows import ALL
from tests.ui.review.store import filled

LINK: Final = re.compile(r'<a\b[^>]*?href="([^"]*)"[^>]*>(.*?)</a>', re.DOTALL)
COUNT: Final = re.compile(r"(?<![\w.,@:-])(\d[\d,]*)(\+| or more)?(?![\w.@:-])")
NO_COUNT: Final = re.compile(r"^Try \d+ first|^(First|Last|Show|event) |^20\d\d-|^\W*$")
"""Links whose number is none of rows, and bars, which tests/ui/test_runs_explorer.py follows."""
OF_A_KIND: Final = 3
"""Pages of one kind that are walked."""
PAGES_MAX: Final = 30
"""Pages of one list that are read."""


def _ids(pattern: str) -> Callable[[str], set[str]]:
    return lambda text: set(re.findall(pattern, text, re.DOTALL))


ITEMS: Final[dict[str, Callable[[str], set[str]]]] = {
    "/ui/approvals": _ids(r'<li id="approval-([^"]+)"'),
    "/ui/runs": _ids(r'<tr id="run-([^"]+)"'),
    "/ui/effects": _ids(r'<tr[^>]*>.*?href="[^"]*/ui/effects/([^"?]+)"'),
    "/ui/attention/*": _ids(r'<tr id="item-\d+">.*?href="[^"]*/ui/runs/([^"]+)"'),
    "/ui/causes/*": lambda text: set(re.findall(r'/ui/runs/([^"]+)"', text.partition('id="runs"')[2])),
}
"""Selector of the rows of each list, by its address."""


class CountLink(NamedTuple):
    """Link with a count: the page that has it, its text, its count, whether it is a lower bound, and its address."""

    page: str
    text: str
    count: int
    at_least: bool
    address: str


def kind_of(address: str) -> str:
    """Return the address without its filters, with `*` for the id of a thing."""
    path = address.partition("?")[0]
    return re.sub(
        r"/(runs|approvals|effects|causes|answers|workflows|attention|webhooks|threads)/[^/]+", r"/\1/*", path
    )


def links(text: str) -> Iterator[tuple[str, str]]:
    """Yield each link of a page within the UI: its address and its text."""
    for address, inside in LINK.findall(text):
        words = " ".join(unescape(re.sub(r"<[^>]+>", " ", inside)).split())
        if address.startswith("/ui"):
            yield unescape(address).partition("#")[0], words


def walked(service: Service) -> dict[str, str]:
    """Return pages of every kind, by their address, that links lead to from the board."""
    found: dict[str, str] = {}
    kinds, queue = Counter[str](), ["/ui/"]
    for address in queue:
        kind = kind_of(address)
        if address in found or kinds[kind] >= OF_A_KIND:
            continue
        kinds[kind] += 1
        answer = service.get(address, follow_redirects=True)
        assert answer.status_code == 200, f"{address}: {answer.status_code}"
        found[address] = answer.text
        queue += [each for each, _ in links(answer.text)]
    return found


def counts_in(pages: dict[str, str]) -> list[CountLink]:
    """Return the links whose text has a count, each address and text once."""
    found: dict[tuple[str, str], CountLink] = {}
    for page, text in pages.items():
        for address, words in links(text):
            numbers = [] if NO_COUNT.search(words) else COUNT.findall(words)
            if len(numbers) == 1 and kind_of(address) in ITEMS:
                count, more = numbers[0]
                link = CountLink(page, words, int(count.replace(",", "")), bool(more), address)
                found.setdefault((address, words), link)
    return list(found.values())


def listed(service: Service, address: str) -> set[str]:
    """Return the items of all pages of a list."""
    items, kind = set[str](), kind_of(address)
    for _ in range(PAGES_MAX):
        text = service.get(address).text
        items |= ITEMS[kind](text)
        after = re.search(r'<a rel="next" href="([^"]*)">(?:More|Search on)', text)
        if after is None:
            return items
        address = unescape(after[1])
    raise AssertionError(f"{address} has more than {PAGES_MAX} pages")


def differing(service: Service, found: list[CountLink]) -> list[str]:
    """Return the links whose count is not that of the list behind it."""
    sizes = {address: len(listed(service, address)) for address in {each.address for each in found}}
    return [
        f"{each.page}: {each.text!r} leads to {sizes[each.address]} at {each.address}"
        for each in found
        if (sizes[each.address] < each.count if each.at_least else sizes[each.address] != each.count)
    ]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Running(f"sqlite:{tmp_path_factory.mktemp('counted') / 'outlast.db'}", ALL) as service:
        filled(service, "small")
        yield service


@pytest.mark.req("OBS-5")
def test_each_count_equals_the_list_behind_its_link(store: Service) -> None:
    found = counts_in(walked(store))
    kinds = Counter(kind_of(each.address) for each in found)
    assert set(kinds) == set(ITEMS), f"each kind of list has a link with a count: {kinds}"
    assert differing(store, found) == []


def test_a_preview_of_a_reason_has_the_number_of_each_cause(store: Service) -> None:
    found = [words for address, words in links(store.get("/ui/answers?reason=exception").text) if "/causes/" in address]
    causes = store.get("/v1/causes?reason=exception").json()["causes"]
    assert found == [f"{each['runs']:,}" for each in causes] and len(found) > 1


def test_a_false_count_is_found(store: Service) -> None:
    (first, *_) = counts_in({"/ui/": store.get("/ui/").text})
    assert differing(store, [first]) == [] and differing(store, [first._replace(count=first.count + 1)]) != []
