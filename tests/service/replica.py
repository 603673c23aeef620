"""A further process of a service, with these tokens: `python -m tests.service.replica URL LINES [PRESENCE_S]`."""

import signal
import sys

from pydantic import SecretStr

from outlast.clocks import SystemClock
from outlast.core.presence import PRESENCE_S
from outlast.service.identity import AuthSettings, authenticator
from tests.service.conftest import Running


def main(url: str, lines: str, presence_s: str = str(PRESENCE_S)) -> None:
    """Serve until killed. Prints the address."""
    who = authenticator(AuthSettings(tokens=SecretStr(lines)), SystemClock())
    with Running(url, authenticator=who, worker=False, presence_s=float(presence_s)) as service:
        sys.stdout.write(f"{service.url}\n")
        sys.stdout.flush()
        signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
