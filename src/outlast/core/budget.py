"""Budgets: rows of reported usage, and the decision if a run or its tenant has used up a limit."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, NamedTuple

from outlast.core.commit import Commit, Instant, Put
from outlast.core.durations import DAY, MINUTE, SECOND
from outlast.core.machine import Choice, Reason
from outlast.core.rows import Message, Run
from outlast.core.run_columns import RAISE, Attention
from outlast.core.run_transition import fence
from outlast.core.usage import NOTHING_USED, Amounts, CallUsage, Limits, Used, day_of, money_text

RAISED: Final = Choice.RAISE.value
"""Kind of the message with which a person raises the budget of a run."""


# --- rows of usage ------------------------------------------------------------------------------
def usage_rows(
    run: Run, ident: tuple[int, str], activity: str, reports: Iterable[Used], *, after: int, now: Instant
) -> tuple[CallUsage, ...]:
    """Return a row for each attempt and model that reported usage. `after`: number of the claim's last row."""
    sums: dict[tuple[int, str], Used] = {}
    for used in reports:
        name = (used.attempt, used.model)
        before = sums.get(name)
        sums[name] = Used(*name, *(a + b for a, b in zip(before[2:], used[2:], strict=True))) if before else used
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
        )
        for n, used in enumerate(sums.values(), after + 1)
    )


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
        return f"{amount_text(self.name, self.used)} of {amount_text(self.name, self.limit)} {self.name}"


class Spending(NamedTuple):
    """What the decision depends on besides the run and its messages."""

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
        return Attention(Reason.BUDGET_EXHAUSTED, now.business, detail, seen=seen)
    today = day_of(now.business)
    over = spent(spending.day_used, spending.day_limits, total_of(r for r in raises if day_of(r.at) == today))
    if not over:
        return None
    until = (today + 1) * DAY
    detail = (
        f"tenant {run.tenant} has used {_listed(over)} of {date_text(today)}; it continues on {date_text(today + 1)}"
    )
    return Attention(Reason.BUDGET_EXHAUSTED, now.business, detail, seen=seen, until=until)


def spent(used: Amounts, limits: Limits, raised: Amounts) -> tuple[Spent, ...]:
    """Return the limits that leave nothing."""
    names = ("tokens", "money", "calls", "minutes")
    found = zip(names, used, limits, raised, strict=True)
    return tuple(
        Spent(name, u, limit + more) for name, u, limit, more in found if limit is not None and u >= limit + more
    )


class Raise(NamedTuple):
    """Raise of a run's budget by a person."""

    amounts: Amounts
    by: str
    reason: str
    at: int


def raises_of(messages: Iterable[Message]) -> tuple[Raise, ...]:
    """Return the raises among the messages of a run."""
    found = ((m, RAISE.decode(m.payload.decode(errors="replace"))) for m in messages if m.kind == RAISED)
    return tuple(Raise(Amounts(*said.amounts), message.actor, said.reason, message.at) for message, said in found)


def total_of(raises: Iterable[Raise]) -> Amounts:
    """Return the sum of raises."""
    found = NOTHING_USED
    for each in raises:
        found = found.plus(each.amounts)
    return found


# --- texts ------------------------------------------------------------------------------------------
def amount_text(name: str, amount: int) -> str:
    """Return an amount for people: 50,000, or 1.5 for money and minutes."""
    if name == "money":
        return money_text(amount)
    return f"{amount / MINUTE:.1f}" if name == "minutes" else f"{amount:,}"


def date_text(day: int) -> str:
    """Return a business day as an ISO date."""
    return datetime.fromtimestamp(day * DAY / SECOND, UTC).date().isoformat()


def _listed(over: Iterable[Spent]) -> str:
    return ", ".join(each.text for each in over)
