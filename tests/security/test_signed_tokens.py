"""Tokens of an issuer: accepted tokens and forgeries (S4)."""

import asyncio
import json
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given, settings
from hypothesis import strategies as st

from outlast.clocks import SystemClock, VirtualClock
from outlast.errors import InvalidInput, TooManyFailures, Unauthenticated, Unverifiable
from outlast.service.identity import AuthSettings, Principal, authenticator, signed_tokens
from outlast.service.identity.credentials import Credentials
from outlast.service.identity.lockout import MOST
from outlast.service.identity.signed_tokens import COOLDOWN_MS, LIFETIME_MS, REFRESH_MS
from tests.security.issuer import (
    EC_KEY,
    ELSEWHERE,
    RSA_KEYS,
    Issuer,
    b64,
    claims,
    pem,
    public,
    raw,
    serving,
    token,
    unsigned,
)

HEAD = b'{"alg":"RS256","kid":"k0","typ":"JWT"}'


def read(issuer: Issuer, text: str, **given: Any) -> Principal:
    """Return the caller of a header, with a new authenticator."""
    door = authenticator(issuer.settings(**given), SystemClock())
    return asyncio.run(door.authenticate(f"Bearer {text}", "192.0.2.1"))


def refusal(issuer: Issuer, text: str, **given: Any) -> str:
    with pytest.raises(Unauthenticated) as caught:
        read(issuer, text, **given)
    return caught.value.refusal


@pytest.mark.req("GATE-2")
def test_a_valid_token_gives_its_caller(issuer: Issuer) -> None:
    ends = int(time.time()) + 300
    found = read(issuer, token(exp=ends))
    until_ms = (ends + issuer.settings().leeway_s) * 1000
    roles = frozenset({"approver", "finance"})
    assert found == Principal("acme", "ana", roles, ("approver", "finance"), True, until_ms)
    actor = found.actor()
    assert (actor.name, actor.claims, actor.person) == ("ana", ("approver", "finance"), True)
    issuer.keys = [public("e", EC_KEY)]
    assert read(issuer, token(EC_KEY, kid="e", algorithm="ES256")).name == "ana"


def test_claims_are_read_at_the_configured_paths(issuer: Issuer) -> None:
    nested = token(realm_access={"roles": ["operator", "no role at all", 7]}, org={"id": "t1"})
    found = read(issuer, nested, roles_claim="realm_access.roles", tenant_claim="org.id", name_claim="email")
    assert (found.tenant, found.name, found.claims) == ("t1", "ana@corp.example", ("operator",))
    spelt = token(**{"https://corp.example/roles": ["viewer"], "scope": "viewer starter"})
    assert read(issuer, spelt, roles_claim="https://corp.example/roles").claims == ("viewer",)
    assert read(issuer, spelt, roles_claim="scope").claims == ("starter", "viewer")
    assert read(issuer, token(roles={"admin": True})).claims == ()


@pytest.mark.req("GATE-2")
def test_only_people_are_people(issuer: Issuer) -> None:
    assert read(issuer, token()).person
    assert not read(issuer, token(), person_claim="").person
    assert not read(issuer, token(**{"": True}), person_claim="").person, "nor by a claim without a name"
    null = raw(HEAD, json.dumps({**claims(), "person": None}).encode())
    for text in [token(person=None), null, token(person=False), token(act={"sub": "bot"}),
                 token(roles=["approver", "agent"]), token(roles=["worker", "finance"])]:  # fmt: skip
        found = read(issuer, text)
        assert not found.person and not found.actor().person, text


