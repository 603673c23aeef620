"""Properties of the project: a small install, a light import, a hashed lock, and two commands that work."""

import os
import re
import subprocess
import sys
import tomllib
from collections import deque
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.conftest import wrong_marks

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES_MAX = 20  # packages that an install brings
INSTALL_BYTES_MAX = 25_000_000


def applies(requirement: Requirement) -> bool:
    """True if this machine needs the requirement without any extra."""
    return requirement.marker is None or requirement.marker.evaluate({"extra": ""})


def core_install() -> dict[str, Distribution]:
    """Return every package that installing outlast alone brings, itself included."""
    found: dict[str, Distribution] = {}
    wanted = deque(["outlast"])
    while wanted:
        name = canonicalize_name(wanted.popleft())
        if name not in found:
            found[name] = distribution(name)
            needs = [Requirement(line) for line in found[name].requires or []]
            wanted.extend(need.name for need in needs if applies(need))
    return found


def size_on_disk(package: Distribution) -> int:
    """Return the size of a package's own files, without compiled bytecode."""
    paths = [package.locate_file(path) for path in package.files or [] if path.suffix != ".pyc"]
    return sum(os.path.getsize(path) for path in map(str, paths) if os.path.isfile(path))


def test_the_core_install_is_small() -> None:
    packages = core_install()
    own = sum(path.stat().st_size for path in (ROOT / "src" / "outlast").rglob("*") if path.suffix != ".pyc")
    total = own + sum(size_on_disk(package) for package in packages.values())
    assert len(packages) - 1 <= PACKAGES_MAX, sorted(packages)
    assert total <= INSTALL_BYTES_MAX, {name: size_on_disk(package) for name, package in packages.items()}


def test_importing_outlast_loads_no_tool_and_no_driver() -> None:
    heavy = {"click", "rich", "httpx2", "starlette", "uvicorn", "sqlite3"}
    program = "import sys, outlast; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert heavy.isdisjoint(loaded), heavy.intersection(loaded)


def test_the_lock_is_hashed_and_satisfies_the_project() -> None:
    text = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    entries = [entry for entry in re.split(r"\n(?=[a-z0-9])", text) if not entry.startswith("#")]
    pinned = dict(re.match(r"([\w.-]+)==(\S+)", entry).groups() for entry in entries)  # type: ignore[union-attr]
    assert all("--hash=sha256:" in entry for entry in entries)
    groups = PROJECT["dependency-groups"]
    assert {"include-group": "docs"} in groups["test"]
    tools = [one for one in groups["test"] if isinstance(one, str)]
    asked = [*PROJECT["project"]["dependencies"], *tools, *groups["docs"]]
    for requirement in map(Requirement, [*asked, *PROJECT["build-system"]["requires"]]):
        assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)]), requirement


@pytest.mark.parametrize("name", ["scripts/setup", "scripts/test", "scripts/demo", ".ci/run"])
def test_a_command_is_executable_and_valid_bash(name: str) -> None:
    path = ROOT / name
    assert os.access(path, os.X_OK)
    assert subprocess.run(["bash", "-n", str(path)], check=False).returncode == 0


def test_the_readme_starts_with_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = [
        line.split()[0]
        for block in re.findall(r"```(?:bash|sh)\n(.*?)```", text, re.DOTALL)
        for line in block.splitlines()
    ]
    assert commands[:2] == ["scripts/demo", "scripts/test"]


def test_the_typed_marker_is_in_the_package() -> None:
    assert (ROOT / "src/outlast/py.typed").exists()


def test_a_mark_with_an_unknown_requirement_is_refused() -> None:
    assert wrong_marks(("RUN-1", "RUN-99")) == ["RUN-99, which docs/requirements.md does not list"]
    assert wrong_marks(()) == ["(none), which docs/requirements.md does not list"]
    assert wrong_marks(("RUN-10", "REC-8")) == ["REC-8, which docs/requirements.md calls not built"]
