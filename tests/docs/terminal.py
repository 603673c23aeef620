"""Plays the terminals of a page: types what stands after `$`, and compares what is printed below with what comes.

Commands are typed as they are printed. Two things may differ, and the page says so: times, and ids that a store or a
process makes up. Where the page prints such an id, the one that came takes its place in every later command. A `…` on a
line of its own stands for lines that are left out. A command that only looks is typed again until it shows what the
page shows, as a reader would do.

A block with a name (`console worker`) is a further terminal, where a command stays in the foreground. A block of that
name without a command shows what has come there since; one that begins with `^C` shows what follows on Ctrl-C. The
ports of the pages are other ones here, so that two pages do not meet.
"""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from outlast.cli.session import local_actor
from tests import forked
from tests.docs.pages import ROOT, Block, blocks

WITHIN_S = 60.0  # far more than any command needs: a page that never comes true ends here
# `webhooks redeliver` is refused until a dispatcher has told the event, and does nothing then.
LOOKS = re.compile(
    r"outlast (runs (ls|show|effects|events)|approvals (ls|show)|workers ls|webhooks (ls|redeliver))\b"
    r"|cat |curl (?!.* (-X|-d|-N))"
)
MADE_UP = re.compile(
    r"[wd]-(\d+)-[0-9a-z]{8}|ap_[0-9a-z]{10,}|[a-z]{1,4}_[0-9a-z]{12}|[0-9a-f]{64}|olt_[\w-]{43}|whsec_[\w+/=]{44}"
)
PLAIN = re.compile(r"outlast [^$|<>&;`\\\n]*")
PORTS = ("7168", "7169", "4318")
READER = "local:ana"  # the pages' name for the user of the machine
TIME = re.compile(r"\b(\d+(\.\d+)? ?(ms|s|m|h|d))+\b")
LEFT_OUT = "…"


class Terminal:
    """One terminal, in which a command may stay in the foreground: a worker."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.folder = folder
        self.env = env
        self.running: subprocess.Popen[str] | None = None
        self.printed: list[str] = []
        self._closed = False
        self._more = threading.Condition()

    def begin(self, command: str) -> None:
        """Type a command that stays."""
        self.end()
        self.printed, self._closed = [], False
        self.running = subprocess.Popen(
            ["bash", "-c", f"exec env {command}"],
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        threading.Thread(target=self._read, args=(self.running,), daemon=True).start()

    def _read(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with self._more:
                self.printed.append(line)
                self._more.notify()
        process.stdout.close()
        with self._more:
            self._closed = self._closed or process is self.running
            self._more.notify()

    def shows(self, expected: str, known: dict[str, str]) -> None:
        """Wait until it shows what the page shows."""
        with self._more:
            came = self._more.wait_for(lambda: self._closed or agrees(expected, "".join(self.printed), known), WITHIN_S)
            came = came and agrees(expected, "".join(self.printed), known)
            printed = "".join(self.printed)
            self.printed.clear()  # the page goes on behind it
        assert came, difference(expected, printed)

    def end(self) -> None:
        """Kill what stays, with all that it began, and wait for it."""
        if self.running is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.running.pid, signal.SIGKILL)
            self.running.wait()
            self.running = None

    def interrupt(self) -> None:
        """Ctrl-C, which a terminal gives to everything in the foreground."""
        assert self.running is not None
        os.killpg(self.running.pid, signal.SIGINT)


def environment() -> dict[str, str]:
    """Return what a reader's shell has: the installed commands, and no setting of Outlast."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OUTLAST_", "PYTEST_", "OTEL_"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ours = {"COLUMNS": "200", "NO_COLOR": "1", "PYTHONWARNINGS": "default", "NO_PROXY": "127.0.0.1"}
    return {**kept, "PATH": path, **ours}


def free_port() -> str:
    """One that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        return str(one.getsockname()[1])


def play(page: Path, folder: Path, begin: Callable[[Path], dict[str, str]] = lambda _: {}) -> int:
    """Everything of a page that is executed, in order; answers how many commands were typed.

    `begin`: prepares the folder, and says what stands here in the place of words of the page.
    """
    (folder / "examples").symlink_to(ROOT / "examples")
    instead = {**{port: free_port() for port in PORTS}, READER: local_actor(()).name, **begin(folder)}
    env = {**environment(), "OUTLAST_SERVE__PORT": instead["7168"]}
    known = dict(instead)
    typed = 0
    with terminals() as named:
        for block in blocks(page):
            if block.title:
                (folder / block.title).write_text(block.body, encoding="utf-8")
            if block.language != "console":
                continue
            if block.rest:
                typed += _stay(named.setdefault(block.rest, Terminal(folder, env)), block, known, instead)
                continue
            for command, expected in commands(block):
                typed += 1
                once(folder, env, in_fact(command, known), in_fact(expected, instead), known, block)
    return typed


def _stay(terminal: Terminal, block: Block, known: dict[str, str], instead: dict[str, str]) -> int:
    """A block of a terminal with a command that stays: it begins, says more, or is broken off."""
    begun = list(commands(block))
    for command, expected in begun:
        terminal.begin(in_fact(command, known))
        terminal.shows(in_fact(expected, instead), known)
    if not begun:
        body = block.body
        if body.startswith("^C\n"):
            terminal.interrupt()
            body = body.removeprefix("^C\n")
        terminal.shows(f"{LEFT_OUT}\n{in_fact(body, instead)}", known)
    return len(begun)


@contextmanager
def terminals() -> Iterator[dict[str, Terminal]]:
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


def once(folder: Path, env: dict[str, str], command: str, expected: str, known: dict[str, str], block: Block) -> None:
    """Type a command and compare; one that only looks may be typed again."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        given: dict[str, Any] = {"cwd": folder, "env": env, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        if PLAIN.fullmatch(command):  # no shell is needed, and no interpreter that starts from nothing
            done = forked.run(*shlex.split(command), text=True, timeout=WITHIN_S, **given)
        else:
            done = subprocess.run(["bash", "-c", command], text=True, timeout=WITHIN_S, check=False, **given)
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
        for ours, theirs in zip(MADE_UP.finditer(line), MADE_UP.finditer(match), strict=LEFT_OUT not in line):
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
