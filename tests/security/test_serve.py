"""`outlast serve` as a command: no bind without authentication (S34)."""

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from outlast.service.identity import new_token
from tests import forked

SERVE = ("outlast", "serve", "--port", "0")


@contextmanager
def served(folder: Path, *words: str, **environment: str) -> Iterator[str]:
    """Run a service during the block; yield its URL."""
    process = forked.Popen(
        [*SERVE, *words], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    try:
        found = re.search(r"http://[\d.:]+", process.stdout.readline())
        assert found, "it says where it is reached"
        yield found[0]
    finally:
        process.send_signal(signal.SIGTERM)
        process.stdout.close()
        assert process.wait(30) == 0


@pytest.mark.req("GATE-2")
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7"])
def test_it_refuses_another_address_without_credentials(tmp_path: Path, host: str) -> None:
    done = forked.run(*SERVE, "--host", host, cwd=tmp_path, capture_output=True, text=True, env={})
    assert done.returncode == 2 and f"refuses to listen on {host} without authentication" in done.stderr
    assert "Traceback" not in done.stderr and list(tmp_path.iterdir()) == []


@pytest.mark.req("GATE-2")
def test_with_credentials_every_request_needs_one(tmp_path: Path) -> None:
    token, line = new_token("ana", tenant="acme", roles=["viewer"], person=True)
    with served(tmp_path, "--host", "0.0.0.0", OUTLAST_AUTH__TOKENS=line) as url:
        assert httpx2.get(f"{url}/v1/runs").status_code == 401
        assert httpx2.get(f"{url}/v1/runs", headers={"Authorization": f"Bearer {token}"}).status_code == 200
        huge = httpx2.get(f"{url}/v1/runs", headers={"Authorization": "Bearer " + "x" * 64_000})
        assert huge.status_code in (400, 401, 431)


def test_without_credentials_only_this_machine_is_served(tmp_path: Path) -> None:
    with served(tmp_path) as url:
        assert url.startswith("http://127.0.0.1:") and httpx2.get(f"{url}/v1/runs").status_code == 200
        assert httpx2.get(f"{url}/v1/runs", headers={"Host": "evil.example"}).status_code == 403
        answer = httpx2.get(f"{url}/v1/runs", headers={"X-Forwarded-For": "198.51.100.7"})
        assert answer.status_code == 200, "no proxy is listed, so no forwarded address is trusted"
        assert "server" not in answer.headers
