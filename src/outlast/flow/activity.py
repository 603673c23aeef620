"""Activities: functions with a side effect (`@activity`) and functions that only read (`@lookup`)."""

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from copy import copy
from datetime import timedelta
from typing import (
    Any,
    Concatenate,
    Final,
    Generic,
    Literal,
    NamedTuple,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    cast,
    overload,
)

from typing_extensions import override

from outlast.core.argument_checks import Arguments, positive
from outlast.core.codec import digest
from outlast.core.compensation import NO_UNDO
from outlast.core.durations import Duration
from outlast.core.effect_steps import DidNotHappen, Happened, Unknown
from outlast.core.keys import OncePer
from outlast.core.limits import NAME, TEXT_CHARS_MAX
from outlast.errors import DefinitionError
from outlast.flow.amount import Amount, shown_of
from outlast.flow.calls import Plan, refuse_bare_call
from outlast.flow.functions import activity_place, refuse_unrun, refuse_wrapped
from outlast.flow.options import (
    IfUncertain,
    RateLimit,
    Resend,
    Retry,
    Transaction,
    check_if_uncertain,
    no_reconcile,
    transaction_of,
)
from outlast.flow.registry import ACTIVITIES, locals_of_caller, where_of
from outlast.flow.signature import Signature
from outlast.flow.source import docstring_of
from outlast.flow.undo import DecoratesUndo, UndoTerms

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

Kind = Literal["write", "lookup"]

_RUN: Final = 'use once_per="run"'


IN_ORDER: Final = "s"
"""First character of the digest of a lookup whose sets were written in order. It is no hexadecimal digit."""


