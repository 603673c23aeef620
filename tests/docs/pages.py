"""Read the pages of the documentation: fenced blocks, links and anchors.

`python -m tests.docs.pages` updates the blocks that are titled as a file of the checkout, and the lists of features.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """Fenced block: page, first line, language, rest of the info string, text."""

    page: Path
    line: int
    language: str
    rest: str
    body: str

    @property
    def title(self) -> str:
        """Return the file name that the block declares, or an empty string."""
        return self.rest.removeprefix("title=") if self.rest.startswith("title=") else ""

    @property
    def copied(self) -> Path | None:
        """Return the file of the checkout that the block shows whole, or None."""
        return ROOT / self.title if "/" in self.title else None

    @property
    def foreign(self) -> bool:
        """True if the block is a program for another engine, which is not run here."""
        return self.rest == "peer"

    @property
    def where(self) -> str:
        """Return `page:line` for messages."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """Return every page of the documentation."""
    own = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CHANGELOG.md")]
    return [*own, *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a page in order."""
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        language, _, rest = found["info"].strip().partition(" ")
        yield Block(page, text.count("\n", 0, found.start()) + 1, language, rest.strip(), found["body"])


def prose(page: Path) -> str:
    """Return the text of a page without its fenced blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page: explicit ones, and those that GitHub derives from headings."""
    text = prose(page)
    named = set(re.findall(r'<a id="([^"]+)">', text))
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.replace("`", ""))
        named.add(re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-"))
    return named


def program(page: Path) -> str:
    """Join the untitled Python blocks of a page; each keeps its line number."""
    lines: list[str] = []
    for block in blocks(page):
        if block.language == "python" and not block.title and not block.foreign:
            lines += [""] * (block.line - len(lines))
            lines += block.body.splitlines()
    return "\n".join(lines) + "\n" if lines else ""


def programs() -> dict[str, str]:
    """Return every program by file name: small examples, titled blocks, and the rest of each page."""
    found = {file.name: file.read_text(encoding="utf-8") for file in sorted((ROOT / "examples").glob("*.py"))}
    for page in pages():
        if text := program(page):
            name = "_".join(page.relative_to(ROOT).with_suffix("").parts).removeprefix("docs_")
            found[f"page_{name.lower().replace('-', '_')}.py"] = text
        for block in blocks(page):
            if block.title and block.language == "python" and block.copied is None:
                assert block.title not in found, f"{block.where}: a second {block.title}"
                found[block.title] = block.body
    return found


def code(file: Path) -> str:
    """Return the text of a program: of a notebook, its code cells."""
    text = file.read_text(encoding="utf-8")
    if file.suffix != ".ipynb":
        return text
    cells = [cell["source"] for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    return "\n\n".join("".join(cell) for cell in cells) + "\n"


def with_copies(page: Path) -> str:
    """Return the text of a page with every copied block as its file is now."""

    def current(found: re.Match[str]) -> str:
        language, _, rest = found["info"].strip().partition(" ")
        file = Block(page, 0, language, rest.strip(), found["body"]).copied
        return found[0] if file is None else f"```{found['info']}\n{code(file)}```"

    return _FENCE.sub(current, page.read_text(encoding="utf-8"))


if __name__ == "__main__":
    from tests.docs.features import with_features  # it imports this module

    for each in pages():
        each.write_text(with_features(each, with_copies(each)), encoding="utf-8")
