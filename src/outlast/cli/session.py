"""What every command that acts on a store shares: open it, bind tenant and caller, close it, give the exit code."""

import asyncio
import functools
import os
import pwd
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, Concatenate, ParamSpec

import click

from outlast.cli.client import Client
from outlast.cli.client.local import LocalClient
from outlast.cli.exit_codes import OK, USAGE
from outlast.cli.screen import Screen
from outlast.cli.settings import Settings, one_place
from outlast.errors import InvalidInput
from outlast.flow.approval_rule import EVERY_ROLE
from outlast.flow.workflow import Workflow
from outlast.runtime.clocks import SystemClock
from outlast.runtime.operations import Operations
from outlast.runtime.port import Actor
from outlast.runtime.stores import Use, is_there, open_store
from outlast.runtime.versions import workflows_by_name
from outlast.telemetry.traces import configure_traces

P = ParamSpec("P")


def local_actor(roles: Sequence[str]) -> Actor:
    """Return the user that the kernel names, holding these roles, or every role if none is named.

    The environment has no say: a second name there would be a second person who approves.
    """
    uid = os.getuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:  # a user id without a name, as in some containers
        name = f"uid-{uid}"
    if not roles:
        return Actor(f"local:{name}", EVERY_ROLE)
    return Actor(f"local:{name}", frozenset(roles), tuple(sorted(set(roles))))


def settings_now() -> Settings:
    """The global options of the command that runs. Raises click.UsageError where they exclude each other."""
    settings = click.get_current_context().ensure_object(Settings)
    one_place(settings)
    return settings


def the_store_itself(settings: Settings) -> None:
    """Raise InvalidInput where a service is named instead."""
    if settings.url:
        raise InvalidInput(
            "this command works on the store itself",
            f"{settings.url} is a service, which does not do this for others",
            "run it where the store can be reached, with --store sqlite:… or postgresql://…",
        )


@asynccontextmanager
async def operations(
    settings: Settings, *, make: bool = False, workflows: Sequence[Workflow[Any]] = (), use: Use = "write"
) -> AsyncIterator[Operations]:
    """The store, open, and bound to tenant and caller. `make`: it may be a new one, and a sentence says so. `use`: see
    `open_store`.

    Raises StoreUnusable: reading never makes a store, so a mistyped name is told. InvalidInput: a service is named.
    """
    the_store_itself(settings)
    configure_traces()
    new = not is_there(settings.store)
    store = await open_store(settings.store, make=make, use=use)
    try:
        if new:
            Screen(settings).advice(f"new store {store.url} (choose another with --store or OUTLAST_STORE)")
        actor = local_actor(settings.role)
        yield Operations(store, tenant=settings.tenant, actor=actor, workflows=workflows_by_name(list(workflows)))
    finally:
        await store.close()


def on_store(
    command: Callable[Concatenate[Operations, Screen, P], Coroutine[Any, Any, int | None]], use: Use = "write"
) -> Callable[P, None]:
    """Turn a coroutine function over an open store into the body of a command; it answers the exit code."""

    @functools.wraps(command)
    def body(*args: P.args, **kwargs: P.kwargs) -> None:
        settings = settings_now()

        async def act() -> int | None:
            async with operations(settings, use=use) as bound:
                return await command(bound, await screen_of(bound, settings), *args, **kwargs)

        click.get_current_context().exit(asyncio.run(act()) or 0)

    return body


reads_store = functools.partial(on_store, use="read")
"""As `on_store`, for a command that writes nothing: it takes backups, copies and stores on a full disk too."""


@asynccontextmanager
async def client(
    settings: Settings, *, make: bool = False, workflows: Sequence[Workflow[Any]] = (), use: Use = "write"
) -> AsyncIterator[tuple[Client, Screen]]:
    """The service that is named, or else the store; and a screen that knows its time. Raises as `operations`."""
    if not settings.url:
        async with operations(settings, make=make, workflows=workflows, use=use) as bound:
            yield LocalClient(bound, workflows_by_name(list(workflows))), await screen_of(bound, settings)
        return
    from outlast.cli.client.connection import ServiceConnection, base_of, is_here
    from outlast.cli.client.remote import RemoteClient

    base = base_of(settings.url)
    screen = Screen(settings, SystemClock().wall())
    token = settings.token.get_secret_value()
    if token and base.startswith("http://") and not is_here(base):
        screen.advice(f"{base}: the token goes there unencrypted; use https:// where the way is not yours alone")
    wire = ServiceConnection(base, token)
    try:
        yield RemoteClient(wire, screen.advice), screen
    finally:
        await wire.close()


def on_client(
    command: Callable[Concatenate[Client, Screen, P], Coroutine[Any, Any, int | None]], use: Use = "write"
) -> Callable[P, None]:
    """As `on_store`, for what a service can be asked too."""

    @functools.wraps(command)
    def body(*args: P.args, **kwargs: P.kwargs) -> None:
        settings = settings_now()

        async def act() -> int | None:
            async with client(settings, use=use) as (at, screen):
                return await command(at, screen, *args, **kwargs)

        click.get_current_context().exit(asyncio.run(act()) or 0)

    return body


reads_client = functools.partial(on_client, use="read")
"""As `on_client`, for a command that writes nothing."""


async def screen_of(bound: Operations, settings: Settings) -> Screen:
    """A screen that knows the store's time."""
    return Screen(settings, (await bound.store.now()).business)


async def says(client: Client) -> str:
    """Who says it."""
    return f", says {await client.caller()}"


async def warn_unserved(client: Client, screen: Screen, run: str) -> None:
    """Say so when no worker is there to do what was just asked for."""
    view = await client.glance(run)
    if not view["served"]:
        screen.advice(f"no worker serves {view['lane']}; start one: outlast worker MODULE")


async def unsure(screen: Screen, question: str, nothing: str = "not answered") -> int | None:
    """Ask a person: None for a yes; else the exit code, once it was said that `nothing` was done."""
    answer = await asyncio.to_thread(_confirm, question[0].upper() + question[1:])
    if answer is None:
        screen.advice(f"{nothing}: nobody was there to ask → --yes")
        return USAGE
    if not answer:
        screen.line(nothing)
        return OK
    return None


def _confirm(question: str) -> bool | None:
    try:
        return click.confirm(question, err=True)
    except click.Abort:
        return None
