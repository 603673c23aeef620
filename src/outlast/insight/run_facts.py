"""Rows that explain one run, read at one moment, and the clauses that several explanations share."""

from collections.abc import Iterable, Sequence
from types import MappingProxyType
from typing import NamedTuple

from outlast.core.budget import raised, raises_of, total_of
from outlast.core.business_days import Due
from outlast.core.children import place_of
from outlast.core.commit import Instant
from outlast.core.durations import CLOCK_STEP, DEATHS_ALONE_MAX, span
from outlast.core.events import FAR_FROM, FAR_TEXT, EventType, iso
from outlast.core.forks import ForkTerms
from outlast.core.lanes import OWN, scheduler_of, worker_command
from outlast.core.living_forks import ForkNote
from outlast.core.machine import Choice
from outlast.core.maps import key_of_map, waited_map
from outlast.core.quarantine import ALONE, group_of
from outlast.core.route import ANSWERED_BY_CONTINUE
from outlast.core.rows.effect_rows import Approval, Effect, Evidence, Wait
from outlast.core.rows.limit_rows import Pause, Slot
from outlast.core.rows.run_rows import MESSAGE, Event, Floor, Message, Run, is_over
from outlast.core.rows.store_rows import Worker
from outlast.core.slices import NEW_HISTORY
from outlast.core.usage import NO_LIMITS, NOTHING_USED, Amounts, Limits
from outlast.insight.answer_schemas import AnswerSchemas
from outlast.insight.labels import blocked_ms, engine_label, is_held
from outlast.insight.row_models import pending_request
from outlast.insight.run_history import RunHistory
from outlast.models.runs import PendingRequest, RunMap
from outlast.store.port import Store


class RunFacts(NamedTuple):
    """Rows of a run. `events`: at least the newest, in order; `workers`: all of the store, closed ones included."""

    run: Run
    now: Instant
    events: Sequence[Event] = ()
    effects: Sequence[Effect] = ()
    waits: Sequence[Wait] = ()
    approvals: Sequence[Approval] = ()
    messages: Sequence[Message] = ()
    workers: Sequence[Worker] = ()
    pauses: Sequence[Pause] = ()
    slots: Sequence[Slot] = ()
    evidence: Sequence[Evidence] = ()
    clock_step: int = 0  # wall clock of this machine minus business time
    results: int = 0  # rows that the run has emitted
    used: Sequence[Effect] = ()  # effects of other runs that this run uses or waits for
    spent: Amounts = NOTHING_USED  # sum of its usage rows
    below_spent: Amounts | None = None  # sum of the usage rows of all runs below, if it is a root with children
    limits: Limits = NO_LIMITS  # of its workflow's budget
    answer_schemas: AnswerSchemas = MappingProxyType({})  # of the activities of its version
    ledger_purged: bool = False  # its own effects are gone
    ceiling: Due | None = None  # of the run, if it is counted in business days
    fork: ForkTerms | None = None  # terms of its start, if it is a fork
    fork_notes: Sequence[ForkNote] = ()  # forks that were started before it had ended
    detached: bool = False  # an operator has let its parent go on without it
    floor: Floor | None = None  # of its history, if that is a window
    maps: Sequence[RunMap] = ()  # the latest ones
    below: "BlockingRun | None" = None  # the run of its tree that holds it up, if it waits for children

    @property
    def history_from(self) -> int:
        """Return the first visit of which the run has all rows; 1 if nothing was purged."""
        return 1 if self.floor is None else self.floor.visit

    @property
    def history(self) -> RunHistory:
        """Return the history of the run, of which the newest events suffice for its last claim and its end."""
        return RunHistory(self.run, self.events)

    @property
    def amounts(self) -> Amounts:
        """Return the usage of the run, with its business time and the children that it has started."""
        started = sum(each.attempts for each in self.effects if each.child_text and not each.undoes)
        return self.spent._replace(ms=(self.run.ended_at or self.now.business) - self.run.created_at, children=started)

    @property
    def tree_amounts(self) -> Amounts | None:
        """Return the usage of the run and all runs below it; None if it is no root with children."""
        return self.amounts.plus(self.below_spent) if self.below_spent is not None else None

    @property
    def allowed(self) -> Limits:
        """Return the limits of the run, raises included."""
        return raised(self.limits, total_of(raises_of(self.messages)))

    def ago(self, at: int) -> str:
        """Return the time since a business instant."""
        return span(max(0, self.now.business - at))

    def left(self, until: int) -> str:
        """Return the time until a business instant."""
        return span(max(0, until - self.now.business))

    def ahead(self, until: int) -> str:
        """Return when a business instant comes: `in 5m`, or `after 2126`."""
        return f"in {self.left(until)}" if until < FAR_FROM else FAR_TEXT

    def lasts(self, until: int) -> str:
        """Return how long a wait lasts until a business instant: `for another 5m`, or `until after 2126`."""
        return f"for another {self.left(until)}" if until < FAR_FROM else f"until {FAR_TEXT}"

    def left_real(self, until: int) -> str:
        """Return the time until a real instant."""
        return span(max(0, until - self.now.real))

    def ago_real(self, at: int) -> str:
        """Return the time since a real instant."""
        return span(max(0, self.now.real - at))

    def takers(self) -> list[Worker]:
        """Return live workers that serve the run's lane, without its owner; those not blocked come first."""
        run, real = self.run, self.now.real
        found = [worker for worker in self.workers if worker.id != run.owner and worker.serves(run.lane, real)]
        return sorted(found, key=lambda worker: blocked_ms(worker, self.now))

    def is_due(self) -> bool:
        """Return True if a worker may take the run now."""
        return self.run.due_at is not None and self.run.due_at <= self.now.real

    def instant(self, at: int) -> str:
        """Format an instant relatively and exactly."""
        if at >= FAR_FROM:
            return FAR_TEXT
        text = f"{self.ago(at)} ago" if at <= self.now.business else self.ahead(at)
        return f"{text}, {iso(at)}"


