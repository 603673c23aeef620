"""Tracebacks of calls that may have happened, kept for a developer who watches the process (`outlast dev`)."""

import traceback
from types import TracebackType
from typing import Final

from outlast.telemetry.redact import redact

ERRORS_KEPT: Final = 100
TRACEBACK_CHARS: Final = 4_000


class CallErrors:
    """Tracebacks of the latest calls, by tenant, run and key."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str, str], str] = {}

    def keep(self, name: tuple[str, str, str], error: BaseException, secrets: frozenset[str]) -> None:
        """Keep the traceback of a call, from the first frame of the author's code on. Secrets are redacted."""
        shown = error.__traceback__
        while shown is not None and shown.tb_next is not None and _is_of_package(shown):
            shown = shown.tb_next
        text = "".join(traceback.format_exception(type(error), error, shown))[-TRACEBACK_CHARS:]
        self._kept.pop(name, None)
        self._kept[name] = redact(text, secrets)
        if len(self._kept) > ERRORS_KEPT:
            del self._kept[next(iter(self._kept))]

    def of(self, tenant: str, run: str, key: str) -> str:
        """Return the traceback of the latest call under a key; '' without one."""
        return self._kept.get((tenant, run, key), "")


def _is_of_package(frame: TracebackType) -> bool:
    return str(frame.tb_frame.f_globals.get("__name__", "")).startswith("outlast.")
