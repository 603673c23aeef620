"""The sources keep the rules of `tests.tidy_rules`, and each rule finds its planted violation."""

import subprocess
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from types import ModuleType

import pytest

from outlast.core import machine
from tests import name_rules, page_rules, tidy_rules
from tests.tidy_rules import Source

ROOT = Path(__file__).resolve().parents[1]
# Files written by setup and tools, for a copy of the sources that is not a git checkout.
GENERATED = {".git", ".venv", ".tools", "__pycache__", "build", "dist"}


def project_files() -> list[Path]:
    """Return every file of the project: the files that git tracks or would track, else those that no tool wrote."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if listed.returncode == 0:
        paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:
        paths = [path for path in ROOT.rglob("*") if not GENERATED.intersection(path.relative_to(ROOT).parts)]
    return sorted(path for path in paths if path.is_file())


FILES = project_files()
pytestmark = pytest.mark.usefixtures("uncollected")


def read(top: Path) -> Iterator[Source]:
    """Yield the Python files below a folder, named relative to the package's root or the checkout."""
    base = ROOT / "src" if top.is_relative_to(ROOT / "src") else ROOT
    for path in FILES:
        if path.suffix == ".py" and path.is_relative_to(top):
            yield Source(path.relative_to(base).as_posix(), path.read_text(encoding="utf-8"))


PACKAGE = [*read(ROOT / "src")]


def report(findings: Iterator[tidy_rules.Finding]) -> None:
    """Fail with every finding at once."""
    if lines := [str(finding) for finding in findings]:
        pytest.fail("\n".join(["", *lines]), pytrace=False)


@pytest.mark.parametrize("rule", [*tidy_rules.FILE_RULES, *page_rules.RULES], ids=lambda rule: rule.__name__)
def test_every_file_of_the_package_keeps_the_rule(rule: tidy_rules.Rule) -> None:
    report(finding for source in PACKAGE for finding in rule(source))


@pytest.mark.parametrize("rule", tidy_rules.TEST_RULES, ids=lambda rule: rule.__name__)
def test_every_test_waits_for_what_it_reads(rule: tidy_rules.Rule) -> None:
    report(finding for source in read(ROOT / "tests") for finding in rule(source))


def test_statuses_are_spelled_in_the_machine_only() -> None:
    words = tidy_rules.status_words(machine, {move.verb for move in machine.TABLE})
    rule = tidy_rules.status_literals(words)
    report(finding for source in PACKAGE for finding in rule(source))


PLANTED_SQL = [
    "x = \"SELECT * FROM run WHERE owner <> '' AND owner <> 'ended'\"\n",
    "def f(a):\n    return f\"{a} AND owner <> 'ended' LIMIT 1\"\n",
    "x = \"UPDATE run SET status = 'waiting'\"\n",
]


@pytest.mark.parametrize("snippet", PLANTED_SQL)
def test_a_status_inside_a_sql_text_is_found(snippet: str) -> None:
    words = tidy_rules.status_words(machine, {move.verb for move in machine.TABLE})
    rule = tidy_rules.status_literals(words, in_sql={machine.ENDED})
    (found,) = rule(Source("outlast/store/planted.py", HEAD + snippet))
    assert "in SQL is a word of core/machine.py" in str(found)
    inserted = "from outlast.core.machine import ENDED\nx = f\"owner <> '' AND owner <> '{ENDED}'\"\n"
    assert list(rule(Source("outlast/store/planted.py", HEAD + inserted))) == []


def test_only_a_part_of_a_session_changes_its_fields() -> None:
    rule = tidy_rules.foreign_fields(tidy_rules.slots_of(PACKAGE, tidy_rules.SESSION_PARTS))
    engine = [source for source in PACKAGE if source.path.startswith(tidy_rules.SESSION_PACKAGE)]
    report(finding for source in engine for finding in rule(source))


def test_every_exception_is_still_needed() -> None:
    written = {(source.path, node.value) for source in PACKAGE for node in source.strings}
    assert set(tidy_rules.ORDINARY_WORDS) <= written
    assert all(tidy_rules.ORDINARY_WORDS.values()), "an exception without its reason"
    functions = {(source.path, function.name) for source in PACKAGE for function in source.functions}
    assert set(page_rules.WHOLE) <= functions
    assert all(page_rules.WHOLE.values()), "an exception without its reason"


