"""The plugin loads nothing that a session does not use, and `outlast.testing` exports every documented name."""

import subprocess
import sys

import pytest

import outlast.testing


def run(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def test_the_plugin_loads_nothing_of_outlast_but_its_errors() -> None:
    program = "import sys, outlast.testing.plugin; print(*(n for n in sys.modules if n.startswith('outlast')))"
    loaded = set(run(program).split())
    assert loaded == {"outlast", "outlast.errors", "outlast.testing", "outlast.testing.plugin"}, loaded


def test_every_exported_name_can_be_imported() -> None:
    for name in outlast.testing.__all__:
        assert getattr(outlast.testing, name) is not None
    assert set(outlast.testing.__all__) <= set(dir(outlast.testing))
    with pytest.raises(AttributeError):
        _ = outlast.testing.nothing


@pytest.mark.parametrize(("name", "package"), [("every_crash", "pytest"), ("FakeReceivers", "h11")])
def test_a_missing_extra_is_named(name: str, package: str) -> None:
    program = (
        f"import sys; sys.modules[{package!r}] = None\n"
        f"import outlast.testing\ntry: outlast.testing.{name}\nexcept Exception as error: print(error)"
    )
    said = run(program)
    assert f"outlast.testing.{name} needs {package}" in said and "pip install 'outlast[testing]'" in said
