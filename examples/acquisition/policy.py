"""The policy of the acquisition, asked at four moments: before a model decides, after it, before a write, on resume.

| moment | rule |
|---|---|
| `offer`: which lookups may the model propose | `personal-data`: profiles of people only if the CRM allows it |
| `proposal`: what the model proposes | `foreign-site`: no internal addresses; `discount`: at most 20 % |
| `commit`: before a write | `opted-out`: nothing is sent to a contact who wants no messages |
| `resume`, `consume`: as `commit`, after a wait | the same, with the facts of that moment; an approval is needed |
"""

import os
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote

import httpx2

from outlast import Allow, Deny, NeedsApproval, role
from outlast.flow import PolicyRequest, Verdict

from .office import ENV, OPT_OUTS, SETTINGS
from .systems import trust

DISCOUNT_MAX: Final = 20
APPROVERS: Final = "sales"
REACHES_CONTACT: Final = frozenset({"book_meeting", "send_proposal", "send_outreach"})
ANSWER_S: Final = 2.0
"""Time limit of a fact, in seconds."""
Facts = Callable[[str], Any]


class FactUnknown(Exception):
    """A fact could not be read. Nothing is allowed, and the run goes to attention."""


def ask_office(path: str) -> Any:
    """Return a fact. It blocks the worker for a few milliseconds. Raises FactUnknown."""
    try:
        answer = httpx2.get(f"{os.environ[ENV]}{path}", timeout=ANSWER_S, trust_env=False, verify=trust())
        return answer.raise_for_status().json()
    except (httpx2.HTTPError, ValueError) as error:
        raise FactUnknown(f"{path}: {error}") from error


def policy(asked: PolicyRequest) -> Verdict:
    """Return the verdict of the rules with the facts of the office."""
    return judged(asked, ask_office)


policy.version = "acquisition-1"  # type: ignore[attr-defined] # because the rules are in several functions


def judged(asked: PolicyRequest, facts: Facts) -> Verdict:
    """Return the verdict of the rules. `facts` is called only where a rule needs one."""
    if asked.occasion == "offer":
        personal = asked.activity == "read_profile" and not facts(SETTINGS)["profiles"]
        return Deny("personal-data", "profiles of people are not read") if personal else Allow("offered")
    if asked.activity == "read_site" and str(asked.arguments["domain"]).endswith(".internal"):
        return Deny("foreign-site", f"{asked.arguments['domain']} is an internal address")
    if asked.activity == "send_proposal" and _number(asked, "discount_percent") > DISCOUNT_MAX:
        return Deny("discount", f"a discount is at most {DISCOUNT_MAX} %")
    if asked.occasion != "proposal" and asked.activity in REACHES_CONTACT:
        email = str(asked.arguments["email"])
        if facts(f"{OPT_OUTS}/{quote(email)}")["opted_out"]:
            return Deny("opted-out", f"{email} wants no messages")
    if asked.activity == "send_proposal":
        return NeedsApproval("proposal", by=role(APPROVERS), within="96h")
    return Allow("everyday")


def _number(asked: PolicyRequest, name: str) -> int:
    value = asked.arguments[name]
    assert isinstance(value, int)
    return value
