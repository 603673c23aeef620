"""Input, state and outcome of the acquisition of one customer."""

from typing import Literal, TypeAlias

from pydantic import BaseModel, Field

Grade: TypeAlias = Literal["", "A", "B", "C"]


class Inquiry(BaseModel):
    """A message from a company that may become a customer."""

    company: str
    domain: str
    contact: str
    email: str
    country: str
    industry: str
    employees: int = Field(gt=0)
    message: str


class Pain(BaseModel):
    """A problem of a company that we solve, in words of the model, and the words of the company that say so."""

    kind: Literal["stock", "orders", "delivery", "returns"]
    problem: str = Field(min_length=1, max_length=200)
    quote: str = Field(max_length=300)


class Qualification(BaseModel):
    """Grade and value of an inquiry. `quote`: the words that state a yearly budget; empty without one."""

    grade: Literal["A", "B", "C"]
    cents: int = Field(ge=0)
    quote: str = Field(default="", max_length=300)


class Proposal(BaseModel):
    """A draft of a proposal, as the model wrote it."""

    subject: str = Field(max_length=200)
    text: str = Field(max_length=4_000)
    cents: int = Field(gt=0)
    discount_percent: int = Field(ge=0, le=100)


class Reply(BaseModel):
    """Answer of the contact, which arrives as the signal `reply`."""

    text: str


class Acquisition(Inquiry):
    """State of a run.

    - `pains`, `unsupported`: problems that the model named, with and without a quote that was found.
    - `errors`: failures of steps without which the run goes on.
    """

    pains: list[Pain] = []
    unsupported: list[str] = []
    fit: int = 0
    why_fit: str = ""
    grade: Grade = ""
    cents: int = 0
    contact_id: str = ""
    deal_id: str = ""
    meeting_id: str = ""
    proposal: Proposal | None = None
    drafts: int = 0
    objection: str = ""
    approved_by: str = ""
    proposal_id: str = ""
    outreach: str = ""
    outreach_id: str = ""
    reply: str = ""
    task_id: str = ""
    errors: dict[str, str] = {}

    @property
    def drafted(self) -> Proposal:
        """The proposal. Raises AssertionError before it is drafted."""
        assert self.proposal is not None
        return self.proposal


class Result(BaseModel):
    """Outcome of a run."""

    grade: Grade
    deal_id: str
    meeting_id: str
    proposal_id: str
    approved_by: str
    outreach_id: str
    reply: str
    task_id: str
    errors: dict[str, str]


def result_of(state: Acquisition) -> Result:
    """Return the outcome from the last state."""
    return Result.model_validate(state.model_dump(include=set(Result.model_fields)))


def normalized(given: Acquisition) -> None:
    """Bring the fields of an inquiry into one form."""
    given.company = " ".join(given.company.split())
    given.email = given.email.strip().lower()
    given.domain = given.domain.strip().lower().removeprefix("www.")
    given.country = given.country.strip().upper()


def ideal_fit(given: Inquiry) -> tuple[int, str]:
    """Return how well a company fits the ideal customer, from 0 to 100, and why."""
    points = {
        "industry": 40 if given.industry in INDUSTRIES else 0,
        "size": 40 if EMPLOYEES_MIN <= given.employees <= EMPLOYEES_MAX else 10,
        "country": 20 if given.country in COUNTRIES else 0,
    }
    return sum(points.values()), ", ".join(f"{name} {n}" for name, n in points.items())


INDUSTRIES = frozenset({"logistics", "manufacturing", "retail"})
COUNTRIES = frozenset({"AT", "DE", "NL"})
EMPLOYEES_MIN, EMPLOYEES_MAX = 20, 2_000
FIT_MIN = 50
"""Fit below which an inquiry is not pursued."""
