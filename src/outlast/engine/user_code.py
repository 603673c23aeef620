"""The boundary to the code of authors: everything it raises arrives in the engine as an `Exception`.

SystemExit, KeyboardInterrupt and other classes beside `Exception` would end the event loop, or pass every handler of
the engine. Raised by a workflow, they are failures of that workflow. Raised by a signal handler, they end the process.

The coroutine of an author runs in a context of its own. That of a node runs in the task of the run's executor, which
leaves that task to it when it must be watched (`RunTask`).
"""

import asyncio
import contextvars
import signal
import threading
import types
from collections.abc import Coroutine, Generator
from functools import partial
from opcode import opmap
from traceback import walk_tb
from types import CodeType
from typing import Any, Final, NamedTuple

from typing_extensions import override

STOPPING: Final = (signal.SIGINT, signal.SIGTERM)
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
    said = str(error) if _is_readable(error) else "(its __str__ raised)"
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


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


# --- coroutines of authors ---------------------------------------------------------------------------
class TaskLeft(BaseException):
    """The executor continues in another task, and the body keeps `task`, in which it began."""

    def __init__(self, task: "asyncio.Task[Any]") -> None:
        super().__init__()
        self.task = task


class Body:
    """A coroutine of the author in a context of its own, driven by the task that awaits it."""

    __slots__ = ("_run", "abandoned", "coroutine")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], context: contextvars.Context) -> None:
        self.coroutine = coroutine
        self._run = context.run
        self.abandoned: Exception | None = None
        """If set, the next cancellation closes the coroutine and raises this error."""

    def __await__(self) -> Generator[Any, None, Any]:
        return self.steps(None)

    def steps(self, thrown: BaseException | None) -> Generator[Any, None, Any]:
        """Drive the body until it ends, first with what its last await raised."""
        run, send = self._run, self.coroutine.send
        while True:
            try:
                awaited = run(send, None) if thrown is None else run(self.coroutine.throw, thrown)
            except StopIteration as end:
                return end.value
            try:
                yield awaited
                thrown = None
            except TaskLeft:
                raise
            except GeneratorExit:  # its task is collected
                self._close()
                raise
            except BaseException as error:  # passed on to the body, which may handle it
                if self.abandoned is not None:
                    self._close()
                    raise self.abandoned from error
                thrown = error

    def _close(self) -> None:
        try:
            self.coroutine.close()
        except BaseException:  # as it ignored its cancellation, it may ignore this
            pass


class RunTask(asyncio.Future[None]):
    """Task of a run's executor, done when the executor is.

    The body of a node runs in the same task, because most bodies need none of their own. When an execution must watch
    its body, the executor leaves: it continues in a new task. The body keeps the old one, which its timeouts and task
    groups know (decision 0068).
    """

    def __init__(self, executor: Coroutine[Any, Any, None]) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self._executor = executor
        self._parent = asyncio.current_task()
        self._left_to: dict[int, Body] = {}  # body by the number of the task that it keeps
        self._moves = 0
        self.body: Body | None = None
        """The body that runs in the task of the executor."""
        self._context = contextvars.copy_context()
        self._context.run(RUN_TASK.set, self)
        self.task: asyncio.Task[Any] = self.get_loop().create_task(self._drive(None), context=self._context.copy())

    def move(self) -> None:
        """Continue the executor in a new task, where its await of the body raises TaskLeft."""
        assert self.body is not None, "the executor is suspended in a body"
        old, self._left_to[self._moves], self.body = self.task, self.body, None
        self._moves += 1
        self.task = self.get_loop().create_task(self._drive(TaskLeft(old)), context=self._context.copy())

    @types.coroutine
    def _drive(self, thrown: BaseException | None) -> Generator[Any, None, Any]:
        mine, send = self._moves, self._executor.send
        while True:
            try:
                awaited = send(None) if thrown is None else self._executor.throw(thrown)
            except StopIteration:
                self.set_result(None)
                return None
            except asyncio.CancelledError:
                super().cancel()
                raise
            except BaseException as error:
                self.set_exception(error)
                if isinstance(error, Exception):
                    return None
                raise
            try:
                yield awaited
                thrown = None
            except BaseException as error:  # a cancellation, passed on to the executor or to its body
                thrown = error
            if self._moves != mine:
                try:
                    return (yield from self._left_to.pop(mine).steps(thrown))
                except BaseException as error:  # because a task that ends with SystemExit ends the event loop
                    raise as_exception(error)  # noqa: B904 - it names its cause

    @override
    def cancel(self, msg: Any = None) -> bool:
        """Cancel the executor. A body that runs in its task is left behind."""
        if self.done():
            return False
        if self.body is None:
            return self.task.cancel(msg)
        self.move()
        self.get_loop().call_soon(self.task.cancel)  # once it has begun, so that the executor gets the cancellation
        return True

    def is_stopping(self) -> bool:
        """Return True if the task that created this one is cancelled too, as at the end of the event loop."""
        return self._parent is not None and (self._parent.cancelling() > 0 or self._parent.done())


class BodyEnd(NamedTuple):
    """Value that a body returned, or its error."""

    value: Any = None
    error: BaseException | None = None


CANCELLED: Final = BodyEnd(error=asyncio.CancelledError("the node's task was cancelled from within"))
RUN_TASK: Final[contextvars.ContextVar[RunTask]] = contextvars.ContextVar("outlast_run_task")


def end_of(task: asyncio.Task[Any]) -> BodyEnd:
    """Return the end of a body that kept its task."""
    if not task.done() or task.cancelled():
        return CANCELLED
    error = task.exception()
    return BodyEnd(error=error) if error is not None else BodyEnd(task.result())


async def is_still_cancelled(task: asyncio.Task[Any]) -> bool:
    """Take back cancellations of this task that outlive its body. Returns True if one had not arrived."""
    arrived = True
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        arrived = False
    while task.uncancel():
        pass
    return not arrived
