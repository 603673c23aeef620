"""Every feature that the pages print has a proof, and no page denies one that exists or claims one that does not."""

import asyncio
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest

from examples.negotiation.samples import SAMPLES
from outlast.cli.root import cli
from outlast.runtime.stores import open_store
from outlast.ui.app import asgi
from tests.conftest import NOT_BUILT
from tests.docs.features import FEATURES, MISSING, Feature, Missing, with_features
from tests.docs.pages import ROOT, pages, prose
from tests.rows.marks import cited

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PRINT_THE_LIST = ["README.md", "docs/attention.md", "docs/coming-from.md", "docs/comparison.md", "docs/http.md"]
DENIAL = re.compile(
    r"\b(?:has|have|offers?|provides?|includes?|supports?|with) (?:no|neither)\b"
    r"|\b(?:does|do) not (?:have|offer|support)|\b(?:lacks?|missing)\b"
    r"|\b(?:is|are|will be) (?:planned|added later|not built|not implemented)\b|\bnot (?:yet|built)\b",
    re.IGNORECASE,
)
OURS = re.compile(r"\bOutlast\b(?!'s own|-)|\b(?:this release|this version)\b", re.IGNORECASE)
LISTS_OF_DENIALS = re.compile(r"does not have|is behind|not for|not to use|not in this release", re.IGNORECASE)
"""Headings below which each item is denied."""
REFUSES = re.compile(r"\b(?:no|not|never|planned|instead|cannot|neither)\b", re.IGNORECASE)


# --- proofs ------------------------------------------------------------------------------------
def exists(proof: str) -> bool:
    """True if a proof is there: a name to import, a command with its options, a route, an extra, a file or a sample."""
    kind, _, name = proof.partition(" ")
    match kind:
        case "extra":
            return name in PROJECT["optional-dependencies"]
        case "file":
            return (ROOT / name).is_file()
        case "sample":
            return name == "leverage" or name in SAMPLES or (ROOT / "examples" / name / "demo.py").is_file()
        case "outlast":
            return is_command(name.split())
        case "GET" | "POST":
            return proof in routes()
    return can_be_imported(proof)


def is_command(words: list[str]) -> bool:
    """True if a command and its options exist."""
    command: click.Command = cli
    ctx = click.Context(cli)
    for word in words:
        if word.startswith("-"):
            if not any(word in each.opts for each in command.params):
                return False
        elif not isinstance(command, click.Group) or (step := command.get_command(ctx, word)) is None:
            return False
        else:
            command = step
    return True


def can_be_imported(path: str) -> bool:
    """True if a module, or a name in one, can be imported."""
    parts = path.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: Any = import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for name in parts[end:]:
            if not hasattr(found, name):
                return False
            found = getattr(found, name)
        return True
    return False


@cache
def routes() -> frozenset[str]:
    """Return the method and path of every route of a service, its pages included."""

    async def drawn() -> frozenset[str]:
        store = await open_store("memory:")
        try:
            found = asgi(store).routes
            return frozenset(
                f"{method} {getattr(each, 'path', '')}"
                for each in found
                for method in getattr(each, "methods", None) or ()
            )
        finally:
            await store.close()

    return asyncio.run(drawn())


@pytest.mark.parametrize("feature", FEATURES, ids=lambda each: each.text[:60])
def test_a_feature_is_proven(feature: Feature) -> None:
    assert feature.proofs
    assert [proof for proof in feature.proofs if not exists(proof)] == []


@pytest.mark.parametrize("each", MISSING, ids=lambda each: each.text[:60])
def test_a_missing_feature_is_not_there(each: Missing) -> None:
    assert each.requirements or each.absent, "say what would exist"
    assert [name for name in each.absent if exists(name)] == [], "move it to FEATURES"
    built = [one for one in each.requirements if not NOT_BUILT[one]]
    assert built == [], "docs/requirements.md calls it built: move it to FEATURES"
    assert [one for one in each.requirements if NOT_BUILT[one] == "all" and one in cited()] == []


def test_the_list_and_the_requirements_miss_the_same() -> None:
    assert {one for each in MISSING for one in each.requirements} == {one for one, part in NOT_BUILT.items() if part}


