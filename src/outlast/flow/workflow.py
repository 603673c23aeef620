"""Workflows: named nodes, the exits between them, and the state they share."""

import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any, Final, Generic, Protocol, Unpack, cast, get_args, overload

from pydantic import AliasChoices, AliasPath, BaseModel
from pydantic.fields import FieldInfo
from typing_extensions import TypeVar  # its defaults are in typing from Python 3.13 on

from outlast.core.argument_checks import Arguments, positive_term
from outlast.core.attributes import NO_ATTRIBUTES, AttributeValues
from outlast.core.codec import ELSEWHERE, Codec, canonical, digest, is_json, plain_json
from outlast.core.durations import Term
from outlast.core.failed_calls import EmptyEnd, WhenEmpty
from outlast.core.lanes import BUILT_IN, OWN, is_built_in, lane_of
from outlast.core.limits import INPUT_BYTES_MAX, NAME, NODES_MAX, OUTCOME_BYTES_MAX, STATE_BYTES_MAX
from outlast.core.round_trip import ValueComparison
from outlast.core.rows.run_columns import StatusLabels
from outlast.core.state.growing_list import growing_list
from outlast.core.usage import Budget
from outlast.errors import Conflict, DefinitionError, InvalidInput, NotStorable
from outlast.flow.activity import Activity
from outlast.flow.child_starts import undecided_children
from outlast.flow.context import Context
from outlast.flow.functions import line_of, refuse_unrun, refuse_unrun_function
from outlast.flow.graph import mistakes
from outlast.flow.migrations import Migration, Migrations, Plain, dropped_names
from outlast.flow.node import DEFAULT_END, Node, NodeOptions, Plane
from outlast.flow.races import waits_in_races
from outlast.flow.reach import activities_seen_by, emits, models_without_price, writes_of, writes_of_decisions
from outlast.flow.registry import (
    WORKFLOWS,
    ambiguous,
    find_activity,
    hints_of,
    locals_of_caller,
    where_called,
    where_of,
)
from outlast.flow.workflow_options import (
    CEILING,
    NO_CEILING,
    Attributes,
    Failures,
    Objective,
    StartKey,
    WorkflowOptions,
    window_terms,
)

S = TypeVar("S", bound=BaseModel)
In = TypeVar("In", bound=BaseModel, default=S)
Out = TypeVar("Out", default=S)
S_made = TypeVar("S_made", bound=BaseModel)  # those of a constructor: it fixes the parameters of the class
In_made = TypeVar("In_made", bound=BaseModel)
Out_made = TypeVar("Out_made")
S_inv = TypeVar("S_inv", bound=BaseModel)
NextT = TypeVar("NextT", bound="str | None")


class _DecoratesNode(Protocol[S_inv]):
    def __call__(
        self, fn: Callable[[Context[S_inv]], Coroutine[Any, Any, NextT]], /
    ) -> Callable[[Context[S_inv]], Coroutine[Any, Any, NextT]]: ...


@dataclass(frozen=True, slots=True)
class Beginning(Generic[S]):
    """First state of a run, the start key and the objective derived from its input ('' without), and a digest of it.

    The digest is of the input and not of the state: a new field of the state makes no other input of the same one.
    """

    state: S
    key: str
    digest: str
    objective: str
    attributes: AttributeValues


