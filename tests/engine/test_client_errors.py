"""Real exceptions of clients, from real servers: never sent, refused, retry later, or perhaps (S-17, decision 0055)."""

import asyncio
import datetime
import socket
import socketserver
import ssl
import struct
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import botocore.config
import botocore.session
import grpc
import httpx
import httpx2
import pytest
import requests
import urllib3
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from outlast.core.effect_steps import Maybe, No, Unsent
from outlast.engine.call_outcome import is_transient, judge
from outlast.errors import DefinitionError
from outlast.flow import NotSent, Perhaps, Refused, RetryLater, classify
from outlast.flow.registry import CLASSIFIED

pytestmark = [pytest.mark.req("EFF-5")]
WAIT_S = 0.25  # how long a client waits for an answer that does not come
CONNECT_S = 60.0  # how long it may take to connect, which is slow on a busy machine and another error
RESET = struct.pack("ii", 1, 0)


# --- servers ----------------------------------------------------------------------------------------------
class Hostile(socketserver.StreamRequestHandler):
    """Answers as the path says."""

    def handle(self) -> None:
        try:
            self._act()
        except OSError:
            pass  # the client has gone

    def _act(self) -> None:
        line = self.rfile.readline().decode("latin-1")
        length = 0
        while (header := self.rfile.readline().strip()) != b"":
            name, _, value = header.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        self.rfile.read(length)
        path = line.split(" ")[1]
        if path.startswith("/reset"):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        elif path.startswith("/silent"):
            self.server.released.wait(20)  # type: ignore[attr-defined]
        elif path.startswith("/half"):
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{")
        elif path.startswith("/303"):
            self._answer(303, f"Location: {self.server.refusing}\r\n")  # type: ignore[attr-defined]
        elif path.startswith("/status/"):
            self._answer(int(path.split("/")[2]), "Retry-After: 7\r\n")
        # otherwise: closed without an answer

    def _answer(self, status: int, more: str) -> None:
        head = f"HTTP/1.1 {status} Because\r\nContent-Type: application/json\r\n{more}Content-Length: 2\r\n"
        self.wfile.write(f"{head}Connection: close\r\n\r\n{{}}".encode())


class Server(socketserver.ThreadingTCPServer):
    """On a free port of loopback, until it is closed."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, refusing: str, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Hostile)
        self.refusing, self.tls, self.released = refusing, tls, threading.Event()
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def finish_request(self, request: Any, client_address: Any) -> None:
        if self.tls is not None:
            request = self.tls.wrap_socket(request, server_side=True)
        super().finish_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that does not trust it hangs up


class Places(NamedTuple):
    """Where to ask."""

    plain: str
    tls: str
    refusing: str
    """Bound and never listened at: no other process gets the port."""


def _certificate(folder: Path) -> ssl.SSLContext:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "nobody")])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1))
    pem, private = folder / "cert.pem", folder / "key.pem"
    pem.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    plain = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    private.write_bytes(key.private_bytes(*plain))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, private)
    return context


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    reserved = socket.socket()
    reserved.bind(("127.0.0.1", 0))
    refusing = f"http://127.0.0.1:{reserved.getsockname()[1]}"
    plain = Server(refusing)
    tls = Server(refusing, _certificate(tmp_path_factory.mktemp("tls")))
    yield Places(f"http://127.0.0.1:{plain.server_address[1]}", f"https://127.0.0.1:{tls.server_address[1]}", refusing)
    for server in (plain, tls):
        server.released.set()
        server.shutdown()
        server.server_close()
    reserved.close()


# --- clients ----------------------------------------------------------------------------------------------
def _httpx(module: Any) -> Callable[[str], None]:
    def post(url: str) -> None:
        timeout = module.Timeout(WAIT_S, connect=CONNECT_S)
        with module.Client(timeout=timeout, follow_redirects=True, trust_env=False) as client:
            client.post(url, json={}).raise_for_status()

    return post


def _httpx_async(module: Any) -> Callable[[str], None]:
    async def post(url: str) -> None:
        timeout = module.Timeout(WAIT_S, connect=CONNECT_S)
        async with module.AsyncClient(timeout=timeout, follow_redirects=True, trust_env=False) as client:
            (await client.post(url, json={})).raise_for_status()

    return lambda url: asyncio.run(post(url))


def _requests(url: str) -> None:
    requests.post(url, json={}, timeout=(CONNECT_S, WAIT_S)).raise_for_status()


def _urllib3(url: str) -> None:
    retry = urllib3.Retry(3, backoff_factor=0)
    with urllib3.PoolManager(timeout=urllib3.Timeout(connect=CONNECT_S, read=WAIT_S), retries=retry) as pool:
        pool.request("POST", url, json={})


def _aiohttp(url: str) -> None:
    async def post() -> None:
        timeout = aiohttp.ClientTimeout(sock_read=WAIT_S, sock_connect=CONNECT_S)
        async with aiohttp.ClientSession(timeout=timeout, raise_for_status=True) as session:
            async with session.post(url, json={}) as answer:
                await answer.read()

    asyncio.run(post())


def _urllib(url: str) -> None:
    try:
        with urllib.request.urlopen(url, b"{}", timeout=WAIT_S) as answer:
            answer.read()
    except urllib.error.HTTPError as error:
        error.close()
        raise


def _botocore(url: str, attempts: int = 1) -> None:
    config = botocore.config.Config(
        read_timeout=WAIT_S, connect_timeout=CONNECT_S, retries={"total_max_attempts": attempts, "mode": "standard"}
    )
    client = SESSION.create_client("dynamodb", "eu-west-1", endpoint_url=url, config=config)
    try:
        client.delete_item(TableName="t", Key={"k": {"S": "v"}})
    finally:
        client.close()


SESSION = botocore.session.Session()
SESSION.set_credentials("id", "key")


def _openai(url: str, retries: int = 0) -> None:
    import openai  # takes 2 s, which only the process of these tests spends

    timeout = openai.Timeout(WAIT_S, connect=CONNECT_S)
    with openai.OpenAI(api_key="k", base_url=url, max_retries=retries, timeout=timeout) as client:
        client.chat.completions.create(model="m", messages=[])


def _anthropic(url: str, retries: int = 0) -> None:
    import anthropic  # as above

    timeout = anthropic.Timeout(WAIT_S, connect=CONNECT_S)
    with anthropic.Anthropic(api_key="k", base_url=url, max_retries=retries, timeout=timeout) as client:
        client.messages.create(model="m", max_tokens=1, messages=[])


CLIENTS: dict[str, Callable[[str], None]] = {
    "httpx": _httpx(httpx),
    "httpx async": _httpx_async(httpx),
    "httpx2": _httpx(httpx2),
    "httpx2 async": _httpx_async(httpx2),
    "requests": _requests,
    "urllib3": _urllib3,
    "aiohttp": _aiohttp,
    "urllib": _urllib,
    "botocore": _botocore,
    "openai": _openai,
    "anthropic": _anthropic,
}
SITUATIONS: dict[str, tuple[Callable[[Places], str], type, str]] = {
    "refused": (lambda at: at.refusing, Unsent, "not_sent"),
    "no such host": (lambda at: "http://outlast-no-such-host.invalid", Unsent, "not_sent"),
    "unknown certificate": (lambda at: at.tls, Unsent, "not_sent"),
    "reset": (lambda at: f"{at.plain}/reset", Maybe, ""),
    "closed": (lambda at: f"{at.plain}/closed", Maybe, ""),
    "silent": (lambda at: f"{at.plain}/silent", Maybe, "timeout"),
    "half": (lambda at: f"{at.plain}/half", Maybe, ""),
    "422": (lambda at: f"{at.plain}/status/422", No, "http_422"),
    "429": (lambda at: f"{at.plain}/status/429", Unsent, "http_429"),
    "503": (lambda at: f"{at.plain}/status/503", Maybe, "http_503"),
    "done, sent on, refused": (lambda at: f"{at.plain}/303", Maybe, ""),
}
# urllib3 raises nothing for a status, botocore nothing for half an answer of this service, and it leaves the socket of
# a redirect open, which it does not follow.
NOT_ITS_OWN = {
    ("botocore", "half"),
    ("botocore", "done, sent on, refused"),
    *(("urllib3", status) for status in ("422", "429", "503")),
}
CASES = [(client, case) for client in CLIENTS for case in SITUATIONS if (client, case) not in NOT_ITS_OWN]


def raised_by(call: Callable[[str], None], url: str) -> Exception:
    with pytest.raises(Exception) as caught:
        call(url)
    return caught.value


@pytest.mark.parametrize(("client", "case"), CASES)
def test_exceptions_of_clients_are_judged(places: Places, client: str, case: str) -> None:
    at, kind, code = SITUATIONS[case]
    error = raised_by(CLIENTS[client], at(places))
    outcome = judge(error)
    assert type(outcome) is kind, (type(error).__mro__, outcome)
    assert outcome.code == code or not code
    if case == "429":
        assert isinstance(outcome, Unsent) and outcome.after_ms == 7_000
    assert is_transient(error) is (kind is not No), "a lookup is asked again, unless the answer was no"


# --- clients that retry by themselves ---------------------------------------------------------------------
class Flaky(Server):
    """Resets the connection of the first request, which it has read, and listens no longer."""

    def finish_request(self, request: Any, client_address: Any) -> None:
        self.shutdown()
        self.socket.close()
        request.recv(65_536)
        request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


def _urllib3_puts(url: str) -> None:
    with urllib3.PoolManager(timeout=WAIT_S, retries=urllib3.Retry(2, backoff_factor=0)) as pool:
        pool.request("PUT", url, json={})


def _requests_puts(url: str) -> None:
    with requests.Session() as session:
        session.mount("http://", requests.adapters.HTTPAdapter(max_retries=urllib3.Retry(2, backoff_factor=0)))
        session.put(url, json={}, timeout=WAIT_S)


AGAIN: dict[str, Callable[[str], None]] = {
    "urllib3": _urllib3_puts,
    "requests": _requests_puts,
    "botocore": lambda url: _botocore(url, 2),
    "openai": lambda url: _openai(url, 1),
    "anthropic": lambda url: _anthropic(url, 1),
}


@pytest.mark.parametrize("client", AGAIN)
def test_a_last_attempt_that_was_refused_is_no_proof_after_one_that_was_sent(
    client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    server = Flaky("")
    error = raised_by(AGAIN[client], f"http://127.0.0.1:{server.server_address[1]}")
    assert isinstance(judge(error), Maybe), (type(error), error)
    assert "refused" in " ".join(str(each).lower() for each in chain(error)), "the last attempt did not connect"


def chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        yield from (arg for arg in error.args if isinstance(arg, BaseException))
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize("client", ["openai", "anthropic", "botocore"])
def test_without_a_proof_that_the_earlier_attempts_failed_so_a_refused_one_is_perhaps(
    places: Places, client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """These keep no trace of their earlier attempts: max_retries=0, total_max_attempts=1 make it provable."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    assert isinstance(judge(raised_by(AGAIN[client], places.refusing)), Maybe)


def test_a_definite_answer_after_an_attempt_of_the_clients_own_is_perhaps(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt may have acted, and the second been answered «too many» or «exists»."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    for client in (_openai, _anthropic):
        assert isinstance(judge(raised_by(lambda url, ask=client: ask(url, 1), f"{places.plain}/status/429")), Maybe)


def test_an_error_that_was_raised_while_an_earlier_one_was_handled_proves_nothing(places: Places) -> None:
    """An author's own second attempt: the first was sent."""

    def twice(url: str) -> None:
        try:
            _httpx(httpx2)(f"{url}/silent")
        except httpx2.ReadTimeout:
            _httpx(httpx2)(places.refusing)

    error = raised_by(twice, places.plain)
    assert isinstance(error, httpx2.ConnectError) and isinstance(judge(error), Maybe)


# --- gRPC -------------------------------------------------------------------------------------------------
ended = threading.Event()


class Calls(grpc.GenericRpcHandler):
    """Ends each call with the code that its method names, but for three."""

    def service(self, handler_call_details: Any) -> Any:
        name = handler_call_details.method.rpartition("/")[2]

        def act(request: bytes, context: grpc.ServicerContext) -> bytes:
            if name == "Slow":
                ended.wait(5)
            elif name == "Large":
                return b"x" * 5_000_000
            elif name == "Sent":
                context.abort(grpc.StatusCode.UNAVAILABLE, "failed to connect to all addresses; last error: it is away")
            else:
                context.abort(grpc.StatusCode[name], "as asked")
            return b""

        return grpc.unary_unary_rpc_method_handler(act)


@pytest.fixture(scope="module")
def rpc() -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(4), handlers=(Calls(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    ended.set()
    server.stop(None).wait()


RPC: dict[str, tuple[type, str]] = {
    "INVALID_ARGUMENT": (No, "grpc_invalid_argument"),
    "NOT_FOUND": (No, "grpc_not_found"),
    "PERMISSION_DENIED": (No, "grpc_permission_denied"),
    "UNAUTHENTICATED": (No, "grpc_unauthenticated"),
    "FAILED_PRECONDITION": (No, "grpc_failed_precondition"),
    "RESOURCE_EXHAUSTED": (Unsent, "not_now"),
    "ALREADY_EXISTS": (Maybe, "error"),
    "ABORTED": (Maybe, "error"),
    "UNAVAILABLE": (Maybe, "error"),
    "INTERNAL": (Maybe, "error"),
    "Slow": (Maybe, "timeout"),
    "Large": (Maybe, "error"),
}


def _call(target: str, method: str) -> None:
    with grpc.insecure_channel(target) as channel:
        channel.unary_unary(f"/shop/{method}")(b"", timeout=WAIT_S if method == "Slow" else 20)


@pytest.mark.parametrize("method", RPC)
def test_a_code_of_grpc_is_judged(rpc: str, method: str) -> None:
    kind, code = RPC[method]
    outcome = judge(raised_by(lambda target: _call(target, method), rpc))
    assert (type(outcome), outcome.code) == (kind, code)


def test_grpc_unavailable_is_never_sent_only_if_no_connection_was_made(rpc: str, places: Places) -> None:
    """A server that forwards its backend's error sends the same words as a failed connection."""
    refusing = places.refusing.removeprefix("http://")
    outcomes = []
    for target in (refusing, "outlast-no-such-host.invalid:1", rpc):
        with grpc.insecure_channel(target) as channel:
            outcomes.append(
                judge(raised_by(lambda name, to=channel: to.unary_unary(name)(b"", timeout=20), "/shop/Sent"))
            )
    assert [type(each) for each in outcomes] == [Unsent, Unsent, Maybe], outcomes
    closed = raised_by(lambda target: _call(target, "Sent"), refusing)
    assert isinstance(judge(closed), Maybe), "a channel that is closed shows nothing any more"


def test_grpc_aio_is_judged_by_its_code_and_its_unavailable_is_perhaps(rpc: str, places: Places) -> None:
    async def call(target: str) -> None:
        async with grpc.aio.insecure_channel(target) as channel:
            await channel.unary_unary("/shop/NOT_FOUND")(b"", timeout=20)

    refusing = places.refusing.removeprefix("http://")
    outcomes = [judge(raised_by(lambda target: asyncio.run(call(target)), target)) for target in (rpc, refusing)]
    assert [type(each) for each in outcomes] == [No, Maybe]


# --- AWS --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("code", "status", "retries", "kind"),
    [
        ("ThrottlingException", 400, 0, Unsent),
        ("ThrottlingException", 400, 2, Maybe),
        ("ValidationException", 400, 0, No),
        ("ValidationException", 400, 1, Maybe),
        ("RequestTimeout", 400, 0, Maybe),
        ("InternalError", 500, 0, Maybe),
    ],
)
def test_a_code_of_aws_is_judged(code: str, status: int, retries: int, kind: type) -> None:
    metadata = {"HTTPStatusCode": status, "HTTPHeaders": {}, "RetryAttempts": retries}
    response: Any = {"Error": {"Code": code, "Message": ""}, "ResponseMetadata": metadata}
    outcome = judge(botocore.exceptions.ClientError(response, "DeleteItem"))
    assert type(outcome) is kind


# --- lines of authors -------------------------------------------------------------------------------------
class ShopError(Exception):
    """Of a client that Outlast does not know."""


class CardDeclined(ShopError):
    pass


class Closed(ShopError):
    pass


class NoLine(ShopError):
    pass


@pytest.fixture
def classified() -> Iterator[None]:
    classify({ShopError: Perhaps, CardDeclined: Refused, Closed: RetryLater, NoLine: NotSent})
    yield
    CLASSIFIED.clear()


@pytest.mark.usefixtures("classified")
def test_authors_classify_exceptions() -> None:
    judged = [judge(each("x")) for each in (CardDeclined, Closed, NoLine, ShopError)]
    assert judged[0] == No("CardDeclined", "CardDeclined: x")
    assert [type(each) for each in judged] == [No, Unsent, Unsent, Maybe]
    assert [is_transient(each("x")) for each in (CardDeclined, Closed, NoLine, ShopError)] == [False, True, True, True]


def test_an_unknown_exception_may_mean_anything_and_stops_a_lookup() -> None:
    assert judge(ShopError("x")) == Maybe("error", "ShopError: x") and not is_transient(ShopError("x"))


def test_a_classification_without_meaning_is_refused() -> None:
    for wrong in ({ShopError: ValueError}, {KeyboardInterrupt: Refused}):
        with pytest.raises(DefinitionError, match="each exception class"):
            classify(wrong)  # type: ignore[arg-type]
