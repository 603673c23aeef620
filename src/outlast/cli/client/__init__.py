"""What commands speak to: the same words whether the store is here or a service stands in front of it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from outlast.core.machine import Choice, DeliveryStatus, EffectStatus, Reason
from outlast.engine.pauses import What

T = TypeVar("T")
View = dict[str, Any]
"""Plain JSON data, of the shapes of runtime/views.py."""
Verb = Literal["happened", "did_not_happen", "give_up"]


class RunPage(NamedTuple):
    """Some runs, newest first."""

    views: Sequence[View]
    cursor: str
    due: frozenset[str]
    """Those that a worker may take now."""
    total: int | None
    """How many runs there are in all; None where that is not told."""
    asked: int
    """How many approvals wait."""


class ResultPage(NamedTuple):
    """Some results of a run, in the order of their first emission."""

    views: Sequence[View]
    total: int
    """Number of all result rows of the run."""
    further: int
    """The ordinal after which the next page begins; 0 at the end."""


class AnsweredPage(NamedTuple):
    """What one page of answers came to."""

    done: Sequence[str]
    failed: Sequence[tuple[str, str]]
    cursor: str


class WebhookClient(Protocol):
    """Who is told of what happens, asked for and changed in one caller's name."""

    async def all(self) -> list[View]:
        """Every webhook, with how it fares."""

    async def get(self, webhook: str) -> View:
        """One of them, with how it fares."""

    async def unsent(self) -> int:
        """For how long, in ms, events have waited with no dispatcher alive; 0 where they do not."""

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
        """A new one, with its secret."""

    async def test(self, webhook: str) -> View:
        """What came back of a signed event of no run."""

    async def deliveries(
        self, webhook: str, *, status: DeliveryStatus | None, cursor: str, limit: int
    ) -> tuple[list[View], str]:
        """One page of events that were not accepted at once, of one webhook or ('') all."""

    async def redeliver(self, delivery: str) -> int:
        """Send an event again, or every one that was given up for a webhook; answers how many."""

    async def rotate(self, webhook: str, *, keep: timedelta | None) -> View:
        """A new secret."""

    async def disable(self, webhook: str, *, reason: str) -> View:
        """It is told nothing."""

    async def enable(self, webhook: str) -> View:
        """It goes on where it was."""

    async def remove(self, webhook: str) -> View:
        """It ends for ever."""


