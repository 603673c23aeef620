"""The policy of the desk: which calls wait for a person, and which facts refuse a call that was approved.

It is asked again whenever a call is about to be made, so it reads the facts at that time: is the ticket still open, is
the service frozen, was the order charged twice, does the approver still lead? A node cannot pass them, because its
answers are fixed in its visit.
"""

import os
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import httpx2

from outlast import Allow, Deny, NeedsApproval, role
from outlast.flow import PolicyRequest, Verdict

from .office import ENV
from .tools import trust

REFUND_CENTS_MAX = 10_000
"""Largest refund that the desk may propose, which the runbook names."""
OURS = "@shop.example"
"""The domain of internal mail."""
ANSWER_S = 2.0
"""Time limit of a fact, in seconds."""
HIGH_IMPACT = frozenset({"restart_service", "refund"})
MAY_BE_UNKNOWN = ("/tickets/", "/orders/")
"""Facts about names that a model may have invented. Without such a thing, a call for it is refused."""
Facts = Callable[[str], Any]


class FactUnknown(Exception):
    """A fact could not be read. Nothing is allowed, and the run goes to attention."""


def ask_office(path: str) -> Any:
    """Return a fact; None for a ticket or an order that the office does not have. Raises FactUnknown.

    It blocks the worker for a few milliseconds; read facts from memory if they are far away.
    """
    try:
        answer = httpx2.get(f"{os.environ[ENV]}{path}", timeout=ANSWER_S, trust_env=False, verify=trust())
        if answer.status_code == httpx2.codes.NOT_FOUND and path.startswith(MAY_BE_UNKNOWN):
            return None
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


policy.version = "desk-2"  # type: ignore[attr-defined] # because the rules are in several functions


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
    """Return the refusal if a fact refuses the call. Each fact may change while the run waits."""
    number = str(asked.arguments.get("number", ""))
    ticket = facts(f"/tickets/{quote(number, safe='')}")
    if ticket is None:
        return Deny("no-such-ticket", f"there is no ticket {number}")
    if ticket["status"] == "closed":
        return Deny("ticket-closed", f"{number} is closed, so nothing more is done for it")
    if unfit := _refused_by_ticket(asked, ticket, facts):
        return unfit
    for person in asked.approval.by if asked.approval else ():
        if not facts(f"/people/{quote(person, safe='')}")["leads"]:
            return Deny("right-revoked", f"{person} is no longer a lead")
    return None


def _refused_by_ticket(asked: PolicyRequest, ticket: Any, facts: Facts) -> Deny | None:
    """Return the refusal of a call that the ticket and the systems give no reason for."""
    match asked.activity:
        case "restart_service":
            service = str(asked.arguments.get("service", ""))
            if service in facts("/calendar")["frozen"]:
                return Deny("deploy-freeze", f"{service} is frozen")
            if not facts(f"/health/{quote(service, safe='')}")["ailing"]:
                return Deny("healthy", f"{service} works, so it is not restarted")
        case "refund":
            order = str(asked.arguments.get("order", ""))
            if order not in re.findall(r"[\w-]+", ticket["text"]):
                return Deny("not-in-ticket", f"the ticket does not name {order}")
            found = facts(f"/orders/{quote(order, safe='')}")
            if found is None or asked.arguments.get("cents") not in found["charges"][1:]:
                return Deny("not-charged-twice", f"{order} has no second charge of this amount")
        case "send_mail":
            if asked.arguments.get("to") != ticket["customer"]:
                return Deny("not-the-customer", "a mail that leaves the shop goes to the customer of the ticket")
        case _:
            pass
    return None


def _summary(asked: PolicyRequest) -> str:
    others = ((name, value) for name, value in asked.arguments.items() if name != "number")
    told = ", ".join(f"{name} {value}" for name, value in sorted(others, key=lambda each: len(f"{each[1]}")))
    return f"{asked.activity.replace('_', ' ').capitalize()} for {asked.arguments.get('number')}: {told}"
