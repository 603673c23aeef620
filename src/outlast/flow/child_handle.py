"""Child runs as a node sees them: the workflows that it can start, and the handle of a child."""

from collections.abc import Mapping
from typing import Any, Generic, ParamSpec, Protocol

from pydantic import BaseModel
from typing_extensions import TypeVar  # its defaults are in typing from Python 3.13 on

from outlast.core.durations import Term

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
Input = BaseModel | Mapping[str, object]
"""Input of a child: the input model of its workflow, `workflow.arguments(…)`, or a mapping."""


class RunsFunction(Protocol[P, R_co]):
    """A workflow of one function, made by `@workflow`."""

    def arguments(self, *args: P.args, **kwargs: P.kwargs) -> BaseModel: ...
    def decode_outcome(self, data: Any) -> R_co: ...


class RunsGraph(Protocol[R_co]):
    """A workflow of any kind."""

    def decode_outcome(self, data: Any) -> R_co: ...


class ChildHandle(Generic[R_co]):
    """A child run that this run has started. Made by `ctx.start` and `ctx.child`."""

    workflow: str
    """Name of its workflow."""
    key: str
    """Its key in this run."""
    run_id: str
    """Its id, for clients and people."""

    async def result(self, *, timeout: Term | None = None) -> R_co:
        """Wait until the child has ended and return its outcome.

        `timeout` counts from the first execution of this line in the visit, in business time. In `ctx.first`, put a
        `ctx.sleep` beside it instead. The child goes on if the wait ends without it.

        Raises ChildFailed if the child has failed or was cancelled, WaitTimeout at the deadline: the same on each
        re-run.
        """
        raise NotImplementedError

    async def signal(self, name: str, value: BaseModel, /, *, id: str) -> None:  # noqa: A002
        """Send `value` to the child as the signal `name`. The same `id` is sent once, also by a re-run.

        A second signal with the same `id` is not sent, even if its value differs. A child that has ended gets nothing.
        Raises InvalidInput, LimitExceeded.
        """
        raise NotImplementedError

    async def cancel(self, *, reason: str) -> None:
        """Ask the child to end as cancelled, for a `reason`. It undoes its effects first.

        A child that has ended, or was asked before, is left alone. Raises InvalidInput.
        """
        raise NotImplementedError


class ParentHandle:
    """The run that has started this run: `ctx.parent`."""

    run_id: str
    """Its id, for clients and people."""

    async def signal(self, name: str, value: BaseModel, /, *, id: str) -> None:  # noqa: A002
        """Send `value` to the parent as the signal `name`. The same `id` is sent once, also by a re-run.

        A second signal with the same `id` is not sent, even if its value differs. A parent that has ended gets nothing.
        Raises InvalidInput, LimitExceeded.
        """
        raise NotImplementedError
