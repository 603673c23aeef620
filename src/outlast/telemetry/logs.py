"""Log lines of runs and of outages (OBS-3): JSON unless a terminal reads them, always without secrets."""

import json
import logging
import os
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from threading import Lock
from typing import Any, Final, TextIO

from typing_extensions import override

from outlast.core.clock_port import Clock
from outlast.core.durations import SECOND
from outlast.core.events import trace_of
from outlast.core.rows.run_rows import Run
from outlast.errors import OutlastError, StoreReplaced
from outlast.telemetry.redact import redact_shown, redacted, shortened

LEVEL: Final = "OUTLAST_LOG_LEVEL"
FIELDS: Final = "outlast"  # attribute of a log record with its structured fields
log = logging.getLogger("outlast.run")


class RunLog:
    """Log of runs. Each line carries the tenant, run, trace and correlation ids."""

    def write(self, what: str, run: Run, **more: str | int | float) -> None:
        """Write one line. Never raises."""
        ids = {
            "tenant": run.tenant,
            "run_id": run.run,
            "correlation_id": run.correlation_id or run.run,
            "trace_id": trace_of(run.trace_id),
        }
        log.info("run %s %s", run.run, what, extra={FIELDS: {"event": f"workflow.{what}", **ids, **more}})

    @classmethod
    def wanted(cls) -> "RunLog | None":
        """Return a log if this process logs at level INFO. Asked once, so that lines are not built for no reader."""
        return cls() if log.isEnabledFor(logging.INFO) else None


def configure_logs(stream: TextIO, inert: Callable[[str], str]) -> None:
    """Send the logs of `outlast` to a stream: JSON lines by structlog, or sentences if the stream is a terminal.

    The level is OUTLAST_LOG_LEVEL [`info` for JSON, `warning` for a terminal]. `inert` removes control sequences from
    texts of authors and models. An application that has configured a handler keeps it.
    """
    logger = logging.getLogger("outlast")
    if logger.handlers:
        return
    as_json = not stream.isatty() and find_spec("structlog") is not None
    handler = logging.StreamHandler(stream)
    handler.setFormatter(json_formatter() if as_json else SentenceFormatter(inert))
    logger.addHandler(handler)
    wanted = os.environ.get(LEVEL, "").upper() or ("INFO" if as_json else "WARNING")
    known = wanted in logging.getLevelNamesMapping()
    logger.setLevel(wanted if known else logging.WARNING)
    if not known:
        logger.warning("%s=%s is not a log level and is ignored; use debug, info, warning or error", LEVEL, wanted)
    if as_json:
        logging.getLogger("outlast.audit").setLevel(
            logging.INFO
        )  # audit lines are written at every level (telemetry/audit.py)


class SentenceFormatter(logging.Formatter):
    """Formatter for people: one sentence, followed by the fields, without control sequences."""

    def __init__(self, inert: Callable[[str], str]) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")
        self._inert = inert

    @override
    def format(self, record: logging.LogRecord) -> str:
        more = getattr(record, FIELDS, None)
        line = super().format(record)
        if isinstance(more, dict):
            line += " " + " ".join(f"{name}={value}" for name, value in more.items() if value != "" and name != "event")
        return self._inert(redact_shown(line))


def json_formatter() -> logging.Formatter:
    """Return a formatter for one JSON object per line: timestamp, level, logger, event, ids and fields."""
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


def _fields(logger: Any, name: str, entry: dict[str, Any]) -> dict[str, Any]:
    more = getattr(entry.get("_record"), FIELDS, None)
    if isinstance(more, dict):
        entry |= {"message": entry["event"], **more}
    return entry


def _leave_out_secrets(logger: Any, name: str, entry: dict[str, Any]) -> dict[str, Any]:
    short = {name: shortened(value) if isinstance(value, str) else value for name, value in entry.items()}
    clean: dict[str, Any] = redacted(short)
    return clean


def _dumps(value: Any, **options: Any) -> str:
    return json.dumps(
        value, default=str, ensure_ascii=True
    )  # a line must contain no control characters and no line breaks


store_log = logging.getLogger("outlast.store")


class Outage:
    """State of the store's availability, which logs an outage once at its start and once at its end. Thread-safe."""

    def __init__(self, who: str, clock: Clock) -> None:
        """Create the state. Log lines name `who`, such as "worker w-1"."""
        self._who = who
        self._clock = clock
        self._since: int | None = None
        self._landed = False  # true if a commit has landed since the last failure
        self._lock = Lock()

    def met(self, what: str, error: OutlastError) -> None:
        """Record that an operation failed because of the store. The first failure of an outage is logged.

        A replaced store is not logged here, because the process ends with that error.
        """
        if isinstance(error, StoreReplaced):
            return
        with self._lock:
            self._landed = False
            if self._since is not None:
                return
            self._since = self._clock.mono()
        why = f"{error.what} ({error.why})" if error.why else error.what
        why += f"; {error.fix}" if error.fix else ""
        store_log.warning("%s %s: %s; retrying, and starting no new work until the store answers", self._who, what, why)

    def landed(self) -> None:
        """Record that the store accepted a commit."""
        self._landed = True

    def answered(self) -> None:
        """Record that the store answered a read. A full disk answers reads, so the outage ends only after a commit."""
        if self._landed:
            self.over()

    def over(self) -> None:
        """Log the end of the outage."""
        if self._since is None:  # the usual case, without the lock; concurrent callers are handled below
            return
        with self._lock:
            since, self._since = self._since, None
        if since is not None:
            store_log.warning(
                "the store of %s is available again after %.1f s", self._who, (self._clock.mono() - since) / SECOND
            )
