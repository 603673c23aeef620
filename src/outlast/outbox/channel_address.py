"""Addresses of messages to approvers: mail, Slack, Teams and ntfy.

An address is read once, by one expression in which each part has one meaning. The host in it is checked, connected to
and shown. All other texts are refused, because a guess may send a message and its credentials to a stranger's server.
"""

import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from email.errors import HeaderParseError
from email.headerregistry import Address
from email.utils import parseaddr
from importlib.util import find_spec
from typing import Final, NamedTuple
from urllib.parse import quote, unquote, urlencode

from outlast.core.addresses import AddressPolicy
from outlast.core.limits import URL_CHARS_MAX
from outlast.core.rows.outbox_rows import Subscription
from outlast.errors import InvalidInput, to_install
from outlast.outbox.address import PLAIN_PORTS, PORTS

EXAMPLES: Final = "e.g. mailtos://USER:PASSWORD@smtp.example.com?to=finance@example.com or slack://A/B/C"
MAIL_PORTS: Final = {"starttls": 587, "ssl": 465, "insecure": 25}
"""Default port by the mode of a mail server."""
_MAIL_PORTS: Final = frozenset({*MAIL_PORTS.values(), 2525})
SLACK: Final = "hooks.slack.com"

_HOST: Final = r"[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63}){0,20}|\[[0-9a-f:.]{2,45}\]"
_ADDRESS: Final = re.compile(
    rf"(?i)(?P<scheme>[a-z]+)://(?:(?P<login>[^@/?#\\]*)@)?(?P<host>{_HOST})(?::(?P<port>[0-9]{{1,5}}))?"
    r"(?P<path>/[^?#\\]*)?(?:\?(?P<query>[^#]*))?"
)
_HOSTNAME: Final = re.compile(rf"(?i){_HOST}")
_MAILBOX: Final = re.compile(rf"(?i)[a-z0-9!#$%&'*+/=?^_`{{|}}~.-]{{1,64}}@(?:{_HOST})")
_TOPIC: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_WORD: Final = re.compile(r"[A-Za-z0-9]{1,100}")
_SLACK_PATH: Final = re.compile(r"/(?:services(?:/[A-Za-z0-9]+){3}|(?:workflows|triggers)/[A-Za-z0-9][\w/-]{1,300}?)/?")
_TEAMS_PATH: Final = re.compile(
    r"/(?:(?P<automate>powerautomate/automations/direct)(?:/cu/[0-9]+)?/)?workflows/[\w-]+/triggers/manual/paths/invoke/?"
)
_PROVIDERS: Final = re.compile(
    r"(?i)(?:gmail|googlemail|yandex|hotmail|live|outlook|office365|yahoo|gmx|fastmail|zoho(?:mail)?|163|foxmail|qq|"
    r"comcast)\.[a-z]{2,3}(?:\.[a-z]{2})?"
)
"""Mail domains that are no SMTP servers, although an address of an earlier version could name them."""

_MAIL: Final = frozenset({"to", "from", "name", "smtp", "mode", "cc", "bcc", "reply", "user", "pass"})
_NTFY: Final = frozenset({"to", "token", "auth", "priority", "tags", "xtags"})
_TEAMS: Final = frozenset({"id", "sig", "sp", "sv", "ver", "api-version", "pa", "powerautomate", "route", "routeid"})
PARAMETERS: Final[Mapping[str, frozenset[str]]] = {
    "mailto": _MAIL, "mailtos": _MAIL, "slack": frozenset(), "ntfy": _NTFY, "ntfys": _NTFY, "workflow": _TEAMS,
    "workflows": _TEAMS, "https": frozenset({"api-version", "sp", "sv", "sig"}),
}  # fmt: skip
"""Parameters of addresses by scheme."""
PRIORITIES: Final = {"min": 1, "low": 2, "default": 3, "high": 4, "max": 5} | {str(n): n for n in range(1, 6)}


