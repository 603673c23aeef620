"""Count what a reader pays for: words an engineer would not write, files, names used twice, modules loaded.

`scripts/prose` prints the table. `tests/test_prose.py` holds the limits, which only shrink.
"""

import ast
import io
import json
import re
import subprocess
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import median

from outlast.flow.source import syntax_tree

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "outlast"

# Words and phrases of this list occur 0 to 3 times per 10,000 words in httpx, attrs, pydantic and Starlette.
MARKERS = re.compile(
    r"\b(whoever|whomever|nobody|somebody|anybody|everybody|one another|(?:is|are|was|were|be|been) told|tells? of"
    r"|stands?(?!-in)|stood|anew|of (?:its|their|our|his) own|(?-i:(?:is|are) none)|meanwhile|heed(?:s|ed)?|lest"
    r"|in earnest|for ever|thereby|begun|nevertheless|all the same|in vain|whose (?:word|turn)|as it stands|hereby"
    r"|it is over)\b",
    re.IGNORECASE,
)
# Those of them that have a plain word in each case: "of its own" is "separate", "stands in" is "is in".
FORBIDDEN = re.compile(
    r"\b(whoever|whomever|nobody|somebody|anybody|everybody|stands?(?! for\b|-in)|stood|anew|of (?:its|their|our|his)"
    r" own|lest|in earnest|for ever|thereby|nevertheless|in vain|as it stands|hereby)\b",
    re.IGNORECASE,
)
# A clause that begins with *what*: "What nobody guesses, …", "…: what a walk came to". The field has 0 to 2 per 10,000.
WHAT_CLAUSE = re.compile(r"(?:\A|[.;:,(]\s+)what\b(?!\?)", re.IGNORECASE)
WORD = re.compile(r"[A-Za-z][A-Za-z'’-]*")
METAPHORS = re.compile(r"\b(rooms?|houses?|doors?|desks?)\b", re.IGNORECASE)
TOPS = ("bench", "docs", "examples", "src", "tests")
CODE = re.compile(r"```.*?```|`[^`]*`|<!--.*?-->|https?://\S+", re.DOTALL)
# The part of a line outside of strings, then the comment.
TOML_COMMENT = re.compile(r"""(?:[^"'#]|"(?:[^"\\]|\\.)*"|'[^']*')*#\s*(.*)""")
FIRST_WORDS = {"what", "whether", "who", "whose", "of", "by", "from"}
FEW_WORDS = 4


@dataclass
class Prose:
    """Text of one kind and the counts over it."""

    words: int = 0
    markers: Counter[str] = field(default_factory=Counter)
    what: int = 0

    def add(self, text: str) -> None:
        """Count one passage, without the code in it."""
        text = CODE.sub(" ", text)
        self.words += len(WORD.findall(text))
        self.markers.update(found.lower() for found in MARKERS.findall(text))
        self.what += len(WHAT_CLAUSE.findall(text))

    def per_10k(self, count: int) -> float:
        """Return the rate of a count per 10,000 words."""
        return 10_000 * count / max(self.words, 1)


Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def parsed(top: Path) -> Iterator[tuple[Path, ast.Module]]:
    """Read every Python file below a folder."""
    for path in sorted(top.rglob("*.py")):
        yield path, syntax_tree(path.read_text(encoding="utf-8"))


@cache
def package() -> tuple[tuple[Path, ast.Module], ...]:
    """Return every file of the package."""
    return tuple(parsed(PACKAGE))


@cache
def passages(top: Path) -> tuple[tuple[Path, str], ...]:
    """Return the docstrings and comments of a tree of Python files."""
    return tuple(
        (path, passage)
        for path, tree in parsed(top)
        for passage in (*(doc for _, doc in docstrings(tree)), *comments(path.read_text(encoding="utf-8")))
    )


def docstrings(tree: ast.Module) -> Iterator[tuple[Documented, str]]:
    """Yield each documented node with its docstring."""
    for node in ast.walk(tree):
        if isinstance(node, Documented) and (text := ast.get_docstring(node)):
            yield node, text


