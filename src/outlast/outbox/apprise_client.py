"""Client of messages to approvers: mail, Slack, Teams and ntfy by apprise, the extra `notify`.

apprise is synchronous and connects by itself. Each message is sent in a daemon thread. In such a thread, `socket`
resolves no host but the one of the address, and every resolved address is checked before apprise connects to it.
Redirects and proxies of the environment are therefore not followed (S20 to S22). `requests` keeps the answers of the
thread, because apprise reports neither Retry-After nor the reason of a refusal.
"""

import asyncio
import contextlib
import logging
import re
import socket
import threading
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any, Final, NamedTuple

from typing_extensions import override

from outlast.core.addresses import AddressPolicy, NotAllowed, allowed_addresses
from outlast.core.approval_notices import NoticeText
from outlast.core.clock import Clock
from outlast.core.deliveries import Attempt
from outlast.core.durations import DELIVERY_TIMEOUT, SECOND
from outlast.core.limits import ANSWER_BYTES_MAX, ANSWER_CHARS_MAX, URL_CHARS_MAX
from outlast.errors import InvalidInput, to_install
from outlast.outbox.address import PLAIN_PORTS, PORTS
from outlast.outbox.client import judged, start_of

THREADS: Final = 4  # attempts of one subscription at once; a receiver that hangs holds no thread of another one
SOCKET_S: Final = 4.0  # to connect, and for each read
MAIL_PORTS: Final = frozenset({25, 465, 587, 2525})
EXAMPLES: Final = "e.g. mailtos://USER:PASSWORD@smtp.example.com?to=finance@example.com or slack://A/B/C"
SLACK_HOSTS: Final = {"bot": "slack.com", "gov-hook": "hooks.slack-gov.com"}  # by apprise's mode; others: webhooks
_MAIL: Final = frozenset({"to", "from", "name", "smtp", "mode", "cc", "bcc", "reply", "user", "pass"})
_SLACK: Final = frozenset({"to", "token", "mode", "footer", "blocks", "timestamp"})
_NTFY: Final = frozenset({"to", "token", "auth", "priority", "tags", "xtags", "mode"})
_TEAMS: Final = frozenset(
    {"id", "sig", "sp", "sv", "ver", "api-version", "pa", "powerautomate", "route", "routeid", "wrap"}
)
PARAMETERS: Final = {
    "mailto": _MAIL, "mailtos": _MAIL, "slack": _SLACK, "ntfy": _NTFY, "ntfys": _NTFY, "workflow": _TEAMS,
    "workflows": _TEAMS, "https": _TEAMS | {"mode"},
}  # fmt: skip
"""Parameters of addresses by scheme. Others would read local files, fetch other URLs or weaken TLS.

apprise itself adds `mode` to the URL of a workflow of Slack.
"""
NATIVE: Final = ("slack", "workflows")  # whose own https:// URLs are addresses, too


class Target(NamedTuple):
    """Checked address."""

    plugin: Any  # apprise's object
    scheme: str
    hosts: frozenset[str]  # that it connects to
    port: int

    @property
    def shown(self) -> str:
        """Return the address without its secrets."""
        return f"{self.scheme}://\u2026"


def load_apprise() -> Any:
    """Import and return apprise. Raises InvalidInput if the extra `notify` is not installed."""
    try:
        return import_module("apprise")
    except ModuleNotFoundError as error:
        if error.name != "apprise":
            raise
        raise InvalidInput(
            "messages to approvers need the extra `notify`", "apprise is not installed", to_install("notify")
        ) from None


