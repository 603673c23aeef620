"""`outlast views`, and `outlast runs ls --view`."""

from tests.cli.conftest import Terminal


def test_a_view_is_saved_used_replaced_and_removed(outlast: Terminal) -> None:
    outlast.start(run="r1")
    assert "no view is saved → outlast views save NAME QUERY" in outlast("views", "ls").out
    saved = outlast("views", "save", "refunds", "workflow:refund", "r1")
    assert saved.code == 0 and "saved the view refunds: workflow:refund r1, says " in saved.out
    assert "workflow:refund r1" in outlast("views", "ls").out
    (view,) = outlast("views", "ls", "-o", "json").json["views"]
    assert (view["name"], view["query"]) == ("refunds", "workflow:refund r1") and view["by"]
    assert "r1" in outlast("runs", "ls", "--view", "refunds").out
    assert "no run matches" in outlast("runs", "ls", "--view", "refunds", "status:failed").out
    twice = outlast("runs", "ls", "--view", "refunds", "workflow:order")
    assert twice.code == 2 and "workflow: is given twice" in twice.err
    assert outlast("views", "save", "refunds", "status:failed").code == 0
    assert "r1" not in outlast("runs", "ls", "--view", "refunds").out
    removed = outlast("views", "rm", "refunds")
    assert removed.code == 0 and "removed the view refunds, says " in removed.out
    gone = outlast("runs", "ls", "--view", "refunds")
    assert gone.code == 3 and "no view 'refunds'" in gone.err and "outlast views ls" in gone.err
    assert outlast("views", "rm", "refunds").code == 3


def test_a_view_that_cannot_be_read_is_refused(outlast: Terminal) -> None:
    outlast.start()
    assert outlast("views", "save", "odd", "status:none").code == 2
    assert outlast("views", "save", "odd").code == 2
    assert outlast("views", "save", "\u200b", "status:failed").code == 2


def test_views_that_several_processes_save_at_once_are_all_kept(outlast: Terminal) -> None:
    outlast.start()
    names = [f"view {n}" for n in range(6)]
    saving = [outlast.spawn("views", "save", name, "status:failed") for name in names]
    for each in saving:
        _, err = each.communicate(timeout=60)
        assert each.returncode == 0, err
    assert [each["name"] for each in outlast("views", "ls", "-o", "json").json["views"]] == names
