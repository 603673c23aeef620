"""`outlast token new` as a command: the printed token is accepted with its line only."""

import asyncio
import json
import re
import subprocess

import pytest

from outlast.clocks import SystemClock
from outlast.runtime.settings import load
from outlast.service.identity import authenticator
from tests import forked


def typed(*words: str) -> subprocess.CompletedProcess[str]:
    return forked.run("outlast", "token", "new", *words, capture_output=True, text=True)


@pytest.mark.req("GATE-2")
def test_the_printed_token_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = typed("ana@corp", "approver", "finance", "--tenant", "acme", "--days", "30", "-o", "json")
    assert answer.returncode == 0, answer.stderr
    made = json.loads(answer.stdout)
    monkeypatch.setenv("OUTLAST_AUTH__TOKENS", made["line"])
    door = authenticator(load().auth, SystemClock())
    found = asyncio.run(door.authenticate(f"Bearer {made['token']}", "192.0.2.1"))
    assert (found.tenant, found.name, found.claims, found.person) == ("acme", "ana@corp", ("approver", "finance"), True)
    assert made["token"] not in made["line"] and re.search(r"until=\d{4}-\d\d-\d\d", made["line"])


def test_a_token_of_a_program_never_decides() -> None:
    answer = typed("bot", "agent", "--program")
    assert answer.returncode == 0
    assert re.match(r"token  olt_\S{43}\nline   bot tenant=default roles=agent person=no sha256=[0-9a-f]{64}\n$",
                    answer.stdout)  # fmt: skip
    assert "OUTLAST_AUTH__TOKENS" in answer.stderr


def test_a_role_without_rights_is_reported() -> None:
    answer = typed("ana", "lead")
    assert answer.returncode == 0 and "lead alone permits nothing: add one of admin, " in answer.stderr
    assert "permits nothing" not in typed("ana", "lead", "approver").stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("ana",), "Missing argument 'ROLES...'"), (("local:ana", "viewer"), "begins with local:"),
        (("bot", "agent"), "a person cannot have the role agent"), (("ana", "no role"), "cannot name a role"),
        (("ana corp", "viewer"), "a name has no spaces"), (("ana", "viewer", "--days", "0"), "--days"),
    ],
)  # fmt: skip
def test_invalid_arguments_are_reported_in_one_sentence(words: tuple[str, ...], says: str) -> None:
    answer = typed(*words)
    assert answer.returncode == 2 and says in answer.stderr and "Traceback" not in answer.stderr
