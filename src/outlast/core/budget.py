"""Budgets: rows of reported usage, and the decision if a run or its tenant has used up a limit."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, NamedTuple

from outlast.core.attention import overlaid, raise_command
from outlast.core.codec import digest
from outlast.core.commit import Commit, Instant, Put, append_to_inbox
from outlast.core.durations import DAY, HOUR, MINUTE, SECOND
from outlast.core.keys import check_given_reason
from outlast.core.limits import MODELS_PER_ATTEMPT_MAX, PORTION_ROWS_MAX, TEXT_CHARS_MAX
from outlast.core.machine import Choice, Reason
from outlast.core.mailbox import check_unfinished
from outlast.core.rows.run_columns import ATTENTION, RAISE, Attention, RaiseRequest, WaitingFor
from outlast.core.rows.run_rows import Message, Run
from outlast.core.run_transition import LogEntry, fence
from outlast.core.usage import NOTHING_USED, Amounts, CallUsage, Limits, Used, day_of, money_text
from outlast.errors import Conflict, InvalidInput, LimitExceeded

NAMES: Final = ("tokens", "money", "calls", "minutes", "children")
SHOWN: Final = {**{name: name for name in NAMES}, "calls": "reported calls", "children": "child runs"}
"""Names of amounts for people. `calls` counts the calls that report usage, not all calls."""
TREE: Final = "budget"
"""Kind of the wait for the budget of a root, and of the message that asks the root about it."""
TREE_LOOK: Final = HOUR
"""After this time, a run that waits for the budget of its root checks it again. The root may have ended by then."""
RAISED: Final = Choice.RAISE.value
"""Kind of the message with which a person raises the budget of a run."""


# --- rows of usage ------------------------------------------------------------------------------
def usage_rows(
    run: Run, ident: tuple[int, str], activity: str, reports: Iterable[Used], *, after: int, now: Instant
) -> tuple[CallUsage, ...]:
    """Return a row for each attempt and model that reported usage. `after`: number of the claim's last row."""
    sums: dict[tuple[int, str], Used] = {}
    name = (0, "")
    for used in reports:
        if (used.attempt, used.model) in sums or len(sums) < MODELS_PER_ATTEMPT_MAX:
            name = (used.attempt, used.model)
        before = sums.get(name)
        sums[name] = before.plus(used) if before else used
    visit, key = ident
    return tuple(
        CallUsage(
            tenant=run.tenant,
            run=run.run,
            epoch=run.epoch,
            n=n,
            visit=visit,
            key=key,
            attempt=used.attempt,
            activity=activity,
            day=day_of(now.business),
            model=used.model,
            tokens=used.tokens,
            input_tokens=used.input_tokens,
            output_tokens=used.output_tokens,
            money=used.money,
            calls=used.calls,
            at=now.business,
            unpriced=used.unpriced,
            root=run.root,
            prompt=used.asked.prompt,
            tools=used.asked.tools,
            ms=used.asked.ms,
            outcome=used.asked.outcome,
        )
        for n, used in enumerate(sums.values(), after + 1)
    )


def notes_of(ident: tuple[int, str], reports: Iterable[Used]) -> tuple[LogEntry, ...]:
    """Return the entry of the history about reports of a call that are not counted: at most one."""
    notes = [used.note for used in reports if used.note]
    if not notes:
        return ()
    key = f"usage/{digest(ident[1])[:16]}"
    return (LogEntry(key, notes[0][:TEXT_CHARS_MAX], {"key": ident[1], "reports": len(notes)}),)


def record_usage(run: Run, puts: tuple[Put, ...]) -> Commit:
    """Store the usage of an attempt that leaves no other row."""
    (row, *_) = (put.row for put in puts)
    assert isinstance(row, CallUsage)
    return Commit(puts, fence(run), label=f"{run.run} used {row.key}")


# --- the decision ---------------------------------------------------------------------------------
class Spent(NamedTuple):
    """A limit that is used up, with what was used of it and what was allowed, raises included."""

    name: str
    used: int
    limit: int

    @property
    def text(self) -> str:
        """Return used and allowed amounts for people."""
        return f"{amount_text(self.name, self.used)} of {amount_text(self.name, self.limit)} {SHOWN[self.name]}"


class Spending(NamedTuple):
    """Rows on which the decision depends, besides the run and its messages."""

    limits: Limits
    """Of the run's workflow."""
    used: Amounts
    """Sum of the run's usage rows."""
    day_limits: Limits
    """Of the tenant for each day."""
    day_used: Amounts
    """Sum of the tenant's usage rows of this day."""


