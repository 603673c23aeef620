"""A service process that is killed while a person has an approval open: the other process forgets that person."""

import asyncio
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest
from pydantic import SecretStr

from outlast.clocks import SystemClock
from outlast.service.identity import AuthSettings, authenticator, new_token
from tests.service.conftest import PATIENCE_S, Running, Service
from tests.ui.html_page import HtmlPage

ANA, ANA_LINE = new_token("ana", tenant="default", roles=["approver", "finance"], person=True)
BO, BO_LINE = new_token("bo", tenant="default", roles=["approver", "finance"], person=True)
LINES = f"{ANA_LINE}\n{BO_LINE}"
KEPT_S = 3.0


def people(service: Service, approval: str, wanted: list[str]) -> float:
    """Wait until the service says that these others have an approval open, and return the time of its loop."""

    async def seen() -> float:
        presence, loop = service.state.presence, asyncio.get_running_loop()
        changed = asyncio.Event()
        end = presence.watch("default", changed.set)
        async with asyncio.timeout(PATIENCE_S):
            while (await presence.others("default", [approval], "ana")).get(approval, []) != wanted:
                changed.clear()
                await changed.wait()
        end()
        return loop.time()

    return float(service.call(seen()))


def signed_in(url: str) -> str:
    """Return the cookies of bo, who has signed in."""
    with httpx2.Client(base_url=url, headers={"Origin": url}, timeout=PATIENCE_S) as client:
        asked = client.get("/ui/login")
        form = next(each for each in HtmlPage(asked.text).forms if each.action.endswith("/login")).set(credential=BO)
        names = [each.partition(";")[0] for each in asked.headers.get_list("set-cookie")]
        headers = {"Cookie": "; ".join(names), "Content-Type": "application/x-www-form-urlencoded"}
        answer = client.post(form.action, content=form.body(), headers=headers)
        assert answer.status_code == 303, answer.text
        return "; ".join([*names, *(each.partition(";")[0] for each in answer.headers.get_list("set-cookie"))])


@pytest.mark.req("OBS-5")
def test_a_killed_process_loses_its_open_pages_in_the_others(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'outlast.db'}"
    with Running(store) as before:
        approval = before.asked()[0]
    who = authenticator(AuthSettings(tokens=SecretStr(LINES)), SystemClock())
    command = [sys.executable, "-m", "tests.service.replica", store, LINES, str(KEPT_S)]
    with Running(store, authenticator=who, worker=False, presence_s=KEPT_S) as service:
        people(service, approval, [])
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other, ExitStack() as last:
            last.callback(other.kill)
            assert other.stdout is not None
            url = other.stdout.readline().strip()
            headers = {"Cookie": signed_in(url)}
            live = f"{url}/ui/live?of=approval:{approval}"
            with httpx2.stream("GET", live, headers=headers, timeout=PATIENCE_S) as stream:
                assert stream.status_code == 200
                first = people(service, approval, ["bo"])
                assert people(service, approval, ["bo"]) >= first
                other.kill()
                other.wait()
                killed = service.loop.time()
                assert people(service, approval, ["bo"]) - killed < KEPT_S, "it had no time to say goodbye"
        assert people(service, approval, []) - killed <= 2 * KEPT_S
