"""Workflows of one function: state and input come from its parameters, the outcome is what it returns."""

import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import (
    Any,
    Concatenate,
    Final,
    Generic,
    NoReturn,
    ParamSpec,
    Protocol,
    Unpack,
    cast,
    get_args,
    get_origin,
    overload,
)

from pydantic import BaseModel, ConfigDict, PrivateAttr, create_model
from typing_extensions import TypeVar, override

from outlast.core.argument_checks import Arguments
from outlast.core.codec import Codec
from outlast.core.limits import PARAMETERS_MAX
from outlast.errors import DefinitionError, InvalidInput
from outlast.flow.context import Context
from outlast.flow.node import Node, NodeOptions
from outlast.flow.registry import hints_of, locals_of_caller, where_of
from outlast.flow.signature import check_default
from outlast.flow.source import docstring_of
from outlast.flow.workflow import Workflow
from outlast.flow.workflow_options import WorkflowOptions

P = ParamSpec("P")
R = TypeVar("R")


class FunctionState(BaseModel):
    """Base of the generated models: the parameters of the function as fields."""

    model_config = ConfigDict(protected_namespaces=(), populate_by_name=True)
    _returned: Any = PrivateAttr(None)
    """Return value of this execution. The commit that ends the run stores it as the outcome, and only there."""


class FunctionWorkflow(Workflow[Any, FunctionState, R], Generic[P, R]):
    """A workflow with one node. Tests may call it like its function. Made by `@workflow`."""

    __name__: str

    def __init__(
        self,
        fn: Callable[Concatenate[Context[Any], P], Coroutine[Any, Any, R]],
        names: Mapping[str, Any],
        name: str,
        end: str | None,
        options: WorkflowOptions[Any],
    ) -> None:
        self.fn: Final = fn
        given: object = name  # a caller without a type checker may pass anything
        if not isinstance(given, str):
            raise Arguments("@workflow").wrong("name", given, "it is text", 'name="refund"')
        self._title = f'workflow "{name or getattr(fn, "__name__", fn)}"'
        self._check_shape()
        parameters = list(inspect.signature(fn).parameters.values())
        self._parameters: Final = inspect.Signature(parameters[1:])
        hints = self._hints(parameters, names)
        fields = {each.name: self._field(each, hints[each.name]) for each in parameters[1:]}
        state = create_model(fn.__name__, __base__=FunctionState, __module__=fn.__module__, **cast(Any, fields))
        super().__init__(name or fn.__name__, state=state, outcome=_returned, **options)
        functools.update_wrapper(self, fn, updated=())
        self.description = docstring_of(fn) or ""
        self._outcome_type = hints["return"]
        self.answer_codec  # noqa: B018 - refuses a return type that cannot be stored
        self._add(Node(self._body(state), NodeOptions(True, None, end, None, None, None), self.title, state, {}))

    # --- for authors -----------------------------------------------------------------------
    def __call__(self, ctx: Context[Any], /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Call the bare function, for unit tests."""
        return self.fn(ctx, *args, **kwargs)

    @override
    def node(self, *_: Any, **__: Any) -> NoReturn:
        raise DefinitionError(
            f"{self.title} has a second node",
            f"@workflow at {self.where} makes a workflow of one function",
            "declare Workflow(…) with @….node functions for a graph",
            where=self.where,
        )

    # --- for clients -----------------------------------------------------------------------
    def arguments(self, *args: P.args, **kwargs: P.kwargs) -> FunctionState:
        """Return arguments of the function as the input of a run: for tests, and for a start with an explicit key.

        Raises InvalidInput with every problem at once.
        """
        try:
            given = self._parameters.bind_partial(*args, **kwargs).arguments
        except TypeError as error:
            raise InvalidInput(
                f"the input of {self.title} is not valid", str(error), f"it takes {self._taken}"
            ) from error
        return cast(FunctionState, self.first_state(given))

    def is_input(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Return True if these are the input and options of a start, False if they are those of the function."""
        if len(args) != 1 or not isinstance(args[0], (self.state, Mapping)):
            return False
        try:
            inspect.signature(self.fn).bind(None, *args, **kwargs)
        except TypeError:
            return True
        return isinstance(args[0], self.state)

    def has_parameter(self, name: str) -> bool:
        """Return True if the function has a parameter of this name, beside its context."""
        return name in self._parameters.parameters

    # --- for the engine --------------------------------------------------------------------
    @override
    def outcome_of(self, state: Any) -> bytes:
        return self.answer_codec.dump(_returned(state))

    def _body(self, state: type[FunctionState]) -> Any:
        """Return the function as a node."""
        positional = [p.name for p in self._parameters.parameters.values() if p.kind is not p.KEYWORD_ONLY]
        named = [name for name in self._parameters.parameters if name not in positional]

        async def body(ctx: Context[Any]) -> None:
            args: Any = [getattr(ctx.state, name) for name in positional]
            kwargs: Any = {name: getattr(ctx.state, name) for name in named}
            ctx.state._returned = await self.fn(ctx, *args, **kwargs)

        body.__module__, body.__doc__ = self.fn.__module__, self.fn.__doc__
        body.__name__ = self.name  # the node keeps its name if the function is renamed and `name=` is not
        body.__annotations__["ctx"] = Context[state]  # type: ignore[valid-type]
        vars(body)["__wrapped__"] = self.fn
        context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_ONLY, annotation=Context[state])  # type: ignore[valid-type]
        vars(body)["__signature__"] = inspect.Signature([context], return_annotation=None)
        return body

    @override
    def _declared_at(self) -> str:
        return where_of(self.fn)

    # --- checks ----------------------------------------------------------------------------
    def _check_shape(self) -> None:
        fn: Any = self.fn
        if not inspect.isfunction(fn):
            raise DefinitionError(f"@workflow was put on {fn!r}", "a workflow is made of a function", _SHAPE)
        if not inspect.iscoroutinefunction(fn):
            raise self._wrong("is not async", "only activities may be plain def", f"write async def {fn.__name__}(…)")
        parameters = list(inspect.signature(fn).parameters.values())
        if not parameters or parameters[0].kind not in _POSITIONAL:
            raise self._wrong("takes no context", "its calls and waits go through it", _SHAPE)
        if len(parameters) > PARAMETERS_MAX:
            raise self._wrong("has too many parameters", f"at most {PARAMETERS_MAX}", "make them one model")
        for each in parameters[1:]:
            if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
                stars = "*" if each.kind is each.VAR_POSITIONAL else "**"
                raise self._wrong(
                    f"takes {stars}{each.name}",
                    "every argument is stored under its name",
                    "name each parameter, or take one list or dict",
                )
            if each.annotation is each.empty:
                raise self._wrong(
                    f"has no type for {each.name}",
                    "arguments are stored, and a later process reads them back by type",
                    f"annotate it, e.g. {each.name}: str",
                )
            if each.name.startswith("_") or hasattr(FunctionState, each.name):
                raise self._wrong(
                    f"has a parameter named {each.name}",
                    "parameters are fields of a pydantic model, which reserves this name",
                    "rename the parameter",
                )
        if inspect.signature(fn).return_annotation is inspect.Signature.empty:
            raise self._wrong(
                "has no return annotation",
                "its return value is stored, and clients read it back by type",
                "annotate it: -> None, -> str, or -> a pydantic model",
            )

    def _hints(self, parameters: list[inspect.Parameter], names: Mapping[str, Any]) -> dict[str, Any]:
        try:
            hints = hints_of(self.fn, names)
        except (NameError, AttributeError) as error:
            raise self._wrong(
                "has an annotation that cannot be read", str(error), "define or import the type above the function"
            ) from error
        context = hints.get(parameters[0].name)
        if context is not Context and not (get_origin(context) is Context and get_args(context) == (Any,)):
            raise self._wrong(
                f"takes {context!r} first" if context else f"has no type for {parameters[0].name}",
                "its first parameter is the context, whose state is made from the other parameters",
                f"annotate it: {parameters[0].name}: Context",
            )
        return hints

    def _field(self, parameter: inspect.Parameter, hint: Any) -> tuple[Any, Any]:
        """Return the type and the default of a parameter. Raises DefinitionError if they cannot be stored."""
        where = where_of(self.fn)
        Codec[Any](hint, named=f"{parameter.name} of {self._title}", where=where)
        if parameter.default is parameter.empty:
            return hint, ...
        check_default(hint, parameter.name, parameter.default, self._title, where)
        return hint, parameter.default

    def _wrong(self, what: str, why: str, fix: str) -> DefinitionError:
        where = where_of(self.fn)
        return DefinitionError(f"{self._title} ({where}) {what}", why, fix, where=where)


