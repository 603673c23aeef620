"""`outlast demo --sample desk`: an incident whose worker is killed, with approvals, a freeze, and a lost answer."""

import json
from functools import partial
from typing import Final

from outlast.core.rows.effect_rows import Approval

from ..negotiation.demo.office_demo import OfficeDemo, Plot
from . import incident, office
from .workflow import desk

FROZEN: Final = "search"


def freeze(url: str, approval: Approval) -> str:
    """Begin a deploy freeze before the restart of one service is decided."""
    if FROZEN not in json.dumps([plan.arguments() for plan in approval.plans]):
        return ""
    office.freeze(url, FROZEN)
    return f"a deploy freeze begins for {FROZEN}"


PLOT: Final = Plot(
    about="an agent works incident INC-42; policy, people and the ledger hold it",
    example=__name__.removesuffix(".demo"),  # another name in the wheel than in a checkout
    workflow=desk,
    given={"objective": incident.OBJECTIVE},
    address=office.ENV,
    model=office.MODEL,
    facts=("/calendar",),
    killed_in="open_ticket",
    at_the_kill="the ticket is open, its answer was not recorded",
    after_the_kill="and asks the ticket system for that ticket",
    ends="COMPLETED",
    before_decision=freeze,
)
SampleDemo = partial(OfficeDemo, PLOT)
