"""Texts that wait to be sent, and their packets."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.core.state.delta_packets import (
    Delta,
    DeltaOrigin,
    Packet,
    packets,
    read_packet,
)

TEXT = st.text(max_size=6_000)
ORIGINS = st.builds(
    DeltaOrigin,
    *(st.text(st.characters(max_codepoint=0x1FFFF), max_size=20) for _ in range(3)),
    st.integers(0, 10_000),
    st.integers(0, 10_000),
    st.text(max_size=40),
    st.integers(0, 100),
)
HERE = DeltaOrigin("t", "r", "write", 1, 1, "", 0)


def joined(deltas: list[Delta]) -> dict[DeltaOrigin, str]:
    found: dict[DeltaOrigin, str] = {}
    for delta in deltas:
        found[delta.origin] = found.get(delta.origin, "") + delta.text
    return {origin: text for origin, text in found.items() if text}


@given(st.lists(st.builds(Delta, ORIGINS, TEXT), max_size=5), st.integers(2_048, 32_768))
def test_packets_are_small_and_carry_each_text_in_order(deltas: list[Delta], bytes_max: int) -> None:
    sent = packets(deltas, bytes_max, sender="w-1", to="outlast")
    assert all(len(text.encode()) <= bytes_max for text in sent)
    received = [read_packet(text) for text in sent]
    assert all(packet is not None and (packet.sender, packet.to) == ("w-1", "outlast") for packet in received)
    assert joined([each for packet in received if packet for each in packet.deltas]) == joined(deltas)


def test_the_place_of_a_delta_may_be_too_long_for_a_packet() -> None:
    assert packets([Delta(HERE._replace(key="k" * 8_000), "a"), Delta(HERE, "b")], 7_900, sender="w") == packets(
        [Delta(HERE, "b")], 7_900, sender="w"
    )


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "null", '{"sender": "w", "to": "", "deltas": [[1]]}', b"\xff", "[" * 100_000]
)
def test_text_that_is_no_packet_is_ignored(text: str | bytes) -> None:
    assert read_packet(text) is None


def test_a_delta_of_wrong_types_is_refused() -> None:
    item = ["t", "r", "n", 1, 1, "", 0, {"html": "<b>"}]
    assert read_packet(json.dumps({"sender": "w", "to": "", "deltas": [item]})) is None
    assert read_packet(json.dumps({"sender": "w", "to": "", "deltas": []})) == Packet("w", "", ())
