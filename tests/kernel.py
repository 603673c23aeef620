"""`scripts/test --kernel [PYTEST ARGUMENTS]`: the tests of the kernel, in a copy that has nothing but the kernel.

The copy has the packages of `KERNEL` and an environment with the base dependencies and pytest; everything around the
kernel is left out. So an import of it fails, in a test and in the kernel. A test file is played if all that it imports
is in the copy. `AT_LEAST` keeps tests from leaving the kernel unseen.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterable, Iterator
from importlib import import_module
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

import click
from packaging.requirements import Requirement

ROOT: Final = Path(__file__).parents[1]
KERNEL: Final = ("clocks.py", "core", "engine", "errors.py", "flow", "store", "telemetry")
AROUND: Final = ("postgres", "dynamodb")
"""Folders of `store` that are not the kernel."""
PLAYED: Final = ("conformance", "core", "engine", "flow", "lockstep", "store")
AT_LEAST: Final = 80
"""Test files that the kernel has. A lower number means that a test has come to need more than the kernel."""
OPTIONS: Final = "--import-mode=importlib --strict-markers -q --disable-plugin-autoload -p xdist -p hypothesispytest"
"""Options of pyproject.toml, without the plugin for authors."""
RUNNERS: Final = ("pytest", "pytest-xdist", "hypothesis")


def base_distributions() -> set[str]:
    """Return the names of the base dependencies and the test runners, with all that they depend on."""
    found: set[str] = set()
    wanted = [Requirement(each) for each in (*(distribution("outlast").requires or ()), *RUNNERS)]
    while wanted:
        one = wanted.pop()
        if one.name in found or (one.marker is not None and not one.marker.evaluate({"extra": ""})):
            continue
        found.add(one.name)
        wanted += [Requirement(each) for each in distribution(one.name).requires or ()]
    return found


def make_environment(at: Path, names: Iterable[str]) -> Path:
    """Make an environment that has links to these distributions and nothing else. Returns its Python."""
    venv.create(at, symlinks=True)
    packages = next(at.glob("lib/python*/site-packages"))
    for name in names:
        files = distribution(name).files or ()
        for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
            source = Path(str(distribution(name).locate_file(top)))
            if not (packages / top).exists():
                (packages / top).symlink_to(source)
    return at / "bin" / "python"


def make_copy(at: Path) -> None:
    """Copy the kernel, and the tests with what their hooks read."""
    package = at / "src" / "outlast"
    package.mkdir(parents=True)
    shutil.copy(ROOT / "src" / "outlast" / "__init__.py", package)
    ignored = shutil.ignore_patterns("__pycache__")
    for name in KERNEL:
        source = ROOT / "src" / "outlast" / name
        if source.is_dir():
            shutil.copytree(source, package / name, ignore=ignored)
        else:
            shutil.copy(source, package)
    for name in AROUND:
        shutil.rmtree(package / "store" / name)
    shutil.copytree(ROOT / "tests", at / "tests", ignore=ignored)
    shutil.copytree(ROOT / "docs", at / "docs")  # which some tests compare with the code
    shutil.copy(ROOT / "pyproject.toml", at)


def loadable(files: Iterable[str]) -> Iterator[str]:
    """Yield the test files whose imports are all in the copy. Raises what else a file raises."""
    for file in files:
        try:
            import_module(file.removesuffix(".py").replace("/", "."))
        except ImportError as error:
            click.echo(f"{file} needs more than the kernel: {error}", err=True)
        else:
            yield file


def play(arguments: list[str]) -> int:
    """Play the kernel's tests in a copy. Returns pytest's exit code."""
    with tempfile.TemporaryDirectory(prefix="outlast-kernel-") as folder:
        at = Path(folder)
        make_copy(at)
        python = make_environment(at / "environment", base_distributions())
        candidates = [
            str(file.relative_to(at)) for name in PLAYED for file in sorted(at.glob(f"tests/{name}/test_*.py"))
        ]
        environment = {**os.environ, "PYTHONPATH": f"{at / 'src'}{os.pathsep}{at}"}
        probe = [python, "-P", "-m", "tests.kernel", PROBE, *candidates]
        found = subprocess.run(probe, cwd=at, env=environment, stdout=subprocess.PIPE, text=True, check=False)
        if found.returncode:
            raise SystemExit("a test file of the kernel does not load (see above)")
        played = found.stdout.split()
        click.echo(f"{len(played)} of {len(candidates)} test files of {', '.join(PLAYED)} need the kernel alone")
        if len(played) < AT_LEAST:
            raise SystemExit(
                f"tests/kernel.py says {AT_LEAST}: a test has come to need more than the kernel (see above)"
            )
        command = [
            python,
            "-P",
            "-m",
            "pytest",
            "-o",
            f"addopts={OPTIONS}",
            "-m",
            "not whole",
            *(arguments or ("-n", "2")),
            *played,
        ]
        return subprocess.run(command, cwd=at, env=environment, check=False).returncode


PROBE: Final = "probe"

if __name__ == "__main__":
    if sys.argv[1:2] == [PROBE]:
        click.echo("\n".join(loadable(sys.argv[2:])))
    else:
        raise SystemExit(play(sys.argv[1:]))