def checked_target(address: str, reach: AddressPolicy) -> Target:
    """Return the target of an address in apprise's notation, or of a webhook's URL as Slack and Teams show it.

    Slow when it is called first, because apprise is large. Raises InvalidInput, without the address.
    """
    if len(address) > URL_CHARS_MAX or not address.isprintable() or any(map(str.isspace, address)):
        raise _refused(f"at most {URL_CHARS_MAX} printable characters, no spaces")
    given = address.partition("://")[0].lower()
    if given not in PARAMETERS:
        raise _refused(f"it must begin with one of {', '.join(f'{each}://' for each in PARAMETERS)}")
    apprise = load_apprise()
    asset = apprise.AppriseAsset(app_id="Outlast", app_desc="Outlast", http_redirects=False, storage_mode="memory")
    try:
        with _quiet():
            kind, parsed = _parsed(given, address)
            named = {name for part in ("qsd", "qsd+", "qsd-", "qsd:") for name in parsed.get(part) or {}}
            unknown = sorted(named - PARAMETERS[given])
            plugin = None if unknown else kind(**parsed, asset=asset)
    except Exception as error:  # plugins raise TypeError and errors of apprise; their texts repeat the address
        raise _refused(f"apprise refuses it ({type(error).__name__})") from None
    if plugin is None:
        raise _refused(f"these parameters are not allowed: {', '.join(each[:40] for each in unknown)}")
    return _within(plugin, str(parsed["schema"]), reach)


def _parsed(given: str, address: str) -> tuple[Any, dict[str, Any]]:
    """Return apprise's class for an address, and its arguments. Raises ValueError, and errors of apprise.

    Classes are imported one by one, because apprise's own registry imports those of 130 services.
    """
    address = address.replace("/#", "/%23")  # a channel of Slack, as apprise's registry does
    for scheme in NATIVE if given == "https" else (given,):
        kind = _plugin(scheme)
        parsed = kind.parse_native_url(address) if given == "https" else kind.parse_url(address)
        if parsed:
            return kind, parsed
    raise ValueError("no address")


def _plugin(scheme: str) -> Any:
    """Import and return apprise's class for a scheme."""
    if scheme.startswith("mailto"):
        return import_module("apprise.plugins.email.base").NotifyEmail
    if scheme.startswith("ntfy"):
        return import_module("apprise.plugins.ntfy").NotifyNtfy
    if scheme == "slack":
        return import_module("apprise.plugins.slack").NotifySlack
    return import_module("apprise.plugins.workflows").NotifyWorkflows


def _within(plugin: Any, scheme: str, reach: AddressPolicy) -> Target:
    """Return the target if its transport and port are allowed. Raises InvalidInput."""
    plain = False
    if scheme.startswith("mailto"):
        plain, hosts, port = plugin.secure_mode == "insecure", {plugin.smtp_host}, int(plugin.port)
    elif scheme == "slack":
        hosts, port = {SLACK_HOSTS.get(plugin.mode, "hooks.slack.com")}, 443
    elif scheme.startswith("ntfy"):
        private = plugin.mode == "private"
        plain = private and not plugin.secure
        hosts = {plugin.host} if private else {"ntfy.sh"}
        port = int((private and plugin.port) or (80 if plain else 443))
    else:
        hosts, port = {plugin.host}, int(plugin.port or 443)
    if plain and not reach.plain:
        raise _refused("it would be sent unencrypted (that requires the setting webhooks.allow_http)")
    if not reach.any_port and port not in PORTS | MAIL_PORTS | (PLAIN_PORTS if reach.plain else frozenset()):
        raise _refused(f"port {port} is not allowed (that requires the setting webhooks.allow_private)")
    if not all(hosts):
        raise _refused("it names no host")
    return Target(plugin, scheme, frozenset(map(_host, hosts)), port)


def _refused(why: str) -> InvalidInput:
    return InvalidInput("this is no address for messages to approvers", why, EXAMPLES)


