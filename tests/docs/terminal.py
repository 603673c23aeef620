"""Run the console blocks of a page: type each command after `$` and compare its output with the page.

Times may differ, and so may generated ids. If the page shows such an id, later commands use the real one. A line with
only `…` replaces omitted lines. A command that only reads is repeated until its output agrees.

A named block (`console worker`) is another terminal, in which a command stays in the foreground. A block of that name
without a command shows its further output. A block that begins with `^C` shows the output after Ctrl-C. Ports are
replaced, so that two pages do not collide.
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

from outlast.runtime.execution_runtime import local_actor
from tests import forked
from tests.docs.pages import ROOT, Block, blocks

WITHIN_S = 60.0  # much more than any command needs; ends a page whose output never agrees
# `webhooks redeliver` is refused until a dispatcher has sent the event; after that it changes nothing.
READS = re.compile(
    r"outlast (runs (ls|show|effects|events)|approvals (ls|show)|workers ls|webhooks (ls|redeliver))\b"
    r"|cat |curl (?!.* (-X|-d|-N))"
)
GENERATED = re.compile(
    r"[wd]-(\d+)-[0-9a-z]{8}|ap_[0-9a-z]{10,}|[a-z]{1,4}_(?:[0-9a-f]{20}|[0-9a-z]{12})|[0-9a-f]{64}|olt_[\w-]{43}|whsec_[\w+/=]{44}"
)
PLAIN = re.compile(r"outlast [^$|<>&;`\\\n]*")
PORTS = ("7168", "7169", "4318")
READER = "local:ana"  # the pages' name for the user of the machine
TIME = re.compile(r"\b(\d+(\.\d+)? ?(ms|s|m|h|d))+\b")
LEFT_OUT = "…"


class Terminal:
    """Terminal in which one command may stay in the foreground, such as a worker."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.folder = folder
        self.env = env
        self.running: subprocess.Popen[str] | None = None
        self.printed: list[str] = []
        self._closed = False
        self._more = threading.Condition()

    def begin(self, command: str) -> None:
        """Start a command in the foreground; end the one before."""
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
        """Wait until the output agrees with the page. Raises AssertionError if it does not."""
        with self._more:
            agreed = self._more.wait_for(
                lambda: self._closed or agrees(expected, "".join(self.printed), known), WITHIN_S
            )
            agreed = agreed and agrees(expected, "".join(self.printed), known)
            printed = "".join(self.printed)
            self.printed.clear()  # the next block starts after it
        assert agreed, difference(expected, printed)

    def end(self) -> None:
        """Kill the foreground command with its children and wait for it."""
        if self.running is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.running.pid, signal.SIGKILL)
            self.running.wait()
            self.running = None

    def interrupt(self) -> None:
        """Send SIGINT to all foreground processes, as Ctrl-C does."""
        assert self.running is not None
        os.killpg(self.running.pid, signal.SIGINT)


def environment() -> dict[str, str]:
    """Return the environment of a reader's shell: installed commands, no setting of Outlast."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OUTLAST_", "PYTEST_", "OTEL_"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ours = {"COLUMNS": "200", "NO_COLOR": "1", "PYTHONWARNINGS": "default", "NO_PROXY": "127.0.0.1"}
    return {**kept, "PATH": path, **ours}


def free_port() -> str:
    """Return a port that no process listens on."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        return str(one.getsockname()[1])


def run_page(page: Path, folder: Path, prepare: Callable[[Path], dict[str, str]] = lambda _: {}) -> int:
    """Execute a page in order; return the number of commands.

    `prepare` prepares the folder and returns replacements for words of the page.
    """
    (folder / "examples").symlink_to(ROOT / "examples")
    replaced = {**{port: free_port() for port in PORTS}, READER: local_actor(()).name, **prepare(folder)}
    env = {**environment(), "OUTLAST_SERVE__PORT": replaced["7168"]}
    known = dict(replaced)
    typed = 0
    with terminals() as named:
        for block in blocks(page):
            if block.title:
                (folder / Path(block.title).name).write_text(block.body, encoding="utf-8")
            if block.language != "console":
                continue
            if block.rest:
                typed += _in_foreground(named.setdefault(block.rest, Terminal(folder, env)), block, known, replaced)
                continue
            for command, expected in commands(block):
                typed += 1
                check(folder, env, with_real_ids(command, known), with_real_ids(expected, replaced), known, block)
    return typed


