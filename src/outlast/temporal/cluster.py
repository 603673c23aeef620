"""Connections to a Temporal cluster as its own environment variables say, search attributes, and wake-ups."""

import ctypes
import logging
import os
from datetime import timedelta
from functools import cache
from typing import Final

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import GetSystemInfoRequest
from temporalio.client import Client
from temporalio.envconfig import ClientConfigProfile
from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter
from temporalio.service import RPCError, RPCStatusCode

from outlast.errors import Unavailable
from outlast.temporal.run_workflow import (
    ATTENTION,
    DUE,
    LANE,
    NODE,
    STATUS,
    InterpreterInput,
    RunWorkflow,
    SliceTimes,
    workflow_id,
    workflow_queue,
)

log = logging.getLogger("outlast.temporal")

LOCAL: Final = "localhost:7233"  # as Temporal's own command line assumes
RPC_TIMEOUT: Final = timedelta(seconds=5)
# of a step of the interpreter, which takes milliseconds; then another worker does it, if this one was killed
TASK: Final = timedelta(seconds=5)
ATTRIBUTES: Final = {
    LANE.name: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    STATUS.name: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    NODE.name: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    ATTENTION.name: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST,
}
AWAY: Final = frozenset(
    {RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED, RPCStatusCode.UNKNOWN}
)
FIX: Final = "check TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, TEMPORAL_API_KEY and the TLS variables; see docs/temporal.md"


def profile() -> ClientConfigProfile:
    """Return the connection that Temporal's variables and its configuration file name."""
    return ClientConfigProfile.load()


async def connect(given: ClientConfigProfile | None = None) -> Client:
    """Connect to the cluster of `given`, or of Temporal's environment variables. Raises Unavailable."""
    config = (given or profile()).to_client_connect_config()
    address = config.setdefault("target_host", LOCAL)
    try:
        return await Client.connect(**config, runtime=_core(os.getpid()))
    except (RuntimeError, RPCError) as error:  # RuntimeError: the first connection failed
        raise Unavailable(f"Temporal at {address} does not answer", reason_of(error), FIX) from error


@cache
def _core(process: int) -> Runtime:
    """Return the threads of Temporal's core, one set for each process, which end with it.

    Nothing frees them. At its end, Python would wait for them, and one that reports a result waits for Python's lock.
    """
    # Temporal's core would write each of its retries to the standard output; the bridge logs an outage once.
    quiet = LoggingConfig(filter=TelemetryFilter(core_level="ERROR", other_level="ERROR"))
    core = Runtime(telemetry=TelemetryConfig(logging=quiet))
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(core))
    return core


async def wake(client: Client, tenant: str, run: str, lane: str, version: int, times: SliceTimes) -> None:
    """Tell the workflow of a run that the run is due; start the workflow if it does not exist. Raises RPCError."""
    await client.start_workflow(
        RunWorkflow.run,
        InterpreterInput(tenant, run, lane, times),
        id=workflow_id(tenant, run),
        task_queue=workflow_queue(lane),
        start_signal=DUE,
        start_signal_args=[version],
        task_timeout=TASK,
        static_summary=lane.partition(":")[2],
        rpc_timeout=RPC_TIMEOUT,
    )


async def check(client: Client) -> None:
    """Ask whether the cluster answers. Raises RPCError."""
    await client.workflow_service.get_system_info(GetSystemInfoRequest(), timeout=RPC_TIMEOUT)


def reason_of(error: Exception) -> str:
    """Return the first line of an error of Temporal's client, shortened."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


async def register_attributes(client: Client) -> bool:
    """Add the search attributes to the namespace; False, with a warning, where that is not allowed.

    Raises RPCError if the cluster does not answer.
    """
    try:
        if await _missing(client):
            request = AddSearchAttributesRequest(namespace=client.namespace, search_attributes=ATTRIBUTES)
            await client.operator_service.add_search_attributes(request, timeout=RPC_TIMEOUT)
        return True
    except RPCError as error:
        if error.status in AWAY:
            raise
        if error.status is RPCStatusCode.ALREADY_EXISTS:  # another worker was faster
            return True
        names = ", ".join(f"{name}={_kind(kind)}" for name, kind in ATTRIBUTES.items())
        log.warning(
            "runs have no search attributes in namespace %s: %s → add them there and start the worker again: %s",
            client.namespace,
            reason_of(error),
            names,
        )
        return False


async def _missing(client: Client) -> bool:
    request = ListSearchAttributesRequest(namespace=client.namespace)
    try:
        found = await client.operator_service.list_search_attributes(request, timeout=RPC_TIMEOUT)
    except RPCError as error:
        if error.status in AWAY:
            raise
        return True  # it may still be allowed to add them
    return not ATTRIBUTES.keys() <= found.custom_attributes.keys()


def _kind(kind: "IndexedValueType.ValueType") -> str:
    return IndexedValueType.Name(kind).removeprefix("INDEXED_VALUE_TYPE_").title().replace("_", "")
