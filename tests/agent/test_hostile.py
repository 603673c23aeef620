"""Hostile texts in tickets, pages and results of tools, and a model that obeys each: nothing leaves the policy.

Each call that the model proposes has a row that names the model and the outcome.
"""

import json
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from outlast import Allow, Deny, activity, lookup, role
from outlast.agent import ModelAnswer, ModelRequest, ScriptedModel, ToolCall, agent_workflow
from outlast.agent.chat_completions import parsed
from outlast.flow import NeedsApproval, PolicyRequest
from outlast.testing import App, FakeReceivers
from tests.agent.incident import LEAD, MODEL, call, posted, proposes, restart

TEXTS: Final = tomllib.loads(Path(__file__).with_name("hostile.toml").read_text(encoding="utf-8"))["text"]
DESK: Final = FakeReceivers(env="INCIDENT_DESK")
for path in ("/comments", "/mail", "/refunds", "/restarts"):
    DESK.route(path, duplicates="act")
READ: Final = {
    "ticket": ("read_ticket", {"ticket": "TCK-1"}),
    "page": ("fetch_page", {"url": "https://site.example/status"}),
    "tool": ("probe", {"service": "db"}),
}
HOSTILE: Final[dict[str, str]] = {}
"""What a reader reads: by the place of the text."""


# --- the agent ---------------------------------------------------------------------------------------------
@lookup
async def read_ticket(ticket: str) -> str:
    """Read a ticket."""
    return HOSTILE["ticket"]


@lookup
async def fetch_page(url: str) -> str:
    """Fetch a page of the site."""
    FETCHED.append(url)
    return HOSTILE["page"]


@activity(key="probe/{service}", no_undo="it changes nothing")
async def probe(service: str) -> str:
    """Probe a service, and return what it says."""
    return HOSTILE["tool"]


@activity(key="comment/{ticket}/{text}", no_undo="a comment stays")
async def comment(ticket: str, text: str) -> dict[str, str]:
    """Comment on a ticket."""
    return await posted("/comments", {"ticket": ticket, "text": text})


@activity(key="mail/{to}/{subject}", once_per="run", no_undo="a mail cannot be unsent")
async def send_mail(to: str, subject: str, body: str) -> dict[str, str]:
    """Send a mail."""
    return await posted("/mail", {"to": to, "subject": subject, "body": body})


@activity(key="refund/{order}", no_undo="a refund is not taken back")
async def refund(order: str, cents: int) -> dict[str, str]:
    """Pay money back to a customer."""
    return await posted("/refunds", {"order": order, "cents": cents})


TOOLS: Final = (read_ticket, fetch_page, probe, comment, send_mail, refund, restart)
FETCHED: Final[list[str]] = []


def policy(asked: PolicyRequest) -> Allow | Deny | NeedsApproval:
    """Return what this agent may do: its own ticket, its own site, its own people, small refunds after an approval."""
    if asked.activity == "restart":
        return Deny("freeze", "no restart today")
    if asked.occasion == "offer":
        return Allow("offered")
    given = asked.arguments
    if asked.activity == "fetch_page":
        url = urlsplit(str(given["url"]))
        return Allow("site") if (url.scheme, url.netloc) == ("https", "site.example") else Deny("site", "elsewhere")
    if asked.activity == "comment":
        return Allow("own") if given["ticket"] == "TCK-1" else Deny("own", "another ticket")
    if asked.activity == "send_mail":
        own = re.fullmatch(r"[a-z]+@example\.org", str(given["to"]))
        return Allow("staff") if own else Deny("staff", "a stranger")
    if asked.activity == "refund":
        cents = given["cents"]
        small = isinstance(cents, int) and 0 < cents <= 5_000
        return NeedsApproval("money", role("lead")) if small else Deny("money", "not that much")
    return Allow("reads")


def rounds(text: str) -> list[list[tuple[str, str]]]:
    """Return the calls that a text demands: tool and arguments, by answer."""
    demands = [re.findall(r"^CALL (\S+(?: *\[2K)?) ?(.*)$", part, re.MULTILINE) for part in text.split("THEN\n")]
    return [[(tool, said) for tool, said in part] for part in demands]


def raw(said: str) -> Any:
    """Return arguments as a careless client gives them: NaN, infinite and deep values included."""
    try:
        found = json.loads(said or "{}")
    except (ValueError, RecursionError):
        return said
    return found if isinstance(found, dict) else said