@pytest.mark.parametrize(
    "proof",
    [
        "outlast.Nothing",
        "outlast.nothing",
        "outlast nothing",
        "outlast runs ls --nothing",
        "GET /v1/nothing",
        "extra nothing",
        "file nothing",
        "sample nothing",
    ],
)
def test_a_proof_that_is_not_there_is_missed(proof: str) -> None:
    assert not exists(proof)


# --- pages -------------------------------------------------------------------------------------
def test_the_pages_print_the_list() -> None:
    printing = [
        page.relative_to(ROOT).as_posix() for page in pages() if "<!-- features: " in page.read_text(encoding="utf-8")
    ]
    assert printing == PRINT_THE_LIST
    for name in printing:
        text = (ROOT / name).read_text(encoding="utf-8")
        assert with_features(ROOT / name, text) == text, f"{name}: python -m tests.docs.pages"


def sentences(text: str) -> Iterator[tuple[str, str]]:
    """Yield each sentence, list item and row of a table with its heading."""
    heading = ""
    for part in re.split(r"\n(?=#)|\n\n|\n(?=[-|*] )|\n(?=\|)", re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)):
        flat = " ".join(part.split())
        if flat.startswith("#"):
            heading = flat
        for sentence in re.split(r"(?<=[.!?:])\*{0,2} (?=[A-Z*`\[])", flat):
            yield heading, sentence


def denied(heading: str, sentence: str) -> list[str]:
    """Return the features that a sentence denies although they exist."""
    if sentence.startswith(("- ", "* ")) and LISTS_OF_DENIALS.search(heading):
        named = sentence.partition(". ")[0]
    else:
        found = DENIAL.search(sentence)
        if found is None or not OURS.search(sentence[: found.start()]):
            return []
        named = re.split(r"[;.:(]", sentence[found.start() :])[0]
    return [
        each.text
        for each in FEATURES
        if each.words and re.search(rf"(?:\bno |^- (?:\*\*)?(?:an? )?|, )(?:{each.words})\b", named, re.IGNORECASE)
    ]


def claimed(sentence: str) -> list[str]:
    """Return the features that a sentence claims although they do not exist."""
    if REFUSES.search(sentence):
        return []
    return [each.text for each in MISSING if each.words and re.search(each.words, sentence, re.IGNORECASE)]


NOT_READ = ("requirements.md", "CHANGELOG.md")
"""The first says of each row what is not built, the second has entries of older releases."""
PAGES = sorted(
    page
    for page in {*pages(), *ROOT.glob("*.md"), *ROOT.glob("examples/**/*.md")}
    if page.parent.name != "decisions" and page.name not in NOT_READ
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_denies_nothing_that_exists_and_claims_nothing_that_does_not(page: Path) -> None:
    text = re.sub(r"<!-- features: \w+ -->.*?<!-- features: end -->", "", prose(page), flags=re.DOTALL)
    title = text.partition("\n")[0]
    wrong = [
        (sentence, names)
        for heading, sentence in sentences(text)
        if (names := denied(heading or title, sentence) + claimed(sentence))
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("heading", "sentence"),
    [
        ("## Where Outlast is behind", "Outlast has no UI, no schedules, one language and no years of production use."),
        ("## Beside others", "In this release Outlast lacks things, for it has no schedules and no web UI."),
        (
            "## What Outlast does not have",
            "- A web UI. The command line and the HTTP API have the same reads.",
        ),
        ("## What Outlast does not have", "- Streaming of tokens, memory and ready-made agents, as LangGraph has."),
        ("# When not to use Outlast", "- **A language-model framework.** Call any model inside a lookup."),
        ("## Scaling", "It may also name slots of its tenant, or the cron jobs of a tenant."),
    ],
)
def test_a_sentence_that_once_was_wrong_is_found(heading: str, sentence: str) -> None:
    assert denied(heading, sentence) + claimed(sentence)


@pytest.mark.parametrize(
    ("heading", "sentence"),
    [
        ("## LangGraph", "It has the larger ecosystem, streaming, memory and hosted products."),
        ("## Temporal", "LangGraph has no timers and no queue."),
        ("## Operating", "The service executes no runs."),
        ("## Deploys", "A person moves a run; no run can be forked from a checkpoint."),
    ],
)
def test_a_sentence_about_something_else_is_left_alone(heading: str, sentence: str) -> None:
    assert denied(heading, sentence) + claimed(sentence) == []
