"""`outlast lint`: find mistakes of workflows in their source."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from outlast.cli.exit_codes import OK, RUN_FAILED
from outlast.cli.global_options import Command, settings_now
from outlast.cli.modules import file_of_module, load_module
from outlast.cli.screen import Screen
from outlast.errors import DefinitionError
from outlast.flow.workflow import declared_workflows
from outlast.lint import DOES_NOT_LOAD, RULES, Linted, LintFinding, finding_of, lint_file, python_files, selected


@click.command("lint", cls=Command)
@click.argument("what", metavar="MODULE|FILE|FOLDER…", nargs=-1)
@click.option("--no-import", is_flag=True, help="Read the source only; import nothing.")
@click.option("--select", multiple=True, metavar="CODE", help="Check only this rule.")
@click.option("--ignore", multiple=True, metavar="CODE", help="Leave this rule out.")
@click.option("--rules", is_flag=True, help="List the rules and check nothing.")
@click.pass_context
def lint(
    ctx: click.Context,
    what: tuple[str, ...],
    no_import: bool,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    rules: bool,
) -> None:
    """Find mistakes of workflows in their source.

    A module or a file is also imported, to know its definition errors and the activities of other modules. A folder is
    only read. Exit code 0 if nothing is found, 1 otherwise. A line is silenced by: # outlast: ignore[CODE] the reason
    """
    screen = Screen(settings_now())
    if rules:
        ctx.exit(_list_rules(screen))
    if not what:
        raise click.UsageError("name a module, a file or a folder; or list the rules with --rules")
    codes = selected(select, ignore)
    ctx.exit(show(screen, [each for given in what for each in linted(given, codes, no_import=no_import)]))


def linted(given: str, codes: Collection[str], *, no_import: bool = False) -> Iterator[Linted]:
    """Check a module, a file, or the files of a folder. Raises InvalidInput if there is no such file."""
    if Path(given).is_dir():
        yield from (lint_file(each, codes) for each in python_files(Path(given)))
        return
    file = _shown(file_of_module(given))
    module, broken = (None, []) if no_import else _loaded(given, str(file), codes)
    found = lint_file(file, codes, module)
    yield found._replace(findings=[*broken, *found.findings])


def _shown(file: Path) -> Path:
    """Return a path as people name it: from this folder on, if it is inside."""
    here = Path.cwd()
    return file.relative_to(here) if file.is_relative_to(here) else file


def _loaded(given: str, file: str, codes: Collection[str]) -> tuple[ModuleType | None, list[LintFinding]]:
    """Import a module and check its definitions. Each mistake there is a finding."""
    module: ModuleType | None = None
    found: list[DefinitionError] = []
    try:
        module = load_module(given)
        for workflow in declared_workflows(module):
            found += workflow.mistakes()
    except DefinitionError as error:
        found.append(error)
    if DOES_NOT_LOAD not in codes:
        return module, []
    findings = (finding_of(DOES_NOT_LOAD, file, each.where, f"{each.what}: {each.why}") for each in found)
    return module, [*dict.fromkeys(findings)]  # two workflows may see one activity


def show(screen: Screen, read: Sequence[Linted]) -> int:
    """Show the findings, and return the exit code."""
    found = [each for one in read for each in one.findings]
    files, lines = sum(one.files for one in read), sum(one.lines for one in read)
    code = RUN_FAILED if found else OK
    if screen.data({"findings": [plain(each) for each in found], "files": files, "lines": lines}):
        return code
    explained: set[str] = set()
    for each in found:
        screen.line(f"{each.path}:{each.line}:{each.column} {each.code} {each.detail}")
        if each.code not in explained:
            explained.add(each.code)
            screen.line(f"    {each.sentence}")
            screen.advice(f"    → {each.fix}")
    of = f"{files:,} file{'' if files == 1 else 's'} with {lines:,} lines"
    screen.line(f"{len(found):,} found in {of}" if found else f"nothing found in {of}")
    return code


def plain(finding: LintFinding) -> dict[str, Any]:
    """Return a finding as plain data."""
    return finding._asdict()


def _list_rules(screen: Screen) -> int:
    rules = sorted(RULES.items())
    if not screen.listing("rules", [{"code": code, **rule._asdict()} for code, rule in rules]):
        for code, each in rules:
            screen.line(f"{code} {each.sentence}")
            screen.advice(f"      → {each.fix}")
    return OK