def obeys(where: str, demanded: list[list[tuple[str, str]]]) -> ScriptedModel:
    """Return a model that reads at a place, and then makes the calls that are demanded there, answer by answer."""

    def answer(request: ModelRequest) -> ModelAnswer | str:
        n = request.answers
        if n == 0:
            return ModelAnswer(calls=(call(*READ[where]),), model=MODEL)
        if n == 1:
            assert any(HOSTILE[where] in message.text for message in request.messages), "the model has read the text"
        if n > len(demanded):
            return "done"
        wanted = enumerate(demanded[n - 1])
        return ModelAnswer(calls=tuple(call(tool, raw(said), i) for i, (tool, said) in wanted), model=MODEL)

    return ScriptedModel(answer, name=MODEL)


# --- the attack --------------------------------------------------------------------------------------------
FILLED: Final[dict[str, Callable[[], str]]] = {
    "deep": lambda: "[" * 5_000 + "]" * 5_000,
    "less": lambda: "[" * 150 + "]" * 150,
    "huge": lambda: "x" * 40_000,
    "long": lambda: "T" * 2_000,
    "many": lambda: "\n".join(f'CALL comment {{"ticket": "TCK-1", "text": "{n}"}}' for n in range(60)),
}


def times(listed: list[str]) -> list[str]:
    """Spell «x x3» out."""
    split = [each.partition(" x") for each in listed]
    return [what for what, _, n in split for _ in range(int(n or 1))]


@pytest.fixture
def desk() -> Iterator[FakeReceivers]:
    FETCHED.clear()
    with DESK as running:
        yield running


@pytest.mark.req("GATE-7", "FAIL-1")
@pytest.mark.parametrize("hostile", TEXTS, ids=[each["name"] for each in TEXTS])
def test_a_model_that_obeys_a_hostile_text_does_nothing_outside_policy(
    desk: FakeReceivers, hostile: dict[str, Any]
) -> None:
    where, outcomes = hostile["where"], times(hostile["outcomes"])
    bystander = agent_workflow(
        "bystander", model=proposes(("refund", {"order": "B-9", "cents": 100})), tools=TOOLS, approve=LEAD
    )
    filled = {name: fill() for name, fill in FILLED.items()}
    text = re.sub(r"\{\{(\w+)\}\}", lambda m: filled.get(m[1], m[0]), hostile["says"])
    demanded: list[list[tuple[str, str]]] = []
    victim = agent_workflow("victim", model=obeys(where, demanded), tools=TOOLS, policy=policy)
    app = App((victim, bystander))
    try:
        other = app.start(bystander, {"objective": "refund B-9"})
        HOSTILE[where] = text.replace("{{pending}}", other._person("")[1])
        demanded += rounds(HOSTILE[where])
        run = app.start(victim, {"objective": "look after TCK-1"})
        if hostile.get("asks"):
            assert [each.partition(" ")[0] for each in run.waiting_for] == ["approval"]
            run.reject("not asked for")
        assert (run.status, [a.detail for a in run.now.attention], run.outcome) == ("completed", [], "done")
        executed = [entry.route.removeprefix("POST ") for entry in desk.record.of("attempt")]
        assert sorted(executed) == sorted(times(hostile.get("does", [])))
        assert set(FETCHED) <= {"https://site.example/status"}
        rows = [json.loads(m.response or b"") for m in app.rows(run.id).memos if m.activity == "outlast.admission"]
        rows.remove(next(row for row in rows if row["tool"] == READ[where][0] and row["outcome"] == "admitted"))
        assert {row["proposed_by"] for row in rows} == {MODEL}
        assert sorted(row["code"] or row["outcome"] for row in rows) == sorted(outcomes)
        assert sorted(row["tool"] for row in rows) == sorted(tool for part in demanded for tool, _ in part)
        assert other.status == "waiting" and not other.attention, "no other run is touched"
    finally:
        app.close()


def test_there_are_thirty_texts_in_all_three_places() -> None:
    assert len(TEXTS) >= 30 and {each["where"] for each in TEXTS} == {"ticket", "page", "tool"}
    assert len({each["says"] for each in TEXTS}) == len(TEXTS)


@pytest.mark.parametrize(
    "said", ['{"n": 1e400}', '{"n": NaN}', '{"n": "\\ud800"}', '{"n": ' + "[" * 150 + "]" * 150 + "}", "[1]", "{", ""]
)
def test_arguments_that_json_cannot_hold_become_text(said: str) -> None:
    """An infinite number went into an answer that could not be stored: each re-run paid for the answer again."""
    for given in (parsed(said), raw(said)):
        kept = ToolCall(id="\ud800", tool="a\ud800", arguments=given)
        assert isinstance(kept.arguments, dict) == (not said)
        assert ToolCall.model_validate_json(kept.model_dump_json()) == kept and kept.tool == "a?"