class Workflow(Generic[S, In, Out]):
    """A declared graph of nodes over one state. `Workflow[S, In, Out]` has the types of its state, input and outcome.

    - `name`: the stored name.
    - `state`: the model of the state, a class derived from `pydantic.BaseModel`.
    - `outcome`: computes the result of the run from its last state (default: that state).
    - `input`: model of the run's input; its fields become fields of the state. Without it, the input is a state: its
      required fields are given, the others may be.
    - `options`: those of `WorkflowOptions`.

    Raises DefinitionError.
    """

    scheduler: str = OWN
    """Engine that schedules the runs of its lane."""
    description: str = ""
    """What it does, for a model that may start it."""
    is_built_in: bool = False
    """True if it belongs to this package, so that its name may begin with `outlast.`."""

    @overload
    def __init__(
        self: "Workflow[S_made, S_made, S_made]",
        name: str,
        *,
        state: type[S_made],
        outcome: None = ...,
        input: None = ...,
        **options: Unpack[WorkflowOptions[S_made]],
    ) -> None: ...
    @overload
    def __init__(
        self: "Workflow[S_made, In_made, S_made]",
        name: str,
        *,
        state: type[S_made],
        outcome: None = ...,
        input: type[In_made],
        **options: Unpack[WorkflowOptions[In_made]],
    ) -> None: ...
    @overload
    def __init__(
        self: "Workflow[S_made, S_made, Out_made]",
        name: str,
        *,
        state: type[S_made],
        outcome: Callable[[S_made], Out_made],
        input: None = ...,
        **options: Unpack[WorkflowOptions[S_made]],
    ) -> None: ...
    @overload
    def __init__(
        self: "Workflow[S_made, In_made, Out_made]",
        name: str,
        *,
        state: type[S_made],
        outcome: Callable[[S_made], Out_made],
        input: type[In_made],
        **options: Unpack[WorkflowOptions[In_made]],
    ) -> None: ...
    def __init__(
        self,
        name: str,
        *,
        state: type[Any],
        outcome: Callable[[Any], Any] | None = None,
        input: type[Any] | None = None,  # noqa: A002 - the word that authors expect
        **options: Unpack[WorkflowOptions[Any]],
    ) -> None:
        if unknown := options.keys() - WorkflowOptions.__optional_keys__:
            raise TypeError(f"{type(self).__name__}() got an unexpected keyword argument {min(unknown)!r}")
        self.where: Final = self._declared_at()
        self.name: Final = name
        self.version: Final = options.get("version", 1)
        self.title: Final = f'workflow "{name}"'
        check = Arguments("Workflow", self.where)
        self.slot_while_waiting: Final = options.get("slot_while_waiting", True)
        check.flag("slot_while_waiting", self.slot_while_waiting)
        check.function("outcome", outcome, "outcome=lambda state: state.receipt")
        self.policy: Final = options.get("policy")
        check.function("policy", self.policy, "policy=rules")
        self.budget: Final = options.get("budget")
        check.instance("budget", self.budget, Budget, "budget=Budget(tokens=100_000)")
        self.window: Final = window_terms(options, self.title, self.where)
        ceiling = options.get("ceiling", CEILING if self.window is None else NO_CEILING)
        if cast(object, ceiling) is None:
            raise check.wrong("ceiling", ceiling, "it is a duration", 'ceiling="168h"')
        self.when_empty: Final = options.get("when_empty")
        self.fails_if: Final = options.get("fails_if")
        self._check_options(name, self.version, state, input, self.when_empty, self.fails_if)
        self.state: Final[type[S]] = state
        self.ceiling: Final = positive_term(f"ceiling of {self.title}", ceiling, where=self.where)
        self.outcome: Final[Callable[[S], Out] | None] = outcome
        for option, fn in (("outcome", outcome), ("policy", self.policy)):
            refuse_unrun_function(f"{option}= of {self.title}", fn, "write it as a plain def", where=self.where)
        self.asks_permission = self.policy is not None
        self.input: Final[type[In] | None] = input
        self.key: Final = (
            StartKey(key, input or state, self.title, self.where) if (key := options.get("key")) is not None else None
        )
        self.objective: Final = (
            Objective(text, input or state, self.title, self.where)
            if (text := options.get("objective", "")) != ""
            else None
        )
        self.attributes: Final = (
            Attributes(options["attributes"], state, input, self.title, self.where) if "attributes" in options else None
        )
        self.nodes: Final[dict[str, Node]] = {}
        self.state_codec: Final[Codec[S]] = Codec(
            state,
            named=f"the state of {self.title}",
            where=self.where,
            bytes_max=STATE_BYTES_MAX if outcome is not None else OUTCOME_BYTES_MAX,
            if_large=ELSEWHERE if outcome is not None else _OUTCOME_IS_STATE,
        )
        self.growing: Final = growing_list(self.state_codec)
        self._outcome_codec: Final[Codec[Any]] = self._outcome_codec_of(Any)
        self._outcome_type: Any = _returned_type(outcome, locals_of_caller(1)) if outcome is not None else state
        self.input_codec: Final[Codec[Any]] = Codec(
            input or state, named=f"the input of {self.title}", bytes_max=INPUT_BYTES_MAX, where=self.where
        )
        self._plain_codec: Final[Codec[Any]] = Codec(
            Any, named=f"the input of {self.title}", bytes_max=INPUT_BYTES_MAX, where=self.where
        )
        self._activities: dict[str, Activity[..., Any]] | None = None
        self.migrations: Final = Migrations(self.title)
        WORKFLOWS.add(self)

    # --- for authors -----------------------------------------------------------------------
    @overload
    def node(
        self, fn: Callable[[Context[S]], Coroutine[Any, Any, NextT]], /
    ) -> Callable[[Context[S]], Coroutine[Any, Any, NextT]]: ...
    @overload
    def node(
        self,
        /,
        *,
        start: bool = False,
        status: str | StatusLabels | None = None,
        end: str | None = None,
        max_visits: int | None = None,
        within: Term | None = None,
        ceiling: Term | None = None,
        plane: Plane = "",
    ) -> _DecoratesNode[S]: ...
    def node(
        self,
        fn: Any = None,
        /,
        *,
        start: bool = False,
        status: str | StatusLabels | None = None,
        end: str | None = None,
        max_visits: int | None = None,
        within: Term | None = None,
        ceiling: Term | None = None,
        plane: Plane = "",
    ) -> Any:
        """Declare the async function `fn` as a node. Its return annotation names the nodes that may follow.

        - `start`: runs begin here.
        - `status`: business status of a run in this node, or `StatusLabels` for one that depends on what the run does.
        - `end`: that of a run that completes in this node, shown instead of COMPLETED.
        - `max_visits`: a further visit goes to attention.
        - `within`: no wait of a visit lasts longer than this after its entry, except a `receive` without a deadline.
        - `ceiling`: raises the ceiling of the run once it enters the node (business time).
        - `plane`: "decision" for a node that makes no writes: a workflow whose node can reach one does not load, and
          one that it makes anyway is refused. "execution" for a node that acts on decisions.

        The function is returned unchanged, so that a test can await it. Raises DefinitionError.
        """
        names = locals_of_caller(1)
        options = NodeOptions(start, status, end, max_visits, within, ceiling, plane)

        def decorate(fn: Any) -> Any:
            node = Node(fn, options, self.title, self.state, names)
            self._add(node)
            return fn

        return decorate if fn is None else decorate(fn)

    def migrate(
        self, *, from_: int, to: int = 0, renamed: Mapping[str, str] | None = None, dropped: Sequence[str] = ()
    ) -> Callable[[Callable[[Plain], Plain]], Callable[[Plain], Plain]]:
        """Declare how the state of a run of version `from_` becomes that of version `to` (default: this version).

        The function takes the old state as plain data and returns the new one, without side effects. `renamed` maps
        old names of nodes to new ones. `dropped`: names of activities whose recorded calls the new version does not
        make any more, because a moved run stays in its visit. Migrations chain; one from a higher version leads back. A
        run of another version without a migration goes to attention. Raises DefinitionError.
        """

        check = Arguments(f"migration of {self.title}", self.where)
        check.mapping("renamed", renamed, 'renamed={"old": "new"}')
        check.number("to", to, 0, 2**31)

        def decorate(fn: Callable[[Plain], Plain]) -> Callable[[Plain], Plain]:
            where = where_of(fn) if inspect.isfunction(fn) else line_of(fn)
            refuse_unrun_function(f"a migration of {self.title}", fn, "write it as a plain def", where=where)
            names = dropped_names(self.title, dropped, where)
            self.migrations.add(Migration(from_, to or self.version, fn, dict(renamed or {}), where, names))
            return fn

        return decorate

    def validate(self) -> "Workflow[S, In, Out]":
        """Check the graph and every activity that its modules can see. Raises DefinitionError with every mistake."""
        found = self.mistakes()
        if len(found) == 1:
            raise found[0]
        if found:
            listed = "\n".join(f"{i}. {each.what}\n   {each.why}\n   → {each.fix}" for i, each in enumerate(found, 1))
            raise DefinitionError(
                f"{self.title} has {len(found)} mistakes", listed, "correct them in this order", where=found[0].where
            )
        return self

    # --- for the engine --------------------------------------------------------------------
    def mistakes(self) -> list[DefinitionError]:
        """Return each mistake of the graph and of the activities that its modules can see."""
        found: list[DefinitionError] = []
        for node in self.nodes.values():
            _collect(found, node.resolve)
        if not found:
            places = {name: node.place for name, node in self.nodes.items()}
            found += mistakes(self.title, self.where, places, may_be_endless=self.window is not None)
        found += self.migrations.mistakes(self.version, self.nodes)
        found += writes_of_decisions(self.nodes.values())
        found += waits_in_races(self.nodes.values())
        found += undecided_children(self.nodes.values())
        found += self._undecided_undos()
        seen: dict[str, Activity[..., Any]] = {}
        for activity in [*activities_seen_by(node.fn for node in self.nodes.values()), *self._further_activities()]:
            if seen.setdefault(activity.name, activity) is not activity:
                found.append(ambiguous("activity", [seen[activity.name], activity]))
            _collect(found, activity.check)
        if not found:
            self._activities = seen
        return found

    @property
    def lane(self) -> str:
        """Name under which workers serve runs of this version."""
        return lane_of(self.name, self.version, self.scheduler)

    def scheduled_by(self, scheduler: str) -> "Workflow[S, In, Out]":
        """Return the workflow as the workers of `scheduler` serve it: the same code, under another lane."""
        if scheduler == self.scheduler:
            return self
        served = copy(self)
        served.scheduler = scheduler
        return served

    @property
    def start(self) -> Node:
        """The node where runs begin. Call `validate` first."""
        return next(node for node in self.nodes.values() if node.start)

    @property
    def activities(self) -> dict[str, Activity[..., Any]]:
        """The activities that its modules can see, by name. Raises as `validate`."""
        if self._activities is None:
            self.validate()
        assert self._activities is not None
        return self._activities

    def activity(self, name: str) -> Activity[..., Any]:
        """Return the activity that a stored plan names: the workflow's own, else the only one of that name here.

        Raises NotFound for none and DefinitionError for several.
        """
        own = self.activities.get(name)
        return own if own is not None else cast(Activity[..., Any], find_activity(name))

    @cached_property
    def emits(self) -> bool:
        """True if the code of a node mentions `emit`."""
        return any(emits(node.fn) for node in self.nodes.values())

    @cached_property
    def writes(self) -> tuple[str, ...]:
        """Names of the writes that the code of its nodes mentions."""
        return tuple(sorted({each.name for node in self.nodes.values() for each, _ in writes_of(node.fn)}))

    @cached_property
    def empty_ends(self) -> dict[str, EmptyEnd]:
        """Declarations that decide the end of a run without a result whose calls failed, by its last node."""
        if self.when_empty is not None:
            return dict.fromkeys(self.nodes, EmptyEnd(self.when_empty))
        ends = {name: node.end or DEFAULT_END for name, node in self.nodes.items() if node.exits.ends}
        several = len(set(ends.values())) > 1
        returns = self.outcome is not None
        return {name: EmptyEnd(None, self.emits, returns, several and end != DEFAULT_END) for name, end in ends.items()}

    @property
    def counts_failures(self) -> bool:
        """True if the end of a run depends on its failed calls. Then failed lookups are recorded."""
        return self.when_empty != "complete" or self.fails_if is not None

    def first_state(self, given: bytes | str | dict[str, Any]) -> S:
        """Return the first state of a run with this input. Raises InvalidInput with every problem at once."""
        return self.begin(given).state

    def begin(self, given: bytes | str | dict[str, Any]) -> "Beginning[S]":
        """Return the first state of a run with this input, and what identifies the start.

        Raises InvalidInput with every problem at once, LimitExceeded for a key that is too long, DefinitionError.
        """
        try:
            if self.input is None:
                self._refuse_unknown_fields(given)
            admitted = _admitted(self.input_codec, given)
        except InvalidInput as error:
            if error.fix or not error.problems:
                raise
            raise InvalidInput(error.what, problems=error.problems, fix=f"it takes {self._taken}") from error
        key = self.key.of(admitted) if self.key is not None else ""
        of_input = self._digest_of(admitted)
        state, objective = self._state_of(admitted), self.objective.of(admitted) if self.objective else ""
        named = self.attributes.of_start(state, admitted) if self.attributes is not None else NO_ATTRIBUTES
        return Beginning(state, key, of_input, objective, named)

    def _digest_of(self, admitted: Any) -> str:
        return digest(self.name, self.input_codec.canonical(admitted))

    @property
    def input_has_sets(self) -> bool:
        """True if an input may hold a set, so that its digest differed between processes."""
        return self.input_codec.has_sets

    def digest_of_first(self, state: bytes) -> str:
        """Return the digest of the input that made the first `state` of a run. Raises NotStorable, InvalidInput."""
        first = self.state_codec.load(state)
        if self.input is None:
            return self._digest_of(first)
        fields = {name: getattr(first, name) for name in self.input.model_fields}
        return self._digest_of(self.input_codec.convert(fields, by_name=True))

    @cached_property
    def _taken(self) -> str:
        """The names of the fields of the input, for error texts."""
        fields = (self.input or self.state).model_fields.items()
        needed = ", ".join(f.alias or name for name, f in fields if f.is_required())
        optional = ", ".join(f.alias or name for name, f in fields if not f.is_required())
        return " and optionally ".join(filter(None, (needed, optional))) or "an empty input"

    def _state_of(self, admitted: BaseModel) -> S:
        if self.input is None:
            return cast(S, admitted)  # the same type as the state, under the name that the caller knows
        try:
            fields = {name: getattr(admitted, name) for name in type(admitted).model_fields}
            return self.state_codec.convert(fields, by_name=True)
        except InvalidInput as error:
            raise DefinitionError(
                f"an input of {self.title} does not make a state",
                error.why,
                f"give {self.state.__name__} the fields of {self.input.__name__}, and defaults to all others",
                where=self.where,
            ) from error

    def outcome_of(self, state: S) -> bytes:
        """Return the result of the run as JSON. Raises NotStorable, LimitExceeded, and the exceptions of `outcome`."""
        if self.outcome is None:
            return self.state_codec.dump(state)
        outcome = self.outcome(state)
        refuse_unrun(outcome, self.outcome, plain=True)
        if self._answer_type is not Any:
            return self.answer_codec.dump(outcome)
        try:
            plain = plain_json(outcome)  # without an annotation: plain JSON, also for clients
        except NotStorable:
            plain = outcome  # the dump says where
        return self._outcome_codec.dump(plain)

    def input_schema(self) -> dict[str, Any]:
        """The JSON schema of what starts a run."""
        return self.input_codec.schema()

    # --- for clients -----------------------------------------------------------------------
    def encode_input(self, given: In | Mapping[str, object]) -> bytes:
        """Return the input `given` as JSON, for `start`: of a model the fields that differ from a default, by alias.

        A mapping is encoded as it is, and checked at the start. Raises InvalidInput (another model), NotStorable,
        LimitExceeded.
        """
        if isinstance(given, Mapping):
            return self._encode_mapping(dict(given))
        model = self.input or self.state
        if not isinstance(given, model):
            raise InvalidInput(
                f"the input of {self.title} is not valid",
                f"it is a {type(given).__name__}, not a {model.__name__}",
                f"give a {model.__name__}, or a dict: it takes {self._taken}",
            )
        self.input_codec.dump(given)  # names a value without a JSON form
        plain = given.model_dump(mode="json", by_alias=True, include=_given_fields(given), exclude_computed_fields=True)
        data = self._plain_codec.dump(plain, check=False)
        self._check_input(given, data)
        return data

    def _encode_mapping(self, given: dict[str, object]) -> bytes:
        """Return Python values as JSON. Values that are no JSON must fit the fields of the input."""
        data = self._plain_codec.dump(given, check=False)
        if not is_json(given):
            self._check_input(self.input_codec.convert(given), data)
        return data

    def _check_input(self, given: Any, data: bytes) -> None:
        """Raise NotStorable unless the input is read from JSON as it was given."""
        read = self.input_codec.admit(data)
        if why := ValueComparison(sequences=True).difference(given, read, "input"):
            raise NotStorable(
                f"the input of {self.title} cannot be sent",
                why,
                "give values of the declared types, and one alias for reading and writing",
            )

    def decode_outcome(self, data: Any) -> Out:
        """Return a stored outcome, the parsed JSON `data`, as the state, or as `outcome` is annotated to return it.

        Without an annotation it stays plain JSON. Raises NotStorable if it does not fit the type, DefinitionError if
        the annotation cannot be read.
        """
        return cast(Out, self.answer_codec.load(canonical(data)))

    @cached_property
    def answer_codec(self) -> Codec[Any]:
        """The codec of the outcome as it is stored, and as clients see it."""
        return self._outcome_codec_of(self._answer_type)

    @cached_property
    def _answer_type(self) -> Any:
        """The annotated type of the outcome. Raises DefinitionError if the annotation cannot be read."""
        if isinstance(self._outcome_type, NameError | AttributeError):  # perhaps a type that is declared further down
            assert self.outcome is not None
            self._outcome_type = _returned_type(self.outcome, {})
        if isinstance(self._outcome_type, NameError | AttributeError):
            raise DefinitionError(
                f"outcome of {self.title} has an annotation that cannot be read",
                str(self._outcome_type),
                "import the type at module level",
                where=self.where,
            )
        return self._outcome_type

    def _outcome_codec_of(self, type_: Any) -> Codec[Any]:
        return Codec(type_, named=f"the outcome of {self.title}", bytes_max=OUTCOME_BYTES_MAX, where=self.where)

    def __repr__(self) -> str:
        return f"<{self.title} version {self.version} ({self.where})>"

    def models_without_price(self) -> Sequence[str]:
        """Return the models that its nodes are known to ask and whose price is not known."""
        return models_without_price(node.fn for node in self.nodes.values())

    def _further_activities(self) -> Sequence[Activity[..., Any]]:
        """Return activities that its nodes use and that their modules do not name."""
        return ()

    # --- checks ----------------------------------------------------------------------------
    def _declared_at(self) -> str:
        """Return the file and line of the constructor's caller."""
        return where_called(2)

    def _add(self, node: Node) -> None:
        def wrong(why: str, other: Node, fix: str) -> DefinitionError:
            return DefinitionError(f"{node.title} {why}", f"the other one is at {other.where}", fix, where=node.where)

        same = self.nodes.get(node.name)
        if same is not None and same.where != node.where:
            raise wrong("is declared twice", same, "give one of them another name")
        for other in self.nodes.values():
            if node.start and other.start and other.name != node.name:
                raise wrong(f'is a second start node, beside "{other.name}"', other, "say start=True on one of them")
        if len(self.nodes) >= NODES_MAX:
            raise DefinitionError(
                f"{self.title} has too many nodes", f"at most {NODES_MAX}", "split it", where=node.where
            )
        self.nodes[node.name] = node
        self.asks_permission |= node.plane == "decision"
        self._activities = None

    def _check_options(
        self, name: str, version: int, state: Any, input_: Any, when_empty: str | None, fails_if: Any
    ) -> None:
        def wrong(why: str, fix: str) -> DefinitionError:
            return DefinitionError(f"{self.title} ({self.where}) {why}", self.where, fix, where=self.where)

        given: object = name  # a caller without a type checker may pass anything
        if not isinstance(given, str) or not NAME.fullmatch(given):
            raise wrong("has an unusable name", "use 1 to 100 letters, digits, dots, dashes or underscores")
        if is_built_in(given) and not self.is_built_in:
            raise wrong("has a reserved name", f"choose a name that does not begin with {BUILT_IN}")
        if type(version) is not int or version < 1:
            raise wrong(f"has version {version!r}", "versions are whole numbers from 1")
        if when_empty is not None and all(when_empty != each for each in get_args(WhenEmpty)):
            raise wrong(f"has when_empty={when_empty!r}", 'it is "complete", "ask_person" or "fail"')
        if fails_if is not None and not isinstance(fails_if, Failures):
            raise wrong(f"has fails_if={fails_if!r}", "give a share of failed calls, e.g. fails_if=Failures(0.5)")
        for what, model in (("state", state), ("input", input_)):
            if model is not None and not (isinstance(model, type) and issubclass(model, BaseModel)):
                raise wrong(f"has {what}={model!r}", f"make the {what} a class derived from pydantic.BaseModel")

    def _undecided_undos(self) -> list[DefinitionError]:
        """Return the mistakes of a window of history without a rule for undos.

        A call that the code does not mention is missed. The window keeps its row, so its undo is not lost.
        """
        if self.window is None or self.window.undo is not None:
            return []
        mentioned = [each for node in self.nodes.values() for each, _ in writes_of(node.fn)]
        by_name = {each.name: each for each in (*mentioned, *self._further_activities())}
        return [_undecided_undo(self.title, self.where, each) for each in by_name.values() if each.undo_fn is not None]

    def _refuse_unknown_fields(self, given: bytes | str | dict[str, Any]) -> None:
        data = self._plain_codec.admit(given) if isinstance(given, (bytes, str)) else given
        if not isinstance(data, dict) or self.state.model_config.get("extra") is not None:
            return  # validation reports the mistake, or the model says what becomes of other fields
        unknown = [name for name in data if name not in self._known]
        if unknown:
            raise InvalidInput(
                f"the input of {self.title} is not valid",
                problems=[*((name, "is not known") for name in unknown), *self._further_problems(data, unknown)],
                fix=f"it takes {self._taken}",
            )

    @cached_property
    def _known(self) -> frozenset[str]:
        """Every name under which the state's model takes a field."""
        config = self.state.model_config
        by_name = bool(config.get("populate_by_name") or config.get("validate_by_name"))
        return frozenset(
            taken for name, field in self.state.model_fields.items() for taken in _names_of(name, field, by_name)
        )

    def _further_problems(self, data: dict[str, Any], other: list[str]) -> list[tuple[str, str]]:
        try:
            self.state_codec.convert({name: value for name, value in data.items() if name not in other})
        except InvalidInput as error:
            return list(error.problems)
        return []