class BoundCall(NamedTuple):
    """A validated call: the bytes for the ledger and the arguments for the function.

    `proposed`: a denial is raised, and a missing approval is requested (`ctx.do(plan, proposed=True)`).
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    key: str
    args_bytes: bytes
    digest: str
    proposed: bool = False


class Activity(Generic[P, R_co]):
    """A declared activity or lookup. Made by `@activity` and `@lookup`."""

    kind: Kind = "lookup"
    starts_run: bool = False
    """A call of it starts a child run, and sends nothing (`ChildTool`)."""

    def __init__(self, fn: Callable[P, Any], options: "ActivityOptions", names: Mapping[str, Any]) -> None:
        self.fn: Final = fn
        self.where: Final = options.where or activity_place(fn, options.decorator)
        _check_types(options, self.where)
        self.name: Final = options.name or fn.__name__
        self.title: Final = f'{"activity" if self.kind == "write" else "lookup"} "{self.name}" ({self.where})'
        self.is_async: Final = inspect.iscoroutinefunction(fn)
        self.key: Final = options.key
        self.once_per: OncePer = options.once_per or "visit"
        self.once_per_in_child: OncePer = self.once_per
        """Scope of the calls of a run that another run has started."""
        self.once_per_declared: Final = options.once_per is not None
        self.if_uncertain: Final[IfUncertain] = options.if_uncertain
        self.no_undo: Final = options.no_undo
        self.timeout: Final = positive(f"timeout of {self.title}", options.timeout, where=self.where)
        self.retry: Final = options.retry or Retry()
        self.durable: Final = options.durable
        self.keep = positive(f"keep of {self.title}", options.keep, where=self.where)
        self.provider: Final = options.provider or self.name
        self.limit: Final = options.limit
        self.transaction: Final = transaction_of(
            self.title, fn, options.transaction, options.if_uncertain, where=self.where
        )
        self.reconcile_fn: Callable[..., Awaitable[Any]] | None = None
        self.settle_time: timedelta | None = None
        self.undo_fn: Callable[..., Awaitable[Any]] | None = None
        self.undoing: UndoTerms | None = None
        self.compare: Callable[[str, bytes], str | None] | None = None
        """Of a lookup whose calls may differ in what does not matter: takes the digest and the response of a recorded
        call, and returns how the call under way differs, or None if the response is its own."""
        self._checked = False
        self._of_lineage: Self | None = None
        self._of_tree: Self | None = None
        _check_options(self, options)
        self._signature: Final = Signature(fn, self.name, self.title, self.where, self.key)
        self._signature.prepare(names, final=False)
        self.shown: Final = shown_of(self.title, self.where, self._signature.parameters, options.show)
        self._names: Final = (
            {} if self._signature.ready else names
        )  # keeping the caller's locals would keep its objects alive
        self.__doc__ = docstring_of(fn)
        self.__name__ = fn.__name__
        self.__module__ = fn.__module__
        ACTIVITIES.add(self)

    # --- for authors -----------------------------------------------------------------------
    def plan(self, *args: P.args, **kwargs: P.kwargs) -> Plan[R_co]:
        """Return the call with these arguments without making it.

        Raises InvalidInput, NotStorable, LimitExceeded or TypeError.
        """
        if not self._checked:
            self.check()
        return self._plan(self._signature.bind(args, kwargs))

    def _plan(self, bound: tuple[tuple[Any, ...], str, bytes, str]) -> Plan[R_co]:
        _, key, data, digest = bound
        if self.kind == "lookup" and self._signature.has_sets:
            digest = IN_ORDER + digest[1:]
        return Plan(self.name, key, data, digest)

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the bare function, for unit tests.

        Raises Misplaced inside a node of a run: write `ctx.do(…)` there.
        """
        refuse_bare_call(self.name)
        answer: Any = self.fn(*args, **kwargs)
        answer = await answer if self.is_async else answer
        refuse_unrun(answer, self.fn)
        return cast(R_co, answer)

    def __repr__(self) -> str:
        return f"<{self.title}>"

    # --- for the engine --------------------------------------------------------------------
    def for_agent(self) -> Self:
        """Return the activity as an agent uses it.

        Without a declared `once_per`, a write counts once per run, and once per root in a child run.
        """
        if self.kind == "lookup" or self.once_per_declared:
            return self
        own = copy(self)
        own.once_per, own.once_per_in_child = "run", "root"
        return own

    def for_lineage(self) -> Self:
        """Return the activity as a fork uses it once per run: the runs of its lineage share each call (S-28)."""
        if self._of_lineage is None:
            self._of_lineage = self._shared()
        return self._of_lineage

    def for_tree(self) -> Self:
        """Return the activity as a run uses it once per root: the runs of its tree share each call (S-18).

        The row goes once it is settled and no run names it any more, so it is kept as long as its tree.
        """
        if self._of_tree is None:
            self._of_tree = self._shared()
            self._of_tree.keep = timedelta(milliseconds=1)
        return self._of_tree

    def _shared(self) -> Self:
        own = copy(self)
        own.once_per = own.once_per_in_child = "tenant"
        return own

    def check(self) -> None:
        """Raise DefinitionError for mistakes that the decorator could not see: late annotations, a missing undo."""
        self._signature.prepare(self._names, final=True)
        _check_undo(self)
        if self.if_uncertain == "reconcile" and self.reconcile_fn is None:
            raise no_reconcile(self.title, f"add a function under @{self.fn.__name__}.reconcile", where=self.where)
        self._checked = True

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> BoundCall:
        """Validate, render and hash a call. Raises as `plan`.

        The returned arguments are those that a later process reads from `args_bytes`. So the call runs with the
        arguments that were recorded, approved and hashed, even if the caller changes the objects that it passed.
        """
        if not self._checked:
            self.check()
        signature = self._signature
        values, key, data, digest = signature.bind(args, kwargs, load=True)
        if self.kind == "lookup" and signature.has_sets:
            digest = IN_ORDER + digest[1:]
        if signature.all_positional:
            return BoundCall(values, {}, key, data, digest)
        positional, named = signature.split(values)
        return BoundCall(positional, named, key, data, digest)

    def load_args(self, data: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a recorded call.

        Raises NotStorable if they no longer fit the function.
        """
        if not self._checked:
            self.check()
        return self._signature.split(self._signature.load(data))

    def key_of(self, data: bytes) -> str:
        """Return the key of a recorded call under the current template. Raises NotStorable as `load_args`."""
        args, kwargs = self.load_args(data)
        return self.bind(args, kwargs).key

    def arguments_schema(self) -> dict[str, Any]:
        """Return the JSON schema of the parameters."""
        if not self._checked:
            self.check()
        return self._signature.schema()

    def schema_for_caller(self) -> dict[str, Any]:
        """Return the JSON schema of arguments that `parse` takes: parameters with a default are optional."""
        if not self._checked:
            self.check()
        return self._signature.schema_for_caller()

    def parse(self, arguments: bytes) -> Plan[R_co]:
        """Return the plan of a call whose JSON `arguments` come from outside, for instance from a model.

        Strict: no unknown argument and no conversion of one type to another. Raises InvalidInput with all problems,
        NotStorable, LimitExceeded.
        """
        if not self._checked:
            self.check()
        return self._plan(self._signature.bind((), self._signature.parse(arguments)))

    @property
    def has_sets(self) -> bool:
        """True if a parameter may hold a set, so that its bytes had another order before sets were written in order."""
        if not self._checked:
            self.check()
        return self._signature.has_sets

    @property
    def response_codec(self) -> Any:
        """Codec of the return value."""
        if not self._checked:
            self.check()
        return self._signature.response_codec

    @property
    def mode(self) -> Literal["reconcile", "resend", "ask_person"]:
        """The first step for an uncertain call: a declared reconcile function, else `if_uncertain` (S-17)."""
        if self.reconcile_fn is not None:
            return "reconcile"
        return "resend" if isinstance(self.if_uncertain, Resend) else "ask_person"

    @property
    def undone_by(self) -> str:
        """Name of the undo, or the reason for having none, as stored in the ledger."""
        if self.undo_fn is not None:
            return self.undo_fn.__name__
        return f"{NO_UNDO}{self.no_undo[:TEXT_CHARS_MAX]}" if self.no_undo is not None else ""

    @property
    def undo_declared(self) -> bool:
        """True if the activity declares an undo, or a reason for having none."""
        return self.undo_fn is not None or self.no_undo is not None


class Effectful(Activity[P, R_co]):
    """An activity with a side effect."""

    kind: Kind = "write"

    @overload
    def reconcile(
        self, fn: Callable[P, Awaitable[Happened[R_co] | DidNotHappen | Unknown]], /
    ) -> Callable[P, Awaitable[Happened[R_co] | DidNotHappen | Unknown]]: ...
    @overload
    def reconcile(self, /, *, settle_time: Duration) -> "_DecoratesReconcile[P, R_co]": ...
    def reconcile(self, fn: Any = None, /, *, settle_time: Duration | None = None) -> Any:
        """Declare a function that asks the receiver whether a call happened.

        `fn` takes the parameters of the activity and returns Happened, DidNotHappen or Unknown. `settle_time` raises
        the time after which DidNotHappen counts as proof, for a receiver that queues requests. Raises DefinitionError.
        """
        settles = positive(f"settle_time of the reconcile of {self.title}", settle_time, where=self.where)

        def decorate(fn: Any) -> Any:
            _check_companion(self, "reconcile", fn, self.reconcile_fn, [])
            if self.transaction:
                raise DefinitionError(
                    f"{self.title} has a reconcile",
                    "a call in a transaction is never uncertain",
                    "remove the reconcile function",
                    where=self.where,
                )
            self.reconcile_fn, self.settle_time = fn, settles
            self._checked = False
            return fn

        return decorate if fn is None else decorate(fn)

    @overload
    def undo(
        self, fn: Callable[Concatenate[R_co, P], Awaitable[object]], /
    ) -> Callable[Concatenate[R_co, P], Awaitable[object]]: ...
    @overload
    def undo(
        self,
        /,
        *,
        if_uncertain: IfUncertain = "ask_person",
        timeout: Duration | None = None,
        retry: Retry | None = None,
        reconcile: Callable[Concatenate[R_co, P], Awaitable[Happened[object] | DidNotHappen | Unknown]] | None = None,
        settle_time: Duration | None = None,
        transaction: Transaction = False,
    ) -> DecoratesUndo[P, R_co]: ...
    def undo(
        self,
        fn: Any = None,
        /,
        *,
        if_uncertain: IfUncertain = "ask_person",
        timeout: Duration | None = None,
        retry: Retry | None = None,
        reconcile: Callable[..., Awaitable[Any]] | None = None,
        settle_time: Duration | None = None,
        transaction: Transaction = False,
    ) -> Any:
        """Declare a function that undoes a call. Outlast calls it at most once per effect.

        `fn` takes the recorded response, then the parameters of the activity. Its options are its own: `if_uncertain`,
        `timeout`, `retry` and `transaction` as for `@activity`; `settle_time` as for `.reconcile`. `reconcile` is a
        function with the parameters of the undo. Raises DefinitionError.
        """

        def decorate(fn: Any) -> Any:
            _check_companion(self, "undo", fn, self.undo_fn, ["response"])
            if reconcile is not None:
                _check_companion(self, "reconcile of the undo", reconcile, None, ["response"])
            self.undoing = UndoTerms(
                self.name,
                self.title,
                self.where,
                fn,
                if_uncertain=if_uncertain,
                timeout=timeout,
                retry=retry,
                reconcile=reconcile,
                settle_time=settle_time,
                provider=self.provider,
                limit=self.limit,
                transaction=transaction,
            )
            self.undo_fn = fn
            self._checked = False
            return fn

        return decorate if fn is None else decorate(fn)


class KeyedLookup(Activity[..., R_co]):
    """A lookup whose first argument is its key. The others are objects of this process, of any size.

    An ordinary lookup hashes and copies its arguments: a transcript is too large for that, and a client is no data.
    The caller promises that equal keys mean equal arguments within a visit.
    """

    def __init__(
        self,
        fn: Callable[..., Coroutine[Any, Any, R_co]],
        *,
        name: str,
        durable: bool = False,
        timeout: Duration | None = None,
        retry: Retry | None = None,
    ) -> None:
        options = ActivityOptions("KeyedLookup", name, None, "visit", timeout=timeout, retry=retry, durable=durable)
        super().__init__(fn, options, {})

    @override
    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> BoundCall:
        key = f"{self.name}/{args[0]}"
        return BoundCall(args, dict(kwargs), key, b"", digest(self.name, key))


class _DecoratesReconcile(Protocol[P, R]):
    def __call__(
        self, fn: Callable[P, Awaitable[Happened[R] | DidNotHappen | Unknown]], /
    ) -> Callable[P, Awaitable[Happened[R] | DidNotHappen | Unknown]]: ...


class _Decorates(Protocol):
    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Effectful[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Effectful[P, R]: ...


class _DecoratesLookup(Protocol):
    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Activity[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Activity[P, R]: ...


class ActivityOptions(NamedTuple):
    """Options of an activity as it is declared. `where`: its place, if it is not that of its function."""

    decorator: str
    name: str
    key: str | None
    once_per: OncePer | None
    if_uncertain: IfUncertain = "ask_person"
    no_undo: str | None = None
    timeout: Duration | None = None
    retry: Retry | None = None
    durable: bool = False
    keep: Duration | None = None
    provider: str = ""
    limit: RateLimit | None = None
    transaction: Transaction = False
    where: str = ""
    show: Sequence[str | Amount] = ()


def activity(
    *,
    key: str,
    once_per: OncePer | None = None,
    if_uncertain: IfUncertain = "ask_person",
    no_undo: str | None = None,
    timeout: Duration | None = None,
    retry: Retry | None = None,
    name: str = "",
    keep: Duration | None = None,
    provider: str = "",
    limit: RateLimit | None = None,
    transaction: Transaction = False,
    show: Sequence[str | Amount] = (),
) -> _Decorates:
    """Declare an activity: a function with a side effect, called at most once per key.

    - `key`: template over the function's parameters, for example `"order/{supplier}"`.
    - `once_per`: how far a key counts: "visit" (a new visit of the node makes a new call), "run", "root" (one call for
      all runs of a tree, which share the response) or "tenant" (one call for all runs of a tenant). Default: "visit";
      for a tool of `agent_workflow`, "run", and "root" in a child run.
    - `if_uncertain`: what to do if the call may have happened: "ask_person", "reconcile" (a function declared with
      `.reconcile` asks the receiver) or `resend(remembered_for=…)`. A declared reconcile function always comes first.
    - `no_undo`: the reason why the call cannot be undone; otherwise declare `.undo`.
    - `timeout`: limit of one attempt (default 120 s).
    - `retry`: limits of the retries of a call that certainly had no effect (default: `Retry()`).
    - `name`: the stored name (default: the function's). Keep it when the function is renamed.
    - `keep`: how long a tenant-wide effect outlives the runs that used it (default: no end).
    - `provider`: name of the receiver (default: the name). Activities of one provider share a circuit breaker.
    - `limit`: rate limit of the provider, over all workers.
    - `transaction`: writes through `this_call().transaction` commit together with the effect; "serializable" sets the
      isolation.
    - `show`: the main arguments, which lists of approvals and the button of a decision show:
      `("order", "to {customer}", Amount("cents", "EUR"))`. Default: the first scalar ones.

    Raises DefinitionError.
    """
    names = locals_of_caller(1)
    options = ActivityOptions(
        "@activity",
        name,
        key,
        once_per,
        if_uncertain,
        no_undo,
        timeout,
        retry,
        keep=keep,
        provider=provider,
        limit=limit,
        transaction=transaction,
        show=show,
    )
    return cast(_Decorates, lambda fn: Effectful(fn, options, names))


@overload
def lookup(fn: Callable[P, Coroutine[Any, Any, R]], /) -> Activity[P, R]: ...
@overload
def lookup(fn: Callable[P, R], /) -> Activity[P, R]: ...
@overload
def lookup(
    *,
    key: str | None = None,
    once_per: OncePer = "visit",
    timeout: Duration | None = None,
    retry: Retry | None = None,
    durable: bool = False,
    name: str = "",
    provider: str = "",
    limit: RateLimit | None = None,
) -> _DecoratesLookup: ...
def lookup(
    fn: Any = None,
    /,
    *,
    key: str | None = None,
    once_per: OncePer = "visit",
    timeout: Duration | None = None,
    retry: Retry | None = None,
    durable: bool = False,
    name: str = "",
    provider: str = "",
    limit: RateLimit | None = None,
) -> Any:
    """Declare a lookup: a function that changes nothing and whose response is recorded once per visit or run.

    - `fn`: the function, if the decorator has no options.
    - `key`: template over the function's parameters (default: the name and a hash of the arguments).
    - `once_per`: how far a key counts: "visit" or "run".
    - `durable`: store the response before it is used: for a call that costs money or answers differently each time,
      such as a language model.
    - `timeout`, `retry`, `name`, `provider`, `limit`: those of `@activity`. No circuit breaker stops a lookup.

    Raises DefinitionError.
    """
    names = locals_of_caller(1)
    options = ActivityOptions(
        "@lookup", name, key, once_per, timeout=timeout, retry=retry, durable=durable, provider=provider, limit=limit
    )
    return Activity(fn, options, names) if fn is not None else lambda fn: Activity(fn, options, names)


# --- checks --------------------------------------------------------------------------------
def _check_types(options: ActivityOptions, where: str) -> None:
    """Raise DefinitionError for an option of another type, which would act as its default or fail at a call."""
    check = Arguments(options.decorator, where)
    check.is_text("name", options.name, 'e.g. name="mail.send"')
    check.is_text("provider", options.provider, 'e.g. provider="erp"')
    if options.key is not None or options.decorator == "@activity":
        check.is_text("key", options.key, 'a template over the parameters: key="order/{supplier}"')
    check.instance("retry", options.retry, Retry, "retry=Retry(attempts=2)")
    check.instance("limit", options.limit, RateLimit, "limit=RateLimit(concurrent=5)")
    check.flag("durable", options.durable)


def _check_options(activity: Activity[Any, Any], options: ActivityOptions) -> None:
    def wrong(why: str, reason: str, fix: str) -> DefinitionError:
        return DefinitionError(f"{activity.title} {why}", reason, fix, where=activity.where)

    if not NAME.fullmatch(activity.name):
        raise wrong(
            "has an unusable name", "1 to 100 letters, digits, dots, dashes or underscores", 'e.g. name="mail.send"'
        )
    if options.once_per not in (None, "visit", "run", "root", "tenant"):
        raise wrong(
            f"has once_per={options.once_per!r}",
            "the values are visit, run, root and tenant",
            "use one of them, or leave it out",
        )
    if options.once_per == "tenant" and activity.kind == "lookup":
        raise wrong("has once_per='tenant'", "a response kept without end goes stale", _RUN)
    if options.once_per == "root" and activity.kind == "lookup":
        raise wrong("has once_per='root'", "runs share answers of writes alone", _RUN)
    if options.keep is not None and options.once_per != "tenant":
        raise wrong(
            "has keep=",
            "only an effect shared by all runs of a tenant outlives its run",
            'leave it out, or once_per="tenant"',
        )
    if options.provider and not NAME.fullmatch(options.provider):
        raise wrong(
            f"has provider {options.provider!r}", "1 to 100 letters, digits, dots, dashes, underscores", "e.g. erp"
        )
    check_if_uncertain(activity.title, options.if_uncertain, where=activity.where)
    reason: object = options.no_undo  # a caller without a type checker may pass anything
    if reason is not None and not (isinstance(reason, str) and reason.strip()):
        raise wrong(
            f"has no_undo={reason!r}",
            "people who cancel a run read this reason",
            'say why nothing can be undone: no_undo="an e-mail cannot be unsent"',
        )


def _check_undo(activity: Activity[Any, Any]) -> None:
    if activity.kind == "lookup":
        return
    name = activity.fn.__name__
    if activity.undo_fn is not None and activity.no_undo is not None:
        raise DefinitionError(
            f"{activity.title} has both an undo and no_undo",
            f"no_undo says: {activity.no_undo}",
            f"keep @{name}.undo, or no_undo=…",
            where=activity.where,
        )
    if not activity.undo_declared:
        raise DefinitionError(
            f"{activity.title} does not say how it is undone",
            "when a run fails or is cancelled, its calls are undone in reverse order",
            f'add a function under @{name}.undo, or write no_undo="why it cannot be undone"',
            where=activity.where,
        )


def _check_companion(
    activity: Activity[Any, Any], what: str, fn: Any, before: Callable[..., Any] | None, first: list[str]
) -> None:
    def wrong(why: str, reason: str, fix: str) -> DefinitionError:
        where = where_of(fn) if inspect.isfunction(fn) else activity.where
        return DefinitionError(f"{what} of {activity.title} {why}", f"{where}: {reason}", fix, where=where)

    expected = first + list(inspect.signature(activity.fn).parameters)
    shown = f"async def {getattr(fn, '__name__', what)}({', '.join(expected)})"
    refuse_wrapped(f"{what} of {activity.title}", fn)
    if not inspect.isfunction(fn) or not inspect.iscoroutinefunction(fn):
        raise wrong("is not async def", "only activities themselves may be def", f"write {shown}")
    if before is not None and where_of(before) != where_of(fn):
        raise wrong("is declared twice", f"the first is at {where_of(before)}", "keep one of them")
    found = list(inspect.signature(fn).parameters)
    if len(found) != len(expected) or found[len(first) :] != expected[len(first) :]:
        extra = "the response, then " if first else ""
        raise wrong(
            "takes other parameters",
            f"it takes ({', '.join(found)}), but is called with {extra}the activity's parameters",
            f"write {shown}",
        )
    if what == "undo" and activity.no_undo is not None:
        raise wrong("contradicts no_undo", f"no_undo says: {activity.no_undo}", "keep one of the two")
