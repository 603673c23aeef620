"""Messages to approvers as values: whom a rule concerns, when a reminder is due, and texts that do nothing."""

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from outlast.core.durations import DAY, HOUR, MINUTE
from outlast.core.machine import ApprovalStatus, Reason
from outlast.core.rows.approval_columns import PLANS, VOTES, ApprovalVote, OfferedCall, PlanChange
from outlast.core.rows.effect_rows import Approval
from outlast.core.rows.run_columns import ATTENTION, Attention
from outlast.core.webhooks import approval_notices as notices
from outlast.core.webhooks.approval_notices import ASKED, ESCALATED, REMINDER, Notice
from tests.conformance.subject import run_row

T0 = 1_700_000_000_000


def approval(**given: object) -> Approval:
    """Return a pending approval with these changes."""
    row = Approval(
        tenant="t", run="r", id="ap_1", version=1, status=ApprovalStatus.PENDING, visit=1, wait="a",
        plans_text=PLANS.encode(()), summary="Buy", risk="", again=0, quorum=1, not_requester=0, editable_text="",
        who="finance", requested_by="bo", asked_at=T0, within_until=T0 + 96 * HOUR, valid_ms=HOUR, decided_at=0,
        decided_by="", claims_text="", reason="", chosen="", valid_until=0, consumed_by="",
    )  # fmt: skip
    return row._replace(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("audience", "who", "told"),
    [
        ("role:finance", "finance", True),
        ("role:finance", "legal | finance & lead", True),
        ("role:finance", "finances", False),
        ("role:finance", "person:finance", False),
        ("person:ana", "person:ana", True),
        ("person:local:ana", "lead & person:ana", True),
        ("person:ana", "ana", False),
        ("*", "anything", True),
    ],
)
def test_the_rule_says_who_is_told(audience: str, who: str, told: bool) -> None:
    assert notices.concerns(audience, approval(who=who)) is told


@pytest.mark.parametrize(
    ("within", "left"),
    [(96 * HOUR, DAY), (30 * DAY, DAY), (4 * HOUR, HOUR), (10 * MINUTE, 5 * MINUTE), (5 * MINUTE, None), (1, None)],
)
def test_a_reminder_comes_when_a_quarter_of_the_time_is_left(within: int, left: int | None) -> None:
    assert notices.remind_at(approval(within_until=T0 + within)) == (None if left is None else T0 + within - left)


def test_a_reminder_names_the_call_that_a_vote_has_changed() -> None:
    """The second approver was reminded of the amount that the first one had replaced."""
    asked = OfferedCall("pay", "pay/1", "d0", '{"cents":4200}')
    changed = OfferedCall("pay", "pay/1", "d1", '{"cents":3900}', PlanChange(0, "ana", T0, '{"cents":3900}'))
    vote = ApprovalVote("ana", ("finance",), "d1", "less", T0, "finance")
    plans = PLANS.encode((asked, changed))
    row = approval(quorum=2, plans_text=plans, summary="Pay 4200", votes_text=VOTES.encode((vote,)))
    text = notices.write(Notice(REMINDER, (row,)), T0, "")
    for part in (text.title, text.body):
        assert "3900" in part and "4200" not in part
    assert "edited by ana" in text.body
    untouched = notices.write(Notice(REMINDER, (row._replace(votes_text=""),)), T0, "")
    assert "Pay 4200" in untouched.title


@given(st.integers(1, 400 * DAY))
def test_a_reminder_lies_between_request_and_deadline(within: int) -> None:
    at = notices.remind_at(approval(within_until=T0 + within))
    assert at is None or T0 < at <= T0 + within - 5 * MINUTE


def test_the_key_names_kind_and_approvals() -> None:
    key = Notice(REMINDER, (approval(), approval(id="ap_2"))).key
    assert key == "reminder:ap_1,ap_2" and notices.announced_in(key) == ("reminder", {"ap_1", "ap_2"})


def test_of_several_approvals_those_still_open_are_told() -> None:
    rows = [approval(), approval(id="ap_2", status=ApprovalStatus.APPROVED), approval(id="ap_3", who="legal")]
    found = notices.still_open(REMINDER, "reminder:ap_1,ap_2,ap_3", "role:finance", rows, None)
    assert found.approvals == (), "its run was purged"
    assert notices.why_not("reminder:ap_2", rows) == "not sent: ap_2 is approved"


def test_what_waits_is_what_an_audience_has_not_received() -> None:
    run = run_row()
    timeout = Attention(Reason.APPROVAL_TIMEOUT, T0 + 7, "not decided")
    flagged = run._replace(attention_text=ATTENTION.encode((timeout,)))
    asked_for = [
        (approval(id="ap_new"), run),
        (approval(id="ap_told"), run),
        (approval(id="ap_due", within_until=T0 + 4 * HOUR), run),
        (approval(id="ap_reminded", within_until=T0 + 4 * HOUR), run),
        (approval(id="ap_of_others", who="legal"), run),
        (approval(id="ap_decided", status=ApprovalStatus.APPROVED), run),
        (approval(id="ap_ended"), run._replace(ended_at=T0)),
        (approval(id="ap_purged"), None),
        (approval(id="ap_expired", status=ApprovalStatus.EXPIRED), run),
        (approval(id="ap_over", status=ApprovalStatus.EXPIRED, within_until=T0 + 7), flagged),
        (approval(id="ap_over_told", status=ApprovalStatus.EXPIRED, within_until=T0 + 7), flagged),
    ]
    earlier = ["asked:ap_told,ap_due", "asked:ap_reminded", "reminder:ap_reminded", "escalated:ap_over_told"]
    found = notices.waiting("role:finance", notices.KINDS, asked_for, earlier, T0 + 200 * MINUTE)
    assert found == {(ASKED, "ap_new"), (REMINDER, "ap_due"), (ESCALATED, "ap_over")}
    assert notices.waiting("role:finance", (ESCALATED,), asked_for, earlier, T0 + 200 * MINUTE) == {
        (ESCALATED, "ap_over")
    }


