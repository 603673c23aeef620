"""Pauses by an operator: `outlast pause`, `resume` and `pauses` (S-23)."""

from tests.cli.conftest import Terminal, waits_for


def test_a_run_waits_for_a_pause_and_one_command_resumes_it(outlast: Terminal) -> None:
    assert "nothing is paused" in listed_pauses(outlast)
    answer = outlast("pause", "activity", "open_case", "--reason", "the archive is down")
    assert answer.code == 0 and "activity open_case is paused, says local:" in answer.out
    assert "→ outlast resume activity open_case" in answer.err
    outlast.start()
    outlast.serve("r1", waits_for("pause"))
    assert "activity open_case 1 " in outlast("pauses").row("activity")
    assert outlast("pauses", "-o", "json").json["pauses"][0]["reason"] == "the archive is down"
    page = outlast("explain", "r1").out
    assert page.startswith("r1 waits because local:") and " paused activity open_case " in page
    assert "(the archive is down)" in page
    assert "unblock      outlast resume activity open_case" in page
    freed = outlast("resume", "activity", "open_case")
    assert freed.code == 0 and "activity open_case is resumed; 1 waiting run continues" in freed.out
    outlast.serve("r1", waits_for("approval"))
    assert "nothing is paused" in listed_pauses(outlast)


def listed_pauses(outlast: Terminal) -> str:
    """Return the output of `pauses` on a store that exists."""
    outlast.start(run="r0", cents=-1)
    return outlast("pauses").out


def test_a_pause_of_an_unknown_kind_or_without_a_reason_is_refused(outlast: Terminal) -> None:
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


def test_a_pause_of_the_tenant_stops_every_run(outlast: Terminal) -> None:
    outlast.start()
    assert outlast("pause", "tenant", "--reason", "an incident").code == 0
    outlast.serve("r1", waits_for("pause"))
    assert outlast("resume", "tenant", "-o", "json").json["runs"] == 1
    outlast.serve("r1", waits_for("approval"))
