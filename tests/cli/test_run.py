"""`outlast run`: input checked as a whole, started once per key, and waited for with an exit code."""

import json
import re
import signal
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from outlast.cli.fact_options import fact_options
from outlast.core.detail_fields import DetailField
from outlast.core.start_details import BY_PLACE
from tests.cli.conftest import MODULE, Terminal, eventually, waits_for
from tests.cli.test_remote import Far, serve


def test_bad_input_is_refused_with_every_problem_at_once(outlast: Terminal) -> None:
    answer = outlast("run", "refund", "cents=many", "colour=red")
    assert answer.code == 2
    assert "OUT-103" in answer.err
    for problem in ("order_id: Field required", "cents: Input should be a valid integer", "colour"):
        assert problem in answer.err
    assert "Traceback" not in answer.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not valid"),
        ("[1]", "not valid"),
        ('{"order_id": "a"}', "cents: Field required"),
        ("\x00", "not valid"),
        ("[" * 100_000, "not valid"),
    ],
)
def test_a_bad_input_file(outlast: Terminal, text: str, said: str) -> None:
    Path("input.json").write_text(text)
    for args in (["--input", "input.json"], ["--input", "-"]):
        answer = outlast("run", "refund", *args, stdin=text)
        assert answer.code == 2 and said in answer.err


@pytest.mark.parametrize(
    ("text", "said"), [("{", "not JSON"), ("[1]", "not a JSON object"), ("[" * 100_000, "not JSON")]
)
def test_a_bad_file_under_pairs(outlast: Terminal, text: str, said: str) -> None:
    answer = outlast("run", "refund", "--input", "-", "cents=3", stdin=text)
    assert answer.code == 2 and said in answer.err


def test_a_deep_value_is_refused_in_a_sentence(outlast: Terminal) -> None:
    deep = "[" * 50_000
    for args in (
        ["run", "refund", "order_id=1", f"cents={deep}"], ["signal", "r1", "said", "--data", deep],
        ["approvals", "approve", "ap_1", "--set", f"cents={deep}", "--reason", "so"],
    ):  # fmt: skip
        answer = outlast(*args)
        assert answer.code in (2, 3) and "OUT-" in answer.err and "Traceback" not in answer.err, answer


@pytest.mark.parametrize("run", [".", ".."])
def test_a_run_that_no_address_can_name_is_refused(outlast: Terminal, run: str) -> None:
    """It was started, and no request could reach it: in an address these names mean another place."""
    answer = outlast("run", "refund", "order_id=1", "cents=2", "--id", run)
    assert answer.code == 2 and "is not . or .." in answer.err, answer
    tenant = outlast("run", "refund", "order_id=1", "cents=2", env={"OUTLAST_TENANT": run})
    assert tenant.code == 2 and "is not . or .." in tenant.err, tenant


def test_pairs_are_typed_by_the_schema_and_come_on_top_of_the_file(outlast: Terminal) -> None:
    outlast("run", "refund", "--input", "-", "cents=7", "--id", "r1", stdin='{"order_id": "1", "cents": 3}')
    outlast("run", "refund", "order_id=17", "cents=7", "--id", "r2")  # 17 stays text
    outlast.serve("r1", waits_for("approval"))
    outlast.serve("r2", waits_for("approval"))
    for run, order in (("r1", "1"), ("r2", "17")):
        asked = [a for a in outlast("approvals", "ls", "-o", "json").json["approvals"] if a["run"] == run]
        assert asked[0]["plans"][0]["arguments"] == {"order_id": order, "cents": 7}


def test_an_argument_without_an_equals_sign_is_refused(outlast: Terminal) -> None:
    answer = outlast("run", "refund", "order_id")
    assert answer.code == 2 and "'order_id' is not key=value" in answer.err and "--input FILE" in answer.err


def test_without_a_module_the_error_shows_how_to_name_one(outlast: Terminal) -> None:
    answer = outlast("run", "refund", "order_id=1", env={"OUTLAST_MODULE": ""})
    assert answer.code == 2 and "outlast run flows.py:refund" in answer.err


