"""Every block of the documentation is executed or compared by a test, or listed here with a reason."""

import asyncio
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from outlast.core.generation import StoreFile
from outlast.outbox.delivery_client import notice
from outlast.runtime.settings import effective_settings, load
from outlast.runtime.stores import open_store
from outlast.service.responses import Problem
from outlast.store.sqlite.database import copied
from outlast.ui.app import asgi
from tests.docs.commands import NOT_RUN, typed
from tests.docs.conftest import CONSOLE_PAGES
from tests.docs.pages import ROOT, Block, blocks, pages, program
from tests.docs.test_commands import WITH_COMMANDS
from tests.insight.situations import OVERDUE, RUN
from tests.insight.test_explain import SENTENCES

EXECUTED = {
    "python": "test_blocks.py compiles it, checks its types and runs its definitions",
    "console": "test_transcripts.py runs it and compares",
    "bash": "test_commands.py runs it",
    "toml": "here: read as outlast.toml",
    "sql": "test_commands.py runs it on a server",
    "mermaid": "tests/core/test_machine.py generates it",
}
"""How the blocks of each language are tested."""

COMPARED = {
    "docs/agents.md: KIND               STATUS     VISIT  WHAT": "tests/agent/test_visible.py",
    "docs/approvals.md: A-1, 900 cents": "test_examples.py",
    "docs/care.md: OUT-510  the store copy.db is a backup": "here: word for word",
    "docs/compensation.md: ana's trip": "test_examples.py",
    "docs/children.md: chairs": "test_examples.py",
    "docs/acquisition.md: ✗ read_site": "tests/examples/test_acquisition.py",
    "docs/dev.md: trip-1 needs you": "tests/service/test_serve.py",
    "docs/desk.md: ✗ worker w-2 killed": "tests/examples/test_desk.py",
    "docs/observability.md: 9e3c0b3ac5db495e (sent elsewhere)": "tests/e2e/test_over_http.py",
    "docs/operating.md: order-7 has been queued for 3m; no live worker serves order@1.": "here: word for word",
    "docs/operating.md: WORKER           NAME  STATUS": "here: its columns",
    'docs/operating.md: "run": "order-7"': "here: the members of a real one",
    'docs/http.md: "type": "https://outlast.dev/e/OUT-402#decided"': "here: its members; tests/e2e/test_over_http.py",
    "docs/forks.md: $ outlast runs fork": "tests/cli/test_forks.py",
    "docs/http.md: event: delta": "tests/service/test_streams.py: its members",
    "docs/pydantic-ai.md: + from outlast": "tests/pydantic_ai/test_page.py",
    'docs/policy.md: @id("small-refund")': "test_commands.py tries a policy of it",
    'docs/testing.md: """Run order-17': "tests/cli/test_run_tests.py",
    "docs/testing.md: the run differs from order-17": "tests/cli/test_run_tests.py",
    "docs/testing.md: story 9 breaks a sentence": "tests/testing/test_any_story.py",
    "docs/performance.md: scripts/bench": "here: its flags; running it takes minutes to hours",
    "docs/scaling.md: scripts/bench W2": "here: its flags; running it takes minutes to hours",
    "docs/reliability.md: scripts/simulate": "here: its flags; running it takes minutes to hours",
    "docs/reliability.md: scripts/chaos --minutes 5": "here: its flags; running it takes minutes to hours",
    "docs/reliability.md: scripts/chaos --minutes 0.4": "here: its flags; running it takes minutes to hours",
    "docs/reliability.md: scripts/proxied": "here: its flags; running it takes minutes to hours",
    "docs/reliability.md: scripts/crash": "here: its flags; running it takes minutes to hours",
}
"""Blocks of text and data by page and first line, with the test that compares them."""