class BlockingRun(NamedTuple):
    """The run of a tree that another one waits for in the end. `path`: from the child down to it."""

    path: tuple[str, ...]
    facts: RunFacts


def awaited_children(run: Run) -> list[str]:
    """Return the ids of the children that a run waits for, without those of maps."""
    return [wait.who for wait in run.waiting_for if wait.kind == "child" and not waited_map(wait)]


def awaited_maps(run: Run) -> list[str]:
    """Return the names of the maps that a run waits for."""
    return [name for wait in run.waiting_for if (name := waited_map(wait))]


def waits_for(parent: Run, child: Run) -> bool:
    """Return True if a run waits for its child, or for the map that has started it."""
    visit, key = place_of(child)
    keys = [key_of_map(name) for name in awaited_maps(parent)]
    of_map = visit == parent.visit and any(key.startswith((f"{each}/", f"{each}.")) for each in keys)
    return of_map or child.run in awaited_children(parent)


def blocking_path(paths: Sequence[tuple[Run, ...]]) -> tuple[Run, ...]:
    """Return the path to the run that an operator reads about first; () without paths.

    It is the first one that needs a person, else the one whose wait ends first, else the one that waits longest.
    """
    return min(paths, key=lambda path: _urgency(path[-1]), default=())


def _urgency(run: Run) -> tuple[int, int, int]:
    person = bool(run.attention) or any(wait.kind == "approval" for wait in run.waiting_for)
    until = min((wait.until for wait in run.waiting_for if wait.until), default=FAR_FROM)
    return 0 if person else 1, until, run.entered_at


class ExplanationPart(NamedTuple):
    """Part of an explanation; the run is the subject of `clause`."""

    clause: str
    next: str
    unblock: tuple[str, ...] = ()
    since: int = 0  # business; 0 = unknown or irrelevant
    until: int = 0
    facts: tuple[tuple[str, str], ...] = ()


def in_order(run: str, effects: Iterable[Effect]) -> tuple[Effect, ...]:
    """Return a run's own effects in the order of their intents, then the shared effects of other runs."""
    return tuple(sorted(effects, key=lambda e: (e.by_run not in ("", run), e.ordinal)))


def clock_step_text(step: int) -> str:
    """Describe a step of the wall clock; '' if it is below CLOCK_STEP."""
    if abs(step) < CLOCK_STEP:
        return ""
    if step > 0:
        return f"it was set {span(step)} forward; business time follows within two heartbeats of a worker"
    return f"it is {span(-step)} behind the store's time, which never runs backwards; timers and leases go on"


def taker_text(rows: RunFacts) -> str:
    """Name the live worker that takes the run, in a clause."""
    takers = rows.takers()
    if not takers:
        return f"no live worker serves {rows.run.lane}"
    if rows.run.scheduler != OWN:
        working = [worker for worker in takers if not engine_label(worker, rows.now)]
        return f"{rows.run.scheduler} chooses a worker for it" if working else _trouble(rows, takers[0])
    blocked = blocked_ms(takers[0], rows.now)
    room = capacity_text(rows.run)
    return f"{takers[0].id} takes it{room}" + (
        f"{' and' if room else ''} when {blocked_text(blocked)}" if blocked else ""
    )


