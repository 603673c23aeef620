"""`python -m bench.peers`: measure other engines beside Outlast and print one table (bench/peers/__init__.py).

Each peer runs in a separate environment, made below --venvs from the package registries on the first use. Servers
listen on loopback only. A peer that cannot be installed or started has no figures, and the reason in its row.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from bench import machine, postgres
from bench.peers import FOLDER, HOLD_AT, PEERS, PORTS, SERVERS, STEPS_FILE, URL, VARIANT, Setup
from bench.place import folder

HERE = Path(__file__).parents[2]
PAGE = HERE / "docs" / "performance.md"
BEGIN, END = "<!-- bench.peers: begin -->", "<!-- bench.peers: end -->"
WORKS = ("W1", "W2", "W3", "W4", "W5")
HELD_STEP = "5"
LIMIT_S = 300
Figures = dict[str, float]
COLUMNS = (  # work, heading, figures and their format
    ("W1", "W1 steps/s (p50 / p99 ms)", "{per_s:,.0f} ({p50_ms:.1f} / {p99_ms:.1f})"),
    ("W2", "W2 steps/s", "{per_s:,.0f}"),
    ("W2", "W2 CPU ms/step", "{cpu_ms:.2f}"),
    ("W3", "W3 KiB per waiting run, idle CPU", "{memory_kb:.1f}, {idle_percent:.1f} %"),
    ("W3", "W3 event → next step, p50 / p99 ms", "{resume_p50_ms:.0f} / {resume_p99_ms:.0f}"),
    ("W4", "W4 all resumed / done, s", "{resumed_s:.1f} / {done_s:.1f}"),
    ("W4", "W4 steps repeated per run (1: the interrupted one)", "{repeated:.1f}"),
    ("W5", "W5 ms/step, MB written", "{ms:.0f}, {written_mb:.0f}"),
)


class Unmeasured(Exception):
    """A peer has no figure, with the reason."""


class Environment(NamedTuple):
    """An interpreter with a peer's packages, and the folder of its programs."""

    python: Path
    programs: Path


def environment(setup: Setup, name: str, venvs: Path) -> Environment:
    """Create an environment with the pinned packages, unless it has them. Raises Unmeasured."""
    venv = venvs / name
    stamp, wanted = venv / ".set-up", json.dumps([sys.version, setup.packages, setup.npm])
    if setup.packages and not (stamp.exists() and stamp.read_text() == wanted):
        uv, python = str(HERE / ".tools" / "bin" / "uv"), str(venv / "bin" / "python")
        commands = [[uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(venv)]]
        commands += [[uv, "pip", "install", "--quiet", "--python", python, *setup.packages]]
        if setup.npm:
            commands += [["npm", "install", "--silent", "--no-fund", "--prefix", str(venv), setup.npm]]
        for command in commands:
            try:
                subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, **QUIET})
            except (OSError, subprocess.CalledProcessError) as error:
                raise Unmeasured(
                    f"could not be installed: {_last_line(getattr(error, 'stderr', '') or error)}"
                ) from None
        stamp.write_text(wanted)
    return Environment(venv / "bin" / "python", venv) if setup.packages else Environment(Path(sys.executable), HERE)


QUIET = {"UV_SYSTEM_CERTS": "1", "UV_PYTHON_DOWNLOADS": "never"}


def _last_line(text: object) -> str:
    return ([line.strip() for line in str(text).splitlines() if line.strip()] or ["no reason given"])[-1][:120]


