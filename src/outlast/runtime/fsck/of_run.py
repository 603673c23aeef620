"""Checks of a run's row, its mailbox and its waits."""

import json

from outlast.core.ledger import bound_notes
from outlast.core.machine import WaitStatus
from outlast.core.overlay import attention_of, due_of, timers_of, waiting_of
from outlast.core.rows import EVIDENCE, MESSAGE, RUN, WAIT, check_run, is_over
from outlast.errors import Corrupt
from outlast.runtime.fsck.finding import Broken, OneRun, broken


def run_row(one: OneRun) -> Broken:
    """An unfinished run is due, owned, or waiting for something named; a terminal one is final (I10, I39)."""
    try:
        check_run(one.run)
    except Corrupt as error:
        yield broken(RUN, one.run, error.what)


def run_words(one: OneRun) -> Broken:
    """What the row says in words can be read: what it waits for, its clocks, its attention, its visits."""
    for what, read in (("waiting_for", waiting_of), ("timers", timers_of), ("attention", attention_of)):
        try:
            read(one.run)
        except (ValueError, TypeError, KeyError) as error:
            yield broken(RUN, one.run, f"{what} cannot be read: {error}")
    try:
        json.loads(one.run.visits)
    except ValueError as error:
        yield broken(RUN, one.run, f"visits cannot be read: {error}")


def run_visits(one: OneRun) -> Broken:
    """The visit counts every entry into a node, the present one included (S-15)."""
    run = one.run
    try:
        visits: dict[str, int] = json.loads(run.visits)
    except ValueError:
        return  # told by run_words
    if sum(visits.values()) != run.visit or not visits.get(run.node):
        yield broken(RUN, run, f"visit {run.visit} at node {run.node}, but it was entered {visits}")


def run_clocks(one: OneRun) -> Broken:
    """A run that sleeps is woken by every clock it has armed, its ceiling among them (S-3)."""
    run = one.run
    if is_over(run) or run.owner:
        return
    try:
        timers = timers_of(run)
    except (ValueError, TypeError):
        return  # told by run_words
    asleep = run.due_at is None or run.due_at > one.rows.now.real
    if asleep and run.ceiling_at and all(c.what != "ceiling" or c.at != run.ceiling_at for c in timers):
        yield broken(RUN, run, f"it sleeps, and its ceiling at {run.ceiling_at} is not armed")
    if not asleep or one.mapping is None or one.mapping.version != one.rows.now.mapping:
        return  # one that is due stays so, whatever a skip makes of its clocks
    due = due_of(timers, one.mapping)
    if due is not None and (run.due_at is None or run.due_at > due):
        yield broken(RUN, run, f"a clock is armed for {due}, but it is not due before {run.due_at}")


def run_mail(one: OneRun) -> Broken:
    """The notes of a run are numbered 1 … mail, without a gap (S-1)."""
    numbers = [message.n for message in one.rows.messages]
    if numbers == list(range(1, one.run.inbox_seq + 1)):
        return
    missing = sorted(set(range(1, one.run.inbox_seq + 1)) - set(numbers))
    extra = [message for message in one.rows.messages if not 1 <= message.n <= one.run.inbox_seq]
    for n in missing[:10]:
        yield MESSAGE, (one.run.tenant, one.run.run, n), f"note {n} of {one.run.inbox_seq} is missing"
    for message in extra[:10]:
        yield broken(MESSAGE, message, f"the run says that it has {one.run.inbox_seq} notes")


def wait_bound(one: OneRun) -> Broken:
    """A wait is bound once, to notes that came, and no note is bound to two waits (S-14)."""
    taken: set[int] = set()
    for wait in one.rows.waits:
        try:
            numbers = set(bound_notes(wait))
        except (ValueError, TypeError):
            yield broken(WAIT, wait, f"its binding cannot be read: {wait.binding[:100]}")
            continue
        if (wait.status is WaitStatus.BOUND) != bool(wait.binding):
            yield broken(WAIT, wait, f"it is {wait.status} with the binding {wait.binding!r}")
        elif never := sorted(n for n in numbers if not 1 <= n <= one.run.inbox_seq):
            yield broken(WAIT, wait, f"it is bound to note {never[0]}; {one.run.inbox_seq} have come")
        elif twice := sorted(taken & numbers):
            yield broken(WAIT, wait, f"it is bound to note {twice[0]}, which another wait has had")
        taken |= numbers


def wait_visit(one: OneRun) -> Broken:
    """A wait belongs to a visit that the run has begun (S-15)."""
    for wait in one.rows.waits:
        if not 1 <= wait.visit <= one.run.visit:
            yield broken(WAIT, wait, f"of visit {wait.visit}; the run is in its visit {one.run.visit}")


def evidence_of_effect(one: OneRun) -> Broken:
    """Evidence is of an effect that the ledger knows (S-10)."""
    known = {(e.visit, e.key) for e in one.effects}
    for row in one.rows.evidence:
        if (row.visit, row.key) not in known:
            yield broken(EVIDENCE, row, "the ledger has no effect of this key")