def test_a_file_without_a_workflow_is_asked_which(outlast: Terminal) -> None:
    answer = outlast("run", "flows.py", env={"OUTLAST_MODULE": ""})
    assert answer.code == 2 and "outlast run flows.py:NAME" in answer.err


@pytest.mark.parametrize("args", [[f"{MODULE}:refund"], ["refund", "--module", MODULE]])
def test_the_module_is_named_in_either_way(outlast: Terminal, args: list[str]) -> None:
    assert outlast("run", *args, "order_id=1", "cents=2", env={"OUTLAST_MODULE": ""}).code == 0


def test_an_unknown_workflow(outlast: Terminal) -> None:
    answer = outlast("run", "loan")
    assert answer.code == 3 and "no workflow loan" in answer.err and "refund" in answer.err


def test_a_run_without_a_worker_gives_advice(outlast: Terminal) -> None:
    answer = outlast("run", "refund", "order_id=1", "cents=2")
    assert answer.code == 0 and f"no worker serves refund; start one: outlast worker {MODULE}" in answer.err


@pytest.mark.req("RUN-4")
def test_the_same_key_is_the_same_run(outlast: Terminal) -> None:
    first = outlast("run", "refund", "order_id=1", "cents=2", "--key", "k", "-o", "json").json
    again = outlast("run", "refund", "order_id=1", "cents=2", "--key", "k", "-o", "json").json
    assert (again["run"], first["created"], again["created"]) == (first["run"], True, False)
    assert "was started before" in outlast("run", "refund", "order_id=1", "cents=2", "--key", "k").out
    assert len(outlast("runs", "ls", "-o", "json").json["runs"]) == 1


@pytest.mark.req("RUN-4")
def test_a_derived_key_is_the_same_run_here_and_over_http(outlast: Terminal) -> None:
    outlast.module = f"{Path(__file__).with_name('orders.py')}"
    for number, client in enumerate((outlast, Far(outlast, serve(outlast)))):
        given = ("run", "order", f"number={number}", "-o", "json")
        first, again, conflict = (client(*given, f"cents={cents}") for cents in (1, 1, 2))
        assert first.json["created"] and again.json["run"] == first.json["run"] and not again.json["created"]
        assert conflict.code == 4 and f"under the key order/{number} with another input" in conflict.err
        assert client(*given, "cents=2", "--key", f"mine-{number}").json["created"]


@pytest.mark.req("RUN-2")
def test_the_named_end_is_shown(outlast: Terminal) -> None:
    outlast.module = f"{Path(__file__).with_name('orders.py')}"
    outlast.worker()
    waited = outlast("run", "order", "number=7", "cents=1", "--id", "o-1", "--wait")
    assert waited.code == 0 and waited.out.startswith("o-1  PLACED  {")
    listed = outlast("runs", "ls", "--status", "completed")
    assert "PLACED" in listed.out and "COMPLETED" not in listed.out
    assert "PLACED" in outlast("runs", "show", "o-1").out and " as PLACED " in outlast("explain", "o-1").out
    assert "o-1 PLACED; no further event" in outlast("runs", "tail", "o-1").err
    assert "end=PLACED" in outlast("runs", "events", "o-1").out


@pytest.mark.req("OBS-4")
def test_the_objective_is_listed_and_found(outlast: Terminal) -> None:
    outlast.start()
    outlast.module = f"{Path(__file__).with_name('orders.py')}"
    outlast("run", "order", "number=7", "cents=1", "--id", "o-1")
    found = outlast("runs", "ls", "--search", "place ORDER")
    assert "o-1 order Place order 7 QUEUED" in found.row("o-1") and "r1" not in found.out
    assert "OBJECTIVE" in found.out and "OBJECTIVE" not in outlast("runs", "ls", "--workflow", "refund").out
    assert "objective    Place order 7" in outlast("runs", "show", "o-1").out
    assert "Place order 7" in outlast("explain", "o-1").out
    assert outlast("runs", "ls", "--search", "nothing").out == "no run matches\n"


