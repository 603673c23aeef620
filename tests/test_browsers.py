"""The tests' browser: found or installed, driven by Playwright, and silent towards other hosts."""

import os
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests import browsers

PAGE = b"""<!doctype html><html lang=en><title>Runs</title><main><h1>Runs</h1><p id=n>0</p></main>
<script>n.textContent = 7</script>"""


class Pages(BaseHTTPRequestHandler):
    """One page, and 204 for the icon."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/" else 204)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        if self.path == "/":
            self.wfile.write(PAGE)

    def log_message(self, *args: object) -> None:
        return


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_the_browser_opens_a_page_and_axe_judges_it(url: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    with browsers.browser() as browser:
        page = browser.new_page()
        page.goto(url)
        assert (page.title(), page.text_content("#n")) == ("Runs", "7")
        found = Axe().run(page)
        assert found.response["testEngine"]["version"].startswith("4.")
        assert found.violations_count == 0, found.generate_report()


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with one folder, and nothing in it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(browsers.GIVEN, raising=False)
    return tmp_path


def program(path: Path, name: str, text: str = "") -> Path:
    made = path / name
    made.write_text(f"#!{sys.executable}\n{text}")
    made.chmod(0o755)
    return made


def test_a_named_browser_is_used_and_a_wrong_name_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert browsers.executable() is None
    program(path, "chromium")
    assert browsers.executable() == path / "chromium"
    named = program(path, "mine")
    monkeypatch.setenv(browsers.GIVEN, str(named))
    assert browsers.executable() == named
    monkeypatch.setenv(browsers.GIVEN, str(path / "none"))
    with pytest.raises(FileNotFoundError, match="is not an executable"):
        browsers.executable()


def test_root_installs_the_package_after_an_update_and_says_so(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    program(path, "apt-get", f"""
import pathlib, sys
known = pathlib.Path({str(path / "lists")!r})
if sys.argv[1] == "update":
    known.touch()
elif known.exists():
    made = pathlib.Path({str(path / "chromium")!r})
    made.write_text("")
    made.chmod(0o755)
else:
    sys.exit(100)
""")  # fmt: skip
    assert browsers.provide() is None
    assert capsys.readouterr().err == "outlast: installing Debian's package chromium for the tests in a browser\n"
    assert browsers.provide() is None
    assert capsys.readouterr().err == "", "it is there"


def test_without_root_or_without_the_package_one_line_says_what_to_do(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    program(path, "apt-get", "import sys; sys.exit(100)")
    said = browsers.provide()
    assert said is not None and "skipped: apt-get install -y --no-install-recommends chromium" in said
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    said = browsers.provide()
    assert said is not None and "apt-get has no Chromium" in said
    with pytest.raises(pytest.skip.Exception, match="no Chromium"), browsers.browser():
        pass
