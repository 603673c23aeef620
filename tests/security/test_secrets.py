"""Redaction: which values count as secrets, its time, and exports (S19, S29)."""

import asyncio
import json
import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel, SecretBytes, SecretStr

from outlast import Context, Workflow, activity
from outlast.core.approvals import Actor
from outlast.core.codec import Codec
from outlast.core.rows.run_rows import is_over
from outlast.errors import DefinitionError
from outlast.flow import role
from outlast.runtime.in_process import InProcessRuntime
from outlast.runtime.operations import Operations
from outlast.runtime.stores import open_store, until
from outlast.telemetry.redact import GONE, redact, redacted, secrets_in
from outlast.upkeep.export import export, verify

SECRET = "canary-Pass-77AQ"


@pytest.mark.parametrize(
    "value",
    [
        {"password": SECRET}, {"db": {"api_key": SECRET}}, {"secrets": [SECRET, {"of": SECRET}]}, [{"Token": SECRET}],
        {"credentials": {"user": "ana", "value": SECRET}}, {"arguments": json.dumps({"password": SECRET})},
        {"plans": json.dumps([{"arguments": json.dumps({"password": SECRET})}])}, {"x-api-key": SECRET},
        {"arguments": json.dumps({"secrets": [{"of": SECRET}]})},
    ],
    ids=str,
)  # fmt: skip
def test_a_value_with_a_secret_name_is_redacted(value: Any) -> None:
    clean = redacted(value)
    assert SECRET not in json.dumps(clean) and GONE in json.dumps(clean)
    assert redacted(clean) == clean
    assert SECRET in secrets_in(value)


def test_deep_json_is_redacted_as_text() -> None:
    assert secrets_in({"args": "[" * 100_000}) == frozenset()
    assert SECRET not in redacted({"args": "[" * 100_000 + f'"password={SECRET}"'})["args"]


def test_a_secret_may_be_a_number() -> None:
    assert redacted({"password": 4711, "secret": 0.5, "n": 7}) == {"password": GONE, "secret": GONE, "n": 7}


def test_harmless_values_stay() -> None:
    said = {"tokens": 412, "max_tokens": 4096, "password": None, "secret": False, "user": "ana", "text": "{not json"}
    assert redacted(said) == said
    hint = "send Authorization: Bearer … with a token that is current"
    assert redact(hint) == hint


def test_values_without_a_secret_name_stay_unchanged() -> None:
    """Only secrets are replaced in a text."""
    assert secrets_in({"order": "A-1234567", "pin": "12", "secret": 12345678, "list": ["another text"]}) == frozenset()
    assert redacted({"no secret here": "a text"}) == {"no secret here": "a text"}
    assert redacted('{"a":1,"b":  [ 2 ]}') == '{"a":1,"b":  [ 2 ]}', "to its last space"
    assert redacted(json.dumps({"password": SECRET, "was": "größer"}, ensure_ascii=False)).endswith('"was": "größer"}')


@pytest.mark.parametrize(
    "text",
    [
        f"password={SECRET}", f'{{"password": "{SECRET}"}}', f"{{'api_key': '{SECRET}'}}",
        f"Authorization: Basic {SECRET}",
        json.dumps(json.dumps({"password": SECRET})), f"postgresql://app:{SECRET}@db/x", f"https://u:a@{SECRET}@host/x",
        f"\x1b[2Jpostgres://app:{SECRET}@db/x", f"{'x' * 30}://app:{SECRET}@db",
        f'"password": "a\\"{SECRET}"', f"?token={SECRET}&x=1", f"PGPASSWORD={SECRET} psql", f"my-secret-name: {SECRET}",
    ],
    ids=str,
)  # fmt: skip
def test_a_text_with_a_secret_is_redacted(text: str) -> None:
    assert SECRET not in redact(text)


