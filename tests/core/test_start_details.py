"""Facts that a start states: each is in the row, in the summary and in the signatures, and has a greatest length."""

import inspect
from typing import Any, get_overloads, get_type_hints

import pytest

from outlast.core.row_checks import check_row, check_run
from outlast.core.rows.run_rows import RUN, Run
from outlast.core.start_details import BY_PLACE, DECLARED, StartDetails, check_details, stated
from outlast.errors import Corrupt, InvalidInput
from outlast.models.runs import RunSummary
from outlast.runtime.client import Client
from tests.core.test_rows import RUN_ROW

each_fact = pytest.mark.parametrize("name", DECLARED.fields)


@each_fact
def test_a_fact_has_a_column_and_a_field_of_the_summary(name: str) -> None:
    assert get_type_hints(Run)[name] is str
    assert RunSummary.model_fields[name].annotation is str


def test_each_form_of_a_start_takes_the_facts_that_a_caller_states() -> None:
    """The overload for the arguments of a function has none: they would be arguments of the function."""
    asked, other = {*BY_PLACE["request"]}, {"key", "run_id", "scheduler"}
    forms = [inspect.signature(each).parameters.values() for each in (*get_overloads(Client.start), Client.start_run)]
    taken = [{each.name for each in form if each.kind is each.KEYWORD_ONLY} for form in forms]
    assert [found for found in taken if found] == [asked | other] * 4


def test_the_option_and_the_form_ask_for_facts_that_a_caller_states() -> None:
    assert {*BY_PLACE["option"], *BY_PLACE["form"]} <= {*BY_PLACE["request"]}


def test_a_caller_states_no_fact_that_the_workflow_derives() -> None:
    assert stated({"correlation_id": "c"}) == StartDetails(correlation_id="c")
    for name in ("objective", "colour"):
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
            stated({name: "x"})


@each_fact
def test_a_fact_has_its_greatest_length_at_a_start(name: str) -> None:
    field = DECLARED.fields[name]
    check_details(StartDetails(**{name: "ä" * field.chars_max}))
    with pytest.raises(InvalidInput, match=f"the {field.noun} is too long") as refused:
        check_details(StartDetails(**{name: "ä" * (field.chars_max + 1)}))
    assert str(field.chars_max) in refused.value.why


@pytest.mark.parametrize("value", [5, None, b"c", "\ud800", "a\0b"])
@each_fact
def test_a_fact_is_text_that_can_be_stored(name: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=f"the {DECLARED.fields[name].noun} is"):
        check_details(StartDetails(**{name: value}))


@each_fact
def test_a_row_keeps_the_greatest_length_unless_earlier_versions_stored_more(name: str) -> None:
    field = DECLARED.fields[name]
    longer = RUN_ROW._replace(**{name: "x" * (field.chars_max + 1)})
    check_row(RUN, RUN_ROW._replace(**{name: "x" * field.chars_max}))
    if field.stored_longer:
        check_row(RUN, longer)  # a run of an earlier version must be able to end
        return
    check_run(longer)  # a read: the run stays visible
    with pytest.raises(Corrupt, match=f"its {field.noun} has {field.chars_max + 1} characters"):
        check_row(RUN, longer)


def test_earlier_versions_stored_longer_identifiers_and_no_other_fact() -> None:
    """A new fact has its limit from its first row on."""
    assert {*DECLARED.fields} - {name for name, *_ in DECLARED.stored_bounds} == {"correlation_id", "trace_id"}
