"""Models of the bodies of requests, made of the fields of their declarations."""

from dataclasses import MISSING
from functools import cache
from typing import Any

from pydantic import create_model
from pydantic.fields import FieldInfo

from outlast.models import RequestBody
from outlast.operations.declaration import Operation, sent_fields


@cache
def body_of(operation: Operation[Any, Any]) -> type[RequestBody]:
    """Return the model of an operation's body."""
    if operation.body is not None:
        return operation.body
    found: dict[str, Any] = {}
    for each in sent_fields(operation):
        if each.kind != "body":
            continue
        if FieldInfo.from_annotation(each.type).is_required():
            found[each.name] = (each.type, ... if each.default is MISSING else each.default)
        else:  # HTTP has another default than the request
            found[each.name] = each.type
    name = operation.body_name or operation.request.__name__
    return create_model(name, __base__=RequestBody, __doc__=operation.request.__doc__, **found)