@pytest.mark.req("GATE-2")
def test_a_person_claim_that_is_neither_true_nor_false_refuses_the_token(
    issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    async def check() -> None:
        door = authenticator(issuer.settings(), SystemClock())
        for value in ("False", "No", "null", "off", "", "true", "yes", "ana@corp.example", 1, 0, 1.0, [], [True], {}):
            caplog.clear()
            with pytest.raises(Unauthenticated) as caught:
                await door.authenticate(bearer(token(person=value)), "192.0.2.1")
            assert caught.value.refusal == "claims" and "person is neither true nor false" in caught.value.why, value
            assert "auth.person_claim" in caplog.text, value

    asyncio.run(check())


@pytest.mark.req("GATE-2", "RUN-5")
def test_roles_of_the_installation_come_from_their_own_claim_only(issuer: Issuer) -> None:
    """Administrators of a tenant assign its roles, and must not see all tenants."""
    tried = token(roles=["operator", "monitor"], installation=["monitor", "operator", "finance"])
    assert read(issuer, tried).claims == ("operator",)
    assert read(issuer, tried, installation_claim="installation").claims == ("monitor", "operator")
    assert read(issuer, tried, installation_claim="roles").claims == ("monitor", "operator")
    assert read(issuer, token(installation="operator"), installation_claim="installation").claims == (
        "approver", "finance",
    )  # fmt: skip


@pytest.mark.parametrize(
    "wrong",
    [
        {"tenant": None}, {"tenant": "../etc"}, {"tenant": "*"}, {"tenant": ""}, {"tenant": ["acme"]}, {"tenant": 7},
        {"sub": "a\nb"}, {"sub": "local:ana"}, {"sub": "Local:ana"}, {"sub": " ana"}, {"sub": "x" * 201},
        {"sub": "\u202eana"},
        {"roles": [f"r{n}" for n in range(300)]},
    ],
    ids=str,
)  # fmt: skip
def test_claims_without_a_caller_are_refused(issuer: Issuer, wrong: dict[str, Any]) -> None:
    assert refusal(issuer, token(**wrong)) == "claims"


@pytest.mark.parametrize("wrong", [{"aud": "another"}, {"iss": "https://another.example"}, {"exp": None}], ids=str)
def test_the_reason_for_a_refused_token_is_only_in_the_log(
    issuer: Issuer, wrong: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    forged_too = token(RSA_KEYS[1], **wrong)
    assert refusal(issuer, forged_too) == "invalid" and not caplog.records, "a stranger fills no log"
    assert refusal(issuer, token(**wrong)) == "invalid"
    assert "a token signed by the issuer is refused" in caplog.text


def forged() -> dict[str, str]:
    """Created on use, because a token created at collection could expire during a long test run."""
    now = int(time.time())
    return {
        "alg none": unsigned('{"alg":"none","kid":"k0"}'),
        "alg None": unsigned('{"alg":"None","kid":"k0"}'),
        "no alg": unsigned('{"kid":"k0"}', b"x" * 256),
        "alg as a list": unsigned('{"alg":["RS256"],"kid":"k0"}', b"x" * 256),
        "another key, same kid": token(RSA_KEYS[1]),
        "no kid": token(kid=None),
        "kid is a path": token(kid="../../../../dev/null"),
        "kid is SQL": token(kid="k0' OR '1'='1"),
        "kid is an address": token(kid="http://127.0.0.1:1/keys"),
        "kid is a number": raw(b'{"alg":"RS256","kid":0}', json.dumps(claims()).encode()),
        "kid is a list": raw(b'{"alg":"RS256","kid":["k0"]}', json.dumps(claims()).encode()),
        "kid is empty": token(kid=""),
        "kid is endless": token(kid="k" * 1000),
        "another algorithm": token(algorithm="RS512"),
        "an algorithm not listed": token(algorithm="PS256"),
        "wrong issuer": token(iss="https://evil.example"),
        "issuer begins alike": token(iss="https://id.example.com/realms/acme/evil"),
        "issuer as a list": raw(HEAD, json.dumps(claims(iss=["https://id.example.com/realms/acme"])).encode()),
        "no issuer": token(iss=None),
        "wrong audience": token(aud="another"),
        "audience begins alike": token(aud="outlast-admin"),
        "no audience": token(aud=None),
        "no expiry": token(exp=None),
        "expiry as text": raw(HEAD, json.dumps(claims(exp=str(now + 300))).encode()),
        "expiry true": raw(HEAD, json.dumps(claims(exp=True)).encode()),
        "expiry endless": raw(HEAD, json.dumps(claims()).encode().replace(b'"exp": ', b'"exp": 1e999, "x": ')),
        "not yet": token(nbf=now + 3600),
        "issued tomorrow": token(iat=now + 86_400),
        "no subject": token(sub=None),
        "subject a number": raw(HEAD, json.dumps(claims(sub=7)).encode()),
        "its own key": token(RSA_KEYS[1], headers={"jwk": public("k0", RSA_KEYS[1])}),
        "its own key, signed right": token(headers={"jwk": public("k0", RSA_KEYS[1])}),
        "its own key set": token(headers={"jku": "http://127.0.0.1:1/certs"}),
        "its own certificate": token(headers={"x5u": "http://127.0.0.1:1/cert"}),
        "its own chain": token(headers={"x5c": ["MIIB"]}),
        "critical extension": token(headers={"crit": ["exp"]}),
        "another kind of token": token(headers={"typ": "logout+jwt"}),
        "a kind that is a number": raw(HEAD.replace(b'"JWT"', b"5"), json.dumps(claims()).encode()),
        "a kind that is nothing": raw(HEAD.replace(b'"JWT"', b"null"), json.dumps(claims()).encode()),
        "a claim twice": raw(HEAD, json.dumps(claims()).encode()[:-1] + b', "tenant": "globex"}'),
        "a header twice": raw(b'{"alg":"RS256","kid":"k1","kid":"k0"}', json.dumps(claims()).encode()),
        "a claim twice, nested": raw(HEAD, json.dumps(claims()).encode()[:-1] + b', "x": {"a": 1, "a": 2}}'),
        "no number": raw(HEAD, json.dumps(claims(x=float("nan"))).encode()),
        "no object": raw(HEAD, b"[]"),
        "too deep": raw(HEAD, b'{"x":' + b"[" * 2400 + b"]" * 2400 + b"}"),
        "changed after signing": token().replace(".", ".e30", 1),
        "a header too deep": raw(b'{"alg":"RS256","kid":"k0","x":' + b"[" * 2400 + b"]" * 2400 + b"}", b"{}"),
        "two dots": "a.b.c",
        "no dots": "abc",
        "empty parts": "..",
        "not base64": "!!!.!!!.!!!",
        "four parts": token() + ".x",
        "signature cut": token()[:-8],
        "another alphabet": token().replace("a", "\u0430", 1),
    }  # fmt: skip


@pytest.mark.req("GATE-2")
@pytest.mark.parametrize("which", list(forged()))
def test_a_forged_token_is_refused(issuer: Issuer, which: str) -> None:
    assert refusal(issuer, forged()[which]) == "invalid"
    assert set(issuer.paths) <= {"/certs"}, "nothing is fetched that a token names"


HEADERS_OF_NOBODY = [
    "alg none", "alg None", "no alg", "alg as a list", "no kid", "kid is a number", "kid is a list", "kid is empty",
    "kid is endless", "another algorithm", "an algorithm not listed", "its own key", "its own key set",
    "critical extension", "another kind of token", "a header twice", "a header too deep",
    "two dots", "no dots", "empty parts", "not base64",
]  # fmt: skip


@pytest.mark.parametrize("which", HEADERS_OF_NOBODY)
def test_a_malformed_header_causes_no_fetch(issuer: Issuer, which: str) -> None:
    """No fetch, because anonymous callers could send any number of these."""
    assert refusal(issuer, forged()[which]) == "invalid"
    assert issuer.fetches == 0


@pytest.mark.parametrize("secret", [pem(RSA_KEYS[0]), json.dumps(public("k0", RSA_KEYS[0])).encode()])
def test_a_public_key_is_not_accepted_as_a_shared_secret(issuer: Issuer, secret: bytes) -> None:
    """HS256 with the public key. The settings refuse such algorithms, too."""
    signed = unsigned('{"alg":"HS256","kid":"k0"}').rpartition(".")[0]
    algorithm = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    forged = f"{signed}.{b64(algorithm.sign(signed.encode(), secret))}"
    assert refusal(issuer, forged) == "invalid"
    for weak in ("HS256", "none", "ES256K"):
        with pytest.raises(InvalidInput, match="is not one of"):
            authenticator(issuer.settings(algorithms=("RS256", weak)), SystemClock())


def test_a_shared_secret_in_the_key_set_is_ignored(issuer: Issuer) -> None:
    issuer.keys.append({"kty": "oct", "kid": "s", "k": b64(b"x" * 32), "alg": "HS256"})
    issuer.keys.append(public("enc", RSA_KEYS[1], use="enc"))
    issuer.keys += [{"kty": "RSA", "kid": "broken", "n": "!"}, {"kty": "RSA", "kid": "odd", "alg": ["RS256"]}, 7]  # type: ignore[list-item]
    assert read(issuer, token()).name == "ana"
    assert refusal(issuer, token(RSA_KEYS[1], kid="enc")) == "invalid"


def test_times_are_checked_within_a_minute(issuer: Issuer) -> None:
    now = int(time.time())
    assert read(issuer, token(exp=now - 20)).name == "ana"
    assert refusal(issuer, token(exp=now - 40)) == "token_expired"
    assert read(issuer, token(nbf=now + 20)).name == "ana"
    with pytest.raises(InvalidInput, match="from 0 to 60"):
        authenticator(issuer.settings(leeway_s=61), SystemClock())


def test_the_leeway_is_a_setting(issuer: Issuer) -> None:
    now = int(time.time())
    assert read(issuer, token(exp=now - 40), leeway_s=60).name == "ana"
    with pytest.raises(Unauthenticated):
        read(issuer, token(exp=now - 2), leeway_s=0)


@pytest.mark.req("GATE-2", "RUN-5")
def test_an_issuer_without_tenants_has_exactly_one(issuer: Issuer) -> None:
    assert read(issuer, token(tenant=None), tenant="globex").tenant == "globex"
    assert read(issuer, token(tenant="globex"), tenant="globex").tenant == "globex"
    for other in ("acme", "", 7, ["globex"], {"id": "globex"}):
        with pytest.raises(Unauthenticated) as caught:
            read(issuer, token(tenant=other), tenant="globex")
        assert caught.value.refusal == "claims", other
    with pytest.raises(InvalidInput) as wrong:
        authenticator(issuer.settings(tenant="../acme", tenant_claim=""), SystemClock())
    assert [name for name, _ in wrong.value.problems] == ["auth.tenant"]


def test_a_huge_token_is_refused_before_it_is_read(issuer: Issuer) -> None:
    assert refusal(issuer, token(x="y" * 64_000)) == "too_large"
    assert issuer.fetches == 0


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(max_size=200), st.binary(max_size=200).map(lambda b: f"{b64(b)}.{b64(b)}.{b64(b)}")))
def test_malformed_credentials_are_answered_401(text: str) -> None:
    door = authenticator(
        AuthSettings(issuer="i", audience="a", jwks_url="http://127.0.0.1:1/", person_claim="email"), SystemClock()
    )
    with pytest.raises((Unauthenticated, Unverifiable)):
        asyncio.run(door.authenticate(f"Bearer {text}", "192.0.2.1"))


