"""Static tokens, stored as hashes, and the lock-out of guessing addresses (S12)."""

import asyncio
import hashlib
import os
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from pydantic import SecretStr

from outlast.clocks import VirtualClock
from outlast.errors import InvalidInput, TooManyFailures, Unauthenticated
from outlast.service.identity import AuthSettings, Principal, authenticator, new_token
from outlast.service.identity.credentials import Credentials
from outlast.service.identity.lockout import (
    GOOD_MS,
    LOCK_MAX_MS,
    LOCK_MS,
    MOST,
    WAYS,
    WITHIN_MS,
    FailedCredentials,
    SlotTables,
    shared_file,
)
from outlast.service.identity.static_tokens import StaticTokens, read_line, read_lines
from tests.security import issuer as issuers

ANA, ANA_LINE = new_token("ana@corp", tenant="acme", roles=["finance", "approver"], person=True)
BOT, BOT_LINE = new_token("bot", tenant="acme", roles=["agent"], person=False)
LINES = f"# who may come in\n\n{ANA_LINE}\n  {BOT_LINE}\n"


def door(clock: VirtualClock, lines: str = LINES) -> Credentials:
    return authenticator(AuthSettings(tokens=SecretStr(lines)), clock)


async def fail(credentials: Credentials, client: str, token: str = "olt_guess") -> type[Exception]:
    with pytest.raises((Unauthenticated, TooManyFailures)) as caught:
        await credentials.authenticate(f"Bearer {token}", client)
    return TooManyFailures if isinstance(caught.value, TooManyFailures) else Unauthenticated


@pytest.mark.req("GATE-2")
def test_a_token_gives_its_caller_and_is_stored_nowhere() -> None:
    assert ANA not in LINES and len(ANA) >= 43
    found = asyncio.run(door(VirtualClock()).authenticate(f"bearer {ANA}", "192.0.2.1"))
    assert found == Principal("acme", "ana@corp", frozenset({"finance", "approver"}), ("approver", "finance"), True)
    assert not asyncio.run(door(VirtualClock()).authenticate(f"Bearer {BOT}", "192.0.2.1")).person


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer ", f"Basic {ANA}", ANA, f"Bearer  {ANA}", f"Bearer {ANA} ", f"Bearer {ANA}x",
     f"Bearer {ANA[:-1]}", "Bearer olt_", f"Bearer {ANA.lower()}", f"Bearer {ANA_LINE.rpartition('=')[2]}",
     "Bearer \x00", "Bearer é", "Bearer " + "x" * 9_000],
    ids=[f"header {n}" for n in range(15)],  # each process creates new tokens
)  # fmt: skip
def test_other_tokens_are_refused(header: str) -> None:
    with pytest.raises(Unauthenticated) as caught:
        asyncio.run(door(VirtualClock()).authenticate(header, "192.0.2.1"))
    assert ANA not in str(caught.value)