# Each without a name. The text after the last bar must not be visible.
FORMS = [
    "sk-|canary77AQ", "pk-|canary77AQ", "rk-|canary77AQ", "sk_|live_canary77AQ", "pk_|canary77AQ", "rk_|canary77AQ",
    "whsec_|Y2FuYXJ5Nzc=", "olt_|canary77AQcanary77AQx", "ghp_|canary77AQ", "gho_|canary77AQ", "ghu_|canary77AQ",
    "ghs_|canary77AQ", "ghr_|canary77AQ", "github_pat_|canary77AQ", "glpat-|canary77AQ", "xoxa-|canary77AQ",
    "xoxb-|canary77AQ", "xoxp-|canary77AQ", "xoxr-|canary77AQ", "xoxs-|canary77AQ", "AKIA|CANARY77AQCANARY",
    "ASIA|CANARY77AQCANARY", "eyJhbGciOiJ9.|eyJzdWIiOiJjYW5hcnkifQ.canary77AQ", "basic |canary77AQ",
    "digest |canary77AQ", "bearer |canary77AQ",
    "-----BEGIN EC PRIVATE KEY-----|canary77AQ\nx\n-----END EC PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----|canary77AQ, and it goes on",
]  # fmt: skip
NAMES = ["password", "passwd", "secret", "token", "api_key", "api-key", "apikey", "authorization", "credentials",
         "private_key", "private-key", "privateKey", "X-Api-Key", "DB_PASSWORD", "client-secret"]  # fmt: skip


@pytest.mark.req("OBS-3")
@pytest.mark.parametrize("form", FORMS)
def test_a_secret_of_known_form_is_redacted_without_a_name(form: str) -> None:
    said = redact(f"it answered: {form.replace('|', '')}")
    assert form.rpartition("|")[2] not in said and GONE in said, said


@pytest.mark.req("OBS-3")
@pytest.mark.parametrize("name", NAMES)
def test_every_secret_name_is_recognized(name: str) -> None:
    assert redacted({name: SECRET, "n": 1}) == {name: GONE, "n": 1}
    assert secrets_in({name: SECRET}) == {SECRET}
    for said in (f"{name}={SECRET}", f"{name}: {SECRET}", f'"{name}": "{SECRET}"', f"{name} = '{SECRET}'"):
        assert SECRET not in redact(f"as {said}, and more"), said


CUT = [
    f"password={SECRET}", f'{{"password": "a b {SECRET}", "n": 1}}', f"{{'api_key': 'a b {SECRET}'}}",
    json.dumps(json.dumps({"password": SECRET})), f"postgresql://app:{SECRET}@db/x", f"Authorization: Basic {SECRET}",
    f'"secret": "a\\"{SECRET}"',
]  # fmt: skip


@pytest.mark.req("OBS-3")
@pytest.mark.parametrize("text", CUT)
def test_a_truncated_secret_leaves_no_part(text: str) -> None:
    """Errors, answers and audit lines are truncated before redaction."""
    for end in range(text.index(SECRET) + 6, len(text)):
        said = redact(f"it answered: {text[:end]}")
        assert SECRET[:6] not in said, said


def test_a_known_secret_is_redacted_completely() -> None:
    """The text was truncated within it, or another secret has the same beginning."""
    for end in range(6, len(SECRET)):
        assert SECRET[:6] not in redact(f"cannot log in as {SECRET[:end]}", [SECRET])
    longer = f"{SECRET}-and-more"
    for known in ([SECRET, longer], [longer, SECRET]):
        assert redact(f"{longer}!", known) == f"{GONE}!"
    assert redact(f"as {SECRET[:5]}", [SECRET]) == f"as {SECRET[:5]}", "a piece this short is part of many words"


def test_addresses_are_not_redacted() -> None:
    for text in ("http://127.0.0.1:7168", "it listens on http://127.0.0.1:7168.", "(http://host:80)", "http://[::1]:7168",
                 '{"url": "http://127.0.0.1:7168"}', "postgresql://db:5432/outlast"):  # fmt: skip
        assert redact(text) == text


def test_a_known_secret_is_redacted_without_a_name() -> None:
    known = secrets_in(b'{"password": "canary-Pass-77AQ", "pin": "1", "token": "short"}')
    assert known == {SECRET}
    assert redact(f"cannot log in as ana/{SECRET}!", known) == f"cannot log in as ana/{GONE}!"


