"""The first minutes: help, an empty folder, stores that cannot be opened, and mistakes of the one who types."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from outlast.cli.root import LAZY
from tests.cli.conftest import MODULE, Terminal

COMMANDS = [
    ["worker"], ["run"], ["signal"], ["runs"], ["runs", "ls"], ["runs", "show"], ["runs", "effects"],
    ["runs", "events"], ["runs", "continue"], ["runs", "cancel"], ["effects", "resolve"], ["approvals", "ls"],
    ["approvals", "show"], ["approvals", "approve"], ["approvals", "reject"], ["workers", "ls"], ["explain", "lease"],
]  # fmt: skip


def test_help_names_every_command(outlast: Terminal) -> None:
    answer = outlast("--help")
    assert answer.code == 0
    for name in LAZY:
        assert f"\n  {name} " in answer.out
    assert "Exit codes: 0 ok" in answer.out


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help(outlast: Terminal, command: list[str]) -> None:
    answer = outlast(*command, "--help")
    assert answer.code == 0
    assert "The global options" in answer.out or "Commands:" in answer.out


@pytest.mark.parametrize("group", ["runs", "webhooks", "approvals"])
def test_no_line_of_help_is_cut(outlast: Terminal, group: str) -> None:
    assert "..." not in outlast(group, "--help").out.partition("Commands:")[2]


def test_help_loads_no_command_no_engine_and_no_table() -> None:
    code = (
        "import sys\nfrom outlast.cli import cli\n"
        "try: cli(['--help'])\nexcept SystemExit: pass\n"
        "late = ('rich', 'sqlite3', 'outlast.engine', 'outlast.store', 'outlast.runtime', 'outlast.cli.run_commands')\n"
        "print([name for name in late if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines()[-1] == "[]"


HEAVY = ("outlast.engine", "outlast.store", "outlast.runtime.operations", "sqlite3", "httpx2", "rich", "fastapi")


@pytest.mark.parametrize(
    ("place", "loaded"),
    [
        ("--url=http://127.0.0.1:1", ["httpx2"]),
        ("--store=sqlite:none.db", ["outlast.engine", "outlast.store", "outlast.runtime.operations", "sqlite3"]),
    ],
)
@pytest.mark.parametrize("command", ["runs ls", "runs show r1", "approvals ls", "signal r1 paid", "effects ls"])
def test_a_command_loads_only_its_side(place: str, loaded: list[str], command: str, tmp_path: Path) -> None:
    code = f"""
import sys
sys.argv = ["outlast", {place!r}, *{command!r}.split()]
from outlast.cli import main
try: main()
except SystemExit as end: print(end.code, [name for name in {HEAVY!r} if name in sys.modules])
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert found.stdout.splitlines()[-1] == f"7 {loaded}"


