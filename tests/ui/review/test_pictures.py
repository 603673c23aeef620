"""The table of pictures holds each page of the UI, or says why one has no picture."""

from outlast.ui.app import pages
from tests.ui.review.pictures import LEFT_OUT, PAGES


def test_each_page_has_a_picture_or_a_reason_for_none() -> None:
    routes = {getattr(each, "path", "") for each in pages() if "GET" in getattr(each, "methods", ())}
    assert routes - {*PAGES, *LEFT_OUT} == set(), "add the page to PAGES of tests/ui/review/pictures.py"
    assert {*PAGES, *LEFT_OUT} - routes == set(), "no route has these addresses"
    assert not {*PAGES} & {*LEFT_OUT} and all(PAGES.values()) and all(LEFT_OUT.values())


def test_no_two_pages_share_a_picture() -> None:
    names = [name for pictures in PAGES.values() for name in pictures]
    assert len(names) == len({*names})
