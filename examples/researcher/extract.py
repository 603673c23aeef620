"""Page of the site → typed values. Pages are hostile: only what fits the models leaves this module."""

import json
from html.parser import HTMLParser

from pydantic import ValidationError
from typing_extensions import override

from .records import HeatPump, Page, Topic
from .robots import address

ENTRIES_MAX = 200
COUNT_MAX = 1_000_000
TOPICS_MAX = 40
TEXT_CHARS_MAX = 300
PROSE_CHARS_MAX = 4_000
"""Longest text of a page without data, which only a model can read."""
DATA = "application/ld+json"
SCHEMA = "HeatPump"


class NotARecord(Exception):
    """The page says that it has a record, and its data do not fit."""


def extract(site: str, path: str, text: str) -> Page:
    """Return what a page holds. Raises NotARecord."""
    reader = _Reader()
    reader.feed(text)
    canonical = address(site, path, reader.canonical) if reader.canonical else path
    if canonical is not None and canonical != path:
        return Page(moved_to=canonical)  # its record is taken from that page, because this one could lie about it
    entries = [found for link in reader.entries if (found := address(site, path, link))]
    more = address(site, path, reader.more) if reader.more else None
    topics = [
        Topic(path=found, title=_plain(title), about=_plain(about))
        for link, title, about in reader.topics
        if (found := address(site, path, link))
    ]
    titles = {
        found: title
        for link, text in zip(reader.entries, reader.titles, strict=False)
        if (found := address(site, path, link)) and (title := _plain(text))
    }
    return Page(
        record=_record(reader.data),
        topics=topics[:TOPICS_MAX],
        count=reader.count,
        entries=list(dict.fromkeys(entries))[:ENTRIES_MAX],
        more=more or "",
        titles=titles,
        text="" if reader.data else _plain(" ".join(reader.prose), PROSE_CHARS_MAX),
    )


def _record(data: str) -> HeatPump | None:
    if not data:
        return None
    try:
        found = json.loads(data)
        if not isinstance(found, dict) or found.pop("@type", "") != SCHEMA:
            return None
        return HeatPump.model_validate(found)
    except (ValueError, RecursionError) as wrong:
        where = wrong.errors()[0]["loc"] if isinstance(wrong, ValidationError) else ()
        raise NotARecord(f"{'.'.join(map(str, where)) or type(wrong).__name__}") from None


def _plain(text: str, chars_max: int = TEXT_CHARS_MAX) -> str:
    """Return a text on one line, without control characters and of limited length."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:chars_max]


class _Reader(HTMLParser):
    """Parser of the few elements that the researcher knows. It keeps no tree, so depth costs nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.canonical = self.more = self.data = ""
        self.entries: list[str] = []
        self.titles: list[str] = []
        self.prose: list[str] = []
        self.topics: list[tuple[str, str, str]] = []
        self.count = 0
        self._in_data = False
        self._text: list[str] | None = None
        self._in_entry = self._in_prose = False
        self._prose_chars = 0
        self._topic = ("", "")

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        marks = given.get("class", "").split()
        if tag == "link" and given.get("rel") == "canonical":
            self.canonical = self.canonical or given.get("href", "")
        elif tag == "script":
            self._in_data = given.get("type") == DATA and not self.data
        elif tag == "ol" and given.get("data-count", "").isdecimal():
            self.count = min(int(given["data-count"][:9]), COUNT_MAX)
        elif tag == "a" and "entry" in marks and len(self.entries) < ENTRIES_MAX:
            self.entries.append(given.get("href", ""))
            self.titles.append("")
            self._in_entry = True
        elif tag == "a" and "more" in marks:
            self.more = given.get("href", "")
        elif tag == "a" and "topic" in marks and len(self.topics) < TOPICS_MAX:
            self._topic = (given.get("href", ""), given.get("title", ""))
            self._text = []
        elif tag == "p":
            self._in_prose = True

    @override
    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self._in_data = False
        elif tag == "p":
            self._in_prose = False
        elif tag == "a" and self._in_entry:
            self._in_entry = False
        elif tag == "a" and self._text is not None:
            self.topics.append((*self._topic, "".join(self._text)))
            self._text = None

    @override
    def handle_data(self, data: str) -> None:
        if self._in_data:
            self.data += data
        elif self._text is not None:
            self._text.append(data)
        elif self._in_entry:
            self.titles[-1] += data
        elif self._in_prose and self._prose_chars < PROSE_CHARS_MAX:
            self._prose_chars += len(data)
            self.prose.append(data)