def test_every_module_is_imported() -> None:
    report(tidy_rules.unimported_modules(PACKAGE))


def test_no_name_is_there_for_tests_alone() -> None:
    files = [path for path in FILES if path.suffix != ".py" and path.is_relative_to(ROOT / "src")]
    texts = [path.read_text(encoding="utf-8") for path in (*files, ROOT / "pyproject.toml")]
    pages = [path for path in FILES if path.suffix == ".md" and path.is_relative_to(ROOT / "docs")]
    texts += [name_rules.code_in(page.read_text(encoding="utf-8")) for page in pages]
    excused = name_rules.CALLED_BY_OTHERS
    found = {finding.text.split()[0]: finding for finding in name_rules.names_without_use(PACKAGE, texts)}
    report(finding for name, finding in found.items() if name not in excused)
    assert found.keys() >= excused.keys(), "an exception that is no longer needed"


def test_a_name_for_tests_alone_is_found() -> None:
    """Also one that only calls itself. A registered name, a word in a template and a public name are used."""
    module = (
        "def used():\n    return _inner()\n\n\ndef _inner():\n    return 1\n\n\n"
        "def dead():\n    return dead()\n\n\nclass Shape:\n    @property\n    def scans(self):\n        return 1\n\n\n"
        "@router.get('/')\ndef page():\n    pass\n\n\ndef shown():\n    pass\n\n\nPRICES: Final = {}\n"
    )
    planted = [
        Source("outlast/core/planted.py", f'"""The dead PRICES."""\n{module}'),
        Source("outlast/core/other.py", "from outlast.core.planted import PRICES, Shape, used\nx = used(), Shape\n"),
        Source("outlast/testing/tools.py", "def for_authors():\n    pass\n"),
    ]
    found = name_rules.names_without_use(planted, ["{{ shown(1) }}"])
    assert [finding.text.split()[0] for finding in found] == ["dead", "scans", "PRICES", "x"]


def test_modules_have_different_names() -> None:
    report(tidy_rules.equal_module_names(PACKAGE))


def test_equal_names_of_modules_are_found() -> None:
    planted = [
        Source("outlast/cli/runs.py", ""),
        Source("outlast/ui/routes/runs.py", ""),
        Source("outlast/core/approvals.py", ""),
        Source("outlast/models/approvals.py", ""),
        Source("outlast/store/postgres/writer.py", ""),
        Source("outlast/store/sqlite/writer.py", ""),
        Source("outlast/cli/__init__.py", ""),
        Source("outlast/ui/__init__.py", ""),
    ]
    found = {finding.path for finding in tidy_rules.equal_module_names(planted)}
    assert found == {"outlast/cli/runs.py", "outlast/ui/routes/runs.py"}


def test_no_imports_go_in_a_circle() -> None:
    report(tidy_rules.import_circles(PACKAGE))


HIDDEN_CIRCLES = [
    "from outlast.runtime import client\n",
    "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from outlast.runtime.client import Client\n",
    "def f():\n    from .client import Client\n    return Client\n",
]


@pytest.mark.parametrize("back", HIDDEN_CIRCLES)
@pytest.mark.parametrize("other", ["runtime", "store"])
def test_a_circle_of_imports_is_found(back: str, other: str) -> None:
    """Also one that is hidden from the interpreter, and inside a package. An import that only leads to it is none."""
    planted = [
        Source("outlast/runtime/client.py", f"from outlast.{other}.third import x\n"),
        Source(f"outlast/{other}/third.py", "from outlast.runtime.run_handle import RunHandle\n"),
        Source("outlast/runtime/run_handle.py", back),
        Source("outlast/runtime/execution_runtime.py", "from outlast.runtime.client import Client\n"),
    ]
    found = {finding.path for finding in tidy_rules.import_circles(planted)}
    assert found == {"outlast/runtime/client.py", f"outlast/{other}/third.py", "outlast/runtime/run_handle.py"}
    planted[2] = Source("outlast/runtime/run_handle.py", "from outlast.errors import NotFound\n")
    assert list(tidy_rules.import_circles(planted)) == []


