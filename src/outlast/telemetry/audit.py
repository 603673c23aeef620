"""The audit log: who did what, from where, and with which result (S32).

Decisions, answers, pauses and webhooks are stored as rows with author and time. Facts without a row (the origin of a
request, a refusal, an export) are in this log: the logger `outlast.audit`, and a file if one is configured.
"""

import json
import logging
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from typing_extensions import override

from outlast.errors import InvalidInput
from outlast.telemetry.logs import FIELDS
from outlast.telemetry.redact import GONE, redacted

EVENT: Final = "audit"
TEXT_CHARS_MAX: Final = 200
log: Final = logging.getLogger("outlast.audit")


def audit(operation: str, *, tenant: str, by: str, at: str, outcome: str | int, **more: Any) -> None:
    """Write one line. `at` is the origin, `outcome` a status or an exit code. Texts in `more` are truncated."""
    rest = {name: value[:TEXT_CHARS_MAX] if isinstance(value, str) else value for name, value in more.items()}
    record = {"event": EVENT, "operation": operation, "tenant": tenant, "by": by, "at": at, "outcome": outcome, **rest}
    log.info("%s by %s", operation, by, extra={FIELDS: record})


def scalars(body: Any) -> dict[str, Any]:
    """Return the scalar fields of a request body, texts truncated. Nested values belong to users and are left out.

    The address of messages to approvers is a secret.
    """
    return {
        name: GONE if name == "address" else value[:TEXT_CHARS_MAX] if isinstance(value, str) else value
        for name, value in (body.items() if isinstance(body, dict) else ())
        if isinstance(value, str | int | float)
    }


class _AuditFormatter(logging.Formatter):
    """Formatter that writes one JSON object for each line, without secrets."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        return json.dumps({"timestamp": at, **redacted(getattr(record, FIELDS, {}))}, default=str)


def write_to_file(file: str) -> None:
    """Append every line to a file that only its owner can read. Raises InvalidInput."""
    try:
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
        handler = logging.FileHandler(Path(file), encoding="utf-8")
    except OSError as error:
        raise InvalidInput(
            f"{file} cannot be written", error.strerror or str(error), "OUTLAST_AUDIT names another file"
        ) from None
    handler.setFormatter(_AuditFormatter())
    log.handlers = [handler]
    log.setLevel(logging.INFO)
