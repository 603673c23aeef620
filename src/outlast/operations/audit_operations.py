"""The operation that lists acts of callers across runs."""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Final

from pydantic import Field

from outlast.core.limits import PERSON_CHARS_MAX
from outlast.models.audit_entries import AuditKind, AuditList
from outlast.operations.declaration import Operation, OperationRequest
from outlast.operations.field_types import Cursor, Limit, Since


@dataclass(frozen=True)
class ListAudit(OperationRequest[AuditList]):
    """List the acts of callers over all runs, newest first."""

    _: KW_ONLY
    by: Annotated[str, Field(max_length=PERSON_CHARS_MAX, description="Only acts of this caller.")] = ""
    kind: Annotated[AuditKind | None, Field(description="Only acts of this kind.")] = None
    since: Since = None
    cursor: Cursor = ""
    limit: Limit = 50


LIST_AUDIT: Final = Operation(
    "list_audit",
    ListAudit,
    AuditList,
    "GET",
    "/audit",
    ("operator",),
    ListAudit(by="ana", kind="decision", since="24h"),
    summary="List acts of people",
    tag="operators",
    description=(
        "List the acts of people and programs over all runs, newest first: decisions, answers, cancellations, signals, "
        "forks, jobs, and changes of the tenant.\n"
        "\n"
        "Acts on a run go with the run when it is purged. Of a pause, a webhook, the daily budget and an assignment "
        "the last change is known."
    ),
)