def test_a_fact_of_a_start_has_an_option_if_its_declaration_says_so() -> None:
    """The declarations are planted, because no present fact has an option."""
    planted = {
        "team": DetailField("team", 80, "Team that the run is for."),
        "cost_center": DetailField("cost center", 8, "Cost center that pays."),
    }
    given = list[dict[str, str]]()

    def take(**details: str) -> None:
        given.append(details)

    command = click.command()(fact_options(planted)(take))
    CliRunner().invoke(command, ["--cost-center", "4711"], catch_exceptions=False)
    assert given == [{"team": "", "cost_center": "4711"}]
    shown = CliRunner().invoke(command, ["--help"]).output
    assert re.search(
        r"--team TEAM +Team that the run is for.\n +--cost-center COST_CENTER +Cost center that pays.", shown
    )


def test_the_page_of_a_run_shows_the_facts_of_its_start(outlast: Terminal) -> None:
    outlast.start()
    outlast.module = f"{Path(__file__).with_name('orders.py')}"
    given = {name: f"given {name}" for name in BY_PLACE["option"]}
    options = [part for name, text in given.items() for part in (f"--{name.replace('_', '-')}", text)]
    outlast("run", "order", "number=8", "cents=1", "--id", "o-2", *options)
    page, data = outlast("runs", "show", "o-2").out, outlast("-o", "json", "runs", "show", "o-2").json
    texts = {**given, "objective": "Place order 8"}
    assert {name: data[name] for name in texts} == texts
    for name, each in BY_PLACE["terminal"].items():
        assert re.search(rf"{each.noun} +{texts[name]}", page)


@pytest.mark.req("RUN-4")
def test_the_same_key_with_another_input_is_a_conflict(outlast: Terminal) -> None:
    outlast("run", "refund", "order_id=1", "cents=2", "--key", "k")
    answer = outlast("run", "refund", "order_id=1", "cents=3", "--key", "k")
    assert answer.code == 4 and "with another input" in answer.err


def test_quiet_prints_the_id_alone(outlast: Terminal) -> None:
    answer = outlast("run", "refund", "order_id=1", "cents=2", "--id", "mine", "-q")
    assert (answer.out, answer.err) == ("mine\n", "")


# --- waiting -----------------------------------------------------------------------------------
def test_waiting_for_a_run_that_fails(outlast: Terminal) -> None:
    outlast.worker()
    answer = outlast("run", "refund", "order_id=1", "cents=-2", "--wait")
    assert answer.code == 1 and "FAILED  nothing to refund" in answer.out


def test_waiting_for_a_run_that_waits_for_a_person(outlast: Terminal) -> None:
    outlast.worker()
    answer = outlast("run", "refund", "order_id=1", "cents=2", "--wait", "--id", "r1")
    assert answer.code == 5 and "waits for approval ap_" in answer.out and "by finance" in answer.out


def test_waiting_for_a_run_that_completes(outlast: Terminal) -> None:
    outlast.worker()
    waiting = outlast.spawn("run", "refund", "order_id=1", "cents=2", "--wait", "--id", "r1", "-o", "json")
    waiting.communicate()
    assert waiting.returncode == 5
    (asked,) = outlast("approvals", "ls", "-o", "json").json["approvals"]
    assert outlast("approvals", "approve", asked["approval"], "--reason", "fine").code == 0
    again = outlast.spawn("run", "refund", "order_id=1", "cents=2", "--id", "r1", "--wait", "-o", "json")
    out, _ = again.communicate()
    assert again.returncode == 0
    view = json.loads(out)
    assert view["outcome"]["receipt"] == {"number": "R-1"} and view["shown"] == "COMPLETED"


def test_ctrl_c_while_waiting_says_that_the_run_is_safe(outlast: Terminal) -> None:
    waiting = outlast.spawn("run", "refund", "order_id=1", "cents=2", "--wait", "--id", "r1")
    assert waiting.stderr is not None
    told = iter(waiting.stderr.readline, "")
    assert any("r1  refund started" in line for line in told)  # from here on it waits
    waiting.send_signal(signal.SIGINT)
    _, err = waiting.communicate()
    assert waiting.returncode == 130
    assert "safe in the store" in err and "Traceback" not in err
    assert eventually(lambda: outlast("runs", "show", "r1")).code == 0
