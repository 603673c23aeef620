"""Forks of agents that call agents: a child that has ended answers, and no person is asked about a start."""

from typing import Any, Literal

import pytest

from outlast.agent import SubAgent
from tests.agent.agents import asks, results
from tests.agent.test_background_agents import news, slow_assay, started
from tests.agent.test_delegation import assay, children, leading

pytestmark = pytest.mark.req("RUN-10", "RUN-13")
Mode = Literal["ask", "recorded"]


def forked(app: Any, run: Any, effects: Mode, *, both: str = "") -> Any:
    """Fork a run from its first checkpoint, and return the fork."""
    first = app.do(app.runtime.operations.fork_points(run.id)).points[0]
    made = app.do(
        app.runtime.operations.fork_run(
            run.id, str(first.checkpoint), approvers="boss", effects=effects, both_go_on=both
        )
    )
    app.settle()
    return type(run)(app, app._workflows[0], made.fork)


@pytest.mark.parametrize("effects", ["recorded", "ask"])
def test_a_fork_of_a_leader_reads_the_end_of_its_agent_or_starts_another(effects: Mode) -> None:
    with leading([asks(("assay", {"metal": "tin"})), "done"], assay) as (app, run, model):
        app.clock.skip("2m")
        fork = forked(app, run, effects)
        if effects == "ask":
            assert [each.split()[0] for each in fork.waiting_for] == ["child"], "no person is asked about the start"
            app.clock.skip("2m")
        assert fork.outcome == "done" and results(fork) == results(run) and not fork.attention
        assert len(children(app, fork)) == (effects == "ask")
        assert len(model.requests) == 2, "the answers of the model are recorded"


def test_a_fork_of_a_leader_starts_the_agents_that_go_on_in_the_background() -> None:
    app, run, _ = started([asks(("slow_assay", {"metal": "tin"})), "I wait", "done"])
    fork = forked(app, run, "recorded", both="to compare")
    (mine,), (other,) = children(app, run), children(app, fork)
    assert mine.external_id != other.external_id
    app.clock.skip("15m")
    app.clock.skip("15m")
    for each, row in ((run, mine), (fork, other)):
        assert each.outcome == "done" and [said["run"] for said in news(each)] == [row.external_id]
    app.close()


def test_a_fork_from_a_later_step_waits_for_the_agents_that_its_state_names() -> None:
    script = [asks(("slow_assay", {"metal": "tin"})), "I wait", "done"]
    app, run, _ = started(script, SubAgent(slow_assay, background=True))
    points = app.do(app.runtime.operations.fork_points(run.id)).points
    made = app.do(
        app.runtime.operations.fork_run(
            run.id, str(points[-1].checkpoint), approvers="boss", effects="recorded", both_go_on="to compare"
        )
    )
    app.settle()
    fork = type(run)(app, app._workflows[0], made.fork)
    assert [each.split()[0] for each in fork.waiting_for] == ["child"] and not fork.attention
    app.clock.skip("15m")
    app.clock.skip("15m")
    assert fork.outcome == "done" and [each["result"] for each in news(fork)] == ["TIN"]
    app.close()
