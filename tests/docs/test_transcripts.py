"""Pages with terminals other than the quickstart: every command runs as printed, against real processes."""

from concurrent.futures import Future
from pathlib import Path

import pytest

from tests.docs.conftest import CONSOLE_PAGES
from tests.docs.pages import ROOT
from tests.docs.terminal import agrees


@pytest.mark.parametrize("page", CONSOLE_PAGES, ids=lambda page: page.name)
def test_a_page_shows_the_real_output(page: Path, page_runs: dict[Path, tuple[Path, "Future[int]"]]) -> None:
    assert page_runs[page][1].result()


def test_the_pages_that_promise_it_are_executed() -> None:
    assert {ROOT / "docs" / name for name in ("quickstart.md", "effects.md", "testing.md", "operating.md")} <= set(
        CONSOLE_PAGES
    )


@pytest.mark.parametrize(
    ("printed", "output", "alike"),
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
def test_a_wrong_page_is_detected(printed: str, output: str, alike: bool) -> None:
    known: dict[str, str] = {}
    assert agrees(printed, output, known) is alike
    assert known == ({"ap_9d9424199e": "ap_0123456789"} if printed.startswith("ap_") else {})
