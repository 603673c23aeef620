"""`outlast policy test`, and decisions of several people or with changed values, from the command line."""

import json
import os
import pwd
from pathlib import Path

import pytest

from outlast.core.rows.run_rows import is_over
from tests.cli.conftest import MODULE, Answer, Terminal, eventually
from tests.cli.test_remote import serve

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
    """A blocked effect fails the command; asked and allowed ones are listed; the store does not change."""
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
    assert calm.code == 0 and "no decision would change" in calm.out
    assert outlast("policy", "test", "policies.py:strict", "--workflow", "other").code == 0
    assert outlast.see() == before


@pytest.mark.req("GATE-6")
def test_an_invalid_policy_ends_in_one_sentence(outlast: Terminal) -> None:
    (outlast.folder / "policies.py").write_text(STRICT)
    outlast.start()
    for spec, code, told in (
        ("policies.py", 2, "names no policy"),
        ("policies.py:nothing", 3, "has no policy nothing"),
        ("none.cedar", 2, "cannot be read"),
    ):
        answer = outlast("policy", "test", spec)
        assert answer.code == code and told in answer.err and "Traceback" not in answer.err


def payout(outlast: Terminal) -> str:
    """Start the payout that two people approve, and return its approval once a worker has asked for it."""
    outlast.module = str(Path(MODULE).with_name("two_people.py"))
    started = outlast("-q", "run", "payout", "order_id=A-1", "cents=4200", "--id", "r1")
    assert started.code == 0, started
    return outlast.approval()


@pytest.mark.req("GATE-9", "GATE-8")
def test_two_tabs_of_four_people_make_one_decision(outlast: Terminal) -> None:
    """Two services race with changed values: each person counts once, two decide, exactly the changed call runs."""
    approval = payout(outlast)
    made = [outlast("-o", "json", "token", "new", f"p{i}", "approver", "finance").json for i in range(4)]
    lines = "\n".join(each["line"] for each in made)
    urls = [serve(outlast, OUTLAST_AUTH__TOKENS=lines) for _ in range(2)]
    assert outlast("approvals", "claim", approval).code == 0
    args = ("approvals", "approve", approval, "--reason", "fine", "--set", "cents=90")
    codes = list[int]()
    while codes.count(0) < 2:  # a tab that read the approval before another's vote is refused, and asks again
        tabs = [
            outlast.spawn(*args, OUTLAST_URL=urls[i // 4], OUTLAST_TOKEN=made[i % 4]["token"], OUTLAST_STORE="")
            for i in range(8)
        ]
        codes += [tab.wait(60) for tab in tabs]
        assert 0 in codes and set(codes) == {0, 4}, codes
    assert codes.count(0) == 2, "one vote for each person, and none after the second"
    run = eventually(lambda: (v := outlast.see())["status"] == "completed" and v)
    assert run
    page = outlast("approvals", "show", approval)
    assert "2 different people" in page.out and '{"cents": 90}' in page.out
    view = outlast("approvals", "show", approval, "-o", "json").json
    assert len({vote["by"] for vote in view["votes"]}) == 2 and view["claimed_by"].startswith("local:")
    (plan,) = [plan for plan in view["plans"] if plan["chosen"]]
    assert plan["arguments"] == {"order_id": "A-1", "cents": 90} and plan["changes"] == {"cents": 90}
    assert (outlast.folder / "paid.log").read_text() == "A-1 90\n"


@pytest.mark.req("GATE-9", "GATE-8")
def test_the_environment_cannot_name_a_second_person(outlast: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """`LOGNAME=bob` made a second person of the first. Another user id is another person, with a name or without."""
    approval = payout(outlast)
    me = pwd.getpwuid(os.getuid()).pw_name

    def approve(**env: str) -> Answer:
        return outlast("approvals", "approve", approval, "--reason", "fine", env=env)

    assert f"local:{me}" in approve().out
    names = ("LOGNAME", "USER", "LNAME", "USERNAME", "SUDO_USER")
    for name in names:
        assert outlast("-o", "json", "whoami", env={name: "bob"}).json["name"] == f"local:{me}"
        again = approve(**{name: "bob"})
        assert again.code == 4 and f"local:{me} has voted" in again.err, again
    again = approve(**dict.fromkeys(names, "bob"), HOME=str(outlast.folder))
    assert again.code == 4 and outlast("-o", "json", "approvals", "show", approval).json["status"] == "pending", again
    monkeypatch.setattr(os, "getuid", lambda: 2_000_000_017)
    second = approve()
    assert second.code == 0 and "local:uid-2000000017" in second.out, second


@pytest.mark.req("GATE-9")
def test_invisible_characters_are_pointed_out(outlast: Terminal) -> None:
    outlast.start(order_id="A-1\u200b7")
    approval = outlast.approval()
    page = outlast("approvals", "show", approval)
    assert "warning" in page.out and "U+200B ZERO WIDTH SPACE is invisible" in page.out
    assert json.loads(outlast("approvals", "show", approval, "-o", "json").out)["plans"][0]["warnings"]