@pytest.mark.parametrize(
    "url",
    ["http://id.example.com/certs", "file:///etc/keys", "ftp://x/y", "https://u:p@x/y", "https:///x", "https://u@x/y",
     "https://:p@x/y", "ftp://127.0.0.1/x"],
)  # fmt: skip
def test_keys_come_over_https(url: str) -> None:
    with pytest.raises(InvalidInput, match="https"):
        authenticator(AuthSettings(issuer="i", audience="a", jwks_url=url), SystemClock())
    authenticator(AuthSettings(issuer="i", audience="a", jwks_url="https://id.example.com/certs"), SystemClock())


def test_missing_settings_are_listed_together() -> None:
    with pytest.raises(InvalidInput) as caught:
        authenticator(AuthSettings(issuer="i", roles_claim=""), SystemClock())
    assert [name for name, _ in caught.value.problems] == ["auth.audience", "auth.jwks_url", "auth.roles_claim"]


def test_a_weak_key_is_refused(issuer: Issuer) -> None:
    weak = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    issuer.keys.append(public("weak", weak))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyJWT's own, where it signs
        text = token(weak, kid="weak")
    assert refusal(issuer, text) == "invalid"


def test_the_first_of_two_keys_with_one_id_counts(issuer: Issuer) -> None:
    issuer.keys.append(public("k0", RSA_KEYS[1]))
    assert read(issuer, token()).name == "ana"
    assert refusal(issuer, token(RSA_KEYS[1])) == "invalid"


