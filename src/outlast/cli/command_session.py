"""Opening of the store or the service for a command, and questions to its user."""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import click
from click.core import ParameterSource

from outlast.cli.exit_codes import OK, USAGE
from outlast.cli.global_options import CliSettings, settings_now
from outlast.cli.screen import Screen
from outlast.clocks import SystemClock
from outlast.core.lanes import worker_command
from outlast.errors import InvalidInput
from outlast.flow.workflow import Workflow
from outlast.runtime.client import Client
from outlast.runtime.execution_runtime import local_actor
from outlast.runtime.settings import load
from outlast.telemetry.traces import configure_traces

if TYPE_CHECKING:  # a command over a service imports neither the engine nor a store
    from outlast.runtime.operations import Operations
    from outlast.runtime.stores import Use

P = ParamSpec("P")
T = TypeVar("T")
UNSENT_S = 2.0
"""Time for which a command repeats a request that cannot be sent, because a person waits for it."""


def the_store_itself(settings: CliSettings) -> None:
    """Raise InvalidInput if the settings name a service."""
    if settings.url:
        raise InvalidInput(
            "this command needs the store itself",
            f"{settings.url} is a service, which does not offer this",
            "run it on a machine that reaches the store, with --store sqlite:…, postgresql://… or dynamodb://…",
        )


def no_module_for_service(settings: CliSettings) -> None:
    """Raise click.UsageError if the command line has --module for a command to a service. A setting is passed over."""
    given = click.get_current_context().get_parameter_source("module") is ParameterSource.COMMANDLINE
    if settings.url and given:
        raise click.UsageError(f"{settings.url} is a service, which has the code and checks by it: leave --module out")


@asynccontextmanager
async def operations(
    settings: CliSettings, *, make: bool = False, workflows: Sequence[Workflow[Any]] = (), use: "Use" = "write"
) -> "AsyncIterator[Operations]":
    """Open the store and give its operations, bound to tenant and caller.

    `make`: create a missing store, and say so. `use`: see `open_store`. Raises StoreUnusable, for example if the store
    is missing, and InvalidInput if the settings name a service.
    """
    from outlast.flow.workflow import workflows_by_name
    from outlast.runtime.operations import Operations
    from outlast.runtime.stores import is_there, open_store

    the_store_itself(settings)
    configure_traces()
    new = not is_there(settings.store)
    store = await open_store(settings.store, make=make, use=use)
    try:
        if new:
            Screen(settings).advice(f"new store {store.url} (choose another with --store or OUTLAST_STORE)")
        actor = local_actor(settings.role)
        bound = Operations(store, tenant=settings.tenant, actor=actor, workflows=workflows_by_name(list(workflows)))
        bound.scheduler = settings.scheduler
        yield bound
    finally:
        await store.close()


def on_store(
    command: "Callable[Concatenate[Operations, Screen, P], Coroutine[Any, Any, int | None]]", use: "Use" = "write"
) -> Callable[P, None]:
    """Turn a coroutine function over the operations of a store into a command body; it returns the exit code."""

    @asynccontextmanager
    async def opened(settings: CliSettings) -> "AsyncIterator[tuple[Operations, Screen]]":
        async with operations(settings, use=use) as bound:
            yield bound, await screen_of(bound, settings)

    return _body_of(command, opened)


def _body_of(
    command: Callable[Concatenate[T, Screen, P], Coroutine[Any, Any, int | None]],
    opened: Callable[[CliSettings], AbstractAsyncContextManager[tuple[T, Screen]]],
) -> Callable[P, None]:
    """Return the body of a command that works with an opened store or service."""

    @functools.wraps(command)
    def body(*args: P.args, **kwargs: P.kwargs) -> None:
        settings = settings_now()

        async def act() -> int | None:
            async with opened(settings) as (at, screen):
                return await command(at, screen, *args, **kwargs)

        click.get_current_context().exit(asyncio.run(act()) or 0)

    return body


reads_store = functools.partial(on_store, use="read")
"""As `on_store`, for a command that only reads: it accepts backups, copies and stores on a full disk."""


@asynccontextmanager
async def client(
    settings: CliSettings, *, make: bool = False, workflows: Sequence[Workflow[Any]] = (), use: "Use" = "write"
) -> AsyncIterator[tuple[Client, Screen]]:
    """Open the named service, else the store; give the client and a screen. Raises as `operations`."""
    if not settings.url:
        from outlast.runtime.webhooks import reach_of

        async with operations(settings, make=make, workflows=workflows, use=use) as bound:
            bound.webhooks.reach = reach_of(load())
            yield bound, await screen_of(bound, settings)
        return
    from outlast.client.service_client import ServiceClient
    from outlast.client.service_connection import ServiceConnection, base_of, is_here

    base = base_of(settings.url)
    screen = Screen(settings, SystemClock().wall())
    token = settings.token.get_secret_value()
    if token and base.startswith("http://") and not is_here(base):
        screen.advice(f"{base}: the token is sent unencrypted; use https:// on shared networks")
    connection = ServiceConnection(base, token, unsent_s=UNSENT_S)
    service = ServiceClient(connection, screen.advice)
    service.scheduler = settings.scheduler
    try:
        yield service, screen
    finally:
        await connection.close()


def on_client(
    command: Callable[Concatenate[Client, Screen, P], Coroutine[Any, Any, int | None]], use: "Use" = "write"
) -> Callable[P, None]:
    """As `on_store`, for commands that also work with a service."""
    return _body_of(command, functools.partial(client, use=use))


reads_client = functools.partial(on_client, use="read")
"""As `on_client`, for a command that only reads."""


async def screen_of(bound: "Operations", settings: CliSettings) -> Screen:
    """Return a screen that knows the store's time."""
    return Screen(settings, (await bound.store.now()).business)


async def says(client: Client) -> str:
    """Return `, says NAME` with the name of the caller."""
    return f", says {(await client.whoami()).name}"


async def warn_unserved(client: Client, screen: Screen, run: str) -> None:
    """Print advice if no worker serves the run."""
    view = await client.run_summary(run)
    if not view.served:
        screen.advice(f"no worker serves {view.lane}; start one: {worker_command(view.scheduler)}")


async def unsure(screen: Screen, question: str, nothing: str = "not answered", *, typed: str = "") -> int | None:
    """Ask a question: return None for yes, else print `nothing` and return the exit code.

    `typed`: the user must type this number instead of "y".
    """
    asked = question[0].upper() + question[1:]
    answer = await asyncio.to_thread(_typed, asked, typed) if typed else await asyncio.to_thread(_confirm, asked)
    if answer is None:
        screen.advice(f"{nothing}: there is no terminal to ask on → --yes{f' --confirm {typed}' if typed else ''}")
        return USAGE
    if not answer:
        screen.line(nothing)
        return OK
    return None


def _typed(question: str, number: str) -> bool | None:
    try:
        given: str = click.prompt(f"{question} Type {number} to confirm", default="", show_default=False, err=True)
    except click.Abort:
        return None
    return given.strip().replace(",", "") == number


def _confirm(question: str) -> bool | None:
    try:
        return click.confirm(question, err=True)
    except click.Abort:
        return None
