"""What the attacks share: an issuer on loopback."""

from collections.abc import Iterator

import pytest

from tests.security.issuer import Issuer, serving


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with serving() as found:
        yield found
