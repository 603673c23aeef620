"""Run the `bash` blocks of a page line by line in a folder that has everything they name.

Each command must end with exit code 0. A command that stays in the foreground must start; it is then killed. RUN and ID
in a page are a run and an approval of tests/docs/sample_store.py in the state that the command needs. example.com and
db.internal are servers of this machine.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from outlast.cli.exit_codes import CONFLICT
from tests import copies, forked
from tests.docs import sample_store
from tests.docs.pages import ROOT, Block, blocks, program
from tests.docs.terminal import WITHIN_S, environment, free_port

CAUSE = "CAUSE"
"""Word of a page that the id of a cause replaces."""
PORTS = ("7168", "9464", "9465")
FOREGROUND = re.compile(r"outlast .*?\b(worker|serve|dispatcher|dev)\b(?! --help)")
STARTED = re.compile(r"\bserves\b|/ui/ |sends webhooks")
VARIABLE = re.compile(r"([A-Z_]+)=(\S*) ")
SEAL = re.compile(r"\b[0-9a-f]{64}\b")
Words = list[tuple[str, str]]
"""Patterns in commands of a page, and their replacements."""


def typed(page: Path) -> Iterator[tuple[Block, str]]:
    """Yield every command of the bash blocks; a backslash continues a line, comments are dropped."""
    for block in blocks(page):
        if block.language == "bash":
            for line in block.body.replace("\\\n", " ").splitlines():
                if command := line.partition("  #")[0].strip():
                    yield block, command


def run_page(page: Path, folder: Path, words: Words) -> int:
    """Run every command of a page; return their number."""
    words = [*words, *((rf"\b{port}\b", free_port()) for port in PORTS)]
    env = environment() | {"PYTHONPATH": os.pathsep.join(str(part) for part in (ROOT / "src", ROOT))}
    count = 0
    for block, command in typed(page):
        if command in NOT_RUN:
            continue
        count += 1
        for pattern, replacement in words:
            command = re.sub(pattern, replacement, command)
        if CAUSE in command:
            (first, *_) = json.loads(_run("outlast causes ls -o json", folder, env, block))["causes"]
            command = command.replace(CAUSE, first["cause"])
        variables = {}
        while given := VARIABLE.match(command):
            variables[given[1]] = given[2]
            command = command[given.end() :]
        if FOREGROUND.match(command):
            _start_and_kill(command, folder, env | variables, block)
            continue
        output = _run(command, folder, env | variables, block)
        if seal := SEAL.search(output):
            words.append(("DIGEST", seal[0]))
    return count


def _run(command: str, folder: Path, env: dict[str, str], block: Block) -> str:
    parts = shlex.split(command)
    begin = forked.Popen if parts[0] == "outlast" else subprocess.Popen
    given = parts if parts[0] == "outlast" else ["bash", "-c", command]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with begin(given, cwd=folder, env=env, text=True, start_new_session=True, **pipes) as process:  # type: ignore[call-overload]
        try:
            output, _ = process.communicate("y\n", timeout=WITHIN_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise AssertionError(f"{block.where}: {command}\nhas not ended within {WITHIN_S} s") from None
    assert process.returncode == EXITS.get(command, 0), f"{block.where}: {command}\n{output}"
    return str(output)


def _start_and_kill(command: str, folder: Path, env: dict[str, str], block: Block) -> None:
    log = folder / "log"
    give_up = time.monotonic() + WITHIN_S
    with log.open("w") as out:
        process = forked.Popen(
            shlex.split(command), cwd=folder, env=env, stdout=out, stderr=out, start_new_session=True
        )  # fmt: skip
    try:
        while not STARTED.search(output := log.read_text(encoding="utf-8")):
            assert process.poll() is None and time.monotonic() < give_up, f"{block.where}: {command}\n{output}"
            time.sleep(0.02)
        if " worker " in command:  # its first line is printed before its row exists
            asked = shlex.split(f"{command.partition(' worker ')[0]} workers ls -o json")
            while process.pid not in pids(forked.run(*asked, cwd=folder, env=env, capture_output=True, text=True)):
                assert process.poll() is None and time.monotonic() < give_up, f"{block.where}: {command}\n{output}"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def pids(listed: "subprocess.CompletedProcess[Any]") -> set[int]:
    """Return the process ids of serving workers."""
    return {worker["pid"] for worker in json.loads(listed.stdout)["workers"] if worker["serving"]}


NOT_RUN = {
    "scripts/demo": "tests/e2e/test_demo.py runs it; the script sets up first",
    "scripts/http-demo": "tests/e2e/test_over_http.py runs it; the script sets up first",
    "scripts/test": "it runs this test",
    "pip install .": "downloads; tests/test_supply.py builds the wheel and looks into it",
    ".venv/bin/pip install .": "as above",
    "source .venv/bin/activate": "uses the environment that is not created here",
    "python3 -m venv .venv": "as above",
    "pip install '.[postgres]'": "as above",
    "pip install '.[policy]'": "as above",
}
"""Commands that are not run, each with its reason. A test limits their number."""


EXITS = {
    "outlast check flows.py --against sqlite:outlast.db": 1,  # the page shows its findings
    'outlast versions move refund 3 --all-of 2 --reason "version 2 is off"': CONFLICT,  # some runs need a person first
}


# --- folders for pages ---------------------------------------------------------------------------------------
RUNS: Words = [
    ("RUN continue", "raises-1 continue"),
    ("RUN extend", "long-1 extend"),
    ("RUN ask_again", "late-1 ask_again"),
    ("RUN cancel", "late-2 cancel"),
    ("RUN retry", "undo-1 retry"),
    ("RUN done_by_hand", "undo-2 done_by_hand"),
    ("resolve RUN KEY", "resolve doubt-1 refund/doubt-1"),
    ("extend RUN", "extend long-2"),
    ("raise RUN", "raise waits-1"),
    ("signal RUN", "signal waits-1"),
    (r"(show|explain|results|assign) RUN", r"\1 raises-1"),
    (r"\br-17\b", "order-7"),
    ("refu_7f3a", "waits-1"),
    ("compare refund-A-17 refund-A-18", "compare waits-1 late-1"),
    ("/backups/", ""),
]


def with_sample_store(page: Path, folder: Path, store: Path, approvals: dict[str, str]) -> Words:
    """Provide the sample store and the workflow of the quickstart."""
    shutil.copytree(store, folder, dirs_exist_ok=True)
    copies.adopt(folder / "outlast.db")
    (folder / "flows.py").write_text(flows(), encoding="utf-8")
    return [
        *RUNS,
        ("approve ID", f"approve {approvals['asks-1']}"),
        ("reject ID", f"reject {approvals['asks-2']}"),
        (r"(claim|reassign) ID", rf"\1 {approvals['asks-3']}"),
        ("--module flows.py", "--module tests.docs.sample_store"),
    ]


def with_its_own_code(page: Path, folder: Path, store: Path, approvals: dict[str, str]) -> Words:
    """Provide the sample store, the page's Python as flows.py, and its titled blocks as files."""
    words = with_sample_store(page, folder, store, approvals)
    (folder / "flows.py").write_text(program(page), encoding="utf-8")
    for block in blocks(page):
        if block.title:
            (folder / Path(block.title).name).write_text(block.body, encoding="utf-8")
    return words


def with_a_new_version(page: Path, folder: Path, store: Path, approvals: dict[str, str]) -> Words:
    """Provide the sample store, and the next version of the code that created its runs."""
    words = with_sample_store(page, folder, store, approvals)
    code = Path(sample_store.__file__).read_text(encoding="utf-8")
    (folder / "flows.py").write_text(code.replace("version=2", "version=3"), encoding="utf-8")
    return words


def flows() -> str:
    """Return the workflow of the quickstart page."""
    (found,) = [block.body for block in blocks(ROOT / "docs/quickstart.md") if block.title == "flows.py"]
    return found


Stage = Callable[[Path, Path, Path, dict[str, str]], Words]
PREPARED_BY: dict[str, Stage] = {
    "policy.md": with_its_own_code,
    "deploys.md": with_a_new_version,
    "applications.md": with_its_own_code,
}
"""Pages that need another folder than `with_sample_store` makes."""
