"""`outlast pause`, `release` and `holds`: an operator's stop signs (S-23)."""

from tests.cli.conftest import Terminal, waits_for


def test_a_hold_is_seen_by_the_run_that_meets_it_and_released_by_one_command(outlast: Terminal) -> None:
    assert "nothing is held" in held_list(outlast)
    answer = outlast("pause", "activity", "open_case", "--reason", "the archive is down")
    assert answer.code == 0 and "activity open_case is held, says local:" in answer.out
    assert "→ outlast resume activity open_case" in answer.err
    outlast.start()
    outlast.serve("r1", waits_for("pause"))
    assert "activity open_case 1 " in outlast("pauses").row("activity")
    assert outlast("pauses", "-o", "json").json["pauses"][0]["reason"] == "the archive is down"
    page = outlast("explain", "r1").out
    assert page.startswith("r1 waits while activity open_case is held by local:") and "(the archive is down)" in page
    assert "unblock      outlast resume activity open_case" in page
    freed = outlast("resume", "activity", "open_case")
    assert freed.code == 0 and "activity open_case is released; 1 run that waited for it goes on" in freed.out
    outlast.serve("r1", waits_for("approval"))
    assert "nothing is held" in held_list(outlast)


def held_list(outlast: Terminal) -> str:
    """The list once a store is there."""
    outlast.start(run="r0", cents=-1)
    return outlast("pauses").out


def test_what_cannot_be_held(outlast: Terminal) -> None:
    outlast.start()
    assert outlast("pause", "activity", "--reason", "x").code == 2
    assert outlast("pause", "tenant", "acme", "--reason", "x").code == 2
    assert outlast("pause", "robot", "x", "--reason", "x").code == 2
    assert outlast("pause", "activity", "open_case").code == 2
    assert outlast("pause", "activity", "open_case", "--reason", " ").code == 2
    assert outlast("resume", "workflow", "refund").code == 3
    assert outlast("pause", "workflow", "refund", "--reason", "a bad release").code == 0
    twice = outlast("pause", "workflow", "refund", "--reason", "again")
    assert twice.code == 4 and "a bad release" in twice.err


def test_a_whole_tenant_is_held(outlast: Terminal) -> None:
    outlast.start()
    assert outlast("pause", "tenant", "--reason", "an incident").code == 0
    outlast.serve("r1", waits_for("pause"))
    assert outlast("resume", "tenant", "-o", "json").json["runs"] == 1
    outlast.serve("r1", waits_for("approval"))
