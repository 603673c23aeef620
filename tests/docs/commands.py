"""Runs the `bash` blocks of a page, line by line, in a folder where all that they name is there.

A command has to end well (exit code 0); one that stays in the foreground has to begin, and is then killed. What a page
calls RUN or ID is a run or an approval of the store of tests/docs/desk.py in the state that the command is about, a
server of example.com or db.internal one of this machine.
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
from tests.docs import desk
from tests.docs.pages import ROOT, Block, blocks, program
from tests.docs.terminal import WITHIN_S, environment, free_port

PORTS = ("7168", "9464", "9465")
STAYS = re.compile(r"outlast .*?\b(worker|serve|dispatcher|dev)\b(?! --help)")
BEGUN = re.compile(r"\bserves\b|/v1 |tells webhooks")
VARIABLE = re.compile(r"([A-Z_]+)=(\S*) ")
SEAL = re.compile(r"\b[0-9a-f]{64}\b")
Words = list[tuple[str, str]]
"""What stands in a command of the page, as a pattern, and what stands there in fact."""


def typed(page: Path) -> Iterator[tuple[Block, str]]:
    """Every command of the page's bash blocks; a line that ends in a backslash goes on, a comment is none."""
    for block in blocks(page):
        if block.language == "bash":
            for line in block.body.replace("\\\n", " ").splitlines():
                if command := line.partition("  #")[0].strip():
                    yield block, command


def play(page: Path, folder: Path, words: Words) -> int:
    """Run everything; answers how much that was."""
    words = [*words, *((rf"\b{port}\b", free_port()) for port in PORTS)]
    env = environment() | {"PYTHONPATH": os.pathsep.join(str(part) for part in (ROOT / "src", ROOT))}
    count = 0
    for block, command in typed(page):
        if command in NOT_RUN:
            continue
        count += 1
        for pattern, instead in words:
            command = re.sub(pattern, instead, command)
        variables = {}
        while given := VARIABLE.match(command):
            variables[given[1]] = given[2]
            command = command[given.end() :]
        if STAYS.match(command):
            _begins(command, folder, env | variables, block)
            continue
        said = _ends(command, folder, env | variables, block)
        if seal := SEAL.search(said):
            words.append(("DIGEST", seal[0]))
    return count


def _ends(command: str, folder: Path, env: dict[str, str], block: Block) -> str:
    parts = shlex.split(command)
    begin = forked.Popen if parts[0] == "outlast" else subprocess.Popen
    given = parts if parts[0] == "outlast" else ["bash", "-c", command]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with begin(given, cwd=folder, env=env, text=True, **pipes) as process:  # type: ignore[call-overload]
        said, _ = process.communicate("y\n", timeout=WITHIN_S)
    assert process.returncode == EXITS.get(command, 0), f"{block.where}: {command}\n{said}"
    return str(said)


def _begins(command: str, folder: Path, env: dict[str, str], block: Block) -> None:
    log = folder / "log"
    give_up = time.monotonic() + WITHIN_S
    with log.open("w") as out:
        process = forked.Popen(
            shlex.split(command), cwd=folder, env=env, stdout=out, stderr=out, start_new_session=True
        )  # fmt: skip
    try:
        while not BEGUN.search(said := log.read_text(encoding="utf-8")):
            assert process.poll() is None and time.monotonic() < give_up, f"{block.where}: {command}\n{said}"
            time.sleep(0.02)
        if " worker " in command:  # what it has said it does once its row is there
            asked = shlex.split(f"{command.partition(' worker ')[0]} workers ls -o json")
            while process.pid not in pids(forked.run(*asked, cwd=folder, env=env, capture_output=True, text=True)):
                assert process.poll() is None and time.monotonic() < give_up, f"{block.where}: {command}\n{said}"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def pids(listed: "subprocess.CompletedProcess[Any]") -> set[int]:
    """Of the workers that serve."""
    return {worker["pid"] for worker in json.loads(listed.stdout)["workers"] if worker["serving"]}


NOT_RUN = {
    "scripts/demo": "tests/e2e/test_demo.py plays it; the script sets up before it",
    "scripts/http-demo": "tests/e2e/test_over_http.py plays it; the script sets up before it",
    "scripts/test": "it is what runs this test",
    "pip install .": "downloads; tests/test_supply.py builds the wheel and looks into it",
    ".venv/bin/pip install .": "as above",
    "source .venv/bin/activate": "of the environment that is not made here",
    "python3 -m venv .venv": "as above",
    "pip install '.[postgres]'": "as above",
    "pip install '.[policy]'": "as above",
}
"""Commands that are not run, each with its reason. A test keeps it from growing."""


EXITS = {
    "outlast check flows.py --against sqlite:outlast.db": 1,  # it finds what the page shows below it
    'outlast versions move refund 3 --all-of 2 --reason "version 2 is off"': CONFLICT,  # some need a person first
}


# --- what a page's commands find ----------------------------------------------------------------------------
RUNS: Words = [
    ("RUN continue", "raises-1 continue"),
    ("RUN extend", "long-1 extend"),
    ("RUN ask_again", "late-1 ask_again"),
    ("RUN cancel", "late-2 cancel"),
    ("RUN retry", "undo-1 retry"),
    ("RUN done_by_hand", "undo-2 done_by_hand"),
    ("resolve RUN KEY", "resolve doubt-1 refund/doubt-1"),
    ("extend RUN", "extend long-2"),
    ("signal RUN", "signal waits-1"),
    (r"(show|explain|results) RUN", r"\1 raises-1"),
    (r"\br-17\b", "order-7"),
    ("refu_7f3a", "waits-1"),
    ("/backups/", ""),
]


def at_the_desk(page: Path, folder: Path, store: Path, approvals: dict[str, str]) -> Words:
    """The store with its runs, and the workflow of the quickstart."""
    shutil.copytree(store, folder, dirs_exist_ok=True)
    copies.adopt(folder / "outlast.db")
    (folder / "flows.py").write_text(flows(), encoding="utf-8")
    return [
        *RUNS,
        ("approve ID", f"approve {approvals['asks-1']}"),
        ("reject ID", f"reject {approvals['asks-2']}"),
        (r"(claim|reassign) ID", rf"\1 {approvals['asks-3']}"),
        ("--module flows.py", "--module tests.docs.desk"),
    ]


def with_its_own_code(page: Path, folder: Path, store: Path, approvals: dict[str, str]) -> Words:
    """The store, and the page's own Python as flows.py, with its files."""
    words = at_the_desk(page, folder, store, approvals)
    (folder / "flows.py").write_text(program(page), encoding="utf-8")
    for block in blocks(page):
        if block.title:
            (folder / block.title).write_text(block.body, encoding="utf-8")
    return words


def with_a_new_version(page: Path, folder: Path, store: Path, approvals: dict[str, str]) -> Words:
    """The store, and the next version of the code that its runs began with."""
    words = at_the_desk(page, folder, store, approvals)
    code = Path(desk.__file__).read_text(encoding="utf-8")
    (folder / "flows.py").write_text(code.replace("version=2", "version=3"), encoding="utf-8")
    return words


def flows() -> str:
    """The quickstart's workflow."""
    (found,) = [block.body for block in blocks(ROOT / "docs/quickstart.md") if block.title == "flows.py"]
    return found


Stage = Callable[[Path, Path, Path, dict[str, str]], Words]
OTHERWISE: dict[str, Stage] = {"policy.md": with_its_own_code, "deploys.md": with_a_new_version}
"""The pages that need something else than the desk."""