def test_functions_are_small() -> None:
    found: list[tidy_rules.Finding] = []
    measured: dict[str, int] = {}
    for source in (*PACKAGE, *(each for name in ("tests", "examples", "bench") for each in read(ROOT / name))):
        measures = [*tidy_rules.sizes(source)]
        found += tidy_rules.too_large(source, measures)
        measured |= {name: measure for name, _, measure, _, _ in measures}
    report(iter(found))
    assert list(tidy_rules.loosened(measured)) == []


def test_examples_never_make_code_from_data() -> None:
    report(finding for source in read(ROOT / "examples") for finding in tidy_rules.code_from_data(source))


def test_no_file_names_its_writers_machine() -> None:
    documents = {path.name for path in FILES}
    texts = [path for path in FILES if path.name != "LICENSE" and b"\0" not in path.read_bytes()[:4096]]
    report(
        finding
        for path in texts
        for finding in tidy_rules.foreign_text(
            path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"), documents
        )
    )


# Each rule on a violation and on its correct form, because a rule that finds nothing proves nothing.
HEAD = '"""What this file is for."""\n'
OF_A_SESSION = tidy_rules.foreign_fields({"run", "effects", "commits"})
BROKEN = [
    (tidy_rules.clocks_and_dice, "from datetime import datetime\nx = datetime.now()\n"),
    (tidy_rules.clocks_and_dice, "import datetime as d\nx = d.datetime.utcnow()\n"),
    (tidy_rules.clocks_and_dice, "from time import monotonic as clock\n"),
    (tidy_rules.clocks_and_dice, "import time\nx = time.time_ns\n"),
    (tidy_rules.clocks_and_dice, "import uuid\nx = uuid.uuid4()\n"),
    (tidy_rules.clocks_and_dice, "from random import choice\n"),
    (tidy_rules.sql_outside_the_store, 'x = "SELECT a FROM b"\n'),
    (tidy_rules.sql_outside_the_store, 'x = "insert into b values (1)"\n'),
    (tidy_rules.sql_outside_the_store, 'x = f"UPDATE {table} SET a = 1"\n'.replace("{table}", "run")),
    (tidy_rules.sql_outside_the_store, 'x = "pragma journal_mode"\n'),
    (tidy_rules.broad_excepts, "try:\n    x = 1\nexcept Exception:\n    pass\n"),
    (tidy_rules.broad_excepts, "try:\n    x = 1\nexcept:  # noqa: E722\n    pass\n"),
    (tidy_rules.broad_excepts, "try:\n    x = 1\nexcept (ValueError, BaseException):\n    pass\n"),
    (tidy_rules.ignores_without_code, "x = 1  # type: ignore\n"),
    (tidy_rules.ignores_without_code, "x = 1  # noqa\n"),
    (tidy_rules.missing_docstrings, "def start():\n    pass\n"),
    (tidy_rules.missing_docstrings, "class Run:\n    pass\n"),
    (tidy_rules.late_imports, "def f():\n    '''Doc.'''\n    import json\n"),
    (
        tidy_rules.imports_for_types_only,
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from outlast.store import port\n",
    ),
    (tidy_rules.code_from_data, "import pickle\n"),
    (tidy_rules.code_from_data, "x = eval('1')\n"),
    (tidy_rules.code_from_data, "import yaml\nx = yaml.load('a')\n"),
    (tidy_rules.code_from_data, "import importlib\ndef f(row):\n    importlib.import_module(row.name)\n"),
    (tidy_rules.status_literals({"running"}), 'x = "running"\n'),
    (tidy_rules.status_literals({"running"}), 'def f(x):\n    """Doc."""\n    return x == "running"\n'),
    (
        page_rules.filtered_pages,
        "async def f(self, reason, cursor, limit):\n"
        "    page = await self.store.query(OpenRows(RUN, self.tenant, (), cursor, limit))\n"
        "    return tuple(row for row in page.rows if row.reason is reason), page.cursor\n",
    ),
    (
        page_rules.filtered_pages,
        "async def f(ops):\n    found = await ops.attention(limit=8)\n    rows = found.attention\n"
        "    return [each for each in rows if each.run]\n",
    ),
    (
        page_rules.filtered_pages,
        "async def f(ops):\n    rows, _ = await ops.runs(limit=500)\n    for row in rows:\n"
        "        if row.ended:\n            continue\n        yield row\n",
    ),
    (page_rules.filtered_pages, "def f(ops):\n    return [a for a in ops.runs(limit=9).runs if a.attention]\n"),
    (page_rules.filtered_pages, "def f(ops):\n    page = ops.runs(limit=9)\n    return filter(None, page.runs)\n"),
    (tidy_rules.reads_past_operations, "async def f(ops, run):\n    return await ops.rows.run(run)\n"),
    (tidy_rules.reads_past_operations, "def f(self):\n    return self.runtime.operations.rows\n"),
    (
        page_rules.cursor_loops,
        "async def f(ops):\n    cursor = ''\n    while True:\n        rows, cursor = await ops.flagged(cursor=cursor)\n"
        "        if not cursor:\n            return\n",
    ),
    (
        page_rules.cursor_loops,
        "async def f(store, n):\n    at, more = '', True\n    while more:\n"
        "        page = await store.page(n, cursor=at or n)\n        more = bool(at := page.cursor)\n",
    ),
    (
        page_rules.cursor_loops,
        "async def f(client, n):\n    while True:\n        page = await client.events(after=n)\n"
        "        if not page.next_cursor:\n            return\n        n = page.last\n",
    ),
    (tidy_rules.statuses_read_once, 'assert service.get(f"/v1/runs/{run}").json()["status"] == "waiting"\n'),
    (tidy_rules.statuses_read_once, 'assert "running" == a.client.get(path, headers={}).json()["status"]\n'),
    (tidy_rules.waits_for_anything, 'service.until(path, lambda body: body["waiting_for"])\n'),
    (tidy_rules.waits_for_anything, 'x = [run for run in runs if run["run"] == "r" and run["waiting_for"]]\n'),
    (tidy_rules.waits_for_anything, 'while not body["owner"] and body["waiting_for"]:\n    pass\n'),
    (tidy_rules.sleeps_without_a_reason, "import time\ntime.sleep(1)  # noqa: ASYNC251\n"),
    (tidy_rules.sleeps_without_a_reason, "from time import sleep\ndef f():\n    sleep(0.5)\n"),
    (OF_A_SESSION, "def f(session, row):\n    session.held.run = row\n"),
    (OF_A_SESSION, "def f(session, row):\n    session.held.run, said = row\n"),
    (OF_A_SESSION, "class A:\n    def f(self):\n        self._held.commits += 1\n"),
    (OF_A_SESSION, "def f(held, row):\n    held.effects[row.key] = row\n"),
    (OF_A_SESSION, "def f(held, row):\n    del held.effects[row.key]\n"),
    (OF_A_SESSION, "def f(session, key):\n    return session.held.effects.pop(key)\n"),
    (OF_A_SESSION, "def f(held, row):\n    setattr(held, 'run', row)\n"),
    (OF_A_SESSION, "def f(held, rows):\n    for held.run in rows:\n        pass\n"),
    (tidy_rules.size, "def f():\n" + "    x = 1\n" * 70),
    (
        tidy_rules.size,
        "def f(a):\n    if a:\n        for b in a:\n            while b:\n                with b:\n"
        "                    if b:\n                        pass\n",
    ),
]
KEPT = [
    (tidy_rules.clocks_and_dice, "from datetime import datetime\nx = datetime.fromisoformat\n"),
    (tidy_rules.clocks_and_dice, "from time import sleep\ndef f(time):\n    time.time_ms()\n"),
    (tidy_rules.sql_outside_the_store, 'x = "update the run, then select one of them from the list"\n'),
    (tidy_rules.broad_excepts, "try:\n    x = 1\nexcept Exception:  # an author's code may raise anything\n    pass\n"),
    (tidy_rules.broad_excepts, "try:\n    x = 1\nexcept ValueError:\n    pass\n"),
    (tidy_rules.ignores_without_code, "x = 1  # type: ignore[misc]\n"),
    (tidy_rules.missing_docstrings, "def _start():\n    pass\n"),
    (tidy_rules.late_imports, "import json\n"),
    (
        tidy_rules.imports_for_types_only,
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from collections.abc import Iterator\n",
    ),
    (
        tidy_rules.reads_past_operations,
        "async def f(ops, page):\n    return page.rows, await ops.store.rows()\n",
    ),
    (tidy_rules.code_from_data, "import json\nx = json.loads('1')\n"),
    (
        page_rules.filtered_pages,
        "async def f(ops):\n    found = []\n    async for page in pages(partial(ops.runs, limit=9)):\n"
        "        found += [row for row in page.runs if row.attention]\n    return found\n",
    ),
    (
        page_rules.cursor_loops,
        "async def f(ops, at):\n    while await ops.more():\n        page = await ops.runs(cursor=at, limit=9)\n"
        "    async for page in pages(ops.runs):\n        print(page.next_cursor)\n",
    ),
    (page_rules.filtered_pages, "def f(ops):\n    page = ops.runs(limit=9)\n    return [a.run for a in page.runs]\n"),
    (tidy_rules.statuses_read_once, 'assert service.ended(run)["status"] == "waiting"\n'),
    (tidy_rules.statuses_read_once, 'assert service.get(path).json()["status"] == "completed"\n'),
    (tidy_rules.waits_for_anything, 'f(lambda body: any(w["kind"] == "signal" for w in body["waiting_for"]))\n'),
    (OF_A_SESSION, "class A:\n    def f(self, row):\n        self.run = row\n        self.effects[row.key] = row\n"),
    (OF_A_SESSION, "def f(held, key):\n    run = held.run\n    return held.effects.get(key)\n"),
    (tidy_rules.sleeps_without_a_reason, "import time\nwhile not f():\n    time.sleep(0.1)\n"),
    (tidy_rules.sleeps_without_a_reason, "import time\ntime.sleep(1)  # the length of the outage\n"),
    (tidy_rules.status_literals({"running"}), '"""running"""\nx = "is running"\n'),
    (
        tidy_rules.size,
        "def f(a):\n    if a == 1:\n        pass\n"
        + "".join(f"    elif a == {n}:\n        pass\n" for n in range(2, 9)),
    ),
]


