"""Approvers see the call that is executed: hostile text is inert and deceptive text marked (S13, S14)."""

import ast
import asyncio
import json
import re
import unicodedata
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner
from pydantic import BaseModel

import outlast
from outlast import Context, Workflow, activity
from outlast.cli import cli
from outlast.cli.text import inert, json_escaped
from outlast.core.approvals import Actor
from outlast.core.rows.run_rows import is_over
from outlast.flow import role
from outlast.flow.source import syntax_tree
from outlast.insight.confusables import confusable_texts
from outlast.runtime.in_process import InProcessRuntime
from outlast.runtime.operations import Operations
from outlast.runtime.stores import open_store, until

HOSTILE = {
    "script": "<script>alert(1)</script><img src=x onerror=alert(1)>[x](javascript:alert(1))",
    "terminal": "\x1b[2J\x1b]0;owned\x07\x9b31m\x08\x7f\r\x1b]8;;https://evil.example\x1b\\pay\x1b]8;;\x1b\\",
    "right to left": "pay \u202e002\u202c to \u2066ana\u2069",
    "nobody sees": "pa\u200by\u00ad \ufeff\u3164\u2800\U000e0041\U000e0042\ufe01\u180e",
    "line": "one\u2028two\u0085three\nfour",
    "formula": "=HYPERLINK(1)+cmd|' /C calc'!A0",
    "nul": "a\x00b",
}
LONG = {f"n{n}": "x" * 200 + "\u202e" for n in range(200)}
PAID: list[dict[str, Any]] = []


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_terminal_output_is_inert(text: str) -> None:
    for shown in (inert(text), json_escaped(json.dumps(text, ensure_ascii=False))):
        assert all(unicodedata.category(c) not in ("Cc", "Cf", "Zl", "Zp", "Cs") for c in shown), repr(shown)
    assert not set("\u3164\u2800\ufe01") & set(inert(text))


def test_harmless_text_stays() -> None:
    for text in ("Zahlung über 5 €", "приветствие", "⚠️ pay 1️⃣", "naïve — «x»", "你好", "αβγδ"):
        assert inert(text) == text


def test_making_a_long_line_inert_takes_linear_time() -> None:
    text = "\x1b\u202ea" * (2 * 1024 * 1024 // 5)
    assert "\x1b" not in inert(text) and "\u202e" not in json_escaped(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pa\u200by", "U+200B"), ("pa\u00ady", "U+00AD"), ("\u202e002", "U+202E"), ("a\u3164b", "U+3164"),
        ("a\x1b[2J", "U+001B"),
        ("pay\ufe01", "U+FE01"), ("a\u00a0b", "U+00A0"), ("p\u0430y", "mixes Cyrillic and Latin"),
        ("to \u0440\u0430\u0443\u0440\u0430", "«раура» is not «paypa»"), ("\u0441\u043e\u0441\u043e", "is not «coco»"),
        ("𝐩𝐚𝐲 now", "is not «pay»"), ("ＡＣＭＥ", "is not «ACME»"), ("ΑΒΒ", "is not «ABB»"),
    ],
)  # fmt: skip
def test_deceptive_text_is_marked(text: str, expected: str) -> None:
    (warning, *_) = confusable_texts({"deep": [{"to": text}]})
    assert warning.startswith("deep.to: ") and expected in warning
    assert confusable_texts({text: 1}), "a name deceives too"


@pytest.mark.parametrize(
    "text", ["5 € für Zoë", "серу несут у хаоса и дома", "1º andar", "⚠️ x", "m²", "a\tb\nc", "東京"]
)
def test_normal_text_is_not_marked(text: str) -> None:
    assert confusable_texts({"to": text}) == []


class Transfer(BaseModel):
    given: dict[str, Any]


transfers = Workflow("shown-transfer", state=Transfer)


@activity(key="shown-transfer", no_undo="it is gone")  # outlast: ignore[OL101] tests only
async def transfer(given: dict[str, Any]) -> None:
    PAID.append(given)


@transfers.node(start=True)
async def ask(ctx: Context[Transfer]) -> None:
    plan = transfer.plan(ctx.state.given)
    decision = await ctx.approval(
        plan, summary=f"Pay {HOSTILE['terminal']}", by=role("finance"), within=timedelta(hours=1)
    )
    await ctx.do(decision.chosen)


@pytest.mark.req("GATE-1", "GATE-9")
@pytest.mark.parametrize(
    "given", [HOSTILE, LONG, {"deep": [[[[HOSTILE]]]], "last": "x"}], ids=["hostile", "long", "deep"]
)
def test_the_executed_call_is_the_one_shown(tmp_path: Path, given: dict[str, Any]) -> None:
    """On the command line and over HTTP, with every argument. Deceptive text is marked."""
    url = f"sqlite:{tmp_path}/outlast.db"
    PAID.clear()

    def typed(*words: str) -> str:
        done = CliRunner().invoke(cli, ["--store", url, *words])
        assert done.exit_code == 0, done.output
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]", done.output)
        return done.stdout

    async def check() -> None:
        store = await open_store(url)
        ops = Operations(store, tenant="default", actor=Actor("ana", frozenset({"finance"}), ("finance",)),
                         workflows={"shown-transfer": transfers})  # fmt: skip

        async with InProcessRuntime(store, [transfers]):
            run = (await ops.start_run("shown-transfer", {"given": given})).run

            async def asked() -> str | None:
                return next((row.id for row in await ops.rows.approvals_of(run)), None)

            async def ended() -> bool | None:
                return is_over(await ops.rows.run(run)) or None

            approval = await until(store, asked, within_s=60)
            page = await asyncio.to_thread(typed, "approvals", "show", str(approval))
            plan = page[page.index("    {") :].split("\n→")[0]
            assert json.loads(plan) == {"given": given}, "the page shows every argument, and nothing else"
            shown = json.loads(await asyncio.to_thread(typed, "-o", "json", "approvals", "show", str(approval)))
            app = outlast.asgi(store, [transfers])
            local = httpx2.ASGITransport(app=app, client=("127.0.0.1", 1))
            async with httpx2.AsyncClient(transport=local, base_url="http://127.0.0.1") as client:
                over_http = (await client.get(f"/v1/approvals/{approval}")).json()
            for view in (shown, over_http):
                (only,) = view["plans"]
                assert only["arguments"] == {"given": given} and only["warnings"] and view["warnings"]
            assert "warning" in page and "warning!" in await asyncio.to_thread(typed, "approvals", "ls")
            await ops.approve(str(approval), reason="fine")
            assert await until(store, ended, within_s=60)
            (effect,) = await ops.rows.effects(run)
        assert [given] == PAID and json.loads(effect.args) == {"given": given}
        await store.close()

    asyncio.run(check())


def test_there_is_no_csv() -> None:
    """No output format has cells that a program could take for formulas."""
    for file in (Path(outlast.__file__).parent).rglob("*.py"):
        names = {alias.name for node in ast.walk(syntax_tree(file.read_text(encoding="utf-8")))
                 if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names}  # fmt: skip
        assert "csv" not in names, file
