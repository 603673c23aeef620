"""Connections by Temporal's variables, a cluster that does not answer, and one that refuses search attributes."""

import asyncio
import gc
import logging
import socket
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.envconfig import ClientConfigProfile
from temporalio.runtime import Runtime
from temporalio.service import RPCError, RPCStatusCode

from outlast.engine.guest import GuestAway
from outlast.errors import Unavailable
from outlast.temporal import TemporalGuest, connect
from outlast.temporal import cluster as connection
from outlast.temporal.cluster import profile, register_attributes


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_the_connection_is_that_of_temporals_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "temporal.internal:7233")
    monkeypatch.setenv("TEMPORAL_NAMESPACE", "sales")
    monkeypatch.setenv("TEMPORAL_API_KEY", "secret")
    config = profile().to_client_connect_config()
    assert (config["target_host"], config["namespace"]) == ("temporal.internal:7233", "sales")
    assert (config["api_key"], config["tls"]) == ("secret", True)


def test_a_cluster_that_does_not_answer_is_away() -> None:
    address = f"127.0.0.1:{closed_port()}"
    away = ClientConfigProfile(address=address, namespace="default")
    with pytest.raises(Unavailable, match=address):
        asyncio.run(connect(away))
    with pytest.raises(GuestAway):
        asyncio.run(TemporalGuest(profile=away).wake([]))


class RefusingOperator:
    """The operator service of a namespace that lets no worker add search attributes."""

    async def list_search_attributes(self, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(custom_attributes={})

    async def add_search_attributes(self, *_: Any, **__: Any) -> Any:
        raise RPCError("not allowed here", RPCStatusCode.PERMISSION_DENIED, b"")


def test_a_namespace_that_refuses_search_attributes_is_used_without_them(caplog: pytest.LogCaptureFixture) -> None:
    client: Any = SimpleNamespace(namespace="sales", operator_service=RefusingOperator())
    with caplog.at_level(logging.WARNING, "outlast.temporal"):
        assert asyncio.run(register_attributes(client)) is False
    assert "OutlastAttention=KeywordList" in caplog.text and "not allowed here" in caplog.text


def test_a_process_has_one_core_of_temporal_which_nothing_frees() -> None:
    """Python's end waits for the threads of a core that it frees, and they wait for Python's lock."""
    away = ClientConfigProfile(address=f"127.0.0.1:{closed_port()}", namespace="default")

    async def main() -> None:
        for _ in range(3):
            with pytest.raises(Unavailable):
                await connect(away)

    def cores() -> int:
        gc.collect()
        return sum(isinstance(each, Runtime) for each in gc.get_objects())

    asyncio.run(main())
    before = cores()
    asyncio.run(main())
    assert cores() == before, "a further connection makes no core"
    connection._core.cache_clear()
    assert cores() == before, "no core is freed"
