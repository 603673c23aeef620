"""The policy of the desk: which calls wait for a person, and which facts refuse a call that was approved.

It is asked again whenever a call is about to be made, so it reads the facts at that time: is the ticket still open, is
the service frozen, does the approver still lead? A node cannot pass them, because its answers are fixed in its visit.
"""

import os
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import httpx2

from outlast import Allow, Deny, NeedsApproval, role
from outlast.flow import PolicyRequest, Verdict

from . import incident
from .office import ENV
from .tools import trust

REFUND_CENTS_MAX = 10_000
"""Largest refund that the desk may propose, which the runbook names."""
OURS = "@shop.example"
"""The domain of internal mail."""
ANSWER_S = 2.0
"""Time limit of a fact, in seconds."""
HIGH_IMPACT = frozenset({"restart_service", "refund"})
Facts = Callable[[str], Any]


class FactUnknown(Exception):
    """A fact could not be read. Nothing is allowed, and the run goes to attention."""


def ask_office(path: str) -> Any:
    """Return a fact. It blocks the worker for a few milliseconds; read facts from memory if they are far away.

    Raises FactUnknown.
    """
    try:
        answer = httpx2.get(f"{os.environ[ENV]}{path}", timeout=ANSWER_S, trust_env=False, verify=trust())
        return answer.raise_for_status().json()
    except (httpx2.HTTPError, ValueError) as error:
        raise FactUnknown(f"{path}: {error}") from error


def has_impact(asked: PolicyRequest) -> bool:
    """Return True for a restart, a refund, and a mail that leaves the house."""
    external = asked.activity == "send_mail" and not str(asked.arguments.get("to", "")).endswith(OURS)
    return asked.activity in HIGH_IMPACT or external


def policy(asked: PolicyRequest) -> Verdict:
    """Return the verdict of the rules with the facts of the office."""
    return judged(asked, ask_office)


policy.version = "desk-1"  # type: ignore[attr-defined] # because the rules are in several functions


def judged(asked: PolicyRequest, facts: Facts) -> Verdict:
    """Return the verdict of the rules. `facts` is called only for a call that has an impact."""
    if asked.occasion == "offer" or not has_impact(asked):
        return Allow("everyday")
    if denied := _refused_by_rule(asked) or _refused_by_fact(asked, facts):
        return denied
    return NeedsApproval("high-impact", by=role("lead"), summary=_summary(asked), within="96h")


def _refused_by_rule(asked: PolicyRequest) -> Deny | None:
    cents = asked.arguments.get("cents", 0)
    if asked.activity == "refund" and not (isinstance(cents, int) and 0 < cents <= REFUND_CENTS_MAX):
        return Deny("refund-limit", f"a refund is above 0 and at most {REFUND_CENTS_MAX / 100:.2f} EUR")
    return None


def _refused_by_fact(asked: PolicyRequest, facts: Facts) -> Deny | None:
    """Return the refusal if a fact refuses the call. The three facts may all change while the run waits."""
    if facts(f"/tickets/{incident.NUMBER}")["status"] == "closed":
        return Deny("ticket-closed", f"{incident.NUMBER} is closed, so nothing more is done for it")
    service = asked.arguments.get("service")
    if asked.activity == "restart_service" and service in facts("/calendar")["frozen"]:
        return Deny("deploy-freeze", f"{service} is frozen")
    for person in asked.approval.by if asked.approval else ():
        if not facts(f"/people/{quote(person)}")["leads"]:
            return Deny("right-revoked", f"{person} is no longer a lead")
    return None


def _summary(asked: PolicyRequest) -> str:
    told = ", ".join(
        f"{name} {value}" for name, value in sorted(asked.arguments.items(), key=lambda each: len(f"{each[1]}"))
    )
    return f"{asked.activity.replace('_', ' ').capitalize()} for {incident.NUMBER}: {told}"
