"""Tools of a real MCP server, and of a toolset made for each run: effects, refusals, lost answers and a crash."""

import asyncio
import importlib
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.models.function import FunctionModel

import outlast
from outlast.errors import DefinitionError
from outlast.flow import NotSent
from outlast.testing.virtual_runtime import App, AppFactory, AppRun
from tests import forked
from tests.e2e.helpers import GIVE_UP_S, ROOT, SHORT, when
from tests.pydantic_ai import mcp_agents
from tests.pydantic_ai.scripted import Case, Script, call, effects, flow_of


class Bank:
    """The process of the server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process = forked.Popen(["tests.pydantic_ai.mcp_server", str(folder)], cwd=ROOT)
        when((folder / "url").exists)
        self.url = (folder / "url").read_text()

    @property
    def record(self) -> list[str]:
        file = self.folder / "record"
        return file.read_text().splitlines() if file.exists() else []

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(GIVE_UP_S)


@pytest.fixture
def bank(tmp_path: Path) -> Iterator[Bank]:
    opened = Bank(tmp_path)
    yield opened
    opened.kill()


def play(app_of: AppFactory, name: str, url: str, model: Script) -> tuple[App, AppRun[Case]]:
    agent = mcp_agents.bank_agent(name, FunctionModel(model), url)

    async def body(ctx: Any) -> None:
        ctx.state.answer = (await agent.run("?")).output
        await ctx.sleep("1h")

    flow = flow_of(f"agent-{name}", body, [agent])
    app = app_of(flow)
    return app, app.start(flow, {})


@pytest.mark.req("GATE-7", "EFF-2")
def test_tools_of_a_server_are_effects_and_lookups(bank: Bank, outlast_app: AppFactory) -> None:
    model = Script(
        [call("pay", order="o-1", cents=5), call("balance", "c2", account="a-1")],
        [call("pay", "c3", order="o-2", cents=-1)],
    )
    app, run = play(outlast_app, "pays", bank.url, model)
    bank.kill()
    app.clock.skip("1h")
    answer = run.outcome["answer"]
    assert answer.startswith("receipt of o-1 100"), "recorded answers need no server"
    assert "an amount is not negative" in str(model.asked[-1]), "an error that the server answered is one for the model"
    assert effects(app, run) == {"pays/pay/c1": "pays.pay done", "pays/pay/c3": "pays.pay done"}
    assert "pays.balance" in {memo.activity for memo in app.rows(run.id).memos}
    assert sorted(bank.record) == ["balance a-1", "pay o-1 5"] and len(model.asked) == 3


@pytest.mark.req("EFF-2", "FAIL-2")
def test_a_payment_whose_answer_is_lost_is_not_tried_again(
    bank: Bank, outlast_app: AppFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pydantic-ai would tell the model to try again. The record of the bank settles it."""
    monkeypatch.setattr(mcp_agents, "FOLDER", bank.folder)
    (bank.folder / "silent").touch()
    killer = threading.Thread(target=lambda: (when(lambda: bank.record), bank.kill()))
    killer.start()
    model = Script([call("pay", order="o-1", cents=5)])
    app, run = play(outlast_app, "loses", bank.url, model)
    killer.join(GIVE_UP_S)
    assert bank.record == ["pay o-1 5"]
    app.clock.skip("1h")
    (effect,) = app.rows(run.id).effects
    assert (effect.status, effect.settled_by, effect.attempts) == ("done", "reconcile", 1)
    assert run.attention == ["exception"], "the client raises again when its session ends"
    run.answer("exception", "continue")
    app.clock.skip("2h")
    assert run.outcome["answer"] == "receipt in the record" and len(model.asked) == 2
    assert bank.record == ["pay o-1 5"]


def test_a_server_that_is_away_was_not_asked() -> None:
    agent = mcp_agents.bank_agent("away", FunctionModel(Script()), "http://127.0.0.1:1/mcp")
    flow = flow_of("agent-away", lambda ctx: None, [agent]).validate()
    pay = flow.activity("away.pay")
    with pytest.raises(NotSent, match="does not offer pay"):
        asyncio.run(pay(tool="pay", arguments=mcp_agents.PAY, tool_call_id="c1"))


def test_a_toolset_that_turns_lost_answers_into_retries_is_refused() -> None:
    url = "http://127.0.0.1:1/mcp"
    for behavior in ("retry", "failed"):
        agent = mcp_agents.bank_agent("retries", FunctionModel(Script()), url, tool_error_behavior=behavior)
        with pytest.raises(DefinitionError, match='tool_error_behavior="error"'):
            flow_of("agent-retries", lambda ctx: None, [agent]).validate()


@pytest.mark.req("GATE-7", "EFF-2", "REC-1", "FAIL-2")
def test_another_process_settles_calls_that_a_killed_one_had_made(
    bank: Bank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker dies after the server, and a tool made for its run, acted, and before a row says so."""
    store, log = f"sqlite:{tmp_path / 'outlast.db'}", tmp_path / "worker.log"
    (bank.folder / "silent").touch()
    monkeypatch.setenv("BANK_FOLDER", str(bank.folder))
    monkeypatch.setenv("BANK_URL", bank.url)
    desk = importlib.reload(mcp_agents).desk
    with outlast.connect_sync(store) as client, log.open("ab") as out:
        run = client.start(desk, {"question": "what is up?"})
        command = ["outlast", "--store", store, "worker", "tests.pydantic_ai.mcp_agents", *SHORT]
        killed = forked.Popen(command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT)
        try:
            when(lambda: len(bank.record) == 2 and (bank.folder / "board").exists(), log.read_text)
        finally:
            killed.kill()
        assert killed.wait(GIVE_UP_S) == -signal.SIGKILL
        (bank.folder / "silent").unlink()
        with client.worker([desk]):
            assert run.result(GIVE_UP_S).answer == "all done"
        found = {each.key: each.status for each in client.effects(run.id)}
    assert found == {"mcp-desk/pay/c1": "done", "mcp-desk/post/c3": "done"}
    assert bank.record.count("pay o-1 500") == 1 and (bank.folder / "board").read_text() == "paid\n"
    assert (bank.folder / "paid").read_text().count("answer") == 2, "each answer of the model is paid once"