NOT_COMPARED = {
    "README.md: ▸ auction       round 3 of 5": "tests/e2e/test_demo.py asserts its claims; figures differ",
    "docs/care.md: history_chain  event default r-17 4": "corrupt store: tests/upkeep/test_fsck.py corrupts each row",
    "docs/deploys.md: OUT-210  2 runs will NOT continue": "tests/deploys/test_deploy_check.py tests its sentences",
    "docs/serve.md: location / {": "nginx is not installed",
    "docs/testing.md: ✗ r1 call charge/o-1": "tests/testing plants this fault and others, and reads the messages",
}
"""Blocks that no test compares, each with its reason. A test limits their number."""


def first_line(block: Block) -> str:
    """Return the key of a block in the tables."""
    lines = [line.strip() for line in block.body.splitlines() if line.strip() not in ("{", "")]
    return f"{block.page.relative_to(ROOT)}: {lines[0]}"


def entry(block: Block) -> str:
    """Return the entry of a block in one of the tables, or an empty string."""
    return next((key for key in (*COMPARED, *NOT_COMPARED) if first_line(block).startswith(key)), "")


EVERY = [block for page in pages() for block in blocks(page)]
TEXTS = [block for block in EVERY if block.language not in EXECUTED]


@pytest.mark.parametrize("block", TEXTS, ids=lambda block: block.where)
def test_a_text_block_is_compared_or_listed_with_a_reason(block: Block) -> None:
    assert entry(block), f"{first_line(block)}: make it a console block, or compare it and name the test above"


def test_the_tables_are_short_and_name_existing_blocks() -> None:
    assert set(COMPARED) | set(NOT_COMPARED) == {entry(block) for block in TEXTS}
    assert len(NOT_COMPARED) <= 5, "make the block a console block instead"


def test_each_language_is_executed_on_its_page() -> None:
    of = {language: {b.page for b in EVERY if b.language == language} for language in EXECUTED}
    assert of["console"] == set(CONSOLE_PAGES)
    assert of["bash"] == {page for page in pages() if list(typed(page))}
    left_out = {page.name for page in of["bash"] - set(WITH_COMMANDS)}
    assert left_out == set(), f"every command of these is in {len(NOT_RUN)} that are not run"
    assert {page.name for page in of["sql"]} == {"postgres.md"}
    by_hand = {
        "ARCHITECTURE.md",
        "children.md",
        "tools.md",
    }  # the map, a tree, and the choice that the next test compares
    assert {page.name for page in of["mermaid"]} == {"lifecycle.md", *by_hand}


def test_the_choice_for_a_tool_ends_in_declarations_of_the_page() -> None:
    page = ROOT / "docs" / "tools.md"
    (drawn,) = [block.body for block in blocks(page) if block.language == "mermaid"]
    ends = [end.replace("#quot;", '"').removesuffix(", the default") for end in re.findall(r'\w\["(.+)"\]', drawn)]
    assert len(ends) == 5
    assert [end for end in ends if end.replace("@tool.", ".").strip() not in program(page)] == []


