"""Clients for programs: `connect` to a store in this process, or to a service over HTTP.

`Client` and `RunHandle` are the same for both. `connect_sync` gives a client without `await`.
"""

import logging
from collections.abc import Generator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from outlast.core.approvals import Actor
from outlast.core.argument_checks import Arguments
from outlast.errors import InvalidInput, Misplaced
from outlast.runtime.execution_runtime import local_actor

if TYPE_CHECKING:
    from outlast.flow.workflow import Workflow
    from outlast.runtime.client import Client
    from outlast.runtime.run_handle import Timeout

SERVICE: Final = ("http://", "https://")
TIMEOUT: Final = "60s"
log: Final = logging.getLogger("outlast.client")


class _NotOpen(Misplaced, AttributeError):
    """A client that `connect` returned was used without `await`. An AttributeError, so that `hasattr` is False."""


class PendingClient:
    """A client that is not open yet: `await` it, or use it with `async with`, which also closes it."""

    def __init__(
        self,
        target: str,
        token: str,
        tenant: str,
        actor: Actor | str | None,
        workflows: "Sequence[Workflow[Any, Any, Any]]",
        timeout: "Timeout",
    ) -> None:
        """Call `connect` instead."""
        self._target = target
        self._token = token
        self._tenant = tenant
        self._actor = actor
        self._workflows = workflows
        self._timeout = timeout
        self._client: Client | None = None

    def __await__(self) -> "Generator[Any, None, Client]":
        return self._open().__await__()

    async def __aenter__(self) -> "Client":
        self._client = await self._open()
        return self._client

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            await self._client.close()

    if not TYPE_CHECKING:  # a type checker names the missing attribute itself

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            raise _not_open(f".{name}")

        def __enter__(self) -> None:
            raise _not_open(" in a `with` block")

        def __exit__(self, *error: object) -> None:
            """Make `with` find the method above."""

    async def _open(self) -> "Client":
        from outlast.runtime.settings import load

        target, token, settings = self._target, self._token, load()
        target = target or settings.url or settings.store
        if target.startswith(SERVICE):
            service = self._service(target, token or settings.token.get_secret_value())
            service.scheduler = settings.scheduler
            return service
        if token:
            raise InvalidInput(
                "a store takes no token", f"{target} is a store, opened in this process", "leave `token` out"
            )
        from outlast.flow.workflow import Workflow, workflows_by_name
        from outlast.runtime.operations import Operations
        from outlast.runtime.stores import open_store
        from outlast.runtime.webhooks import reach_of

        actor = Actor(self._actor) if isinstance(self._actor, str) else self._actor or local_actor(())
        listed = Arguments("connect", of_call=True).members(
            "workflows", self._workflows, Workflow, "workflows=[orders]"
        )
        code, reach = workflows_by_name(list(listed)), reach_of(settings)
        store = await open_store(target)
        opened = Operations(store, tenant=self._tenant or settings.tenant, actor=actor, workflows=code)
        opened.webhooks.reach, opened.scheduler = reach, settings.scheduler
        return opened

    def _service(self, target: str, token: str) -> "Client":
        from outlast.client.service_client import ServiceClient
        from outlast.client.service_connection import ServiceConnection, base_of, is_here
        from outlast.runtime.run_handle import seconds_of

        if self._tenant or self._actor is not None:
            name = "tenant" if self._tenant else "actor"
            raise InvalidInput(
                f"a service takes no {name}", "it identifies you by your token", f"leave `{name}` out, and give `token`"
            )
        base = base_of(target)
        if token and base.startswith("http://") and not is_here(base):
            log.warning("%s: the token is sent unencrypted; use https:// on shared networks", base)
        timeout_s = seconds_of(self._timeout)
        assert timeout_s is not None
        return ServiceClient(ServiceConnection(base, token, timeout_s=timeout_s))


def _not_open(used: str) -> _NotOpen:
    return _NotOpen(
        f"connect(…){used} was used before the client is open",
        "outlast.connect returns a client that has to be awaited",
        "write `client = await outlast.connect(…)`, `async with outlast.connect(…) as client`, or, without an event "
        "loop, `outlast.connect_sync(…)`",
    )


def connect(
    target: str = "",
    *,
    token: str = "",
    tenant: str = "",
    actor: Actor | str | None = None,
    workflows: "Sequence[Workflow[Any, Any, Any]]" = (),
    timeout: "Timeout" = TIMEOUT,
) -> PendingClient:
    """Open a client: `client = await outlast.connect(target)`, or `async with outlast.connect(target) as client`.

    `target` is a store (`sqlite:orders.db`, `postgresql://…`, `dynamodb://…`, `memory:`), which is opened in this
    process and created if it does not exist, or the URL of a service (`https://…`). Default: OUTLAST_URL, else
    OUTLAST_STORE.

    For a service: `token` is the credential (default: OUTLAST_TOKEN or OUTLAST_TOKEN_FILE), and `timeout` limits each
    request with its repetitions (a `timedelta`, text such as "10s", or seconds). For a store: `tenant` (default:
    OUTLAST_TENANT) and `actor`, the name under which this program acts (default: the user of the process; an `Actor`
    also has roles). `workflows` can be started by name; a workflow object needs no entry.

    Raises InvalidInput and, for a store, StoreUnusable. A service is contacted by the first call.
    """
    check = Arguments("connect", of_call=True)
    for name, text in (("target", target), ("token", token), ("tenant", tenant)):
        check.is_text(name, text, 'outlast.connect("sqlite:orders.db")')
    if not isinstance(actor, str):
        check.instance("actor", actor, Actor, 'actor="mail-service"')
    check.members("workflows", workflows, object, "list workflows: workflows=[orders]")
    if timeout != TIMEOUT:
        from outlast.runtime.run_handle import seconds_of

        if not seconds_of(timeout):
            raise check.wrong("timeout", timeout, "each request needs some time", f'timeout="{TIMEOUT}"')
    return PendingClient(target, token, tenant, actor, workflows, timeout)
