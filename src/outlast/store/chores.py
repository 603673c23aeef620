"""Rare work that needs a transaction of its own: a change of the clock mapping, and forgetting old runs."""

from collections.abc import Callable

from outlast.core.budget import ANSWERS_KEPT, CLOCK_STEP, WORKERS_KEPT
from outlast.core.commit import Mapping
from outlast.core.machine import LeaseStatus
from outlast.core.rows import META, REQUEST, STORE, WORKER, Run, is_due
from outlast.store import sql
from outlast.store.batch import Batch
from outlast.store.clock import ANCHOR_ROW, anchor_of, mapping_row, successor
from outlast.store.port import OF_A_RUN
from outlast.store.session import Session
from outlast.store.sql import SQL


def set_mapping(
    session: Session, batch: Batch, wanted: Mapping, rearm: Callable[[Run, Mapping], int | None]
) -> Mapping:
    """Store the mapping that follows the present one, and move the due_at of every unowned, unfinished run."""
    stored = successor(session.mapping, wanted, batch.now.real)
    moved: list[tuple[int | None, str, str]] = []
    for values in session.db.execute(sql.UNOWNED):
        run = sql.run_of(values)
        due_at = run.due_at if is_due(run, batch.now.real) else rearm(run, stored)
        if due_at != run.due_at:
            moved.append((due_at, run.tenant, run.run))
    session.db.executemany(sql.REARM, moved)
    row = mapping_row(stored)
    if session.mapping.version:
        values = sql.update_values(META, row, session.mapping.version)
        session.db.execute(SQL[META.name].update, values)
    else:
        session.db.execute(SQL[META.name].insert, row)
    return stored


def follow_clock(session: Session, batch: Batch, rearm: Callable[[Run, Mapping], int | None]) -> int:
    """Let business time skip to where the wall clock was set forward. Return by how much; 0 if it was not."""
    row = session.read(META, ANCHOR_ROW)
    anchor = anchor_of(row)
    step = session.ticker.step(anchor)
    if anchor is None or step < CLOCK_STEP:
        return 0
    old = session.mapping
    if old.rate == 1.0:  # business time that runs at another speed is no wall clock's
        wanted = Mapping(0, batch.now.real, old.business(batch.now.real) + step, old.rate)
        set_mapping(session, batch, wanted, rearm)
    session.write_anchor(anchor._replace(ahead=anchor.ahead + step), row)
    return step


def purge(session: Session, batch: Batch, before: int, n: int) -> int:
    """Delete at most `n` runs that ended before an instant, with all their rows but tokens; what they shared and was
    kept for long enough; and old receipts."""
    over = session.db.execute(sql.OVER, (before, n)).fetchall()
    for kind in OF_A_RUN:
        session.db.executemany(SQL[kind.name].forget, over)
    session.db.execute(sql.FORGET_SHARED, (batch.now.business, n))
    session.db.execute(sql.OLD_WRITERS, (STORE, LeaseStatus.CLOSED.value, before))
    return len(over)


def forget(session: Session, batch: Batch, n: int) -> int:
    """Delete at most `n` answers to requests, and `n` rows of workers, that have been kept for long enough."""
    now = batch.now
    answers = session.db.execute(sql.OLD_REQUESTS, (now.business - ANSWERS_KEPT, n)).fetchall()
    gone = (STORE, LeaseStatus.CLOSED.value, now.real - WORKERS_KEPT, n)
    workers = session.db.execute(sql.OLD_WORKERS, gone).fetchall()
    session.db.executemany(SQL[REQUEST.name].delete, answers)
    session.db.executemany(SQL[WORKER.name].delete, workers)
    return len(answers) + len(workers)