def test_lint_loads_neither_a_client_nor_an_operation(tmp_path: Path) -> None:
    """It loaded both for its global options, and each start took 0.17 s of CPU more."""
    (tmp_path / "flows.py").write_text("import outlast\n")
    code = """
import sys
sys.argv = ["outlast", "lint", "--no-import", "flows.py"]
from outlast.cli import main
late = ("outlast.runtime.client", "outlast.operations", "outlast.engine", "outlast.store", "rich")
try: main()
except SystemExit as end: print(end.code, [name for name in late if name in sys.modules])
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert found.stdout.splitlines()[-1] == "0 []"


def test_version(outlast: Terminal) -> None:
    assert outlast("--version").out.startswith("outlast ")


def test_reading_never_makes_a_store(outlast: Terminal) -> None:
    answer = outlast("runs", "ls")
    assert answer.code == 7
    assert "there is no store at" in answer.err and "→ start a run" in answer.err
    assert list(outlast.folder.iterdir()) == []


def test_the_first_run_prints_the_url_of_the_new_store(outlast: Terminal) -> None:
    first = outlast("run", "refund", "order_id=1", "cents=5")
    assert f"new store {outlast.url}" in first.err
    assert "new store" not in outlast("run", "refund", "order_id=2", "cents=5").err


def test_the_default_store_is_a_file_in_this_folder(outlast: Terminal) -> None:
    assert outlast("run", "refund", "order_id=1", "cents=5", env={"OUTLAST_STORE": ""}).code == 0
    assert (outlast.folder / "outlast.db").exists()


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (["runs", "ls"], "no run yet → outlast run"),
        (["runs", "ls", "--attention"], "no run matches"),
        (["approvals", "ls"], "no approval is pending"),
        (["approvals", "ls", "--all"], "no approval was requested yet"),
        (["workers", "ls"], "no worker serves this store → outlast worker"),
    ],
)
def test_empty_lists_suggest_the_next_command(outlast: Terminal, command: list[str], sentence: str) -> None:
    answer = outlast("--store", "memory:", *command)
    assert answer.code == 0 and sentence in answer.out


@pytest.mark.parametrize(("command", "name"), [("runs", "runs"), ("approvals", "approvals"), ("workers", "workers")])
def test_empty_lists_are_json_too(outlast: Terminal, command: str, name: str) -> None:
    assert outlast("--store", "memory:", command, "ls", "-o", "json").json[name] == []
    assert outlast("--store", "memory:", command, "ls", "-o", "ndjson").out == ""


def test_global_options_stand_before_or_after_the_command(outlast: Terminal) -> None:
    outlast.start()
    elsewhere = {"OUTLAST_STORE": "sqlite:nowhere.db"}
    for args in (
        ["--store", outlast.url, "-o", "json", "runs", "ls"],
        ["runs", "--store", outlast.url, "-o", "json", "ls"],
        ["runs", "ls", "--store", outlast.url, "-o", "json"],
        ["--store", "sqlite:nowhere.db", "runs", "ls", "--store", outlast.url, "-o", "json"],
    ):
        assert [run["run"] for run in outlast(*args, env=elsewhere).json["runs"]] == ["r1"]


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("oracle:somewhere", "no store can be opened at oracle:somewhere"),
        ("sqlite:nowhere/deep/a.db", "the folder nowhere/deep does not exist"),
        ("sqlite:.", "is a folder"),
        ("sqlite:foreign.db", "foreign.db"),
    ],
)
def test_a_store_that_cannot_be_opened_is_one_sentence(outlast: Terminal, url: str, sentence: str) -> None:
    Path("foreign.db").write_bytes(b"this is no database, however long it may be. " * 100)
    answer = outlast("run", "refund", "order_id=1", "cents=5", "--store", url)
    assert answer.code == 7 and sentence in answer.err and "Traceback" not in answer.err


def test_a_full_traceback_is_printed_on_request(outlast: Terminal) -> None:
    assert "Traceback" not in outlast("runs", "ls").err
    assert "Traceback" in outlast("runs", "ls", env={"OUTLAST_TRACEBACK": "full"}).err


@pytest.mark.parametrize("args", [["fly"], ["runs", "fly"], ["runs", "ls", "--fly"], ["runs", "show"], ["-o", "xml"]])
def test_usage_errors_end_with_2(outlast: Terminal, args: list[str]) -> None:
    assert outlast(*args).code == 2


# --- modules -------------------------------------------------------------------------------------
def test_a_module_that_does_not_import_shows_its_own_frames_only(outlast: Terminal) -> None:
    Path("broken.py").write_text("def load():\n    return 1 / 0\n\nload()\n")
    for command in (["worker", "broken.py"], ["run", "broken.py:refund"], ["explain", "lease", "broken.py"]):
        answer = outlast(*command)
        assert answer.code == 2
        assert "broken.py cannot be imported" in answer.err and "ZeroDivisionError: division by zero" in answer.err
        assert 'broken.py", line 2, in load' in answer.err
        assert "importlib" not in answer.err and "outlast/cli" not in answer.err
    assert "importlib" in outlast("worker", "broken.py", env={"OUTLAST_TRACEBACK": "full"}).err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import nothing_of_this_name\n", "No module named 'nothing_of_this_name'"),
        ("def f(:\n", "SyntaxError"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
        ("from outlast import activity\n@activity(key='{b}')\nasync def pay(a: int) -> int: ...\n", "planted.py:2"),
    ],
)
def test_each_kind_of_broken_module(outlast: Terminal, text: str, said: str) -> None:
    Path("planted.py").write_text(text)
    answer = outlast("worker", "planted.py")
    assert answer.code == 2 and said in answer.err and "Traceback" not in answer.err


@pytest.mark.parametrize(
    ("module", "code", "said"),
    [
        ("nowhere.py", 2, "there is no file nowhere.py"),
        ("no.where", 2, "there is no module no.where"),
        ("json", 3, "json has no workflow"),
        (f"{MODULE}:loan", 3, "has no workflow loan"),
    ],
)
def test_a_module_that_is_not_there(outlast: Terminal, module: str, code: int, said: str) -> None:
    answer = outlast("worker", module)
    assert answer.code == code and said in answer.err


def test_a_workflow_is_named_by_its_name_or_its_variable(outlast: Terminal) -> None:
    for name in ("refund", "refunds"):
        lanes = [w["lane"] for w in outlast("explain", "lease", f"{MODULE}:{name}", "-o", "json").json["workflows"]]
        assert lanes == ["refund@1"]


def test_a_file_inside_a_package_is_imported_as_part_of_it(outlast: Terminal) -> None:
    package = outlast.folder / "shop_of_tests"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "names.py").write_text("NAME = 'loan'\n")
    (package / "flows.py").write_text(
        "from pydantic import BaseModel\nfrom outlast import Context, Workflow\nfrom .names import NAME\n"
        "class S(BaseModel):\n    n: int = 0\n"
        "loans = Workflow(NAME, state=S)\n"
        "@loans.node(start=True)\nasync def begin(ctx: Context[S]) -> None: ...\n"
    )
    for spec in ("shop_of_tests/flows.py", "shop_of_tests.flows"):
        view = outlast("explain", "lease", spec, "-o", "json").json
        assert [w["lane"] for w in view["workflows"]] == ["loan@1"]


# --- durations -------------------------------------------------------------------------------------
@pytest.mark.req("REC-2")
def test_the_execution_budget_is_explained(outlast: Terminal) -> None:
    answer = outlast("explain", "lease")
    assert answer.code == 0
    assert "window 15s, renewed every 5s" in answer.out
    assert "(120 s attempt timeout + 30 s cold start) × 3 attempts" in answer.out and "= 600 s" in answer.out
    view = outlast("explain", "lease", "-o", "json").json
    assert view["execution_budget_ms"] == 600_000 and view["heartbeat_window_ms"] == 15_000


@pytest.mark.req("REC-2", "REC-6")
def test_a_store_without_a_clock_widens_the_durations(outlast: Terminal) -> None:
    """The store is named, not opened: nothing answers at this address."""
    store = ("--store", "dynamodb://eu-west-1/none?endpoint=http://127.0.0.1:1")
    answer = outlast(*store, "explain", "lease")
    assert answer.code == 0 and "expires_at = end of the worker's lease + clocks" in answer.out
    assert "replaced within 19s: window 15s + clocks 4s" in answer.out and "3m4s from the intent" in answer.out
    view = outlast(*store, "explain", "lease", "-o", "json").json
    assert (view["clock_skew_ms"], view["takeover_ms"], view["settle_time_ms"]) == (4_000, 19_000, 184_000)
    plain = outlast("explain", "lease", "-o", "json").json
    assert (plain["clock_skew_ms"], plain["takeover_ms"], plain["settle_time_ms"]) == (0, 15_000, 180_000)
    assert view["execution_budget_ms"] == plain["execution_budget_ms"] == 600_000


def test_durations_of_the_deployment_enter_the_budget(outlast: Terminal) -> None:
    view = outlast("explain", "lease", "--attempt-timeout", "2s", "--start-budget", "500ms", "-o", "json").json
    assert (view["attempt_timeout_ms"], view["start_budget_ms"]) == (2_000, 500)
    assert view["execution_budget_ms"] == round((2.5 * 3 + 45 + 5) * 1.2 * 1000)


def test_a_short_window_brings_its_rhythm_along(outlast: Terminal) -> None:
    assert outlast("explain", "lease", "--heartbeat-window", "2s", "-o", "json").json["heartbeat_every_ms"] == 666


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--heartbeat-window", "2s", "--heartbeat-every", "1s"], "no room for two lost renewals"),
        (["--heartbeat-window", "soon"], "'soon' is no duration: write 500ms, 2s, 10m or 1h30m"),
        (["--attempt-timeout", "0s"], "positive"),
    ],
)
def test_durations_that_make_no_sense(outlast: Terminal, options: list[str], said: str) -> None:
    for command in (["explain", "lease"], ["worker", MODULE]):
        answer = outlast(*command, *options)
        assert answer.code == 2 and said in answer.err


ANSWERS = pytest.mark.parametrize(
    "command",
    [["--help"], ["explain", "lease", MODULE], ["runs", "ls"], ["runs", "ls", "-o", "json"], ["runs", "events", "r1"]],
    ids=" ".join,
)


def _process(
    outlast: Terminal, *command: str, stdout: int, via: tuple[str, ...] = ()
) -> "subprocess.CompletedProcess[str]":
    line = [*via, sys.executable, "-c", "from outlast.cli import main; main()", *command]
    env = {**os.environ, "OUTLAST_STORE": outlast.url}
    return subprocess.run(line, env=env, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False)


@ANSWERS
def test_a_reader_that_has_gone_is_no_fault(outlast: Terminal, command: list[str]) -> None:
    outlast.start()
    read, write = os.pipe()
    os.close(read)
    found = _process(outlast, "-q", *command, stdout=write)
    os.close(write)
    assert (found.returncode, found.stderr) == (141, "")


@ANSWERS
def test_an_answer_that_finds_no_place_is_one_line(outlast: Terminal, command: list[str]) -> None:
    outlast.start()
    full = os.open("/dev/full", os.O_WRONLY)
    found = _process(outlast, "-q", *command, stdout=full)
    os.close(full)
    said = "The answer could not be written: No space left on device. The changes that the command made remain.\n"
    assert (found.returncode, found.stderr) == (74, said)


def test_the_exit_code_reports_a_failure_without_any_output(outlast: Terminal) -> None:
    outlast.start()
    full = os.open("/dev/full", os.O_WRONLY)
    found = _process(outlast, "runs", "ls", stdout=full, via=("/bin/sh", "-c", '"$@" 2>&1', "sh"))
    os.close(full)
    assert (found.returncode, found.stderr) == (74, "")


def test_output_to_a_closed_stdout_is_discarded(outlast: Terminal) -> None:
    outlast.start()
    closed = ("/bin/sh", "-c", '"$@" >&-', "sh")
    found = _process(outlast, "-q", "runs", "ls", stdout=subprocess.DEVNULL, via=closed)
    assert (found.returncode, found.stderr) == (0, "")
    assert outlast("runs", "ls").code == 0, "nothing was written into whatever file took its place"


def test_ctrl_c_while_the_command_line_is_being_loaded_shows_no_traceback() -> None:
    code = """
import os, signal, sys
class CtrlC:
    def find_spec(self, name, path=None, target=None):
        if name == "outlast.cli.screen":
            raise AssertionError("the command ran")
        if name == "outlast.cli.exit_codes":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, CtrlC())
from outlast.cli import main
main()
"""
    found = subprocess.run([sys.executable, "-c", code, "runs", "ls"], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout, found.stderr) == (-signal.SIGINT, "", "")


def test_a_broken_pipe_in_the_authors_code_is_reported(outlast: Terminal) -> None:
    Path("broken.py").write_text("raise BrokenPipeError('my own pipe')\n")
    answer = outlast("explain", "lease", "broken.py")
    assert answer.code not in (0, 141) and "my own pipe" in answer.err
