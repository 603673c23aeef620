"""Pages of approvals without scripts: forms that post and redirect, for the version shown, once."""

import re
from collections.abc import Iterator
from html import unescape

import pytest

from outlast.core.machine import ApprovalStatus
from tests.service.conftest import ALL, Running, Service
from tests.ui import flows
from tests.ui.html_page import HtmlPage

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Service with a workflow whose approvals have alternatives and a quorum, too."""
    with Running(f"sqlite:{tmp_path_factory.mktemp('ui') / 'outlast.db'}", (*ALL, flows.awards)) as running:
        yield running


def shown(service: Service, approval: str) -> HtmlPage:
    answer = service.get(f"/ui/approvals/{approval}")
    assert answer.status_code == 200, answer.text
    return HtmlPage(answer.text)


def press(service: Service, form: object, button: tuple[str, str] | None = None) -> tuple[int, HtmlPage]:
    """Submit a form and follow its redirect."""
    answer = service.client.post(form.action, content=form.body(button), headers=FORM)  # type: ignore[attr-defined]
    status = answer.status_code
    if status == 303:
        answer = service.get(answer.headers["location"])
    return status, HtmlPage(answer.text)


@pytest.mark.req("GATE-2")
def test_a_form_decides_without_scripts(service: Service) -> None:
    approval, _ = service.asked()
    form = shown(service, approval).form("decide").set(reason="as agreed")
    status, page = press(service, form, ("decision", "approve"))
    assert status == 303 and "Approved by you: Refund 4200" in page.text
    assert "approved by local:ana: as agreed" in shown(service, approval).text
    body = service.get(f"/v1/approvals/{approval}").json()
    assert (body["status"], body["reason"]) == (ApprovalStatus.APPROVED, "as agreed")
    assert service.ended(body["run"])["outcome"] == "receipt-A-17-4200"


@pytest.mark.req("GATE-8")
def test_pages_show_the_call_that_was_approved_and_its_editor(service: Service) -> None:
    """The tab "Who did what" and the list showed the requested amount of an edited approval."""
    approval, tag = service.asked()
    body = {"decision": "approve", "reason": "agreed on less", "changes": {"cents": 3900}}
    assert service.post(f"/v1/approvals/{approval}/decision", body, if_match=tag).status_code == 200
    run = service.get(f"/v1/approvals/{approval}").json()["run"]
    assert service.ended(run)["outcome"] == "receipt-A-17-3900"
    made = "pay_back cents: 3900, A-17 (asked cents: 4200, edited by local:ana)"
    for path in (f"/ui/runs/{run}/people", "/ui/approvals?show=decided"):
        page = HtmlPage(service.get(path).text)
        assert made in page.text, path
    decided = next(row for row in page.text.split("ap_") if made in row)
    assert "Refund 4200" not in decided.partition(made)[0], "in the place of the request"
    page = shown(service, approval)
    approved, _, requested = page.text.partition("was asked for with these arguments, and another call was approved")
    assert "3900" in approved and "4200" in requested and approved.count("exactly these arguments") == 1


@pytest.mark.req("GATE-2")
def test_the_later_of_two_deciders_keeps_the_typed_text(service: Service) -> None:
    approval, _ = service.asked()
    first, second = shown(service, approval), shown(service, approval)
    assert press(service, first.form("decide").set(reason="no"), ("decision", "reject"))[0] == 303
    status, page = press(service, second.form("decide").set(reason="my long text"), ("decision", "approve"))
    assert status == 409 and "Rejected by local:ana" in page.text and "my long text" in page.text
    assert service.get(f"/v1/approvals/{approval}").json()["status"] == ApprovalStatus.REJECTED


@pytest.mark.req("GATE-2")
def test_a_decision_about_an_older_version_is_shown_again(service: Service) -> None:
    approval, _ = service.asked()
    page = shown(service, approval)
    assert press(service, page.form("claim") if "claim-form" in page.ids else _form_to(page, "claim"))[0] == 303
    status, again = press(service, page.form("decide").set(reason="kept"), ("decision", "approve"))
    assert status == 412 and ("reason", "kept") in again.form("decide").fields
    assert press(service, again.form("decide"), ("decision", "approve"))[0] == 303


@pytest.mark.req("GATE-2")
def test_a_decision_names_the_version_that_was_shown(service: Service) -> None:
    approval, _ = service.asked()
    form = shown(service, approval).form("decide").set(reason="any version will do", version="0")
    assert press(service, form, ("decision", "approve"))[0] == 422
    assert service.get(f"/v1/approvals/{approval}").json()["status"] == ApprovalStatus.PENDING


def _form_to(page: HtmlPage, verb: str) -> object:
    return next(each for each in page.forms if each.action.endswith(verb))


def test_changed_values_are_shown_before_they_are_approved(service: Service) -> None:
    approval, _ = service.asked()
    form = shown(service, approval).form("decide").put({"changes/cents": "100", "reason": "less"})
    status, page = press(service, form, ("decision", "approve"))
    assert status == 200 and "difference" in page.ids and "4200 100" in page.text
    assert service.get(f"/v1/approvals/{approval}").json()["status"] == ApprovalStatus.PENDING
    changed = page.form("decide").put({"changes/cents": "99"})
    status, page = press(service, changed, ("decision", "approve"))
    assert status == 200 and "4200 99" in page.text, "another change is shown again"
    assert press(service, page.form("decide"), ("decision", "approve"))[0] == 303
    run = service.get(f"/v1/approvals/{approval}").json()["run"]
    assert service.ended(run)["outcome"] == "receipt-A-17-99"


def test_wrong_values_stand_at_their_field(service: Service) -> None:
    approval, _ = service.asked()
    form = shown(service, approval).form("decide").put({"changes/cents": "many"})
    status, page = press(service, form, ("decision", "approve"))
    assert status == 422 and "Cents is not a whole number" in page.text
    status, page = press(service, page.form("decide").put({"changes/cents": "4200"}), ("decision", "reject"))
    assert status == 422 and "Reason is required" in page.text
    status, page = press(service, page.form("decide").set(reason="x"), ("decision", "again"))
    said = "Rejected by you: Refund 4200 · Nothing is called. The run goes round once more."
    assert status == 303 and said in page.text
    assert service.get(f"/v1/approvals/{approval}").json()["status"] == ApprovalStatus.AGAIN


def test_an_approval_is_claimed_and_reassigned(service: Service) -> None:
    approval, _ = service.asked()
    status, page = press(service, _form_to(shown(service, approval), "claim"))
    assert status == 303 and "Reviewer local:ana" in page.text
    form = _form_to(page, "reassign")
    status, wrong = press(service, form.put({"to": "&&", "why": "theirs"}))  # type: ignore[attr-defined]
    assert status == 422 and "was not recorded" in wrong.text
    status, page = press(service, form.put({"to": "legal & senior", "why": "theirs"}))  # type: ignore[attr-defined]
    assert status == 303 and "legal & senior" in page.text


def test_the_list_leads_to_each_approval(service: Service) -> None:
    one, _ = service.asked()
    two, _ = service.asked()
    page = HtmlPage(service.get("/ui/approvals").text)
    assert f"approval-{one}" in page.ids and f"approval-{two}" in page.ids
    detail = shown(service, two)
    assert {each["rel"] for each in detail.links if "rel" in each} <= {"prev", "next"}
    assert any("rel" in each for each in detail.links)
    empty = service.get("/ui/approvals?role=nobody")
    assert "outlast approvals ls --all" in empty.text
    for show in ("undecided", "overdue", "decided", "all"):
        assert service.get(f"/ui/approvals?show={show}").status_code == 200


HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>\u202e\u200b p\u0430ypal " + "x" * 9000


@pytest.mark.req("GATE-2")
def test_each_page_of_a_list_refreshes_and_leads_on(service: Service) -> None:
    for _ in "123":
        service.asked()
    address = "/ui/approvals?limit=1"
    for _ in "12":
        region = service.get(f"{address}&region=approvals")
        assert region.status_code == 200, address
        (more,) = re.findall('rel="next" href="([^"]*)"', region.text)
        address = unescape(more)
    assert service.get(address).status_code == 200


def test_no_argument_is_cut_folded_or_after_the_button(service: Service) -> None:
    plain, hostile = service.start("award", text="plain"), service.start("award", text=HOSTILE)
    first = shown(service, service.asked(plain)[0])
    approval, _ = service.asked(hostile)
    answer = service.get(f"/ui/approvals/{approval}")
    page = HtmlPage(answer.text)
    assert "x" * 9000 in page.text and "<script>alert" not in answer.text and "onerror=alert(2)>" not in answer.text
    assert "U+202E RIGHT-TO-LEFT OVERRIDE is invisible" in page.text and "mixes Cyrillic and Latin letters" in page.text
    table, button = answer.text.index('id="arguments"'), answer.text.index('id="approve"')
    assert table < answer.text.index("x" * 9000) < button
    assert "<details" not in answer.text[: answer.text.index("</table>")]
    rows = answer.text[table : answer.text.index("</table>")]
    at = [rows.index(f">{path}</th>") for path in ("deep.0.a", "deep.1.b.c", "text", "zero")]
    assert at == sorted(at), "in the order of the call"
    same = lambda ids: [each.replace(approval, "") for each in ids if "first" not in each]  # noqa: E731
    assert len(same(page.ids)) == len(first.ids), "a text adds no element with an id"


def test_several_people_choose_among_alternatives(service: Service) -> None:
    approval, _ = service.asked(service.start("award", text="x"))
    page = shown(service, approval)
    assert "after 2 different people approved it" in page.text and {"arguments", "arguments-1"} <= set(page.ids)
    (run,) = {each["href"] for each in page.links if each["href"].startswith("/ui/runs/")}
    ids = HtmlPage(service.get(run).text).ids
    assert f"decide-{approval}" not in ids, "the page of the run leaves the choice among calls to the approval's page"
    form = page.form("decide").put({"alternative": "1", "reason": "cheaper"})
    status, page = press(service, form, ("decision", "approve"))
    assert status == 303 and "Your vote is recorded: 1 of 2 approve. Nothing is called yet." in page.text
    page = shown(service, approval)
    assert "Votes 1 of 2" in page.text and "may not decide" in page.text
    assert not [each for each in page.forms if each.id == "decide"]
    status, page = press(service, form, ("decision", "approve"))
    assert status == 303 and "1 of 2" in page.text, "a vote that is sent twice is one vote"
    status, page = press(service, form.set(reason="again"), ("decision", "approve"))
    assert status in (409, 412) and "again" in page.text
