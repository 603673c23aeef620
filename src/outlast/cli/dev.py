"""`outlast dev`: what `outlast serve` does, on this machine, begun anew at each change of the code."""

import logging
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import click

from outlast.cli.exit_codes import OK, interrupted
from outlast.cli.modules import load_workflows, split
from outlast.cli.serve import extra, port_option, run_service
from outlast.cli.serving import SLOW_S, slowly
from outlast.cli.session import settings_now, the_store_itself
from outlast.cli.settings import Command, Settings, env_of, words_of
from outlast.cli.text import inert
from outlast.cli.worker import log_to_stderr

LEASE_MS: Final = 4_000  # a worker that is killed while you try things is replaced soon
LOOK_MS: Final = 200
ANEW_S: Final = 15.0  # what is under way may take this long before new code begins
STOP_S: Final = 40.0  # and this long when all stops: more than `serve` takes


@click.command(cls=Command)
@click.argument("module", metavar="FILE")
@port_option
@click.option("--once", is_flag=True, hidden=True, help="The process that serves until the code changes.")
def dev(module: str, port: int, once: bool) -> None:
    """Serve FILE on this machine while you write it: every change of the code begins anew, and runs go on.

    Runs stand in the store, so a change, a crash and Ctrl-C leave them where they are.
    """
    settings = settings_now()
    log_to_stderr(first=not once)
    if once:
        served = load_workflows(module)
        live = {"heartbeat_window": LEASE_MS}
        code = run_service(settings, served, live, host="127.0.0.1", port=port, again=f"outlast dev {module}",
                           watched=True)  # fmt: skip
        click.get_current_context().exit(code)
    the_store_itself(settings)
    load_workflows(module)  # a mistake is told before anything is watched
    click.get_current_context().exit(_watch(settings, module, port))


def _watch(settings: Settings, module: str, port: int) -> int:
    """Run the serving process anew at each change of a Python file beside the module; answers the exit code."""
    try:
        from watchfiles import PythonFilter, watch
    except ModuleNotFoundError:
        raise extra("watchfiles") from None
    logging.getLogger("watchfiles").setLevel(logging.ERROR)  # it warns of Ctrl-C
    path = Path(split(module)[0])
    folder = path.resolve().parent if path.suffix == ".py" else Path.cwd()
    signal.signal(signal.SIGTERM, _as_ctrl_c)
    first = True
    serving = _Serving(settings, module, port or _free_port())
    try:
        for changes in watch(
            folder, watch_filter=PythonFilter(), debounce=LOOK_MS, rust_timeout=LOOK_MS, yield_on_timeout=True,
            raise_interrupt=False,
        ):  # fmt: skip
            if changes:
                names = sorted({Path(name).name for _, name in changes})
                click.echo(inert(f"{', '.join(names)} changed: begun anew"), err=True)
                serving.anew()
                first = False
            elif (code := serving.ended_now()) is not None:
                if first:  # the code has been loaded before: it is the port, the store or a setting
                    return code
                click.echo("→ save a file, and it begins anew; Ctrl-C stops", err=True)
        return serving.stop()
    except KeyboardInterrupt:
        return serving.stop()


def _as_ctrl_c(*_: Any) -> None:
    raise KeyboardInterrupt


def _free_port() -> int:
    """The same one after every change."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


class _Serving:
    """The process that serves, and after a change the next one."""

    def __init__(self, settings: Settings, module: str, port: int) -> None:
        self._command = [sys.executable, "-m", "outlast", *words_of(settings)]
        self._command += ["dev", module, "--port", str(port), "--once"]
        self._env = env_of(settings)
        self._begin()

    def _begin(self) -> None:
        self._process = subprocess.Popen(self._command, env=self._env)
        self._told = False

    def ended_now(self) -> int | None:
        """Its exit code, once, where it has ended by itself."""
        code = None if self._told else self._process.poll()
        self._told = self._told or code is not None
        return code

    def anew(self) -> None:
        """End it, and begin another with the code as it is now."""
        if not self._ends(ANEW_S):
            self._process.kill()
            self._process.wait()
            click.echo(f"what was under way did not end in {ANEW_S:.0f} s, and is taken over", err=True)
        self._begin()

    def stop(self) -> int:
        """End it for good, at once at a further Ctrl-C; answers the exit code."""
        try:
            if self._ends(SLOW_S):
                return OK
            slowly()
            if self._ends(STOP_S):
                return OK
        except KeyboardInterrupt:
            self._process.kill()
            self._process.wait()
            return interrupted()
        self._process.kill()
        self._process.wait()
        return OK

    def _ends(self, within_s: float) -> bool:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(within_s)
        return self._process.returncode is not None
