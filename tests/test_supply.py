"""The wheel contains the package and nothing else, and an incomplete audit does not count as clean."""

import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest

from outlast.service.identity.static_tokens import new_token
from tests.supply import BAD, CLEAN, UNKNOWN, build, judged, strangers

TOKEN = new_token("shop", tenant="default", roles=["starter"], person=False)[0]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("wheel"))


def test_the_wheel_contains_the_package_only(wheel: Path) -> None:
    assert strangers(wheel) == []
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
        record = opened.read("outlast-0.1.0.dist-info/METADATA").decode()
    assert {"outlast/__init__.py", "outlast/py.typed", "outlast/service/identity/permissions.toml"} <= names
    played = {f"outlast/_examples/{name}/workflow.py" for name in ("negotiation", "desk")}
    assert played <= names, "what `outlast demo` plays"
    assert "Name: outlast\n" in record


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tests/test_frame.py", b""),
        ("outlast/tests/test_it.py", b""),
        ("outlast/outlast.db", b""),
        ("outlast/.env", b"OUTLAST_TOKEN=x"),
        ("outlast/service/key.pem", b""),
        ("outlast/keys.py", b"KEY = '''-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIDrq0mYcR4Uu5cM8\n'''"),
        ("outlast/tokens.py", None),
    ],
)
def test_a_foreign_file_in_the_wheel_is_found(wheel: Path, tmp_path: Path, name: str, content: bytes | None) -> None:
    spoilt = tmp_path / wheel.name
    shutil.copy(wheel, spoilt)
    with zipfile.ZipFile(spoilt, "a") as opened:
        opened.writestr(name, content if content is not None else f"TOKEN = '{TOKEN}'")
    assert [each.split()[0] for each in strangers(spoilt)] == [name]


def package(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, **(more or {"version": "1.0", "vulns": []})}


def test_an_incomplete_audit_is_not_clean() -> None:
    """pip-audit reports «No known vulnerabilities found» and exits with 0 even if it got no answer."""
    known = package("jinja2", version="3.1.2", vulns=[{"id": "PYSEC-1", "fix_versions": ["3.1.6"], "aliases": []}])
    silent = package("click", skip_reason="Dependency not found on PyPI and could not be audited: click (8)")
    assert judged({"dependencies": [package("click"), package("rich")]}).code == CLEAN
    assert judged({"dependencies": [package("click"), silent]}).code == UNKNOWN
    assert judged({"dependencies": []}).code == UNKNOWN
    found = judged({"dependencies": [silent, known]})
    assert (found.code, found.lines) == (BAD, ["jinja2 3.1.2: PYSEC-1, mended in 3.1.6"])
