"""PostgreSQL from end to end: worker processes that are killed, people at the command line, and every first mistake."""

import asyncio
import importlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import asyncpg
import pytest
from click.testing import CliRunner, Result

from outlast.cli import cli
from outlast.core.rows.run_rows import is_over
from outlast.runtime.stores import is_there
from tests import forked
from tests.e2e.helpers import GIVE_UP_S, OUTLAST, ROOT, SHORT, Installation, installation, when
from tests.postgres import server
from tests.postgres.conftest import schema, url

__all__ = ["schema", "url"]
REFUNDS = f"{ROOT / 'tests' / 'cli' / 'refunds.py'}"
LEFT = 7


@pytest.fixture
def s(tmp_path: Path, url: str) -> Iterator[Installation]:
    with installation(tmp_path, url) as opened:
        yield opened


def outlast(store: str, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["--store", store, *arguments])


# --- processes -----------------------------------------------------------------------------------
@pytest.mark.req("REC-1", "REC-3", "REC-5", "RT-6")
def test_a_worker_killed_in_the_middle_of_a_call_is_replaced_and_the_call_is_not_made_again(s: Installation) -> None:
    s.receiver.may_answer.clear()
    s.start("r1", "r2", "r3")
    s.hire()
    when(lambda: len(s.receiver.seen) == 3, s.said)
    s.hire()
    when(lambda: len(s.alive()) == 2, s.said)
    victim = s.holder("r1")
    assert victim is s.workers[0]
    victim.kill()
    assert victim.wait(GIVE_UP_S) == -signal.SIGKILL
    s.receiver.may_answer.set()
    for run in ("r1", "r2", "r3"):
        when(lambda run=run: is_over(s.run(run)), s.said)
    assert sorted(s.receiver.seen.values()) == [1] * 9, s.receiver.seen
    assert outlast(s.url, "fsck", "--chain").exit_code == 0


@pytest.mark.req("GATE-2", "RUN-1")
def test_an_approval_is_given_at_the_command_line_while_no_worker_lives(url: str, tmp_path: Path) -> None:
    """One worker asks and is killed; a person approves; another worker pays, once. Then every command has an answer."""
    assert outlast(url, "run", f"{REFUNDS}:refund", "--id", "r1", "order_id=A-17", "cents=4200").exit_code == 0

    def hire() -> "subprocess.Popen[bytes]":
        command = ["outlast", "--store", url, "worker", REFUNDS, *SHORT]
        env = {**os.environ, "REFUND_LOG": f"{tmp_path / 'log'}"}
        return forked.Popen(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def pending() -> Any:
        return json.loads(outlast(url, "-o", "json", "approvals", "ls").stdout)["approvals"]

    first = hire()
    (approval,) = when(pending)
    first.kill()
    assert first.wait(GIVE_UP_S) == -signal.SIGKILL
    assert outlast(url, "approvals", "approve", approval["approval"], "--reason", "fine").exit_code == 0
    second = hire()
    try:
        when(lambda: "COMPLETED" in outlast(url, "runs", "show", "r1").output.upper())
    finally:
        second.terminate()
        assert second.wait(GIVE_UP_S) == 0
    assert (tmp_path / "log").read_text().splitlines().count("refund A-17 4200") == 1
    document = tmp_path / "r1.json"
    for arguments in (
        ("runs", "ls"),
        ("runs", "show", "r1"),
        ("effects", "ls", "--run", "r1"),
        ("approvals", "ls", "--all"),
        ("attention", "ls"),
        ("explain", "r1"),
        ("workers", "ls"),
        ("versions", "ls"),
        ("pauses",),
        ("pause", "activity", "issue_refund", "--reason", "audit"),
        ("pauses",),
        ("resume", "activity", "issue_refund"),
        ("check", REFUNDS),
        ("fsck", "--chain"),
        ("export", "r1", "--to", f"{document}"),
        ("verify", f"{document}"),
        ("purge", "--older", "1ms", "--yes"),
        ("runs", "ls"),
    ):
        answer = outlast(url, *arguments)
        assert answer.exit_code == 0, (arguments, answer.output, answer.exception)


@pytest.mark.req("APP-1", "RT-5")
def test_the_demo_runs_on_a_named_server_only_if_its_store_is_empty(url: str, tmp_path: Path) -> None:
    """Commands run in child processes, and no password is in their command lines."""
    command = [f"{OUTLAST}", "--store", url, "demo", "--approve", "--json", "--sample", "spot-twice"]

    def tell(folder: str) -> "subprocess.CompletedProcess[str]":
        given = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL, "timeout": 2 * GIVE_UP_S}
        return subprocess.run([*command, "--folder", f"{tmp_path / folder}"], check=False, **given)

    done = tell("first")
    assert done.returncode == 0, done.stdout + done.stderr
    printed = json.loads(done.stdout)
    assert (printed["outcome"], printed["proven"], printed["all_requests_repeated"]) == ("AWARDED", True, 0)
    assert printed["store"] == url and not (tmp_path / "first" / "outlast.db").exists()
    assert outlast(url, "fsck", "--chain").exit_code == 0
    second = tell("second")
    assert second.returncode == 4 and "holds runs already" in second.stderr, second.stdout + second.stderr


