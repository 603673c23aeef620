"""Log lines of runs, at start, checkpoint and end (OBS-3): JSON where no terminal reads them, secrets left out."""

import json
import logging
import os
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from threading import Lock
from typing import Any, Final, TextIO

from outlast.core.clock import Clock
from outlast.core.durations import SECOND
from outlast.core.events import trace_of
from outlast.core.rows import Run
from outlast.errors import OutlastError, StoreReplaced
from outlast.telemetry.redact import redact, redacted

LEVEL: Final = "OUTLAST_LOG_LEVEL"
FIELDS: Final = "outlast"  # where a record has what was said besides its sentence
log = logging.getLogger("outlast.run")


class RunLog:
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
    def wanted(cls) -> "RunLog | None":
        """A journal, where this process logs at level INFO; asked once, so that nothing is made for no reader."""
        return cls() if log.isEnabledFor(logging.INFO) else None


def configure_logs(stream: TextIO, inert: Callable[[str], str]) -> None:
    """Send what `outlast` logs to a stream: JSON lines by structlog where it is no terminal, else sentences.

    The level is OUTLAST_LOG_LEVEL; by default `info` where lines are JSON, and `warning` on a terminal. `inert` makes
    text of authors and models harmless to a terminal. An application that has a handler of its own keeps it.
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
        logger.warning("%s=%s is no level, and counts for nothing: debug, info, warning or error", LEVEL, wanted)
    if as_json:
        logging.getLogger("outlast.audit").setLevel(logging.INFO)  # whatever else is wanted (telemetry/audit.py)


class SentenceFormatter(logging.Formatter):
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


store_log = logging.getLogger("outlast.store")


class Outage:
    """What somebody knows of the store being away. Of use in any thread."""

    def __init__(self, who: str, clock: Clock) -> None:
        """`who`: as the lines name it, « worker w-1 »."""
        self._who = who
        self._clock = clock
        self._since: int | None = None
        self._landed = False  # a commit, since the last failure
        self._lock = Lock()

    def met(self, what: str, error: OutlastError) -> None:
        """Something could not be done because of the store; the first to say so is heard.

        Of a store that is gone nothing is said here: the process ends with that.
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
        store_log.warning("%s %s: %s; it goes on trying, and begins nothing new meanwhile", self._who, what, why)

    def landed(self) -> None:
        """Note that the store took a commit."""
        self._landed = True

    def answered(self) -> None:
        """Note that the store answered a read; the outage is over if a commit has landed since the last failure.

        A full disk answers every read.
        """
        if self._landed:
            self.over()

    def over(self) -> None:
        """Report the end of the outage: what failed has succeeded."""
        if self._since is None:  # nearly always; two who see it at once are told apart below
            return
        with self._lock:
            since, self._since = self._since, None
        if since is not None:
            store_log.warning(
                "the store of %s answers again after %.1f s", self._who, (self._clock.mono() - since) / SECOND
            )