class Mail(NamedTuple):
    """Login, sender and recipients of mail."""

    mode: str  # starttls, ssl or insecure
    user: str
    password: str
    sender: tuple[str, str]  # name and address
    to: tuple[str, ...]
    cc: tuple[str, ...]
    bcc: tuple[str, ...]
    reply: tuple[str, ...]


class Channel(NamedTuple):
    """Checked address: where messages go, and what they need there."""

    service: str  # mail, slack, teams or ntfy
    host: str  # as typed, in lower case
    port: int
    shown: str
    """The address without its secrets: scheme, host and port."""
    plain: bool = False  # unencrypted
    url: str = ""  # of an HTTP request
    headers: tuple[tuple[str, str], ...] = ()
    topics: tuple[str, ...] = ()  # of ntfy; each is one request
    options: tuple[tuple[str, object], ...] = ()  # of ntfy: further fields of each message
    mail: Mail | None = None


class _Parts(NamedTuple):
    """Parts of an address, decoded."""

    scheme: str
    login: str | None  # not decoded
    host: str  # as typed
    port: int | None
    path: str  # not decoded
    words: tuple[str, ...]  # of the path
    query: str  # not decoded
    given: dict[str, str]  # parameters

    @property
    def place(self) -> str:
        """Return the host, and the port if it was typed."""
        return _place(self.host, self.port)

    def several(self, *names: str) -> tuple[str, ...]:
        """Return the values of parameters with several values."""
        return tuple(each for name in names for each in re.split(r"[\s,;]+", self.given.get(name, "")) if each)


def checked_channel(address: str, reach: AddressPolicy) -> Channel:
    """Return the channel of an address. Raises InvalidInput, without the address."""
    parts = _parts(address)
    channel = _READERS[parts.scheme](parts)
    if channel.plain and not reach.plain:
        raise _refused("it would be sent unencrypted (that requires the setting webhooks.allow_http)")
    ports = _MAIL_PORTS if channel.mail else PORTS | (PLAIN_PORTS if reach.plain else frozenset())
    if not reach.any_port and channel.port not in ports:
        raise _refused(f"port {channel.port} is not allowed (that requires the setting webhooks.allow_private)")
    if channel.mail and find_spec("aiosmtplib") is None:
        raise InvalidInput(
            "mail to approvers needs the extra `notify`", "aiosmtplib is not installed", to_install("notify")
        )
    return channel


def refusal_of(row: Subscription, reach: AddressPolicy) -> str:
    """Return why nothing can be sent to a stored address; '' if it is accepted."""
    try:
        checked_channel(row.secret.key, reach)
    except InvalidInput as error:
        return error.why
    return ""


def _parts(address: str) -> _Parts:
    if len(address) > URL_CHARS_MAX or not address.isascii() or not address.isprintable() or " " in address:
        raise _refused(f"at most {URL_CHARS_MAX} printable ASCII characters, no spaces; others are written as %C3%A9")
    scheme = address.partition("://")[0].lower()
    if "://" not in address or scheme not in PARAMETERS:
        raise _refused(f"it must begin with one of {', '.join(f'{each}://' for each in PARAMETERS)}")
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise _refused(
            "after the scheme comes USER:PASSWORD@ if it is needed, then HOST or HOST:PORT, then a path that begins "
            "with a slash; signs such as @ and / in a user or password are written %40 and %2F"
        )
    given: dict[str, str] = {}
    for each in filter(None, (found["query"] or "").split("&")):
        name, _, value = each.partition("=")
        if name.lower() not in PARAMETERS[scheme]:
            raise _refused(f"this parameter is not allowed: {unquote(name)[:40]!r}")
        if name.lower() in given:
            raise _refused(f"the parameter {name.lower()} is given twice")
        given[name.lower()] = unquote(value)
    path = found["path"] or ""
    words = tuple(unquote(each) for each in path.split("/") if each)
    port = None if found["port"] is None else int(found["port"])
    if port is not None and not 0 < port < 65_536:
        raise _refused("a port is a number from 1 to 65535")
    decoded = (unquote(found["login"] or ""), *words, *given.values())
    if not all(text.isprintable() for text in decoded):
        raise _refused("a part of it contains control or invisible characters (%0D, %0A)")
    return _Parts(scheme, found["login"], found["host"], port, path, words, found["query"] or "", given)


