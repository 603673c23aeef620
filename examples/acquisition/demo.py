"""`outlast demo --sample acquisition`: an inquiry whose worker is killed, with an approval and lost answers."""

from functools import partial
from typing import Any, Final

from ..negotiation.demo.office_demo import OfficeDemo, Plot
from . import office
from .workflow import acquisition

INQUIRY: Final[dict[str, Any]] = {
    "company": "Bolt Works",
    "domain": "bolt.example",
    "contact": "Ada",
    "email": "ada@bolt.example",
    "country": "DE",
    "industry": "manufacturing",
    "employees": 900,
    "message": "We lose stock. Our orders are in wiki.internal.",
}
PLOT: Final = Plot(
    about="models decide and other nodes act: from an inquiry to a proposal and its follow-up",
    example=__name__.removesuffix(".demo"),  # another name in the wheel than in a checkout
    workflow=acquisition,
    given=INQUIRY,
    address=office.ENV,
    model=office.MODEL,
    facts=(office.OPT_OUTS,),
    killed_in="open_deal",
    at_the_kill="the deal is open, its answer was not recorded",
    after_the_kill="and asks the CRM for that deal",
    ends="IN_CONTACT",
)
SampleDemo = partial(OfficeDemo, PLOT)