class AppriseClient:
    """Sends messages of one subscription, at most THREADS at once."""

    def __init__(self, reach: AddressPolicy, clock: Clock, *, timeout_ms: int = DELIVERY_TIMEOUT) -> None:
        self._reach = reach
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._free = asyncio.Semaphore(THREADS)

    async def close(self) -> None:
        """Do nothing: a thread that hangs ends with its socket, and does not keep the process alive."""

    async def post(self, address: str, text: NoticeText) -> Attempt:
        """Send a message and return the result. Never raises for errors of the receiver or of apprise.

        A message that is not accepted in time may still arrive.
        """
        started = self._clock.mono()
        try:
            async with asyncio.timeout(self._timeout_ms / SECOND):
                await self._free.acquire()
                attempt = await self._in_thread(lambda: _send(address, text, self._reach, self._clock))
        except TimeoutError:
            attempt = Attempt(0, "", f"not accepted within {self._timeout_ms / SECOND:g} s", 0)
        return attempt._replace(took_ms=self._clock.mono() - started)

    async def _in_thread(self, work: Callable[[], Attempt]) -> Attempt:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Attempt] = loop.create_future()

        def finish(attempt: Attempt) -> None:
            self._free.release()
            if not ended.done():
                ended.set_result(attempt)

        def run() -> None:
            attempt = work()
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(finish, attempt)

        threading.Thread(target=run, name="outlast-notify", daemon=True).start()
        return await ended


# --- in the thread ----------------------------------------------------------------------------
class _Sending(threading.local):
    """State of a thread that sends a message; other threads have the defaults."""

    target: Target | None = None
    reach: AddressPolicy | None = None
    refusal: str = ""
    answer: Any = None  # of requests: the first one that is no 2xx, else the last one
    said: list[str] | None = None


_SENDING: Final = _Sending()
_REASON_CHARS: Final = 100  # of an answer, in the error
_MAIL_REFUSED: Final = re.compile(r"\(5\d\d, b")
_LINK: Final = re.compile(r"https?://\S+")


def _send(address: str, text: NoticeText, reach: AddressPolicy, clock: Clock) -> Attempt:
    """Send a message in this thread."""
    _guard_names()
    _keep_answers()
    _SENDING.refusal, _SENDING.answer, _SENDING.said = "", None, []
    try:
        target = checked_target(address, reach)
        plugin, lines = _prepared(target, text), list[str]()
        plugin.logger = _collecting(lines)
        _SENDING.target, _SENDING.reach = target, reach
        sent = plugin.notify(body=_written(target, text), title=text.title, body_format="text")
        if sent:
            return Attempt(0 if _SENDING.answer is None else _SENDING.answer.status_code, "", "", 0)
        return _failed([*lines, *(_SENDING.said or ())], clock)
    except InvalidInput as error:
        return Attempt(0, "", f"not sent: {error.what}: {error.why}", 0)
    except Exception as error:  # a plugin's bug or a strange answer must not end the dispatcher
        return Attempt(0, "", f"{type(error).__name__}: {error}"[:ANSWER_CHARS_MAX], 0)
    finally:
        _SENDING.target = _SENDING.reach = _SENDING.said = _SENDING.answer = None


def _prepared(target: Target, text: NoticeText) -> Any:
    plugin = target.plugin
    plugin.notify_format = load_apprise().NotifyFormat.TEXT
    plugin.include_image = False
    plugin.socket_connect_timeout = plugin.socket_read_timeout = SOCKET_S
    if target.scheme.startswith("mailto"):
        plugin.headers["X-Outlast-Notification"] = text.key
    return plugin


def _written(target: Target, text: NoticeText) -> str:
    """Return the body of a message. A card of Teams is Markdown, where a bare URL is no link.

    Every URL in a body leads to a page of Outlast, because `inert_text` breaks others.
    """
    if target.scheme not in ("workflow", "workflows"):
        return text.body
    return _LINK.sub(lambda found: f"[{found[0]}]({found[0].replace('(', '%28').replace(')', '%29')})", text.body)


def _failed(lines: list[str], clock: Clock) -> Attempt:
    if _SENDING.refusal:
        return Attempt(0, "", f"not sent: {_SENDING.refusal}", 0)
    error = "; ".join(dict.fromkeys(lines)) or "it was not accepted"
    answer = _SENDING.answer
    if answer is None:
        return Attempt(0, "", error[:ANSWER_CHARS_MAX], 0, definite=bool(_MAIL_REFUSED.search(error)))
    attempt = judged(answer.status_code, answer.headers, start_of(answer.content), clock.wall())
    reason = " ".join(attempt.answer.split())[:_REASON_CHARS]
    error = (attempt.error or error) + (f": {reason}" if reason else "")
    return attempt._replace(error=error[:ANSWER_CHARS_MAX], gone=False)


