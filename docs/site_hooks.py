"""Hooks of mkdocs: show files of the checkout that pages link to, and fill the empty sections of the navigation.

Pages are written to be read in the checkout, too. Their links lead to files there, also to files outside `docs/`.
The site shows those files below `checkout/`: Markdown as a page, anything else as a block of code.
"""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parent.parent
OUTSIDE: Final = "checkout/"
# A fence, which is skipped, or the path of a link.
LINK: Final = re.compile(
    r"^(?P<fence> *`{3,})\w.*?^(?P=fence)$|(?<=\]\()(?P<path>[^)\s#:]+)(?=(?:#[^)\s]*)?\))", re.MULTILINE | re.DOTALL
)
FENCE: Final = re.compile(r"^( *```\w+) (?:title=([\w./-]+)|\w+)$", re.MULTILINE)


def on_config(config: MkDocsConfig) -> None:
    """Fill each empty section of the navigation with the pages of the folder of its name, README.md first."""
    for section in config.nav or ():
        for title, pages in section.items() if isinstance(section, dict) else ():
            if not pages:
                found = Path(config.docs_dir, title.lower()).glob("*.md")
                names = (page.relative_to(config.docs_dir).as_posix() for page in found)
                pages += sorted(names, key=lambda name: (not name.endswith("README.md"), name))


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the files outside `docs/` that a page links to, and those that their links lead to."""
    todo = [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    done = set(todo)
    while todo:
        for target in outside(todo.pop()):
            if target not in done:
                done.add(target)
                todo.append(target)
                files.append(File.generated(config, shown_as(target), content=shown(ROOT / target)))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links to pages of the site, and write the options of fences as pymdownx reads them."""
    here = page.file.src_uri
    source = f"docs/{here}"
    if here.startswith(OUTSIDE):
        source = here.removeprefix(OUTSIDE)
        source = source if (ROOT / source).exists() else source.removesuffix(".md")

    def led(link: re.Match[str]) -> str:
        if not link["path"]:
            return link[0]
        target = resolved(source, link["path"])
        to = target.removeprefix("docs/") if target.startswith("docs/") else shown_as(target)
        return posixpath.relpath(to, posixpath.dirname(here))

    markdown = LINK.sub(led, markdown)
    return FENCE.sub(lambda fence: f'{fence[1]} title="{fence[2]}"' if fence[2] else fence[1], markdown)


def outside(source: str) -> Iterator[str]:
    """Yield the files outside `docs/` that a Markdown file of the checkout links to."""
    if source.endswith(".md"):
        for link in LINK.finditer((ROOT / source).read_text(encoding="utf-8")):
            target = resolved(source, link["path"] or "docs/")
            if not target.startswith("docs") and (ROOT / target).is_file():
                yield target


def resolved(source: str, link: str) -> str:
    """Return the path in the checkout that a link of a file leads to."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), link))


def shown_as(target: str) -> str:
    """Return the name in the site of a file outside `docs/`."""
    return OUTSIDE + (target if target.endswith(".md") else f"{target}.md")


def shown(file: Path) -> str:
    """Return a file as Markdown."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".md":
        return text
    return f"# {file.name}\n\n`{file.relative_to(ROOT)}`\n\n````{file.suffix[1:]}\n{text}````\n"