def _admitted(codec: Codec[Any], given: bytes | str | dict[str, Any]) -> Any:
    """Return an input, JSON from outside or Python values, as its type. Raises InvalidInput."""
    return codec.admit(given) if isinstance(given, (bytes, str)) else codec.convert(given)


def _returned_type(fn: Callable[..., Any], names: Mapping[str, Any]) -> Any:
    """Return the annotated return type, Any without one, or the error of an annotation that cannot be read."""
    try:
        return hints_of(fn, names).get("return", Any)
    except (NameError, AttributeError) as error:
        return error
    except TypeError:  # a callable object without annotations
        return Any


def _names_of(name: str, field: FieldInfo, by_name: bool) -> set[str]:
    """Return the names under which a model takes one of its fields."""
    alias = field.validation_alias
    if alias is None:
        return {name}
    if isinstance(alias, AliasChoices):
        found = {str(path[0]) for path in alias.convert_to_aliases()}
    else:
        found = {str(alias.path[0]) if isinstance(alias, AliasPath) else alias}
    return found | {name} if by_name else found


def _given_fields(given: BaseModel) -> set[str]:
    """Return the fields that were set or changed: those that the receiver's defaults would not make again."""
    fields = type(given).model_fields
    same = {
        name
        for name, field in fields.items()
        if name not in given.model_fields_set and not field.default_factory and getattr(given, name) == field.default
    }
    return {*fields, *given.model_fields_set} - same


