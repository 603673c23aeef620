"""The machine's Chromium, driven by Playwright, which downloads nothing.

`scripts/test` runs this module as a program: it installs Debian's package if it can, or says what to install.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click
import pytest

GIVEN: Final = "OUTLAST_TEST_BROWSER"
"""Environment variable that names another executable of Chromium or Chrome."""
NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
FLAGS: Final = (
    "--headless",
    "--no-sandbox",  # root in a container has none
    "--disable-gpu",
    # The rest keeps the browser from asking any other host.
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
INSTALL: Final = ("apt-get", "install", "-y", "--no-install-recommends", "chromium")
INSTALL_S: Final = 300.0
HINT: Final = f"{' '.join(INSTALL)}, or set {GIVEN}"


def executable() -> Path | None:
    """Return the browser's executable: the one named by the environment, or one on PATH.

    Raises FileNotFoundError if the named one does not exist.
    """
    if given := os.environ.get(GIVEN):
        if (found := shutil.which(given)) is None:
            raise FileNotFoundError(f"{GIVEN}={given} is not an executable")
    else:
        found = next((path for name in NAMES if (path := shutil.which(name)) is not None), None)
    return Path(found) if found else None


@contextmanager
def browser() -> Iterator[Any]:
    """Start the browser and yield Playwright's `Browser`. Skip the test if the machine has none."""
    from playwright.sync_api import sync_playwright  # it takes 0.3 s, and a machine without a browser needs none

    path = executable()
    if path is None:
        pytest.skip(f"no Chromium: {HINT}")
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=path, args=list(FLAGS))
        try:
            yield started
        finally:
            started.close()


def provide() -> str | None:
    """Install the browser if none is found and root can. Return a line for the user if something was to be done."""
    if executable() is not None:
        return None
    if os.geteuid() != 0 or shutil.which(INSTALL[0]) is None:
        return f"no Chromium was found, so the tests in a browser are skipped: {HINT}"
    click.echo("outlast: installing Debian's package chromium for the tests in a browser", err=True)
    return None if _installed() else f"apt-get has no Chromium, so the tests in a browser are skipped: set {GIVEN}"


def _installed() -> bool:
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (INSTALL, ("apt-get", "update"), INSTALL):  # a fresh machine may have no list of packages
        try:
            subprocess.run(command, env=env, capture_output=True, timeout=INSTALL_S, check=False)
        except subprocess.TimeoutExpired:
            return False
        if executable() is not None:
            return True
    return False


if __name__ == "__main__":
    if said := provide():
        click.echo(f"outlast: {said}", err=True)
