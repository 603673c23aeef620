"""Causes: which messages are alike, and which columns of a run follow from its attention."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.core.causes import (
    CAUSES_MAX,
    FORM_CHARS_MAX,
    cause_of,
    causes_in,
    flags_of,
    name_in,
    normal_form,
    with_causes,
)
from outlast.core.machine import Reason
from outlast.core.rows.run_columns import ATTENTION, Attention
from tests.core.drive import Drive

FORMS = (
    ("", ""),
    ("KeyError: 'eu'", "KeyError: ◇"),
    ('KeyError: "eu"', "KeyError: ◇"),
    ("ValueError: invalid literal for int() with base 10: 'x7'", "ValueError: invalid literal for int() with base ◇"),
    ("no rate for `EUR`", "no rate for ◇"),
    ("no rate for “EUR” today", "no rate for ◇ today"),
    ("no rate for «EUR» today", "no rate for ◇ today"),
    ("can't reach the bank's server", "can't reach the bank's server"),
    ("it's 'eu', isn't it", "it's ◇, isn't it"),
    ('said "she \\"won\\"" twice', "said ◇ twice"),
    ("unclosed 'quote to the end", "unclosed ◇"),
    ("timeout after 30 s", "timeout after ◇ s"),
    ("timeout after 30.5s", "timeout after ◇"),
    ("balance is -12.50 EUR.", "balance is ◇ EUR."),
    ("costs $5!", "costs ◇!"),
    ("HTTP 503: Service Unavailable", "HTTP ◇: Service Unavailable"),
    ("HTTP 404: Service Unavailable", "HTTP ◇: Service Unavailable"),
    ("order A-1017 is closed", "order ◇ is closed"),
    ("customer=acme42, tier=gold", "customer=◇, tier=gold"),
    ("run r1 is 170 h old", "run ◇ is ◇ h old"),
    ("ids 1, 2, 3 and 4", "ids ◇ and ◇"),
    ("ids 1 and 4", "ids ◇ and ◇"),
    ("3f2504e0-4f89-11d3-9a0c-0305e82c3301 is gone", "◇ is gone"),
    ("commit deadbeef is gone", "commit ◇ is gone"),
    ("object at 0x7f3a2c is gone", "object at ◇ is gone"),
    ("sha256:9f86d081884c7d659a2feaa0c55ad015 differs", "◇ differs"),
    ("token AbCdEfGhIjKlMnOpQrStUvWxYzAbCdEfGhIjKlMnOp refused", "token ◇ refused"),
    (
        "aiohttp.client_exceptions.ClientConnectorCertificateError",
        "aiohttp.client_exceptions.ClientConnectorCertificateError",
    ),
    ("at 2026-11-30 it failed", "at ◇ it failed"),
    ("at 2026-11-30T22:28:01.123Z it failed", "at ◇ it failed"),
    ("at 2026-11-30 22:28:01+02:00 it failed", "at ◇ it failed"),
    ("at 22:28 it failed", "at ◇ it failed"),
    ("on 30/11/2026 it failed", "on ◇ it failed"),
    ("no file /var/lib/orders/new.csv", "no file ◇"),
    ("no file /etc/passwd: permission denied", "no file ◇: permission denied"),
    ("no file ~/orders.csv here", "no file ◇ here"),
    ("no file ./a/b.csv here", "no file ◇ here"),
    ("no file C:\\Users\\ana\\x.csv here", "no file ◇ here"),
    ("read and/or write", "read and/or write"),
    ("POST https://api.example.com/v1/charges?id=9 failed", "POST ◇ failed"),
    ("dsn postgres://ana:pw@db/x failed", "dsn ◇ failed"),
    ("mail to ana@example.com bounced", "mail to ◇ bounced"),
    ("host 10.0.0.7:5432 refused", "host ◇ refused"),
    ("host fe80::1%eth0 refused", "host ◇ refused"),
    ("[Errno 111] Connection refused", "◇ Connection refused"),
    ('got {"a": 1, "b": [2, {"c": 3}]} instead', "got ◇ instead"),
    ("got {'a': 1} instead", "got ◇ instead"),
    ("got [1, 2, 3] instead", "got ◇ instead"),
    ('cut off {"a": [1, 2', "cut off ◇"),
    ("keys {a: {b: {c: d}}} and more", "keys ◇ and more"),
    ("1 validation error for Order\nfield\n  missing", "◇ validation error for Order"),
    ("\n\n  second line first\nx", "second line first"),
    ("العميل غير موجود", "◇"),
    ("customer العميل غير is gone", "customer ◇ is gone"),
    ("客户 42 不存在", "◇"),
    ("клиент not found", "◇ not found"),
    ("Kündigung für Größe fehlt", "Kündigung für Größe fehlt"),
    ("tab\tand   spaces", "tab and spaces"),
    ("bidi \u202egnp.exe\u202c end", "bidi ◇gnp.exe◇ end"),
    ("emoji 🙂 here", "emoji ◇ here"),
    ("pay/7 is recorded for pay", "◇ is recorded for pay"),
    ("used 105 of 100 tokens", "used ◇ of ◇ tokens"),
)


@pytest.mark.parametrize(("message", "form"), FORMS, ids=[message[:40] for message, _ in FORMS])
def test_the_normal_form_of_a_message(message: str, form: str) -> None:
    assert normal_form(message) == form


def test_the_table_has_sixty_messages() -> None:
    assert len(FORMS) >= 60 and len({message for message, _ in FORMS}) == len(FORMS)


@given(st.text(max_size=400))
def test_a_normal_form_is_short_and_on_one_line(message: str) -> None:
    form = normal_form(message)
    assert len(form) <= FORM_CHARS_MAX and len(form.splitlines()) <= 1
    assert not any(each.isdigit() for each in form)


@pytest.mark.parametrize("part", ["'", '"a', "{", "[[{", "a/", "◇ ", "1:", "http://", "\\", "é", "'\\", "-", "a@"])
def test_a_long_message_takes_no_long_time(part: str) -> None:
    normal_form(part * 100_000)


def test_a_cause_names_reason_workflow_node_and_name() -> None:
    base = ("exception", "refund", "pay", "KeyError", "KeyError: 'eu'")
    same = cause_of(*base[:4], "KeyError: 'us'")
    assert cause_of(*base) == same and len(same) == 12
    others = {cause_of(*base[:n], "other", *base[n + 1 :]) for n in range(5)}
    assert len(others) == 5 and same not in others


def test_the_type_of_an_exception_is_its_name() -> None:
    found = [name_in(text) for text in ("KeyError: 'eu'", "Timeout", "no rate: x", "The bank: x y", "It is: 3", "")]
    assert found == ["KeyError", "Timeout", "", "", "", ""]


def test_entries_get_a_cause_and_columns_follow_from_them() -> None:
    run = Drive().start().claim().run
    first = Attention(Reason.EXCEPTION, 7, "KeyError: 'eu'\ntrace")
    lost = Attention(Reason.EFFECT_UNCERTAIN, 5, "timeout: no answer", "pay/1", 1, name="pay")
    entries = with_causes(run, [first, lost])
    assert [each.name for each in entries] == ["KeyError", "pay"]
    flags = flags_of(ATTENTION.encode(entries))
    assert {(each.reason, each.cause) for each in causes_in(flags.causes)} == {
        (each.reason.value, each.cause) for each in entries
    }
    assert (flags.flagged_at, flags.flagged_until) == (5, 0)
    assert with_causes(run, entries) == entries, "an entry keeps its cause"


def test_a_run_tells_few_causes_apart() -> None:
    run = Drive().start().claim().run
    lost = [Attention(Reason.EFFECT_UNCERTAIN, 5, "lost", f"k/{n}", 1, name=f"pay{n:x}") for n in range(40)]
    entries = with_causes(run, lost)
    assert len({each.cause for each in entries}) == CAUSES_MAX + 1
    assert len(flags_of(ATTENTION.encode(entries)).causes.encode()) < 1_000, "a key of an index holds them"


def test_an_entry_of_an_earlier_version_has_its_reason_as_cause() -> None:
    flags = flags_of(ATTENTION.encode([Attention(Reason.EXCEPTION, 7, "it broke")]))
    assert flags.causes == " exception/exception "