_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_SHAPE: Final = "write async def name(ctx: Context, …) -> …"


def _returned(state: Any) -> Any:
    return state._returned


class _DecoratesFunction(Protocol):
    def __call__(
        self, fn: Callable[Concatenate[Context[Any], P], Coroutine[Any, Any, R]], /
    ) -> FunctionWorkflow[P, R]: ...


@overload
def workflow(fn: Callable[Concatenate[Context[Any], P], Coroutine[Any, Any, R]], /) -> FunctionWorkflow[P, R]: ...
@overload
def workflow(
    *, name: str = ..., end: str | None = ..., **options: Unpack[WorkflowOptions[Any]]
) -> _DecoratesFunction: ...
def workflow(
    fn: Any = None, /, *, name: str = "", end: str | None = None, **options: Unpack[WorkflowOptions[Any]]
) -> Any:
    """Make a workflow of the async function `fn`. Its first parameter is the context.

    Its other parameters are the input and the state of a run (`ctx.state`), and its return value is the outcome. After
    a crash the body runs again from its first line, and the ledger answers the calls that were made.

    - `name`: the stored name (default: the function's). Keep it when the function is renamed.
    - `end`: the business status of a run that completes, such as "REFUNDED" (default: COMPLETED).
    - `options`: those of `WorkflowOptions`. The fields of the input are the parameters: `key="refund/{order}"`.

    Raises DefinitionError.
    """
    names = locals_of_caller(1)
    make = functools.partial(FunctionWorkflow, names=names, name=name, end=end, options=options)
    return make if fn is None else make(fn)
