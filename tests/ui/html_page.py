"""Forms of an HTML page as a browser without scripts submits them."""

from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import urlencode

from typing_extensions import override

READ_MS = 5_000
"""Time for which a person reads a page before its form is sent."""


@dataclass
class HtmlForm:
    """Form of a page: its address, the values of its controls, and its buttons."""

    id: str
    action: str
    method: str
    fields: list[tuple[str, str]] = field(default_factory=list)
    buttons: list[tuple[str, str]] = field(default_factory=list)

    def set(self, **values: str) -> "HtmlForm":
        """Replace the values of controls by name."""
        return self.put(values)

    def put(self, values: dict[str, str]) -> "HtmlForm":
        """Replace the values of controls by name."""
        kept = [(name, value) for name, value in self.fields if name not in values]
        return HtmlForm(self.id, self.action, self.method, [*kept, *values.items()], self.buttons)

    def body(self, button: tuple[str, str] | None = None) -> str:
        """Return the body that a browser sends if this button is pressed. The page must have the button."""
        assert button is None or button in self.buttons, f"{button} is not among {self.buttons}"
        return urlencode([*self.fields, *([button] if button else [])])


class HtmlPage(HTMLParser):
    """Parsed page: its forms, ids and text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.forms: list[HtmlForm] = []
        self.ids: list[str] = []
        self.elements = 0
        self.links: list[dict[str, str]] = []
        self._words: list[str] = []
        self._area: tuple[str, list[str]] | None = None
        self._select = ""
        self._chosen: str | None = None
        self.source = text
        self.feed(text)
        self.close()

    @property
    def text(self) -> str:
        """Return the text of the page, its white space folded."""
        return " ".join(" ".join(self._words).split())

    def form(self, id_: str) -> HtmlForm:
        """Return the form with this id."""
        return next(each for each in self.forms if each.id == id_)

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.elements += 1
        if "id" in given:
            self.ids.append(given["id"])
        if tag == "form":
            self.forms.append(HtmlForm(given.get("id", ""), given.get("action", ""), given.get("method", "get")))
        if tag == "a":
            self.links.append(given)
        if not self.forms:
            return
        form, name = self.forms[-1], given.get("name", "")
        if "form" in given:
            form = self.form(given["form"])
        if tag == "input" and name:
            ticked = given.get("type") not in ("radio", "checkbox") or "checked" in given
            value = given.get("value", "on" if given.get("type") == "checkbox" else "")
            if name == "shown_at":  # a person has read the page, who does not decide at once
                value = str(int(value) - READ_MS)
            if ticked:
                form.fields.append((name, value))
        elif tag == "button" and name:
            form.buttons.append((name, given.get("value", "")))
        elif tag == "textarea":
            self._area = (name, [])
        elif tag == "select":
            self._select, self._chosen = name, None
        elif tag == "option" and (self._chosen is None or "selected" in given):
            self._chosen = given.get("value", "")

    @override
    def handle_data(self, data: str) -> None:
        if self._area is not None:
            self._area[1].append(data)
        self._words.append(data)

    @override
    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea" and self._area is not None:
            name, parts = self._area
            text = "".join(parts).removeprefix("\n")  # a parser of HTML drops the first line break
            self.forms[-1].fields.append((name, text.replace("\n", "\r\n")))
            self._area = None
        elif tag == "select" and self._select:
            self.forms[-1].fields.append((self._select, self._chosen or ""))
            self._select = ""