def test_a_token_expires_after_its_last_day() -> None:
    clock = VirtualClock()
    until = datetime.fromtimestamp(clock.wall() / 1000 + 2 * 86_400, UTC)
    token, line = new_token("ana", tenant="acme", roles=["viewer"], person=True, until=until)
    credentials = door(clock, line)
    assert asyncio.run(credentials.authenticate(f"Bearer {token}", "192.0.2.1")).name == "ana"
    asyncio.run(clock.advance(2 * 86_400_000))
    with pytest.raises(Unauthenticated) as caught:
        asyncio.run(credentials.authenticate(f"Bearer {token}", "192.0.2.1"))
    assert caught.value.refusal == "token_expired"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (ANA_LINE.replace("tenant=acme ", ""), "tenant=… is missing"), (ANA_LINE.replace("=acme", "=../x"), "tenant"),
        (ANA_LINE.replace("=yes", "=maybe"), "person"), (ANA_LINE.replace("person=yes ", ""), "person"),
        (ANA_LINE[:-1], "sha256"), (ANA_LINE[:-2], "64 hexadecimal"),
        (ANA_LINE + " sha256=00", "each once"), (ANA_LINE + " admin=yes", "each once"),
        (ANA_LINE.replace("finance", "no role!").replace("no role!", "r!"), "role"), ("local:ana" + ANA_LINE, "local:"),
        (BOT_LINE.replace("person=no", "person=yes"), "cannot have the role agent"),
        (ANA_LINE + " until=soon", "until"),
    ],
)  # fmt: skip
def test_an_invalid_line_is_refused(line: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        read_line(line)
    with pytest.raises(InvalidInput) as caught:
        read_lines(f"{BOT_LINE}\n{line}")
    assert [where for where, _ in caught.value.problems] == ["line 2"]
    assert ANA_LINE.rpartition("=")[2] not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "roles", "person"),
    [
        ("", ["viewer"], True), ("ana smith", ["viewer"], True), ("ana until=2099-01-01", ["viewer"], True),
        ("ana\n", ["viewer"], True), ("ana", ["viewer,admin"], True), ("ana", ["r!"], True), ("bot", ["agent"], True),
        ("local:ana", ["viewer"], True),
    ],
    ids=range(8),
)  # fmt: skip
def test_a_token_has_one_name_and_the_requested_roles(name: str, roles: list[str], person: bool) -> None:
    """No word of a line can be injected into another one."""
    with pytest.raises(InvalidInput):
        new_token(name, tenant="acme", roles=roles, person=person)


def test_a_jwt_is_refused_without_an_issuer() -> None:
    """The service asks no issuer for keys."""
    with pytest.raises(Unauthenticated) as caught:
        asyncio.run(door(VirtualClock()).authenticate(f"Bearer {issuers.token()}", "192.0.2.1"))
    assert caught.value.refusal == "invalid"


def test_one_token_belongs_to_one_caller() -> None:
    with pytest.raises(InvalidInput, match="appears twice"):
        read_lines(f"{ANA_LINE}\n{ANA_LINE.replace('ana@corp', 'eve')}")


