"""The client of commands: one protocol for a store and for a service. It answers views, never rows."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from outlast.core.machine import Choice, DeliveryStatus, EffectStatus, Reason
from outlast.engine.pauses import What

T = TypeVar("T")
View = dict[str, Any]
"""Plain JSON data, as runtime/views.py makes it."""
Verb = Literal["happened", "did_not_happen", "give_up"]


class RunPage(NamedTuple):
    """One page of runs, newest first."""

    views: Sequence[View]
    cursor: str
    due: frozenset[str]
    """Ids of the runs that a worker may take now."""
    total: int | None
    """Number of all runs; None if the service does not count them."""
    asked: int
    """Number of pending approvals."""


class ResultPage(NamedTuple):
    """One page of the results of a run, in the order of their first emission."""

    views: Sequence[View]
    total: int
    """Number of all result rows of the run."""
    further: int
    """The ordinal after which the next page begins; 0 at the end."""


class AnsweredPage(NamedTuple):
    """Result of answering one page of runs: those answered, and those refused with the reason."""

    done: Sequence[str]
    failed: Sequence[tuple[str, str]]
    cursor: str


class WebhookViews(Protocol):
    """Webhooks of one tenant, read and changed by one caller. Every method raises members of OutlastError."""

    async def all(self) -> list[View]:
        """Return every webhook with its delivery counts."""

    async def get(self, webhook: str) -> View:
        """Return one webhook with its delivery counts."""

    async def unsent(self) -> int:
        """Return for how long (ms) events have waited without a live dispatcher, or 0."""

    async def add(
        self,
        url: str,
        *,
        name: str,
        types: Sequence[str],
        workflows: Sequence[str],
        headers: Mapping[str, str],
        from_start: bool,
    ) -> View:
        """Create a webhook and return it with its secret."""

    async def test(self, webhook: str) -> View:
        """Send a signed test event and return the response."""

    async def deliveries(
        self, webhook: str, *, status: DeliveryStatus | None, cursor: str, limit: int
    ) -> tuple[list[View], str]:
        """Return a page of events not accepted at the first attempt and the next cursor. `webhook`: '' for all."""

    async def redeliver(self, delivery: str) -> int:
        """Send an event again, or all that were given up for a webhook. Return their number."""

    async def rotate(self, webhook: str, *, keep: timedelta | None) -> View:
        """Give it a new secret and return it. `keep`: how long the old secret signs too [24h]."""

    async def disable(self, webhook: str, *, reason: str) -> View:
        """Stop deliveries until it is enabled again."""

    async def enable(self, webhook: str) -> View:
        """Resume deliveries at the kept position."""

    async def remove(self, webhook: str) -> View:
        """Remove it with its secret. It cannot be restored."""


class OutlastClient(Protocol):
    """Reads and actions of one caller in one tenant. Every method raises members of OutlastError."""

    me: str
    """Name of the caller in sentences: "you" at a service."""
    codes: bool
    """True if inputs and responses are checked by code loaded in this process; False if the service checks them."""

    @property
    def webhooks(self) -> WebhookViews:
        """Client for the webhooks of the tenant."""

    async def caller(self) -> str:
        """Return the name of the caller."""

    async def now_real(self) -> int:
        """Return the real time in ms: the store's clock, or this machine's with a service."""

    async def until(self, look: Callable[[], Awaitable[T | None]], *, within_s: float) -> T | None:
        """Poll until `acknowledge` returns a value other than None; return None after `within_s` seconds."""

    # --- runs ----------------------------------------------------------------------------------
    async def runs(
        self,
        *,
        status: str,
        workflow: str,
        attention: bool,
        waiting_for: str,
        since: timedelta | None,
        cursor: str,
        limit: int,
    ) -> RunPage:
        """Return one page of runs. '', False and None do not filter."""

    async def run(self, run: str) -> View:
        """Return a run with visits, counts, takeovers and progress; with outcome and reason once it has ended."""

    async def run_summary(self, run: str) -> View:
        """Return a run with the fields that lists show."""

    async def input(self, run: str) -> Any:
        """Return the input the run was started with."""

    async def results(self, run: str, *, after: int, limit: int) -> ResultPage:
        """Return one page of results that follow the ordinal `after`."""

    async def last_event(self, run: str) -> int:
        """Return the number of the run's last event."""

    async def effects(self, run: str) -> list[View]:
        """Return every effect of the run's ledger."""

    async def ledger(
        self, *, status: EffectStatus | None, activity: str, run: str, since: timedelta | None, cursor: str, limit: int
    ) -> tuple[list[View], str]:
        """Return one page of the effects of all runs, newest first, and the next cursor."""

    async def effect(self, run: str, key: str, *, visit: int | None) -> View:
        """Return the effect of a key: the one of a visit if named, else the uncertain one, else the latest."""

    async def events(self, run: str, *, after: int = 0) -> list[View]:
        """Return all events that follow the number `after`."""

    def follow(self, run: str, *, after: int = 0) -> AsyncIterator[str]:
        """Yield the stored text of each event after a number, as it is written, until the run has ended."""

    async def topology(self, view: View) -> View | None:
        """Return the graph of the run's version, or None if no worker has recorded it."""

    async def explain(self, run: str) -> View:
        """Return the state of a run, its cause and the next step."""

    async def input_schema(self, workflow: str) -> View:
        """Return the JSON schema of a workflow's input; empty if the workflow is unknown here."""

    async def start(self, workflow: str, given: bytes, *, run: str, key: str) -> tuple[View, bool]:
        """Start a run. Return it, and True unless the key had started it before."""

    async def signal(self, run: str, name: str, payload: View, *, signal_id: str) -> bool:
        """Send a signal. Return False if one of this id was sent before."""

    async def to_undo(self, run: str) -> list[str]:
        """Return the effects that a cancel would undo, in order."""

    async def not_undone(self, run: str) -> list[str]:
        """Return the effects that a cancel would leave in place."""

    async def cancel(self, run: str, *, reason: str) -> None:
        """Request the cancellation of a run."""

    async def go_on(self, run: str, *, reason: str) -> None:
        """Answer the run's attention with `continue`."""

    async def extend(self, run: str, *, by: timedelta, reason: str) -> None:
        """Extend the ceiling of a run."""

    # --- approvals -----------------------------------------------------------------------------
    async def approvals(
        self, *, status: str, mine: bool, overdue: bool, cursor: str, limit: int
    ) -> tuple[list[View], str]:
        """Return a page of approvals, newest first, and the next cursor. `mine`: those the caller may decide."""

    async def approvals_of(self, run: str) -> list[View]:
        """Return every approval of a run."""

    async def approval(self, approval: str) -> View:
        """Return an approval with `you_may_decide`."""

    async def approve(self, approval: str, *, reason: str, alternative: int, changes: Mapping[str, Any] | None) -> View:
        """Approve a plan, or vote for it if several approvers are needed. Return the approval."""

    async def reject(self, approval: str, *, reason: str, again: bool) -> View:
        """Reject an approval. `again`: ask for another round. Return the approval."""

    async def claim_approval(self, approval: str) -> View:
        """Record that the caller works on an approval. Return the approval."""

    async def reassign(self, approval: str, who: str, *, reason: str) -> View:
        """Let the holders of another rule decide. Return the approval."""

    # --- attention, effects --------------------------------------------------------------------
    async def attention(
        self, *, reason: Reason | None, workflow: str, cursor: str, first: bool
    ) -> tuple[list[View], str]:
        """Return the items of one page of runs and the next cursor; items without a run are on the `first` page."""

    async def attention_of(self, run: str) -> list[View]:
        """Return the attention items of one run."""

    async def reason_of(self, run: str, choice: Choice, reason: Reason | None, key: str) -> Reason:
        """Return the reason that the choice would answer. Raises Conflict or InvalidInput if it is ambiguous."""

    async def answer(
        self, run: str, choice: Choice, *, reason: Reason | None, key: str, text: str, by: timedelta | None
    ) -> None:
        """Answer one attention reason of a run."""

    async def answer_all(
        self, reason: Reason, choice: Choice, *, text: str, workflow: str, by: timedelta | None, cursor: str
    ) -> AnsweredPage:
        """Answer every run with this reason on one page of runs, each once."""

    async def resolve_effect(
        self, run: str, key: str, verb: Verb, *, reason: str, external_id: str, response: Any
    ) -> None:
        """Record an operator's answer for an uncertain effect."""

    # --- the store -----------------------------------------------------------------------------
    async def whoami(self) -> View:
        """Return the caller with its tenant and roles."""

    async def workers(self) -> list[View]:
        """Return the workers, those that have stopped included."""

    async def versions(self) -> list[View]:
        """Return the known versions of every workflow."""

    async def of_lane(self, workflow: str, lane: str) -> list[str]:
        """Return the unfinished runs of one version."""

    async def move_runs(
        self, workflow: str, version: int, runs: Sequence[str], *, node: str, reason: str
    ) -> tuple[Sequence[str], Sequence[tuple[str, str]]]:
        """Request the move of runs to a version. Return those requested, and those refused with the reason."""

    async def pauses(self) -> list[View]:
        """Return the pauses in force."""

    async def pause(self, what: What, name: str, *, reason: str) -> View:
        """Pause an activity, a provider, a workflow or the tenant."""

    async def resume(self, what: What, name: str) -> View:
        """End a pause and return the number of runs that waited for it."""
