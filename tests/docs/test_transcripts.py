"""The other pages with terminals: every command typed as it is printed, against real processes."""

from concurrent.futures import Future
from pathlib import Path

import pytest

from tests.docs.conftest import PLAYED
from tests.docs.pages import ROOT
from tests.docs.terminal import agrees


@pytest.mark.parametrize("page", PLAYED, ids=lambda page: page.name)
def test_a_page_shows_what_comes(page: Path, played: dict[Path, tuple[Path, "Future[int]"]]) -> None:
    assert played[page][1].result()


def test_the_pages_that_promise_it_are_played() -> None:
    assert {ROOT / "docs" / name for name in ("quickstart.md", "effects.md", "testing.md", "operating.md")} <= set(
        PLAYED
    )


@pytest.mark.parametrize(
    ("printed", "came", "alike"),
    [
        ("run-1  started 3s ago", "run-1  started 41.5s ago", True),
        ("run-1  started 41s ago", "run-1  started 2m2s ago", True),
        ("run-1  WAITING", "run-1  RUNNING", False),
        ("run-1  WAITING\n…", "run-1  WAITING\nsomething else", True),
        ("run-1  WAITING", "run-1  WAITING\nsomething else", False),
        ("ap_9d9424199e  pending", "ap_0123456789  pending", True),
        ("", "a warning", False),
    ],
)
def test_a_page_that_is_wrong_is_seen_to_be_wrong(printed: str, came: str, alike: bool) -> None:
    known: dict[str, str] = {}
    assert agrees(printed, came, known) is alike
    assert known == ({"ap_9d9424199e": "ap_0123456789"} if printed.startswith("ap_") else {})