@pytest.mark.parametrize("odd", [{"kid": 0}, {"use": "enc"}, {"key_ops": ["encrypt"]}, {"key_ops": "verify"}], ids=str)
def test_a_key_for_another_use_is_ignored(issuer: Issuer, odd: dict[str, Any]) -> None:
    issuer.keys.append({**public("0", RSA_KEYS[1]), **odd})
    assert refusal(issuer, token(RSA_KEYS[1], kid="0")) == "invalid"


def test_an_empty_list_of_algorithms_is_refused(issuer: Issuer) -> None:
    with pytest.raises(InvalidInput, match="is empty"):
        authenticator(issuer.settings(algorithms=()), SystemClock())


def test_an_endless_answer_of_the_issuer_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole fetch has a time limit, so that an issuer cannot delay it with slow bytes."""
    monkeypatch.setattr(signed_tokens, "FETCH_S", 0.3)

    async def check() -> None:
        left = asyncio.Event()

        async def dribble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
            try:
                while True:
                    writer.write(b" ")
                    await writer.drain()
                    await asyncio.sleep(0.02)
            except ConnectionError:
                left.set()

        server = await asyncio.start_server(dribble, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        settings = AuthSettings(issuer="i", audience="a", jwks_url=f"http://127.0.0.1:{port}/")
        with pytest.raises(Unverifiable):
            async with asyncio.timeout(30):
                await authenticator(settings, SystemClock()).authenticate(f"Bearer {token()}", "192.0.2.1")
        await left.wait()
        server.close()

    asyncio.run(check())


# --- rotation ------------------------------------------------------------------------------------
def bearer(text: str) -> str:
    return f"Bearer {text}"


async def until(holds: Callable[[], object]) -> None:
    """Wait until the predicate holds, because a background fetch takes real time."""
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 - the issuer answers in a thread
            await asyncio.sleep(0.005)


def fetched(door: Credentials) -> bool:
    """Return True if no fetch of the issuer's keys is in progress."""
    assert door._signed is not None
    fetching = door._signed._keys._fetching
    return fetching is None or fetching.done()