@pytest.mark.parametrize(("rule", "snippet"), BROKEN)
def test_each_rule_finds_its_planted_violation(rule: tidy_rules.Rule, snippet: str) -> None:
    assert list(rule(Source("outlast/engine/planted.py", HEAD + snippet)))


@pytest.mark.parametrize(("rule", "snippet"), KEPT)
def test_each_rule_accepts_the_correct_form(rule: tidy_rules.Rule, snippet: str) -> None:
    text = snippet if snippet.startswith('"""') else HEAD + snippet
    assert list(rule(Source("outlast/engine/planted.py", text))) == []


def test_the_machines_words_are_read_from_its_enums() -> None:
    planted = ModuleType("machine")
    planted.Run = StrEnum("Run", {"RUNNING": "running", "CANCEL": "cancel"})  # type: ignore[attr-defined]
    planted.other = "other"  # type: ignore[attr-defined]
    assert tidy_rules.status_words(planted, {"cancel"}) == {"running"}
    assert "running" in tidy_rules.status_words(machine, set())


def test_an_unused_module_is_found() -> None:
    planted = [
        Source("outlast/__init__.py", "from outlast.core import rows\n"),
        Source("outlast/core/__init__.py", ""),
        Source("outlast/core/rows.py", "from . import keys\n"),
        Source("outlast/core/keys.py", ""),
        Source("outlast/core/lonely.py", "import outlast.core.lonely\n"),
        Source("outlast/cli/__init__.py", 'LAZY = {"demo": "outlast.cli.demo:demo"}\n'),
        Source("outlast/cli/demo.py", ""),
    ]
    assert [finding.path for finding in tidy_rules.unimported_modules(planted)] == ["outlast/core/lonely.py"]


@pytest.mark.parametrize(
    "line",
    ["see /" + "work/main", "cd /" + "root", "https://py" + "pi.org/simple", "as NOWHERE" + ".md says"],
)
def test_a_local_path_is_found(line: str) -> None:
    assert list(tidy_rules.foreign_text("a.md", line, {"README.md"}))
    assert list(tidy_rules.foreign_text("a.md", "README.md, /v1/runs and ./rooms/work-shop/", {"README.md"})) == []


def test_a_loose_ratchet_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tidy_rules, "RATCHET", {"outlast/a.py::f": 80})
    grown = Source("outlast/a.py", "def f():\n" + "    x = 1\n" * 80)
    assert [finding.line for finding in tidy_rules.size(grown)] == [1]
    assert list(tidy_rules.loosened({"outlast/a.py::f": 80})) == []
    assert list(tidy_rules.loosened({"outlast/a.py::f": 75}))