def _free_ports(count: int) -> list[str]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [str(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


@contextmanager
def ended(process: "subprocess.Popen[str]") -> Iterator["subprocess.Popen[str]"]:
    """Kill the process and its children after the block."""
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@contextmanager
def place(setup: Setup, name: str, own: Environment) -> Iterator[Mapping[str, str]]:
    """Run a peer's server on a new folder or database for this block. Yields the environment of its workers."""
    with ExitStack() as stack:
        path = stack.enter_context(folder())
        ports, servers, url = _free_ports(setup.ports), [], ""
        if setup.postgres:
            url = stack.enter_context(postgres.database(os.environ[postgres.GIVEN]))
            servers.append(postgres.postmaster(url))
        if setup.server:
            program, *rest = (part.format(*ports, folder=path) for part in setup.server)
            env = {**os.environ, **{key: value.format(*ports) for key, value in setup.env}}
            with (path / "server.log").open("w") as log:
                command = [str(own.programs / program), *rest]
                server = subprocess.Popen(
                    command, env=env, cwd=path, stdout=log, stderr=log, text=True, start_new_session=True
                )
            stack.enter_context(ended(server))
            servers.append(server.pid)
        yield {
            **os.environ, FOLDER: str(path), URL: url, PORTS: " ".join(ports), VARIANT: name,
            SERVERS: " ".join(map(str, servers)), STEPS_FILE: "", "PYTHONPATH": f"{HERE}{os.pathsep}{HERE / 'src'}",
        }  # fmt: skip


def measure(name: str, work: str, size: str, venvs: Path) -> Figures:
    """Measure one workload of a peer. Raises Unmeasured."""
    setup = PEERS[name]
    module = setup.module or name
    own = environment(setup, module, venvs)
    command = [str(own.python), "-P", "-m", "bench.peers.run", module, work.lower(), "quick" if setup.few else size]
    with place(setup, name, own) as at:
        env = dict(at)
        if work == "W4":
            env[STEPS_FILE] = str(Path(env[FOLDER]) / "steps")
            _run(command, {**env, HOLD_AT: HELD_STEP})
        return _run(command, env)


def _run(command: list[str], env: dict[str, str]) -> Figures:
    """Run a worker process until it prints its figures, then kill it. Raises Unmeasured."""
    process = subprocess.Popen(
        command, env=env, cwd=env[FOLDER], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    signal.alarm(LIMIT_S)
    try:
        with ended(process):
            assert process.stdout is not None and process.stderr is not None
            for line in process.stdout:
                if line.startswith("{"):
                    figures: Figures = json.loads(line)
                    return figures
            raise Unmeasured(_last_line(process.stderr.read()))
    except TimeoutError:
        raise Unmeasured(f"no end after {LIMIT_S} s") from None
    finally:
        signal.alarm(0)


def table(found: Mapping[str, Mapping[str, Figures | str]]) -> Iterator[str]:
    """Return the lines of the table: a row for each peer, and its notes."""
    works = {work for row in found.values() for work in row}
    columns = [column for column in COLUMNS if column[0] in works]
    yield "| | " + " | ".join(heading for _, heading, _ in columns) + " |"
    yield "|---" * (len(columns) + 1) + "|"
    for name, row in found.items():
        cells = []
        for work, _, text in columns:
            figures = row.get(work, "–")
            cells.append(text.format(**figures) if isinstance(figures, dict) else "–")
        yield f"| {name} | " + " | ".join(cells) + " |"
    yield ""
    for name, row in found.items():
        setup = PEERS[name]
        said = [", ".join((*setup.packages, *filter(None, [setup.npm]))), setup.note]
        said += [f"{work} was not measured: {why}" for work, why in row.items() if isinstance(why, str)]
        yield f"- {name}: {'; '.join(filter(None, said))}."


def page(lines: list[str]) -> str:
    """Return the text of the page with these lines between its markers."""
    text = PAGE.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return "\n".join([head + BEGIN, "", *lines, "", END + tail])


def main() -> None:
    """Measure, print, and write if requested."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("works", nargs="*", metavar="W", help=f"workloads [{' '.join(WORKS)}]")
    parser.add_argument("--only", action="append", metavar="NAME", help=f"may be repeated: {', '.join(PEERS)} [all]")
    parser.add_argument("--quick", action="store_true", help="a tenth of the runs")
    parser.add_argument("--venvs", type=Path, default=HERE / "build" / "peers", metavar="DIR",
                        help="folder of the environments [build/peers]")  # fmt: skip
    parser.add_argument("--write", action="store_true", help="write the table into docs/performance.md")
    asked = parser.parse_args()
    works = [work.upper() for work in asked.works] or list(WORKS)
    chosen = [name for name in PEERS if not asked.only or any(name.startswith(each) for each in asked.only)]
    if not chosen or set(works) - set(WORKS):
        parser.error(f"peers: {', '.join(PEERS)}; workloads: {', '.join(WORKS)}")
    signal.signal(signal.SIGALRM, _too_late)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    facts, found = machine.facts(), {}
    with postgres.server() as url:
        os.environ[postgres.GIVEN] = url
        for name in chosen:
            found[name] = {work: _measured(name, work, asked.quick, asked.venvs.resolve()) for work in works}
    facts["load"] = f"{facts['load']} before, {machine.load()} after"
    size = "a tenth of the runs; " if asked.quick else ""
    head = f"`scripts/bench peers {' '.join(works)}`; {size}" + ", ".join(f"{key} {facts[key]}" for key in facts) + "."
    lines = [head, "", *table(found)]
    print("\n".join(lines))
    if asked.write:
        PAGE.write_text(page(lines), encoding="utf-8")


def _too_late(*_: object) -> None:
    raise TimeoutError


def _measured(name: str, work: str, quick: bool, venvs: Path) -> Figures | str:
    begun = time.monotonic()
    try:
        figures: Figures | str = measure(name, work, "quick" if quick else "full", venvs)
    except Unmeasured as error:
        figures = str(error)
    print(f"  {name} {work}: {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    return figures


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