_OUTCOME_IS_STATE: Final = (
    f"return less with Workflow(…, outcome=…): without it, the result is the whole state, which may then take "
    f"{OUTCOME_BYTES_MAX:,} bytes instead of {STATE_BYTES_MAX:,}"
)


def workflows_of(module: ModuleType) -> list[Workflow[Any]]:
    """Return every workflow that a `module` declares or imports by name, validated. Raises DefinitionError."""
    Arguments("workflows_of").instance("module", module, ModuleType, "workflows_of(orders)", optional=False)
    return [workflow.validate() for workflow in declared_workflows(module)]


def declared_workflows(module: ModuleType) -> list[Workflow[Any]]:
    """Return the workflows of a module, unchecked. Raises DefinitionError if two have one name and version."""
    found: dict[str, Workflow[Any]] = {}
    for value in vars(module).values():
        if isinstance(value, Workflow) and found.setdefault(value.lane, value) is not value:
            raise ambiguous("workflow", [found[value.lane], value])
    return [*found.values()]


def _undecided_undo(title: str, where: str, activity: Activity[..., Any]) -> DefinitionError:
    """Return the mistake of a workflow with a window of history and without a rule for undos."""
    return DefinitionError(
        f"{title} has history= and may call {activity.name}, which has an undo",
        "behind the window, the rows of such calls stay and the store grows, or nothing undoes them any more",
        'add undo="keep" or undo="window"',
        where=where,
    )


