"""Each command that is printed for a run that needs a person does what it says when it is run (EFF-2, GATE-5)."""

import json
import re
import shlex
from pathlib import Path

import pytest

from outlast.core.rows.run_rows import Run, is_over
from tests.cli.conftest import Terminal, eventually

MODULE = str(Path(__file__).with_name("doubts.py"))

RUNS = 8
FILLED = {"ID": "X-1", "…": "looked into it"}
RESPONSES = {"text": '"seen"', "nothing": "null", "ticket": '{"number": "T-1"}'}
KINDS = ["text", "nothing", "ticket", "busy", "broken", "round"]
CHOICES = {
    "text": ["happened", "did_not_happen", "give_up"], "nothing": ["happened", "did_not_happen", "give_up"],
    "ticket": ["happened", "did_not_happen", "give_up"], "busy": ["retry", "give_up", "cancel"],
    "broken": ["continue", "fail", "cancel"], "round": ["one_more", "fail", "cancel"],
}  # fmt: skip


def needs_a_person(row: Run) -> bool:
    return bool(row.attention)


@pytest.fixture(params=KINDS)
def stopped(request: pytest.FixtureRequest, outlast: Terminal) -> Terminal:
    """Runs that need a person, one for each command; a worker has served them, and stored the schemas."""
    outlast.module = MODULE
    for n in range(1, RUNS + 1):
        assert outlast("-q", "run", "doubt", f"kind={request.param}", "--id", f"r{n}").code == 0
    for n in range(1, RUNS + 1):
        outlast.serve(f"r{n}", needs_a_person)
    return outlast


def kind_of(terminal: Terminal) -> str:
    return str(json.loads(terminal("runs", "input", "r1").out)["kind"])


def answered(terminal: Terminal, run: str) -> bool:
    """Return True if the board says that a person has answered, or the run needs none any more."""
    page = terminal("explain", run).out
    return "continues" in page or "is queued" in page or "effect_uncertain" not in page


def filled(command: str, kind: str) -> list[str]:
    """Return the words of a command with the person's values in the gaps."""
    assert command.startswith("outlast ")
    return [RESPONSES[kind] if word == "JSON" else FILLED.get(word, word) for word in shlex.split(command)[1:]]


def ran(terminal: Terminal, n: int, command: str) -> str:
    """Run a command that is printed for r1 for another run, without the module. Return that run."""
    words = [f"r{n}" if word == "r1" else word for word in filled(command, kind_of(terminal))]
    if "cancel" in words or "fail" in words:
        words.append("--yes")  # it asks for confirmation
    answer = terminal(*words, env={"OUTLAST_MODULE": ""})
    if "--did-not-happen" in words and answer.code == 4:
        assert "too early" in answer.err
        answer = eventually(lambda: (a := terminal(*words, env={"OUTLAST_MODULE": ""})).code == 0 and a)
    assert answer.code == 0, (command, answer)
    return f"r{n}"


@pytest.mark.req("EFF-2", "GATE-5")
def test_each_choice_of_the_board_is_recorded_by_its_command(stopped: Terminal) -> None:
    kind = kind_of(stopped)
    (item,) = stopped("attention", "show", "r1", "-o", "json").json["attention"]
    assert [each["choice"] for each in item["choices"]] == CHOICES[kind]
    for n, each in enumerate(item["choices"], 2):
        assert ("--response" in each["command"]) == (each["choice"] == "happened" and kind != "nothing")
        run = ran(stopped, n, each["command"])
        if each["choice"] == "happened":
            stopped.serve(run, is_over)
            said = {"text": "seen", "nothing": "None", "ticket": "T-1"}[kind]
            assert stopped.see(run)["outcome"]["said"] == said
        elif each["choice"] in ("fail", "cancel"):
            stopped.serve(run, is_over)
            assert stopped.see(run)["status"] == {"fail": "failed", "cancel": "cancelled"}[each["choice"]]
        else:
            assert answered(stopped, run)


@pytest.mark.req("EFF-2")
def test_the_commands_in_every_text_run(stopped: Terminal) -> None:
    """`explain`, `attention ls`, `runs show` and `effects ls` print them each in its form."""
    kind = kind_of(stopped)
    words = [("explain", "r1"), ("attention", "ls"), ("runs", "show", "r1"), ("effects", "ls", "--run", "r1")]
    if kind in RESPONSES:
        words.append(("effects", "show", "r1", f"{kind}/{kind}"))
    pages = [stopped(*each).out for each in words]
    commands = set[str]()
    for page in pages:
        for line in re.findall(
            r"outlast (?:effects|attention) resolve r1 [^\n(]*|outlast runs \w+ r1 --reason …", page
        ):
            first, *others = line.strip().split(" | ")
            named = first.partition(" --")[0]
            commands |= {first, *(f"{named} {other}" for other in others)}
    assert len(commands) >= len(CHOICES[kind]) - 1, pages
    assert any("--happened" in each for each in commands) == (kind in RESPONSES)
    assert len(commands) < RUNS
    for n, command in enumerate(sorted(commands), 2):
        ran(stopped, n, command)


def test_a_refused_answer_names_the_command_that_is_accepted(stopped: Terminal) -> None:
    if kind_of(stopped) not in RESPONSES:
        return
    refused = stopped("runs", "continue", "r1", "--reason", "x")
    assert refused.code == 4
    (line,) = re.findall(r"outlast effects resolve [^\n]*", refused.err)
    first, *others = line.partition("    ")[0].split(" | ")
    named = first.partition(" --")[0]
    for n, command in enumerate([first, *(f"{named} {other}" for other in others)], 2):
        ran(stopped, n, command)
