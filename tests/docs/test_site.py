"""The site builds without a warning and loads nothing from the network; planted mistakes fail the build."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, pages

LOADED = re.compile(r"<(?:script|img|iframe|source)[^>]*\ssrc=[\"']?([^\"' >]+)|<link[^>]*\shref=[\"']?([^\"' >]+)")


def build(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Build a site as `scripts/docs` does."""
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--config-file",
        str(config),
        "--site-dir",
        str(site),
    ]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr
    return folder


def test_every_page_is_in_the_site(site: Path) -> None:
    for page in pages():
        name = page.relative_to(ROOT).as_posix().removeprefix("docs/")
        if page.parent != ROOT:
            assert (site / name.replace("README.md", "index.html").replace(".md", ".html")).exists(), name


def test_no_page_loads_from_the_network(site: Path) -> None:
    loaded = {
        address
        for page in site.rglob("*.html")
        for found in LOADED.findall(page.read_text(encoding="utf-8"))
        for address in found
    }
    assert {"javascripts", "stylesheets"} <= {part for address in loaded for part in address.split("/")}
    assert [address for address in loaded if address.startswith(("http:", "https:", "//"))] == []


def test_links_out_of_the_folder_lead_to_pages(site: Path) -> None:
    assert 'href="checkout/ARCHITECTURE.html"' in (site / "index.html").read_text(encoding="utf-8")
    assert "def main" in re.sub("<[^>]+>", "", (site / "checkout/examples/refund.py.html").read_text(encoding="utf-8"))


def test_the_reference_shows_signatures_and_docstrings(site: Path) -> None:
    text = re.sub("<[^>]+>", "", (site / "reference/workflows.html").read_text(encoding="utf-8"))
    assert "slot_while_waiting" in text and "Ask a person whom by allows" in text


def test_planted_mistakes_fail_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text(
        "# Start\n\n[gone](gone.md) [no such heading](index.md#gone)\n", encoding="utf-8"
    )
    (tmp_path / "docs/forgotten.md").write_text("# Not in the navigation\n", encoding="utf-8")
    config = tmp_path / "mkdocs.yml"
    config.write_text(f"INHERIT: {ROOT / 'mkdocs.yml'}\nnav: [index.md]\nhooks: []\n", encoding="utf-8")
    done = build(config, tmp_path / "site")
    assert done.returncode != 0
    assert done.stderr.count("WARNING") == 3
    for said in ("'gone.md'", "'index.md#gone'", "forgotten.md"):
        assert said in done.stderr


def test_a_planted_name_fails_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text("# Start\n\n::: outlast.Gone\n", encoding="utf-8")
    config = tmp_path / "mkdocs.yml"
    config.write_text(f"INHERIT: {ROOT / 'mkdocs.yml'}\nnav: [index.md]\nhooks: []\n", encoding="utf-8")
    done = build(config, tmp_path / "site")
    assert done.returncode != 0 and "outlast.Gone" in done.stderr
