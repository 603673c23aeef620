"""Token issuer for the tests: real keys and signatures, and a key set on a real HTTP server."""

import base64
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from outlast.service.identity import AuthSettings

ISSUER, AUDIENCE = "https://id.example.com/realms/acme", "outlast"
RSA_KEYS = [rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(3)]
ELSEWHERE = "/elsewhere"
"""Path that always serves the keys, as the target of redirects that must not be followed."""
EC_KEY = ec.generate_private_key(ec.SECP256R1())


def b64(data: bytes) -> str:
    """Return base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def public(kid: str, key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, **more: Any) -> dict[str, Any]:
    """Return the public key as a JWK."""
    algorithm: Any = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
    entry: dict[str, Any] = json.loads(algorithm.to_jwk(key.public_key()))
    return {**entry, "kid": kid, "use": "sig", **more}


def pem(key: rsa.RSAPrivateKey) -> bytes:
    """Return the public key as PEM, which a confused verifier would take for a shared secret."""
    return key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def claims(**given: Any) -> dict[str, Any]:
    """Return the claims of a valid token. None removes a claim."""
    now = int(time.time())
    found = {
        "iss": ISSUER, "aud": AUDIENCE, "sub": "ana", "iat": now, "exp": now + 300, "tenant": "acme",
        "roles": ["approver", "finance"], "email": "ana@corp.example", "person": True, **given,
    }  # fmt: skip
    return {name: value for name, value in found.items() if value is not None}


def token(
    key: Any = RSA_KEYS[0], *, kid: str | None = "k0", algorithm: str = "RS256",
    headers: Mapping[str, Any] | None = None, **given: Any,
) -> str:  # fmt: skip
    """Return a token signed with this key."""
    head = {**({"kid": kid} if kid is not None else {}), **(headers or {})}
    return jwt.encode(claims(**given), key, algorithm=algorithm, headers=head)


def raw(header: bytes, payload: bytes, key: rsa.RSAPrivateKey = RSA_KEYS[0]) -> str:
    """Return a token with exactly this payload, signed with RS256."""
    signed = f"{b64(header)}.{b64(payload)}".encode()
    return f"{signed.decode()}.{b64(jwt.algorithms.RSAAlgorithm(jwt.algorithms.RSAAlgorithm.SHA256).sign(signed, key))}"


def unsigned(header: str, signature: bytes = b"") -> str:
    """Return a token with this header, valid claims, and any signature."""
    return f"{b64(header.encode())}.{b64(json.dumps(claims()).encode())}.{b64(signature)}"


class Issuer:
    """Issuer that counts fetches of its key set at `url`. `status` and `body` replace the answer if set."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/certs"
        self.keys = [public("k0", RSA_KEYS[0])]
        self.fetches = 0
        self.status = 200
        self.body: bytes | None = None
        self.headers: dict[str, str] = {}
        self.answers = threading.Event()
        """While cleared, requests are read and not answered."""
        self.answers.set()
        self.paths: list[str] = []

    def settings(self, **given: Any) -> AuthSettings:
        """Return settings that trust this issuer."""
        return AuthSettings(
            **{"issuer": ISSUER, "audience": AUDIENCE, "jwks_url": self.url, "person_claim": "person", **given}
        )


@contextmanager
def serving() -> Iterator[Issuer]:
    """Run an issuer during the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            issuer.fetches += 1
            issuer.paths.append(self.path)
            issuer.answers.wait(60)
            body = json.dumps({"keys": issuer.keys}).encode() if issuer.body is None else issuer.body
            if self.path == ELSEWHERE:
                body = json.dumps({"keys": issuer.keys}).encode()
            self.send_response(200 if self.path == ELSEWHERE else issuer.status)
            for name, value in issuer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    issuer = Issuer(server.server_port)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield issuer
    finally:
        issuer.answers.set()
        server.shutdown()
        thread.join()
        server.server_close()
