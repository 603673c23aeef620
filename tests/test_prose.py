"""Limits on prose, names and pieces. They are what the project has today, and only ever shrink.

`scripts/prose` prints the counts. STYLE.md says what to write instead.
"""

import re
import subprocess
from collections.abc import Callable

import pytest

from tests import prose

pytestmark = pytest.mark.usefixtures("uncollected")
PAGES = [*prose.ROOT.glob("*.md"), *prose.ROOT.glob("docs/**/*.md")]

# Markers and what-clauses per 10,000 words. httpx, click and Starlette have 0 to 7 and 0 to 2.
RATES: dict[str, tuple[Callable[[], prose.Prose], float, float]] = {
    "docstrings and comments": (lambda: prose.source_prose(prose.PACKAGE), 2, 2),
    "pages": (lambda: prose.page_prose(PAGES), 8, 3),
    "help of commands": (prose.help_prose, 4, 4),
    "tests": (lambda: prose.source_prose(prose.ROOT / "tests"), 4, 3),
}


@pytest.mark.parametrize("text", RATES)
def test_the_words_are_those_of_the_field(text: str) -> None:
    read, markers, what = RATES[text]
    found = read()
    assert found.per_10k(sum(found.markers.values())) <= markers, found.markers.most_common(12)
    assert found.per_10k(found.what) <= what


RULES = "tests/prose.py: "  # its own comments quote the words


def test_no_forbidden_word_is_written() -> None:
    pages = [*prose.ROOT.glob("*.md"), *(prose.ROOT / "docs").rglob("*.md"), *(prose.ROOT / "examples").rglob("*.md")]
    found = [*prose.forbidden_in_sources(prose.PACKAGE), *prose.forbidden_in_sources(prose.ROOT / "examples")]
    found += prose.forbidden_in_configuration()
    for top in ("bench", "tests"):
        found += [each for each in prose.forbidden_in_sources(prose.ROOT / top) if not each.startswith(RULES)]
    for page in {*pages} - {prose.ROOT / "STYLE.md"}:  # it quotes them
        found += prose.forbidden(page.read_text(encoding="utf-8"), f"{page.relative_to(prose.ROOT)}")
    assert found == []


def test_a_docstring_begins_with_a_verb_and_says_something() -> None:
    assert prose.odd_first_words() == []
    assert prose.short_docstrings() == []


def test_a_class_name_means_one_thing() -> None:
    assert prose.duplicate_classes() == {}


def test_a_planted_sentence_is_counted() -> None:
    planted = prose.Prose()
    planted.add("What nobody guesses, as it stands: whoever asks is told anew. Return the rows of a run.")
    assert (sum(planted.markers.values()), planted.what) == (5, 1)
    assert [*prose.toml_comments('a = "x # y" # stands\nb = 1\n# in a room\n')] == ["stands", "in a room"]
    assert prose.METAPHORS.findall("in a room") == ["room"]
    assert prose.forbidden("It stands there. k stands for 1,000.", "a") == ["a: stands"]


SUBJECT_CHARS_MAX = 72
SUBJECTS_SINCE = "2026-11-22T23:46:00Z"  # earlier subjects are sentences
PUSHED = {  # too long, and not rewritten
    "client: check the arguments of every method, and read what validators raise",
    "runs: compare the exceptions of two runs, and a failed run with a completed one",
    "examples: count a run that was queued again as a crash in the office's demo",
    "limits: raise core and engine for two functions of pauses and refused amounts",
    "outbox: leave a receiver alone that asks to wait, and sum up what gathers",
    "service: give the poller of events a module, and begin both with their faults",
    "store: judge an incomplete DynamoDB store by tables read after its record",
    "store: read every run that a DynamoDB commit names, and the mapping first",
    "store: look again for an approval that DynamoDB's index does not show yet",
}
IMPERATIVE = re.compile(r"[a-z][\w ,/.-]*: (need|feed|embed|speed|bring|[a-z]\w*(?<!ed)(?<!ing))\b|Revert ")


def wrong_subjects(subjects: list[str]) -> list[str]:
    """Return commit subjects that are too long or are not `area: imperative summary`."""
    return [one for one in subjects if len(one) > SUBJECT_CHARS_MAX or not IMPERATIVE.match(one)]


def test_commit_subjects_are_short_and_imperative() -> None:
    """Skipped where the history is not at hand, as in an archive of the sources."""
    log = ["git", "log", "--no-merges", f"--since={SUBJECTS_SINCE}", "--format=%s"]
    done = subprocess.run(log, cwd=prose.ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("no git history")
    assert {*wrong_subjects(done.stdout.splitlines())} <= PUSHED


def test_a_planted_subject_is_refused() -> None:
    planted = ["engine: fixed the lease", "A lease is renewed", f"store: {'x' * 70}", "store: read a page in one query"]
    assert wrong_subjects(planted) == planted[:3]
