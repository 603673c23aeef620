"""`outlast dev`: `outlast serve` on this machine, restarted at each change of the code."""

import logging
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import click

from outlast.cli.command_session import the_store_itself
from outlast.cli.exit_codes import OK, interrupted
from outlast.cli.global_options import CliSettings, Command, env_of, settings_now, words_of
from outlast.cli.modules import load_workflows, split
from outlast.cli.serve import extra, port_option, run_service
from outlast.cli.serving import SLOW_S, slowly
from outlast.cli.text import inert
from outlast.cli.worker_commands import log_to_stderr

LEASE_MS: Final = 4_000  # short, so that a killed worker is replaced soon
LOOK_MS: Final = 200
RESTART_S: Final = 15.0  # maximum time for calls in flight before the new code starts
STOP_S: Final = 40.0  # the same at the end: more than `serve` needs


@click.command(cls=Command)
@click.argument("module", metavar="FILE")
@port_option
@click.option("--once", is_flag=True, hidden=True, help="Serve in this process until the code changes.")
def dev(module: str, port: int, once: bool) -> None:
    """Serve a file and reload it on every change.

    Runs are in the store, so they survive a change, a crash and Ctrl-C.
    """
    settings = settings_now()
    log_to_stderr(first=not once)
    if once:
        served = load_workflows(module)
        live = {"heartbeat_window": LEASE_MS}
        code = run_service(
            settings,
            served,
            live,
            host="127.0.0.1",
            port=port,
            again=f"outlast dev {module}",
            watched=True,
            developed=True,
        )
        click.get_current_context().exit(code)
    the_store_itself(settings)
    load_workflows(module)  # report a mistake before the first start
    click.get_current_context().exit(_watch(settings, module, port))


def _watch(settings: CliSettings, module: str, port: int) -> int:
    """Restart the serving process at each change of a Python file beside the module. Return the exit code."""
    try:
        from watchfiles import PythonFilter, watch

        from outlast.service.connections import reserve
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("outlast"):
            raise
        raise extra(error.name or "") from None
    logging.getLogger("watchfiles").setLevel(logging.ERROR)  # it warns of Ctrl-C
    path = Path(split(module)[0])
    folder = path.resolve().parent if path.suffix == ".py" else Path.cwd()
    signal.signal(signal.SIGTERM, _as_ctrl_c)
    first = True
    reserved = reserve("127.0.0.1", port)  # while no process serves, the system gives the port to no other process
    serving = _Serving(settings, module, reserved.getsockname()[1])
    try:
        for changes in watch(
            folder,
            watch_filter=PythonFilter(),
            debounce=LOOK_MS,
            rust_timeout=LOOK_MS,
            yield_on_timeout=True,
            raise_interrupt=False,
        ):
            if changes:
                names = sorted({Path(name).name for _, name in changes})
                click.echo(inert(f"{', '.join(names)} changed: restarted"), err=True)
                serving.restart()
                first = False
            elif (code := serving.ended_now()) is not None:
                if first:  # the module was imported above, so the cause is the port, the store or a setting
                    return code
                click.echo("→ save a file to restart; Ctrl-C stops", err=True)
        return serving.stop()
    except KeyboardInterrupt:
        return serving.stop()


def _as_ctrl_c(*_: Any) -> None:
    raise KeyboardInterrupt


class _Serving:
    """The serving process and, after a change, its successor."""

    def __init__(self, settings: CliSettings, module: str, port: int) -> None:
        self._command = [sys.executable, "-m", "outlast", *words_of(settings)]
        self._command += ["dev", module, "--port", str(port), "--once"]
        self._env = env_of(settings)
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(self._command, env=self._env)
        self._reported = False

    def ended_now(self) -> int | None:
        """Return the exit code once if the process has ended by itself, else None."""
        code = None if self._reported else self._process.poll()
        self._reported = self._reported or code is not None
        return code

    def restart(self) -> None:
        """End the process and start another with the current code."""
        if not self._ends(RESTART_S):
            self._process.kill()
            self._process.wait()
            click.echo(f"calls in flight did not end in {RESTART_S:.0f} s; their runs are taken over", err=True)
        self._start()

    def stop(self) -> int:
        """End the process, immediately at a second Ctrl-C. Return the exit code."""
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
