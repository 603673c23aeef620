"""A replica of a service that is killed between an act and its answer: `python -m tests.service.killed_replica URL`."""

import os
import signal
import sys
from typing import Any, Final

from outlast.core.addresses import AddressPolicy
from outlast.service import idempotency
from tests.service.conftest import Running

REACH: Final = AddressPolicy.of(private=True, plain=True)


async def killed(*args: Any) -> None:
    """Die where the answer of a request with a key is stored, after its act."""
    os.kill(os.getpid(), signal.SIGKILL)


def main(url: str) -> None:
    """Serve until killed. Prints the address."""
    vars(idempotency)["_leave"] = killed
    with Running(url, worker=False) as service:
        service.state.reach = REACH
        sys.stdout.write(f"{service.url}\n")
        sys.stdout.flush()
        signal.pause()


if __name__ == "__main__":
    main(sys.argv[1])
