"""The code of authors is clean under strict type checkers, and each planted mistake is found on its own line."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SRC = HERE.parents[1] / "src"
AWAITED = '# mypy: enable-error-code="unused-awaitable"\n'
PYRIGHT = {"typeCheckingMode": "strict", "reportUnusedCoroutine": "error", "pythonVersion": "3.11"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("typing")
    (folder / "right.py").write_text((HERE / "right.py").read_text() + AWAITED)
    head, rest = (HERE / "wrong.py").read_text().split("\n", 1)
    assert head == "# type: ignore"
    (folder / "wrong.py").write_text(AWAITED + rest)  # the numbers of the lines stay
    (folder / "pyrightconfig.json").write_text(json.dumps(PYRIGHT | {"extraPaths": [str(SRC)]}))
    return folder


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", *command], cwd=folder, capture_output=True, text=True, timeout=300)


def mypy(folder: Path) -> dict[str, set[int]]:
    done = run(
        HERE.parents[1], "mypy", str(folder / "right.py"), str(folder / "wrong.py")
    )  # with the cache of the sources
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found: dict[str, set[int]] = {}
    for name, line in re.findall(r"^(.+?):(\d+): error", done.stdout, re.MULTILINE):
        found.setdefault(Path(name).name, set()).add(int(line))
    return found


def pyright(folder: Path) -> dict[str, set[int]]:
    done = run(folder, "basedpyright", "--outputjson", "--pythonpath", sys.executable, "right.py", "wrong.py")
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found: dict[str, set[int]] = {}
    for item in json.loads(done.stdout)["generalDiagnostics"]:
        if item["severity"] == "error":
            found.setdefault(Path(item["file"]).name, set()).add(item["range"]["start"]["line"] + 1)
    return found


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_right_is_clean_and_each_planted_mistake_is_found(
    checker: Callable[[Path], dict[str, set[int]]], folder: Path
) -> None:
    lines = (HERE / "wrong.py").read_text().splitlines()
    marked = {i for i, line in enumerate(lines, 1) if re.search(r"# E \d+:", line)}
    assert len(marked) >= 37
    assert checker(folder) == {"wrong.py": marked}


def test_a_checker_shows_the_parameters_of_the_client_without_await(folder: Path) -> None:
    shown = folder / "shown.py"
    shown.write_text("import outlast\nwith outlast.connect_sync() as client:\n    reveal_type(client.cancel)\n")
    done = run(folder, "basedpyright", "--outputjson", "--pythonpath", sys.executable, shown.name)
    texts = [each["message"] for each in json.loads(done.stdout)["generalDiagnostics"]]
    signature = '(run: str, *, reason: str, version: int = 0, idempotency_key: str = "") -> None'
    assert any(signature in text for text in texts), texts