def _trouble(rows: RunFacts, worker: Worker) -> str:
    """Describe why no bridge lets the engine of a due run know of it."""
    scheduler = rows.run.scheduler
    if worker.health.away_since is not None:
        return f"{engine_label(worker, rows.now)}; {worker.id} calls it again and again"
    return f"{worker.id} serves it, but {engine_label(worker, rows.now)}; {scheduler}'s own timer finds the run"


def scheduler_text(rows: RunFacts) -> str:
    """Return the engine that schedules a run, with its trouble and its last move; '' if it was always this package."""
    run = rows.run
    data = next((e.data() for e in reversed(rows.events) if e.type == EventType.MOVED), {})
    before, lane = str(data.get("from", "")), str(data.get("lane", ""))
    moved = bool(lane) and scheduler_of(before) != scheduler_of(lane)
    if run.scheduler == OWN and not moved:
        return ""
    text = f"{run.scheduler}; a slice that {scheduler_of(before)} still asks for is refused" if moved else run.scheduler
    if at := next((e.at for e in reversed(rows.events) if _is_new_history(e)), 0):
        text = f"{text}; it began a new history of this run {rows.ago(at)} ago, without its earlier slices"
    if run.scheduler == OWN or is_over(run):
        return text
    takers = rows.takers()
    held = is_held(run) and not takers
    trouble = "" if held or not takers else engine_label(takers[0], rows.now)
    if not takers and not held:
        trouble = "no worker of it is alive"
    return f"{text}; {trouble}" if trouble else text


def _is_new_history(event: Event) -> bool:
    return event.type == EventType.LOGGED and str(event.data().get("key", "")).startswith(NEW_HISTORY)


def blocked_text(ms: int) -> str:
    """Describe how long the event loop of a worker has been blocked."""
    return f"its event loop runs again: a call has blocked it for {span(ms)}"


def capacity_text(run: Run) -> str:
    """Return the condition under which a worker takes a run of a limited group; '' for other runs (S-5)."""
    group = group_of(run)
    if not group:
        return ""
    return " once it holds no other run" if group == ALONE else f" once it holds at most {group - 1} others"


def group_text(run: Run) -> str:
    """Explain why a run is executed alone or in a limited group; '' for other runs (S-5)."""
    if not run.group_max:
        return ""
    how = "alone" if run.group_max == ALONE else f"with at most {run.group_max - 1} other runs"
    counted = f"; {run.crash_count} of {DEATHS_ALONE_MAX} crashes alone" if run.group_max == ALONE else ""
    return f"executed {how} until it advances, because workers that held it died{counted}"


def start_worker(rows: RunFacts) -> str:
    """Return the command that starts a worker for the run."""
    return worker_command(rows.run.scheduler)


def start_one(rows: RunFacts) -> tuple[str, ...]:
    """Return the command that starts a worker if no live worker serves the run."""
    return () if rows.takers() else (start_worker(rows),)


def first_line(text: str, width: int = 300) -> str:
    """Return the first line of a text that may be a traceback."""
    lines = text.splitlines()
    return lines[0][:width] if lines else ""


MESSAGES_PER_READ = 1_000


def may_have_pending_requests(run: Run, now: Instant) -> bool:
    """Return True if the run may have an unread message.

    A message makes a run due unless a worker holds it, so a waiting run has read every message (S-1).
    """
    return (
        run.inbox_seq > 0 and not is_over(run) and (is_held(run) or (run.due_at is not None and run.due_at <= now.real))
    )


async def messages_of(store: Store, run: Run) -> list[Message]:
    """Read every message of a run in order of arrival."""
    found: list[Message] = []
    after = 0
    while True:
        key = (run.tenant, run.run)
        page = await store.rows(MESSAGE, key, after=(*key, after), limit=MESSAGES_PER_READ, listed=True)
        found += page
        if len(page) < MESSAGES_PER_READ:
            return found
        after = found[-1].n


async def unread_requests(store: Store, run: Run, now: Instant) -> list[PendingRequest]:
    """Return the requests to a run that no worker may have read yet."""
    if not may_have_pending_requests(run, now):
        return []
    return pending_requests_of(run, await messages_of(store, run))


def pending_requests_of(run: Run, messages: Iterable[Message]) -> list[PendingRequest]:
    """Return the first cancel request, else the `continue` that answers the current attention."""
    if is_over(run):
        return []
    posted: Sequence[Message] = list(messages)
    found = [message for message in posted if message.kind == Choice.CANCEL]
    seen = [a.seen for a in run.attention if a.reason in ANSWERED_BY_CONTINUE]
    if not found and seen:
        found = [message for message in posted if message.kind == Choice.CONTINUE and message.n > max(seen)]
    return [pending_request(message) for message in found[:1]]