def exhausted(
    spending: Spending, run: Run, messages: Iterable[Message], *, seen: int, now: Instant
) -> Attention | None:
    """Return the reason to park the run before it makes another call; None if its budgets leave something.

    A raise adds to the limits of the run, and on its day to the limits of the tenant for this run. `seen`: last message
    of `messages`; only a later raise answers.
    """
    raises = raises_of(messages)
    used = spending.used._replace(ms=now.business - run.created_at)
    over = spent(used, spending.limits, total_of(raises))
    if over:
        detail = f"the run has used {_listed(over)}"
        return Attention(Reason.BUDGET_EXHAUSTED, now.business, detail, trigger=_names(over), seen=seen)
    today = day_of(now.business)
    over = spent(spending.day_used, spending.day_limits, total_of(r for r in raises if day_of(r.at) == today))
    if not over:
        return None
    until = (today + 1) * DAY
    detail = (
        f"tenant {run.tenant} has used {_listed(over)} of {date_text(today)}; it continues on {date_text(today + 1)}"
    )
    return Attention(Reason.BUDGET_EXHAUSTED, now.business, detail, trigger=_names(over), seen=seen, until=until)


def used_up(over: Spent, *, seen: int, now: Instant) -> Attention:
    """Return the reason to park a run that may start no more children."""
    detail = f"the run has used {over.text}"
    return Attention(Reason.BUDGET_EXHAUSTED, now.business, detail, trigger=over.name, seen=seen)


def refused_start(run: Run, over: Spent, of: str) -> LimitExceeded:
    """Return the error for the start of a child that a model has proposed. `of`: the run whose budget it is."""
    where = "" if of == run.run else f" below its root {of}"
    why = f"{over.text} that the budget allows{where} were started"
    return LimitExceeded(f"run {run.run} cannot start a child", why, raise_command(of, over.name))


def spent(used: Amounts, limits: Limits, more: Amounts) -> tuple[Spent, ...]:
    """Return the limits that leave nothing. `more`: sum of raises."""
    found = zip(NAMES, used[:-1], raised(limits, more), strict=True)
    return tuple(Spent(name, u, limit) for name, u, limit in found if limit is not None and u >= limit)


class Share(NamedTuple):
    """Used amount of one limit."""

    name: str
    used: int
    limit: int

    @property
    def percent(self) -> float:
        """Return the used part with one decimal, rounded down: 100 only if nothing is left. It may be more than 100."""
        return self.used * 1_000 // self.limit / 10 if self.limit else 100.0


def shares(used: Amounts, limits: Limits) -> tuple[Share, ...]:
    """Return the used amount of each limit, the limit with the least left first."""
    found = zip(NAMES, used[:-1], limits, strict=True)
    each = [Share(name, amount, limit) for name, amount, limit in found if limit is not None]
    return tuple(sorted(each, key=lambda share: -share.percent))


def raised(limits: Limits, more: Amounts) -> Limits:
    """Return the limits after raises."""
    return Limits(*(None if limit is None else limit + m for limit, m in zip(limits, more[:-1], strict=True)))


# --- the budget of a tree -------------------------------------------------------------------------
class TreeSpending(NamedTuple):
    """Rows on which the decision about the budget of a tree depends, as the root has them."""

    used: Amounts
    """Sum of the usage rows of the tree."""
    began: int
    """Business time of the root's start."""
    raises: tuple["Raise", ...] = ()
    """Raises among the messages of the root."""


def spent_of_tree(limits: Limits, spending: TreeSpending, now: Instant) -> tuple[Spent, ...]:
    """Return the limits of a root's budget that its tree has used up."""
    return spent(spending.used._replace(ms=now.business - spending.began), limits, total_of(spending.raises))


def waits_for_tree(run: Run) -> str:
    """Return the root whose budget a run waits for; '' if it waits for none."""
    return next((wait.who for wait in run.waiting_for if wait.kind == TREE), "")


def limits_waited_for(run: Run) -> Limits:
    """Return the limits of its root that a run waits for: those of calls, and that of starts if it waits for it."""
    names = {name for wait in run.waiting_for if wait.kind == TREE for name in wait.what.split()}
    limits = run.descent.budget
    if names == {"children"}:
        return limits.of_starts
    return limits if "children" in names else limits.of_calls


def waiting_for_tree(run: Run, over: Iterable[Spent], now: Instant) -> WaitingFor:
    """Return what operators see of a run that waits for the budget of its root."""
    what, until = _names(over), now.business + TREE_LOOK
    return WaitingFor(TREE, what, run.root, now.business, until, "checks the budget again")


def ask_root(commit: Commit, run: Run, waiting: Iterable[WaitingFor]) -> Commit:
    """Return the commit that parks a run, with a message to the root if the run waits for its budget.

    Refused if the root has ended, because then its budget limits no run.
    """
    if all(wait.kind != TREE for wait in waiting):
        return commit
    ask = append_to_inbox(run.tenant, run.root, TREE, run.run, f"run {run.run}")
    return commit._replace(writes=(*commit.writes, ask))


def asked_by(messages: Iterable[Message]) -> list[str]:
    """Return the ids of the runs that have asked a root about its budget, each once."""
    return list(dict.fromkeys(message.name for message in messages if message.kind == TREE))


def flagged_for_tree(run: Run, over: Iterable[Spent], waiting: int, *, seen: int, now: Instant) -> Attention:
    """Return the reason to ask a person about the budget of a tree, while its root goes on.

    `waiting`: number of runs below the root that wait for it.
    """
    below = f"{waiting} run{'' if waiting == 1 else 's'} below it wait{'s' if waiting == 1 else ''}"
    detail = f"its tree has used {_listed(over)}, and {below}"
    return Attention(Reason.BUDGET_EXHAUSTED, now.business, detail, trigger=_names(over), seen=seen, goes_on=True)


