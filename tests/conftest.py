"""What every test gets: the check that a test names only requirements that exist."""

import signal
from pathlib import Path

import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell has what it runs with `&` ignore Ctrl-C, and the processes of tests would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

REQUIREMENT_IDS = frozenset(Path(__file__).with_name("requirement_ids.txt").read_text(encoding="utf-8").split())


def unknown_requirements(ids: tuple[object, ...]) -> list[str]:
    """What a `req` mark names that is no requirement; a mark that names nothing is unknown as a whole."""
    if not ids:
        return ["(none)"]
    return [str(one) for one in ids if one not in REQUIREMENT_IDS]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse the run when a test claims a requirement that is not in the list."""
    wrong = [
        f"{item.nodeid}: @pytest.mark.req names {', '.join(unknown)}, which tests/requirement_ids.txt does not list"
        for item in items
        for mark in item.iter_markers("req")
        if (unknown := unknown_requirements(mark.args))
    ]
    if wrong:
        raise pytest.UsageError("\n".join(wrong))