def comments(text: str) -> Iterator[str]:
    """Yield each comment without its mark; directives to tools are left out."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not re.match(r"#\s*(noqa|type:|fmt:|pragma|!|pyright)", token.string):
            yield token.string.lstrip("# ")


def toml_comments(text: str) -> Iterator[str]:
    """Yield each comment of a TOML file without its mark."""
    for line in text.splitlines():
        if match := TOML_COMMENT.fullmatch(line):
            yield match[1]


def source_prose(top: Path) -> Prose:
    """Count docstrings and comments of a tree of Python files."""
    prose = Prose()
    for _, passage in passages(top):
        prose.add(passage)
    return prose


def page_prose(paths: Iterable[Path]) -> Prose:
    """Count Markdown pages, without their code blocks."""
    prose = Prose()
    for path in paths:
        prose.add(path.read_text(encoding="utf-8"))
    return prose


def forbidden(text: str, where: str) -> list[str]:
    """Return the forbidden words of a passage, each with its place."""
    return [f"{where}: {found[0]}" for found in FORBIDDEN.finditer(CODE.sub(" ", text))]


def forbidden_in_sources(top: Path) -> list[str]:
    """Return the forbidden words in docstrings and comments of a tree of Python files."""
    found: list[str] = []
    for path, passage in passages(top):
        found += forbidden(passage, f"{path.relative_to(ROOT)}")
    return found


def forbidden_in_configuration() -> list[str]:
    """Return the forbidden words, and metaphors for a package, in comments of TOML files."""
    found: list[str] = []
    for path in sorted({*ROOT.glob("*.toml"), *(each for top in TOPS for each in (ROOT / top).rglob("*.toml"))}):
        for comment in toml_comments(path.read_text(encoding="utf-8")):
            where = f"{path.relative_to(ROOT)}"
            found += forbidden(comment, where)
            found += [f"{where}: {word}" for word in METAPHORS.findall(comment)]
    return found


def help_prose() -> Prose:
    """Count the help texts of every command."""
    import click

    from outlast.cli.root import cli

    prose = Prose()

    def walk(command: click.Command, context: click.Context) -> None:
        prose.add(command.help or "")
        for parameter in command.params:
            prose.add(getattr(parameter, "help", "") or "")
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                if (inner := command.get_command(context, name)) is not None:
                    walk(inner, click.Context(inner, parent=context, info_name=name))

    walk(cli, click.Context(cli, info_name="outlast"))
    return prose


def odd_first_words() -> list[str]:
    """Return functions whose docstring starts with a word no verb phrase starts with."""
    found = []
    for path, tree in package():
        for node, doc in docstrings(tree):
            first = WORD.search(doc)
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or first is None:
                continue
            if first.group().lower() in FIRST_WORDS:
                found.append(f"{path.relative_to(PACKAGE)}:{node.lineno} {node.name}")
    return found


def short_docstrings() -> list[str]:
    """Return public functions whose docstring has four words or fewer."""
    found = []
    for path, tree in package():
        for node, doc in docstrings(tree):
            public = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_")
            if public and len(WORD.findall(doc)) <= FEW_WORDS:
                found.append(f"{path.relative_to(PACKAGE)}:{getattr(node, 'lineno', 0)} {getattr(node, 'name', '')}")
    return found


HTTPX_NAMES = frozenset({"Client"})
AGENT_NAMES = frozenset({"Message", "Model", "Rejected"})  # the field's words for the values of a model
"""Classes of `outlast.http` that bear the names of their bases in httpx2, for authors who replace one import."""


def duplicate_classes() -> dict[str, list[str]]:
    """Return class names that more than one module of the package defines."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path, tree in package():
        for node in ast.walk(tree):
            taken = HTTPX_NAMES if path.name == "http.py" else AGENT_NAMES if path.parent.name == "agent" else ()
            if isinstance(node, ast.ClassDef) and node.name not in taken:
                places[node.name].append(str(path.relative_to(PACKAGE)))
    return {name: where for name, where in sorted(places.items()) if len(where) > 1}


def sizes() -> dict[str, tuple[int, int]]:
    """Return modules and lines of each package, subpackages counted with their package."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).parts
        found[parts[0] if len(parts) > 1 else "(top)"].append(len(path.read_text(encoding="utf-8").splitlines()))
    return {name: (len(lines), sum(lines)) for name, lines in sorted(found.items())}


def start_cost(*args: str) -> tuple[int, float]:
    """Run `python ARGS` and return how many of our modules it loaded and its CPU seconds (minimum of 5)."""
    probe = (
        "import atexit, json, os, sys\n"
        "atexit.register(lambda: print(json.dumps([sum(m.startswith('outlast') for m in sys.modules), "
        "sum(os.times()[:2])]), file=sys.stderr))\n"
    )
    called = f"import sys; sys.argv = {['outlast', *args]!r}; from outlast.cli import main; main()"
    body = called if args else "import outlast"
    best: list[tuple[int, float]] = []
    for _ in range(5):
        done = subprocess.run([sys.executable, "-c", probe + body], capture_output=True, text=True, check=False)
        modules, cpu = json.loads(done.stderr.strip().splitlines()[-1])
        best.append((modules, cpu))
    return min(best, key=lambda each: each[1])


def report() -> str:
    """Return the table that `scripts/prose` prints."""
    source = source_prose(PACKAGE)
    texts = {
        "docstrings and comments of src": source,
        "docs, README, ARCHITECTURE, …": page_prose([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]),
        "help of the command line": help_prose(),
        "tests": source_prose(ROOT / "tests"),
    }
    lines = [f"{'text':32} {'words':>7} {'markers/10k':>12} {'what/10k':>9}"]
    for name, prose in texts.items():
        markers = prose.per_10k(sum(prose.markers.values()))
        lines.append(f"{name:32} {prose.words:7,} {markers:12.1f} {prose.per_10k(prose.what):9.1f}")
    lines += ["", "most frequent: " + ", ".join(f"{word} {n}" for word, n in source.markers.most_common(12))]
    packages = sizes()
    files = [len(path.read_text(encoding="utf-8").splitlines()) for path in PACKAGE.rglob("*.py")]
    lines += ["", f"{'package':12} {'modules':>8} {'lines':>8}"]
    lines += [f"{name:12} {modules:8} {n:8,}" for name, (modules, n) in packages.items()]
    lines += [f"{'all':12} {len(files):8} {sum(files):8,}   median file {median(files):.0f}, longest {max(files)}", ""]
    lines.append(f"docstrings with an odd first word: {len(odd_first_words())}")
    lines.append(f"docstrings of four words or fewer on public functions: {len(short_docstrings())}")
    lines.append(f"class names used more than once: {len(duplicate_classes())}")
    for args in ((), ("--help",), ("runs", "ls")):
        modules, cpu = start_cost(*args)
        lines.append(
            f"{' '.join(('outlast', *args)) if args else 'import outlast':20} {modules:4} modules, {cpu:.2f} s of CPU"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(f"{report()}\n")