def _refused(why: str) -> InvalidInput:
    return InvalidInput("this is no address for messages to approvers", why, EXAMPLES)


def _place(host: str, port: int | None) -> str:
    return host.lower() if port is None else f"{host.lower()}:{port}"


def _bare(host: str) -> str:
    """Return a host without the brackets of an IPv6 address."""
    return host.lower().strip("[]")


def _login(parts: _Parts) -> tuple[str, str]:
    """Return the user and password of an address, decoded."""
    user, _, password = (parts.login or "").partition(":")
    return unquote(user), unquote(password)


# --- services ---------------------------------------------------------------------------------
def _mail(parts: _Parts) -> Channel:
    given = parts.given
    user, password = _login(parts)
    user, password = given.get("user", user), given.get("pass", password)
    mode = given.get("mode", "insecure" if parts.scheme == "mailto" else "starttls").lower()
    host = given.get("smtp", parts.host)
    if mode not in MAIL_PORTS:
        raise _refused(f"mode is one of {', '.join(MAIL_PORTS)}")
    if not _HOSTNAME.fullmatch(host):
        raise _refused("the parameter smtp names no host")
    if _PROVIDERS.fullmatch(host):
        raise _refused(f"{host} is the domain of mailboxes; name its SMTP server, e.g. smtp.gmail.com")
    written = given.get("from") or (user if "@" in user else user and f"{user}@{parts.host}")
    if not written:
        raise _refused("it names no sender: from=outlast@example.com")
    name, sender = parseaddr(written)
    to = (*parts.words, *parts.several("to")) or (sender,)
    cc, bcc, reply = parts.several("cc"), parts.several("bcc"), parts.several("reply")
    if not all(map(_is_mailbox, (sender, *to, *cc, *bcc, *reply))):
        raise _refused("one of its mail addresses is not valid: from, to, cc, bcc and reply are like ana@example.com")
    login = Mail(mode, user, password, (given.get("name", name or "Outlast"), sender), to, cc, bcc, reply)
    port = MAIL_PORTS[mode] if parts.port is None else parts.port
    shown = f"{parts.scheme}://{_place(host, parts.port)}/…"
    return Channel("mail", _bare(host), port, shown, mode == "insecure", mail=login)


def _is_mailbox(text: str) -> bool:
    """Return True if a text is a mail address that the header of a mail can contain."""
    try:
        return bool(_MAILBOX.fullmatch(text)) and Address(addr_spec=text).addr_spec == text
    except (HeaderParseError, ValueError):
        return False