@pytest.mark.req("GATE-2")
def test_a_new_key_is_found_and_a_revoked_one_stops_within_five_minutes(issuer: Issuer) -> None:
    clock = VirtualClock()

    async def check() -> None:
        door = authenticator(issuer.settings(), clock)
        old, new = bearer(token()), bearer(token(RSA_KEYS[1], kid="k1"))
        for _ in range(50):
            await door.authenticate(old, "192.0.2.1")
        assert issuer.fetches == 1
        issuer.keys.append(public("k1", RSA_KEYS[1]))
        await clock.advance(COOLDOWN_MS)
        assert (await door.authenticate(new, "192.0.2.1")).name == "ana"
        assert issuer.fetches == 2, "an unknown kid is looked for at once"
        issuer.keys = [public("k1", RSA_KEYS[1])]
        await clock.advance(REFRESH_MS - COOLDOWN_MS - 1)
        await door.authenticate(old, "192.0.2.1")
        assert issuer.fetches == 2
        await clock.advance(1)
        await until(lambda: issuer.fetches == 3 and fetched(door))
        with pytest.raises(Unauthenticated):
            await door.authenticate(old, "192.0.2.1")
        assert (await door.authenticate(new, "192.0.2.1")).name == "ana"

    asyncio.run(check())


@pytest.mark.req("GATE-2")
def test_a_revoked_key_stops_without_traffic(issuer: Issuer) -> None:
    """The first token after a pause must not have to wait for a fetch."""
    clock = VirtualClock()

    async def check() -> None:
        door = authenticator(issuer.settings(), clock)
        await door.authenticate(bearer(token()), "192.0.2.1")
        issuer.keys = [public("k1", RSA_KEYS[1])]
        await clock.advance(REFRESH_MS)
        await until(lambda: fetched(door))
        assert issuer.fetches == 2
        with pytest.raises(Unauthenticated):
            await door.authenticate(bearer(token()), "192.0.2.1")
        await clock.advance(3 * LIFETIME_MS)
        await until(lambda: fetched(door))
        before = issuer.fetches
        await clock.advance(LIFETIME_MS)
        assert issuer.fetches == before, "an idle service fetches no keys"

    asyncio.run(check())


