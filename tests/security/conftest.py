"""Fixtures of the attacks: an issuer on loopback, and a service that trusts it."""

from collections.abc import Iterator

import pytest

from outlast.service.identity import AuthSettings
from tests.security import issuer as issuers
from tests.security import server as servers
from tests.security.issuer import Issuer
from tests.security.server import Service


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with issuers.serving() as found:
        yield found


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Service for the attacks of one module. Each attack starts its own runs."""
    with servers.serving(tmp_path_factory.mktemp("service"), AuthSettings()) as found:
        yield found
