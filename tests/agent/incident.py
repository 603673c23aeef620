"""An agent that works an incident with tools that act, on real HTTP receivers which keep a record."""

import json
from typing import Any, Final

import httpx2

import outlast.http
from outlast import DidNotHappen, Happened, Retry, Unknown, activity, lookup, role, this_call
from outlast.agent import ModelAnswer, ModelRequest, ScriptedModel, ToolCall, agent_workflow
from outlast.testing import FakeReceivers
from outlast.testing.crash_values import CrashHook
from tests import mutants

OBJECTIVE: Final = "Open a follow-up ticket for incident INC-42"
TICKET: Final = {"incident": "INC-42", "title": "follow up"}
MODEL: Final = "scripted:test-1"
MINE: Final = FakeReceivers(env="INCIDENT_DESK")
"""The ticket system and the bank. They execute each request that they get, also one with a known key."""
for path in ("/tickets", "/refunds", "/restarts"):
    MINE.route(path, duplicates="act")


def desk() -> outlast.http.AsyncClient:
    """Return a client of the receivers."""
    return outlast.http.AsyncClient(base_url=MINE.url, timeout=30)


async def posted(path: str, body: dict[str, Any]) -> dict[str, str]:
    async with desk() as http:
        answer: dict[str, str] = (await http.post(path, json=body)).json()
    return answer


async def found(path: str) -> Happened[dict[str, str]] | DidNotHappen | Unknown:
    async with desk() as http:
        answer = await http.get(path, headers={"Idempotency-Key": this_call().idempotency_key})
    return Happened(answer.json()) if answer.status_code == 200 else DidNotHappen()


@activity(
    key="ticket/{incident}", once_per="run", if_uncertain="reconcile", timeout="2s", no_undo="a ticket stays open"
)
async def open_ticket(incident: str, title: str) -> dict[str, str]:
    """Open a ticket for an incident."""
    return await posted("/tickets", {"incident": incident, "title": title})


@open_ticket.reconcile
async def find_ticket(incident: str, title: str) -> Happened[dict[str, str]] | DidNotHappen | Unknown:
    return await found("/tickets")


@activity(key="refund/{order}", timeout="2s", no_undo="a refund is not taken back")
async def refund(order: str, cents: int) -> dict[str, str]:
    """Pay money back to a customer."""
    return await posted("/refunds", {"order": order, "cents": cents})


@activity(key="restart/{service}", timeout="2s", no_undo="a restart cannot be taken back")
async def restart(service: str) -> dict[str, str]:
    """Restart a service."""
    return await posted("/restarts", {"service": service})


@lookup(retry=Retry(attempts=1))
async def read_ticket(ticket: str) -> str:
    """Read a ticket."""
    async with desk() as http:
        try:
            answer = await http.get(f"/texts/{ticket}")
        except httpx2.HTTPError as error:
            return f"error: {error}"
    return str(answer.json())


TOOLS: Final = (open_ticket, refund, restart, read_ticket)


def results(request: ModelRequest) -> list[Any]:
    """Return the results of tools in the transcript, oldest first."""
    return [_plain(message.text) for message in request.messages if message.role == "tool"]


def _plain(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def call(tool: str, arguments: dict[str, Any] | str, n: int = 0) -> ToolCall:
    return ToolCall(id=f"c{n}", tool=tool, arguments=arguments)


def proposes(*calls: tuple[str, dict[str, Any]]) -> ScriptedModel:
    """Return a model that proposes these calls in one answer, and then reports the results that it has read."""

    def answer(request: ModelRequest) -> ModelAnswer | str:
        if told := results(request):
            return json.dumps(told)
        return ModelAnswer(calls=tuple(call(*each, n) for n, each in enumerate(calls)), model=MODEL)

    return ScriptedModel(answer, name=MODEL)


OPEN_TICKET: Final = ("open_ticket", TICKET)
REFUND: Final = ("refund", {"order": "A-1", "cents": 4200})
LEAD: Final = {"refund": role("lead")}
incident = agent_workflow("incident", model=proposes(OPEN_TICKET), tools=TOOLS)
both = agent_workflow("both", model=proposes(OPEN_TICKET, REFUND), tools=TOOLS, approve=LEAD, within="4h")


def prepare(trace: CrashHook, ask: dict[str, Any]) -> None:
    """Remove a safeguard in a process under test, if the test names one."""
    if ask.get("mutant"):
        mutants.remove(ask["mutant"])