def test_every_hash_is_compared_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time reveals neither which token matched nor how much of it."""
    compared: list[tuple[bytes, bytes]] = []
    original = __import__("hmac").compare_digest

    def counting(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return bool(original(one, other))

    monkeypatch.setattr("outlast.service.identity.static_tokens.hmac.compare_digest", counting)
    tokens = StaticTokens(read_lines(LINES), VirtualClock())
    tokens.read(hashlib.sha256(ANA.encode()).digest())
    assert len(compared) == 2 and {len(each) for pair in compared for each in pair} == {32}
    with pytest.raises(Unauthenticated):
        tokens.read(hashlib.sha256(b"olt_x").digest())
    assert len(compared) == 4


# --- those who guess -----------------------------------------------------------------------------
@pytest.mark.req("GATE-2")
def test_only_the_guessing_address_is_locked_out() -> None:
    clock = VirtualClock()

    async def check() -> None:
        credentials = door(clock)
        await credentials.authenticate(f"Bearer {BOT}", "192.0.2.1")
        kinds = [await fail(credentials, "192.0.2.1") for _ in range(MOST + 5)]
        assert kinds == [Unauthenticated] * MOST + [TooManyFailures] * 5
        with pytest.raises(TooManyFailures) as caught:
            await credentials.authenticate(f"Bearer {ANA}", "192.0.2.1")
        assert 0 < caught.value.retry_after_s <= LOCK_MS // 1000
        assert (await credentials.authenticate(f"Bearer {ANA}", "192.0.2.2")).name == "ana@corp"
        assert (await credentials.authenticate(f"Bearer {BOT}", "192.0.2.1")).name == "bot", "it was at work there"
        await clock.advance(LOCK_MS)
        assert (await credentials.authenticate(f"Bearer {ANA}", "192.0.2.1")).name == "ana@corp"

    asyncio.run(check())


async def locked_out(credentials: Credentials) -> None:
    for _ in range(MOST):
        await fail(credentials, "192.0.2.1")


def test_a_recently_valid_token_is_accepted_from_a_locked_address() -> None:
    clock = VirtualClock()

    async def check() -> None:
        credentials = door(clock)
        await credentials.authenticate(f"Bearer {ANA}", "192.0.2.2")
        await locked_out(credentials)
        assert (await credentials.authenticate(f"Bearer {ANA}", "192.0.2.1")).name == "ana@corp"
        assert await fail(credentials, "192.0.2.1", BOT) is TooManyFailures
        await clock.advance(GOOD_MS)
        await locked_out(credentials)
        assert await fail(credentials, "192.0.2.1", ANA) is TooManyFailures

    asyncio.run(check())


def test_an_expired_token_is_reported_as_expired_from_a_locked_address() -> None:
    clock = VirtualClock()
    until = datetime.fromtimestamp(clock.wall() / 1000 // 86_400 * 86_400 + 86_400, UTC)
    token, line = new_token("ana", tenant="acme", roles=[], person=True, until=until)

    async def check() -> None:
        credentials = door(clock, line)
        await clock.advance(int(until.timestamp() * 1000) - clock.wall() - 1000)
        await credentials.authenticate(f"Bearer {token}", "192.0.2.1")
        await clock.advance(1000)
        assert await fail(credentials, "192.0.2.1", token) is Unauthenticated
        await locked_out(credentials)
        assert await fail(credentials, "192.0.2.1", token) is Unauthenticated
        assert await fail(credentials, "192.0.2.1") is TooManyFailures

    asyncio.run(check())


def test_in_a_full_bucket_the_address_that_failed_longest_ago_is_forgotten() -> None:
    clock = VirtualClock()
    failures = FailedCredentials(clock, SlotTables(buckets=1))

    def guess(*addresses: str) -> None:
        for each in addresses:
            asyncio.run(clock.advance(1))
            failures.note(each)

    for n in range(MOST):
        guess("192.0.2.1", *(f"198.51.100.{n * (WAYS - 1) + each}" for each in range(WAYS - 1)))
    assert failures.locked_ms("192.0.2.1"), "an address that goes on guessing is kept"
    guess(*(f"203.0.113.{n}" for n in range(WAYS)))
    assert not failures.locked_ms("192.0.2.1")


@pytest.mark.req("GATE-2")
def test_processes_with_a_shared_file_count_together() -> None:
    """Two processes of one service count guesses together and remember valid tokens together."""
    clock = VirtualClock()
    fd = shared_file()
    one, two = (authenticator(AuthSettings(tokens=SecretStr(LINES)), clock, shared=fd) for _ in range(2))
    alone = door(clock)

    async def check() -> None:
        await one.authenticate(f"Bearer {ANA}", "192.0.2.1")
        kinds = [await fail(each, "192.0.2.1") for _ in range(MOST) for each in (one, two)]
        assert kinds == [Unauthenticated] * MOST + [TooManyFailures] * MOST
        for each in (one, two):
            assert (await each.authenticate(f"Bearer {ANA}", "192.0.2.1")).name == "ana@corp"
            assert await fail(each, "192.0.2.1", BOT) is TooManyFailures
        assert await fail(alone, "192.0.2.1") is Unauthenticated

    asyncio.run(check())
    os.close(fd)


GUESSERS = """
import os
from outlast.clocks import SystemClock
from outlast.service.identity.lockout import MOST, FailedCredentials, SlotTables, shared_file
fd = shared_file()
children = []
for _ in range(3):
    child = os.fork()
    if child == 0:
        failures = FailedCredentials(SystemClock(), SlotTables(fd))
        for n in range(4000):
            failures.note(f"host-{n % 800}")
        os._exit(0)
    children.append(child)
for child in children:
    assert os.waitpid(child, 0)[1] == 0