def _collecting(lines: list[str]) -> logging.Logger:
    """Return a logger that keeps the lines of a plugin about a failure."""
    logger = logging.Logger("outlast.apprise", logging.DEBUG)

    class Handler(logging.Handler):
        @override
        def emit(self, record: logging.LogRecord) -> None:
            _note(lines, record)

    logger.addHandler(Handler())
    return logger


class _KeepQuiet(logging.Filter):
    """Keeps lines of apprise about messages out of the log, because they name recipients; the attempt has them.

    The reason of a failed mail is a debug line, so all lines are made; of other threads, those that were made before.
    """

    def __init__(self, level: int) -> None:
        super().__init__()
        self._level = level

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        if _SENDING.said is None:
            return record.levelno >= self._level
        _note(_SENDING.said, record)
        return False


def _note(lines: list[str], record: logging.LogRecord) -> None:
    said = " ".join(record.getMessage().split())
    if record.levelno >= logging.WARNING or "Exception:" in said:
        lines.append(said[:ANSWER_CHARS_MAX])


@contextlib.contextmanager
def _quiet() -> Any:
    """Keep lines of apprise out of the log in this thread, while the block runs."""
    logger = logging.getLogger("apprise")
    if not any(isinstance(each, _KeepQuiet) for each in logger.filters):
        logger.addFilter(_KeepQuiet(logger.getEffectiveLevel()))
        logger.setLevel(logging.DEBUG)
    before = _SENDING.said
    _SENDING.said = [] if before is None else before
    try:
        yield
    finally:
        _SENDING.said = before


def _guard_names() -> None:
    """Make `socket` check the hosts of threads that send messages; other threads are not affected."""
    original = socket.getaddrinfo
    if getattr(original, "outlast", False):
        return

    @wraps(original)
    def checked(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        found = original(host, port, *args, **kwargs)
        if _SENDING.target is not None:
            _check(_SENDING.target, host, port, [str(each[4][0]) for each in found])
        return found

    checked.outlast = True  # type: ignore[attr-defined]
    socket.getaddrinfo = checked


def _keep_answers() -> None:
    """Make `requests` keep the answers of threads that send messages, and read no more of them than is kept."""
    requests = import_module("requests")
    session, original = requests.Session, requests.Session.send
    if getattr(original, "outlast", False):
        return

    @wraps(original)
    def send(self: Any, request: Any, **given: Any) -> Any:
        if _SENDING.target is None:
            return original(self, request, **given)
        answer = original(self, request, **{**given, "stream": True})
        with contextlib.closing(answer):
            try:
                answer._content = next(answer.iter_content(ANSWER_BYTES_MAX), b"")
            except requests.RequestException:
                answer._content = b""  # the status has arrived and decides
        if _SENDING.answer is None or 200 <= _SENDING.answer.status_code < 300:
            _SENDING.answer = answer
        return answer

    send.outlast = True  # type: ignore[attr-defined]
    session.send = send


def _check(target: Target, host: object, port: object, found: list[str]) -> None:
    """Raise OSError unless the target may be reached at these addresses."""
    assert _SENDING.reach is not None
    try:
        if _host(host) not in target.hosts or port != target.port:
            raise NotAllowed(f"{host}:{port} is not the address (redirects and proxies are not followed)")
        allowed_addresses(_host(host), found, _SENDING.reach)
    except NotAllowed as error:
        _SENDING.refusal = str(error)
        raise OSError(str(error)) from None


def _host(host: object) -> str:
    text = host.decode("ascii", "replace") if isinstance(host, bytes) else str(host)
    text = text.strip("[]").rstrip(".").lower()
    with contextlib.suppress(UnicodeError):
        return text.encode("idna").decode("ascii")
    return text
