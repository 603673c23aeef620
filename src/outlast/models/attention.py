"""Items that require a person, and the possible answers."""

from typing import Literal, NamedTuple

from pydantic import Field

from outlast.core.limits import KEY_BYTES_MAX, NAME_CHARS_MAX
from outlast.core.machine import Choice
from outlast.errors import OutlastError, Uncertain
from outlast.models import Count, Instant, Model, PagedList, RequestBody
from outlast.models.effects import LateEvidence


class AttentionChoice(Model):
    """Possible answer. It is refused for another `accepted_in_ms` milliseconds."""

    choice: str
    consequence: str = Field(description="Consequence of this answer.")
    command: str
    from_real: Instant | None
    accepted_in_ms: int


class AttentionItem(Model):
    """Item that requires attention. `run` is '' if it concerns no single run."""

    run: str
    reason: str
    detail: str
    since: Instant
    until: Instant | None
    if_ignored: str
    choices: list[AttentionChoice]


class RunAttention(AttentionItem):
    """Reason why one run requires attention."""

    workflow: str
    forked_from: str = Field(description="Run that it was forked from. '' if it is no fork.")
    parent: str = Field(description="Run that started it. '' if no run did.")
    holds_up: Count = Field(description="Number of runs of its tree that wait for it, or for its budget.")
    node: str
    visit: int
    version: int = Field(description="Version of the run for If-Match.")
    trigger: str
    key: str
    name: str = Field(description="Activity or type of the exception. Empty: the reason concerns none.")
    cause: str = Field(description="Cause that it shares with alike reasons of other runs.")
    missing: list[str] = Field(
        description="For node_diverged: recorded calls that were not asked for, as activity?key."
    )
    evidence: list[LateEvidence]
    assigned_to: str = Field(description="Person who takes care of it. Empty: not assigned.")
    assigned_by: str
    assigned_at: Instant | None
    assigned_note: str


class ProviderAttention(AttentionItem):
    """Provider with an open circuit breaker, and the number of runs that wait for it."""

    provider: str
    runs: int


class WebhookAttention(AttentionItem):
    """Webhook with undeliverable events. If `more` is true, `events` is a lower bound."""

    webhook: str
    url: str
    events: int
    more: bool


AnyAttention = RunAttention | ProviderAttention | WebhookAttention


class AttentionList(PagedList):
    """Page of items that require attention."""

    attention: list[AnyAttention]


Verb = Literal["happened", "did_not_happen", "give_up"]


class AnswerFor(RequestBody):
    """Run that gets an answer given to many."""

    run: str = Field(min_length=1, max_length=NAME_CHARS_MAX)
    key: str = Field(
        default="", max_length=KEY_BYTES_MAX, description="Key of the effect, if the run has several uncertain."
    )
    version: int = Field(default=0, ge=0, le=2**53, description="Version that the caller was shown. 0: not checked.")


class AnswerOutcome(Model):
    """Outcome of an answer for one run: accepted, or refused with the error."""

    run: str
    key: str = Field(description="Key of the effect, if the answer concerns one.")
    answered: bool
    error: str = Field(description="The error on one line. '' if it was accepted.")
    code: str = Field(description="Its stable code.", examples=["OUT-402"])
    refusal: str = Field(description="Its cause, for example `moved`: the run has changed since it was shown.")


class AnswerList(Model):
    """Outcomes of one answer to many runs, in the order of the request."""

    answers: list[AnswerOutcome]


class AnsweredRuns(NamedTuple):
    """Result of moving runs: requested runs, failed runs with the error, and the next cursor."""

    done: tuple[str, ...]
    failed: tuple[tuple[str, str], ...]
    cursor: str

    @property
    def next_cursor(self) -> str:
        """Return the cursor under the name that other pages have."""
        return self.cursor


def verb_of(choice: Choice) -> Verb:
    """Return the ledger's verb for a choice about an uncertain effect."""
    if choice is Choice.HAPPENED:
        return "happened"
    return "did_not_happen" if choice is Choice.DID_NOT_HAPPEN else "give_up"


def why_not(error: OutlastError) -> str:
    """Return an error on one line, as a failed run has it."""
    text = f"{error.what}: {error.why}" if error.why else error.what
    return f"it may have been done; {text}" if isinstance(error, Uncertain) else text
