"""Facts of a webhook: each is in the row, in the summary and in the signatures, and has a greatest length."""

import inspect
from typing import Any, get_type_hints

import pytest

from outlast.core.commit import Instant
from outlast.core.detail_fields import DetailField, declared_facts
from outlast.core.row_checks import WRONG, check_row, wrong_details
from outlast.core.rows.outbox_rows import SUBSCRIPTION, Subscription
from outlast.core.webhooks.deliveries import subscribe
from outlast.core.webhooks.webhook_details import (
    WEBHOOK_DETAILS,
    SubscriptionTerms,
    WebhookDetails,
    check_webhook_details,
)
from outlast.errors import Corrupt, InvalidInput
from outlast.models.webhooks import WebhookSummary
from outlast.runtime.webhook_client import WebhookClient

each_fact = pytest.mark.parametrize("name", WEBHOOK_DETAILS.fields)
ROW = subscribe("t", "wh_1", SubscriptionTerms("https://a.example/"), secret="k", since=0, by="a", now=Instant(1, 1, 0))


@each_fact
def test_a_fact_has_a_column_a_field_of_the_summary_and_keywords(name: str) -> None:
    assert get_type_hints(Subscription)[name] is str
    assert WebhookSummary.model_fields[name].annotation is str
    for method in (WebhookClient.add, WebhookClient.notify):
        parameter = inspect.signature(method).parameters[name]
        assert (parameter.kind, parameter.default) == (parameter.KEYWORD_ONLY, "")


@each_fact
def test_a_new_row_has_each_fact(name: str) -> None:
    terms = SubscriptionTerms("https://a.example/", WebhookDetails(**{name: "given"}))
    row = subscribe("t", "wh_1", terms, secret="k", since=0, by="a", now=Instant(1, 1, 0))
    assert getattr(row, name) == "given"
    assert WEBHOOK_DETAILS.shown_in(row)[name] == "given"


@each_fact
def test_a_fact_has_its_greatest_length(name: str) -> None:
    field = WEBHOOK_DETAILS.fields[name]
    check_webhook_details(WebhookDetails(**{name: "ä" * field.chars_max}))
    with pytest.raises(InvalidInput, match=f"the {field.noun} is too long") as refused:
        check_webhook_details(WebhookDetails(**{name: "ä" * (field.chars_max + 1)}))
    assert str(field.chars_max) in refused.value.why


@pytest.mark.parametrize("value", [5, None, b"c", "\ud800", "a\0b"])
@each_fact
def test_a_fact_is_text_that_can_be_stored(name: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=f"the {WEBHOOK_DETAILS.fields[name].noun} is"):
        check_webhook_details(WebhookDetails(**{name: value}))


@each_fact
def test_a_row_keeps_the_greatest_length_unless_earlier_versions_stored_more(name: str) -> None:
    field = WEBHOOK_DETAILS.fields[name]
    longer = ROW._replace(**{name: "x" * (field.chars_max + 1)})
    check_row(SUBSCRIPTION, ROW._replace(**{name: "x" * field.chars_max}))
    if field.stored_longer:
        check_row(SUBSCRIPTION, longer)  # a webhook of an earlier version must stay usable
        return
    with pytest.raises(Corrupt, match=f"its {field.noun} has {field.chars_max + 1} characters"):
        check_row(SUBSCRIPTION, longer)


def test_a_name_is_the_only_fact_of_which_earlier_versions_stored_more() -> None:
    """A new fact has its limit from its first row on."""
    assert {*WEBHOOK_DETAILS.fields} - {name for name, *_ in WEBHOOK_DETAILS.stored_bounds} == {"name"}


def test_the_check_of_rows_reads_the_facts_of_a_webhook() -> None:
    """The bound is planted, because no present fact has one."""
    check: Any = WRONG[SUBSCRIPTION.name]
    assert check.keywords == {"bounds": WEBHOOK_DETAILS.stored_bounds}
    long = ROW._replace(name="x" * 9)
    assert wrong_details(long, (("name", "name", 8),)) == "its name has 9 characters"
    assert wrong_details(long, (("name", "name", 9),)) == ""


def test_a_place_has_the_facts_that_name_it() -> None:
    """The declarations are planted."""
    declared = declared_facts(WebhookDetails)
    field = DetailField("team", 5)
    assert field.places == tuple(declared.by_place) and field.title == "Team"
    for place, fields in declared.by_place.items():
        assert [*fields] == [name for name, each in declared.fields.items() if place in each.places]