UNITS = [
    "password", "token-", "a", "eyJabcdefgh.", "-eyJabcdefgh", "x://a", "a.", "a:b://:", 'password="', "password   ",
    "bearer ", "sk-", "-----BEGIN PRIVATE KEY-----", '\\"secret', "secret=\\", "[", "{", '{"a":',
]  # fmt: skip


def test_redaction_takes_linear_time() -> None:
    """Refusals are redacted in the worker's event loop. Once, quadratic time cost the lease."""
    program = (
        "import json, sys; from outlast.telemetry.redact import redacted\n"
        "for unit in json.loads(sys.argv[1]):\n"
        "    print(repr(unit), flush=True); redacted(unit * ((1 << 20) // len(unit)))"
    )
    try:
        subprocess.run([sys.executable, "-c", program, json.dumps(UNITS)], check=True, timeout=60, capture_output=True)
    except subprocess.TimeoutExpired as error:
        pytest.fail(f"the last of these took too long: {error.stdout!r}")


@pytest.mark.parametrize("kind", [SecretStr, SecretBytes, list[SecretStr]])
def test_a_type_that_hides_its_value_is_not_stored(kind: Any) -> None:
    """It would be stored as asterisks, and read back as such after the next wait."""

    class State(BaseModel):
        name: str
        key: kind

    with pytest.raises(DefinitionError, match="holds a Secret"):
        Codec(State, named="the state of x")

    class SecretSanta(BaseModel):
        name: str

    Codec(SecretSanta)


# --- exports -------------------------------------------------------------------------------------
class Login(BaseModel):
    user: str
    password: str
    page: str
    tries: int = 0


logins = Workflow("export-login", state=Login)


@activity(key="export-login/{user}", no_undo="nothing is kept")
async def log_in(user: str, password: str) -> dict[str, str]:
    return {"session_token": f"session of {password}", "as": user}


@logins.node(start=True)
async def ask(ctx: Context[Login]) -> None:
    plan = log_in.plan(ctx.state.user, ctx.state.password)
    ctx.log("asked", f"with password={ctx.state.password}")
    decision = await ctx.approval(
        plan, summary=f"log in with password={ctx.state.password}", by=role("finance"), within=timedelta(hours=1)
    )
    await ctx.do(decision.chosen)


@pytest.mark.req("TEST-4", "GATE-8")
@pytest.mark.parametrize("page", ["", "x" * 20_000], ids=["small", "in parts"])
def test_an_export_has_no_secret_and_can_be_verified(page: str) -> None:
    async def check() -> tuple[dict[str, Any], dict[str, Any]]:
        store = await open_store("memory:")
        ops = Operations(store, tenant="t", actor=Actor("ana", frozenset({"finance"}), ("finance",)),
                         workflows={"export-login": logins})  # fmt: skip
        async with InProcessRuntime(store, [logins]):
            started = await ops.start_run("export-login", {"user": "ana", "password": SECRET, "page": page})

            async def asked() -> str | None:
                return next((row.id for row in await ops.rows.approvals_of(started.run)), None)

            async def ended() -> bool | None:
                return is_over(await ops.rows.run(started.run)) or None

            approval = await until(store, asked, within_s=60)
            assert approval is not None
            await ops.approve(approval, reason="fine")
            assert await until(store, ended, within_s=60)
        return await export(ops, started.run), await export(ops, started.run, whole=True)

    shown, whole = asyncio.run(check())
    assert SECRET in json.dumps(whole) and SECRET not in json.dumps(shown)
    looked, all_of_it = verify(json.dumps(shown).encode()), verify(json.dumps(whole).encode())
    assert (looked.findings, all_of_it.findings) == ((), ())
    assert all_of_it.redacted == 0 < looked.redacted
    touched = {name for name, rows in shown.items() if isinstance(rows, list) for row in rows if "redacted" in row}
    assert touched >= {"events", "effects", "approvals"}
    assert bool(whole.get("values")) == bool(page) and not shown.get("values")
    events = shown["events"]
    plain = next(n for n, row in enumerate(events) if "redacted" not in row)
    events[plain]["body"] = events[plain]["body"].replace("ana", "eve").replace("epoch", "epocH")
    assert {f.check for f in verify(json.dumps(shown).encode()).findings} >= {"row_digest", "history_chain"}
