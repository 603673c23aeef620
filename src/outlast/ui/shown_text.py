"""Text of strangers on a page: isolated from the text around it, and with control characters as code points.

A right-to-left character reorders the text beside it, also that of the page. So each text with such a character that a
template writes between tags is an element (`bdi`). In place of a control character its code point is written. The
extension does this for each `{{ … }}` between tags, so that no template can forget it.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from jinja2.ext import Extension
from markupsafe import Markup, escape
from typing_extensions import override

from outlast.core.visible import code_point
from outlast.errors import DOCS

RIGHT_TO_LEFT: Final = re.compile(
    "[\u0590-\u08ff\u200f\u202a-\u202e\u2066-\u2069\ufb1d-\ufdff\ufe70-\ufeff\U00010800-\U00010fff\U0001e800-\U0001efff]"
)
CONTROLS: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Characters that change how the text around them is shown, or show nothing. Tabs and line ends stay."""
LONG: Final = re.compile(r"\S{24}")
"""Text that may have to be broken inside of a word."""
ISOLATED: Final = "isolated"
VISIBLE: Final = "visible"


def visible(value: Any) -> Any:
    """Return a text with the code points of its control characters in their place; other values as they are."""
    if not isinstance(value, str) or isinstance(value, Markup) or not CONTROLS.search(value):
        return value
    return CONTROLS.sub(lambda found: f"[{code_point(found[0])}]", value)


def isolated(value: Any) -> Any:
    """Return a text as a page shows it between tags; markup and other values as they are."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    shown = visible(value)
    reorders = RIGHT_TO_LEFT.search(value) is not None
    if not reorders and not LONG.search(value):
        return shown
    name = "bdi" if reorders else "span"
    inner = Markup("").join(_between(value)) if reorders else shown
    return Markup(f'<{name} class="any">{{}}</{name}>').format(inner)


def _between(text: str) -> Iterator[Markup]:
    """Yield the parts of a text. A code point is isolated, because its brackets would change places otherwise."""
    at = 0
    for found in CONTROLS.finditer(text):
        yield escape(text[at : found.start()])
        yield Markup("<bdi>[{}]</bdi>").format(code_point(found[0]))
        at = found.end()
    yield escape(text[at:])


def cut_to(text: str, most: int) -> str:
    """Return the beginning of a text that takes at most so many bytes between tags, with `…` if it was cut."""
    shown = text
    while shown and len(str(escape(isolated(shown))).encode("utf-8", "backslashreplace")) > most:
        shown = shown.removesuffix("…")[:-1].rstrip()
        shown = f"{shown}…" if shown else ""
    return shown


def isolated_pieces(pieces: Iterable[tuple[str, str]]) -> Markup:
    """Return a text in pieces as HTML: each piece with a warning is marked, the warning behind it."""
    return Markup("").join([_odd(piece, warning) if warning else escape(isolated(piece)) for piece, warning in pieces])


_TAG: Final = re.compile(r"(<[^<>]*>)")
_CODE: Final = re.compile(r"\bOUT-\d{3}\b")


def with_links(shown: Markup) -> Markup:
    """Return a shown text in which each code of an error leads to its documentation. For texts outside of links."""
    parts = _TAG.split(shown)  # a tag has no such character within, because values are escaped
    return Markup("").join(Markup(each if each.startswith("<") else _CODE.sub(_linked, each)) for each in parts)


def _linked(found: re.Match[str]) -> str:
    return f'<a href="{DOCS}{found[0]}" rel="noopener noreferrer">{found[0]}</a>'


def _odd(piece: str, warning: str) -> Markup:
    named = _named(piece)
    note = warning.removeprefix(f"{named} ")  # of an invisible character, which is shown by its code point
    kind = "odd blank" if piece.isspace() else "odd"  # white space at an end misleads no reader
    odd = Markup('<mark class="{}" title="{}"><bdi>{}</bdi><span class="note"> {}</span></mark>')
    return odd.format(kind, warning, named, note)


def _named(piece: str) -> str:
    """Return a piece with a warning: an invisible character as its code point, other text with its controls named."""
    return code_point(piece) if len(piece) == 1 and not piece.isspace() and not piece.isprintable() else visible(piece)


class TemplatePart(NamedTuple):
    """Part of a template: HTML, or a statement or expression of Jinja, with its place in the HTML."""

    text: str
    inside: str
    """'' between tags, `tag` inside of one, else the name of an element whose content is no markup."""


_JINJA: Final = re.compile(r"(\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\})", re.DOTALL)
_HTML: Final = re.compile(r"<(/?)([a-zA-Z!][\w-]*)|(/?>)|([\"'])", re.DOTALL)
PLAIN: Final = frozenset({"title", "option", "svg"})
"""Elements in which text cannot have elements of HTML."""
RAW: Final = frozenset({"textarea", "script", "style"})
"""Elements whose content is data: it is sent again, or executed, as it is."""
_OPEN_VALUE: Final = re.compile(r"=\"[^\"<>]*$")


class HtmlPlace:
    """Place in the HTML of a template: inside of a tag, and of an element whose content is no markup."""

    def __init__(self) -> None:
        self.tag = ""
        self.element = ""
        self._quote = ""

    def pass_over(self, closing: str | None, name: str | None, end: str | None, mark: str | None) -> None:
        """Move over the start of a tag, its end, or a quotation mark."""
        if not self.tag:
            if name and (not self.element or (closing and name.lower() == self.element)):
                self.tag = f"{closing or ''}{name.lower()}"
        elif mark:
            self._quote = "" if self._quote == mark else self._quote or mark
        elif end and not self._quote:
            opened, self.tag = self.tag, ""
            if opened.removeprefix("/") in PLAIN | RAW:
                self.element = "" if opened.startswith("/") or end == "/>" else opened


def parts(source: str) -> Iterator[TemplatePart]:
    """Yield the parts of a template in their order."""
    place = HtmlPlace()
    for text in _JINJA.split(source):
        if text.startswith(("{{", "{%", "{#")):
            yield TemplatePart(text, "tag" if place.tag else place.element)
            continue
        for found in _HTML.finditer(text):
            place.pass_over(*found.groups())
        yield TemplatePart(text, "")


class ShownText(Extension):
    """Extension that shows each text between tags by `isolated`, and where no element may be by `visible`."""

    @override
    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        made, before = [], ""
        for text, inside in parts(source):
            shown = text
            if text.startswith("{{") and inside not in RAW | {"tag"} and not _OPEN_VALUE.search(before):
                how = VISIBLE if inside else ISOLATED
                lead, trail = ("-" if text[2] == "-" else ""), ("-" if text[-3] == "-" else "")
                shown = f"{{{{{lead} ({text[2 + len(lead) : -2 - len(trail)]}) | {how} {trail}}}}}"
            made.append(shown)
            before = text if not text.startswith(("{{", "{%", "{#")) else before
        return "".join(made)
