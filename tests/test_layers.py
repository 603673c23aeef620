"""The imports keep the contracts of pyproject.toml, and planted violations show that each contract is read."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = (
    "cli",
    "testing",
    "runtime",
    "insight",
    "engine",
    "outbox",
    "flow",
    "store",
    "core",
    "service",
    "agent",
    "upkeep",
)
STORES = (
    "store/dynamodb/__init__",
    "store/memory",
    "store/postgres/store",
    "store/postgres/__init__",
    "store/sqlite/store",
    "store/sqlite/__init__",
)
OTHERS = ("runtime/stores", "upkeep/whole_store", "insight/tenant_rows", "errors")
MODULES = (*(f"{room}/__init__" for room in ROOMS), *STORES, *OTHERS)


def lint(source: Path) -> subprocess.CompletedProcess[str]:
    """Check the contracts of this project against the package below `source`."""
    linter = Path(sys.executable).with_name("lint-imports")
    command = [str(linter), "--config", str(ROOT / "pyproject.toml"), "--no-cache"]
    environment = {**os.environ, "PYTHONPATH": str(source), "COLUMNS": "120"}
    return subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, check=False)


def plant(source: Path, **imports: str) -> None:
    """Create a package with every subpackage, each module empty except for the planted import."""
    (source / "outlast").mkdir()
    (source / "outlast" / "__init__.py").touch()
    for module in MODULES:
        path = source / "outlast" / f"{module}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for module, line in imports.items():
        path = source / "outlast" / f"{module.replace('__', '/', 1)}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{line}\n")


def test_every_import_between_packages_is_allowed() -> None:
    result = lint(ROOT / "src")
    assert result.returncode == 0, result.stdout + result.stderr


def test_calls_go_down(tmp_path: Path) -> None:
    plant(
        tmp_path,
        cli__demo="import outlast.runtime.stores",
        runtime__stores="import outlast.engine, outlast.store.sqlite.store, outlast.store.memory",
        engine__walk="import outlast.flow, outlast.store, outlast.core, outlast.errors",
        testing__kit="import outlast.store.memory",
        runtime__operations="from outlast.insight.tenant_rows import TenantRows",
    )
    result = lint(tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("core__verbs", "import outlast.store"),
        ("store__port", "import outlast.flow"),
        ("flow__context", "import outlast.engine"),
        ("engine__walk", "import outlast.outbox"),
        ("outbox__dispatcher", "import outlast.engine"),
        ("runtime__port", "import outlast.cli"),
        ("cli__demo", "import outlast.testing"),
        ("core__rows", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import outlast.flow"),
        ("newroom__thing", ""),
        ("core__verbs", "import asyncio"),
        ("engine__effects", "import httpx2"),
        ("cli__worker", "import outlast.store.sqlite.store"),
        ("runtime__in_process", "import outlast.store.memory"),
        ("engine__worker", "import outlast.store.postgres.store"),
        ("engine__worker", "from outlast.store import memory"),
        ("service__routes", "from outlast.insight.tenant_rows import TenantRows"),
        ("cli__demo", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import outlast.insight.tenant_rows"),
        ("upkeep__fsck", "from outlast.insight import tenant_rows"),
    ],
)
def test_a_planted_violation_is_found(tmp_path: Path, module: str, line: str) -> None:
    plant(tmp_path, **{module: line})
    if module.startswith("newroom"):
        (tmp_path / "outlast" / "newroom" / "__init__.py").touch()
    result = lint(tmp_path)
    assert result.returncode == 1 and "BROKEN" in result.stdout, result.stdout + result.stderr
