"""Plays the terminals of a page: types what stands after `$`, and compares what is printed below with what comes.

Commands are typed as they are printed. Two things may differ, and the page says so: times, and ids that a store or a
process makes up. Where the page prints such an id, the one that came takes its place in every later command. A `…` on a
line of its own stands for lines that are left out. A command that only looks is typed again until it shows what the
page shows, as a reader would do.
"""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.docs.pages import Block, blocks

WITHIN_S = 60.0  # far more than any command needs: a page that never comes true ends here
LOOKS = re.compile(r"outlast (runs (ls|show|effects|events)|approvals (ls|show)|workers ls)\b|cat ")
MADE_UP = re.compile(r"w-(\d+)-[0-9a-z]{8}|ap_[0-9a-z]{10,}|[a-z]{1,4}_[0-9a-z]{12}|[0-9a-f]{64}")
TIME = re.compile(r"\b(\d+(\.\d+)?(ms|s|m|h|d))+\b")
LEFT_OUT = "…"


class Terminal:
    """One terminal, in which a command may stay in the foreground: a worker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: subprocess.Popen[str] | None = None
        self.printed: list[str] = []
        self._more = threading.Condition()

    def begin(self, command: str) -> None:
        """Type a command that stays."""
        self.end()
        self.printed = []
        self.running = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=self.folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        threading.Thread(target=self._read, args=(self.running,), daemon=True).start()

    def _read(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with self._more:
                self.printed.append(line)
                self._more.notify()
        process.stdout.close()

    def shows(self, expected: str, known: dict[str, str]) -> None:
        """Wait until it shows what the page shows."""
        with self._more:
            came = self._more.wait_for(lambda: agrees(expected, "".join(self.printed), known), WITHIN_S)
        assert came, difference(expected, "".join(self.printed))

    def end(self) -> None:
        """Kill what stays, and wait for it."""
        if self.running is not None:
            self.running.send_signal(signal.SIGKILL)
            self.running.wait()
            self.running = None


def environment() -> dict[str, str]:
    """What a reader's shell has: the installed commands, a user called ana, and nothing of ours."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OUTLAST_", "PYTEST_"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**kept, "PATH": path, "LOGNAME": "ana", "COLUMNS": "200", "NO_COLOR": "1", "PYTHONWARNINGS": "default"}


def play(page: Path, folder: Path) -> int:
    """Everything of a page that is executed, in order; answers how many commands were typed."""
    known: dict[str, str] = {}
    typed = 0
    with terminals(folder) as named:
        for block in blocks(page):
            if block.title:
                (folder / block.title).write_text(block.body, encoding="utf-8")
            if block.language != "console":
                continue
            for command, expected in commands(block):
                typed += 1
                if block.rest:
                    stays = named.setdefault(block.rest, Terminal(folder))
                    stays.begin(in_fact(command, known))
                    stays.shows(expected, known)
                else:
                    once(folder, command, expected, known, block)
    return typed


@contextmanager
def terminals(folder: Path) -> Iterator[dict[str, Terminal]]:
    """The further terminals of a page; what still runs in them is killed at the end."""
    named: dict[str, Terminal] = {}
    try:
        yield named
    finally:
        for terminal in named.values():
            terminal.end()


def commands(block: Block) -> Iterator[tuple[str, str]]:
    """Each command of a block with what the page prints below it; a line that ends in a backslash goes on."""
    for part in re.split(r"^\$ ", block.body, flags=re.MULTILINE)[1:]:
        found = re.match(r"((?:.*\\\n)*.*)\n?", part)
        assert found is not None
        yield found[1], part[found.end() :]


def once(folder: Path, command: str, expected: str, known: dict[str, str], block: Block) -> None:
    """Type a command and compare; one that only looks may be typed again."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        done = subprocess.run(
            ["bash", "-c", in_fact(command, known)],
            cwd=folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=WITHIN_S,
        )
        if agrees(expected, done.stdout, known):
            return
        again = LOOKS.match(command) and time.monotonic() < deadline
        assert again, f"{block.where}: $ {command}\n{difference(expected, done.stdout)}"


def in_fact(command: str, known: dict[str, str]) -> str:
    """The command with the ids that really came."""
    for printed, came in known.items():
        command = re.sub(rf"(?<![\w.-]){re.escape(printed)}(?![\w-])", came, command)
    return command


def agrees(expected: str, came: str, known: dict[str, str]) -> bool:
    """Do they show the same? Ids that the page made up are learnt, and only if everything agrees."""
    wanted = [line for line in expected.splitlines() if line.strip() and line.strip() != LEFT_OUT]
    got = [line for line in came.splitlines() if line.strip()]
    if LEFT_OUT not in expected.split() and len(wanted) != len(got):
        return False
    learnt: dict[str, str] = {}
    for line in wanted:
        match = next((one for one in got if same(line, one)), None)
        if match is None:
            return False
        got.remove(match)
        for ours, theirs in zip(MADE_UP.finditer(line), MADE_UP.finditer(match), strict=True):
            learnt[ours[0]] = theirs[0]
            if ours[1]:
                learnt[ours[1]] = theirs[1]
    known.update(learnt)
    return True


def same(expected: str, came: str) -> bool:
    """Are two lines alike, but for times, ids and the width of columns? A `…` within a line stands for the rest."""
    plain, real = (" ".join(MADE_UP.sub("ID", TIME.sub("T", line)).split()) for line in (expected, came))
    start, cut, _ = plain.partition(LEFT_OUT)
    return real.startswith(start) if cut and not start.endswith("--reason ") else plain == real


def difference(expected: str, came: str) -> str:
    """Both, for a message."""
    return f"--- the page shows\n{expected}\n--- what came\n{came}"
