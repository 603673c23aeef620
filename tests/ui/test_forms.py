"""Forms from JSON Schema: a shown value is read back unchanged, and each problem is at its field."""

import html
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Literal
from urllib.parse import parse_qsl

import pytest
from pydantic import BaseModel, Field

from outlast.ui.forms import FormField, SchemaForm, sent_form, shown_form
from outlast.ui.page_route import Form
from outlast.ui.rendering import environment
from tests.ui.html_page import HtmlPage


class Item(BaseModel):
    sku: str
    count: int = 1


class Buyer(BaseModel):
    name: str
    mail: str | None = None


class Order(BaseModel):
    number: str = Field(description="As the shop prints it")
    amount: Decimal
    share: float = 0.5
    size: int = Field(ge=1, le=9)
    way: Literal["air", "sea"]
    mood: Literal["a", "b", "c", "d", "e"] = "a"
    urgent: bool = False
    fragile: bool | None = None
    note: str = Field("", max_length=4000)
    day: date
    at: datetime
    items: list[Item] = []
    tags: list[str] = []
    buyer: Buyer | None = None
    more: dict[str, Any] = {}


SCHEMA = Order.model_json_schema()
VALUE: dict[str, Any] = {
    "number": "A-17", "amount": "12.50", "share": 0.25, "size": 3, "way": "sea", "mood": "e", "urgent": True,
    "fragile": None, "note": "\n one\ntwo ", "day": "2026-11-23", "at": "2026-11-23T17:30:00+02:00",
    "items": [{"sku": "x", "count": 2}, {"sku": " y", "count": 1}], "tags": ["<b>", "q\"'"],
    "buyer": {"name": "Ana", "mail": None}, "more": {"deep": [1, {"a": None}]},
}  # fmt: skip


def rendered(form: SchemaForm) -> str:
    template = environment().get_template("forms.html")
    return str(template.make_module({}).fields(form))  # type: ignore[attr-defined]


def submitted(page: str) -> Form:
    """Return the form that a browser sends for the controls of a page."""
    (form,) = HtmlPage(f"<form>{page}</form>").forms
    return Form(parse_qsl(form.body(), keep_blank_values=True))


def field(form: SchemaForm, path: str) -> FormField:
    return next(each for each in form.root.all() if each.path == path)


def with_changes(form: Form, **changes: str) -> Form:
    names = {name.replace("__", "/"): value for name, value in changes.items()}
    kept = [(key, value) for key, value in form.fields if key not in {f"input/{name}" for name in names}]
    return Form([*kept, *((f"input/{name}", value) for name, value in names.items() if value)])


def test_what_is_shown_is_read_back_unchanged() -> None:
    shown = shown_form(SCHEMA, VALUE)
    read = sent_form(SCHEMA, submitted(rendered(shown)))
    assert read.problems == ()
    assert read.value == VALUE == shown.value
    Order.model_validate(read.value)


def test_each_kind_of_schema_has_its_field() -> None:
    kinds = {each.path: each.kind for each in shown_form(SCHEMA, VALUE).fields}
    assert kinds == {
        "number": "text", "amount": "decimal", "share": "number", "size": "whole", "way": "choice", "mood": "choice",
        "urgent": "yes_no", "fragile": "choice", "note": "long", "day": "date", "at": "instant", "items": "rows",
        "tags": "rows", "buyer": "group", "more": "json",
    }  # fmt: skip
    page = rendered(shown_form(SCHEMA, VALUE))
    assert page.count('type="radio"') == 2 + 3, "up to four choices are buttons"
    assert "<select" in page and "1 to 9" in page and "As the shop prints it" in page
    assert "&lt;b&gt;" in page and "<b>" not in page


def test_an_empty_form_names_each_required_field() -> None:
    shown = shown_form(SCHEMA)
    assert shown.problems == (), "nothing is wrong before anything is sent"
    read = sent_form(SCHEMA, submitted(rendered(shown)))
    assert [(label, text) for _, label, text in read.problems] == [
        (label, "is required") for label in ("Amount", "Size", "Way", "Day", "At")
    ]
    assert read.value == {
        "number": "", "share": 0.5, "mood": "a", "urgent": False, "fragile": None, "items": [], "tags": [],
        "buyer": None, "more": {},
    }  # fmt: skip
    page = rendered(read)
    for id_, _, _ in read.problems:
        assert f'id="{id_}"' in page and f'id="{id_}-e"' in page and f'{id_}-e"' in page
    assert page.count('aria-invalid="true"') == 5


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("amount", "12,50", "is not a decimal number, e.g. 12.50"),
        ("size", "3.0", "is not a whole number"),
        ("share", "NaN", "is not a number, e.g. 12.5"),
        ("way", "rail", "is not one of the choices"),
        ("day", "2026-02-30", "is not a date, e.g. 2026-11-23"),
        ("at", "yesterday", "is not a date and time, e.g. 2026-11-23T17:30"),
        ("at__zone", "Mars/Base", "Mars/Base is not a zone, e.g. UTC, +02:00 or Europe/Berlin"),
        ("more", "{", "is not JSON"),
        ("more", '{"a": NaN}', "is not JSON: NaN is not JSON"),
    ],
)
def test_a_wrong_text_is_kept_with_its_problem(name: str, text: str, problem: str) -> None:
    good = submitted(rendered(shown_form(SCHEMA, VALUE)))
    read = sent_form(SCHEMA, with_changes(good, **{name: text}))
    ((_, _, said),) = read.problems
    assert said.startswith(problem)
    assert text in html.unescape(rendered(read)) or name == "way", "the input is kept"


