"""Log lines of runs, at start, checkpoint and end (OBS-3): JSON where no terminal reads them, secrets left out."""

import json
import logging
import os
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, TextIO

from outlast.core.events import trace_of
from outlast.core.rows import Run
from outlast.telemetry.redact import redact, redacted

LEVEL: Final = "OUTLAST_LOG_LEVEL"
FIELDS: Final = "outlast"  # where a record has what was said besides its sentence
log = logging.getLogger("outlast.run")


class Journal:
    """Says what became of runs, each line with tenant, run, trace and correlation ids."""

    def say(self, what: str, run: Run, **more: str | int | float) -> None:
        """One line; never raises."""
        ids = {
            "tenant": run.tenant,
            "run_id": run.run,
            "correlation_id": run.correlation_id or run.run,
            "trace_id": trace_of(run.trace_id),
        }
        log.info("run %s %s", run.run, what, extra={FIELDS: {"event": f"workflow.{what}", **ids, **more}})

    @classmethod
    def wanted(cls) -> "Journal | None":
        """A journal, where this process logs at level INFO; asked once, so that nothing is made for no reader."""
        return cls() if log.isEnabledFor(logging.INFO) else None


def configure(stream: TextIO, inert: Callable[[str], str]) -> None:
    """Send what `outlast` logs to a stream: JSON lines by structlog where it is no terminal, else sentences.

    The level is OUTLAST_LOG_LEVEL; by default `info` where lines are JSON, and `warning` on a terminal. `inert` makes
    text of authors and models harmless to a terminal. An application that has a handler of its own keeps it.
    """
    logger = logging.getLogger("outlast")
    if logger.handlers:
        return
    as_json = not stream.isatty() and find_spec("structlog") is not None
    handler = logging.StreamHandler(stream)
    handler.setFormatter(json_formatter() if as_json else Sentences(inert))
    logger.addHandler(handler)
    wanted = os.environ.get(LEVEL, "").upper() or ("INFO" if as_json else "WARNING")
    known = wanted in logging.getLevelNamesMapping()
    logger.setLevel(wanted if known else logging.WARNING)
    if not known:
        logger.warning("%s=%s is no level, and counts for nothing: debug, info, warning or error", LEVEL, wanted)
    if as_json:
        logging.getLogger("outlast.audit").setLevel(logging.INFO)  # whatever else is wanted (telemetry/audit.py)


class Sentences(logging.Formatter):
    """For people: one sentence, what was said besides behind it; nothing in it that a terminal acts on."""

    def __init__(self, inert: Callable[[str], str]) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")
        self._inert = inert

    def format(self, record: logging.LogRecord) -> str:
        """The record as text."""
        more = getattr(record, FIELDS, None)
        said = super().format(record)
        if isinstance(more, dict):
            said += " " + " ".join(f"{name}={value}" for name, value in more.items() if value != "" and name != "event")
        return self._inert(redact(said))


def json_formatter() -> logging.Formatter:
    """One JSON object a line: timestamp, level, logger, event, the ids, and what was said besides."""
    structlog = import_module("structlog")
    formatter: logging.Formatter = structlog.stdlib.ProcessorFormatter(
        processors=[
            _fields,
            structlog.processors.format_exc_info,
            _leave_out_secrets,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.JSONRenderer(serializer=_dumps),
        ]
    )
    return formatter


def _fields(logger: Any, name: str, said: dict[str, Any]) -> dict[str, Any]:
    more = getattr(said.get("_record"), FIELDS, None)
    if isinstance(more, dict):
        said |= {"message": said["event"], **more}
    return said


def _leave_out_secrets(logger: Any, name: str, said: dict[str, Any]) -> dict[str, Any]:
    clean: dict[str, Any] = redacted(said)
    return clean


def _dumps(value: Any, **options: Any) -> str:
    return json.dumps(value, default=str, ensure_ascii=True)  # escape sequences and line breaks are spelt out
