"""The audit line: who did what from where, beside the rows that say what became of it (S32).

Decisions, answers, holds and webhooks leave rows with who and when. What has no row (where a request came from, what
was refused, an export) has this line: at the logger `outlast.audit`, and in a file of its own where one is named.
"""

import json
import logging
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from outlast.errors import InvalidInput
from outlast.telemetry.logs import FIELDS
from outlast.telemetry.redact import redacted

EVENT: Final = "audit"
TEXT_CHARS_MAX: Final = 200
log: Final = logging.getLogger("outlast.audit")


def audit(operation: str, *, tenant: str, by: str, at: str, outcome: str | int, **more: Any) -> None:
    """One line. `at`: where it came from; `outcome`: a status, an exit code; texts in `more` are cut."""
    said = {name: value[:TEXT_CHARS_MAX] if isinstance(value, str) else value for name, value in more.items()}
    told = {"event": EVENT, "operation": operation, "tenant": tenant, "by": by, "at": at, "outcome": outcome, **said}
    log.info("%s by %s", operation, by, extra={FIELDS: told})


def scalars(body: Any) -> dict[str, Any]:
    """What a request asks for, but for what belongs to users: texts, numbers and flags of a JSON object."""
    return {
        name: value[:TEXT_CHARS_MAX] if isinstance(value, str) else value
        for name, value in (body.items() if isinstance(body, dict) else ())
        if isinstance(value, str | int | float)
    }


class _AuditFormatter(logging.Formatter):
    """One JSON object a line, without secrets."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as text."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        return json.dumps({"timestamp": at, **redacted(getattr(record, FIELDS, {}))}, default=str)


def write_to_file(file: str) -> None:
    """Append every line to this file, which only its owner reads. Raises InvalidInput."""
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
