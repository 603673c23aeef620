"""How a durable store answers the tickets of one batch, whatever database applies what they leave."""

from collections.abc import Iterable, Sequence

from outlast.core.commit import Commit
from outlast.core.rows import RUN, Run
from outlast.errors import Corrupt, Rejected, Stale, StoreError
from outlast.store.batch import Batch
from outlast.store.bounds import check
from outlast.store.fair import chosen
from outlast.store.tickets import Take, Ticket


def judge(ticket: Ticket, batch: Batch) -> object:
    """What a commit's ticket is answered; a refusal breaks its chain once the batch has landed."""
    work = ticket.work
    assert isinstance(work, Commit), "a take reads rows, a task has a transaction of its own"
    try:
        if ticket.out_of_bounds is not None:
            raise ticket.out_of_bounds
        return batch.land(work, ticket.chain)
    except (StoreError, Corrupt) as error:
        if ticket.chain is not None:
            batch.broken.add(ticket.chain)
        return error if isinstance(error, StoreError) else Rejected(str(error))


def refuse(tickets: Iterable[Ticket], error: StoreError) -> None:
    """Answer all of them with one error, which breaks their chains."""
    for ticket in tickets:
        ticket.answer = error
        if ticket.chain is not None:
            ticket.chain.broken = True


def most_of(take: Take, batch: Batch) -> int:
    """How many runs to look for: those that the batch has changed may no longer be candidates."""
    return take.n + len(batch.changes[RUN.name])


def candidates(take: Take, batch: Batch, found: Iterable[Run]) -> list[Run]:
    """At most `take.n` runs as the earlier commits of the batch leave them: the due ones as `chosen` says, or, where
    owners are named, theirs in the order of the owners."""
    changed = batch.changes[RUN.name]
    runs = [left.row for left in changed.values() if isinstance(left.row, Run)]
    runs += [run for run in found if run[:2] not in changed]
    if take.owners:
        runs = [run for run in runs if run.owner in take.owners]
        runs.sort(key=lambda run: (take.owners.index(run.owner), run.tenant, run.run))
        return runs[: take.n]
    real, lanes = batch.now.real, take.lanes
    due = [run for run in runs if run.due_at is not None and run.due_at <= real and run.lane in lanes]
    return chosen(due, take.n, take.held)


def taken(moves: Sequence[tuple[Run, Commit | None]], batch: Batch) -> tuple[Run, ...]:
    """Those runs whose moves land, as these leave them."""
    left: list[Run] = []
    for run, commit in moves:
        if commit is not None and _lands(commit, batch):
            row = batch.row(RUN, run[:2])
            assert isinstance(row, Run)
            left.append(row)
    return tuple(left)


def _lands(commit: Commit, batch: Batch) -> bool:
    try:
        check(commit)
        batch.land(commit)
    except Stale:
        return False  # another row it names has moved on: this run is not taken now
    return True