@pytest.mark.req("GATE-2")
def test_a_hanging_issuer_delays_no_known_key(issuer: Issuer) -> None:
    clock = VirtualClock()

    async def check() -> None:
        door = authenticator(issuer.settings(), clock)
        good = bearer(token())
        await door.authenticate(good, "192.0.2.1")
        issuer.answers.clear()
        for _ in range(2):
            await clock.advance(REFRESH_MS + COOLDOWN_MS)
            async with asyncio.timeout(signed_tokens.FETCH_S / 2):
                for n in range(10):
                    await door.authenticate(good, f"192.0.2.{n}")
            await until(lambda: issuer.fetches == 2)
        unknown = asyncio.create_task(door.authenticate(bearer(token(RSA_KEYS[1], kid="k1")), "192.0.2.9"))
        async with asyncio.timeout(signed_tokens.FETCH_S / 2):
            await door.authenticate(good, "192.0.2.1")
        issuer.keys.append(public("k1", RSA_KEYS[1]))
        assert not unknown.done(), "a key that is not known is waited for"
        issuer.answers.set()
        assert (await unknown).name == "ana"

    asyncio.run(check())


def test_a_disconnecting_caller_does_not_cancel_the_fetch(issuer: Issuer) -> None:
    async def check() -> None:
        door = authenticator(issuer.settings(), SystemClock())
        issuer.answers.clear()
        first, second = (asyncio.create_task(door.authenticate(bearer(token()), "192.0.2.1")) for _ in range(2))
        await until(lambda: issuer.fetches)
        first.cancel()
        await asyncio.wait([first])
        issuer.answers.set()
        assert (await second).name == "ana" and issuer.fetches == 1

    asyncio.run(check())


@pytest.mark.req("GATE-2")
def test_an_unreachable_issuer_is_trusted_for_fifteen_minutes(issuer: Issuer) -> None:
    clock = VirtualClock()

    async def check() -> None:
        door = authenticator(issuer.settings(), clock)
        good = bearer(token())
        await door.authenticate(good, "192.0.2.1")
        issuer.status, before = 503, issuer.fetches
        await clock.advance(REFRESH_MS)
        for _ in range(20):
            await door.authenticate(good, "192.0.2.1")
        await until(lambda: fetched(door))
        for _ in range(20):
            await door.authenticate(good, "192.0.2.1")
        assert issuer.fetches == before + 1, "one that fails is not asked again at once"
        await clock.advance(LIFETIME_MS - REFRESH_MS - 1)
        await door.authenticate(good, "192.0.2.1")
        await until(lambda: fetched(door))
        await clock.advance(1)
        with pytest.raises(Unverifiable):
            await door.authenticate(good, "192.0.2.1")
        issuer.status = 200
        await clock.advance(COOLDOWN_MS)
        await door.authenticate(good, "192.0.2.1")

    asyncio.run(check())


@pytest.mark.parametrize(
    ("status", "body", "headers"),
    [
        (500, b"", {}), (302, b"", {"Location": ELSEWHERE}), (200, b"not json", {}), (200, b"[]", {}),
        (200, b'{"keys": 7}', {}), (200, b'{"keys": []}', {}), (200, b"[" * 100_000, {}),
        (200, json.dumps({"keys": [public("k0", RSA_KEYS[0])], "x": "y" * 300_000}).encode(), {}),
        (200, json.dumps({"keys": [public("k0", RSA_KEYS[0])] + [{}] * 100}).encode(), {}),
    ],
)  # fmt: skip
def test_an_invalid_key_set_is_refused(issuer: Issuer, status: int, body: bytes, headers: dict[str, str]) -> None:
    issuer.status, issuer.body, issuer.headers = status, body, headers
    with pytest.raises(Unverifiable):
        read(issuer, token())