def _in_foreground(terminal: Terminal, block: Block, known: dict[str, str], replaced: dict[str, str]) -> int:
    """Run a block of a named terminal: start a command, read more output, or interrupt it."""
    begun = list(commands(block))
    for command, expected in begun:
        terminal.begin(with_real_ids(command, known))
        terminal.shows(with_real_ids(expected, replaced), known)
    if not begun:
        body = block.body
        if body.startswith("^C\n"):
            terminal.interrupt()
            body = body.removeprefix("^C\n")
        terminal.shows(f"{LEFT_OUT}\n{with_real_ids(body, replaced)}", known)
    return len(begun)


@contextmanager
def terminals() -> Iterator[dict[str, Terminal]]:
    """Hold the named terminals of a page; kill their commands at the end."""
    named: dict[str, Terminal] = {}
    try:
        yield named
    finally:
        for terminal in named.values():
            terminal.end()


def commands(block: Block) -> Iterator[tuple[str, str]]:
    """Yield each command of a block with its printed output; a backslash continues a line."""
    for part in re.split(r"^\$ ", block.body, flags=re.MULTILINE)[1:]:
        found = re.match(r"((?:.*\\\n)*.*)\n?", part)
        assert found is not None
        yield found[1], part[found.end() :]


def check(folder: Path, env: dict[str, str], command: str, expected: str, known: dict[str, str], block: Block) -> None:
    """Run a command and compare its output; repeat it if it only reads."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        given: dict[str, Any] = {"cwd": folder, "env": env, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        if PLAIN.fullmatch(command):  # needs no shell and no new interpreter
            done = forked.run(*shlex.split(command), text=True, timeout=WITHIN_S, **given)
        else:
            done = subprocess.run(["bash", "-c", command], text=True, timeout=WITHIN_S, check=False, **given)
        if agrees(expected, done.stdout, known):
            return
        again = READS.match(command) and time.monotonic() < deadline
        assert again, f"{block.where}: $ {command}\n{difference(expected, done.stdout)}"


def with_real_ids(command: str, known: dict[str, str]) -> str:
    """Replace ids and ports of the page by the real ones."""
    for printed, real in known.items():
        command = re.sub(rf"(?<![\w.-]){re.escape(printed)}(?![\w-])", real, command)
    return command


def agrees(expected: str, output: str, known: dict[str, str]) -> bool:
    """True if the output agrees with the page; then learn the ids that it generated."""
    wanted = [line for line in expected.splitlines() if line.strip() and line.strip() != LEFT_OUT]
    got = [line for line in output.splitlines() if line.strip()]
    if LEFT_OUT not in expected.split() and len(wanted) != len(got):
        return False
    learned: dict[str, str] = {}
    for line in wanted:
        match = next((one for one in got if same(line, one)), None)
        if match is None:
            return False
        got.remove(match)
        for ours, theirs in zip(GENERATED.finditer(line), GENERATED.finditer(match), strict=LEFT_OUT not in line):
            learned[ours[0]] = theirs[0]
            if ours[1]:
                learned[ours[1]] = theirs[1]
    known.update(learned)
    return True


def same(expected: str, output: str) -> bool:
    """True if two lines agree except for times, ids and spacing. `…` replaces the rest of a line."""
    plain, real = (" ".join(GENERATED.sub("ID", TIME.sub("T", line)).split()) for line in (expected, output))
    start, cut, _ = plain.partition(LEFT_OUT)
    return real.startswith(start) if cut and not start.endswith("--reason ") else plain == real


def difference(expected: str, output: str) -> str:
    """Return both texts for a message."""
    return f"--- the page shows\n{expected}\n--- the output is\n{output}"
