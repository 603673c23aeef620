"""Answers that people state about calls: checked against the type of the activity before they are recorded.

The code of the run's own version checks an answer if it is loaded. Otherwise the schema does that the workers of that
version have stored. A schema knows no validators, so the worker that gives the answer to the run loads it once more.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from outlast.core.json_schema import is_null_only, problems_by_schema, type_named
from outlast.core.limits import RESPONSE_BYTES_MAX
from outlast.core.rows.effect_rows import Effect
from outlast.core.value_problems import problems_of
from outlast.errors import InvalidInput, LimitExceeded, OutlastError
from outlast.flow.workflow import Workflow

AnswerSchemas = Mapping[str, Mapping[str, Any]]
"""Schema of the answer of each activity. An empty schema allows any value."""


def answer_schemas(structure: Mapping[str, Any]) -> AnswerSchemas:
    """Return the answer schemas in the stored structure of a workflow, those that it has."""
    activities = structure.get("activities", {})
    return {name: each["answer"] for name, each in activities.items() if isinstance(each.get("answer"), dict)}


class AskedEffect(NamedTuple):
    """Facts of an effect that a person may answer. `returns`: from `returns_text`; `is_over`: its run has ended."""

    returns: str
    is_over: bool


def returns_text(schema: Mapping[str, Any] | None) -> str:
    """Return the type of the return value that a call that happened needs, in words; '' if its type is None."""
    if schema is None:
        return "a value"
    return "" if is_null_only(schema) else type_named(schema)


def encoder_of(
    workflow: Workflow[Any] | None, schemas: AnswerSchemas, lane: str, response: Any
) -> Callable[[Effect], bytes]:
    """Return a function that checks a response for an effect and returns it as JSON.

    `workflow` is the code of the run's version, if it is loaded. The function raises InvalidInput, LimitExceeded.
    """

    def encode(effect: Effect) -> bytes:
        plain = _as_json(effect, response)
        if workflow is not None and effect.activity in workflow.activities:
            codec = workflow.activity(effect.activity).response_codec
            try:
                return bytes(codec.dump(codec.admit(plain)))  # from JSON: a string is a value and not a document
            except InvalidInput as error:
                raise _invalid(effect, response, error.problems) from error
            except OutlastError:
                raise
            except Exception as error:  # a validator of the author may raise anything
                raise _invalid(effect, response, problems_of(error)) from error
        schema = schemas.get(effect.activity)
        if schema is None:
            raise InvalidInput(
                f"the answer of activity {effect.activity} cannot be checked",
                f"the store has no schema of what it returns in {lane}",
                "add --module MODULE, or let a worker or service with that code serve this store",
            )
        if problems := problems_by_schema(schema, json.loads(plain)):
            raise _invalid(effect, response, problems)
        return plain.encode()

    return encode


def _as_json(effect: Effect, response: Any) -> str:
    try:
        plain = json.dumps(response, ensure_ascii=False, allow_nan=False)
        size = len(plain.encode())
    except (ValueError, TypeError, RecursionError) as error:  # NaN, half a surrogate pair, no data
        raise InvalidInput(
            f"the answer of activity {effect.activity} is not JSON", str(error), "state it as the activity returns it"
        ) from None
    if size > RESPONSE_BYTES_MAX:
        raise LimitExceeded(
            f"the answer of activity {effect.activity} is too large",
            f"it takes {size:,} bytes, the limit is {RESPONSE_BYTES_MAX:,}",
            "keep large values elsewhere (file, object store) and state their address",
        )
    return plain


def _invalid(effect: Effect, response: Any, problems: Any) -> InvalidInput:
    named = "--response JSON" if response is None else "state what the call returns, as JSON"
    error = InvalidInput(f"the answer of activity {effect.activity} is not valid", problems=problems)
    error.fix = f"{named}: the return value of the call" if response is None else named
    return error