failures = FailedCredentials(SystemClock(), SlotTables(fd))
for n in range(800):
    for _ in range(MOST - 15):
        assert not failures.locked_ms(f"host-{n}")
        failures.note(f"host-{n}")
    assert failures.locked_ms(f"host-{n}"), n
"""
FROZEN = """
import fcntl, sys
fcntl.lockf(int(sys.argv[1]), fcntl.LOCK_EX)
print(flush=True)
sys.stdin.read()
"""


def test_no_count_is_lost_between_processes() -> None:
    """Three processes count each address five times concurrently. All fifteen must be counted."""
    done = subprocess.run([sys.executable, "-c", GUESSERS], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_a_process_frozen_while_writing_does_not_block_others() -> None:
    fd = shared_file()
    command = [sys.executable, "-c", FROZEN, str(fd)]
    with subprocess.Popen(command, pass_fds=(fd,), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as frozen:
        assert frozen.stdout is not None and frozen.stdout.readline()
        failures = FailedCredentials(VirtualClock(), SlotTables(fd))
        for _ in range(MOST):
            failures.note("192.0.2.1")
        assert failures.locked_ms("192.0.2.1")
        frozen.communicate(timeout=60)
    os.close(fd)


def test_expired_and_missing_tokens_are_not_guesses() -> None:
    clock = VirtualClock()
    token, line = new_token("old", tenant="acme", roles=[], person=True, until=datetime(2020, 1, 1, tzinfo=UTC))

    async def check() -> None:
        credentials = door(clock, f"{LINES}\n{line}")
        for _ in range(3 * MOST):
            assert await fail(credentials, "192.0.2.1", token) is Unauthenticated
            with pytest.raises(Unauthenticated):
                await credentials.authenticate("", "192.0.2.1")

    asyncio.run(check())


def locked(failures: FailedCredentials) -> int:
    """Guess until the address is locked out, and return the seconds."""
    for _ in range(MOST):
        failures.note("192.0.2.1")
    return failures.locked_ms("192.0.2.1") // 1000


def test_locks_double_up_to_a_quarter_of_an_hour() -> None:
    clock, locks = VirtualClock(), []
    failures = FailedCredentials(clock)
    for _ in range(7):
        locks.append(locked(failures))
        asyncio.run(clock.advance(locks[-1] * 1000))
        assert not failures.locked_ms("192.0.2.1")
    assert locks == [60, 120, 240, 480, 900, 900, 900]
    asyncio.run(clock.advance(LOCK_MAX_MS))
    assert locked(failures) == 60


def test_slow_guessing_keeps_earlier_locks() -> None:
    """Locks are forgotten after a quarter of an hour without a guess, not after a minute."""
    clock, locks = VirtualClock(), []
    failures = FailedCredentials(clock)
    for _ in range(2):
        locks.append(locked(failures))
        asyncio.run(clock.advance(locks[-1] * 1000))
        for _ in range(2 * LOCK_MAX_MS // WITHIN_MS):
            asyncio.run(clock.advance(WITHIN_MS))
            failures.note("192.0.2.1")
            assert not failures.locked_ms("192.0.2.1")
        asyncio.run(clock.advance(WITHIN_MS))
    assert locks == [60, 120]


def test_slow_mistakes_cause_no_lock_out() -> None:
    clock = VirtualClock()
    failures = FailedCredentials(clock)
    for _ in range(10 * MOST):
        failures.note("192.0.2.1")
        assert not failures.locked_ms("192.0.2.1")
        asyncio.run(clock.advance(WITHIN_MS // (MOST - 1) + 1))


def test_a_subnet_of_version_6_is_one_address() -> None:
    failures = FailedCredentials(VirtualClock())
    for n in range(MOST):
        failures.note(f"2001:db8::{n:x}")
    assert failures.locked_ms("2001:db8::ffff")
    assert not failures.locked_ms("2001:db8:0:1::1")
    for n in range(MOST):
        failures.note("::ffff:192.0.2.7" if n % 2 else "192.0.2.7")
    assert failures.locked_ms("192.0.2.7")