@pytest.mark.parametrize("block", [b for b in EVERY if b.language == "toml"], ids=lambda block: block.where)
def test_settings_on_a_page_exist(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "outlast.toml").write_text(block.body, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    load()
    assert sum(value.source == "outlast.toml" for value in effective_settings()) == len(
        re.findall(r"^\w+ = ", block.body, re.MULTILINE)
    )


def test_the_sentences_of_explain_are_real() -> None:
    (shown,) = [block.body for block in TEXTS if "order-7 has been queued" in block.body]
    real = {masked(sentence) for sentence in SENTENCES.values()}
    assert {masked(line) for line in shown.splitlines()} <= real


def test_the_error_for_a_backup_is_real() -> None:
    (shown,) = [block.body for block in TEXTS if block.body.startswith("OUT-510")]
    backup = StoreFile(inode=1, born=1, path="/data/outlast.db", host="a", copied_at=1)
    assert shown.strip() == str(copied(Path("copy.db"), backup))


def masked(sentence: str) -> str:
    """Replace names and durations in a sentence by X."""
    sentence = re.sub(
        r"buy/acme|refund/A-17|«[B-Z][^»]*»|w-[\w-]+|ap_\w+|(order|refund)@1|\d+(ms|[smhd])", "X", sentence
    )
    return re.sub(r"\b(order-7|r1|lead|finance|award|pay|buy|issue_refund)\b", "X", sentence)


def test_the_columns_of_the_workers_are_those_of_the_command() -> None:
    (shown,) = [block.body for block in TEXTS if block.body.startswith("WORKER")]
    source = (ROOT / "src/outlast/cli/workers.py").read_text(encoding="utf-8")
    columns = re.search(r'\(\s*"WORKER"[^)]*\)', source)
    assert columns is not None
    assert shown.splitlines()[0].split() == re.findall(r'"(\w+)"', columns[0])


def test_the_problem_of_the_page_has_the_members_of_problems() -> None:
    (shown,) = [json.loads(block.body) for block in TEXTS if "OUT-402#decided" in block.body]
    assert set(shown) == {name for name, field in Problem.model_fields.items() if field.is_required()}
    Problem.model_validate(shown)


def test_the_notice_of_the_page_has_the_members_of_notices() -> None:
    (shown,) = [json.loads(block.body) for block in TEXTS if '"run": "order-7"' in block.body]
    real = notice(RUN, [OVERDUE])
    assert (set(shown), set(shown["reasons"][0])) == (set(real), set(real["reasons"][0]))
    assert shown["reasons"][0]["choices"] == real["reasons"][0]["choices"]


SCRIPTS = {
    "bench peers": "bench.peers", "bench pairs": "bench.pairs", "bench": "bench",
    "simulate": "tests.simulation", "chaos": "tests.chaos", "crash": "tests.crash",
}  # fmt: skip


@pytest.mark.parametrize(("script", "module"), SCRIPTS.items())
def test_the_flags_of_a_script_exist(script: str, module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", module, "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    others = tuple(f"scripts/{other} " for other in SCRIPTS if other.startswith(f"{script} "))
    lines = [
        line
        for block in TEXTS
        for line in block.body.splitlines()
        if line.startswith(f"scripts/{script} ") and not line.startswith(others)
    ]
    assert lines
    flags = {word for line in lines for word in shlex.split(line.partition("  #")[0]) if word.startswith("--")}
    assert {flag.partition("=")[0] for flag in flags} <= set(re.findall(r"--[\w-]+", done.stdout))


def test_every_path_of_the_service_is_on_its_page() -> None:
    page = (ROOT / "docs/http.md").read_text(encoding="utf-8")
    table = page.partition("## Routes")[2].partition("\n## ")[0]
    named = set(re.findall(r"/[\w/-]+", table))
    parts = {f"/{part}" for path in paths() for part in path.removeprefix("/v1").split("/") if part and part[0] != "{"}
    rest = {"/test", "/rotate", "/disable", "/enable", "/redeliver"}  # of `/webhooks` …
    health = {"/healthz", "/readyz", "/metrics"}  # docs/serve.md
    missing = {part for part in parts - rest - health if not any(part in each for each in named)}
    assert missing == set()


def paths() -> list[str]:
    """Return every path of the OpenAPI document."""

    async def drawn() -> list[str]:
        store = await open_store("memory:")
        try:
            return list(asgi(store).openapi()["paths"])
        finally:
            await store.close()

    return asyncio.run(drawn())


def test_the_paging_alerts_are_those_of_the_rules() -> None:
    page = (ROOT / "docs/serve.md").read_text(encoding="utf-8")
    rules = (ROOT / "ops/alerts.yaml").read_text(encoding="utf-8")
    each = re.findall(r"- alert: (\w+)(?:(?!- alert:).)*?severity: (\w+)", rules, re.DOTALL)
    assert re.findall(r"^\| `(Outlast\w+)` \|", page, re.MULTILINE) == [n for n, how in each if how == "page"]