def test_a_message_that_takes_the_place_of_others_says_how_many() -> None:
    one, many = "1 more item waits: outlast approvals ls", "40 more items wait: outlast approvals ls"
    for more, said in ((0, []), (1, [one]), (40, [many])):
        written = notices.write(Notice(ASKED, (approval(),)), T0, "", more)
        assert [line for line in written.body.splitlines() if "more item" in line] == said
        assert written.body.endswith("(asked:ap_1)")


HOSTILE = (
    "<!channel> @here <@U123> &lt;script&gt;", "[Approve](https://evil.example)", "click evil.example/approve now",
    "a\r\nBcc: x@y\0\x1b[31m", "\u202eexe.gnp\u2066\ufeff\u200b", "www.evil.example mailto:a@b", "`rm -rf`|x|",
    "x" * 100_000, "*bold* **strong** _it_ ~gone~ ~~gone~~ \\*a\\*", "- item", "1. item", "# heading",
    "{{DATE(x, SHORT)}} &#8238;exe.gnp &lt;at&gt;",
)  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_inert_in_a_message(text: str) -> None:
    for kind in (ASKED, REMINDER, ESCALATED):
        row = approval(summary=text, who='person:"<!here> @x"', run=text[:50])
        written = notices.write(Notice(kind, (row,)), T0, "https://outlast.example.com/base/")
        page = "https://outlast.example.com/base/ui/approvals/ap_1"
        assert written.body.count(page) == 1 and len(written.title) + len(written.body) < 1_000
        rest = written.title + " " + written.body.replace(page, "").replace("\n", " ")
        assert not set("<>@[]`|*~\\") & set(rest)
        assert plain(notices.inert_text(text)) and plain(rest)
        assert not [c for c in rest if unicodedata.category(c)[0] == "C"]
        assert not re.search(r"\w://|\bwww\.\w|mailto:\w|\w\.\w+/", rest)


DOMAINS = (
    "evil.com", "pay.evil.co.uk?x=1", "www.evil.com", "evil.museum", "mailto:ana@evil.com", "web24.de:8080", "EVIL.COM",
    "evil.\u0440\u0444", "evil.xn--p1ai", "evil\u3002com", "evil\uff0ecom", "evil\uff61com", "a-.com", "a_.com",
    "(evil.com)", "see:evil.com,", "evil.pdf.com", "x.pdf-evil.com", "cafe\u0301.com", "evil.zip", "evil.docs",
    "end.Next", "https://evil.com/a.b", "ana.smith@corp.evil.com",
)  # fmt: skip


@pytest.mark.parametrize("text", DOMAINS)
def test_a_domain_name_makes_no_link(text: str) -> None:
    for shown in (notices.inert_text(text), notices.inert_text(f"Pay {text} now")):
        assert not re.search(r"\S[.\u3002\uff0e\uff61][^\W\d_]{2}", shown), shown
        assert shown.replace("(", "").replace(")", "").replace("\uff20", "@").replace("\uff3f", "_") in (
            text.replace("(", "").replace(")", ""), f"Pay {text} now".replace("(", "").replace(")", ""),
        ), "all of it is still shown"  # fmt: skip


def test_an_ipv4_address_makes_no_link() -> None:
    assert notices.inert_text("see 1.2.3.4/x, v1.2.3, 12.05.2026") == "see 1(.)2(.)3(.)4/x, v1.2.3, 12.05.2026"


@given(st.text("ab1.\u3002-_/:@ ", max_size=40))
def test_no_text_keeps_a_dot_before_a_label(text: str) -> None:
    assert not re.search(r"\S[.\u3002][^\W\d_]{2}", notices.inert_text(text))


def plain(text: str) -> bool:
    """Return True if a text has no markup of Markdown, which the cards of Teams use, and no function of cards."""
    blocks = MarkdownIt("commonmark").parse(text)
    kinds = [token.type for block in blocks for token in block.children or [block]]
    same = "".join(token.content for block in blocks for token in block.children or ()) == text
    return same and set(kinds) <= {"paragraph_open", "text", "paragraph_close"} and "{{" not in text


@given(st.text(max_size=2_000) | st.text("*_~-+#1.)&{}; a\\:/", max_size=40))
def test_any_text_is_one_bounded_line_without_markup(text: str) -> None:
    shown = notices.inert_text(text)
    assert len(shown) <= notices.ASKS_CHARS_MAX and shown.isprintable() and "@" not in shown
    assert plain(shown)


def test_ordinary_signs_stay() -> None:
    text = "Pay order_4711 to A & B (net 30) for 2 - 1 = 1, 50.5% of #7 {a: b}; see invoice.pdf"
    assert notices.inert_text(text) == text


def test_many_approvals_make_one_message_of_bounded_size() -> None:
    rows = tuple(approval(id=f"ap_{n}", summary="y" * 500) for n in range(300))
    written = notices.write(Notice(ASKED, rows), T0, "")
    assert len(written.body) < 4_000 and written.title.endswith("(and 299 more)")
    assert "295 more: outlast approvals ls" in written.body
