"""A wheel without its checkout serves every page, and no page names another host."""

import re
import signal
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from outlast.ui.app import pages
from tests.supply import build

FLOW = '''
from outlast import Context, workflow


@workflow(key="greeting/{name}")
async def greet(ctx: Context, name: str) -> str:
    """Greet a person."""
    return f"hello {name}"
'''
START = """
import sys
wheel, packages = sys.argv.pop(1), sys.argv.pop(1)
sys.path[:0] = [wheel, packages]
import outlast
assert outlast.__file__.startswith(wheel), outlast.__file__
from outlast.cli import main
main()
"""
"""Program that finds the packages of this environment behind the wheel, but runs no .pth file: ours names `src`."""
REFUSED = {"/ui/login/issuer": 404, "/ui/login/callback": 401, "/ui/thread": 404}
"""Pages without an answer here: no issuer is configured, and no thread is named."""
STREAM = "/ui/live"
HOST = re.compile(rb"""(?:\bhttps?:|["'(]\s*)//([\w.-]+(?::\d+)?)""")
OURS = {b"localhost", b"www.w3.org"}  # an advice of the sign-in, and the namespace of SVG
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the files of the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(build(folder)) as opened:
        opened.extractall(folder / "installed")
    return folder / "installed"


@pytest.fixture(scope="module")
def http(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    """HTTP client of `outlast serve` from the wheel, in a folder that holds one file of a workflow."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "flow.py").write_text(FLOW, encoding="utf-8")
    command = [sys.executable, "-I", "-S", "-c", START, str(wheel), sysconfig.get_path("purelib")]
    command += ["--store", f"sqlite:{folder / 'outlast.db'}", "serve", "flow.py", "--port", "0"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            assert process.stdout is not None
            said = b""
            while not (found := re.search(rb"http://127\.0\.0\.1:\d+", said)):
                line = process.stdout.readline()
                assert line, said.decode()
                said += line
            with httpx2.Client(base_url=found[0].decode(), timeout=PATIENCE_S) as client:
                yield client
        finally:
            process.send_signal(signal.SIGKILL)


def strange(http: httpx2.Client, answer: httpx2.Response) -> set[bytes]:
    """Return the hosts that an answer names, except its own."""
    return set(HOST.findall(answer.content)) - OURS - {http.base_url.netloc}


def test_every_page_is_served_and_names_no_other_host(http: httpx2.Client) -> None:
    paths = {getattr(route, "path", "") for route in pages() if "GET" in getattr(route, "methods", ())}
    plain = {path for path in paths if "{" not in path} - {STREAM, *REFUSED}
    assert {"/ui/", "/ui/approvals", "/ui/runs", "/ui/effects", "/ui/workflows", "/ui/doctor"} <= plain
    for path in sorted(plain | {"/ui/workflows/greet"}):
        answer = http.get(path, follow_redirects=True)
        assert (answer.status_code, strange(http, answer)) == (200, set()), path
    assert "greet" in http.get("/ui/workflows").text
    assert {path: http.get(path).status_code for path in REFUSED} == REFUSED


def test_every_static_file_is_served_and_names_no_other_host(wheel: Path, http: httpx2.Client) -> None:
    named = set(re.findall(r'(?:src|href)="(/ui/static/[^"]+)"', http.get("/ui/runs").text))
    assert {Path(path).name for path in named} == {"all.js", "outlast.css", "icon.svg"}
    files = {each.name: each for each in (wheel / "outlast/ui/static").iterdir() if each.suffix}
    for path in sorted(named | {f"/ui/static/0/{name}" for name in files}):
        answer = http.get(path)
        assert (answer.status_code, strange(http, answer)) == (200, set()), path
        assert path in named or answer.content == files[Path(path).name].read_bytes()


def test_another_host_would_be_found() -> None:
    for text in (b'<img src="//cdn.example/x">', b"url(https://cdn.example/x)", b"http://cdn.example:80/"):
        assert HOST.findall(text)[0].startswith(b"cdn.example"), text
    assert HOST.findall(b"https://\xe2\x80\xa6") == []
