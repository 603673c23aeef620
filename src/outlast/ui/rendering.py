"""Rendering of pages: templates, regions that refresh themselves, and the headers of every page."""

import gzip
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import cache
from importlib.resources import files
from shlex import quote
from typing import Any, Final
from urllib.parse import unquote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from outlast.clocks import new_nonce
from outlast.core.approver_rule import identity
from outlast.core.durations import SECOND, measured_span, span
from outlast.core.events import FAR_FROM, FAR_TEXT, iso
from outlast.errors import NotFound
from outlast.insight.confusables import marked
from outlast.insight.labels import call_of, count_of, counted, map_text
from outlast.models import exact_instant, milliseconds
from outlast.models.service import StatusSummary
from outlast.runtime.operations import Operations
from outlast.service.identity import Anonymous, Principal, is_permitted
from outlast.service.service_state import ServiceState, root_of
from outlast.ui import sessions
from outlast.ui.run_words import arguments, map_parts, short
from outlast.ui.shown_text import CONTROLS, ISOLATED, VISIBLE, ShownText, isolated, isolated_pieces, visible, with_links

POLICY: Final = (
    "default-src 'none'; script-src 'nonce-{nonce}' 'strict-dynamic'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types htmx"
)
PLACEHOLDER: Final = "…"
THEME_COOKIE: Final = "outlast-theme"
THEMES: Final = ("system", "light", "dark")
ID_CHARS: Final = 25
"""Most characters of an id in a list."""
PLAIN_ID: Final = re.compile(r"[A-Za-z0-9_.:/-]*")
TAG: Final = re.compile(r'(?:W/)?"([0-9a-f]{20})\.([A-Za-z0-9_-]{22})\.(\d{1,15})"')
REPEATED_MS: Final = 2_000
"""Age up to which a stored region of a live page is repeated.

Elapsed times change without a new version of a row. After a 304, the browser would show those of the last visit on a
page that was opened minutes later.
"""


MEDIA_TYPES: Final = {
    "js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8", "svg": "image/svg+xml",
}  # fmt: skip
ALL_SCRIPTS: Final = "all.js"
SCRIPTS: Final = ("htmx.min.js", "hx-csp.min.js", "hx-sse.min.js", "outlast.js")
"""Scripts of every page, in their order. They are served as one file, to save requests."""


@cache
def asset(name: str) -> tuple[bytes, str, str]:
    """Return a file of `static` with its media type, and its digest, by which pages name it. Raises NotFound.

    ALL_SCRIPTS names all scripts together.
    """
    names = SCRIPTS if name == ALL_SCRIPTS else (name,)
    here = {each.name: each for each in files("outlast.ui").joinpath("static").iterdir()}
    media_type = MEDIA_TYPES.get(name.rpartition(".")[2])
    if media_type is None or any(each not in here for each in names):
        raise NotFound(f"no file {name[:100]}", "", "reload the page", refusal="no_such_path")
    data = b"\n".join(here[each].read_bytes() for each in names)
    return data, media_type, hashlib.sha256(data).hexdigest()[:12]


@cache
def packed(name: str) -> bytes:
    """Return a file of `static` as gzip compresses it."""
    return gzip.compress(asset(name)[0], mtime=0)


