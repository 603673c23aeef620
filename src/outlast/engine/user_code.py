"""The boundary to the code of authors: everything it raises arrives in the engine as an `Exception`.

SystemExit, KeyboardInterrupt and other classes beside `Exception` would end the event loop, or pass every handler of
the engine. Raised by a workflow, they are failures of that workflow. Raised by a signal handler, they end the process.
"""

import asyncio
import json
import signal
import threading
from functools import partial
from opcode import opmap
from traceback import walk_tb
from types import CodeType
from typing import Any, Final

from pydantic_core import to_jsonable_python

from outlast.core.rows.effect_columns import EffectError

STOPPING: Final = (signal.SIGINT, signal.SIGTERM)
BETWEEN_CLASSES: Final = "|"
RAISE: Final = opmap["RAISE_VARARGS"]


class RaisedByCode(Exception):
    """An exception that is no `Exception`, raised by the code of an author; `__cause__` is the original."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(text_of(error))
        self.__cause__ = error


def as_exception(error: BaseException) -> Exception:
    """Return what the code of an author raised, as an `Exception`.

    Raises `error` itself if it belongs to the process: see `ends_process`. An exception whose message cannot be read
    is wrapped too, because every later handler reads it.
    """
    if ends_process(error):
        raise error
    if isinstance(error, Exception) and _is_readable(error):
        return error
    return RaisedByCode(error)


def ends_process(error: BaseException) -> bool:
    """Return True if the process stops, or the task: it is cancelled or closed, or a signal handler raised."""
    if isinstance(error, asyncio.CancelledError):
        return _is_cancelled()
    if isinstance(error, GeneratorExit):  # raised into a coroutine that is collected while it awaits
        return not _is_raised(error)
    return from_signal(error)


def text_of(error: BaseException) -> str:
    """Return the class and message of an exception, also if its `__str__` fails."""
    if isinstance(error, RaisedByCode):
        return str(error)
    text = str(error) if _is_readable(error) else "(its __str__ raised)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def class_and_text(error: Exception) -> tuple[str, str]:
    """Return the classes of an error as `rebuilt` takes them, the most specific first, and its text."""
    alone = len(error.args) == 1 and isinstance(error.args[0], str)
    text = error.args[0] if alone else text_of(error).partition(": ")[2]
    made = [each for each in type(error).__mro__ if issubclass(each, Exception) and _made(each, text) is not None]
    return BETWEEN_CLASSES.join(f"{each.__module__}:{each.__qualname__}" for each in made), text


def rebuilt(error: EffectError) -> Exception:
    """Return a recorded error as an exception of its class, with its text. Other attributes are not restored.

    The class is looked up among those that this process has loaded, because a stored name must not import code. A base
    class replaces one that is not loaded.
    """
    wanted = error.code.split(BETWEEN_CLASSES)
    loaded: dict[str, type[Exception]] = {}
    todo: list[type[Exception]] = [Exception]
    while todo:
        each = todo.pop()
        loaded[f"{each.__module__}:{each.__qualname__}"] = each
        todo += each.__subclasses__()
    found = next((loaded[name] for name in wanted if name in loaded), Exception)
    return _made(found, error.detail) or Exception(error.detail)


def _made(of: type[Exception], text: str) -> Exception | None:
    """Return an exception of a class with a text; None if the class cannot be made of a text."""
    try:
        made = of.__new__(of, text)
        made.args = (text,)
    except Exception:  # because the class of an author may raise anything
        return None
    return made if type(made) is of and _is_readable(made) else None


def shown_text(value: object) -> str:
    """Return a value of an author as text for people: text as it is, data as JSON, anything else as its `repr`."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(to_jsonable_python(value, fallback=repr), ensure_ascii=False, separators=(",", ":"))
    except Exception:  # because serializers and `repr` of an author may raise anything
        pass
    try:
        return repr(value)
    except Exception:  # because `repr` of an author may raise anything
        return f"a {type(value).__name__}"


def _is_readable(error: BaseException) -> bool:
    try:
        str(error)
    except BaseException:  # because the __str__ of an author's class may raise anything
        return False
    return True


def from_signal(error: BaseException) -> bool:
    """Return True if a signal to this process raised it, and False if code did.

    A handler in Python appears in the traceback. Python's own handler for SIGINT raises between two instructions.
    """
    if not isinstance(error, KeyboardInterrupt | SystemExit):
        return False
    if threading.current_thread() is not threading.main_thread():  # because signal handlers run in the main thread
        return False
    handlers = [signal.getsignal(number) for number in STOPPING]
    codes = {_code_of(handler) for handler in handlers}
    if any(frame.f_code in codes for frame, _ in walk_tb(error.__traceback__)):
        return True
    default = isinstance(error, KeyboardInterrupt) and signal.default_int_handler in handlers
    return default and not _is_raised(error)


def _is_raised(error: BaseException) -> bool:
    """Return True if the innermost frame of the traceback stopped at a `raise`."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return at is not None and at.tb_frame.f_code.co_code[at.tb_lasti] == RAISE


def _code_of(handler: Any) -> CodeType | None:
    while isinstance(handler, partial):  # because asyncio.Runner installs one
        handler = handler.func
    code: CodeType | None = getattr(handler, "__code__", None)
    return code


def _is_cancelled() -> bool:
    try:
        task = asyncio.current_task()
    except RuntimeError:  # a thread without a loop: only the author's code can have raised it
        return False
    return task is not None and task.cancelling() > 0
