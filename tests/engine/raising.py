"""Author's code that raises every kind of exception in every place, for the tests of exceptions."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from pydantic import BaseModel, field_serializer

from outlast.flow import Context, Fail, Happened, Perhaps, PolicyRequest, Verdict, Workflow, activity
from tests.engine.world import Receiver, State, one_node, ordering, reading, write

Ctx = Context[State]


class Panic(BaseException):
    """Exception of a Rust extension, which is no `Exception`."""


class Mute(Exception):
    """Its message cannot be read."""

    def __str__(self) -> str:
        raise SystemExit(5)


KINDS: Final[dict[str, Callable[[], BaseException]]] = {
    "Exception": lambda: ValueError("wrong"),
    "BaseException": lambda: Panic("panicked"),
    "SystemExit": lambda: SystemExit(3),
    "KeyboardInterrupt": KeyboardInterrupt,
    "GeneratorExit": GeneratorExit,
    "CancelledError": asyncio.CancelledError,
    "ExceptionGroup": lambda: ExceptionGroup("two", [ValueError("one"), KeyError("other")]),
    "BaseExceptionGroup": lambda: BaseExceptionGroup("two", [SystemExit(3), ValueError("other")]),
    "MemoryError": MemoryError,
    "RecursionError": RecursionError,
    "unreadable": Mute,
}


# --- where it is raised ------------------------------------------------------------------------------------
Fails = Callable[[], Any]


def in_node(name: str, fails: Fails) -> Workflow[Any]:
    async def body(ctx: Ctx) -> None:
        fails()

    return one_node(body, name=name)


def in_async_activity(name: str, fails: Fails) -> Workflow[Any]:
    @activity(key="act/{what}", name=f"act-{name}", no_undo="a test")
    async def act(what: str) -> str:
        fails()
        return ""

    return ordering(act, "a", name=name)


def in_plain_activity(name: str, fails: Fails) -> Workflow[Any]:
    @activity(key="act/{what}", name=f"act-{name}", no_undo="a test")
    def act(what: str) -> str:
        fails()
        return ""

    return ordering(act, "a", name=name)


def in_lookup(name: str, fails: Fails) -> Workflow[Any]:
    return ordering(reading(fails, name=f"price-{name}"), "a", name=name)


def in_reconcile(name: str, fails: Fails) -> Workflow[Any]:
    act = write(Receiver(Perhaps("lost")), name=f"act-{name}")

    @act.reconcile
    async def find(what: str, amount: int = 1) -> Happened[str]:
        fails()
        return Happened("")

    return ordering(act, "a", name=name)


def in_undo(name: str, fails: Fails) -> Workflow[Any]:
    @activity(key="book/{what}", name=f"book-{name}")
    async def book(what: str) -> str:
        return "booked"

    @book.undo
    async def unbook(done: str, what: str) -> None:
        fails()

    async def body(ctx: Ctx) -> None:
        await ctx.do(book, "a")
        raise Fail("no use")

    return one_node(body, name=name)


def in_policy(name: str, fails: Fails) -> Workflow[Any]:
    def policy(asked: PolicyRequest) -> Verdict:
        verdict: Verdict = fails()
        return verdict

    return ordering(write(Receiver(), name=f"act-{name}"), "a", name=name, policy=policy)


def in_outcome(name: str, fails: Fails) -> Workflow[Any]:
    async def body(ctx: Ctx) -> None:
        pass

    return one_node(body, name=name, outcome=lambda state: fails())


def version(name: str, number: int) -> Workflow[State]:
    flow = Workflow(name, state=State, version=number)

    @flow.node(start=True)
    async def only(ctx: Ctx) -> None:
        if number == 1:
            await ctx.sleep(timedelta(minutes=1), name="a-while")

    return flow


def in_migration(name: str, fails: Fails) -> Workflow[Any]:
    flow = version(name, 2)

    @flow.migrate(from_=1)
    def up(old: dict[str, Any]) -> dict[str, Any]:
        fails()
        return old

    return flow.validate()


def in_state_codec(name: str, fails: Fails) -> Workflow[Any]:
    class Stored(BaseModel):
        n: int = 0

        @field_serializer("n")
        def keep(self, n: int) -> int:
            if n:
                fails()
            return n

    flow = Workflow(name, state=Stored)

    @flow.node(start=True)
    async def only(ctx: Context[Stored]) -> None:
        ctx.state.n = 1

    return flow.validate()


def in_answer_codec(name: str, fails: Fails) -> Workflow[Any]:
    class Answer(BaseModel):
        n: int = 0

        @field_serializer("n")
        def keep(self, n: int) -> int:
            fails()
            return n

    @activity(key="act/{what}", name=f"act-{name}", no_undo="a test")
    async def act(what: str) -> Answer:
        return Answer()

    return ordering(act, "a", name=name)


PLACES: Final[dict[str, tuple[Callable[[str, Fails], Workflow[Any]], str]]] = {
    "node": (in_node, "exception"),
    "async activity": (in_async_activity, "effect_uncertain"),
    "def activity": (in_plain_activity, "effect_uncertain"),
    "lookup": (in_lookup, "exception"),
    "reconcile": (in_reconcile, "effect_uncertain"),
    "undo": (in_undo, "undo_failed"),
    "policy": (in_policy, "exception"),
    "outcome": (in_outcome, "exception"),
    "migration": (in_migration, "stranded_version"),
    "codec of the state": (in_state_codec, "exception"),
    "codec of an answer": (in_answer_codec, "exception"),
}
"""In which workflow it is raised, and the reason for which a person is called."""


def raising(kind: str) -> Fails:
    def fails() -> Any:
        raise KINDS[kind]()

    return fails
