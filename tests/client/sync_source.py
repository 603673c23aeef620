"""Writes the client without `await` from the async one: python -m tests.client.sync_source writes
src/outlast/client/sync.py. Each method has the parameters and the docstring of its async method, so that editors and
type checkers show them. A test compares the file with this source."""

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from outlast.client import loop_thread
from outlast.runtime import client, run_handle, webhook_client

TARGET: Final = Path(loop_thread.__file__).with_name("sync.py")
BY_HAND: Final = frozenset({"start", "get", "close", "webhooks", "until"})
"""Methods of `Client` that the template has, and `until`, which awaits its argument."""
METHOD: Final = re.compile(r"^ +# METHODS OF (\w+)$", re.MULTILINE)
CLASSES: Final[dict[str, Any]] = {
    "Client": client.Client, "RunHandle": run_handle.RunHandle, "WebhookClient": webhook_client.WebhookClient,
}  # fmt: skip
TEMPLATE: Final = '''"""The client for programs without asyncio: Django, Flask, Celery, scripts.

Written by scripts/sync-client from `Client`, `RunHandle` and `WebhookClient`. Do not edit.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from types import TracebackType
from typing import Any, Generic, Literal, ParamSpec, Self, TypeVar, overload

from pydantic import BaseModel

from outlast.client import TIMEOUT, connect
from outlast.client.loop_thread import LoopThread
from outlast.client.sync_stream import SyncStream, WorkerBlock
from outlast.core.approvals import Actor
# IMPORTS

P = ParamSpec("P")
T = TypeVar("T")
In = TypeVar("In", bound=BaseModel)
Out = TypeVar("Out")


class SyncRunHandle(Generic[T]):
    """One run. `T` is the type of its outcome. Made by `SyncClient.start` and `SyncClient.get`.

    The methods are those of `RunHandle`, without `await`.
    """

    def __init__(self, loop: LoopThread, handle: RunHandle[T]) -> None:
        """Call `client.start` or `client.get` instead."""
        self._loop = loop
        self._target = handle
        self.id = handle.id
        self.workflow = handle.workflow
        self.created = handle.created

    # METHODS OF RunHandle

    def __repr__(self) -> str:
        return repr(self._target)


class SyncWebhookClient:
    """Webhooks of one tenant. The methods are those of `WebhookClient`, without `await`."""

    def __init__(self, loop: LoopThread, webhooks: WebhookClient) -> None:
        """Use `client.webhooks` instead."""
        self._loop = loop
        self._target = webhooks

    # METHODS OF WebhookClient


class SyncClient:
    """Reads and actions of one caller in one tenant. Made by `connect_sync`.

    The methods are those of `Client`, without `await`.

    Any thread may use it, also several at once. Its connections live in one event loop in a separate thread. A call
    from a running event loop blocks that loop; use `outlast.connect` there. A process that forks connects after the
    fork: a call of a forked client raises Misplaced.
    """

    def __init__(self, loop: LoopThread, client: Client) -> None:
        """Call `connect_sync` instead."""
        self._loop = loop
        self._target = client
        self.me = client.me
        self.has_code = client.has_code
        self.scheduler = client.scheduler

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the connections and end the thread. A second call has no effect."""
        self._loop.stop(self._target.close)

    @property
    def webhooks(self) -> SyncWebhookClient:
        """Client for the webhooks of the tenant."""
        return SyncWebhookClient(self._loop, self._target.webhooks)

    # OVERLOADS OF start
    def start(self, workflow: Any, /, *args: Any, **kwargs: Any) -> SyncRunHandle[Any]:
        """Start a run and return its handle once it is durable. Parameters and errors are those of `Client.start`."""
        return SyncRunHandle(self._loop, self._loop.run(lambda: self._target.start(workflow, *args, **kwargs)))

    # OVERLOADS OF get
    def get(self, workflow: Any, run: str = "", /) -> SyncRunHandle[Any]:
        """Return the handle of a run without asking for it: `client.get(orders, "run-id")`, `client.get("run-id")`.

        `workflow` types the outcome. Its name, or `run` as the only argument, gives an outcome of plain JSON.
        """
        handle = self._target.get(workflow, run) if run else self._target.get(workflow)
        return SyncRunHandle(self._loop, handle)

    # METHODS OF Client


def connect_sync(
    target: str = "",
    *,
    token: str = "",
    tenant: str = "",
    actor: Actor | str | None = None,
    workflows: Sequence[Workflow[Any, Any, Any]] = (),
    timeout: Timeout = TIMEOUT,
) -> SyncClient:
    """Open a client without `await`: `with outlast.connect_sync(target) as client`.

    `target`, `token`, `tenant`, `actor`, `workflows` and `timeout` are those of `connect`, and so are the errors. Close
    the client, or use it with `with`.
    """
    loop = LoopThread()
    pending = connect(target, token=token, tenant=tenant, actor=actor, workflows=workflows, timeout=timeout)

    async def opened() -> Client:
        return await pending

    try:
        return SyncClient(loop, loop.run(opened))
    except BaseException:  # nothing remains of a client that could not be opened
        loop.stop()
        raise
'''