@pytest.mark.req("GATE-2")
def test_a_flood_of_unknown_key_ids_causes_one_fetch(issuer: Issuer) -> None:
    clock = VirtualClock()

    async def check() -> None:
        door = authenticator(issuer.settings(), clock)
        await door.authenticate(bearer(token()), "192.0.2.1")
        await clock.advance(COOLDOWN_MS)
        flood = [door.authenticate(bearer(token(kid=f"x{n}")), f"198.51.100.{n % 250}") for n in range(500)]
        answers = await asyncio.gather(*flood, return_exceptions=True)
        assert all(isinstance(answer, Unauthenticated) for answer in answers)
        assert issuer.fetches == 2

    asyncio.run(check())


# --- those who guess -----------------------------------------------------------------------------
async def refusals(door: Credentials, texts: Iterable[str]) -> list[type[Exception]]:
    """Send these tokens from one address, and return the refusals."""
    found: list[type[Exception]] = []
    for text in texts:
        with pytest.raises((Unauthenticated, TooManyFailures)) as caught:
            await door.authenticate(bearer(text), "192.0.2.1")
        found.append(type(caught.value))
    return found


@pytest.mark.req("GATE-2")
def test_a_lock_out_spares_tokens_with_a_valid_signature(issuer: Issuer) -> None:
    """Another caller behind the same proxy guesses. JWTs are renewed often, so they cannot be remembered."""

    async def check() -> None:
        door = authenticator(issuer.settings(), SystemClock())
        kinds = await refusals(door, [token(RSA_KEYS[1], x=n) for n in range(MOST + 5)])
        assert [issubclass(kind, Unauthenticated) for kind in kinds] == [True] * MOST + [False] * 5
        for n in range(5):
            assert (await door.authenticate(bearer(token(jti=f"{n}")), "192.0.2.1")).name == "ana"
        with pytest.raises(Unauthenticated) as caught:
            await door.authenticate(bearer(token(exp=int(time.time()) - 600)), "192.0.2.1")
        assert caught.value.refusal == "token_expired", "an expired token is reported as expired"
        assert await refusals(door, ["olt_guess", token(RSA_KEYS[1])]) == [TooManyFailures] * 2

    asyncio.run(check())


@pytest.mark.req("GATE-2")
@pytest.mark.parametrize(
    "wrong",
    [
        {"kid": "k1"}, {"exp": 1}, {"aud": "another"}, {"iss": "https://another.example"}, {"sub": None}, {"exp": None},
        {"nbf": 99_999_999_999}, {"iat": 99_999_999_999}, {"tenant": None}, {"person": "yes"}, {"x": "y" * 64_000},
    ],
    ids=lambda wrong: ", ".join(wrong),
)  # fmt: skip
def test_a_token_that_cannot_be_invented_is_not_a_guess(issuer: Issuer, wrong: dict[str, Any]) -> None:
    """A changed key, a clock that is ahead, or wrong settings must not lock people out."""

    async def check() -> None:
        door = authenticator(issuer.settings(), SystemClock())
        kinds = await refusals(door, [token(**wrong)] * (2 * MOST))
        assert all(issubclass(kind, Unauthenticated) for kind in kinds)
        assert (await door.authenticate(bearer(token()), "192.0.2.1")).name == "ana"

    asyncio.run(check())


def test_concurrent_tokens_cause_one_fetch() -> None:
    with serving() as issuer:

        async def check() -> None:
            door = authenticator(issuer.settings(), SystemClock())
            await asyncio.gather(*(door.authenticate(bearer(token()), "192.0.2.1") for _ in range(50)))

        asyncio.run(check())
        assert issuer.fetches == 1
