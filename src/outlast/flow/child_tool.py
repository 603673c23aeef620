"""Workflows as tools of a model: a call of the tool starts a child run (S-30).

The tool is an activity with the name of the workflow. So policy, approvals and the ledger treat its calls as those of
any tool, under an address that every process finds (decision 0074). Nothing is sent: the engine starts the child.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from typing_extensions import override

from outlast.core.codec import INVALID, Codec, canonical, digest
from outlast.core.value_problems import problems_of
from outlast.errors import DefinitionError, InvalidInput, Misplaced
from outlast.flow.activity import ActivityOptions, BoundCall, Effectful
from outlast.flow.calls import Plan
from outlast.flow.workflow import Beginning, Workflow


def child_key(workflow: Workflow[Any, Any, Any], beginning: Beginning[Any]) -> str:
    """Return the key of a child that is given none: of its workflow, else its name and a digest of its input."""
    return beginning.key or f"{workflow.name}/{beginning.digest[:16]}"


def child_digest(workflow: Workflow[Any, Any, Any], beginning: Beginning[Any]) -> str:
    """Return the digest of a child in the ledger of its parent: of workflow and input."""
    return digest(workflow.name, beginning.digest)


class ChildTool(Effectful[..., Any]):
    """A workflow that a model may start as a child run. Its arguments are the input of the workflow.

    A call counts once per visit, so a later step may start the same work again if it has failed.
    """

    starts_run = True

    def __init__(
        self, workflow: Workflow[Any, Any, Any], *, description: str, background: bool, no_undo: str | None
    ) -> None:
        async def start() -> None:
            raise Misplaced(f"{workflow.name} was called as a function", "its call starts a run", "start it in a node")

        start.__doc__ = description
        where = workflow.where
        super().__init__(
            start, ActivityOptions("agents", workflow.name, None, "visit", no_undo=no_undo, where=where), {}
        )
        self.workflow: Final = workflow
        self.background: Final = background
        """The parent goes on, and learns of the end later."""

    # --- calls -----------------------------------------------------------------------------
    def _planned(self, data: bytes) -> Plan[Any]:
        beginning = self.workflow.begin(data)
        key, of_input = child_key(self.workflow, beginning), child_digest(self.workflow, beginning)
        return Plan(self.name, key, canonical(json.loads(data)), of_input)

    @override
    def plan(self, *args: Any, **kwargs: Any) -> Plan[Any]:
        if args:
            raise TypeError(f"{self.name}.plan() takes the fields of the input by name")
        return self._planned(self.workflow.encode_input(kwargs))

    @override
    def parse(self, arguments: bytes) -> Plan[Any]:
        try:
            self.workflow.input_codec.parse(arguments)
        except INVALID as error:
            raise InvalidInput(f"the arguments of {self.name} are not valid", problems=problems_of(error)) from error
        return self._planned(arguments)

    @override
    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> BoundCall:
        plan = self.plan(*args, **kwargs)
        return BoundCall((), {**kwargs}, plan.key, plan.arguments, plan.digest)

    @override
    def load_args(self, data: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        self.workflow.begin(data)
        return (), json.loads(data)

    # --- types -----------------------------------------------------------------------------
    @override
    def arguments_schema(self) -> dict[str, Any]:
        return self.workflow.input_schema()

    @override
    def schema_for_caller(self) -> dict[str, Any]:
        return {**self.workflow.input_schema(), "additionalProperties": False}

    @property
    @override
    def has_sets(self) -> bool:
        return False  # it concerns rows from before sets had an order, and no such row is of a child

    @property
    @override
    def response_codec(self) -> Codec[Any]:
        return self.workflow.answer_codec

    # --- checks ----------------------------------------------------------------------------
    @override
    def check(self) -> None:
        self.workflow.activities  # noqa: B018 - checks the definition, once
        if not (self.__doc__ or "").strip():
            raise self._wrong(
                "has no description",
                "a model chooses an agent by it",
                f'say what it does: agents=[SubAgent({self.name}, description="…")]',
            )
        if self.workflow.writes and self.no_undo is None:
            raise self._wrong(
                "does not say what undoes it",
                f"it may call {', '.join(self.workflow.writes[:3])}, and the run that starts it may fail after that",
                f'agents=[SubAgent({self.name}, no_undo="why nothing is to be undone")]',
            )

    def _wrong(self, what: str, why: str, fix: str) -> DefinitionError:
        return DefinitionError(f'agent "{self.name}" ({self.where}) {what}', why, fix, where=self.where)
