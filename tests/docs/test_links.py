"""Pages, headings, error codes, commands, flags and exit codes that the documentation names exist."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import click
import pytest

from outlast import errors
from outlast.cli import exit_codes
from outlast.cli.root import cli
from outlast.core import limits
from outlast.core.machine import CHOICES, Reason
from outlast.core.rows.run_columns import WaitingKind
from outlast.runtime.stores import is_there
from tests.docs.pages import ROOT, anchors, blocks, pages, prose

LINK = re.compile(r"""(?:\[[^\]]*\]\(|\bsrc(?:set)?=")([^)\s"]+)[)"]""")
ERRORS = ROOT / "docs/errors.md"
OPERATING = ROOT / "docs/operating.md"
ATTENTION = ROOT / "docs/attention.md"


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_has_a_target(page: Path) -> None:
    for target in LINK.findall(prose(page)):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        found = (page.parent / name).resolve() if name else page
        assert found.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in anchors(found), f"{page.name}: {target} names no heading of {found.name}"


def test_every_page_is_reached_from_the_index_or_the_readme() -> None:
    lists = [ROOT / "README.md", ROOT / "docs/index.md", ROOT / "docs/decisions/README.md"]
    named = "".join(page.read_text(encoding="utf-8") for page in lists)
    missing = [page.name for page in sorted((ROOT / "docs").rglob("*.md")) if page.name not in named]
    assert missing == [], "name them in docs/index.md, or in docs/decisions/README.md"


def test_every_page_starts_with_what_its_reader_can_do() -> None:
    first = {page.name: page.read_text(encoding="utf-8").split("\n\n")[1] for page in (ROOT / "docs").glob("*.md")}
    assert [name for name, text in first.items() if not text.startswith(("After ", "This page lists"))] == []


def test_a_changelog_fragment_is_short_and_names_its_kind() -> None:
    guide = (ROOT / "changes/README.md").read_text(encoding="utf-8")
    kinds = set(re.findall(r"^\| `(\w+)` \|", guide, re.MULTILINE))
    assert kinds == {"action", "added", "changed", "fixed", "removed"}
    for fragment in set((ROOT / "changes").glob("*.md")) - {ROOT / "changes/README.md"}:
        assert fragment.name.split(".")[1:-1] in [[kind] for kind in kinds], fragment.name
        assert len(fragment.read_text(encoding="utf-8").split()) <= 60, fragment.name


# --- errors ------------------------------------------------------------------------------------
def tree(kind: type[errors.OutlastError]) -> Iterator[type[errors.OutlastError]]:
    """Yield an error class and its subclasses in `outlast.errors`."""
    yield kind
    for each in kind.__subclasses__():
        if each.__module__ == errors.__name__:
            yield from tree(each)


def test_every_code_has_a_section_with_its_class_name() -> None:
    kinds = list(tree(errors.OutlastError))
    assert len(kinds) >= 16
    text = ERRORS.read_text(encoding="utf-8")
    sections = dict(re.findall(r'^### <a id="(OUT-\d+)"></a>\1 · .+\n`(\w+)`', text, re.MULTILINE))
    assert sections == {kind.code: kind.__name__ for kind in kinds}


def test_the_limits_of_the_pages_are_those_of_the_code() -> None:
    """Once errors.md had 256 KiB of state, where state.md had the correct 8 MB."""
    text = " ".join(ERRORS.read_text(encoding="utf-8").split())
    mib, kib = limits.KIB**2, limits.KIB
    assert {limits.ARGUMENTS_BYTES_MAX, limits.RESPONSE_BYTES_MAX, limits.OUTCOME_BYTES_MAX} == {256 * kib}
    for said in (
        f"{limits.STATE_BYTES_MAX // mib} MiB for a state and {limits.INPUT_BYTES_MAX // mib} MiB for the input",
        f"{limits.RESULT_BYTES_MAX // kib} KiB each for arguments, a response, an outcome and a result",
        f"{limits.MESSAGE_BYTES_MAX // kib} KiB for a signal; {limits.KEY_BYTES_MAX} bytes for a key",
        f"{limits.TEXT_CHARS_MAX:,} characters for a summary",
    ):
        assert said in text, said
    state = (ROOT / "docs/state.md").read_text(encoding="utf-8")
    assert f"| the state | {limits.STATE_BYTES_MAX // mib} MB; {limits.OUTCOME_BYTES_MAX // kib} KB where" in state


def test_the_exit_codes_of_the_pages_are_those_of_the_command_line() -> None:
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", ERRORS.read_text(encoding="utf-8"), re.MULTILINE)
    listed = {code: int(exit_code) for exit_code, codes in rows for code in expanded(codes)}
    real = {
        kind.code: next(code for base, code in exit_codes.CODES if issubclass(kind, base))
        for kind in tree(errors.OutlastError)
    }
    assert listed == real
    table = OPERATING.read_text(encoding="utf-8").partition("## Exit codes")[2]
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)} == {
        value for name, value in vars(exit_codes).items() if name.isupper() and isinstance(value, int)
    }


