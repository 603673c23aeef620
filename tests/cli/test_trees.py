"""Trees of runs on a terminal: lists, `runs show`, `explain` and `export --tree` (RUN-13)."""

import asyncio
from pathlib import Path

import pytest
from click.testing import CliRunner

from outlast.cli.root import cli
from tests.cli.conftest import Answer
from tests.upkeep.test_fsck_families import play

pytestmark = pytest.mark.req("RUN-13")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with a tree of depth 2, whose leaf waits for a signal."""
    found = f"sqlite:{tmp_path_factory.mktemp('trees') / 'runs.db'}"
    asyncio.run(play(found))
    return found


def outlast(url: str, *args: str) -> Answer:
    result = CliRunner().invoke(cli, list(args), env={"OUTLAST_STORE": url})
    return Answer(result.exit_code, result.stdout, result.stderr)


def ids(url: str, *options: str) -> list[str]:
    return [each["run"] for each in outlast(url, "runs", "ls", *options, "-o", "json").json["runs"]]


def test_lists_name_parents_and_filter_by_them(url: str) -> None:
    (middle,) = ids(url, "--parent", "root")
    below = ids(url, "--root", "root")
    assert middle in below and len(below) == 3
    assert set(ids(url, "--no-children")) == {"root", "leaver", "undoes"}
    assert "CHILD OF" in outlast(url, "runs", "ls").out
    none = outlast(url, "runs", "ls", "--parent", middle, "--status", "failed").out.splitlines()
    assert none == ["no run matches", f"{middle} has started other runs → outlast runs show {middle}"]
    for option, run, why in (
        ("--root", "nothing", "there is no run nothing"),
        ("--root", middle, f"{middle} is not the root of its tree → outlast runs ls --root root, or --parent {middle}"),
        ("--parent", "undone", "there is no run undone"),
    ):
        assert outlast(url, "runs", "ls", option, run).out.splitlines() == ["no run matches", why]
    leaf = ids(url, "--parent", middle)[0]
    assert outlast(url, "runs", "ls", "--parent", leaf).out.splitlines()[1] == f"{leaf} has started no run"


def test_a_run_shows_its_tree_and_a_child_its_parent(url: str) -> None:
    (middle,) = ids(url, "--parent", "root")
    leaf, ended = ids(url, "--parent", middle, "--status", "waiting") + ids(
        url, "--parent", middle, "--status", "completed"
    )
    lines = [line.strip() for line in outlast(url, "runs", "show", "root").out.splitlines()]
    drawn = [line for line in lines if f"  {middle}" in line or f"  {leaf}" in line or f"  {ended}" in line]
    assert [line.split()[1 if line.startswith("children") else 0] for line in drawn] == ["mid", "ended", "leaf"]
    assert f"{middle} (root root) → outlast runs show {middle}" in outlast(url, "runs", "show", leaf).out


def test_an_explanation_names_the_command_of_the_leaf(url: str) -> None:
    (middle,) = ids(url, "--parent", "root")
    (leaf,) = ids(url, "--parent", middle, "--status", "waiting")
    found = outlast(url, "explain", "root").out
    assert f"root → {middle} → {leaf}" in found and f"outlast signal {leaf} news" in found


def test_a_tree_is_exported_with_one_file_for_each_run(url: str, tmp_path: Path) -> None:
    made = outlast(url, "export", "root", "--tree", "--to", str(tmp_path / "tree"))
    assert made.code == 0 and "root and 3 runs below it" in made.out, made
    assert {file.stem for file in (tmp_path / "tree").iterdir()} == {"root", *ids(url, "--root", "root")}
    for file in (tmp_path / "tree").iterdir():
        verified = outlast(url, "verify", str(file))
        assert verified.code == 0 and "is intact" in verified.out, verified
    refused = outlast(url, "export", "root", "--tree")
    assert refused.code != 0 and "--to FOLDER" in refused.err


def test_a_child_is_detached_once(url: str) -> None:
    (middle,) = ids(url, "--parent", "root")
    (leaf,) = ids(url, "--parent", middle, "--status", "waiting")
    for _ in range(2):  # again changes nothing
        done = outlast(url, "runs", "detach", leaf, "--reason", "it takes too long")
        assert done.code == 0 and f"the parent of {leaf} goes on without it" in done.out, done
    (row,) = [e for e in outlast(url, "effects", "ls", "--run", middle, "-o", "json").json["effects"] if leaf in str(e)]
    assert row["status"] == "refused" and "it takes too long" in str(row)
    assert f"{middle} (root root); detached: it goes on alone" in outlast(url, "runs", "show", leaf).out
    assert f"{leaf} · detached" in outlast(url, "runs", "show", middle).out
    refused = outlast(url, "runs", "detach", "root", "--reason", "why")
    assert refused.code != 0 and "run root is no child" in refused.err
