"""Rows of a held run, without a store. `tests/lockstep/test_held_run.py` compares `apply` with the judge."""

from outlast.core.commit import Commit, Put
from outlast.core.rows.effect_rows import EFFECT
from outlast.core.rows.run_rows import EVENT, RUN, Run
from outlast.core.usage import Used
from outlast.engine.held_run import HeldRun
from outlast.store.port import RunRows
from tests.conformance import subject as make
from tests.models.world import at

ROW = make.run_row(epoch=1, owner="wk", inbox_seq=3, group_max=2)


def rows_of(run: Run, *, messages: int = 0) -> RunRows:
    """Return the rows of a run that has made one call."""
    event = make.event_row(run.run, 1)
    read = tuple(make.message_row(run.run)._replace(n=n + 1) for n in range(messages))
    return RunRows(run, event, (make.effect_row(run.run, "a"),), (), (), (), read, (), at(0))


def test_an_effect_is_open_until_a_commit_settles_it() -> None:
    held = HeldRun(rows_of(ROW))
    (effect,) = held.open_effects()
    held.apply(make.record(effect, ROW))
    assert held.open_effects() == [] and held.effects[1, "a"] == make.done(effect)


def test_a_shared_effect_of_another_run_is_no_effect_of_this_one() -> None:
    held = HeldRun(rows_of(ROW))
    shared = make.effect_row("", "s", visit=0)._replace(by_run="run-2", ordinal=9)
    held.apply(Commit((Put(EFFECT, shared, 1),)))
    assert (0, "s") not in held.effects and held.others == {"s": shared}
    mine = shared._replace(by_run=ROW.run)
    held.apply(Commit((Put(EFFECT, mine, 2),)))
    assert held.effects[0, "s"] == mine and held.others == {}, "it was undone, and this run makes the call again"


def test_the_newest_snapshot_is_kept_when_an_event_has_none() -> None:
    held = HeldRun(rows_of(ROW))
    held.apply(Commit((Put(EVENT, make.event_row(ROW.run, 2, snapshot=None), 0),)))
    assert held.last.seq == 1
    held.apply(Commit((Put(EVENT, make.event_row(ROW.run, 3), 0),)))
    assert held.last.seq == 3


def test_a_message_of_its_own_commit_is_not_read_before_the_store_has_numbered_it() -> None:
    held = HeldRun(rows_of(ROW, messages=3))
    held.apply(make.append_message(make.message_row(ROW.run)))
    assert len(held.messages) == 3 and not held.has_new_messages
    held.hear(4)
    held.hear(3)  # an answer that comes late takes nothing back
    assert held.has_new_messages
    held.add_messages((make.message_row(ROW.run)._replace(n=4),))
    assert not held.has_new_messages and held.inbox_read == 4


def test_a_group_ends_when_the_commit_that_leaves_it_has_landed() -> None:
    held = HeldRun(rows_of(ROW))
    held.apply(Commit((Put(RUN, make.moved(ROW, group_max=0), ROW.version),)))
    assert held.group == 2
    held.landed()
    assert held.group == 0


def test_rows_that_are_read_again_give_no_usage_row_a_number_twice() -> None:
    """A second row under one number would be refused, and its usage lost."""
    held = HeldRun(rows_of(ROW))
    report = Used(1, "m", 3, 2, 1, 0, 1)
    (first,) = held.usage_puts((1, "a"), "ask", [report], at(0))
    held.apply(Commit((first,)))
    held.renew(rows_of(ROW))
    (second,) = held.usage_puts((1, "a"), "ask", [report], at(0))
    assert first.row != second.row and held.usage_read == 1
    assert held.usage_since.calls == 0, "the row is part of the sum that is read next"
