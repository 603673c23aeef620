"""Presence: notes between processes, and the people whom a table of open pages names."""

from hypothesis import given
from hypothesis import strategies as st

from outlast.core.presence import ASKED, PRESENCE_S, OpenPage, PresenceNote, PresenceTable, as_delta, note_of
from outlast.core.state.delta_packets import Delta, DeltaOrigin, packets, read_packet

BO = OpenPage("default", "appr_1", "bo", "p1")
texts = st.text(max_size=200)
notes = st.builds(PresenceNote, st.builds(OpenPage, texts, texts, texts, texts), st.booleans())


def people(table: PresenceTable, now: float, me: str = "ana", tenant: str = "default") -> list[str]:
    return table.people(tenant, lambda approval: approval == "appr_1", me, now).get("appr_1", [])


@given(notes)
def test_a_note_crosses_a_packet(note: PresenceNote) -> None:
    (text,) = packets([as_delta(note)], 32 * 1024, sender="one")
    packet = read_packet(text)
    assert packet is not None and [note_of(each) for each in packet.deltas] == [note]


def test_a_question_crosses_too_and_a_text_of_a_run_is_no_note() -> None:
    assert note_of(as_delta(ASKED)) == ASKED
    assert note_of(Delta(DeltaOrigin("default", "run_1", "step", 1, 1, "k", 1), '["bo", "p", true]')) is None


@given(texts.filter(bool))
def test_a_strange_text_is_no_note(text: str) -> None:
    found = note_of(Delta(DeltaOrigin("default", "", "", 0, 0, "appr_1", 0), text))
    assert found is None or found.page is not None


def test_a_page_is_forgotten_unless_it_is_announced_again() -> None:
    table = PresenceTable()
    assert table.note(PresenceNote(BO), 0)
    assert not table.note(PresenceNote(BO), 20), "nothing new"
    assert people(table, 20 + PRESENCE_S - 1) == ["bo"]
    assert people(table, 20 + PRESENCE_S) == []
    assert table.expired(20 + PRESENCE_S) == [BO] and table.expired(99) == []


def test_one_of_two_tabs_is_closed_and_other_tenants_and_oneself_are_not_named() -> None:
    table = PresenceTable()
    for page in (BO, BO._replace(page="p2"), BO._replace(person="ana", page="p3"), BO._replace(tenant="globex")):
        table.note(PresenceNote(page), 0)
    assert people(table, 1) == ["bo"] and people(table, 1, me="bo") == ["ana"] and people(table, 1, me="") != ["bo"]
    assert table.note(PresenceNote(BO, is_open=False), 1) and people(table, 1) == ["bo"]
    assert table.note(PresenceNote(BO._replace(page="p2"), is_open=False), 1) and people(table, 1) == []
    assert not table.note(PresenceNote(BO, is_open=False), 1), "it was closed before"
    assert people(table, 1, tenant="globex") == ["bo"]