class Client(Protocol):
    """Reads and acts for one caller of one tenant. Every method raises members of the tree of errors.py."""

    me: str
    """How a person is told of himself."""
    codes: bool
    """Can code that is loaded here check what is said? Else the other side does."""

    @property
    def webhooks(self) -> WebhookClient:
        """Who is told of what happens."""

    async def caller(self) -> str:
        """The name of who acts."""

    async def now_real(self) -> int:
        """Real milliseconds, by the store's clock where it is here."""

    async def until(self, look: Callable[[], Awaitable[T | None]], *, within_s: float) -> T | None:
        """What `acknowledge` answers once it is not None; None after so many seconds."""

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
        """One page."""

    async def run(self, run: str) -> View:
        """All there is to know of one: its way, counts, takeovers, progress; outcome and reason once it has ended."""

    async def glance(self, run: str) -> View:
        """A run as lists show it."""

    async def input(self, run: str) -> Any:
        """What it was started with."""

    async def results(self, run: str, *, after: int, limit: int) -> ResultPage:
        """One page of its results, from after an ordinal."""

    async def last_event(self, run: str) -> int:
        """The number of its last event."""

    async def effects(self, run: str) -> list[View]:
        """Its ledger."""

    async def ledger(
        self, *, status: EffectStatus | None, activity: str, run: str, since: timedelta | None, cursor: str, limit: int
    ) -> tuple[list[View], str]:
        """One page of the calls of all runs, newest first, and the cursor of the next."""

    async def effect(self, run: str, key: str, *, visit: int | None) -> View:
        """The uncertain one of this key, else the latest, or that of a visit."""

    async def events(self, run: str, *, after: int = 0) -> list[View]:
        """Its history after a number, whole."""

    def follow(self, run: str, *, after: int = 0) -> AsyncIterator[str]:
        """Each event after a number as its stored text, as they come; ends when the run has ended."""

    async def topology(self, view: View) -> View | None:
        """What the code of a run's version looks like; None where nobody knows."""

    async def explain(self, run: str) -> View:
        """Where it stands and why."""

    async def input_schema(self, workflow: str) -> View:
        """The JSON schema of what starts it; empty where no such workflow is known here."""

    async def start(self, workflow: str, given: bytes, *, run: str, key: str) -> tuple[View, bool]:
        """The run, and whether it is new."""

    async def signal(self, run: str, name: str, payload: View, *, signal_id: str) -> bool:
        """Leave a signal; False for one that was left before."""

    async def to_undo(self, run: str) -> list[str]:
        """What a cancel would undo, in order."""

    async def not_undone(self, run: str) -> list[str]:
        """What a cancel would leave as it is."""

    async def cancel(self, run: str, *, reason: str) -> None:
        """Ask that it end."""

    async def go_on(self, run: str, *, reason: str) -> None:
        """Answer its attention with «continue»."""

    async def extend(self, run: str, *, by: timedelta, reason: str) -> None:
        """Give it more time."""

    # --- approvals -----------------------------------------------------------------------------
    async def approvals(
        self, *, status: str, mine: bool, overdue: bool, cursor: str, limit: int
    ) -> tuple[list[View], str]:
        """One page, newest first, and the cursor of the next. `mine`: those that this caller may decide."""

    async def approvals_of(self, run: str) -> list[View]:
        """Every approval of one run."""

    async def approval(self, approval: str) -> View:
        """One, with `you_may_decide`."""

    async def approve(self, approval: str, *, reason: str, alternative: int, changes: Mapping[str, Any] | None) -> View:
        """Approve it, or vote for it."""

    async def reject(self, approval: str, *, reason: str, again: bool) -> View:
        """Reject it."""

    async def claim_approval(self, approval: str) -> View:
        """Say «I look at it»."""

    async def reassign(self, approval: str, who: str, *, reason: str) -> View:
        """Let others decide."""

    # --- attention, effects --------------------------------------------------------------------
    async def attention(
        self, *, reason: Reason | None, workflow: str, cursor: str, first: bool
    ) -> tuple[list[View], str]:
        """Items of one page of runs, what is no run's among them on the `first`."""

    async def attention_of(self, run: str) -> list[View]:
        """The items of one run."""

    async def reason_of(self, run: str, choice: Choice, reason: Reason | None, key: str) -> Reason:
        """Which reason is answered."""

    async def answer(
        self, run: str, choice: Choice, *, reason: Reason | None, key: str, text: str, by: timedelta | None
    ) -> None:
        """Answer one reason of a run's attention."""

    async def answer_all(
        self, reason: Reason, choice: Choice, *, text: str, workflow: str, by: timedelta | None, cursor: str
    ) -> AnsweredPage:
        """Answer every run flagged so in one page of runs, each once."""

    async def resolve_effect(
        self, run: str, key: str, verb: Verb, *, reason: str, external_id: str, response: Any
    ) -> None:
        """A person's answer on an uncertain effect."""

    # --- the store -----------------------------------------------------------------------------
    async def whoami(self) -> View:
        """Who asks."""

    async def workers(self) -> list[View]:
        """Those that serve, and those that have gone."""

    async def versions(self) -> list[View]:
        """The versions of workflows."""

    async def of_lane(self, workflow: str, lane: str) -> list[str]:
        """The unfinished runs of one version."""

    async def move_runs(
        self, workflow: str, version: int, runs: Sequence[str], *, node: str, reason: str
    ) -> tuple[Sequence[str], Sequence[tuple[str, str]]]:
        """Ask that each go on in a version: those that were asked, and those that could not be, with the reason."""

    async def pauses(self) -> list[View]:
        """What is held."""

    async def pause(self, what: What, name: str, *, reason: str) -> View:
        """Stop new calls of it."""

    async def resume(self, what: What, name: str) -> View:
        """Let it go on."""
