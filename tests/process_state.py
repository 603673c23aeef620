"""The global states of a process, which a library must leave as the application has set them.

Settings are compared by value, functions and methods of other libraries by identity: a replaced one is a patch.
"""

import asyncio
import builtins
import decimal
import faulthandler
import gc
import json
import locale
import logging
import os
import random
import signal
import socket
import sqlite3
import sys
import threading
import tracemalloc
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

OURS = ("outlast", "tests", "__main__")


class ProcessState(NamedTuple):
    """Global settings by name, and every function, class and method of the loaded modules of others."""

    settings: Mapping[str, Any]
    functions: Mapping[str, Any]


def process_state() -> ProcessState:
    return ProcessState({**_interpreter(), **_hooks(), **_loggers()}, dict(_functions()))


def changes(before: ProcessState, after: ProcessState) -> list[str]:
    """Return what differs. A name that a library has added to itself since is no change, one from Outlast is."""
    names = before.settings.keys() | after.settings.keys()
    found = [name for name in sorted(names) if before.settings.get(name) != after.settings.get(name)]
    for name, function in after.functions.items():
        if name in before.functions:
            if before.functions[name] is not function:
                found.append(f"{name} is replaced")
        elif _is_ours(function):
            found.append(f"{name} is added")
    return found


def _interpreter() -> dict[str, Any]:
    umask = os.umask(0o22)
    os.umask(umask)
    return {
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "umask": umask,
        "warnings.filters": list(warnings.filters),
        "timeout of sockets": socket.getdefaulttimeout(),
        "locale": locale.setlocale(locale.LC_ALL),
        "decimal context": repr(decimal.getcontext()),
        "default decimal context": repr(decimal.DefaultContext),
        "gc thresholds": gc.get_threshold(),
        "gc enabled": gc.isenabled(),
        "gc frozen": gc.get_freeze_count() > 0,
        "gc callbacks": list(gc.callbacks),
        "random state": random.getstate(),
        "recursion limit": sys.getrecursionlimit(),
        "switch interval": sys.getswitchinterval(),
        "digits of an integer": sys.get_int_max_str_digits(),
        "faulthandler": faulthandler.is_enabled(),
        "tracemalloc": tracemalloc.is_tracing(),
        "stack of threads": threading.stack_size(),
        "sys.path": list(sys.path),
        "sys.path_hooks": list(sys.path_hooks),
        "sys.meta_path": list(sys.meta_path),
        "builtins": sorted(name for name in vars(builtins) if name != "_"),
        "adapters of sqlite3": dict(sqlite3.adapters),
        "converters of sqlite3": dict(sqlite3.converters),
        "encoder of json": json._default_encoder,  # type: ignore[attr-defined]
    }


def _hooks() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        policy = asyncio.get_event_loop_policy()
    return {
        "asyncio policy": policy,
        **{f"sys.{name}": getattr(sys, name) for name in ("stdin", "stdout", "stderr")},
        "sys.excepthook": sys.excepthook,
        "sys.unraisablehook": sys.unraisablehook,
        "threading.excepthook": threading.excepthook,
        "trace": (sys.gettrace(), threading.gettrace()),
        "profile": (sys.getprofile(), threading.getprofile()),
        **{f"handler of {number.name}": signal.getsignal(number) for number in signal.Signals},
    }


def _loggers() -> dict[str, Any]:
    """Return the settings of the loggers, those of `outlast` included: the application sets their levels, too."""
    found: dict[str, Any] = {
        "logging.disable": logging.root.manager.disable,
        "class of loggers": logging.getLoggerClass(),
        "factory of log records": logging.getLogRecordFactory(),
        "names of log levels": dict(logging.getLevelNamesMapping()),
    }
    known = {"": logging.root, **logging.root.manager.loggerDict}
    for name, each in known.items():
        if isinstance(each, logging.Logger):
            state = (each.level, list(each.handlers), list(each.filters), each.propagate, each.disabled)
            if state != (logging.NOTSET, [], [], True, False):
                found[f"logger {name}"] = state
    return found


def _functions() -> Iterator[tuple[str, Any]]:
    for name, module in list(sys.modules.items()):
        if module is None or name.partition(".")[0] in OURS:
            continue
        for key, value in list(vars(module).items()):
            if callable(value):
                yield f"{name}.{key}", value
            if isinstance(value, type) and value.__module__ == name:
                yield from _methods(f"{name}.{key}", value)


def _methods(name: str, of: type) -> Iterator[tuple[str, Any]]:
    for key, value in list(vars(of).items()):
        if callable(value) or isinstance(value, staticmethod | classmethod | property):
            yield f"{name}.{key}", value


def _is_ours(function: Any) -> bool:
    of = function.fget if isinstance(function, property) else function
    return str(getattr(of, "__module__", "")).partition(".")[0] == "outlast"