def expanded(codes: str) -> Iterator[str]:
    """Yield the existing codes of a list such as `OUT-100 to OUT-105, OUT-503`."""
    known = {kind.code for kind in tree(errors.OutlastError)}
    for part in codes.split(", "):
        first, _, last = part.partition(" to ")
        yield from (code for code in known if first <= code <= (last or first))


def test_the_reasons_for_attention_are_those_of_the_table() -> None:
    section = ATTENTION.read_text(encoding="utf-8").partition("## Reasons")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| .+ \| (.+) \|$", section, re.MULTILINE)
    offered = {reason: choices.split(" · ") for reason, choices in rows}
    assert offered == {reason.value: [choice.value for choice in CHOICES[reason]] for reason in Reason}


# --- the command line --------------------------------------------------------------------------
def lines_of_commands() -> list[tuple[str, list[str]]]:
    """Return every `outlast …` in blocks and prose as (place, words)."""
    found: list[tuple[str, str]] = []
    for page in pages():
        for block in blocks(page):
            if block.language in ("bash", "console"):
                text = block.body.replace("\\\n", " ")
                lines = re.findall(r"^(?:\$ )?(outlast\b[^#\n]*)", text, re.MULTILINE)
                found += [(block.where, line) for line in lines if block.language == "bash" or f"$ {line}" in text]
        flat = " ".join(prose(page).split())
        found += [(page.name, words) for words in re.findall(r"`(outlast [^`]+)`", flat)]
    return [(where, re.sub(r"'[^']*'|\"[^\"]*\"", "X", line).split()[1:]) for where, line in found]


COMMANDS = lines_of_commands()


@pytest.mark.parametrize(("where", "words"), COMMANDS, ids=[f"{where} {' '.join(words)}" for where, words in COMMANDS])
def test_a_command_and_its_flags_exist(where: str, words: list[str]) -> None:
    command: click.Command = cli
    ctx = click.Context(cli, info_name="outlast")
    allowed = flags(command, ctx)
    for word in words:
        if word.startswith("-"):
            assert word.partition("=")[0] in allowed, f"{where}: {word}"
        elif isinstance(command, click.Group):
            step = command.get_command(ctx, word)
            if step is None:
                assert (
                    word.isupper() or word == "X" or "-o" in words or word.startswith(("sqlite:", "dynamodb:", "http"))
                ), f"{where}: {word}"
                continue
            command = step
            ctx = click.Context(command, parent=ctx, info_name=word)
            allowed |= flags(command, ctx)


def flags(command: click.Command, ctx: click.Context) -> set[str]:
    """Return the options of a command, including `--help`."""
    params = command.get_params(ctx)
    return {name for each in params for name in (*each.opts, *each.secondary_opts) if name.startswith("-")}


def test_the_table_has_the_flags_of_the_worker_with_their_defaults() -> None:
    worker = cli.get_command(click.Context(cli), "worker")
    assert worker is not None
    shown = dict(re.findall(r"^\| `(--[\w-]+)` \| (\w+) \|", OPERATING.read_text(encoding="utf-8"), re.MULTILINE))
    real = {
        each.opts[0]: re.sub(r".*\[(\w+)\]$", r"\1", each.help or "")
        for each in worker.params
        if isinstance(each, click.Option) and (each.help or "").endswith("s]") and each.metavar == "DURATION"
    }
    assert shown == real


def test_the_kinds_of_waits_on_the_page_are_those_of_the_command() -> None:
    text = (ROOT / "docs/waiting.md").read_text(encoding="utf-8").partition("The kinds are ")[2].partition(".")[0]
    assert tuple(re.findall(r"`(\w+)`", text)) == get_args(WaitingKind)


def test_the_store_urls_of_the_page_can_be_named() -> None:
    for url in ("sqlite:PATH", "sqlite:///ABSOLUTE/PATH"):
        assert f"`{url}`" in OPERATING.read_text(encoding="utf-8")
        assert is_there(url) is False


def test_every_file_that_the_architecture_names_is_in_its_room() -> None:
    source, room, named = ROOT / "src/outlast", "", 0
    for line in (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").splitlines():
        heading = re.match(r"#+ (?:`(\w+)/`)?", line)
        room = (heading[1] or "") if heading else room
        for name in re.findall(r"`([\w/]+\.py)`", line):
            named += 1
            places = (source / name, source / room / name, ROOT / name)
            assert any(place.exists() for place in places), f"{room}: {name}"
    assert named >= 30


def test_the_table_of_the_service_has_every_command_once() -> None:
    """Once it had a command `db`, which was gone, and lacked four that exist."""
    table = (ROOT / "docs/http.md").read_text(encoding="utf-8").partition("| with a service or a store |")[2]
    rows = re.findall(r"^\| (`.+`) \| (`.+`) \|$", table.partition("\n\n")[0], re.MULTILINE)
    listed = re.findall(r"`(\w+)(?: …)?`", " ".join(cell for row in rows for cell in row))
    assert sorted(listed) == sorted(cli.list_commands(click.Context(cli)))
