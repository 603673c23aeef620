"""Nodes: the places of the graph, each an async function."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args, get_origin

from outlast.core.argument_checks import Arguments, positive_term
from outlast.core.durations import Term
from outlast.core.limits import NAME, VISITS_MAX
from outlast.core.machine import TERMINAL, RunStatus
from outlast.core.rows.run_columns import StatusLabels, stored_label
from outlast.errors import DefinitionError
from outlast.flow.context import Context
from outlast.flow.graph import Exits, Place, read_exits
from outlast.flow.registry import hints_of, where_of

Plane: TypeAlias = Literal["", "decision", "execution"]
"""Planes of a graph: nodes that only decide, nodes that act, and nodes that do either ("")."""
DEFAULT_END: Final = RunStatus.COMPLETED.upper()
"""Name of an end without `end=`."""
_OTHER_ENDS: Final = frozenset(status.upper() for status in TERMINAL - {RunStatus.COMPLETED})


class NodeOptions(NamedTuple):
    """The options of `@workflow.node(…)`."""

    start: bool
    status: str | StatusLabels | None
    end: str | None
    max_visits: int | None
    within: Term | None
    ceiling: Term | None
    plane: Plane = ""


class Node:
    """A declared node; `fn` is the author's function, unchanged. Made by `@workflow.node`."""

    def __init__(
        self,
        fn: Callable[[Context[Any]], Awaitable[str | None]],
        options: NodeOptions,
        workflow: str,
        state: type,
        names: Mapping[str, Any],
    ) -> None:
        if not inspect.isfunction(fn):
            raise DefinitionError(
                f"@node of {workflow} is on {fn!r}",
                "a node is a function",
                "write async def name(ctx: Context[…])",
            )
        self.fn: Final = fn
        self.name: Final = fn.__name__
        self.where: Final = where_of(fn)
        self.title: Final = f'node "{self.name}" of {workflow} ({self.where})'
        self.start: Final = options.start
        self.status: Final = options.status
        self.end: Final = options.end
        self.max_visits: Final = options.max_visits
        self.plane: Final = options.plane
        self.within: Final = positive_term(f"within of {self.title}", options.within, where=self.where)
        self.ceiling: Final = positive_term(f"ceiling of {self.title}", options.ceiling, where=self.where)
        self._state: Final = state
        self._names = names
        self._exits: Exits | None = None
        self._check_shape()
        self.status_label: Final = stored_label(options.status)
        self._read(final=False)

    @property
    def exits(self) -> Exits:
        """The exits of the node. Raises DefinitionError if the annotation cannot be read."""
        if self._exits is None:
            self.resolve()
        assert self._exits is not None
        return self._exits

    @property
    def place(self) -> Place:
        """The part of the node that the graph needs."""
        return Place(self.name, self.where, self.start, self.max_visits, self.exits)

    def resolve(self) -> None:
        """Read the annotations if that was not possible at the time of decoration. Raises DefinitionError."""
        if self._exits is None:
            self._read(final=True)

    def _read(self, *, final: bool) -> None:
        try:
            hints = hints_of(self.fn, self._names)
        except (NameError, AttributeError) as error:
            if final:
                raise self._wrong(
                    "has an annotation that cannot be read", str(error), "import the type at module level"
                ) from error
            return
        parameter = hints[next(iter(inspect.signature(self.fn).parameters))]
        state = self._state.__name__
        if get_origin(parameter) is not Context or get_args(parameter) != (self._state,):
            shown = getattr(parameter, "__name__", str(parameter))
            of = (
                f"[{', '.join(getattr(arg, '__name__', str(arg)) for arg in get_args(parameter))}]"
                if get_args(parameter)
                else ""
            )
            raise self._wrong(
                f"takes {shown}{of}", f"the workflow's state is {state}", f"annotate it: ctx: Context[{state}]"
            )
        exits = read_exits(hints["return"])
        if exits is None:
            raise self._wrong(
                f"returns {hints['return']!r}",
                "the return annotation is the graph: it names the nodes that may come next, or None for the end",
                'annotate it: -> Literal["next_node"], -> None, or -> Literal["next_node"] | None',
            )
        if self.end is not None and not exits.ends:
            raise self._wrong(
                f"has end={self.end!r}, but no run ends in it", "it never returns None", "let it: -> Literal[…] | None"
            )
        self._exits = exits
        self._names = {}  # keeping the caller's locals would keep its objects alive

    def _check_shape(self) -> None:
        Arguments("@node", self.where).flag("start", self.start)
        if not inspect.iscoroutinefunction(self.fn):
            raise self._wrong("is not async", "only activities may be plain def", f"write async def {self.name}(…)")
        if not NAME.fullmatch(self.name):
            raise self._wrong("has an unusable name", "1 to 100 letters, digits or underscores", "rename the function")
        labels: list[tuple[str, object, str]] = []
        if self.status is not None:
            several = self.status if isinstance(self.status, StatusLabels) else (self.status,)
            labels += [("status", label, "EVALUATING") for label in several]
        if self.end is not None:
            labels.append(("end", self.end, "AWARDED"))
        for option, label, example in labels:
            if not isinstance(label, str) or not NAME.fullmatch(label):
                raise self._wrong(
                    f"has {option} {label!r}",
                    "1 to 100 letters, digits, dots, dashes or underscores",
                    f'e.g. {option}="{example}"',
                )
        if self.end in _OTHER_ENDS:
            raise self._wrong(
                f"has end {self.end!r}",
                "a run that completes in it would look like one that did not",
                'e.g. end="AWARDED"',
            )
        if self.max_visits is not None and (type(self.max_visits) is not int or not 1 <= self.max_visits <= VISITS_MAX):
            raise self._wrong(f"has max_visits={self.max_visits!r}", f"from 1 to {VISITS_MAX:,}", "e.g. max_visits=5")
        if all(self.plane != each for each in get_args(Plane)):  # by ==, for a value without a hash
            raise self._wrong(f"has plane={self.plane!r}", "a node decides or acts", 'plane="decision" or "execution"')
        signature = inspect.signature(self.fn)
        parameters = list(signature.parameters.values())
        one = len(parameters) == 1 and parameters[0].kind in (
            inspect.Parameter.POSITIONAL_ONLY,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
        )
        state = self._state.__name__
        if not one or parameters[0].annotation is inspect.Parameter.empty:
            raise self._wrong(
                "does not take exactly one annotated parameter",
                f"it takes {signature}",
                f"write async def {self.name}(ctx: Context[{state}]) -> …; put everything else into the state",
            )
        if signature.return_annotation is inspect.Signature.empty:
            raise self._wrong(
                "has no return annotation",
                "the return annotation is the graph",
                'annotate it: -> Literal["next_node"], -> None, or -> Literal["next_node"] | None',
            )

    def _wrong(self, what: str, why: str, fix: str) -> DefinitionError:
        return DefinitionError(f"{self.title} {what}", why, fix, where=self.where)