def _collect(found: list[DefinitionError], check: Callable[[], object]) -> None:
    try:
        check()
    except DefinitionError as error:
        found.append(error)


def workflows_by_name(workflows: Sequence[Workflow[Any]]) -> dict[str, Workflow[Any]]:
    """Return the newest version of each workflow by name.

    Raises Conflict if two workflows share name and version.
    """
    found: dict[str, Workflow[Any]] = {}
    for workflow in workflows:
        other = found.get(workflow.name)
        if other is not None and other.version == workflow.version and other is not workflow:
            raise Conflict(
                f"workflow {workflow.name} is declared twice",
                "name and version are the same",
                "increment the version of one",
            )
        if other is None or other.version < workflow.version:
            found[workflow.name] = workflow
    return found


def encoded_input(workflow: Workflow[Any, Any, Any] | str, given: Mapping[str, object] | BaseModel) -> bytes:
    """Return the input of a run as JSON. Raises InvalidInput, NotStorable."""
    if isinstance(workflow, Workflow):
        return workflow.encode_input(given)
    if isinstance(given, BaseModel):
        plain = given.model_dump(by_alias=True, include=_given_fields(given), exclude_computed_fields=True)
    else:
        plain = dict(given)
    return _PLAIN.dump(plain, check=False)  # the worker reads it by its type


_PLAIN: Final[Codec[Any]] = Codec(Any, named="the input", bytes_max=INPUT_BYTES_MAX)
