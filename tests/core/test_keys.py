"""Key templates: their grammar and rendering; two different calls never share a key by accident."""

import secrets
from enum import Enum, IntEnum, StrEnum
from typing import Annotated, Any, Literal, NewType
from uuid import UUID

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import BaseModel

from outlast.clocks import new_id
from outlast.core.keys import KeyTemplate, check_name, idempotency_key
from outlast.core.limits import KEY_BYTES_MAX
from outlast.errors import DefinitionError, InvalidInput, LimitExceeded

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NASTY = st.text(st.sampled_from("ab/:%._-~@ ,=+ä1"), max_size=6)
SupplierId = NewType("SupplierId", str)


class Color(StrEnum):
    RED = "red/1"


class Level(IntEnum):
    HIGH = 3


class Odd(Enum):
    NONE = None


class Model(BaseModel):
    id: str


def parse(text: str, **parameters: Any) -> KeyTemplate:
    return KeyTemplate.parse(text, parameters, where="flows.py:12", of='activity "invite"')


def test_renders_in_the_order_of_the_parameters() -> None:
    key = parse("invite/{supplier_id}/{round}", round=int, supplier_id=str)
    assert key.render([3, "acme"]) == "invite/acme/3"
    assert key.parameters == ("supplier_id", "round")


def test_values_are_percent_encoded() -> None:
    key = parse("a/{x}", x=str)
    assert key.render(["ä /%x~1"]) == "a/%C3%A4%20%2F%25x~1"


def test_characters_allowed_in_a_key() -> None:
    key = parse(
        "{a}/{b}/{c}/{d}/{e}/{f}", a=SupplierId, b=bool, c=Color, d=Level, e=Literal["x"], f=Annotated[int, "id"]
    )
    assert key.render(["s", True, Color.RED, Level.HIGH, "x", -7]) == "s/true/red%2F1/3/x/-7"


@pytest.mark.parametrize(
    ("text", "parameters", "message", "fix"),
    [
        ("", {"a": str}, "is empty", "business identity"),
        ("x/{b}", {"a": str}, "names {b}, which is no parameter", "a"),
        ("x/{}", {"a": str}, "a placeholder without a name", "name a parameter"),
        ("x/{0}", {"a": str}, "a placeholder without a name", "name a parameter"),
        ("x/{a.b}", {"a": str}, "looks into {a.b}", "as a parameter"),
        ("x/{a[0]}", {"a": str}, "looks into {a[0]}", "as a parameter"),
        ("x/{a:>5}", {"a": str}, "formats {a}", "write {a} alone"),
        ("x/{a!r}", {"a": str}, "formats {a}", "write {a} alone"),
        ("x/{a", {"a": str}, "cannot be read", "close every brace"),
        ("x/{{a}}", {"a": str}, "do not belong in a key", "letters"),
        ("x %/{a}", {"a": str}, "do not belong in a key", "letters"),
        ("x/{a}{b}", {"a": str, "b": str}, "nothing between {a} and {b}", "{a}/{b}"),
        ("x/{a}-{b}", {"a": str, "b": str}, "nothing between {a} and {b}", "{a}/{b}"),
        ("x/{a}", {"a": float}, "neither text, a whole number", "parameter of type str"),
        ("x/{a}", {"a": str | None}, "neither text, a whole number", "parameter of type str"),
        ("x/{a}", {"a": list[str]}, "neither text, a whole number", "parameter of type str"),
        ("x/{a}", {"a": Model}, "neither text, a whole number", "parameter of type str"),
        ("x/{a}", {"a": UUID}, "neither text, a whole number", "parameter of type str"),
        ("x/{a}", {"a": Odd}, "neither text, a whole number", "parameter of type str"),
        ("x" * 501, {}, "longer than 500", "shorter"),
    ],
)
def test_a_wrong_template_is_refused_by_file_activity_and_fix(
    text: str, parameters: dict[str, Any], message: str, fix: str
) -> None:
    with pytest.raises(DefinitionError) as error:
        KeyTemplate.parse(text, parameters, where="flows.py:12", of='activity "invite"')
    assert message in error.value.what
    assert 'of activity "invite"' in error.value.what
    assert error.value.where == "flows.py:12"
    assert "flows.py:12" in str(error.value)
    assert fix in error.value.fix


@given(st.tuples(NASTY | TEXT, NASTY | TEXT, st.integers()), st.tuples(NASTY | TEXT, NASTY | TEXT, st.integers()))
def test_two_different_calls_never_render_the_same_key(left: tuple[Any, ...], right: tuple[Any, ...]) -> None:
    assume(left != right)
    key = parse("a/{x}b-/{y}:{z}", x=str, y=str, z=int)
    assert key.render(left) != key.render(right)


@given(st.lists(NASTY, min_size=2, max_size=2), st.lists(NASTY, min_size=2, max_size=2), st.text("ab/:-.", max_size=4))
def test_no_separator_that_is_accepted_can_be_forged(left: list[str], right: list[str], between: str) -> None:
    try:
        key = parse("x{a}" + between + "{b}", a=str, b=str)
    except DefinitionError:
        assume(False)
        return
    if left != right:
        assert key.render(left) != key.render(right)


@given(TEXT)
def test_keys_are_ascii_and_bounded(text: str) -> None:
    rendered = parse("k/{a}", a=str).render([text])
    assert rendered.isascii()
    assert len(rendered) <= KEY_BYTES_MAX


def test_keys_beyond_500_bytes_and_empty_ones_are_refused() -> None:
    key = parse("{a}", a=str)
    assert key.render(["x" * 500])
    for text in ("x" * 501, "ä" * 84, ""):
        with pytest.raises(LimitExceeded, match="1 to 500 bytes"):
            key.render([text])


def test_values_that_cannot_be_written_are_refused() -> None:
    for value in ("\ud800", 1.5, None):
        with pytest.raises(InvalidInput):
            parse("{a}", a=str).render([value])


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 100, "a.", ".a", "...", "-", "x."])
def test_names(name: str) -> None:
    assert check_name("run", name) == name


@pytest.mark.parametrize("name", ["", "a b", "a/b", "ä", "x" * 101, "a\n", None, ".", ".."])
def test_bad_names_are_refused(name: Any) -> None:
    with pytest.raises(InvalidInput, match="cannot name a run"):
        check_name("run", name)


@pytest.mark.req("EFF-5")
def test_idempotency_keys_tell_tenants_runs_and_visits_apart_and_fit_a_header() -> None:
    keys = {
        idempotency_key(tenant, run, visit, key)
        for tenant in ("t", "u")
        for run in ("", "r")
        for visit in (0, 1)
        for key in ("a/1", "a%3A1", "x" * 500)
    }
    assert len(keys) == 24
    assert all(len(key) <= 255 and key.isascii() for key in keys)
    assert idempotency_key("t", "r", 2, "invite/acme/3") == "t:r:2:invite/acme/3"


@pytest.mark.parametrize("bits", [0, 2**60 - 1, 0x123456789ABCDEF, 1, 2**59])
def test_a_new_id_spells_sixty_random_bits_in_base_32(monkeypatch: pytest.MonkeyPatch, bits: int) -> None:
    asked: list[int] = []
    monkeypatch.setattr(secrets, "randbits", lambda n: asked.append(n) or bits)
    letters = "0123456789abcdefghjkmnpqrstvwxyz"
    assert new_id("run_") == "run_" + "".join(letters[bits >> at & 31] for at in range(0, 60, 5))
    assert asked == [60]
