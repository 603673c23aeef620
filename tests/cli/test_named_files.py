"""The file that a command names is the code that it serves, whatever other module has its name."""

import subprocess
import sys
from pathlib import Path

import pytest

FLOW = "from outlast import *\n\n@workflow\nasync def {name}(ctx: Context) -> int:\n    return 1\n"
SHOW = """
import sys
from outlast.cli.modules import load_workflows
for spec in sys.argv[1:]:
    try:
        print([each.name for each in load_workflows(spec)])
    except Exception as error:
        print(error)
"""


def served(folder: Path, *specs: str, path: str = "") -> list[str]:
    """Return the workflows of each module, loaded in one new process."""
    env = {"PYTHONPATH": path, "PATH": ""}
    done = subprocess.run([sys.executable, "-c", SHOW, *specs], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def write(folder: Path, file: str, name: str) -> None:
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(FLOW.format(name=name), encoding="utf-8")


def test_the_named_file_is_served_if_another_of_its_name_is_first_on_the_path(tmp_path: Path) -> None:
    write(tmp_path, "a/flows.py", "alpha")
    write(tmp_path, "b/flows.py", "beta")
    assert served(tmp_path, "b/flows.py", path=f"{tmp_path}/a:{tmp_path}/b") == ["['beta']"]


@pytest.mark.parametrize("file", ["json.py", "email.py", "types.py", "outlast.py", "flows.v2.py", "__main__.py"])
def test_a_file_with_a_name_of_python_or_with_a_dot_is_served(tmp_path: Path, file: str) -> None:
    write(tmp_path, f"c/{file}", "beta")
    assert served(tmp_path, f"c/{file}") == ["['beta']"]


def test_two_files_of_one_name_are_not_taken_for_each_other(tmp_path: Path) -> None:
    write(tmp_path, "a/flows.py", "alpha")
    write(tmp_path, "b/flows.py", "beta")
    first, *refused = served(tmp_path, "a/flows.py", "b/flows.py")
    text = "\n".join(refused)
    assert first == "['alpha']" and "b/flows.py cannot be imported as flows" in text and "a/flows.py" in text


def test_two_files_with_one_name_of_python_are_two_modules(tmp_path: Path) -> None:
    """Python cannot import either under its own name, so neither may take the other's place."""
    write(tmp_path, "a/json.py", "alpha")
    write(tmp_path, "b/json.py", "beta")
    assert served(tmp_path, "a/json.py", "b/json.py", "a/json.py") == ["['alpha']", "['beta']", "['alpha']"]