@pytest.mark.req("RT-5")
def test_a_server_is_backed_up_by_its_own_tools_and_that_is_said(url: str, tmp_path: Path) -> None:
    answer = outlast(url, "backup", f"{tmp_path / 'copy.db'}")
    assert answer.exit_code == LEFT and "pg_dump" in answer.output
    assert not (tmp_path / "copy.db").exists()


def test_a_server_is_asked_and_never_taken_for_a_missing_file() -> None:
    assert is_there("postgresql://nobody@127.0.0.1:1/none")


# --- first mistakes ----------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def locked() -> Iterator[server.Server]:
    """A server that asks for passwords."""
    own = server.Server()

    async def lock() -> None:
        db = await asyncpg.connect(own.url)
        await db.execute("CREATE ROLE app LOGIN PASSWORD 'right'")
        (own.data / "pg_hba.conf").write_text("host all app all scram-sha-256\nhost all all all trust\n")
        await db.execute("SELECT pg_reload_conf()")
        await db.close()

    asyncio.run(lock())
    yield own
    own.close()


@pytest.mark.parametrize(
    ("user", "database", "says", "does"),
    [
        ("app:wrong", "postgres", "refuses this user", "password"),
        ("app:right", "nowhere", "no such database", "createdb"),
        ("app:right", "postgres", "may not be set up by this user", "CREATE SCHEMA"),
        ("postgres", "postgres?schema=No-Name", "names no PostgreSQL store", "schema="),
    ],
)
def test_a_wrong_store_url_is_reported_in_one_sentence(
    locked: server.Server, user: str, database: str, says: str, does: str
) -> None:
    answer = outlast(f"postgresql://{user}@127.0.0.1:{locked.port}/{database}", "dispatcher")
    assert answer.exit_code == LEFT, answer.output
    assert says in answer.output and does in answer.output
    assert "Traceback" not in answer.output and "wrong" not in answer.output and "right" not in answer.output


def test_reading_creates_no_store(url: str) -> None:
    """A mistyped schema is reported, also at the second attempt."""
    mistyped = url + "_"
    for words in (("runs", "ls"), ("doctor",), ("pauses",), ("runs", "ls")):
        answer = outlast(mistyped, *words)
        assert answer.exit_code == LEFT and "there is no store at" in answer.output, answer.output
        assert "outlast run MODULE:NAME" in answer.output and "schema=" in answer.output


def test_an_unreachable_server_is_reported_in_one_sentence() -> None:
    answer = outlast("postgresql://app:secret@127.0.0.1:1/app", "runs", "ls")
    assert answer.exit_code == LEFT and "cannot be reached" in answer.output and "secret" not in answer.output


def test_a_missing_postgres_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = importlib.import_module("outlast.runtime.stores")

    def missing(name: str) -> ModuleType:
        raise ModuleNotFoundError(f"No module named {name}", name="asyncpg")

    monkeypatch.setattr(opened, "import_module", missing)
    answer = outlast("postgresql://app@127.0.0.1:1/app", "runs", "ls")
    assert answer.exit_code == LEFT and "outlast[postgres]" in answer.output