def test_an_instant_has_the_offset_of_its_zone() -> None:
    good = submitted(rendered(shown_form(SCHEMA, VALUE)))
    berlin = with_changes(good, at="2026-07-01T09:00", at__zone="Europe/Berlin")
    assert sent_form(SCHEMA, berlin).value["at"] == "2026-07-01T09:00:00+02:00"
    twice = sent_form(SCHEMA, with_changes(good, at="2026-10-25T02:30", at__zone="Europe/Berlin"))
    assert "twice or never" in twice.problems[0][2]


def test_rows_are_added_and_removed_without_a_script() -> None:
    good = submitted(rendered(shown_form(SCHEMA, VALUE)))
    more = sent_form(SCHEMA, Form([*good.fields, ("row", "add:input/items")]))
    assert more.rows_changed and more.problems == () and len(field(more, "items").inside) == 3
    less = sent_form(SCHEMA, Form([*submitted(rendered(more)).fields, ("row", "remove:input/items/0")]))
    assert [each["sku"] for each in less.value["items"]] == [" y", ""]
    again = sent_form(SCHEMA, submitted(rendered(less)))
    assert not again.rows_changed and again.value["items"] == [{"sku": " y", "count": 1}, {"sku": "", "count": 1}]


def test_a_group_is_left_out_unless_it_is_given() -> None:
    form = submitted(rendered(shown_form(SCHEMA, {**VALUE, "buyer": None})))
    assert sent_form(SCHEMA, form).value["buyer"] is None
    given = sent_form(SCHEMA, Form([*form.fields, ("input/buyer/?", "on"), ("input/buyer/name", "Bo")]))
    assert given.value["buyer"]["name"] in ("", "Bo") and "mail" in given.value["buyer"]


@pytest.mark.parametrize(
    "value", ["carriage\rreturn", "nul\x00", "lone \ud800", 17, {"unknown": 1}, [1, 2], ["x"] * 101, True, 1.5]
)
def test_a_value_that_a_field_would_alter_is_json(value: Any) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    shown = shown_form(schema, {"a": value})
    assert shown.fields[0].kind == "json"
    page = rendered(shown)
    page.encode()
    assert sent_form(schema, submitted(page)).value == {"a": value}


def test_problems_of_the_server_stand_at_their_fields() -> None:
    shown = shown_form(SCHEMA, VALUE)
    form = shown.with_problems(
        [("input.items.1.count", "is too many"), ("input.buyer.mail.str", "is no mail"), ("(the whole)", "is odd")],
        under="input",
    )
    assert field(form, "items.1.count").problems == ("is too many",)
    assert field(form, "buyer.mail").problems == ("buyer.mail.str: is no mail",)
    assert form.general == ("(the whole): is odd",)


def test_a_schema_without_fields_is_one_field_of_json() -> None:
    for schema in ({}, {"$ref": "#/$defs/Gone"}, {"type": "object", "additionalProperties": {"type": "string"}}):
        form = shown_form(schema, {"a": "b"})
        assert [each.kind for each in form.fields] == ["json"]
        assert sent_form(schema, submitted(rendered(form))).value == {"a": "b"}


def test_a_recursive_schema_ends_in_json() -> None:
    schema = {
        "$ref": "#/$defs/Node",
        "$defs": {"Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}, "required": ["next"]}},
    }
    kinds = [each.kind for each in shown_form(schema).root.all()]
    assert kinds[-1] == "json" and len(kinds) == 6


def test_names_with_separators_stay_apart() -> None:
    schema = {"type": "object", "properties": {n: {"type": "string"} for n in ("a/b", "a~1b", "a.b", "é<")}}
    value = {name: name for name in schema["properties"]}  # type: ignore[attr-defined]
    form = shown_form(schema, value)
    assert len({each.id for each in form.fields}) == 4
    assert sent_form(schema, submitted(rendered(form))).value == value