def source() -> str:
    """Return the text of the module, formatted as the project is."""
    text = METHOD.sub(lambda found: "\n".join(methods_of(CLASSES[found[1]])), TEMPLATE)
    text = re.sub(r"^ +# OVERLOADS OF (\w+)\n", lambda found: overloads_of(found[1]), text, flags=re.MULTILINE)
    text = text.replace("# IMPORTS\n", imports())
    for command in (["check", "--select", "F401,I,E,UP", "--fix-only", "-q"], ["format", "-q"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(TARGET), "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout
    return text


def methods_of(of: Any) -> Iterator[str]:
    """Yield the methods of a class without `await`."""
    for node, text in definitions(of):
        if node.name.startswith("_") or (node.name in BY_HAND and of is client.Client):
            continue
        if any(isinstance(each, ast.Name) and each.id in ("property", "overload") for each in node.decorator_list):
            continue
        yield method(node, text)


def definitions(of: Any) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, str]]:
    """Yield the functions of a class with the source of the class."""
    text = inspect.getsource(of)
    (tree,) = ast.parse(text).body
    assert isinstance(tree, ast.ClassDef)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node, text


def head(node: ast.FunctionDef | ast.AsyncFunctionDef, text: str) -> str:
    """Return the signature of a function as it is written, without `async`."""
    lines = text.splitlines()[node.lineno - 1 : max(node.body[0].lineno - 1, node.lineno)]
    return "\n".join(lines).replace("async def", "def", 1).removesuffix("  # fmt: skip")


def method(node: ast.FunctionDef | ast.AsyncFunctionDef, text: str) -> str:
    """Return one method without `await`: it runs the async one in the loop of the client."""
    given = [each.arg for each in node.args.args[1:]] + [f"{each.arg}={each.arg}" for each in node.args.kwonlyargs]
    call = f"self._target.{node.name}({', '.join(given)})"
    answer = ast.unparse(node.returns) if node.returns is not None else ""
    signature = head(node, text)
    if found := re.match(r"AsyncGenerator\[(.*?)(, None)?\]$", answer):
        signature = signature[: signature.rindex("->")] + f"-> SyncStream[{found[1]}]:"
        body = f"return SyncStream(self._loop, {call})"
    elif answer == "AbstractAsyncContextManager[None]":
        signature = signature[: signature.rindex("->")] + "-> AbstractContextManager[None]:"
        body = f"return WorkerBlock(self._loop, {call})"
    else:
        body = f"self._loop.run(lambda: {call})"
        body = body if answer == "None" else f"return {body}"
    docstring = ast.get_source_segment(text, node.body[0])
    return f"{signature}\n        {docstring}\n        {body}\n"


def overloads_of(name: str) -> str:
    """Return the overloads of a method of `Client`, whose handles are those without `await`."""
    found = [
        (node, text)
        for node, text in definitions(client.Client)
        if node.name == name
        and any(isinstance(each, ast.Name) and each.id == "overload" for each in node.decorator_list)
    ]
    lines = ("\n".join(text.splitlines()[node.lineno - 1 : node.end_lineno]) for node, text in found)
    return (
        "".join(f"    @overload\n{each}\n" for each in lines)
        .replace("async def", "def")
        .replace("RunHandle", "SyncRunHandle")
    )


def imports() -> str:
    """Return the imports of the async modules; unused ones are removed afterwards."""
    found: set[str] = set()
    for module in (client, run_handle, webhook_client):
        for node in ast.parse(inspect.getsource(module)).body:
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("outlast."):
                found |= {f"from {node.module} import {each.name}\n" for each in node.names}
    found |= {
        "from outlast.runtime.client import Client\n",
        "from outlast.runtime.run_handle import RunHandle, Timeout\n",
        "from outlast.runtime.webhook_client import WebhookClient\n",
    }
    return "".join(sorted(found))


if __name__ == "__main__":
    TARGET.write_text(source(), encoding="utf-8")