def after_answers(root: Run, reason: Attention | None, seen: int) -> tuple[Run, LogEntry | None]:
    """Return the row of a root after it has answered the runs below it, and the entry of its history if it changed.

    `reason`: why a person must raise the budget; None if no run waits for it. The holder's next transition writes both.
    """
    flags = [a for a in root.attention if a.reason is Reason.BUDGET_EXHAUSTED]
    if reason is not None and not flags:
        return overlaid(root, reason, f"budget/{seen}")
    over = [a for a in flags if a.goes_on]
    if reason is not None or not over:
        return root, None
    left = ATTENTION.encode(a for a in root.attention if a not in over)
    return root._replace(attention_text=left), LogEntry(f"budget/{seen}", "no run waits for the budget any more", {})


def look_again_below(root: Run, waiting: Iterable[Run]) -> tuple[Commit, ...]:
    """Return the commits of a root's holder that let these runs check the budget of the tree again."""
    writes = [append_to_inbox(run.tenant, run.run, TREE, root.run, f"run {root.run}") for run in waiting]
    label = f"{root.run} budget of its tree"
    starts = range(0, len(writes), PORTION_ROWS_MAX)
    return tuple(Commit(tuple(writes[i : i + PORTION_ROWS_MAX]), fence(root), label=label) for i in starts)


class Raise(NamedTuple):
    """Raise of a run's budget by a person."""

    amounts: Amounts
    by: str
    reason: str
    at: int


def raises_of(messages: Iterable[Message]) -> tuple[Raise, ...]:
    """Return the raises among the messages of a run."""
    found = ((m, RAISE.decode(m.payload.decode(errors="replace"))) for m in messages if m.kind == RAISED)
    return tuple(Raise(answer.amounts, message.actor, answer.reason, message.at) for message, answer in found)


def total_of(raises: Iterable[Raise]) -> Amounts:
    """Return the sum of raises."""
    found = NOTHING_USED
    for each in raises:
        found = found.plus(each.amounts)
    return found


# --- commands of people ---------------------------------------------------------------------------
def person_raises(run: Run, amounts: Amounts, *, actor: str, reason: str) -> Commit:
    """Add amounts to the budget of a run. A run that waits for them goes on. Raises Conflict, InvalidInput."""
    check_unfinished(run)
    if root := waits_for_tree(run):
        what = f"run {run.run} waits for the budget of run {root}"
        why = f"it is below {root}, whose budget covers the whole tree and is used up"
        names = next(wait.what for wait in run.waiting_for if wait.kind == TREE)
        raise Conflict(what, why, raise_command(root, names))
    if amounts == NOTHING_USED:
        raise InvalidInput("a raise without an amount", "", "give tokens, money, calls, minutes or children")
    check_given_reason("a raise", "it appears in the run's history", reason)
    return _raise(run, amounts, actor, reason)


def look_again(run: Run, *, actor: str, reason: str) -> Commit:
    """Let a run that waits for a budget check it again, because the budget of its tenant has changed."""
    return _raise(run, NOTHING_USED, actor, reason)


def _raise(run: Run, amounts: Amounts, actor: str, reason: str) -> Commit:
    payload = RAISE.encode(RaiseRequest(amounts, reason)).encode()
    message = append_to_inbox(run.tenant, run.run, RAISED, RAISED, actor, payload)
    return Commit((message,), label=f"{run.run} post {RAISED}")


def waits_for_budget(run: Run) -> bool:
    """True if a person is asked about a budget of the run."""
    return any(a.reason is Reason.BUDGET_EXHAUSTED for a in run.attention)


# --- texts ------------------------------------------------------------------------------------------
def amount_text(name: str, amount: int) -> str:
    """Return an amount for people: 50,000, or 1.5 for money and minutes."""
    if name == "money":
        return money_text(amount)
    return f"{amount / MINUTE:.1f}" if name == "minutes" else f"{amount:,}"


def budget_text(used: Amounts, allowed: Limits) -> str:
    """Return usage and limits for people: «50,120 of 60,000 tokens, 3 reported calls»; '' without usage and limits."""
    shown = [
        f"{amount_text(name, u)}{'' if limit is None else f' of {amount_text(name, limit)}'} {SHOWN[name]}"
        for name, u, limit in zip(NAMES, used[:-1], allowed, strict=True)
        if limit is not None or (u and name not in ("minutes", "children"))
    ]
    return ", ".join([*shown, *unpriced_text(used.unpriced)])


def unpriced_text(requests: int) -> list[str]:
    """Return «3 requests without a price»; no text if each request has one."""
    return [f"{requests:,} request{'' if requests == 1 else 's'} without a price"] if requests else []


def date_text(day: int) -> str:
    """Return a business day as an ISO date."""
    return datetime.fromtimestamp(day * DAY / SECOND, UTC).date().isoformat()


def _names(over: Iterable[Spent]) -> str:
    return " ".join(each.name for each in over)


def _listed(over: Iterable[Spent]) -> str:
    return ", ".join(each.text for each in over)
