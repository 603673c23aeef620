"""Settings: which source counts, that each names its source, that mistakes are named, and the findings of `doctor`."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from outlast.cli import cli
from outlast.cli.global_options import CliSettings, Command, complete
from outlast.runtime.interpreter_build import Build
from tests.cli.conftest import Terminal


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def by_name(outlast: Terminal, *args: str, **env: str) -> dict[str, tuple[object, str]]:
    answer = outlast("-o", "json", *args, "config", "show", env=env)
    assert answer.code == 0, answer
    return {each["name"]: (each["value"], each["source"]) for each in answer.json["settings"]}


def test_the_first_source_with_a_value_wins(outlast: Terminal, tmp_path: Path) -> None:
    name = "OUTLAST_WORKER__CONCURRENCY"
    assert by_name(outlast)["worker.concurrency"] == (100, "default")
    (tmp_path / "pyproject.toml").write_text("[tool.outlast.worker]\nconcurrency = 1\n")
    assert by_name(outlast)["worker.concurrency"] == (1, "pyproject.toml")
    (tmp_path / "outlast.toml").write_text("[worker]\nconcurrency = 2\n")
    assert by_name(outlast)["worker.concurrency"] == (2, "outlast.toml")
    (tmp_path / ".env").write_text(f"{name}=3\nSOMEBODY_ELSES=1\n")
    assert by_name(outlast)["worker.concurrency"] == (3, ".env")
    (tmp_path / "secret").write_text("4\n")
    assert by_name(outlast, OUTLAST_WORKER__CONCURRENCY_FILE="secret")["worker.concurrency"] == (4, "file secret")
    assert by_name(outlast, **{name: "5"})["worker.concurrency"] == (5, f"environment {name}")
    assert by_name(outlast, "--tenant", "acme", OUTLAST_TENANT="other")["tenant"] == ("acme", "command line")


def test_a_setting_of_a_file_applies_to_the_command(outlast: Terminal, tmp_path: Path) -> None:
    outlast.start()
    (tmp_path / "outlast.toml").write_text('tenant = "nobody"\noutput = "json"\n')
    assert outlast("runs", "ls").json["runs"] == []
    assert len(outlast("--tenant", "default", "runs", "ls").json["runs"]) == 1


def test_a_secret_is_not_shown(outlast: Terminal, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("very-secret")
    answer = outlast("config", "show", env={"OUTLAST_AUTH__TOKENS_FILE": "tokens"})
    assert "very-secret" not in answer.out and answer.row("auth.tokens") == "auth.tokens •••••• file tokens"


def test_every_mistake_is_named_at_once(outlast: Terminal) -> None:
    answer = outlast("runs", "ls", env={"OUTLAST_WORKER__CONCURRENCY": "many", "OUTLAST_SERVE__PORT": "70000"})
    assert answer.code == 2
    assert "worker.concurrency" in answer.err and "serve.port" in answer.err and "Traceback" not in answer.err
    assert "(environment OUTLAST_SERVE__PORT)" in answer.err, "it says where"


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("outlast.toml", "[worker]\nconcurency = 1\n", "worker.concurency"),
        ("outlast.toml", "worker = [", "outlast.toml"),
        ("pyproject.toml", "[tool.outlast]\nstroe = 1\n", "stroe"),
    ],
)
def test_a_mistake_in_a_file_is_named(outlast: Terminal, tmp_path: Path, name: str, text: str, word: str) -> None:
    (tmp_path / name).write_text(text)
    answer = outlast("runs", "ls")
    assert answer.code == 2 and word in answer.err and "Traceback" not in answer.err
    assert name in answer.err, "it says where"


def test_a_file_that_is_not_there_is_named(outlast: Terminal) -> None:
    answer = outlast("runs", "ls", env={"OUTLAST_STORE_FILE": "nowhere"})
    assert answer.code == 2 and "OUTLAST_STORE_FILE names nowhere" in answer.err


def test_an_unknown_variable_is_reported(outlast: Terminal) -> None:
    answer = outlast("config", "show", env={"OUTLAST_STOER": "x"})
    assert answer.code == 0 and "OUTLAST_STOER matches no setting" in answer.err


@pytest.mark.parametrize("command", ["worker", "serve", "dev"])
def test_serving_commands_warn_of_unknown_variables_at_start(command: str) -> None:
    env = {**os.environ, "OUTLAST_TOKNE": "x", "OUTLAST_LOG_LEVEL": "loud"}
    code = "from outlast.cli import main; main()"
    line = [sys.executable, "-c", code, command, "missing.py"]
    said = subprocess.run(line, env=env, capture_output=True, text=True, check=False).stderr
    assert said.count("OUTLAST_TOKNE matches no setting") == 1
    assert "OUTLAST_LOG_LEVEL=LOUD is not a log level" in said and "there is no file missing.py" in said


def test_the_level_of_logs_is_no_mistake(outlast: Terminal) -> None:
    assert outlast("-o", "json", "config", "show", env={"OUTLAST_LOG_LEVEL": "info"}).json["unknown"] == []


def test_a_file_that_holds_no_secret_is_a_mistake(outlast: Terminal, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("\n")
    answer = outlast("config", "show", env={"OUTLAST_AUTH__TOKENS_FILE": "tokens"})
    assert answer.code == 2 and "OUTLAST_AUTH__TOKENS_FILE names tokens, which is empty" in answer.err


def test_a_store_that_is_advised_can_be_pasted_into_a_shell() -> None:
    url = "postgresql://app@db/app?schema=a"
    assert (
        shlex.split(CliSettings(store=url).where()) == ["--store", url] and f"'{url}'" in CliSettings(store=url).where()
    )


def _commands(group: click.Group, ctx: click.Context, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _commands(command, ctx, *path, name)
        else:
            yield (*path, name), command


def test_each_option_that_names_the_setting_of_the_module_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """`runs fork` named OUTLAST_MODULE in its help and asked for --module all the same."""
    monkeypatch.setenv("OUTLAST_MODULE", "shop.orders")
    ctx = click.Context(cli, obj=CliSettings())
    complete(ctx)
    read = dict[tuple[str, ...], object]()
    for path, command in _commands(cli, ctx):
        if any("[OUTLAST_MODULE]" in (getattr(option, "help", "") or "") for option in command.params):
            found: object = ctx.default_map
            for name in (*path, "module"):
                found = found.get(name) if isinstance(found, dict) else None
            read[path] = found
    assert ("runs", "fork") in read and len(read) >= 4
    assert [" ".join(path) for path, found in read.items() if found != "shop.orders"] == []


def test_each_command_takes_the_global_options() -> None:
    """`outlast tools -o json` was refused."""
    without = [" ".join(path) for path, each in _commands(cli, click.Context(cli)) if not isinstance(each, Command)]
    assert without == []


def test_liveness_from_the_environment_is_the_workers(outlast: Terminal) -> None:
    outlast.start()
    env = {"OUTLAST_LIVENESS__HEARTBEAT_WINDOW": "45s"}
    assert "45s" in outlast("explain", "lease", env=env).out


def test_unset_durations_are_shown_with_their_defaults(outlast: Terminal) -> None:
    assert outlast("config", "show").row("liveness.heartbeat_window") == "liveness.heartbeat_window 15s default"
    answer = outlast("config", "show", env={"OUTLAST_LIVENESS__HEARTBEAT_WINDOW": "6s"})
    assert "6s environment" in answer.row("liveness.heartbeat_window"), answer.out
    assert answer.row("liveness.heartbeat_every") == "liveness.heartbeat_every 2s default"


def test_doctor_names_each_problem_with_its_remedy(outlast: Terminal) -> None:
    outlast.start()
    answer = outlast("doctor")
    assert answer.code == 1
    assert "✗ workers" in answer.out and "start one: outlast worker" in answer.out
    assert "✓ synchronous" in answer.out and "full" in answer.out
    assert "no worker serves refund@1" in answer.out


def test_doctor_passes_on_a_healthy_store(outlast: Terminal) -> None:
    outlast.start()
    outlast.worker()
    answer = outlast("-o", "json", "doctor")
    wrong = [each for each in answer.json["findings"] if each["fix"]]
    assert wrong == []


def test_doctor_passes_on_an_old_sqlite_with_a_note(outlast: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sqlite3.sqlite_version", "3.40.1")
    monkeypatch.setattr("sqlite3.sqlite_version_info", (3, 40, 1))
    outlast.start()
    outlast.worker()
    answer = outlast("doctor")
    assert answer.code == 0 and "! sqlite" in answer.out and "never check-point this file" in answer.out


def test_doctor_passes_on_a_slow_interpreter_with_a_note(outlast: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outlast.upkeep.whole_store.build", lambda: Build(False, "without PGO"))
    outlast.start()
    outlast.worker()
    answer = outlast("doctor")
    assert answer.code == 0 and "! python" in answer.out and "without PGO" in answer.out
    assert "--enable-optimizations" in answer.out