@cache
def environment() -> Environment:
    """Return the templates of the package. Every value is escaped, and an unknown name is an error."""
    made = Environment(
        loader=PackageLoader("outlast.ui"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[ShownText],
    )
    made.filters.update({ISOLATED: isolated, VISIBLE: visible})
    made.filters.update(
        span=lambda ms: span(max(0, int(ms))),
        took=measured_span,
        instant=_instant,
        counted=counted,
        grouped="{:,}".format,
        as_id=_as_id,
        key_text=unquote,
        middle=middle,
        pieces=isolated_pieces,
        marked=lambda text: isolated_pieces(marked(text)),
        with_links=with_links,
        arguments=arguments,
        short=short,
        call_of=call_of,
        map_parts=map_parts,
        map_text=map_text,
        count_of=count_of,
        command_line=command_line,
        as_json=lambda value: isolated_pieces(marked(json.dumps(value, ensure_ascii=False))),
    )
    return made


def command_line(words: Iterable[object]) -> str:
    """Return a command of these words, each quoted for a shell. The placeholder `…` alone needs no quotes."""
    return " ".join(_quoted(str(word)) for word in words)


def _quoted(word: str) -> str:
    if CONTROLS.search(word):  # a page shows their code points, which a shell must read as the characters
        escaped = word.replace("\\", "\\\\").replace("'", "\\'")
        return "$'" + CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", escaped) + "'"
    plain = word.replace(PLACEHOLDER, "x")
    return word if quote(plain) == plain else quote(word)


def _as_id(key: str) -> str:
    """Return a key as a part of an id, which `aria-describedby` can name: a digest unless it is plain."""
    return key if PLAIN_ID.fullmatch(key) else stamp(key)


def middle(name: str) -> str:
    """Return an id of at most ID_CHARS characters: a longer one without its middle."""
    half = (ID_CHARS - 1) // 2
    return name if len(name) <= ID_CHARS else f"{name[:half]}{PLACEHOLDER}{name[-half:]}"


def stamp(*parts: object) -> str:
    """Return the version of a region: a digest of the versions of the rows that it shows."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:20]


async def render(
    request: Request,
    template: str,
    *,
    title: str,
    live: str = "",
    versions: Mapping[str, str] | None = None,
    status_code: int = 200,
    **values: Any,
) -> Response:
    """Return a page, or the one region of it that `?region=NAME` asks for.

    `live` names what the page listens to: `run:ID`, `approvals`, `attention` or `runs`. A region is the block
    `region_NAME` of the template; `versions` has its `stamp`, and an unchanged region is answered 304, of a live page
    for REPEATED_MS only.
    """
    state: ServiceState = request.app.state.service
    nonce = new_nonce()
    region = request.query_params.get("region", "") if status_code == 200 else ""
    headers = {"Cache-Control": "no-store", "Referrer-Policy": "same-origin"}
    moment = (await state.store.now()) if status_code < 500 else None
    if moment is not None and region and versions and region in versions:
        version = stamp(versions[region], sessions.binding_of(request))
        stored = _stored(request, version, moment.real, live)
        nonce, made = stored or (nonce, moment.real)
        headers |= {"ETag": f'"{version}.{nonce}.{made}"', "Cache-Control": "private, no-cache", "Vary": "Cookie"}
        headers["Content-Security-Policy"] = POLICY.format(nonce=nonce)
        if stored is not None:
            return Response(status_code=304, headers=headers)
    now = exact_instant(moment.business) if moment is not None else None
    principal = getattr(request.state, "principal", None)
    done = "" if region or status_code >= 400 else values.pop("feedback", "") or sessions.done_before(request)
    context = {
        "title": title,
        "feedback": done,
        "live": live,
        "nonce": nonce,
        "currency": state.currency,
        "theme": theme_of(request),
        "themes": THEMES,
        "root": root_of(request),
        "here": _here(request),
        "now": now,
        "shown_at": moment.real if moment is not None else 0,
        "principal": principal,
        "me": identity(principal.name) if principal is not None else "",
        "local": isinstance(state.authenticator, Anonymous),
        "form_token": sessions.form_token(request),
        "when": lambda at: _when(at, now),
        "brief": lambda at: _when(at, now, is_brief=True),
        "clock": lambda ms: clock_time(exact_instant(ms)),
        "clock_of": clock_time,
        "asset": lambda name: f"{root_of(request)}/ui/static/{asset(name)[2]}/{name}",
        "here_with": lambda **query: _address(request, query),
        "counts": None if region or "counts" in values or status_code >= 500 else await _counts(request, principal),
        "may": lambda operation: principal is not None and is_permitted(principal, operation),
        **values,
    }
    found = environment().get_template(template)
    block = found.blocks.get(f"region_{region}") if region else None
    text = "".join(block(found.new_context(context))) if block is not None else found.render(context)
    headers["Content-Security-Policy"] = POLICY.format(nonce=nonce)
    # Half of a surrogate pair, which JSON can spell, has no UTF-8: it is shown as its escape.
    data = text.encode("utf-8", "backslashreplace")
    answer = Response(data, status_code, headers, "text/html; charset=utf-8")
    if done:
        sessions.forget_done(request, answer)
    return answer


def _stored(request: Request, version: str, now: int, live: str) -> tuple[str, int] | None:
    """Return nonce and instant of the region that the browser has stored; None if it must not be repeated.

    Its ETag has the nonce, because a 304 repeats the policy, with the nonce that the stored region carries. `version`
    has the session, because the next person at this browser must not see stored forms of another.
    """
    known = TAG.fullmatch(request.headers.get("if-none-match", ""))
    if known is None or known[1] != version or (live and not 0 <= now - int(known[3]) < REPEATED_MS):
        return None
    return known[2], int(known[3])


def document(value: Mapping[str, Any] | Any) -> Response:
    """Return a value as JSON that a browser shows and never executes."""
    headers = {
        "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
    }  # fmt: skip
    text = json.dumps(value, ensure_ascii=False, indent=1)
    text = CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}" if found[0] > "\x1f" else found[0], text)
    return Response(text, 200, headers, "application/json")


async def _counts(request: Request, principal: Principal | None) -> StatusSummary | None:
    """Return the counts of the header, or None for a caller who may not see them."""
    if principal is None or not is_permitted(principal, "get_summary"):
        return None
    ops: Operations = request.state.operations
    return await ops.summary()


def theme_of(request: Request) -> str:
    """Return the theme that the person chose in this browser, else that of the system."""
    chosen = request.cookies.get(THEME_COOKIE, "")
    return chosen if chosen in THEMES else THEMES[0]


def _here(request: Request) -> str:
    """Return the address of this page with its filters, without `region`."""
    query = "&".join(p for p in request.url.query.split("&") if p and not p.startswith("region="))
    return request.url.path + (f"?{query}" if query else "")


def _address(request: Request, query: Mapping[str, str]) -> str:
    """Return the address of this page with other filters; '' removes one."""
    merged = {**dict(request.query_params), **query}
    kept = {name: value for name, value in merged.items() if value and name != "region"}
    return request.url.path + (f"?{urlencode(kept)}" if kept else "")


def _instant(at: datetime | None) -> str:
    return iso(milliseconds(at)) if at is not None else ""


def _when(at: datetime | None, now: datetime | None, *, is_brief: bool = False) -> Markup:
    """Return an instant as `<time>`: relative words, and the instant itself in the attribute.

    `is_brief`: for rows of a long list, to the second and without a title, which the script adds.
    """
    if at is None:
        return Markup("")
    if is_brief and milliseconds(at) < FAR_FROM:
        return Markup('<time datetime="{0}">{1}</time>').format(f"{at:%Y-%m-%dT%H:%M:%SZ}", relative(at, now))
    fixed = Markup(" data-fixed") if milliseconds(at) >= FAR_FROM else ""
    text = relative(at, now)
    return Markup('<time datetime="{0}" title="{0}"{1}>{2}</time>').format(iso(milliseconds(at)), fixed, text)


def clock_time(at: datetime) -> Markup:
    """Return an instant as a wall clock in UTC, which the script shows in the zone of the viewer."""
    text = f"{at:%d %b %H:%M:%S} UTC"
    return Markup('<time datetime="{0}" title="{0}" data-fixed data-clock>{1}</time>').format(
        iso(milliseconds(at)), text
    )


def relative(at: datetime, now: datetime | None) -> str:
    """Return an instant relative to now: `3m20s ago`, `in 4d6h`, `just now`."""
    if milliseconds(at) >= FAR_FROM:
        return FAR_TEXT
    if now is None:
        return iso(milliseconds(at))
    ms = (now - at) // timedelta(milliseconds=1)
    if abs(ms) < SECOND:
        return "just now"
    return f"{span(ms)} ago" if ms >= 0 else f"in {span(-ms)}"
