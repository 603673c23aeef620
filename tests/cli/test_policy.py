"""`outlast policy test`, and decisions of several people or with changed values, from the command line."""

import json
from pathlib import Path

import pytest

from outlast.core.rows import is_over
from tests.cli.conftest import MODULE, Terminal, eventually

STRICT = """
from outlast import Allow, Deny, NeedsApproval, role

def strict(asked):
    if asked.activity == "issue_refund" and asked.arguments["cents"] > 1_000:
        return Deny("limit", "too much")
    return Allow("rest")

def open_to_all(asked):
    return Allow("all")

def cfo(asked):
    return NeedsApproval("cfo", role("cfo")) if asked.activity == "open_case" else Allow("rest")

nothing = 7
"""


@pytest.mark.req("GATE-6")
def test_a_changed_policy_is_tried_on_the_past(outlast: Terminal) -> None:
    """What it would block fails the command; what it would ask or allow is told; nothing is written."""
    (outlast.folder / "policies.py").write_text(STRICT)
    outlast.start()
    approval = outlast.approval()
    assert outlast("approvals", "approve", approval, "--reason", "fine").code == 0
    outlast.serve("r1", is_over)
    before = outlast.see()
    tried = outlast("policy", "test", "policies.py:strict")
    assert tried.code == 1 and "DENIED" in tried.out and "refund/A-17" in tried.out and "2 effects" in tried.out
    view = outlast("policy", "test", "policies.py:strict", "--since", "1h", "-o", "json").json
    (one,) = view["findings"]
    assert (one["change"], one["activity"], one["now"]["rule"]) == ("blocks", "issue_refund", "limit")
    asks = outlast("policy", "test", "policies.py:cfo", "-o", "json")
    assert asks.code == 0 and [f["change"] for f in asks.json["findings"]] == ["asks"]
    calm = outlast("policy", "test", "policies.py:open_to_all")
    assert calm.code == 0 and "nothing would have gone another way" in calm.out
    assert outlast("policy", "test", "policies.py:strict", "--workflow", "other").code == 0
    assert outlast.see() == before


@pytest.mark.req("GATE-6")
def test_a_policy_that_is_none_is_told_in_a_sentence(outlast: Terminal) -> None:
    (outlast.folder / "policies.py").write_text(STRICT)
    outlast.start()
    for spec, code, told in (
        ("policies.py", 2, "names no policy"),
        ("policies.py:nothing", 3, "has no policy nothing"),
        ("none.cedar", 2, "cannot be read"),
    ):
        answer = outlast("policy", "test", spec)
        assert answer.code == code and told in answer.err and "Traceback" not in answer.err


MODULE_OF_TWO = Path(MODULE).with_name("two_people.py")


@pytest.mark.req("GATE-9", "GATE-8")
def test_two_tabs_of_four_people_make_one_decision(outlast: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes race with changed values: each person counts once, two decide, exactly the changed call runs."""
    monkeypatch.setenv("OUTLAST_MODULE", str(MODULE_OF_TWO))
    env = {"OUTLAST_MODULE": str(MODULE_OF_TWO)}
    worker = outlast.spawn("worker", str(MODULE_OF_TWO), **env)
    started = outlast("-q", "run", "payout", "order_id=A-1", "cents=4200", "--id", "r1", env=env)
    assert started.code == 0, started
    found = eventually(lambda: outlast("-o", "json", "approvals", "ls").json["approvals"])
    approval = found[0]["approval"]
    assert outlast("approvals", "claim", approval, env={"LOGNAME": "ana"}).code == 0
    args = ("approvals", "approve", approval, "--reason", "fine", "--set", "cents=90")
    tabs = [outlast.spawn(*args, LOGNAME=f"p{i % 4}", **env) for i in range(8)]
    codes = sorted(tab.wait(60) for tab in tabs)
    assert codes == [0, 0, 4, 4, 4, 4, 4, 4]
    run = eventually(lambda: (v := outlast.see())["status"] == "completed" and v)
    assert run
    page = outlast("approvals", "show", approval)
    assert "2 different people" in page.out and '{"cents": 90}' in page.out
    view = outlast("approvals", "show", approval, "-o", "json").json
    assert len({vote["by"] for vote in view["votes"]}) == 2 and view["claimed_by"] == "local:ana"
    (plan,) = [plan for plan in view["plans"] if plan["chosen"]]
    assert plan["arguments"] == {"order_id": "A-1", "cents": 90} and plan["changes"] == {"cents": 90}
    assert (outlast.folder / "paid.log").read_text() == "A-1 90\n"
    worker.terminate()


@pytest.mark.req("GATE-9")
def test_what_cannot_be_seen_is_pointed_out(outlast: Terminal) -> None:
    outlast.start(order_id="A-1\u200b7")
    approval = outlast.approval()
    page = outlast("approvals", "show", approval)
    assert "beware" in page.out and "U+200B ZERO WIDTH SPACE cannot be seen" in page.out
    assert json.loads(outlast("approvals", "show", approval, "-o", "json").out)["plans"][0]["warnings"]
