"""Clients that are not open: a closed one, and the value of `connect` that was not awaited."""

import asyncio
import inspect
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

import outlast
from outlast import Client
from outlast.errors import Misplaced
from outlast.runtime.webhook_client import WebhookClient
from tests.client import flows

# Nothing listens at port 9 of this machine, and nothing is sent there.
TARGETS: Final = {"store": "memory:", "service": "http://127.0.0.1:9"}
ARGUMENTS: Final[dict[str, tuple[object, ...]]] = {
    "start": (flows.greet, "ana"),
    "get": ("run-1",),
    "worker": (flows.ALL,),
    "until": (None,),
}
CALLS: Final = [
    (interface, name)
    for interface in (Client, WebhookClient)
    for name, method in vars(interface).items()
    if inspect.isfunction(method) and not name.startswith("_") and name != "close"
]


async def _made(called: Any) -> object:
    """Await a call, or ask for the first member of what it yields."""
    return await (anext(called) if isinstance(called, AsyncIterator) else called)


def _arguments(of: Any, name: str) -> tuple[object, ...]:
    """Return a value for each parameter that has no default."""
    required = [
        each
        for each in inspect.signature(getattr(of, name)).parameters.values()
        if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD
    ]
    return ARGUMENTS.get(name, tuple("x" for _ in required))


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize(("interface", "name"), CALLS, ids=[f"{i.__name__}.{name}" for i, name in CALLS])
def test_every_call_of_a_closed_client_is_misplaced(target: str, interface: type, name: str) -> None:
    """The store said «call again later» (OUT-504), and httpx2 raised its own error: waiting does not help."""

    async def go() -> None:
        client = await outlast.connect(target)
        await client.close()
        of = client.webhooks if interface is WebhookClient else client
        with pytest.raises(Misplaced, match="this client is closed"):
            await _made(getattr(of, name)(*_arguments(of, name)))
        await client.close()  # once more is no error

    asyncio.run(go())


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_a_handle_of_a_closed_client_is_misplaced(target: str) -> None:
    async def go() -> None:
        async with outlast.connect(target) as client:
            run = client.get("run-1")
        for called in (run.status(), run.result("1s"), run.cancel(reason="x"), run.events(), run.updates()):
            with pytest.raises(Misplaced, match="this client is closed"):
                await _made(called)

    asyncio.run(go())


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("name", ["start", "get", "runs", "webhooks", "worker", "close"])
def test_a_client_that_was_not_awaited_says_so(target: str, name: str) -> None:
    """It said «'PendingClient' object has no attribute 'start'»."""
    with pytest.raises(Misplaced, match=r"await outlast\.connect"):
        getattr(outlast.connect(target), name)
    assert not hasattr(outlast.connect(target), name)


def test_a_with_block_around_connect_says_what_to_write() -> None:
    with pytest.raises(Misplaced, match=r"async with outlast\.connect"), outlast.connect("memory:"):  # type: ignore[attr-defined]
        pass