def _ntfy(parts: _Parts) -> Channel:
    given = parts.given
    user, password = _login(parts)
    token, way = given.get("token", ""), given.get("auth", "").lower()
    if way not in ("", "basic", "token"):
        raise _refused("auth is basic or token")
    if not token and way != "basic" and (way == "token" or (user.startswith("tk_") and not password)):
        token = password or user
    if way == "token" and not token:
        raise _refused("it names no token")
    topics = (*parts.words, *parts.several("to"))
    if not topics or not all(_TOPIC.fullmatch(each) for each in topics):
        raise _refused("a topic of letters, digits, - and _ follows the host: ntfys://ntfy.example.com/TOPIC")
    headers: tuple[tuple[str, str], ...] = ()
    if token:
        headers = (("authorization", f"Bearer {_header(token)}"),)
    elif user or password:
        headers = (("authorization", f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"),)
    options: list[tuple[str, object]] = []
    if tags := parts.several("tags", "xtags"):
        options.append(("tags", list(tags)))
    if "priority" in given:
        if given["priority"].lower() not in PRIORITIES:
            raise _refused(f"priority is one of {', '.join(PRIORITIES)}")
        options.append(("priority", PRIORITIES[given["priority"].lower()]))
    plain = parts.scheme == "ntfy"
    port = parts.port or (80 if plain else 443)
    url = f"{'http' if plain else 'https'}://{parts.place}/"
    shown = f"{parts.scheme}://{parts.place}/…"
    return Channel("ntfy", _bare(parts.host), port, shown, plain, url, headers, topics, tuple(options))


def _header(value: str) -> str:
    if not re.fullmatch(r"[!-~]+", value):
        raise _refused("a token has ASCII characters only")
    return value


def _slack(parts: _Parts) -> Channel:
    """Return the channel of `slack://A/B/C`, whose parts are the path of an incoming webhook of SLACK."""
    if parts.login is not None or parts.port is not None or len(parts.words) != 2:
        raise _refused("an address of Slack is slack://A/B/C, from https://hooks.slack.com/services/A/B/C")
    tokens = (parts.host, *parts.words)
    if not all(_WORD.fullmatch(each) for each in tokens):
        raise _refused("the three parts of slack://A/B/C are letters and digits")
    url = f"https://{SLACK}/services/{'/'.join(tokens)}"
    return Channel("slack", SLACK, 443, f"https://{SLACK}/…", url=url)


def _https(parts: _Parts) -> Channel:
    """Return the channel of a webhook's URL as Slack and Teams show it."""
    if parts.login is not None:
        raise _refused("an https:// address has no user and no password")
    if parts.host.lower() in (SLACK, "hooks.slack-gov.com") and _SLACK_PATH.fullmatch(parts.path) and not parts.query:
        return _posted("slack", parts, parts.path)
    if found := _TEAMS_PATH.fullmatch(parts.path):
        return _teams_url(parts, parts.path, bool(found["automate"]), parts.given)
    raise _refused("an https:// address is the URL of a webhook of Slack or of a workflow of Teams")


def _teams(parts: _Parts) -> Channel:
    """Return the channel of `workflows://HOST/ID/SIGNATURE`."""
    given = parts.given
    words = list(parts.words)
    flow = given.get("id") or (words.pop(0) if words else "")
    signature = given.get("sig") or (words.pop(0) if words else "")
    automate = given.get("pa", given.get("powerautomate", "no")).lower() in ("yes", "true", "1", "on")
    route = given.get("route", given.get("routeid", ""))
    before = "/powerautomate/automations/direct" if automate else ""
    path = f"{before}{f'/cu/{route}' if before and route else ''}/workflows/{flow}/triggers/manual/paths/invoke"
    if words or parts.login is not None or not _TEAMS_PATH.fullmatch(path):
        raise _refused("an address of Teams is workflows://HOST/ID/SIGNATURE, or the URL of a workflow")
    version = given.get("api-version", given.get("ver", ""))
    known = {"sig": signature, "api-version": version, "sp": given.get("sp", ""), "sv": given.get("sv", "")}
    return _teams_url(parts, path, automate, {name: value for name, value in known.items() if value})


def _teams_url(parts: _Parts, path: str, automate: bool, given: Mapping[str, str]) -> Channel:
    if not re.fullmatch(r"[\w-]+", given.get("sig", "")):
        raise _refused("the URL of a workflow of Teams contains its signature: sig=…")
    fixed = {
        "api-version": "2022-03-01-preview" if automate else "2016-06-01",
        "sp": "/triggers/manual/run",
        "sv": "1.0",
    }
    return _posted("teams", parts, f"{path}?{urlencode({**fixed, **given}, quote_via=quote, safe='')}")


def _posted(service: str, parts: _Parts, rest: str) -> Channel:
    url = f"https://{parts.place}{rest}"
    return Channel(service, _bare(parts.host), parts.port or 443, f"{parts.scheme}://{parts.place}/…", url=url)


_READERS: Final[Mapping[str, Callable[[_Parts], Channel]]] = {
    "mailto": _mail, "mailtos": _mail, "ntfy": _ntfy, "ntfys": _ntfy, "slack": _slack, "workflow": _teams,
    "workflows": _teams, "https": _https,
}  # fmt: skip
assert _READERS.keys() == PARAMETERS.keys()
